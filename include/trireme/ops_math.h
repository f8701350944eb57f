/*
 * ops_math.h - element by element: arithmetic, activations, comparisons.
 * A part of ops.h.
 */
#ifndef TRIREME_OPS_MATH_H
#define TRIREME_OPS_MATH_H

#include <trireme/tensor.h>

TRI_BEGIN_DECLS

/* --- element-wise ------------------------------------------------------------
 *
 * tri_add, tri_sub and tri_mul also take i64. A scalar is rounded to the dtype of x. */
TRI_API tri_tensor *tri_add(tri_tensor *a, tri_tensor *b);
TRI_API tri_tensor *tri_sub(tri_tensor *a, tri_tensor *b);
TRI_API tri_tensor *tri_mul(tri_tensor *a, tri_tensor *b);
TRI_API tri_tensor *tri_div(tri_tensor *a, tri_tensor *b);
/* NaN wins; where a = b each gets half of the gradient */
TRI_API tri_tensor *tri_maximum(tri_tensor *a, tri_tensor *b);
TRI_API tri_tensor *tri_minimum(tri_tensor *a, tri_tensor *b);
TRI_API tri_tensor *tri_add_scalar(tri_tensor *x, double value);
TRI_API tri_tensor *tri_mul_scalar(tri_tensor *x, double value);
TRI_API tri_tensor *tri_neg(tri_tensor *x);
TRI_API tri_tensor *tri_abs(tri_tensor *x); /* at 0 the gradient is 0 */
TRI_API tri_tensor *tri_square(tri_tensor *x);
TRI_API tri_tensor *tri_sqrt(tri_tensor *x);
TRI_API tri_tensor *tri_exp(tri_tensor *x);
TRI_API tri_tensor *tri_log(tri_tensor *x);
TRI_API tri_tensor *tri_relu(tri_tensor *x);
TRI_API tri_tensor *tri_leaky_relu(tri_tensor *x, double slope);
TRI_API tri_tensor *tri_sigmoid(tri_tensor *x);
TRI_API tri_tensor *tri_tanh(tri_tensor *x);
/* x times the normal distribution function, exactly, or approximated by tanh as in GPT-2. */
typedef enum tri_gelu_form { TRI_GELU_ERF, TRI_GELU_TANH } tri_gelu_form;
TRI_API tri_tensor *tri_gelu(tri_tensor *x, tri_gelu_form form);
TRI_API tri_tensor *tri_silu(tri_tensor *x);
/* Between bool, all integers, f16, bf16, f32 and f64. Floating-point numbers become integers by
 * truncation; integers that do not fit keep their low bits. Other operations take f16 and bf16 as
 * tri_autocast_begin says. */
TRI_API tri_tensor *tri_cast(tri_tensor *x, tri_dtype dtype);
/* With `training`: sets each element to 0 with probability p, 0 <= p <= 1, and multiplies the
 * others by 1/(1-p). Otherwise the identity. */
TRI_API tri_tensor *tri_dropout(tri_tensor *x, double p, bool training);
/* The same for whole channels of x [N, C, ..]: all elements of one are set to 0, or none. */
TRI_API tri_tensor *tri_dropout2d(tri_tensor *x, double p, bool training);

/* base and exponent broadcast; where base is negative the gradient of the exponent is NaN. */
TRI_API tri_tensor *tri_pow(tri_tensor *base, tri_tensor *exponent);
TRI_API tri_tensor *tri_pow_scalar(tri_tensor *x, double exponent);
/* Limits x to [min, max]; -INFINITY, INFINITY: no limit. The gradient is 1 inside and at the
 * limits, else 0. */
TRI_API tri_tensor *tri_clamp(tri_tensor *x, double min, double max);
/* -1, 0 or 1. The gradients of tri_sign and of the three roundings are zeros. */
TRI_API tri_tensor *tri_sign(tri_tensor *x);
TRI_API tri_tensor *tri_floor(tri_tensor *x);
TRI_API tri_tensor *tri_ceil(tri_tensor *x);
TRI_API tri_tensor *tri_round(tri_tensor *x); /* halves to the nearest even number */
TRI_API tri_tensor *tri_rsqrt(tri_tensor *x); /* 1 / sqrt(x) */
TRI_API tri_tensor *tri_sin(tri_tensor *x);
TRI_API tri_tensor *tri_cos(tri_tensor *x);
TRI_API tri_tensor *tri_elu(tri_tensor *x, double alpha); /* torch's default is 1 */
/* log(1 + e^(beta x)) / beta; x itself where beta x > threshold. beta is not 0; torch's defaults
 * are 1 and 20. */
TRI_API tri_tensor *tri_softplus(tri_tensor *x, double beta, double threshold);
TRI_API tri_tensor *tri_hardswish(tri_tensor *x);

/* --- truth values (bool) -----------------------------------------------------
 *
 * Comparisons of two tensors of one dtype, any; both broadcast, and the result is bool, without a
 * gradient. NaN is unequal to everything. The logical operations take bool. */
