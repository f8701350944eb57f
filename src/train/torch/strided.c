/*
 * strided.c - see strided.h.
 */
#include "train/torch/strided.h"

#include <string.h>

bool trii_is_contiguous(const tri_torch_tensor *tensor)
{
    int64_t step = 1;

    if (tensor->bytes == 0) /* the sizes beside a 0 may be any */
        return true;
    for (int d = tensor->ndim - 1; d >= 0; d--) {
        if (tensor->shape[d] != 1 && tensor->stride[d] != step)
            return false;
        step *= tensor->shape[d];
    }
    return true;
}

void trii_strided_copy(void *to, const void *from, const tri_torch_tensor *t)
{
    if (t->bytes == 0)
        return;
    if (trii_is_contiguous(t))
        memcpy(to, from, (size_t)t->bytes);
    else
        trii_strided_range(to, from, 0, t, 0, t->bytes / t->element_bytes);
}

void trii_strided_range(void *to, const void *from, uint64_t skipped, const tri_torch_tensor *t,
                        uint64_t first, uint64_t n)
{
    const char *source = from;
    char *target = to;
    size_t element = t->element_bytes;
    int64_t at[TRI_MAX_DIMS] = {0};
    uint64_t offset = 0; /* the stride of a dimension of size 1 may be any */

    if (n == 0)
        return;
    for (int d = t->ndim - 1; d >= 0; d--) {
        at[d] = (int64_t)(first % (uint64_t)t->shape[d]);
        first /= (uint64_t)t->shape[d];
        offset += (uint64_t)at[d] * (uint64_t)t->stride[d];
    }
    for (uint64_t left = n; left > 0; left--) {
        memcpy(target, source + (offset - skipped) * element, element);
        target += element;
        for (int d = t->ndim - 1; d >= 0; d--) { /* the next element */
            offset += (uint64_t)t->stride[d];
            if (++at[d] < t->shape[d])
                break;
            offset -= (uint64_t)at[d] * (uint64_t)t->stride[d];
            at[d] = 0;
        }
    }
}

void trii_strided_span(const tri_torch_tensor *t, uint64_t first, uint64_t n, uint64_t *low_out,
                       uint64_t *high_out)
{
    uint64_t last = first + n - 1, low = 0, high = 0;

    /* Within one row of a dimension the ends of the range are its ends there, too; one that is in
     * several rows may be anywhere in them. */
    for (int d = t->ndim - 1; d >= 0; d--) {
        const uint64_t size = (uint64_t)t->shape[d], stride = (uint64_t)t->stride[d];

        if (first / size == last / size) {
            low += first % size * stride;
            high += last % size * stride;
        } else {
            high += (size - 1) * stride;
        }
        first /= size;
        last /= size;
    }
    *low_out = low;
    *high_out = high;
}
