/*
 * ddp_ranks.h - what the tests of data-parallel training share: ranks as threads over a hash
 * store, and a small network with its data. Tests only.
 */
#ifndef DDP_RANKS_H
#define DDP_RANKS_H

#include <math.h>

#include <trireme/trireme.h>

#include "base/compiler.h"
#include "train/graph/step/step.h"
#include "os/thread.h"
#include "testing/check.h"

#ifndef MAX_RANKS
#define MAX_RANKS 4
#endif
#define ROWS 12
#define IN 6
#define OUT 3
#define STEPS 5
#define WEIGHTS 512

/* --- ranks as threads ----------------------------------------------------- */

typedef struct rank rank;
typedef tri_status (*rank_body)(rank *r);

struct rank {
    int index, size;
    tri_store *store;
    tri_group *group;
    rank_body body;
    const void *arg;
    tri_status status;
    char line[512];
    double weights[WEIGHTS]; /* what the body leaves to be compared */
    int n_weights;
    uint64_t hash;
};

static inline void run_rank(void *arg)
{
    rank *r = arg;

    r->status = tri_group_create(r->store, r->index, r->size, NULL, &r->group);
    if (r->status == TRI_OK)
        r->status = r->body(r);
    snprintf(r->line, sizeof(r->line), "%s", tri_last_error());
    tri_step_end();
    tri_group_unref(r->group);
}

static inline void run_ranks(rank *ranks, int size, rank_body body, const void *arg)
{
    trii_thread threads[MAX_RANKS];
    tri_store *store;

    CHECK_OK(tri_store_hash(&store));
    for (int i = 0; i < size; i++) {
        ranks[i] = (rank){.index = i, .size = size, .store = store, .body = body, .arg = arg};
        CHECK_OK(trii_thread_start(&threads[i], "rank", run_rank, &ranks[i]));
    }
    for (int i = 0; i < size; i++)
        trii_thread_join(&threads[i]);
    tri_store_unref(store);
}

static inline void check_ranks(const rank *ranks, int size)
{
    for (int i = 0; i < size; i++)
        if (ranks[i].status != TRI_OK)
            fail_msg("rank %d of %d: %s: %s", i, size, tri_status_name(ranks[i].status),
                     ranks[i].line);
}

static inline void ranks_succeed(rank *ranks, int size, rank_body body, const void *arg)
{
    run_ranks(ranks, size, body, arg);
    check_ranks(ranks, size);
}

#define TRY(call)                                                                                  \
    do {                                                                                           \
        tri_status try_status_ = (call);                                                           \
        if (try_status_ < 0)                                                                       \
            return try_status_;                                                                    \
    } while (0)

/* --- the problem: an MLP in double precision ------------------------------ */

static double x_data[ROWS * IN], y_data[ROWS * OUT];

static inline void make_data(void)
{
    unsigned seed = 5;

    for (int i = 0; i < ROWS * IN + ROWS * OUT; i++) {
        double *to = i < ROWS * IN ? &x_data[i] : &y_data[i - ROWS * IN];

        seed = seed * 1664525u + 1013904223u;
        *to = (double)(seed >> 8) / (double)(1 << 23) - 1.0;
    }
}

static inline tri_tensor *rows_of(const double *data, int width, int first, int n)
{
    return tri_tensor_from((int64_t[]){n, width}, 2, TRI_DTYPE_F64, data + first * width);
}

/* The seed is the process's: one rank at a time draws initial values. */
static trii_mutex drawing = TRII_MUTEX_INITIALIZER;

static inline tri_module *mlp(uint64_t seed)
{
    tri_module *net;

    trii_mutex_lock(&drawing);
    tri_manual_seed(seed);
    tri_set_default_dtype(TRI_DTYPE_F64);
    net = tri_nn_sequential(tri_nn_linear(IN, 8, NULL), tri_nn_relu(), tri_nn_linear(8, 8, NULL),
                            tri_nn_relu(), tri_nn_linear(8, OUT, NULL));
    tri_set_default_dtype(TRI_DTYPE_F32);
    trii_mutex_unlock(&drawing);
    return net;
}

static inline tri_status take_weights(rank *r, tri_module *model)
{
    r->n_weights = 0;
    for (int64_t i = 0; i < tri_module_state_count(model); i++) {
        tri_tensor *t = tri_module_state(model, i).tensor;
        int n = (int)tri_tensor_numel(t);

        if (tri_tensor_dtype(t) != TRI_DTYPE_F64)
            continue;
        TRY(tri_tensor_copy_out(t, r->weights + r->n_weights, (size_t)n * sizeof(double)));
        r->n_weights += n;
    }
    return tri_module_hash(model, &r->hash);
}

/* The end of a training; x, y: its batch, or NULL. */
static inline tri_status take_and_destroy(rank *r, tri_module *model, tri_optimizer *opt,
                                          tri_tensor *x, tri_tensor *y)
{
    tri_status status = take_weights(r, model);

    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    return status;
}

#endif
