/*
 * comparing.c - comparisons, logic, and choosing by truth values (bool: one byte, 0 or 1).
 */
#include "train/graph/ops/rows.h"

/* --- comparisons ---------------------------------------------------------- */

static tri_status compare_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                                trii_type *out, int *n_out)
{
    tri_status status = trii_rule_same_dtype(in[0], in[1]);

    (void)n_in;
    (void)attrs;
    *n_out = 1;
    if (status == TRI_OK)
        status = trii_rule_broadcast(in[0], in[1], out);
    out->dtype = TRI_DTYPE_BOOL;
    switch (in[0]->dtype) {
    case TRI_DTYPE_F32:
    case TRI_DTYPE_F64:
    case TRI_DTYPE_I64:
    case TRI_DTYPE_I32:
    case TRI_DTYPE_U8:
    case TRI_DTYPE_BOOL:
        return status;
    default:
        return status != TRI_OK ? status
                                : TRII_FAIL(TRI_ERR_UNSUPPORTED, "%s cannot be compared",
                                            tri_dtype_name(in[0]->dtype));
    }
}

#define COMPARE_ROW(op_name, T, suffix, sign)                                                      \
    static void op_name##_##suffix(int64_t n, void *out, const void *const *in,                    \
                                   const int64_t *stride, const trii_kernel_args *args)            \
    {                                                                                              \
        const T *a = in[0], *b = in[1];                                                            \
        uint8_t *y = out;                                                                          \
                                                                                                   \
        (void)args;                                                                                \
        if (stride[0] == 1 && stride[1] == 1) {                                                    \
            for (int64_t k = 0; k < n; k++)                                                        \
                y[k] = a[k] sign b[k];                                                             \
        } else if (stride[0] == 1 && stride[1] == 0) {                                             \
            T one = *b;                                                                            \
                                                                                                   \
            for (int64_t k = 0; k < n; k++)                                                        \
                y[k] = a[k] sign one;                                                              \
        } else {                                                                                   \
            for (int64_t k = 0; k < n; k++)                                                        \
                y[k] = a[k * stride[0]] sign b[k * stride[1]];                                     \
        }                                                                                          \
    }
