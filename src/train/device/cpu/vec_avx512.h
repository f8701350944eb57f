/*
 * vec_avx512.h - what vec.h asks for, by AVX-512 (F, BW, DQ, VL); for the two tables of it.
 */
#ifndef TRII_VEC_AVX512_H
#define TRII_VEC_AVX512_H

#include <immintrin.h>

#define VEC_LANES 16
#define VEC_FMA(a, b, c) ((vec)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#define VEC_STORE_FEW(p, v, n) _mm512_mask_storeu_ps(p, (__mmask16)((1u << (n)) - 1u), (__m512)(v))
#define VEC_LOAD_FEW(p, n) ((vec)_mm512_maskz_loadu_ps((__mmask16)((1u << (n)) - 1u), p))
#define VEC_WIDEN(h) ((vec_d)_mm512_cvtps_pd((__m256)(h)))
#define VEC_LOAD_HALF_FEW(p, n) _mm256_maskz_loadu_ps((__mmask8)((1u << (n)) - 1u), p)
#define VEC_TO_F16(v)                                                                              \
    ((vec_h)_mm512_cvtps_ph((__m512)(v), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))
#define VEC_FROM_F16(h) ((vec)_mm512_cvtph_ps((__m256i)(h)))
#define VEC_SELECT_LESS(x, y, a, b)                                                                \
    ((vec)_mm512_mask_blend_ps(_mm512_cmp_ps_mask((__m512)(x), (__m512)(y), _CMP_LT_OQ),           \
                               (__m512)(b), (__m512)(a)))
#define VEC_SCALE(v, k) ((vec)_mm512_scalef_ps((__m512)(v), (__m512)(k)))

#endif
