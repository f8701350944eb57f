/*
 * pipeline_ranks.h - what the tests of pipelines share: small stages in double precision, a batch,
 * and what one process makes of both. Tests only.
 */
#ifndef PIPELINE_RANKS_H
#define PIPELINE_RANKS_H

#include <math.h>

#include <trireme/pipeline.h>
#include <trireme/trireme.h>

#include "base/compiler.h"
#include "base/hash.h"
#include "train/parallel/pipeline/pipeline_schedule.h"
#include "testing/check.h"
#include "testing/ranks.h"
#include "testing/train_ranks.h"

#define PIPELINE_WIDTH 6
#define PIPELINE_OUT 3
#define PIPELINE_MOST_ROWS 30000
#define PIPELINE_STAGES 16
#define PIPELINE_STEPS 10
#define PIPELINE_ENTRIES (8 * PIPELINE_STAGES)

/* What a training leaves: a row for each tensor in f64 of the whole network. */
typedef struct pipeline_result {
    double loss[PIPELINE_STEPS];
    int n;
    struct {
        char name[48];
        int numel;
        double values[4 * PIPELINE_WIDTH * PIPELINE_WIDTH];
    } entries[PIPELINE_ENTRIES];
} pipeline_result;

typedef struct pipeline_job {
    tri_pipeline_options options; /* without the group */
    int stages, rows;
    int steps;                                 /* 0: PIPELINE_STEPS */
    void (*build)(tri_module **stages, int n); /* NULL: pipeline_stages */
    pipeline_result *want;                     /* within 1e-9 */
    pipeline_result *result;                   /* each rank writes its part of it */
} pipeline_job;

/* The seed and the default dtype are the process's: one rank at a time draws initial values. */
static trii_mutex pipeline_drawing = TRII_MUTEX_INITIALIZER;
/* Over the results of all ranks. */
static trii_mutex pipeline_writing = TRII_MUTEX_INITIALIZER;

/* norm: some stages have statistics of each micro-batch, of at least two rows. */
static inline void pipeline_stages(tri_module **stages, int n, bool norm)
{
    trii_mutex_lock(&pipeline_drawing);
    tri_manual_seed(11);
    tri_set_default_dtype(TRI_DTYPE_F64);
    for (int s = 0; s < n; s++) {
        int out = s == n - 1 ? PIPELINE_OUT : PIPELINE_WIDTH;

        stages[s] =
            norm && s % 3 == 1
                ? tri_nn_sequential(tri_nn_linear(PIPELINE_WIDTH, out, NULL),
                                    tri_nn_batch_norm1d(out, NULL), tri_nn_tanh())
                : tri_nn_sequential(tri_nn_linear(PIPELINE_WIDTH, out, NULL), tri_nn_tanh());
    }
    tri_set_default_dtype(TRI_DTYPE_F32);
    trii_mutex_unlock(&pipeline_drawing);
}

static inline void pipeline_build(const pipeline_job *job, tri_module **stages)
{
    if (job->build == NULL) {
        pipeline_stages(stages, job->stages, job->rows >= 2 * job->options.n_microbatches);
        return;
    }
    trii_mutex_lock(&pipeline_drawing);
    tri_manual_seed(11);
    tri_set_default_dtype(TRI_DTYPE_F64);
    job->build(stages, job->stages);
    tri_set_default_dtype(TRI_DTYPE_F32);
    trii_mutex_unlock(&pipeline_drawing);
}

/* Another batch in each step. */
static inline tri_tensor *pipeline_batch(int step, int rows, int width)
{
    double *data = malloc((size_t)(rows * width) * sizeof(*data));
    tri_tensor *batch;

    for (int i = 0; i < rows * width && data != NULL; i++)
        data[i] = sin(1.3 * i + 0.7 * step + width);
    batch = tri_tensor_from(TRI_SHAPE(rows, width), TRI_DTYPE_F64, data);
    free(data);
    return batch;
}

