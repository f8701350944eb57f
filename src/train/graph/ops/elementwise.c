/*
 * elementwise.c - arithmetic that looks at one element of each operand at a time.
 */
#include <math.h>

#include "train/graph/ops/rows.h"
#include "train/graph/ops/second_order.h"

/* --- binary --------------------------------------------------------------- */

TRII_BINARY_INT(add, a + b)
TRII_BINARY_INT(sub, a - b)
TRII_BINARY_INT(mul, a *b)
TRII_BINARY(div, a / b)

static tri_status number_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                               trii_type *out, int *n_out)
{
    if (in[0]->dtype == TRI_DTYPE_I64 && in[1]->dtype == TRI_DTYPE_I64) {
        *n_out = 1;
        return trii_rule_broadcast(in[0], in[1], &out[0]);
    }
    return trii_shape_broadcast_float(in, n_in, attrs, out, n_out);
}

static tri_status add_grad(trii_step *step, const trii_node *node, const trii_vid *g,
                           const bool *needs, trii_vid *grad_in)
{
    tri_status status = TRI_OK;

    for (int i = 0; i < 2 && status == TRI_OK; i++) {
        if (needs[i])
            status = trii_rec_sum_to(step, g[0], trii_type_of(step, trii_node_in(step, node, i)),
                                     &grad_in[i]);
    }
    return status;
}

static tri_status sub_grad(trii_step *step, const trii_node *node, const trii_vid *g,
                           const bool *needs, trii_vid *grad_in)
{
    tri_status status = add_grad(step, node, g, needs, grad_in);

    if (status == TRI_OK && needs[1])
        status = trii_rec1(step, &trii_op_neg, grad_in[1], &grad_in[1]);
    return status;
}

static tri_status mul_grad(trii_step *step, const trii_node *node, const trii_vid *g,
                           const bool *needs, trii_vid *grad_in)
{
    tri_status status = TRI_OK;

    for (int i = 0; i < 2 && status == TRI_OK; i++) {
        trii_vid product = TRII_NO_VALUE;

        if (!needs[i])
            continue;
        status = trii_rec2(step, &trii_op_mul, g[0], trii_node_in(step, node, 1 - i), &product);
        if (status == TRI_OK)
            status = trii_rec_sum_to(step, product, trii_type_of(step, trii_node_in(step, node, i)),
                                     &grad_in[i]);
    }
    return status;
}

/* y = a / b: da = g / b, db = -(g / b) * y */
static tri_status div_grad(trii_step *step, const trii_node *node, const trii_vid *g,
                           const bool *needs, trii_vid *grad_in)
{
    trii_vid a = trii_node_in(step, node, 0), b = trii_node_in(step, node, 1), quotient = 0,
             product = 0;
    tri_status status = trii_rec2(step, &trii_op_div, g[0], b, &quotient);

    if (status == TRI_OK && needs[0])
        status = trii_rec_sum_to(step, quotient, trii_type_of(step, a), &grad_in[0]);
    if (status != TRI_OK || !needs[1])
        return status;
    status = trii_rec2(step, &trii_op_mul, quotient, node->first_out, &product);
    if (status == TRI_OK)
        status = trii_rec1(step, &trii_op_neg, product, &product);
    if (status == TRI_OK)
        status = trii_rec_sum_to(step, product, trii_type_of(step, b), &grad_in[1]);
    return status;
}

TRII_ELEMENTWISE(add, number_shape, add_grad);
TRII_ELEMENTWISE(sub, number_shape, sub_grad);
TRII_ELEMENTWISE(mul, number_shape, mul_grad);
TRII_ELEMENTWISE(div, trii_shape_broadcast_float, div_grad);

TRII_PUBLIC_BINARY(add)
TRII_PUBLIC_BINARY(sub)
TRII_PUBLIC_BINARY(mul)
TRII_PUBLIC_BINARY(div)

/* --- maximum, minimum ----------------------------------------------------- */

/* NaN wins: it is neither less nor greater, and adding passes it on. */
TRII_BINARY(maximum, a > b ? a : b > a ? b : a == b ? a : a + b)
TRII_BINARY(minimum, a < b ? a : b < a ? b : a == b ? a : a + b)

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

static tri_status extremum_grad(trii_step *step, const trii_node *node, bool minimum,
                                const trii_vid *g, const bool *needs, trii_vid *grad_in)
{
    trii_vid in[3] = {g[0], trii_node_in(step, node, 0), trii_node_in(step, node, 1)};
    tri_status status = TRI_OK;

    for (int i = 0; i < 2 && status == TRI_OK; i++) {
        trii_vid d = TRII_NO_VALUE;
        trii_attrs attrs;

        if (!needs[i])
            continue;
        attrs.n_i = 2;
        attrs.n_f = 0;
        attrs.i[0] = minimum;
        attrs.i[1] = i;
        status = trii_record_values(step, &trii_op_extremum_backward, in, 3, &attrs, &d);
        if (status == TRI_OK)
            status = trii_rec_sum_to(step, d, trii_type_of(step, in[1 + i]), &grad_in[i]);
    }
    return status;
}

static tri_status maximum_grad(trii_step *step, const trii_node *node, const trii_vid *g,
                               const bool *needs, trii_vid *grad_in)
{
    return extremum_grad(step, node, false, g, needs, grad_in);
}

