/*
 * elementwise.c - operations that look at one element of each operand at a time: those of
 * elementwise.def, and what does not fit its formulas.
 */
#include <math.h>

#include "train/graph/ops/rows.h"

/* --- what the formulas call ----------------------------------------------- */

static inline double sigmoid(double x)
{
    /* the form whose exp cannot overflow */
    if (x >= 0)
        return 1 / (1 + exp(-x));
    return exp(x) / (1 + exp(x));
}

static inline double gelu_tanh_slope(double x)
{
    const double c = 0.79788456080286535588, k = 0.044715;
    double t = tanh(c * (x + k * x * x * x));

    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * k * x * x);
}

static inline double clamped(double x, double low, double high)
{
    x = x < low ? low : x; /* NaN stays */
    return x > high ? high : x;
}

/* The second float attribute, rounded as f0 is. */
#define f1 (sizeof(*y) == 4 ? (double)(float)args->fattr[1] : args->fattr[1])

/* --- the operations of elementwise.def ------------------------------------ */

static tri_status number_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                               trii_type *out, int *n_out)
{
    if (in[0]->dtype == TRI_DTYPE_I64 && in[1]->dtype == TRI_DTYPE_I64) {
        *n_out = 1;
        return trii_rule_broadcast(in[0], in[1], &out[0]);
    }
    return trii_shape_broadcast_float(in, n_in, attrs, out, n_out);
}

#define REFERENCE_A TRII_UNARY
#define REFERENCE_A_F TRII_UNARY
#define REFERENCE_AB TRII_BINARY
#define REFERENCE_AB_F TRII_BINARY
#define REFERENCE_AB_INT TRII_BINARY_INT
#define SHAPE_A trii_shape_unary_float
#define SHAPE_A_F trii_shape_unary_float
#define SHAPE_AB trii_shape_broadcast_float
#define SHAPE_AB_F trii_shape_broadcast_float
#define SHAPE_AB_INT number_shape
#define TRII_EW_OP(name, operands, rule, formula)                                                  \
    REFERENCE_##operands(name, formula) TRII_ELEMENTWISE(name, SHAPE_##operands, rule);

/* An operation on one tensor with one number. */
static tri_tensor *record_number(const trii_graph_op *op, tri_tensor *x, double number)
{
    trii_attrs attrs;

    attrs.n_i = 0;
    attrs.n_f = 1;
    attrs.f[0] = number;
    return trii_record(op, &x, 1, &attrs);
}

#define PUBLIC_A TRII_PUBLIC_UNARY
#define PUBLIC_AB TRII_PUBLIC_BINARY
#define PUBLIC_AB_INT TRII_PUBLIC_BINARY
#define PUBLIC_A_F(name)                                                                           \
    tri_tensor *tri_##name(tri_tensor *x, double number)                                           \
    {                                                                                              \
        return record_number(&trii_op_##name, x, number);                                          \
    }
#define TRII_EW_PUBLIC(name, operands) PUBLIC_##operands(name)

#include "train/graph/step/elementwise.def"

tri_status trii_rec_scaled(trii_step *step, trii_vid a, double factor, trii_vid *out)
{
    trii_attrs attrs;

    attrs.n_i = 0;
    attrs.n_f = 1;
    attrs.f[0] = factor;
    return trii_record_values(step, &trii_op_mul_scalar, &a, 1, &attrs, out);
}

tri_tensor *tri_gelu(tri_tensor *x, tri_gelu_form form)
{
    if (form != TRI_GELU_ERF && form != TRI_GELU_TANH)
        return trii_handle_refused(trii_step_current(), "gelu", &x, 1,
                                   TRII_FAIL(TRI_ERR_INVALID_ARG,
                                             "form %d is not TRI_GELU_ERF or TRI_GELU_TANH",
                                             (int)form));
    return form == TRI_GELU_TANH ? trii_record_as("gelu", &trii_op_gelu_tanh, &x, 1, NULL)
                                 : trii_record(&trii_op_gelu, &x, 1, NULL);
}

tri_tensor *tri_pow_scalar(tri_tensor *x, double exponent)
{
    if (exponent == 2)
        return trii_record_as("pow_scalar", &trii_op_square, &x, 1, NULL);
    if (exponent == 0.5)
        return trii_record_as("pow_scalar", &trii_op_sqrt, &x, 1, NULL);
    return record_number(&trii_op_pow_scalar, x, exponent);
}

static tri_tensor *record_numbers(const trii_graph_op *op, tri_tensor *x, double first,
                                  double second)
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
    return record_numbers(&trii_op_clamp, x, min, max);
}

tri_tensor *tri_softplus(tri_tensor *x, double beta, double threshold)
{
    if (beta == 0)
        return trii_handle_refused(
            trii_step_current(), "softplus", &x, 1,
            TRII_FAIL(TRI_ERR_INVALID_ARG, "beta is 0: must be another number"));
    return record_numbers(&trii_op_softplus, x, beta, threshold);
}

/* --- gradients of maximum, minimum and pow -------------------------------- */

/* in g a b, i: 1 for the minimum, 1 for the gradient of b. Ties share. */
#define EXTREMUM_BACKWARD(T, suffix)                                                               \
    static void extremum_backward_##suffix(int64_t n, void *out, const void *const *in,            \
                                           const int64_t *stride, const trii_kernel_args *args)    \
    {                                                                                              \
        bool other = (args->iattr[0] ^ args->iattr[1]) != 0; /* the operand that is smaller */     \
        const T *g = in[0], *lo = in[other ? 1 : 2], *hi = in[other ? 2 : 1];                      \
        int64_t s_lo = stride[other ? 1 : 2], s_hi = stride[other ? 2 : 1];                        \
        T *y = out;                                                                                \
                                                                                                   \
        for (int64_t k = 0; k < n; k++) {                                                          \
            T l = lo[k * s_lo], h = hi[k * s_hi];                                                  \
                                                                                                   \
            y[k] = h < l ? 0 : h == l ? g[k * stride[0]] / 2 : g[k * stride[0]];                   \
        }                                                                                          \
    }
EXTREMUM_BACKWARD(float, f32)
EXTREMUM_BACKWARD(double, f64)
TRII_ROW_REFERENCE(extremum_backward, NULL)

TRII_ELEMENTWISE(extremum_backward, trii_shape_broadcast_float, flat);

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

TRII_ELEMENTWISE(pow_backward, trii_shape_broadcast_float, NONE);
