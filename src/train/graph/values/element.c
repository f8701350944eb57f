/*
 * element.c - single elements of any type as numbers.
 */
#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "train/graph/values/contents.h"

int64_t trii_element_int(tri_dtype dtype, const void *element)
{
    union {
        int8_t i8;
        int16_t i16;
        int32_t i32;
        int64_t i64;
        uint8_t u8;
    } u;

    memcpy(&u, element, tri_dtype_size(dtype));
    switch (dtype) {
    case TRI_DTYPE_U8:
    case TRI_DTYPE_BOOL:
        return u.u8;
    case TRI_DTYPE_I8:
        return u.i8;
    case TRI_DTYPE_I16:
        return u.i16;
    case TRI_DTYPE_I32:
        return u.i32;
    default:
        return u.i64;
    }
}

/* OCP 8-bit formats: 4 exponent bits, no infinity; or the upper half of f16. */
static double f8_e4m3(uint8_t bits)
{
    int exponent = bits >> 3 & 15, fraction = bits & 7;
    double magnitude = exponent > 0 ? ldexp(8 + fraction, exponent - 10) : ldexp(fraction, -9);

    if ((bits & 0x7f) == 0x7f)
        return (double)NAN;
    return bits & 0x80 ? -magnitude : magnitude;
}

double trii_element_double(tri_dtype dtype, const void *element)
{
    union {
        uint8_t u8;
        uint16_t u16;
        float f32;
        double f64;
    } u;

    switch (dtype) {
    case TRI_DTYPE_U8:
    case TRI_DTYPE_BOOL:
    case TRI_DTYPE_I8:
    case TRI_DTYPE_I16:
    case TRI_DTYPE_I32:
    case TRI_DTYPE_I64:
        return (double)trii_element_int(dtype, element);
    case TRI_DTYPE_F16:
        memcpy(&u.u16, element, sizeof(u.u16));
        return (double)trii_f16_to_f32(u.u16);
    case TRI_DTYPE_BF16:
        memcpy(&u.u16, element, sizeof(u.u16));
        return (double)trii_bf16_to_f32(u.u16);
    case TRI_DTYPE_F32:
        memcpy(&u.f32, element, sizeof(u.f32));
        return (double)u.f32;
    case TRI_DTYPE_F64:
        memcpy(&u.f64, element, sizeof(u.f64));
        return u.f64;
    case TRI_DTYPE_F8_E4M3:
        memcpy(&u.u8, element, sizeof(u.u8));
        return f8_e4m3(u.u8);
    case TRI_DTYPE_F8_E5M2:
        memcpy(&u.u8, element, sizeof(u.u8));
        return (double)trii_f16_to_f32((uint16_t)(u.u8 << 8));
    default:
        return (double)NAN;
    }
}
