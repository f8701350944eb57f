/*
 * reduce_scalar.c - see reduce_scalar.h.
 */
#include "testing/reduce_scalar.h"

#include <string.h>

#include "base/dtype.h"
#include "comm/group/reduce/reduce.h"

/* One pair in floating point; a comes from the lower ranks. */
static double combine_f64(double a, double b, tri_redop op)
{
    switch (op) {
    case TRI_REDOP_PRODUCT:
        return a * b;
    case TRI_REDOP_MIN:
        return a != a ? a : b != b ? b : b < a ? b : a;
    case TRI_REDOP_MAX:
        return a != a ? a : b != b ? b : b > a ? b : a;
    default:
        return a + b;
    }
}

static float combine_f32(float a, float b, tri_redop op)
{
    switch (op) {
    case TRI_REDOP_PRODUCT:
        return a * b;
    case TRI_REDOP_MIN:
        return a != a ? a : b != b ? b : b < a ? b : a;
    case TRI_REDOP_MAX:
        return a != a ? a : b != b ? b : b > a ? b : a;
    default:
        return a + b;
    }
}

/* Integers travel as int64; sums and products wrap because unsigned ones do and the low bits
 * do not depend on the high ones. */
static int64_t combine_i64(int64_t a, int64_t b, tri_redop op)
{
    switch (op) {
    case TRI_REDOP_PRODUCT:
        return (int64_t)((uint64_t)a * (uint64_t)b);
    case TRI_REDOP_MIN:
        return b < a ? b : a;
    case TRI_REDOP_MAX:
        return b > a ? b : a;
    case TRI_REDOP_BAND:
        return a & b;
    case TRI_REDOP_BOR:
        return a | b;
    case TRI_REDOP_BXOR:
        return a ^ b;
    default:
        return (int64_t)((uint64_t)a + (uint64_t)b);
    }
}

static float load_f32(const void *src, size_t i, tri_dtype dtype)
{
    uint16_t half;
    float f;

    if (dtype == TRI_DTYPE_F32) {
        memcpy(&f, (const char *)src + 4 * i, sizeof(f));
        return f;
    }
    memcpy(&half, (const char *)src + 2 * i, sizeof(half));
    return trii_half_to_f32(dtype, half);
}

static void store_f32(float f, void *dst, size_t i, tri_dtype dtype)
{
    uint16_t half;

    if (dtype == TRI_DTYPE_F32) {
        memcpy((char *)dst + 4 * i, &f, sizeof(f));
        return;
    }
    half = trii_f32_to_half(dtype, f);
    memcpy((char *)dst + 2 * i, &half, sizeof(half));
}

static int64_t load_i64(const void *src, size_t i, tri_dtype dtype)
{
    int8_t i8;
    int16_t i16;
    int32_t i32;
    int64_t i64;

    switch (dtype) {
    case TRI_DTYPE_I8:
        memcpy(&i8, (const char *)src + i, 1);
        return i8;
    case TRI_DTYPE_I16:
        memcpy(&i16, (const char *)src + 2 * i, 2);
        return i16;
    case TRI_DTYPE_I32:
        memcpy(&i32, (const char *)src + 4 * i, 4);
        return i32;
    case TRI_DTYPE_I64:
        memcpy(&i64, (const char *)src + 8 * i, 8);
        return i64;
    default: /* u8, bool */
        return ((const uint8_t *)src)[i];
    }
}

static double tree_f64(const void *const *src, int n, size_t i, tri_redop op)
{
    int half;
    double f;

    if (n == 1) {
        memcpy(&f, (const char *)src[0] + 8 * i, sizeof(f));
        return f;
    }
    half = trii_reduce_split(n);
    return combine_f64(tree_f64(src, half, i, op), tree_f64(src + half, n - half, i, op), op);
}

static float tree_f32(const void *const *src, int n, size_t i, tri_dtype dtype, tri_redop op)
{
    int half;

    if (n == 1)
        return load_f32(src[0], i, dtype);
    half = trii_reduce_split(n);
    return combine_f32(tree_f32(src, half, i, dtype, op),
                       tree_f32(src + half, n - half, i, dtype, op), op);
}

static int64_t tree_i64(const void *const *src, int n, size_t i, tri_dtype dtype, tri_redop op)
{
    int half;

    if (n == 1)
        return load_i64(src[0], i, dtype);
    half = trii_reduce_split(n);
    return combine_i64(tree_i64(src, half, i, dtype, op),
                       tree_i64(src + half, n - half, i, dtype, op), op);
}

static tri_redop bool_op(tri_redop op)
{
    switch (op) {
    case TRI_REDOP_PRODUCT:
    case TRI_REDOP_MIN:
    case TRI_REDOP_BAND:
        return TRI_REDOP_BAND;
    case TRI_REDOP_BXOR:
        return TRI_REDOP_BXOR;
    default:
        return TRI_REDOP_BOR;
    }
}

void reduce_scalar(const void *const *src, int n_src, void *dst, size_t count, tri_dtype dtype,
                   tri_redop op)
{
    size_t size = tri_dtype_size(dtype);
    bool avg = op == TRI_REDOP_AVG;

    if (dtype == TRI_DTYPE_BOOL)
        op = bool_op(op);
    for (size_t i = 0; i < count; i++) {
        if (dtype == TRI_DTYPE_F64) {
            double f = tree_f64(src, n_src, i, op);

            f = avg ? f / (double)n_src : f;
            memcpy((char *)dst + 8 * i, &f, sizeof(f));
        } else if (trii_dtype_is_float(dtype)) {
            float f = tree_f32(src, n_src, i, dtype, op);

            store_f32(avg ? f / (float)n_src : f, dst, i, dtype);
        } else { /* the low bytes are the value; both of our machines are little-endian */
            int64_t v = tree_i64(src, n_src, i, dtype, op);

            memcpy((char *)dst + size * i, &v, size);
        }
    }
}
