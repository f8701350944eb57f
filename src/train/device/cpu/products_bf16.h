/*
 * products_bf16.h - products of bf16 with code that serves all sizes.
 */
#ifndef TRII_PRODUCTS_BF16_H
#define TRII_PRODUCTS_BF16_H

#include "train/device/cpu/onednn/onednn.h"

/* A kernel; args and strides as for trii_onednn_matmul: one of the two strides of a and of b is 1
 * and the other is at least as long as a row, or column. No size is 0. The name is static. */
tri_status trii_cpu_bf16_product(const trii_matmul_shape *shape, const int args[5],
                                 const char *name, trii_kernel **kernel_out) TRI_MUST_CHECK;

#endif
