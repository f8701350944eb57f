/*
 * float_convert.c - see float_convert.h. Called by convert.c.
 */
#include "train/checkpoint/float_convert.h"

#include <math.h>

#include "base/dtype.h"

bool trii_float_is_converted(tri_dtype dtype)
{
    return dtype == TRI_DTYPE_F64 || dtype == TRI_DTYPE_F32 || trii_dtype_is_half(dtype);
}

/* The float next to a value on the side of zero, its last bit set if anything is cut off: what is
 * rounded from it is as if it were rounded from the value. */
static float cut_to_odd(double value)
{
    float f = (float)value;
    uint32_t bits;

    if (isnan(value) || (double)f == value)
        return f;
    memcpy(&bits, &f, sizeof(bits));
    if (fabs((double)f) > fabs(value))
        bits--;
    bits |= 1;
    memcpy(&f, &bits, sizeof(f));
    return f;
}

/* f32 holds those of 16 bits without loss. */
static void widen(tri_dtype type, const char *from, size_t i, float *value_out)
{
    uint16_t half;

    if (type == TRI_DTYPE_F32) {
        memcpy(value_out, from + i * sizeof(*value_out), sizeof(*value_out));
        return;
    }
    memcpy(&half, from + i * sizeof(half), sizeof(half));
    *value_out = trii_half_to_f32(type, half);
}

static void store(tri_dtype type, char *to, size_t i, float value)
{
    double wide = value;
    uint16_t half;

    if (type == TRI_DTYPE_F64) {
        memcpy(to + i * sizeof(wide), &wide, sizeof(wide));
    } else if (type == TRI_DTYPE_F32) {
        memcpy(to + i * sizeof(value), &value, sizeof(value));
    } else {
        half = trii_f32_to_half(type, value);
        memcpy(to + i * sizeof(half), &half, sizeof(half));
    }
}

void trii_float_convert(tri_dtype from_type, const void *from, tri_dtype to_type, void *to,
                        size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double wide;
        float value;

        if (from_type != TRI_DTYPE_F64) {
            widen(from_type, from, i, &value);
        } else {
            memcpy(&wide, (const char *)from + i * sizeof(wide), sizeof(wide));
            value = to_type == TRI_DTYPE_F32 ? (float)wide : cut_to_odd(wide);
        }
        store(to_type, to, i, value);
    }
}
