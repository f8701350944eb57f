/*
 * dtype.c - see dtype.h. IEEE 754 binary16 by integer arithmetic, so that every
 * processor gives the same bits.
 */
/* build: hot leaf */
#include "base/dtype.h"

static const struct {
    const char *name;
    size_t bytes;
} dtypes[TRII_DTYPES] = {
    [TRI_DTYPE_NONE] = {"none", 0},       [TRI_DTYPE_U8] = {"u8", 1},
    [TRI_DTYPE_I8] = {"i8", 1},           [TRI_DTYPE_I16] = {"i16", 2},
    [TRI_DTYPE_I32] = {"i32", 4},         [TRI_DTYPE_I64] = {"i64", 8},
    [TRI_DTYPE_F16] = {"f16", 2},         [TRI_DTYPE_BF16] = {"bf16", 2},
    [TRI_DTYPE_F32] = {"f32", 4},         [TRI_DTYPE_F64] = {"f64", 8},
    [TRI_DTYPE_BOOL] = {"bool", 1},       [TRI_DTYPE_F8_E4M3] = {"f8_e4m3", 1},
    [TRI_DTYPE_F8_E5M2] = {"f8_e5m2", 1}, [TRI_DTYPE_C64] = {"c64", 8},
    [TRI_DTYPE_C128] = {"c128", 16},
};

size_t tri_dtype_size(tri_dtype dtype)
{
    return (unsigned)dtype < TRII_DTYPES ? dtypes[dtype].bytes : 0;
}

const char *tri_dtype_name(tri_dtype dtype)
{
    return (unsigned)dtype < TRII_DTYPES ? dtypes[dtype].name : "unknown dtype";
}

const char *tri_redop_name(tri_redop op)
{
    static const char *const names[TRII_REDOPS] = {
        [TRI_REDOP_SUM] = "sum", [TRI_REDOP_AVG] = "avg",   [TRI_REDOP_PRODUCT] = "product",
        [TRI_REDOP_MIN] = "min", [TRI_REDOP_MAX] = "max",   [TRI_REDOP_BAND] = "band",
        [TRI_REDOP_BOR] = "bor", [TRI_REDOP_BXOR] = "bxor",
    };

    if (op == TRII_REDOP_PREMUL_SUM)
        return "premul_sum";
    return (unsigned)op < TRII_REDOPS ? names[op] : "unknown reduction";
}

float trii_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t exponent = (h >> 10) & 0x1fu;
    uint32_t mantissa = h & 0x3ffu;
    uint32_t bits;
    float f;

    if (exponent == 0x1f) {
        bits = sign | 0x7f800000u | (mantissa << 13);
    } else if (exponent != 0) {
        bits = sign | ((exponent + 112) << 23) | (mantissa << 13);
    } else if (mantissa == 0) {
        bits = sign;
    } else { /* subnormal: shift the leading one into place */
        uint32_t shift = (uint32_t)__builtin_clz(mantissa) - 21;

        mantissa = (mantissa << shift) & 0x3ffu;
        bits = sign | ((113 - shift) << 23) | (mantissa << 13);
    }
    memcpy(&f, &bits, sizeof(f));
    return f;
}

uint16_t trii_f32_to_f16(float f)
{
    uint32_t bits, sign, magnitude, rounded;

    memcpy(&bits, &f, sizeof(bits));
    sign = (bits >> 16) & 0x8000u;
    magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | ((magnitude >> 13) & 0x1ffu));
    if (magnitude >= 0x477ff000u) /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude < 0x38800000u) { /* subnormal or zero: align to 2^-24 units */
        uint32_t exponent = magnitude >> 23;
        uint32_t shift = 126 - exponent, half;
        uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;

        if (exponent < 102)
            return (uint16_t)sign;
        rounded = mantissa >> shift;
        half = 1u << (shift - 1);
        mantissa &= (1u << shift) - 1;
        if (mantissa > half || (mantissa == half && (rounded & 1u)))
            rounded++;
        return (uint16_t)(sign | rounded);
    }
    magnitude -= 112u << 23;
    rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return (uint16_t)(sign | (rounded >> 13));
}
