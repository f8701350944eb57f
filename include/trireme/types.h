/*
 * types.h - element types, reductions and options, shared by both libraries.
 */
#ifndef TRIREME_TYPES_H
#define TRIREME_TYPES_H

#include <trireme/export.h>

TRI_BEGIN_DECLS

/* f16, bf16 and the f8 formats are carried as uint16_t and uint8_t. */
typedef enum tri_dtype {
    TRI_DTYPE_NONE = 0,
    TRI_DTYPE_U8,
    TRI_DTYPE_I8,
    TRI_DTYPE_I16,
    TRI_DTYPE_I32,
    TRI_DTYPE_I64,
    TRI_DTYPE_F16,
    TRI_DTYPE_BF16,
    TRI_DTYPE_F32,
    TRI_DTYPE_F64,
    TRI_DTYPE_BOOL, /* one byte, 0 or 1 */
    TRI_DTYPE_F8_E4M3,
    TRI_DTYPE_F8_E5M2,
    /* complex numbers, two f32 or two f64 each; groups send and add them, tensors do not have them
     */
    TRI_DTYPE_C64,
    TRI_DTYPE_C128
} tri_dtype;

/* Bytes of one element; 0 for TRI_DTYPE_NONE and unknown values. */
TRI_API size_t tri_dtype_size(tri_dtype dtype);
/* "f32", ...; static text, never NULL. */
TRI_API const char *tri_dtype_name(tri_dtype dtype);

/* 0 is the sum, so that a zeroed options struct sums. */
typedef enum tri_redop {
    TRI_REDOP_SUM = 0,
    TRI_REDOP_AVG, /* floating-point types only */
    TRI_REDOP_PRODUCT,
    TRI_REDOP_MIN, /* NaN wins */
    TRI_REDOP_MAX, /* NaN wins */
    TRI_REDOP_BAND,
    TRI_REDOP_BOR,
    TRI_REDOP_BXOR
} tri_redop;

/* "sum", ...; static text, never NULL. */
TRI_API const char *tri_redop_name(tri_redop op);

/* A number of an options struct whose default is not 0 although 0 makes sense. It is set by
 * TRI_SET(x), x being any number, also a computed one: a 0 is a 0. Left alone (zeroed) it is the
 * default. So
 *
 *     tri_adam_options o = {.weight_decay = TRI_SET(decay), .beta2 = TRI_SET(0.95)};
 *     o.eps = TRI_SET(1e-6);
 *
 * A number without TRI_SET does not compile, except for the constant 0 in an initializer: C takes
 * that for a null pointer, so `.weight_decay = 0` is the default, and only TRI_SET(0) is a 0. Of
 * another integer (`.padding_idx = 3`, which would be a 0) gcc before 14 and clang before 15 only
 * warn, unless they are told -Werror=int-conversion. In static storage gcc -Wpedantic wants braces
 * instead, {"0.95", 0.95}. TRI_DEFAULT is for an argument of this type: not given. */
typedef struct tri_opt {
    const char *given; /* the number as it was written; NULL: not given, the default */
    double value;
} tri_opt;
#ifdef __cplusplus
#define TRI_SET(x) (tri_opt{#x, static_cast<double>(x)})
#define TRI_DEFAULT (tri_opt{nullptr, 0})
#else
#define TRI_SET(x) ((tri_opt){#x, (double)(x)})
#define TRI_DEFAULT ((tri_opt){NULL, 0})
#endif

/* Timeouts are milliseconds: 0 means the default of the place, this means none. */
#define TRI_FOREVER INT64_C(-1)

TRI_END_DECLS

#endif
