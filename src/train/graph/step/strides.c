/*
 * strides.c - strides of plain values, and of reshaped ones. Used by the operations of class view
 * (graph/ops) and by train/plan/views.c.
 */
#include "train/graph/step/strides.h"

void trii_strides_plain(const trii_type *type, trii_strides *strides_out)
{
    int64_t step = 1;

    strides_out->offset = 0;
    for (int d = type->ndim - 1; d >= 0; d--) {
        strides_out->stride[d] = step;
        step *= type->shape[d] > 0 ? type->shape[d] : 1;
    }
}

bool trii_strides_are_plain(const trii_type *type, const int64_t *stride)
{
    int64_t step = 1;

    if (trii_type_numel(type) == 0)
        return true;
    for (int d = type->ndim - 1; d >= 0; d--) {
        if (type->shape[d] != 1 && stride[d] != step)
            return false;
        step *= type->shape[d];
    }
    return true;
}

/* From the last dimension on: old dimensions that are contiguous form a run, and new dimensions
 * must divide it exactly. */
bool trii_strides_reshape(const trii_type *from_type, const trii_strides *from,
                          const trii_type *to_type, trii_strides *to)
{
    int t = to_type->ndim - 1;
    /* elements of the run, and of those the ones used; distance between its elements */
    int64_t run = 1, taken = 1, step = 1;

    if (trii_type_numel(from_type) == 0 || from_type->ndim == 0) {
        trii_strides_plain(to_type, to);
        to->offset = from->offset;
        return true;
    }
    to->offset = from->offset;
    step = from->stride[from_type->ndim - 1];
    for (int f = from_type->ndim - 1; f >= 0; f--) {
        run *= from_type->shape[f];
        if (f > 0 && (from_type->shape[f - 1] == 1 || from->stride[f - 1] == run * step))
            continue;
        for (; t >= 0 && (taken < run || to_type->shape[t] == 1); t--) {
            to->stride[t] = taken * step;
            taken *= to_type->shape[t];
        }
        if (taken != run)
            return false;
        if (f > 0) {
            step = from->stride[f - 1];
            run = taken = 1;
        }
    }
    return t < 0;
}
