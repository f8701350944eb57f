/*
 * products_large.h - products in f32 that are worth a call into the library.
 */
#ifndef TRII_PRODUCTS_LARGE_H
#define TRII_PRODUCTS_LARGE_H

#include "train/device/cpu/onednn/onednn.h"

/* A kernel for f32; args and strides as for trii_onednn_matmul: one of the two strides of a and of
 * b is 1 and the other is at least as long as a row, or column. No size is 0. The name is static.
 * With shape->sum, of one product, args[2] is the matrix. */
tri_status trii_cpu_large_product(const trii_matmul_shape *shape, const int args[5],
                                  const char *name, trii_kernel **kernel_out) TRI_MUST_CHECK;

#endif
