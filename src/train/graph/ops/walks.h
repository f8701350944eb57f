/*
 * walks.h - loops over the elements of a plain tensor, for reference kernels that move them.
 */
#ifndef TRII_WALKS_H
#define TRII_WALKS_H

#include "train/graph/step/type.h"

static inline void trii_walk_strides(const trii_type *type, int64_t *stride)
{
    int64_t step = 1;

    for (int d = type->ndim - 1; d >= 0; d--) {
        stride[d] = step;
        step *= type->shape[d];
    }
}

/* The next index in plain order; returns the offset that the strides give it. */
static inline int64_t trii_walk_next(const trii_type *type, int64_t *at, const int64_t *stride)
{
    int64_t offset = 0;

    for (int d = type->ndim - 1; d >= 0 && ++at[d] == type->shape[d]; d--)
        at[d] = 0;
    for (int d = 0; d < type->ndim; d++)
        offset += at[d] * stride[d];
    return offset;
}

/* A type as [outer, n, inner] around a dimension. */
typedef struct trii_around {
    int64_t outer, n, inner;
} trii_around;

static inline trii_around trii_around_of(const trii_type *type, int64_t dim)
{
    trii_around r = {1, 1, 1};

    for (int d = 0; d < type->ndim; d++) {
        if (d < dim)
            r.outer *= type->shape[d];
        else if (d == dim)
            r.n = type->shape[d];
        else
            r.inner *= type->shape[d];
    }
    return r;
}

#endif
