/*
 * kernels_avx512.c - the kernels for AVX-512 (F, BW, DQ, VL).
 */
/* build: no-errno */
#include "train/device/cpu/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define VEC_LANES 16
#if defined(__clang__)
#define VEC_TARGET TRII_TARGET("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")
#else
#define VEC_TARGET                                                                                 \
    TRII_TARGET("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")
#endif
#define VEC_FMA(a, b, c) ((vec)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#define VEC_STORE_FEW(p, v, n) _mm512_mask_storeu_ps(p, (__mmask16)((1u << (n)) - 1u), (__m512)(v))
#define VEC_LOAD_FEW(p, n) ((vec)_mm512_maskz_loadu_ps((__mmask16)((1u << (n)) - 1u), p))
#define VEC_WIDEN(h) ((vec_d)_mm512_cvtps_pd((__m256)(h)))
#define VEC_LOAD_HALF_FEW(p, n) _mm256_maskz_loadu_ps((__mmask8)((1u << (n)) - 1u), p)
#define VEC_TO_F16(v)                                                                              \
    ((vec_h)_mm512_cvtps_ph((__m512)(v), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))
#define VEC_FROM_F16(h) ((vec)_mm512_cvtph_ps((__m256i)(h)))
#define VEC_TABLE trii_cpu_kernels_avx512
#include "train/device/cpu/kernels_all.h"
#else
typedef int trii_kernels_avx512_unused;
#endif
