/*
 * reduce_kernels.h - the fast reductions, one function per instruction set. All give
 * the same bits: they differ in the width of a register only.
 */
#ifndef TRII_REDUCE_KERNELS_H
#define TRII_REDUCE_KERNELS_H

#include <trireme/types.h>

typedef struct trii_reduce_args {
    const void *const *src; /* [n_src] */
    void *const *dst;       /* [n_dst]; each may be one of the sources (exactly) */
    int n_src;
    int n_dst;
    size_t count;
    tri_dtype dtype;
    tri_redop op;
} trii_reduce_args;

void trii_reduce_portable(const trii_reduce_args *args);
void trii_widen_portable(const uint16_t *src, float *dst, size_t n, tri_dtype dtype);
void trii_narrow_portable(const float *src, uint16_t *dst, size_t n, tri_dtype dtype);
#if defined(__x86_64__)
void trii_reduce_avx2(const trii_reduce_args *args);
void trii_widen_avx2(const uint16_t *src, float *dst, size_t n, tri_dtype dtype);
void trii_narrow_avx2(const float *src, uint16_t *dst, size_t n, tri_dtype dtype);
void trii_reduce_avx512(const trii_reduce_args *args);
#endif

#endif