static tri_status minimum_grad(trii_step *step, const trii_node *node, const trii_vid *g,
                               const bool *needs, trii_vid *grad_in)
{
    return extremum_grad(step, node, true, g, needs, grad_in);
}

TRII_ELEMENTWISE(maximum, trii_shape_broadcast_float, maximum_grad);
TRII_ELEMENTWISE(minimum, trii_shape_broadcast_float, minimum_grad);
TRII_ELEMENTWISE(extremum_backward, trii_shape_broadcast_float, trii_second_flat);

TRII_PUBLIC_BINARY(maximum)
TRII_PUBLIC_BINARY(minimum)

/* --- unary ---------------------------------------------------------------- */

TRII_UNARY(neg, -a)
TRII_UNARY(add_scalar, a + f0)
TRII_UNARY(mul_scalar, a *f0)
TRII_UNARY(abs, fabs(a))
TRII_UNARY(square, a *a)
TRII_UNARY(sqrt, sqrt(a))
TRII_UNARY(exp, exp(a))
TRII_UNARY(log, log(a))
TRII_BINARY(abs_backward, b > 0 ? a : b < 0 ? -a : 0 * b)

static tri_status pass_grad(trii_step *step, const trii_node *node, const trii_vid *g,
                            const bool *needs, trii_vid *grad_in)
{
    (void)step;
    (void)node;
    (void)needs;
    grad_in[0] = g[0];
    return TRI_OK;
}

static tri_status neg_grad(trii_step *step, const trii_node *node, const trii_vid *g,
                           const bool *needs, trii_vid *grad_in)
{
    (void)node;
    (void)needs;
    return trii_rec1(step, &trii_op_neg, g[0], &grad_in[0]);
}

static tri_status mul_scalar_grad(trii_step *step, const trii_node *node, const trii_vid *g,
                                  const bool *needs, trii_vid *grad_in)
{
    (void)needs;
    return trii_rec_scaled(step, g[0], node->attrs.f[0], &grad_in[0]);
}

static tri_status abs_grad(trii_step *step, const trii_node *node, const trii_vid *g,
                           const bool *needs, trii_vid *grad_in)
{
    (void)needs;
    return trii_rec2(step, &trii_op_abs_backward, g[0], trii_node_in(step, node, 0), &grad_in[0]);
}

/* 2 g x */
static tri_status square_grad(trii_step *step, const trii_node *node, const trii_vid *g,
                              const bool *needs, trii_vid *grad_in)
{
    trii_vid twice = TRII_NO_VALUE;
    tri_status status = trii_rec_scaled(step, g[0], 2, &twice);

    (void)needs;
    if (status != TRI_OK)
        return status;
    return trii_rec2(step, &trii_op_mul, twice, trii_node_in(step, node, 0), &grad_in[0]);
}

/* g / (2 y) */
static tri_status sqrt_grad(trii_step *step, const trii_node *node, const trii_vid *g,
                            const bool *needs, trii_vid *grad_in)
{
    trii_vid twice = TRII_NO_VALUE;
    tri_status status = trii_rec_scaled(step, node->first_out, 2, &twice);

    (void)needs;
    return status == TRI_OK ? trii_rec2(step, &trii_op_div, g[0], twice, &grad_in[0]) : status;
}

static tri_status exp_grad(trii_step *step, const trii_node *node, const trii_vid *g,
                           const bool *needs, trii_vid *grad_in)
{
    (void)needs;
    return trii_rec2(step, &trii_op_mul, g[0], node->first_out, &grad_in[0]);
}

static tri_status log_grad(trii_step *step, const trii_node *node, const trii_vid *g,
                           const bool *needs, trii_vid *grad_in)
{
    (void)needs;
    return trii_rec2(step, &trii_op_div, g[0], trii_node_in(step, node, 0), &grad_in[0]);
}

TRII_ELEMENTWISE(neg, trii_shape_unary_float, neg_grad);
TRII_ELEMENTWISE(add_scalar, trii_shape_unary_float, pass_grad);
TRII_ELEMENTWISE(mul_scalar, trii_shape_unary_float, mul_scalar_grad);
TRII_ELEMENTWISE(abs, trii_shape_unary_float, abs_grad);
TRII_ELEMENTWISE(abs_backward, trii_shape_broadcast_float, trii_second_flat);
TRII_ELEMENTWISE(square, trii_shape_unary_float, square_grad);
TRII_ELEMENTWISE(sqrt, trii_shape_unary_float, sqrt_grad);
TRII_ELEMENTWISE(exp, trii_shape_unary_float, exp_grad);
TRII_ELEMENTWISE(log, trii_shape_unary_float, log_grad);

TRII_PUBLIC_UNARY(neg)

tri_tensor *tri_add_scalar(tri_tensor *x, double value)
{
    return trii_record_number(&trii_op_add_scalar, x, value);
}

tri_tensor *tri_mul_scalar(tri_tensor *x, double value)
{
    return trii_record_number(&trii_op_mul_scalar, x, value);
}

TRII_PUBLIC_UNARY(abs)
TRII_PUBLIC_UNARY(square)
TRII_PUBLIC_UNARY(sqrt)
TRII_PUBLIC_UNARY(exp)
TRII_PUBLIC_UNARY(log)