static inline tri_tensor *pipeline_mse(tri_tensor *output, tri_tensor *target, void *arg)
{
    (void)arg;
    return tri_mse_loss(output, target, NULL);
}

/* The place of a tensor in the result, which it is added to if it is not there. */
static inline int pipeline_entry(pipeline_result *result, const char *name)
{
    int i = 0;

    while (i < result->n && strcmp(result->entries[i].name, name) != 0)
        i++;
    if (i == result->n && i < PIPELINE_ENTRIES)
        snprintf(result->entries[result->n++].name, sizeof(result->entries[i].name), "%s", name);
    return i;
}

static inline tri_status pipeline_read(tri_module *model, pipeline_result *result)
{
    tri_status status = TRI_OK;

    for (int64_t i = 0; i < tri_module_state_count(model) && status == TRI_OK; i++) {
        const tri_state_entry e = tri_module_state(model, i);
        int at;

        if (tri_tensor_dtype(e.tensor) != TRI_DTYPE_F64)
            continue;
        at = pipeline_entry(result, e.name);
        result->entries[at].numel = (int)tri_tensor_numel(e.tensor);
        if (result->entries[at].numel > 4 * PIPELINE_WIDTH * PIPELINE_WIDTH)
            return TRI_ERR_INVALID_ARG;
        status = tri_tensor_copy_out(e.tensor, result->entries[at].values,
                                     (size_t)result->entries[at].numel * sizeof(double));
    }
    return status;
}

/* Of this rank's stages, which needs no group that works. Without running statistics in eager mode,
 * where the forward of a step that fails later has written them. */
static inline tri_status pipeline_hash(tri_module *model, uint64_t *hash_out)
{
    tri_status status = TRI_OK;

    *hash_out = TRII_HASH_SEED;
    for (int64_t i = 0; i < tri_module_state_count(model) && status == TRI_OK; i++) {
        tri_tensor *tensor = tri_module_state(model, i).tensor;
        double values[4 * PIPELINE_WIDTH * PIPELINE_WIDTH];
        size_t bytes = (size_t)tri_tensor_numel(tensor) * tri_dtype_size(tri_tensor_dtype(tensor));

        if (!tri_module_state(model, i).parameter && getenv("TRI_EAGER") != NULL)
            continue;
        status = bytes <= sizeof(values) ? tri_tensor_copy_out(tensor, values, bytes)
                                         : TRI_ERR_INVALID_ARG;
        if (status == TRI_OK)
            *hash_out = trii_hash(*hash_out, values, bytes);
    }
    return status;
}

/* One process that accumulates the same micro-batches. */
static inline void pipeline_one_process(const pipeline_job *job, pipeline_result *result)
{
    tri_module *stages[PIPELINE_STAGES], *model;
    tri_optimizer *opt;
    int m = job->options.n_microbatches, steps = job->steps > 0 ? job->steps : PIPELINE_STEPS;

    pipeline_build(job, stages);
    model = tri_nn_sequential_of(job->stages, stages);
    opt = tri_sgd(model, 0.1, &(tri_sgd_options){.momentum = 0.9});
    for (int s = 0; s < steps; s++) {
        tri_tensor *x = pipeline_batch(s, job->rows, PIPELINE_WIDTH);
        tri_tensor *y = pipeline_batch(s, job->rows, PIPELINE_OUT), *total = NULL;

        for (int i = 0, first = 0; i < m && first < job->rows; i++) {
            int n = job->rows / m + (i < job->rows % m);
            tri_tensor *loss =
                tri_mul_scalar(tri_mse_loss(tri_forward(model, tri_narrow(x, 0, first, n)),
                                            tri_narrow(y, 0, first, n), NULL),
                               (double)n / job->rows);

            tri_backward(loss);
            TRI_NO_GRAD total = total == NULL ? loss : tri_add(total, loss);
            first += n;
        }
        total = tri_keep(total);
        CHECK_OK(tri_optimizer_step(opt));
        result->loss[s] = tri_item(total);
        tri_step_end();
        tri_tensor_unref(x);
        tri_tensor_unref(y);
    }
    CHECK_OK(pipeline_read(model, result));
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
}

