/*
 * maths.c - powers, bounds, rounding, trigonometry and further activations: one element of each
 * operand at a time, as in elementwise.c.
 */
#include <math.h>

#include "train/graph/ops/composed.h"
#include "train/graph/ops/rows.h"
#include "train/graph/ops/second_order.h"

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

/* --- gradients ------------------------------------------------------------ */

static tri_status pow_grad(trii_step *step, const trii_node *node, const trii_vid *g,
                           const bool *needs, trii_vid *grad_in)
{
    trii_vid in[3] = {g[0], trii_node_in(step, node, 0), trii_node_in(step, node, 1)};
    tri_status status = TRI_OK;

    for (int i = 0; i < 2 && status == TRI_OK; i++) {
        trii_vid d = TRII_NO_VALUE;
        trii_attrs attrs;

        if (!needs[i])
            continue;
        if (trii_step_creates_graph(step)) {
            status = trii_composed_pow(step, node, g[0], i == 1, &grad_in[i]);
            continue;
        }
        attrs.n_i = 1;
        attrs.n_f = 0;
        attrs.i[0] = i;
        status = trii_record_values(step, &trii_op_pow_backward, in, 3, &attrs, &d);
        if (status == TRI_OK)
            status = trii_rec_sum_to(step, d, trii_type_of(step, in[1 + i]), &grad_in[i]);
    }
    return status;
}

/* Gradients that need the operand and the attributes of the operation. */
#define FROM_OPERAND(name)                                                                         \
    static tri_status name##_grad(trii_step *step, const trii_node *node, const trii_vid *g,       \
                                  const bool *needs, trii_vid *grad_in)                            \
    {                                                                                              \
        trii_vid in[2] = {g[0], trii_node_in(step, node, 0)};                                      \
                                                                                                   \
        (void)needs;                                                                               \
        return trii_record_values(step, &trii_op_##name##_backward, in, 2, &node->attrs,           \
                                  &grad_in[0]);                                                    \
    }
FROM_OPERAND(pow_scalar)
FROM_OPERAND(clamp)
FROM_OPERAND(rsqrt)
FROM_OPERAND(elu)
FROM_OPERAND(softplus)
FROM_OPERAND(hardswish)

static tri_status sin_grad(trii_step *step, const trii_node *node, const trii_vid *g,
                           const bool *needs, trii_vid *grad_in)
{
    trii_vid slope = TRII_NO_VALUE;
    tri_status status = trii_rec1(step, &trii_op_cos, trii_node_in(step, node, 0), &slope);

    (void)needs;
    return status == TRI_OK ? trii_rec2(step, &trii_op_mul, g[0], slope, &grad_in[0]) : status;
}

static tri_status cos_grad(trii_step *step, const trii_node *node, const trii_vid *g,
                           const bool *needs, trii_vid *grad_in)
{
    trii_vid slope = TRII_NO_VALUE;
    tri_status status = trii_rec1(step, &trii_op_sin, trii_node_in(step, node, 0), &slope);

    (void)needs;
    if (status == TRI_OK)
        status = trii_rec2(step, &trii_op_mul, g[0], slope, &slope);
    return status == TRI_OK ? trii_rec1(step, &trii_op_neg, slope, &grad_in[0]) : status;
}

/* Of step functions: zero, as in PyTorch. */
static tri_status zero_grad(trii_step *step, const trii_node *node, const trii_vid *g,
                            const bool *needs, trii_vid *grad_in)
{
    trii_attrs attrs;

    (void)g;
    (void)needs;
    trii_fill_attrs(trii_type_of(step, trii_node_in(step, node, 0)), 0, &attrs);
    return trii_record_values(step, &trii_op_fill, NULL, 0, &attrs, &grad_in[0]);
}

#define BACKWARD(name, second) TRII_ELEMENTWISE(name##_backward, trii_shape_broadcast_float, second)
#define UNARY(name, grad) TRII_ELEMENTWISE(name, trii_shape_unary_float, grad)
TRII_ELEMENTWISE(pow, trii_shape_broadcast_float, pow_grad);
BACKWARD(pow, NULL);
UNARY(pow_scalar, pow_scalar_grad);
BACKWARD(pow_scalar, trii_second_pow_scalar);
UNARY(clamp, clamp_grad);
BACKWARD(clamp, trii_second_flat);
UNARY(sign, zero_grad);
UNARY(rsqrt, rsqrt_grad);
BACKWARD(rsqrt, trii_second_rsqrt);
UNARY(sin, sin_grad);
UNARY(cos, cos_grad);
UNARY(floor, zero_grad);
UNARY(ceil, zero_grad);
UNARY(round, zero_grad);
UNARY(elu, elu_grad);
BACKWARD(elu, trii_second_elu);
UNARY(softplus, softplus_grad);
BACKWARD(softplus, trii_second_softplus);
UNARY(hardswish, hardswish_grad);
BACKWARD(hardswish, trii_second_hardswish);

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
