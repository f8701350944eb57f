/*
 * activations.c - non-linearities. Each gradient is one element-wise operation of its own, so that
 * a device gives it one kernel; what it reads (x or y) is what is cheaper to keep.
 */
#include <math.h>

#include "train/graph/ops/rows.h"
#include "train/graph/ops/second_order.h"

#define SQRT_HALF 0.70710678118654752440
#define INV_SQRT_2PI 0.39894228040143267794
#define SQRT_2_OVER_PI 0.79788456080286535588
#define GELU_CUBIC 0.044715 /* of the tanh form */

static inline double sigmoid(double x)
{
    /* the form whose exp cannot overflow */
    if (x >= 0)
        return 1 / (1 + exp(-x));
    return exp(x) / (1 + exp(x));
}

static inline double gelu_tanh_slope(double x)
{
    double t = tanh(SQRT_2_OVER_PI * (x + GELU_CUBIC * x * x * x));

    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * SQRT_2_OVER_PI * (1 + 3 * GELU_CUBIC * x * x);
}

TRII_UNARY(relu, a < 0 ? 0 : a) /* NaN stays */
TRII_BINARY(relu_backward, b <= 0 ? 0 : a)
TRII_UNARY(leaky_relu, a > 0 ? a : a * f0)
TRII_BINARY(leaky_relu_backward, b > 0 ? a : a * f0)
TRII_UNARY(sigmoid, sigmoid(a))
TRII_BINARY(sigmoid_backward, a *(1 - b) * b)
TRII_UNARY(tanh, tanh(a))
TRII_BINARY(tanh_backward, a *(1 - b * b))
TRII_UNARY(gelu, a * 0.5 * (1 + erf(a * SQRT_HALF)))
TRII_BINARY(gelu_backward,
            a *(0.5 * (1 + erf(b * SQRT_HALF)) + b * INV_SQRT_2PI * exp(-0.5 * b * b)))
TRII_UNARY(gelu_tanh, a * 0.5 * (1 + tanh(SQRT_2_OVER_PI * (a + GELU_CUBIC * a * a * a))))
TRII_BINARY(gelu_tanh_backward, a *gelu_tanh_slope(b))
TRII_UNARY(silu, a *sigmoid(a))
TRII_BINARY(silu_backward, a *sigmoid(b) * (1 + b * (1 - sigmoid(b))))

/* The gradient `op` of the operation: from its result, or from its operand. */
static tri_status from_result(trii_step *step, const trii_graph_op *op, const trii_node *node,
                              trii_vid g, trii_vid *out)
{
    return trii_rec2(step, op, g, node->first_out, out);
}

static tri_status from_operand(trii_step *step, const trii_graph_op *op, const trii_node *node,
                               trii_vid g, trii_vid *out)
{
    trii_vid in[2] = {g, trii_node_in(step, node, 0)};

    return trii_record_values(step, op, in, 2, &node->attrs, out);
}

#define GRADIENT(name, from)                                                                       \
    static tri_status name##_grad(trii_step *step, const trii_node *node, const trii_vid *g,       \
                                  const bool *needs, trii_vid *grad_in)                            \
    {                                                                                              \
        (void)needs;                                                                               \
        return from(step, &trii_op_##name##_backward, node, g[0], &grad_in[0]);                    \
    }
GRADIENT(relu, from_result)
GRADIENT(leaky_relu, from_operand)
GRADIENT(sigmoid, from_result)
GRADIENT(tanh, from_result)
GRADIENT(gelu, from_operand)
GRADIENT(gelu_tanh, from_operand)
GRADIENT(silu, from_operand)

#define ACTIVATION(name, second)                                                                   \
    TRII_ELEMENTWISE(name, trii_shape_unary_float, name##_grad);                                   \
    TRII_ELEMENTWISE(name##_backward, trii_shape_broadcast_float, trii_second_##second)
ACTIVATION(relu, flat);
ACTIVATION(leaky_relu, flat);
ACTIVATION(sigmoid, sigmoid);
ACTIVATION(tanh, tanh);
ACTIVATION(gelu, gelu);
TRII_ELEMENTWISE(gelu_tanh_backward, trii_shape_broadcast_float, trii_second_gelu_tanh);
const trii_graph_op trii_op_gelu_tanh = {
    .name = "gelu", /* as the function */
    .op_class = TRII_CLASS_ELEMENTWISE,
    .precision = TRII_PRECISION_FOLLOWS,
    .activations_in = 1,
    .activations_out = 1,
    .shape = trii_shape_unary_float,
    .grad = gelu_tanh_grad,
    .reference = gelu_tanh_reference,
};
ACTIVATION(silu, silu);

TRII_PUBLIC_UNARY(relu)

tri_tensor *tri_leaky_relu(tri_tensor *x, double slope)
{
    return trii_record_number(&trii_op_leaky_relu, x, slope);
}

TRII_PUBLIC_UNARY(sigmoid)
TRII_PUBLIC_UNARY(tanh)

tri_tensor *tri_gelu(tri_tensor *x, tri_gelu_form form)
{
    if (form != TRI_GELU_ERF && form != TRI_GELU_TANH)
        return trii_handle_refused(trii_step_current(), "gelu", &x, 1,
                                   TRII_FAIL(TRI_ERR_INVALID_ARG,
                                             "form %d is not TRI_GELU_ERF or TRI_GELU_TANH",
                                             (int)form));
    return trii_record(form == TRI_GELU_TANH ? &trii_op_gelu_tanh : &trii_op_gelu, &x, 1, NULL);
}

TRII_PUBLIC_UNARY(silu)
