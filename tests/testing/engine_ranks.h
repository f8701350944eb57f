/*
 * engine_ranks.h - engines of deepspeed.h on ranks that are threads, or on one rank, with a small
 * problem. Tests only.
 */
#ifndef TEST_ENGINE_RANKS_H
#define TEST_ENGINE_RANKS_H

#include "base/err.h"
#include "testing/fit_problem.h"

#define ENGINE_BATCH 4
#define ENGINE_MICRO_STEPS 24

/* Row `step` of what this rank reads: the same whatever the stage. */
static inline void engine_batch(const rank *r, int step, tri_tensor **x_out, tri_tensor **y_out)
{
    float x[ENGINE_BATCH][FIT_IN];
    int64_t y[ENGINE_BATCH];
    uint64_t seed = 1 + (uint64_t)step * 8 + (uint64_t)r->index;

    for (int i = 0; i < ENGINE_BATCH; i++) {
        float sum = 0;

        for (int d = 0; d < FIT_IN; d++) {
            x[i][d] = (float)(scratch_random(&seed) % 2001) / 1000 - 1;
            sum += x[i][d] * (float)(d + 1);
        }
        y[i] = sum < -1 ? 0 : sum < 1 ? 1 : 2;
    }
    *x_out = tri_tensor_from((int64_t[]){ENGINE_BATCH, FIT_IN}, 2, TRI_DTYPE_F32, x);
    *y_out = tri_tensor_from((int64_t[]){ENGINE_BATCH}, 1, TRI_DTYPE_I64, y);
}

static inline tri_module *engine_network(void)
{
    fit_arg arg = {0};

    return fit_model(&arg);
}

static inline tri_status engine_make(const rank *r, const char *config, tri_engine **engine_out)
{
    return tri_initialize(NULL, engine_network(),
                          &(tri_initialize_options){.config = config, .group = r->group},
                          engine_out);
}

/* One micro-batch; its loss. */
static inline tri_status engine_micro_step(tri_engine *e, const rank *r, int step, double *loss_out)
{
    tri_tensor *x, *y, *loss;
    tri_status status;

    engine_batch(r, step, &x, &y);
    loss = tri_cross_entropy(tri_engine_forward(e, x), y, NULL);
    tri_engine_backward(e, loss);
    status = tri_engine_step(e);
    if (status == TRI_OK)
        status = tri_item_status(loss, loss_out);
    tri_step_end();
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    return status;
}

/* Micro-batches first, first + 1, .. */
static inline tri_status engine_micro_steps(tri_engine *e, const rank *r, int first, int n)
{
    double loss;

    for (int step = first; step < first + n; step++)
        TRY(engine_micro_step(e, r, step, &loss));
    return TRI_OK;
}

/* --- an engine on each of several ranks ----------------------------------- */

typedef struct engine_job {
    const char *config;
    tri_status (*body)(tri_engine *e, rank *r, void *arg);
    void *arg;
} engine_job;

static inline tri_status engine_rank(rank *r)
{
    const engine_job *j = r->arg;
    char line[512];
    tri_engine *e = NULL;
    tri_status status;

    TRY(engine_make(r, j->config, &e));
    status = j->body(e, r, j->arg);
    snprintf(line, sizeof(line), "%s", tri_last_error());
    tri_step_end();
    tri_engine_destroy(e);
    if (status != TRI_OK)
        trii_err_set("%s", line);
    return status;
}

/* How each ended is in its status and line. */
static inline void run_engines(rank *ranks, int size, const char *config,
                               tri_status (*body)(tri_engine *e, rank *r, void *arg), void *arg)
{
    const engine_job j = {config, body, arg};

    run_ranks(ranks, size, engine_rank, &j);
}

/* --- an engine of one rank ------------------------------------------------ */

typedef struct lone_engine {
    rank r;
    tri_engine *e;
} lone_engine;

static inline void lone_engine_begin(lone_engine *l, const char *config)
{
    *l = (lone_engine){.r = {.size = 1}};
    CHECK_OK(tri_store_hash(&l->r.store));
    CHECK_OK(tri_group_create(l->r.store, 0, 1, NULL, &l->r.group));
    CHECK_OK(engine_make(&l->r, config, &l->e));
}

static inline void lone_engine_end(lone_engine *l)
{
    tri_step_end();
    tri_engine_destroy(l->e);
    tri_group_unref(l->r.group);
    tri_store_unref(l->r.store);
}

#endif