TRI_API tri_tensor *tri_eq(tri_tensor *a, tri_tensor *b);
TRI_API tri_tensor *tri_ne(tri_tensor *a, tri_tensor *b);
TRI_API tri_tensor *tri_lt(tri_tensor *a, tri_tensor *b);
TRI_API tri_tensor *tri_le(tri_tensor *a, tri_tensor *b);
TRI_API tri_tensor *tri_gt(tri_tensor *a, tri_tensor *b);
TRI_API tri_tensor *tri_ge(tri_tensor *a, tri_tensor *b);
TRI_API tri_tensor *tri_logical_and(tri_tensor *a, tri_tensor *b);
TRI_API tri_tensor *tri_logical_or(tri_tensor *a, tri_tensor *b);
TRI_API tri_tensor *tri_logical_xor(tri_tensor *a, tri_tensor *b);
TRI_API tri_tensor *tri_logical_not(tri_tensor *x);
/* a where condition (bool) is true, else b. All three broadcast; a and b have one dtype, any. */
TRI_API tri_tensor *tri_where(tri_tensor *condition, tri_tensor *a, tri_tensor *b);
/* x of any dtype, with `value` where mask (bool, broadcasts to x) is true. */
TRI_API tri_tensor *tri_masked_fill(tri_tensor *x, tri_tensor *mask, double value);

TRI_END_DECLS

#ifndef TRI_NO_SITES
#define tri_add(...) TRI_SITE_(tri_add(__VA_ARGS__))
#define tri_sub(...) TRI_SITE_(tri_sub(__VA_ARGS__))
#define tri_mul(...) TRI_SITE_(tri_mul(__VA_ARGS__))
#define tri_div(...) TRI_SITE_(tri_div(__VA_ARGS__))
#define tri_maximum(...) TRI_SITE_(tri_maximum(__VA_ARGS__))
#define tri_minimum(...) TRI_SITE_(tri_minimum(__VA_ARGS__))
#define tri_add_scalar(...) TRI_SITE_(tri_add_scalar(__VA_ARGS__))
#define tri_mul_scalar(...) TRI_SITE_(tri_mul_scalar(__VA_ARGS__))
#define tri_neg(...) TRI_SITE_(tri_neg(__VA_ARGS__))
#define tri_abs(...) TRI_SITE_(tri_abs(__VA_ARGS__))
#define tri_square(...) TRI_SITE_(tri_square(__VA_ARGS__))
#define tri_sqrt(...) TRI_SITE_(tri_sqrt(__VA_ARGS__))
#define tri_exp(...) TRI_SITE_(tri_exp(__VA_ARGS__))
#define tri_log(...) TRI_SITE_(tri_log(__VA_ARGS__))
#define tri_relu(...) TRI_SITE_(tri_relu(__VA_ARGS__))
#define tri_leaky_relu(...) TRI_SITE_(tri_leaky_relu(__VA_ARGS__))
#define tri_sigmoid(...) TRI_SITE_(tri_sigmoid(__VA_ARGS__))
#define tri_tanh(...) TRI_SITE_(tri_tanh(__VA_ARGS__))
#define tri_gelu(...) TRI_SITE_(tri_gelu(__VA_ARGS__))
#define tri_silu(...) TRI_SITE_(tri_silu(__VA_ARGS__))
#define tri_cast(...) TRI_SITE_(tri_cast(__VA_ARGS__))
#define tri_dropout(...) TRI_SITE_(tri_dropout(__VA_ARGS__))
#define tri_dropout2d(...) TRI_SITE_(tri_dropout2d(__VA_ARGS__))
#define tri_pow(...) TRI_SITE_(tri_pow(__VA_ARGS__))
#define tri_pow_scalar(...) TRI_SITE_(tri_pow_scalar(__VA_ARGS__))
#define tri_clamp(...) TRI_SITE_(tri_clamp(__VA_ARGS__))
#define tri_sign(...) TRI_SITE_(tri_sign(__VA_ARGS__))
#define tri_floor(...) TRI_SITE_(tri_floor(__VA_ARGS__))
#define tri_ceil(...) TRI_SITE_(tri_ceil(__VA_ARGS__))
#define tri_round(...) TRI_SITE_(tri_round(__VA_ARGS__))
#define tri_rsqrt(...) TRI_SITE_(tri_rsqrt(__VA_ARGS__))
#define tri_sin(...) TRI_SITE_(tri_sin(__VA_ARGS__))
#define tri_cos(...) TRI_SITE_(tri_cos(__VA_ARGS__))
#define tri_elu(...) TRI_SITE_(tri_elu(__VA_ARGS__))
#define tri_softplus(...) TRI_SITE_(tri_softplus(__VA_ARGS__))
#define tri_hardswish(...) TRI_SITE_(tri_hardswish(__VA_ARGS__))
#define tri_eq(...) TRI_SITE_(tri_eq(__VA_ARGS__))
#define tri_ne(...) TRI_SITE_(tri_ne(__VA_ARGS__))
#define tri_lt(...) TRI_SITE_(tri_lt(__VA_ARGS__))
#define tri_le(...) TRI_SITE_(tri_le(__VA_ARGS__))
#define tri_gt(...) TRI_SITE_(tri_gt(__VA_ARGS__))
#define tri_ge(...) TRI_SITE_(tri_ge(__VA_ARGS__))
#define tri_logical_and(...) TRI_SITE_(tri_logical_and(__VA_ARGS__))
#define tri_logical_or(...) TRI_SITE_(tri_logical_or(__VA_ARGS__))
#define tri_logical_xor(...) TRI_SITE_(tri_logical_xor(__VA_ARGS__))
#define tri_logical_not(...) TRI_SITE_(tri_logical_not(__VA_ARGS__))
#define tri_where(...) TRI_SITE_(tri_where(__VA_ARGS__))
#define tri_masked_fill(...) TRI_SITE_(tri_masked_fill(__VA_ARGS__))
#endif

#endif