#define COMPARE(op_name, sign)                                                                     \
    COMPARE_ROW(op_name, float, f32, sign)                                                         \
    COMPARE_ROW(op_name, double, f64, sign)                                                        \
    COMPARE_ROW(op_name, int64_t, i64, sign)                                                       \
    COMPARE_ROW(op_name, int32_t, i32, sign)                                                       \
    COMPARE_ROW(op_name, uint8_t, u8, sign)                                                        \
    static tri_status op_name##_reference(const trii_kernel_args *args)                            \
    {                                                                                              \
        switch (args->in[0].type->dtype) {                                                         \
        case TRI_DTYPE_F32:                                                                        \
            return trii_walk_rows(args, op_name##_f32);                                            \
        case TRI_DTYPE_F64:                                                                        \
            return trii_walk_rows(args, op_name##_f64);                                            \
        case TRI_DTYPE_I64:                                                                        \
            return trii_walk_rows(args, op_name##_i64);                                            \
        case TRI_DTYPE_I32:                                                                        \
            return trii_walk_rows(args, op_name##_i32);                                            \
        default:                                                                                   \
            return trii_walk_rows(args, op_name##_u8);                                             \
        }                                                                                          \
    }                                                                                              \
    const trii_graph_op trii_op_##op_name = {                                                      \
        .name = #op_name,                                                                          \
        .op_class = TRII_CLASS_ELEMENTWISE,                                                        \
        .shape = compare_shape,                                                                    \
        .reference = op_name##_reference,                                                          \
    };                                                                                             \
    tri_tensor *tri_##op_name(tri_tensor *a, tri_tensor *b)                                        \
    {                                                                                              \
        return trii_record(&trii_op_##op_name, (tri_tensor *const[]){a, b}, 2, NULL);              \
    }
COMPARE(eq, ==)
COMPARE(ne, !=)
COMPARE(lt, <)
COMPARE(le, <=)
COMPARE(gt, >)
COMPARE(ge, >=)

/* --- logic ---------------------------------------------------------------- */

static tri_status check_bool(const trii_type *type, const char *what)
{
    if (type->dtype == TRI_DTYPE_BOOL)
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s must be bool, not %s", what,
                     tri_dtype_name(type->dtype));
}

static tri_status logic_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                              trii_type *out, int *n_out)
{
    tri_status status = check_bool(in[0], n_in == 1 ? "x" : "the first operand");

    (void)attrs;
    *n_out = 1;
    trii_type_copy(out, in[0]);
    if (status != TRI_OK || n_in == 1)
        return status;
    status = check_bool(in[1], "the second operand");
    return status == TRI_OK ? trii_rule_broadcast(in[0], in[1], out) : status;
}

#define LOGIC(op_name, expression)                                                                 \
    static void op_name##_row(int64_t n, void *out, const void *const *in, const int64_t *stride,  \
                              const trii_kernel_args *args)                                        \
    {                                                                                              \
        const uint8_t *x0 = in[0], *x1 = args->n_in > 1 ? in[1] : in[0];                           \
        int64_t s1 = args->n_in > 1 ? stride[1] : stride[0];                                       \
        uint8_t *y = out;                                                                          \
                                                                                                   \
        for (int64_t k = 0; k < n; k++) {                                                          \
            bool a = x0[k * stride[0]] != 0, b = x1[k * s1] != 0;                                  \
                                                                                                   \
            (void)b;                                                                               \
            y[k] = expression;                                                                     \
        }                                                                                          \
    }                                                                                              \
    static tri_status op_name##_reference(const trii_kernel_args *args)                            \
    {                                                                                              \
        return trii_walk_rows(args, op_name##_row);                                                \
    }                                                                                              \
    const trii_graph_op trii_op_##op_name = {                                                      \
        .name = #op_name,                                                                          \
        .op_class = TRII_CLASS_ELEMENTWISE,                                                        \
        .shape = logic_shape,                                                                      \
        .reference = op_name##_reference,                                                          \
    };
LOGIC(logical_and, a &&b)
LOGIC(logical_or, a || b)
LOGIC(logical_xor, a != b)
LOGIC(logical_not, !a)

TRII_PUBLIC_BINARY(logical_and)
TRII_PUBLIC_BINARY(logical_or)
TRII_PUBLIC_BINARY(logical_xor)
TRII_PUBLIC_UNARY(logical_not)

/* --- where, masked_fill --------------------------------------------------- */

/* Inputs: condition, a, b. */
static tri_status where_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                              trii_type *out, int *n_out)
{
    trii_type both;
    tri_status status = check_bool(in[0], "the condition");

    (void)n_in;
    (void)attrs;
    *n_out = 1;
    if (status == TRI_OK)
        status = trii_rule_same_dtype(in[1], in[2]);
    if (status == TRI_OK)
        status = trii_rule_broadcast(in[1], in[2], &both);
    if (status == TRI_OK)
        status = trii_rule_broadcast(&both, in[0], out);
    return status;
}

#define WHERE_ROW(T)                                                                               \
    static void where_##T(int64_t n, void *out, const void *const *in, const int64_t *stride,      \
                          const trii_kernel_args *args)                                            \
    {                                                                                              \
        const uint8_t *condition = in[0];                                                          \
        const T *a = in[1], *b = in[2];                                                            \
        T *y = out;                                                                                \
                                                                                                   \
        (void)args;                                                                                \
        if (stride[0] == 1 && stride[1] == 1 && stride[2] == 1) {                                  \
            for (int64_t k = 0; k < n; k++) {                                                      \
                T if_true = a[k], if_false = b[k];                                                 \
                                                                                                   \
                y[k] = condition[k] != 0 ? if_true : if_false;                                     \
            }                                                                                      \
        } else {                                                                                   \
            for (int64_t k = 0; k < n; k++)                                                        \
                y[k] = condition[k * stride[0]] != 0 ? a[k * stride[1]] : b[k * stride[2]];        \
        }                                                                                          \
    }
WHERE_ROW(uint8_t)
WHERE_ROW(uint16_t)
WHERE_ROW(uint32_t)
WHERE_ROW(uint64_t)

