/*
 * kernels_avx512_bf16.c - the kernels for AVX-512 (F, BW, DQ, VL) with the instruction that rounds
 * to bf16, which takes bf16 that are denormal for 0.
 */
/* build: no-errno */
#include "train/device/cpu/kernels.h"

#if defined(__x86_64__)
#include "train/device/cpu/vec_avx512.h"

#if defined(__clang__)
#define VEC_TARGET TRII_TARGET("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")
#else
#define VEC_TARGET                                                                                 \
    TRII_TARGET("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,prefer-vector-width=512")
#endif
#define VEC_LOAD_BF16(p)                                                                           \
    ((vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(p))), 16))
#define VEC_STORE_BF16(p, v)                                                                       \
    _mm256_storeu_si256((__m256i *)(p), (__m256i)_mm512_cvtneps_pbh((__m512)(v)))
#define VEC_TABLE trii_cpu_kernels_avx512_bf16
#include "train/device/cpu/kernels_all.h"
#else
typedef int trii_kernels_avx512_bf16_unused;
#endif
