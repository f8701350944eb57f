/*
 * activations.c - non-linearities, and the operations that are their gradients.
 */
#include <math.h>

#include "train/graph/ops/rows.h"

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

#define ACTIVATION(name, second)                                                                   \
    TRII_ELEMENTWISE(name, trii_shape_unary_float, name);                                          \
    TRII_ELEMENTWISE(name##_backward, trii_shape_broadcast_float, second)
ACTIVATION(relu, flat);
ACTIVATION(leaky_relu, flat);
ACTIVATION(sigmoid, sigmoid_backward);
ACTIVATION(tanh, tanh_backward);
ACTIVATION(gelu, gelu_backward);
TRII_ELEMENTWISE(gelu_tanh_backward, trii_shape_broadcast_float, gelu_tanh_backward);
const trii_graph_op trii_op_gelu_tanh = {
    .name = "gelu", /* as the function */
    .op_class = TRII_CLASS_ELEMENTWISE,
    .precision = TRII_PRECISION_FOLLOWS,
    .activations_in = 1,
    .activations_out = 1,
    .shape = trii_shape_unary_float,
    .gradient = TRII_GRADIENT_gelu_tanh,
    .reference = gelu_tanh_reference,
};
ACTIVATION(silu, silu_backward);

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
