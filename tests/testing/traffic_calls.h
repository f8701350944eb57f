/*
 * traffic_calls.h - recorded collectives and messages as functions on tensors. Tests only.
 */
#ifndef TEST_TRAFFIC_CALLS_H
#define TEST_TRAFFIC_CALLS_H

#include <stdlib.h>

#include "train/graph/step/step.h"
#include "testing/check.h"
#include "testing/ranks.h"
#include "train/traffic/traffic.h"

typedef enum call_kind { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL } call_kind;

static inline tri_tensor *collective(call_kind kind, tri_group *group, tri_tensor *x)
{
    trii_step *step = trii_step_current();
    trii_vid in = TRII_NO_VALUE, out = TRII_NO_VALUE;
    tri_status status = trii_resolve(step, x, &in);

    if (status == TRI_OK && kind == ALL_REDUCE)
        status = trii_record_all_reduce(step, group, in, TRI_REDOP_SUM, &out);
    if (status == TRI_OK && kind == ALL_GATHER)
        status = trii_record_all_gather(step, group, in, &out);
    if (status == TRI_OK && kind == REDUCE_SCATTER)
        status = trii_record_reduce_scatter(step, group, in, TRI_REDOP_AVG, &out);
    if (status == TRI_OK && kind == ALL_TO_ALL)
        status = trii_record_all_to_all(step, group, in, &out);
    return status == TRI_OK ? trii_handle_recorded(step, out) : trii_handle_failed(step, status);
}

static inline tri_tensor *send_to(tri_group *group, tri_tensor *x, int peer, int tag)
{
    trii_step *step = trii_step_current();
    trii_vid in = TRII_NO_VALUE, out = TRII_NO_VALUE;
    tri_status status = trii_resolve(step, x, &in);

    if (status == TRI_OK)
        status = trii_record_send(step, group, in, peer, tag, &out);
    return status == TRI_OK ? trii_handle_recorded(step, out) : trii_handle_failed(step, status);
}

static inline tri_tensor *received(tri_group *group, const trii_type *type, bool requires_grad,
                                   int peer, int tag)
{
    trii_step *step = trii_step_current();
    trii_vid out = TRII_NO_VALUE;
    tri_status status = trii_record_recv(step, group, type, requires_grad, peer, tag, NULL, &out);

    return status == TRI_OK ? trii_handle_recorded(step, out) : trii_handle_failed(step, status);
}

static inline tri_tensor *recv_from(tri_group *group, tri_dtype dtype, int64_t rows,
                                    int64_t columns, bool requires_grad, int peer, int tag)
{
    const trii_type type = {.dtype = dtype, .ndim = 2, .shape = {rows, columns}};

    return received(group, &type, requires_grad, peer, tag);
}

static inline tri_tensor *filled(int64_t n, double first, double by)
{
    double *data = malloc((size_t)(n > 0 ? n : 1) * sizeof(*data));
    tri_tensor *t;

    for (int64_t i = 0; i < n; i++)
        data[i] = first + by * (double)i;
    t = tri_tensor_from(TRI_SHAPE(n), TRI_DTYPE_F64, data);
    free(data);
    return t;
}

static inline tri_status group_of(rank_env *env, tri_group **group_out)
{
    return tri_group_create(env->store, env->rank, env->size, env->options, group_out);
}

static const tri_group_options engines[] = {{.engine = "shm"}, {.engine = "tcp"}};

#endif
