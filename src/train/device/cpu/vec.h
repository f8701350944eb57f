/*
 * vec.h - vectors of floats for kernels that are written once and compiled per instruction set.
 *
 * Included by kernels_<isa>.c after it defined
 *   VEC_LANES    floats in a vector: 4, 8 or 16
 *   VEC_TARGET   the function attribute that turns the instruction set on; may be empty
 *   VEC_FMA(a, b, c)  a * b + c, fused if the instruction set has it
 *   VEC_STORE_FEW(p, v, n)  the first n < VEC_LANES floats of v to p
 *   VEC_LOAD_FEW(p, n)  the first n < VEC_LANES floats of p, then zeros
 *   VEC_LOAD_HALF_FEW(p, n)  the first n of p, n < VEC_LANES / 2, then zeros
 *   VEC_WIDEN(h)  half a vector of floats as doubles: gcc converts a vector of AVX-512 in pieces
 *   VEC_LOAD_BF16(p), VEC_STORE_BF16(p, v)  optional: what the set has for bf16
 *   VEC_TO_F16(v), VEC_FROM_F16(h)  optional: to and from the bits of f16
 *   VEC_SELECT_LESS(x, y, a, b)  optional: a where x < y, else b; gcc makes three instructions of
 *                vec_select for AVX-512, whose masks are no vectors
 *   VEC_SCALE(v, k)  optional: v * 2^k, rounded once, where k is integral or NaN
 * and followed by the kernels_*.h templates, which define static functions only.
 *
 * Element-wise kernels are plain loops that the compiler vectorises, without FMA: each rounds
 * as C does, so all instruction sets give the same bits. Sums do so, too (kernels_sums.h), but for
 * the statistics of normalisation, whose order depends on the width; matrix products use FMA.
 */
#ifndef VEC_LANES
#error "vec.h is a template: define VEC_LANES, VEC_TARGET and VEC_FMA first"
#endif

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/compiler.h"
#include "base/dtype.h"

#define VEC_FN static VEC_TARGET
#define VEC_INLINE static inline __attribute__((always_inline)) VEC_TARGET

typedef float vec __attribute__((vector_size(4 * VEC_LANES)));
typedef int32_t vec_i __attribute__((vector_size(4 * VEC_LANES)));
typedef uint32_t vec_u __attribute__((vector_size(4 * VEC_LANES)));
typedef uint16_t vec_h __attribute__((vector_size(2 * VEC_LANES)));

VEC_INLINE vec vec_load(const float *p)
{
    vec v;

    memcpy(&v, p, sizeof(v));
    return v;
}

VEC_INLINE void vec_store(float *p, vec v)
{
    memcpy(p, &v, sizeof(v));
}

/* bf16, rounded to the nearest even; NaN stays NaN, as trii_f32_to_bf16. */
#if defined(VEC_LOAD_BF16)
VEC_INLINE vec vec_load_bf16(const uint16_t *p)
{
    return VEC_LOAD_BF16(p);
}

VEC_INLINE void vec_store_bf16(uint16_t *p, vec v)
{
    VEC_STORE_BF16(p, v);
}
#else
VEC_INLINE vec vec_load_bf16(const uint16_t *p)
{
    vec_h h;

    memcpy(&h, p, sizeof(h));
    return (vec)(__builtin_convertvector(h, vec_u) << 16);
}

VEC_INLINE void vec_store_bf16(uint16_t *p, vec v)
{
    vec_u u = (vec_u)v, nan = (vec_u)(v != v);
    vec_h h;

    u += 0x7fffu + (u >> 16 & 1u);
    u = (nan & 0x7fc00000u) | (~nan & u);
    h = __builtin_convertvector(u >> 16, vec_h);
    memcpy(p, &h, sizeof(h));
}
#endif

/* f16, as trii_f32_to_f16 rounds. */
#if defined(VEC_TO_F16)
VEC_INLINE vec_h vec_to_f16(vec v)
{
    return VEC_TO_F16(v);
}

VEC_INLINE vec vec_from_f16(vec_h h)
{
    return VEC_FROM_F16(h);
}
#else
VEC_INLINE vec_h vec_to_f16(vec v)
{
    vec_h h;

    for (int i = 0; i < VEC_LANES; i++)
        h[i] = trii_f32_to_f16(v[i]);
    return h;
}

VEC_INLINE vec vec_from_f16(vec_h h)
{
    vec v;

    for (int i = 0; i < VEC_LANES; i++)
        v[i] = trii_f16_to_f32(h[i]);
    return v;
}
#endif

VEC_INLINE vec vec_set(float x)
{
    return x - (vec){0}; /* minus, so that the compiler sees a broadcast: x - 0 is x for every x */
}

/* memcpy of a few floats: a call, or `rep movs`, would cost more than the copy. */
VEC_INLINE void vec_copy_few(float *to, const float *from, int64_t n)
{
    for (; n >= 8; n -= 8, to += 8, from += 8)
        memcpy(to, from, 8 * sizeof(float));
    if ((n & 4) != 0) {
        memcpy(to, from, 4 * sizeof(float));
        to += 4;
        from += 4;
    }
    if ((n & 2) != 0) {
        memcpy(to, from, 2 * sizeof(float));
        to += 2;
        from += 2;
    }
    if ((n & 1) != 0)
        *to = *from;
}

/* a where mask is all ones, else b. */
VEC_INLINE vec vec_select(vec_i mask, vec a, vec b)
{
    return (vec)((mask & (vec_i)a) | (~mask & (vec_i)b));
}

/* a where x < y, else b. */
VEC_INLINE vec vec_select_less(vec x, vec y, vec a, vec b)
{
#if defined(VEC_SELECT_LESS)
    return VEC_SELECT_LESS(x, y, a, b);
#else
    return vec_select(x < y, a, b);
#endif
}

VEC_INLINE double vec_sum(vec v)
{
    double s = 0;

    for (int i = 0; i < VEC_LANES; i++)
        s += (double)v[i];
    return s;
}