/* A rank gives the batch where the first stage is, and the targets where the last one is. */
static inline tri_status pipeline_train(const pipeline_job *job, tri_module *pipe,
                                        tri_optimizer *opt, int step, double *loss_out)
{
    tri_tensor *x = NULL, *y = NULL, *loss;
    tri_status status;
    char last[16];

    snprintf(last, sizeof(last), "%d", job->stages - 1);
    if (tri_module_submodule(pipe, "0") != NULL)
        x = pipeline_batch(step, job->rows, PIPELINE_WIDTH);
    if (tri_module_submodule(pipe, last) != NULL)
        y = pipeline_batch(step, job->rows, PIPELINE_OUT);
    loss = tri_pipeline_step(pipe, x, y, pipeline_mse, NULL);
    status = update_and_read(opt, loss, loss_out);
    if (status != TRI_OK)
        tri_step_end();
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    return status;
}

static inline tri_module *pipeline_make(const pipeline_job *job, tri_group *group)
{
    tri_module *stages[PIPELINE_STAGES];
    tri_pipeline_options options = job->options;

    options.group = group;
    pipeline_build(job, stages);
    return tri_pipeline(stages, job->stages, &options);
}

/* What a rank has for a step or two: its pipeline, and batch 0 whole. */
typedef struct pipeline_own {
    tri_group *group;
    tri_module *pipe;
    tri_optimizer *opt; /* the test makes one, or none */
    tri_tensor *x, *y;
} pipeline_own;

/* A pipeline that has failed tells it by tri_module_status. */
static inline tri_status pipeline_begin(rank_env *env, const pipeline_job *job, pipeline_own *own)
{
    tri_status status;

    *own = (pipeline_own){.x = pipeline_batch(0, job->rows, PIPELINE_WIDTH),
                          .y = pipeline_batch(0, job->rows, PIPELINE_OUT)};
    status = tri_group_create(env->store, env->rank, env->size, env->options, &own->group);
    if (status == TRI_OK)
        own->pipe = pipeline_make(job, own->group);
    return status;
}

static inline void pipeline_end(const pipeline_own *own)
{
    tri_optimizer_destroy(own->opt);
    tri_module_destroy(own->pipe);
    tri_group_unref(own->group);
    tri_tensor_unref(own->x);
    tri_tensor_unref(own->y);
}

/* What differs; NULL: nothing. within 0: bits. */
static inline const char *pipeline_differs(rank_env *env, const pipeline_result *got,
                                           pipeline_result *want, double within)
{
    for (int i = 0; i < got->n; i++) {
        int at = pipeline_entry(want, got->entries[i].name);

        if (got->entries[i].numel != want->entries[at].numel)
            return RANK_FAIL(env, "rank %d has %s, which one process has not", env->rank,
                             got->entries[i].name);
        for (int k = 0; k < got->entries[i].numel; k++) {
            double a = got->entries[i].values[k], b = want->entries[at].values[k];

            if (!(fabs(a - b) <= within * (1 + fabs(b))))
                return RANK_FAIL(env, "rank %d of %d: %s [%d] is %.17g, not %.17g", env->rank,
                                 env->size, got->entries[i].name, k, a, b);
        }
    }
    return NULL;
}

