/*
 * cut_ranks.h - what the tests of tri_parallelize share: a small network with its data, and where
 * the parts of its tensors belong in the whole. Tests only.
 */
#ifndef CUT_RANKS_H
#define CUT_RANKS_H

#include <math.h>

#include <trireme/trireme.h>

#include "testing/check.h"
#include "testing/ranks.h"
#include "testing/train_ranks.h"
#include "train/nn/module.h"
#include "train/tensor/persistent.h"
#include "train/tensor/piece.h"

#define IN 5
#define OUT 4
#define ROWS 6
#define NUMBERS 600

static trii_mutex drawing = TRII_MUTEX_INITIALIZER; /* the seed is the process's */

static inline tri_module *build(uint64_t seed)
{
    tri_module *net;

    trii_mutex_lock(&drawing);
    tri_manual_seed(seed);
    tri_set_default_dtype(TRI_DTYPE_F64);
    net = tri_nn_sequential(tri_nn_linear(IN, 7, NULL), tri_nn_tanh(), tri_nn_linear(7, 6, NULL),
                            tri_nn_layer_norm(TRI_SHAPE(6), NULL), tri_nn_dropout(0.25),
                            tri_nn_linear(6, 5, NULL), tri_nn_tanh(),
                            tri_nn_linear(5, OUT, &(tri_nn_linear_options){.no_bias = true}));
    tri_set_default_dtype(TRI_DTYPE_F32);
    tri_manual_seed(11);
    trii_mutex_unlock(&drawing);
    return net;
}

static inline tri_tensor *rows(int first, int n, int width)
{
    double data[ROWS * 8];

    for (int i = 0; i < n * width; i++)
        data[i] = 0.9 * sin(1.3 * (first * width + i) + width);
    return tri_tensor_from(TRI_SHAPE(n, width), TRI_DTYPE_F64, data);
}

#define PART 17000 /* most elements of a tensor */

/* Puts what is here of a tensor to its places in the whole, of which it returns the size. */
static inline int put_tensor(tri_tensor *t, double *whole, tri_status *status)
{
    static _Thread_local double part[PART];
    trii_piece all = {.ndim = t->ndim};
    tri_tensor *here = t->held != NULL && t->held->tensor != NULL ? t->held->tensor : t;
    const int64_t *shape = t->shape;
    trii_runs from, to;
    int64_t start = 0;

    if (t->held != NULL) {
        all.ndim = t->held->ndim;
        shape = t->held->shape;
    }
    memcpy(all.size, shape, sizeof(all.size));
    to = trii_piece_runs(&all, shape, all.ndim);
    from = t->held != NULL ? trii_piece_runs(&t->held->piece, shape, all.ndim) : to;
    if (t->held != NULL && t->held->shared_by != NULL) { /* others have the rest of the piece */
        trii_piece_copy(&to, whole, &from, part, sizeof(double));
        start = t->held->from;
    }
    if (*status == TRI_OK)
        *status = tri_tensor_copy_out(here, part + start, trii_tensor_bytes(here));
    if (*status == TRI_OK)
        trii_piece_copy(&from, part, &to, whole, sizeof(double));
    return (int)trii_piece_count(&all);
}

/* The same of all of a network; the rest stays. */
static inline tri_status put(tri_module *net, double *whole, bool *is_whole)
{
    tri_status status = TRI_OK;

    for (int64_t i = 0; i < tri_module_state_count(net); i++) {
        tri_tensor *t = tri_module_state(net, i).tensor;
        int n = put_tensor(t, whole, &status);

        for (int k = 0; k < n; k++)
            is_whole[k] = t->held == NULL;
        whole += n;
        is_whole += n;
    }
    return status;
}

static inline const char *far_from(rank_env *env, const char *what, const double *got,
                                   const double *want, int n)
{
    for (int i = 0; i < n; i++) {
        if (!(fabs(got[i] - want[i]) <= 1e-9 * (1 + fabs(want[i]))))
            return RANK_FAIL(env, "rank %d of %d: %s %d is %.12g, not %.12g", env->rank, env->size,
                             what, i, got[i], want[i]);
    }
    return NULL;
}

static const tri_parallel_rule pairs[] = {{.module = "0", .style = TRI_COLWISE},
                                          {.module = "2", .style = TRI_ROWWISE},
                                          {.module = "5", .style = TRI_COLWISE},
                                          {.module = "7", .style = TRI_ROWWISE}};

#endif
