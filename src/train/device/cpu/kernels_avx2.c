/*
 * kernels_avx2.c - the kernels for AVX2 with FMA.
 */
/* build: no-errno */
#include "train/device/cpu/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define VEC_LANES 8
#define VEC_TARGET TRII_TARGET("avx2,fma,f16c")
#define VEC_FMA(a, b, c) ((vec)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))
#define AVX2_FIRST(n)                                                                              \
    _mm256_cmpgt_epi32(_mm256_set1_epi32((int)(n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))
#define VEC_STORE_FEW(p, v, n) _mm256_maskstore_ps(p, AVX2_FIRST(n), (__m256)(v))
#define VEC_LOAD_FEW(p, n) ((vec)_mm256_maskload_ps(p, AVX2_FIRST(n)))
#define VEC_WIDEN(h) ((vec_d)_mm256_cvtps_pd((__m128)(h)))
#define VEC_LOAD_HALF_FEW(p, n)                                                                    \
    _mm_maskload_ps(p, _mm_cmpgt_epi32(_mm_set1_epi32((int)(n)), _mm_setr_epi32(0, 1, 2, 3)))
#define VEC_TO_F16(v) ((vec_h)_mm256_cvtps_ph((__m256)(v), _MM_FROUND_TO_NEAREST_INT))
#define VEC_FROM_F16(h) ((vec)_mm256_cvtph_ps((__m128i)(h)))
#define VEC_TABLE trii_cpu_kernels_avx2
#include "train/device/cpu/kernels_all.h"
#else
typedef int trii_kernels_avx2_unused;
#endif
