/*
 * maths.c - powers, bounds, rounding, trigonometry and further activations: one element of each
 * operand at a time, as in elementwise.c.
 */
#include <math.h>

#include "train/graph/ops/rows.h"

static inline double clamped(double x, double low, double high)
{
    x = x < low ? low : x; /* NaN stays */
    return x > high ? high : x;
}

static inline double softplus(double x, double beta, double threshold)
{
    return x * beta > threshold ? x : log1p(exp(x * beta)) / beta;
}

static inline double softplus_slope(double x, double beta, double threshold)
{
    return x * beta > threshold ? 1 : 1 / (1 + exp(-x * beta));
}

static inline double hardswish_slope(double x)
{
    return x <= -3 ? 0 : x >= 3 ? 1 : x / 3 + 0.5; /* NaN stays */
}

/* The second float attribute, rounded as f0 is. */
#define f1 (sizeof(*y) == 4 ? (double)(float)args->fattr[1] : args->fattr[1])

TRII_BINARY(pow, pow(a, b))
TRII_UNARY(pow_scalar, pow(a, f0))
TRII_BINARY(pow_scalar_backward, f0 == 0 ? 0 : a * f0 * pow(b, f0 - 1))
TRII_UNARY(clamp, clamped(a, f0, f1))
TRII_BINARY(clamp_backward, b >= f0 && b <= f1 ? a : 0)
TRII_UNARY(sign, a > 0 ? 1 : a < 0 ? -1 : a == 0 ? 0 : a)
TRII_UNARY(rsqrt, 1 / sqrt(a))
TRII_BINARY(rsqrt_backward, -0.5 * a / (b * sqrt(b)))
TRII_UNARY(sin, sin(a))
TRII_UNARY(cos, cos(a))
TRII_UNARY(floor, floor(a))
TRII_UNARY(ceil, ceil(a))
TRII_UNARY(round, nearbyint(a)) /* halves to the even number, as in PyTorch */
TRII_UNARY(elu, a > 0 ? a : f0 * expm1(a))
TRII_BINARY(elu_backward, b > 0 ? a : a * f0 * exp(b))
TRII_UNARY(softplus, softplus(a, f0, f1))
TRII_BINARY(softplus_backward, a *softplus_slope(b, f0, f1))
TRII_UNARY(hardswish, a *clamped(a + 3, 0, 6) / 6)
TRII_BINARY(hardswish_backward, a *hardswish_slope(b))

/* Operands g, a, b; integer attribute: 1 = gradient of the exponent. */
static inline double pow_slope(double a, double b, bool of_exponent)
{
    if (!of_exponent)
        return b == 0 ? 0 : b * pow(a, b - 1);
    return a == 0 && b >= 0 ? 0 : pow(a, b) * log(a);
}

#define POW_BACKWARD(T, suffix)                                                                    \
    static void pow_backward_##suffix(int64_t n, void *out, const void *const *in,                 \
                                      const int64_t *stride, const trii_kernel_args *args)         \
    {                                                                                              \
        const T *g = in[0], *a = in[1], *b = in[2];                                                \
        T *y = out;                                                                                \
                                                                                                   \
        for (int64_t k = 0; k < n; k++)                                                            \
            y[k] = (T)((double)g[k * stride[0]] * pow_slope((double)a[k * stride[1]],              \
                                                            (double)b[k * stride[2]],              \
                                                            args->iattr[0] != 0));                 \
    }
POW_BACKWARD(float, f32)
POW_BACKWARD(double, f64)
TRII_ROW_REFERENCE(pow_backward, NULL)

/* --- entries -------------------------------------------------------------- */

#define BACKWARD(name, second) TRII_ELEMENTWISE(name##_backward, trii_shape_broadcast_float, second)
#define UNARY(name, gradient) TRII_ELEMENTWISE(name, trii_shape_unary_float, gradient)
TRII_ELEMENTWISE(pow, trii_shape_broadcast_float, pow);
BACKWARD(pow, NONE);
UNARY(pow_scalar, pow_scalar);
BACKWARD(pow_scalar, pow_scalar_backward);
UNARY(clamp, clamp);
BACKWARD(clamp, flat);
UNARY(sign, zero);
UNARY(rsqrt, rsqrt);
BACKWARD(rsqrt, rsqrt_backward);
UNARY(sin, sin);
UNARY(cos, cos);
UNARY(floor, zero);
UNARY(ceil, zero);
UNARY(round, zero);
UNARY(elu, elu);
BACKWARD(elu, elu_backward);
UNARY(softplus, softplus);
BACKWARD(softplus, softplus_backward);
UNARY(hardswish, hardswish);
BACKWARD(hardswish, hardswish_backward);

/* --- public --------------------------------------------------------------- */

TRII_PUBLIC_BINARY(pow)

tri_tensor *tri_pow_scalar(tri_tensor *x, double exponent)
{
    if (exponent == 2)
        return trii_record_as("pow_scalar", &trii_op_square, &x, 1, NULL);
    if (exponent == 0.5)
        return trii_record_as("pow_scalar", &trii_op_sqrt, &x, 1, NULL);
    return trii_record_number(&trii_op_pow_scalar, x, exponent);
}

static tri_tensor *record_two(const trii_graph_op *op, tri_tensor *x, double first, double second)
{
    trii_attrs attrs;

    attrs.n_i = 0;
    attrs.n_f = 2;
    attrs.f[0] = first;
    attrs.f[1] = second;
    return trii_record(op, &x, 1, &attrs);
}

tri_tensor *tri_clamp(tri_tensor *x, double min, double max)
{
    if (min != min || max != max)
        return trii_handle_refused(
            trii_step_current(), "clamp", &x, 1,
            TRII_FAIL(
                TRI_ERR_INVALID_ARG,
                "bounds %g and %g: NaN is not a bound (to leave one out: -INFINITY, INFINITY)", min,
                max));
    return record_two(&trii_op_clamp, x, min, max);
}

TRII_PUBLIC_UNARY(sign)
TRII_PUBLIC_UNARY(rsqrt)
TRII_PUBLIC_UNARY(sin)
TRII_PUBLIC_UNARY(cos)
TRII_PUBLIC_UNARY(floor)
TRII_PUBLIC_UNARY(ceil)
TRII_PUBLIC_UNARY(round)

tri_tensor *tri_elu(tri_tensor *x, double alpha)
{
    return trii_record_number(&trii_op_elu, x, alpha);
}

tri_tensor *tri_softplus(tri_tensor *x, double beta, double threshold)
{
    if (beta == 0)
        return trii_handle_refused(
            trii_step_current(), "softplus", &x, 1,
            TRII_FAIL(TRI_ERR_INVALID_ARG, "beta is 0: must be another number"));
    return record_two(&trii_op_softplus, x, beta, threshold);
}

TRII_PUBLIC_UNARY(hardswish)
