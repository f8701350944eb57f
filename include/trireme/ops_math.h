/*
 * ops_math.h - element by element: arithmetic, activations, comparisons.
 * A part of ops.h.
 */
#ifndef TRIREME_OPS_MATH_H
#define TRIREME_OPS_MATH_H

#include <trireme/tensor.h>

TRI_BEGIN_DECLS

/* --- element-wise --------------------------------------------------------- */
TRI_API tri_tensor *tri_add(tri_tensor *a, tri_tensor *b);
TRI_API tri_tensor *tri_sub(tri_tensor *a, tri_tensor *b);
TRI_API tri_tensor *tri_mul(tri_tensor *a, tri_tensor *b);
TRI_API tri_tensor *tri_div(tri_tensor *a, tri_tensor *b);
TRI_API tri_tensor *tri_maximum(tri_tensor *a, tri_tensor *b); /* NaN wins; ties share */
TRI_API tri_tensor *tri_minimum(tri_tensor *a, tri_tensor *b);
TRI_API tri_tensor *tri_add_scalar(tri_tensor *x, double value);
TRI_API tri_tensor *tri_mul_scalar(tri_tensor *x, double value);
TRI_API tri_tensor *tri_neg(tri_tensor *x);
TRI_API tri_tensor *tri_abs(tri_tensor *x);
TRI_API tri_tensor *tri_square(tri_tensor *x);
TRI_API tri_tensor *tri_sqrt(tri_tensor *x);
TRI_API tri_tensor *tri_exp(tri_tensor *x);
TRI_API tri_tensor *tri_log(tri_tensor *x);
TRI_API tri_tensor *tri_relu(tri_tensor *x);
TRI_API tri_tensor *tri_leaky_relu(tri_tensor *x, double slope);
TRI_API tri_tensor *tri_sigmoid(tri_tensor *x);
TRI_API tri_tensor *tri_tanh(tri_tensor *x);
/* x times the normal distribution's integral, exactly or (GPT-2's) approximated by tanh. */
typedef enum tri_gelu_form { TRI_GELU_ERF, TRI_GELU_TANH } tri_gelu_form;
TRI_API tri_tensor *tri_gelu(tri_tensor *x, tri_gelu_form form);
TRI_API tri_tensor *tri_silu(tri_tensor *x);
/* Between bool, all integers, f16, bf16, f32 and f64. Real numbers become integers towards zero;
 * integers that do not fit keep their low bits. f16 is for storage: other operations refuse it. */
TRI_API tri_tensor *tri_cast(tri_tensor *x, tri_dtype dtype);
/* Training: zero with probability p, scale the rest by 1/(1-p); else the identity. */
TRI_API tri_tensor *tri_dropout(tri_tensor *x, double p, bool training);

/* base and exponent broadcast; the gradient of a negative base's exponent is NaN. */
TRI_API tri_tensor *tri_pow(tri_tensor *base, tri_tensor *exponent);
TRI_API tri_tensor *tri_pow_scalar(tri_tensor *x, double exponent);
/* Into [min, max]; -INFINITY, INFINITY: no bound. Gradient 1 inside and on the bounds, else 0. */
TRI_API tri_tensor *tri_clamp(tri_tensor *x, double min, double max);
/* -1, 0, 1; the gradients of this and of the roundings are zeros. */
TRI_API tri_tensor *tri_sign(tri_tensor *x);
TRI_API tri_tensor *tri_floor(tri_tensor *x);
TRI_API tri_tensor *tri_ceil(tri_tensor *x);
TRI_API tri_tensor *tri_round(tri_tensor *x); /* halves to the even number */
TRI_API tri_tensor *tri_rsqrt(tri_tensor *x); /* 1 / sqrt(x) */
TRI_API tri_tensor *tri_sin(tri_tensor *x);
TRI_API tri_tensor *tri_cos(tri_tensor *x);
TRI_API tri_tensor *tri_elu(tri_tensor *x, double alpha); /* alpha 0: 1 (TRI_ZERO: 0) */
/* log(1 + e^(beta x)) / beta, and x where beta x > threshold. beta 0: 1; threshold 0: 20. */
TRI_API tri_tensor *tri_softplus(tri_tensor *x, double beta, double threshold);
TRI_API tri_tensor *tri_hardswish(tri_tensor *x);

/* --- truth values (bool) -----------------------------------------------------
 *
 * Comparisons of two tensors of one dtype, of which either may be broadcast; NaN is unequal to all.
 */
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
/* a where the condition is true, else b; all three broadcast, a and b of one dtype, any. */
TRI_API tri_tensor *tri_where(tri_tensor *condition, tri_tensor *a, tri_tensor *b);
/* x of any dtype, with `value` where the mask, which broadcasts to x, is true. */
TRI_API tri_tensor *tri_masked_fill(tri_tensor *x, tri_tensor *mask, double value);

TRI_END_DECLS

#endif
