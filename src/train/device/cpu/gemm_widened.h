/*
 * gemm_widened.h - products of bf16 for processors that can multiply only f32.
 */
#ifndef TRII_GEMM_WIDENED_H
#define TRII_GEMM_WIDENED_H

#include "train/device/cpu/onednn/onednn.h"

/* Floats of scratch for such a product, or any smaller one; at most 2^18. */
int64_t trii_gemm_widened_floats(int64_t m, int64_t n, int64_t k);
/* As trii_onednn_gemm_bf16, after trii_onednn_sgemm_ready. 0, or an error for
 * trii_onednn_sgemm_status. */
int trii_gemm_widened(const trii_gemm_bf16_args *args, float *scratch) TRI_MUST_CHECK;

#endif
