/*
 * kernels_avx512.c - the kernels for AVX-512 (F, BW, DQ, VL).
 */
/* build: no-errno */
#include "train/device/cpu/kernels.h"

#if defined(__x86_64__)
#include "train/device/cpu/vec_avx512.h"

#if defined(__clang__)
#define VEC_TARGET TRII_TARGET("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")
#else
#define VEC_TARGET                                                                                 \
    TRII_TARGET("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")
#endif
#define VEC_TABLE trii_cpu_kernels_avx512
#include "train/device/cpu/kernels_all.h"
#else
typedef int trii_kernels_avx512_unused;
#endif