static inline const char *pipeline_rank(rank_env *env)
{
    const pipeline_job *job = env->arg;
    pipeline_result *own = calloc(1, sizeof(*own));
    int steps = job->steps > 0 ? job->steps : PIPELINE_STEPS;
    tri_group *group = NULL;
    tri_module *pipe;
    tri_optimizer *opt;
    const char *wrong = NULL;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    pipe = pipeline_make(job, group);
    RANK_TRY(env, tri_module_status(pipe));
    opt = tri_sgd(pipe, 0.1, &(tri_sgd_options){.momentum = 0.9});
    for (int s = 0; s < steps && own != NULL; s++)
        RANK_TRY(env, pipeline_train(job, pipe, opt, s, &own->loss[s]));
    RANK_TRY(env, pipeline_read(pipe, own));
    if (job->want != NULL) {
        trii_mutex_lock(&pipeline_writing);
        wrong = pipeline_differs(env, own, job->want, 1e-9);
        for (int s = 0; s < steps && wrong == NULL; s++)
            if (!(fabs(own->loss[s] - job->want->loss[s]) <= 1e-9))
                wrong = RANK_FAIL(env, "rank %d of %d: loss %d is %.17g, not %.17g", env->rank,
                                  env->size, s, own->loss[s], job->want->loss[s]);
        trii_mutex_unlock(&pipeline_writing);
    }
    if (job->result != NULL) {
        trii_mutex_lock(&pipeline_writing);
        memcpy(job->result->loss, own->loss, sizeof(own->loss));
        (void)pipeline_read(pipe, job->result);
        trii_mutex_unlock(&pipeline_writing);
    }
    tri_optimizer_destroy(opt);
    tri_module_destroy(pipe);
    tri_group_unref(group);
    free(own);
    return wrong;
}

/* --- whole trainings ------------------------------------------------------ */

/* Trains with a schedule, and compares with one process. */
static inline void pipeline_train_all(tri_pipeline_schedule schedule, int ranks,
                                      const pipeline_job *plain, pipeline_result *result)
{
    pipeline_job job = *plain;

    job.options.schedule = schedule;
    job.result = result;
    run_threads(ranks, &(tri_group_options){.engine = ranks > 1 ? "shm" : "self"}, pipeline_rank,
                &job);
}

static inline pipeline_result *pipeline_result_new(void)
{
    pipeline_result *result = calloc(1, sizeof(*result));

    assert_non_null(result);
    return result;
}

/* They have the same bits. */
static inline void pipeline_same(const pipeline_result *a, pipeline_result *b)
{
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->loss, b->loss, sizeof(a->loss));
    for (int i = 0; i < a->n; i++) {
        int at = pipeline_entry(b, a->entries[i].name);

        assert_memory_equal(a->entries[i].values, b->entries[at].values,
                            (size_t)a->entries[i].numel * sizeof(double));
    }
}

/* All schedules come to the bits of the first, and to the numbers of one process. */
static inline void pipeline_compare(const tri_pipeline_schedule *schedules, int n, int ranks,
                                    int stages, int m, int rows)
{
    pipeline_result *want = pipeline_result_new(), *first = pipeline_result_new();
    pipeline_job job = {.options = {.n_microbatches = m},
                        .stages = stages,
                        .rows = rows,
                        .steps = rows > 100 ? 2 : 0};

    pipeline_one_process(&job, want);
    job.want = want;
    pipeline_train_all(schedules[0], ranks, &job, first);
    for (int i = 1; i < n; i++) {
        pipeline_result *other = pipeline_result_new();

        pipeline_train_all(schedules[i], ranks, &job, other);
        pipeline_same(first, other);
        free(other);
    }
    free(first);
    free(want);
}

/* All schedules that these numbers are allowed for: looped breadth-first is for any. */
static inline void pipeline_compare_loops(int ranks, int each, int m, int rows)
{
    tri_pipeline_schedule schedules[4] = {TRI_PIPELINE_LOOPED_BFS};
    int n = 1;

    for (int s = TRI_PIPELINE_INTERLEAVED; s <= TRI_PIPELINE_ZBV; s++) {
        const trii_pipeline_shape shape = {(tri_pipeline_schedule)s, ranks, each * ranks, m};

        if (s != TRI_PIPELINE_LOOPED_BFS && trii_pipeline_shape_check(&shape) == TRI_OK)
            schedules[n++] = (tri_pipeline_schedule)s;
    }
    pipeline_compare(schedules, n, ranks, each * ranks, m, rows);
}

#endif
