/*
 * onednn.h - what the cpu device gets from oneDNN. Only the files of this folder include dnnl.h;
 * they hide which version of the library is there.
 *
 * One engine and one stream serve all kernels of the process. Scratch memory of primitives is the
 * plan's (scratchpad mode "user"); only products in f32 pack into memory of the library's own.
 */
#ifndef TRII_ONEDNN_H
#define TRII_ONEDNN_H

#include "train/device/cpu/cpu_ops.h"

/* c[b, m, n] = a[b, m, k] * b[b, k, n] (+ bias[n]); strides in elements, rows of c are
 * contiguous. */
typedef struct trii_matmul_shape {
    int64_t batch, m, n, k;
    int64_t a_row, a_col, b_row, b_col;
    int64_t a_batch, b_batch; /* elements from one matrix to the next; 0 = one for all */
    int64_t c_row, c_batch;
    bool bias;               /* f32 */
    bool sum;                /* products_large.c: + a matrix [m, n], plain as c, not a bias */
    bool b_is_f32, c_is_f32; /* a in bf16: b in f32 is rounded */
} trii_matmul_shape;

/* Whether the library computes in bf16: with AVX-512, unless it is limited (TRI_ISA, or its own
 * ONEDNN_MAX_CPU_ISA). Otherwise it has only plain loops for bf16, at a hundred nanoseconds an
 * element. */
bool trii_onednn_has_bf16(void);

/* a in bf16. args: which of the kernel's arguments a, b, bias (-1 = none) and c are, and the number
 * of arguments, after which comes the scratch. */
tri_status trii_onednn_matmul(const trii_matmul_shape *shape, const int args[5],
                              trii_kernel **kernel_out) TRI_MUST_CHECK;

/* c[m, n] = a[m, k] * b[k, n] in f32, or added to c. Strides in elements: one stride of a and one
 * of b is 1, and the other is at least as long as a row (or column). Sizes >= 1. */
typedef struct trii_sgemm_args {
    int64_t m, n, k;
    const float *a, *b;
    int64_t a_row, a_col, b_row, b_col;
    float *c;
    int64_t c_row;
    bool add; /* c += */
} trii_sgemm_args;

/* Called once before a kernel that multiplies is compiled. */
tri_status trii_onednn_sgemm_ready(void) TRI_MUST_CHECK;
/* On the calling thread if that is one of several in a parallel region, else on all threads. It
 * compiles only on its first calls, and allocates memory to pack into. 0, or an error that
 * trii_onednn_sgemm_status turns into a status with its line. */
int trii_onednn_sgemm(const trii_sgemm_args *args) TRI_MUST_CHECK;
tri_status trii_onednn_sgemm_status(int failed) TRI_MUST_CHECK;

/* The same for a and b in bf16, added up and left in f32. */
typedef struct trii_gemm_bf16_args {
    int64_t m, n, k;
    const uint16_t *a, *b;
    int64_t a_row, a_col, b_row, b_col;
    float *c;
    int64_t c_row;
} trii_gemm_bf16_args;

/* UNSUPPORTED: not on this processor, or not in this version of the library. */
tri_status trii_onednn_gemm_bf16_ready(void) TRI_MUST_CHECK;
int trii_onednn_gemm_bf16(const trii_gemm_bf16_args *args) TRI_MUST_CHECK;
tri_status trii_onednn_gemm_bf16_status(int failed) TRI_MUST_CHECK;

/* A kernel for a change of layout; one of the two may be NULL (plain), and neither strided. */
tri_status trii_onednn_reorder(const trii_type *type, const trii_layout *from,
                               const trii_layout *to, trii_kernel **kernel_out) TRI_MUST_CHECK;

/* See trii_device_ops. */
bool trii_onednn_conv_sums(const trii_ir *ir, const trii_group *a, const trii_group *b,
                           const trii_ir_node *node);

extern const trii_cpu_family trii_onednn_conv, trii_onednn_conv_backward_data,
    trii_onednn_conv_backward_weight;

#endif
