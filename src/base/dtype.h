/*
 * dtype.h - element types: classes and conversions. f16 and bf16 are uint16_t.
 */
#ifndef TRII_DTYPE_H
#define TRII_DTYPE_H

#include <string.h>

#include <trireme/types.h>

/* How many there are: types in all, those that tensors have, and reductions. */
#define TRII_DTYPES (TRI_DTYPE_C128 + 1)
#define TRII_TENSOR_DTYPES (TRI_DTYPE_F8_E5M2 + 1)
#define TRII_REDOPS (TRI_REDOP_BXOR + 1)

/* What a call of premul_sum has as its reduction: every rank's part times that rank's factor, then
 * the sum. It has no public value, since it is nothing without the factor. One byte on the wire. */
#define TRII_REDOP_PREMUL_SUM ((tri_redop)64)

/* The type of the two parts of a complex number; of another type, that type itself. */
static inline tri_dtype trii_dtype_real(tri_dtype dtype)
{
    return dtype == TRI_DTYPE_C64 ? TRI_DTYPE_F32 : dtype == TRI_DTYPE_C128 ? TRI_DTYPE_F64 : dtype;
}

static inline bool trii_dtype_is_float(tri_dtype dtype)
{
    return dtype == TRI_DTYPE_F16 || dtype == TRI_DTYPE_BF16 || dtype == TRI_DTYPE_F32 ||
           dtype == TRI_DTYPE_F64 || dtype == TRI_DTYPE_F8_E4M3 || dtype == TRI_DTYPE_F8_E5M2;
}

/* A float of 16 bits, which is stored as such and computed in f32. */
static inline bool trii_dtype_is_half(tri_dtype dtype)
{
    return dtype == TRI_DTYPE_F16 || dtype == TRI_DTYPE_BF16;
}

static inline float trii_bf16_to_f32(uint16_t h)
{
    uint32_t bits = (uint32_t)h << 16;
    float f;

    memcpy(&f, &bits, sizeof(f));
    return f;
}

/* Round to nearest even; NaN stays NaN (quiet). */
static inline uint16_t trii_f32_to_bf16(float f)
{
    uint32_t bits;

    memcpy(&bits, &f, sizeof(bits));
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((bits >> 16) | 0x40u);
    bits += 0x7fffu + ((bits >> 16) & 1u);
    return (uint16_t)(bits >> 16);
}

float trii_f16_to_f32(uint16_t h);
/* Round to nearest even; overflow to infinity; NaN stays NaN (quiet). */
uint16_t trii_f32_to_f16(float f);

/* Either of the two above. */
static inline float trii_half_to_f32(tri_dtype dtype, uint16_t h)
{
    return dtype == TRI_DTYPE_F16 ? trii_f16_to_f32(h) : trii_bf16_to_f32(h);
}

static inline uint16_t trii_f32_to_half(tri_dtype dtype, float f)
{
    return dtype == TRI_DTYPE_F16 ? trii_f32_to_f16(f) : trii_f32_to_bf16(f);
}

#endif
