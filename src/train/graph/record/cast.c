/*
 * cast.c - the operation that converts between dtypes, which recording itself needs for
 * precision.c.
 */
#include "base/dtype.h"
#include "train/graph/record/record.h"

static tri_status cast_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                             trii_type *out, int *n_out)
{
    const tri_dtype dtypes[2] = {in[0]->dtype, (tri_dtype)attrs->i[0]};

    (void)n_in;
    trii_type_copy(&out[0], in[0]);
    out[0].dtype = dtypes[1];
    *n_out = 1;
    for (int i = 0; i < 2; i++) {
        switch (dtypes[i]) {
        case TRI_DTYPE_U8:
        case TRI_DTYPE_BOOL:
        case TRI_DTYPE_I8:
        case TRI_DTYPE_I16:
        case TRI_DTYPE_I32:
        case TRI_DTYPE_I64:
        case TRI_DTYPE_F16:
        case TRI_DTYPE_BF16:
        case TRI_DTYPE_F32:
        case TRI_DTYPE_F64:
            break;
        default:
            return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                             "from %s to %s: supported are bool, the integers from u8 to i64, f16, "
                             "bf16, f32 and f64",
                             tri_dtype_name(dtypes[0]), tri_dtype_name(dtypes[1]));
        }
    }
    return TRI_OK;
}

/* Towards zero; what does not fit i64 becomes the nearest, NaN 0 (C leaves both undefined).
 * Smaller integers take the low bits of that, as in PyTorch. */
static int64_t to_integer(double x)
{
    if (x != x)
        return 0;
    if (x >= 9223372036854775808.0)
        return INT64_MAX;
    return x <= -9223372036854775808.0 ? INT64_MIN : (int64_t)x;
}

static void cast_element(tri_dtype from, const char *x, tri_dtype to, char *y)
{
    double real = 0;
    int64_t integer = 0;
    bool is_real = trii_dtype_is_float(from);

    switch (from) {
    case TRI_DTYPE_F32:
        real = (double)*(const float *)(const void *)x;
        break;
    case TRI_DTYPE_F64:
        real = *(const double *)(const void *)x;
        break;
    case TRI_DTYPE_BF16:
        real = (double)trii_bf16_to_f32(*(const uint16_t *)(const void *)x);
        break;
    case TRI_DTYPE_F16:
        real = (double)trii_f16_to_f32(*(const uint16_t *)(const void *)x);
        break;
    case TRI_DTYPE_I64:
        integer = *(const int64_t *)(const void *)x;
        break;
    case TRI_DTYPE_I32:
        integer = *(const int32_t *)(const void *)x;
        break;
    case TRI_DTYPE_I16:
        integer = *(const int16_t *)(const void *)x;
        break;
    case TRI_DTYPE_I8:
        integer = *(const int8_t *)x;
        break;
    default:
        integer = *(const uint8_t *)x;
        break;
    }
    if (is_real && !trii_dtype_is_float(to))
        integer = to == TRI_DTYPE_BOOL ? real != 0 : to_integer(real);
    switch (to) {
    case TRI_DTYPE_F32:
        *(float *)(void *)y = is_real ? (float)real : (float)integer;
        break;
    case TRI_DTYPE_F64:
        *(double *)(void *)y = is_real ? real : (double)integer;
        break;
    case TRI_DTYPE_BF16:
        *(uint16_t *)(void *)y = trii_f32_to_bf16(is_real ? (float)real : (float)integer);
        break;
    case TRI_DTYPE_F16:
        *(uint16_t *)(void *)y = trii_f32_to_f16(is_real ? (float)real : (float)integer);
        break;
    case TRI_DTYPE_I64:
        *(int64_t *)(void *)y = integer;
        break;
    case TRI_DTYPE_I32:
        *(int32_t *)(void *)y = (int32_t)(uint32_t)(uint64_t)integer;
        break;
    case TRI_DTYPE_I16:
        *(int16_t *)(void *)y = (int16_t)(uint16_t)(uint64_t)integer;
        break;
    case TRI_DTYPE_BOOL:
        *(uint8_t *)y = integer != 0;
        break;
    default: /* u8, and i8, of the same bits */
        *(uint8_t *)y = (uint8_t)(uint64_t)integer;
        break;
    }
}

void trii_element_of(double value, tri_dtype dtype, void *element)
{
    cast_element(TRI_DTYPE_F64, (const char *)&value, dtype, element);
}

static tri_status cast_reference(const trii_kernel_args *args)
{
    tri_dtype from = args->in[0].type->dtype, to = args->out[0].type->dtype;
    int64_t n = trii_type_numel(args->out[0].type);
    const char *x = args->in[0].data;
    char *y = args->out[0].data;

    for (int64_t i = 0; i < n; i++) {
        cast_element(from, x, to, y);
        x += tri_dtype_size(from);
        y += tri_dtype_size(to);
    }
    return TRI_OK;
}

tri_status trii_rec_cast(trii_step *step, trii_vid a, tri_dtype dtype, trii_vid *out)
{
    trii_attrs attrs;

    if (step->values[a].type.dtype == dtype) {
        *out = a;
        return TRI_OK;
    }
    attrs.n_i = 1;
    attrs.n_f = 0;
    attrs.i[0] = dtype;
    return trii_record_plain(step, &trii_op_cast, a, &attrs, out);
}

const trii_graph_op trii_op_cast = {
    .name = "cast",
    .precision = TRII_PRECISION_ANY,
    .op_class = TRII_CLASS_ELEMENTWISE,
    .shape = cast_shape,
    .gradient = TRII_GRADIENT_cast,
    .reference = cast_reference,
};