/* The kernel for the result's element size. */
static trii_row_fn by_size(const trii_kernel_args *args, const trii_row_fn fns[4])
{
    size_t size = tri_dtype_size(args->out[0].type->dtype);

    return size == 1 ? fns[0] : size == 2 ? fns[1] : size == 4 ? fns[2] : fns[3];
}

static tri_status where_reference(const trii_kernel_args *args)
{
    static const trii_row_fn rows[4] = {where_uint8_t, where_uint16_t, where_uint32_t,
                                        where_uint64_t};

    return trii_walk_rows(args, by_size(args, rows));
}

const trii_graph_op trii_op_where = {
    .name = "where",
    .precision = TRII_PRECISION_FOLLOWS,
    .activations_in = 1 << 1 | 1 << 2,
    .activations_out = 1 << 0,
    .op_class = TRII_CLASS_ELEMENTWISE,
    .shape = where_shape,
    .gradient = TRII_GRADIENT_where,
    .reference = where_reference,
};

/* in x mask; i: 1 = where the mask is false; f: value */
static tri_status masked_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                               trii_type *out, int *n_out)
{
    trii_type both;
    tri_status status = check_bool(in[1], "mask");

    (void)n_in;
    (void)attrs;
    *n_out = 1;
    trii_type_copy(out, in[0]);
    if (status == TRI_OK)
        status = trii_rule_broadcast(in[0], in[1], &both);
    if (status == TRI_OK && !trii_type_same_shape(&both, in[0])) {
        char text[2][TRII_TYPE_TEXT];

        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "mask %s does not broadcast to x %s",
                           trii_type_text(in[1], text[0]), trii_type_text(in[0], text[1]));
    }
    return status;
}

#define MASKED_ROW(T)                                                                              \
    static void masked_##T(int64_t n, void *out, const void *const *in, const int64_t *stride,     \
                           const trii_kernel_args *args)                                           \
    {                                                                                              \
        const T *x = in[0];                                                                        \
        const uint8_t *mask = in[1];                                                               \
        bool filled = args->iattr[0] == 0;                                                         \
        T *y = out, value;                                                                         \
                                                                                                   \
        trii_element_of(args->fattr[0], args->out[0].type->dtype, &value);                         \
        if (stride[0] == 1 && stride[1] == 1) {                                                    \
            for (int64_t k = 0; k < n; k++) {                                                      \
                T old = x[k];                                                                      \
                                                                                                   \
                y[k] = (mask[k] != 0) == filled ? value : old;                                     \
            }                                                                                      \
        } else {                                                                                   \
            for (int64_t k = 0; k < n; k++)                                                        \
                y[k] = (mask[k * stride[1]] != 0) == filled ? value : x[k * stride[0]];            \
        }                                                                                          \
    }
MASKED_ROW(uint8_t)
MASKED_ROW(uint16_t)
MASKED_ROW(uint32_t)
MASKED_ROW(uint64_t)

static tri_status masked_reference(const trii_kernel_args *args)
{
    static const trii_row_fn rows[4] = {masked_uint8_t, masked_uint16_t, masked_uint32_t,
                                        masked_uint64_t};

    return trii_walk_rows(args, by_size(args, rows));
}

const trii_graph_op trii_op_masked_fill = {
    .name = "masked_fill",
    .precision = TRII_PRECISION_ANY,
    .op_class = TRII_CLASS_ELEMENTWISE,
    .shape = masked_shape,
    .gradient = TRII_GRADIENT_masked_fill,
    .reference = masked_reference,
};

tri_tensor *tri_where(tri_tensor *condition, tri_tensor *a, tri_tensor *b)
{
    return trii_record(&trii_op_where, (tri_tensor *const[]){condition, a, b}, 3, NULL);
}

tri_tensor *tri_masked_fill(tri_tensor *x, tri_tensor *mask, double value)
{
    tri_tensor *const in[2] = {x, mask};
    tri_status status = trii_rule_number(value, x != NULL ? tri_tensor_dtype(x) : TRI_DTYPE_NONE);
    trii_attrs attrs;

    if (status != TRI_OK)
        return trii_handle_refused(trii_step_current(), "masked_fill", in, 2, status);
    attrs.n_i = attrs.n_f = 1;
    attrs.i[0] = 0;
    attrs.f[0] = value;
    return trii_record(&trii_op_masked_fill, in, 2, &attrs);
}
