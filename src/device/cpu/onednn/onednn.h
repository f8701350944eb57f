/*
 * onednn.h - what the cpu device gets from oneDNN. The files of this folder are the only ones
 * that include dnnl.h; they hide which version of the library is there.
 *
 * One engine and one stream serve all kernels of the process. Scratch memory is the plan's
 * (scratchpad mode "user"), so a run allocates nothing.
 */
#ifndef TRII_ONEDNN_H
#define TRII_ONEDNN_H

#include "device/cpu/cpu_ops.h"

/* c[b, m, n] = a[b, m, k] * b[b, k, n] (+ bias[n]); strides in elements, rows of c are contiguous.
 */
typedef struct trii_matmul_shape {
    int64_t batch, m, n, k;
    int64_t a_row, a_col, b_row, b_col;
    int64_t a_batch, b_batch; /* elements from one matrix to the next; 0 = one for all */
    int64_t c_row, c_batch;
    bool bias; /* f32 */
    /* a in bf16; then b may be f32, which is rounded, and c either. */
    bool bf16, b_is_f32, c_is_f32;
} trii_matmul_shape;

/* args: where a, b, bias (-1 = none) and c are among the kernel's arguments, and its number of
 * arguments, behind which the scratch is. */
tri_status trii_onednn_matmul(const trii_matmul_shape *shape, const int args[5],
                              trii_kernel **kernel_out) TRI_MUST_CHECK;

/* A kernel for a change of layout; either may be NULL (plain), not both. */
tri_status trii_onednn_reorder(const trii_type *type, const trii_layout *from,
                               const trii_layout *to, trii_kernel **kernel_out) TRI_MUST_CHECK;

extern const trii_cpu_family trii_onednn_conv, trii_onednn_conv_backward_data,
    trii_onednn_conv_backward_weight;

#endif
