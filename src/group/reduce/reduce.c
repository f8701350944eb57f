/*
 * reduce.c - chooses the kernel of a reduction.
 */
#include "group/reduce/reduce.h"

#include <string.h>

void trii_reduce(const void *const *src, int n_src, void *dst, size_t count, tri_dtype dtype,
                 tri_redop op)
{
    trii_reduce_scalar(src, n_src, dst, count, dtype, op);
}

void trii_reduce_push(const void *const *src, int n_src, void *const *dst, int n_dst, size_t count,
                      tri_dtype dtype, tri_redop op)
{
    size_t size = tri_dtype_size(dtype);
    char block[4096];
    size_t step = sizeof(block) / size;
    const void *at[TRII_REDUCE_MAX_RANKS];

    for (size_t i = 0; i < count; i += step) {
        size_t n = count - i < step ? count - i : step;

        for (int r = 0; r < n_src; r++)
            at[r] = (const char *)src[r] + i * size;
        trii_reduce(at, n_src, block, n, dtype, op);
        for (int r = 0; r < n_dst; r++)
            memcpy((char *)dst[r] + i * size, block, n * size);
    }
}
