/*
 * elementwise.c - arithmetic that looks at one element of each operand at a time.
 */
#include <math.h>

#include "train/graph/ops/rows.h"

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

TRII_ELEMENTWISE(add, number_shape, add);
TRII_ELEMENTWISE(sub, number_shape, sub);
TRII_ELEMENTWISE(mul, number_shape, mul);
TRII_ELEMENTWISE(div, trii_shape_broadcast_float, div);

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

TRII_ELEMENTWISE(maximum, trii_shape_broadcast_float, maximum);
TRII_ELEMENTWISE(minimum, trii_shape_broadcast_float, minimum);
TRII_ELEMENTWISE(extremum_backward, trii_shape_broadcast_float, flat);

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

TRII_ELEMENTWISE(neg, trii_shape_unary_float, neg);
TRII_ELEMENTWISE(add_scalar, trii_shape_unary_float, pass);
TRII_ELEMENTWISE(mul_scalar, trii_shape_unary_float, mul_scalar);
TRII_ELEMENTWISE(abs, trii_shape_unary_float, abs);
TRII_ELEMENTWISE(abs_backward, trii_shape_broadcast_float, flat);
TRII_ELEMENTWISE(square, trii_shape_unary_float, square);
TRII_ELEMENTWISE(sqrt, trii_shape_unary_float, sqrt);
TRII_ELEMENTWISE(exp, trii_shape_unary_float, exp);
TRII_ELEMENTWISE(log, trii_shape_unary_float, log);

tri_status trii_rec_scaled(trii_step *step, trii_vid a, double factor, trii_vid *out)
{
    trii_attrs attrs;

    attrs.n_i = 0;
    attrs.n_f = 1;
    attrs.f[0] = factor;
    return trii_record_values(step, &trii_op_mul_scalar, &a, 1, &attrs, out);
}

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
