/*
 * elementwise.c - operations that look at one element of each operand at a time.
 */
#include <math.h>

#include "graph/ops/rules.h"

/* Row functions NAME_f32, NAME_f64 of an expression in doubles a (and b, c): operand 0, 1, 2. */
#define ROW1(name, T, suffix, expression)                                                          \
    static void name##_##suffix(int64_t n, void *out, const void *const *in,                       \
                                const int64_t *stride, const trii_kernel_args *args)               \
    {                                                                                              \
        T *y = out;                                                                                \
        const T *x0 = in[0];                                                                       \
        int64_t s0 = stride[0];                                                                    \
        const double *f = args->fattr;                                                             \
                                                                                                   \
        (void)f;                                                                                   \
        for (int64_t k = 0; k < n; k++) {                                                          \
            double a = (double)x0[k * s0];                                                         \
                                                                                                   \
            y[k] = (T)(expression);                                                                \
        }                                                                                          \
    }
#define ROW2(name, T, W, suffix, expression)                                                       \
    static void name##_##suffix(int64_t n, void *out, const void *const *in,                       \
                                const int64_t *stride, const trii_kernel_args *args)               \
    {                                                                                              \
        T *y = out;                                                                                \
        const T *x0 = in[0], *x1 = in[1];                                                          \
        int64_t s0 = stride[0], s1 = stride[1];                                                    \
        const double *f = args->fattr;                                                             \
                                                                                                   \
        (void)f;                                                                                   \
        for (int64_t k = 0; k < n; k++) {                                                          \
            W a = (W)x0[k * s0], b = (W)x1[k * s1];                                                \
                                                                                                   \
            y[k] = (T)(expression);                                                                \
        }                                                                                          \
    }
#define REFERENCE(name, i64)                                                                       \
    static tri_status name##_reference(const trii_kernel_args *args)                               \
    {                                                                                              \
        return trii_walk(args, name##_f32, name##_f64, i64);                                       \
    }
#define UNARY(name, expression)                                                                    \
    ROW1(name, float, f32, expression)                                                             \
    ROW1(name, double, f64, expression)                                                            \
    REFERENCE(name, NULL)
#define BINARY(name, expression)                                                                   \
    ROW2(name, float, double, f32, expression)                                                     \
    ROW2(name, double, double, f64, expression)                                                    \
    REFERENCE(name, NULL)
#define BINARY_INT(name, expression, int_expression)                                               \
    ROW2(name, float, double, f32, expression)                                                     \
    ROW2(name, double, double, f64, expression)                                                    \
    ROW2(name, int64_t, uint64_t, i64, int_expression)                                             \
    REFERENCE(name, name##_i64)

/* --- binary ----------------------------------------------------------------------------------- */

/* Integers wrap around. */
BINARY_INT(add, a + b, a + b)
BINARY_INT(sub, a - b, a - b)
BINARY_INT(mul, a *b, a *b)
BINARY(div, a / b)

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

const trii_op trii_op_add = {
    .name = "add",
    .op_class = TRII_CLASS_ELEMENTWISE,
    .shape = number_shape,
    .grad = add_grad,
    .reference = add_reference,
};
const trii_op trii_op_sub = {
    .name = "sub",
    .op_class = TRII_CLASS_ELEMENTWISE,
    .shape = number_shape,
    .grad = sub_grad,
    .reference = sub_reference,
};
const trii_op trii_op_mul = {
    .name = "mul",
    .op_class = TRII_CLASS_ELEMENTWISE,
    .shape = number_shape,
    .grad = mul_grad,
    .reference = mul_reference,
};
const trii_op trii_op_div = {
    .name = "div",
    .op_class = TRII_CLASS_ELEMENTWISE,
    .shape = trii_shape_broadcast_float,
    .grad = div_grad,
    .reference = div_reference,
};

tri_tensor *tri_add(tri_tensor *a, tri_tensor *b)
{
    return trii_record(&trii_op_add, (tri_tensor *const[]){a, b}, 2, NULL);
}

tri_tensor *tri_sub(tri_tensor *a, tri_tensor *b)
{
    return trii_record(&trii_op_sub, (tri_tensor *const[]){a, b}, 2, NULL);
}

tri_tensor *tri_mul(tri_tensor *a, tri_tensor *b)
{
    return trii_record(&trii_op_mul, (tri_tensor *const[]){a, b}, 2, NULL);
}

tri_tensor *tri_div(tri_tensor *a, tri_tensor *b)
{
    return trii_record(&trii_op_div, (tri_tensor *const[]){a, b}, 2, NULL);
}

/* --- unary ------------------------------------------------------------------------------------ */

UNARY(neg, -a)
UNARY(mul_scalar, a *f[0])
UNARY(relu, a < 0 ? 0 : a) /* NaN stays */
BINARY(relu_backward, b <= 0 ? 0 : a)

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

static tri_status relu_grad(trii_step *step, const trii_node *node, const trii_vid *g,
                            const bool *needs, trii_vid *grad_in)
{
    (void)needs;
    return trii_rec2(step, &trii_op_relu_backward, g[0], node->first_out, &grad_in[0]);
}

const trii_op trii_op_neg = {
    .name = "neg",
    .op_class = TRII_CLASS_ELEMENTWISE,
    .shape = trii_shape_unary_float,
    .grad = neg_grad,
    .reference = neg_reference,
};
const trii_op trii_op_mul_scalar = {
    .name = "mul_scalar",
    .op_class = TRII_CLASS_ELEMENTWISE,
    .shape = trii_shape_unary_float,
    .grad = mul_scalar_grad,
    .reference = mul_scalar_reference,
};
const trii_op trii_op_relu = {
    .name = "relu",
    .op_class = TRII_CLASS_ELEMENTWISE,
    .shape = trii_shape_unary_float,
    .grad = relu_grad,
    .reference = relu_reference,
};
const trii_op trii_op_relu_backward = {
    .name = "relu_backward",
    .op_class = TRII_CLASS_ELEMENTWISE,
    .shape = trii_shape_broadcast_float,
    .reference = relu_backward_reference,
};

tri_tensor *tri_neg(tri_tensor *x)
{
    return trii_record(&trii_op_neg, &x, 1, NULL);
}

static tri_tensor *with_number(const trii_op *op, tri_tensor *x, double value)
{
    trii_attrs attrs;

    attrs.n_i = 0;
    attrs.n_f = 1;
    attrs.f[0] = value;
    return trii_record(op, &x, 1, &attrs);
}

tri_tensor *tri_mul_scalar(tri_tensor *x, double value)
{
    return with_number(&trii_op_mul_scalar, x, value);
}

tri_tensor *tri_relu(tri_tensor *x)
{
    return trii_record(&trii_op_relu, &x, 1, NULL);
}
