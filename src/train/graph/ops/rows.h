/*
 * rows.h - row functions of element-wise reference kernels, made from one expression.
 *
 * The expression sees the operands as doubles a and b (integers as uint64_t), the first float
 * attribute as f0, rounded to the type of the operands as PyTorch does.
 */
#ifndef TRII_ROWS_H
#define TRII_ROWS_H

#include "train/graph/ops/rules.h"

#define TRII_ROW1(name, T, W, suffix, expression)                                                  \
    static void name##_##suffix(int64_t n, void *out, const void *const *in,                       \
                                const int64_t *stride, const trii_kernel_args *args)               \
    {                                                                                              \
        T *y = out;                                                                                \
        const T *x0 = in[0];                                                                       \
        int64_t s0 = stride[0];                                                                    \
        double f0 = sizeof(T) == 4 ? (double)(float)args->fattr[0] : args->fattr[0];               \
                                                                                                   \
        (void)f0;                                                                                  \
        for (int64_t k = 0; k < n; k++) {                                                          \
            W a = (W)x0[k * s0];                                                                   \
                                                                                                   \
            y[k] = (T)(expression);                                                                \
        }                                                                                          \
    }
#define TRII_ROW2(name, T, W, suffix, expression)                                                  \
    static void name##_##suffix(int64_t n, void *out, const void *const *in,                       \
                                const int64_t *stride, const trii_kernel_args *args)               \
    {                                                                                              \
        T *y = out;                                                                                \
        const T *x0 = in[0], *x1 = in[1];                                                          \
        int64_t s0 = stride[0], s1 = stride[1];                                                    \
        double f0 = sizeof(T) == 4 ? (double)(float)args->fattr[0] : args->fattr[0];               \
                                                                                                   \
        (void)f0;                                                                                  \
        for (int64_t k = 0; k < n; k++) {                                                          \
            W a = (W)x0[k * s0], b = (W)x1[k * s1];                                                \
                                                                                                   \
            y[k] = (T)(expression);                                                                \
        }                                                                                          \
    }
#define TRII_ROW_REFERENCE(name, i64)                                                              \
    static tri_status name##_reference(const trii_kernel_args *args)                               \
    {                                                                                              \
        return trii_walk(args, name##_f32, name##_f64, i64);                                       \
    }
/* NAME_reference for floating-point operands, and with the same expression for integers (which
 * wrap around). */
#define TRII_UNARY(name, expression)                                                               \
    TRII_ROW1(name, float, double, f32, expression)                                                \
    TRII_ROW1(name, double, double, f64, expression)                                               \
    TRII_ROW_REFERENCE(name, NULL)
#define TRII_BINARY(name, expression)                                                              \
    TRII_ROW2(name, float, double, f32, expression)                                                \
    TRII_ROW2(name, double, double, f64, expression)                                               \
    TRII_ROW_REFERENCE(name, NULL)
#define TRII_BINARY_INT(name, expression)                                                          \
    TRII_ROW2(name, float, double, f32, expression)                                                \
    TRII_ROW2(name, double, double, f64, expression)                                               \
    TRII_ROW2(name, int64_t, uint64_t, i64, expression)                                            \
    TRII_ROW_REFERENCE(name, name##_i64)

/* The table entry of an element-wise operation. */
#define TRII_ELEMENTWISE(public_name, shape_rule, rule)                                            \
    const trii_graph_op trii_op_##public_name = {                                                  \
        .name = #public_name,                                                                      \
        .op_class = TRII_CLASS_ELEMENTWISE,                                                        \
        .precision = TRII_PRECISION_FOLLOWS,                                                       \
        .activations_in = 0xff,                                                                    \
        .activations_out = 1,                                                                      \
        .shape = shape_rule,                                                                       \
        .gradient = TRII_GRADIENT_##rule,                                                          \
        .reference = public_name##_reference,                                                      \
    }

/* The public functions of operations without attributes, of one operand and of two. */
#define TRII_PUBLIC_UNARY(name)                                                                    \
    tri_tensor *tri_##name(tri_tensor *x)                                                          \
    {                                                                                              \
        return trii_record(&trii_op_##name, &x, 1, NULL);                                          \
    }
#define TRII_PUBLIC_BINARY(name)                                                                   \
    tri_tensor *tri_##name(tri_tensor *a, tri_tensor *b)                                           \
    {                                                                                              \
        return trii_record(&trii_op_##name, (tri_tensor *const[]){a, b}, 2, NULL);                 \
    }

#endif
