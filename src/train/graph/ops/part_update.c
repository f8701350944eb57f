/*
 * part_update.c - a tensor with a part of it replaced or added to; in place where nothing else
 * reads the tensor.
 */
#include <inttypes.h>
#include <string.h>

#include "train/graph/ops/rules.h"
#include "train/graph/ops/walks.h"

/* in x part; i: for each dimension start, step, number as of a slice; 1 = added */
static tri_status update_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                               trii_type *out, int *n_out)
{
    trii_type part = *in[0];
    tri_dtype dtype = in[0]->dtype;

    (void)n_in;
    *n_out = 1;
    trii_type_copy(out, in[0]);
    for (int d = 0; d < part.ndim; d++)
        part.shape[d] = attrs->i[3 * d + 2];
    if (attrs->i[3 * part.ndim] != 0 && dtype != TRI_DTYPE_F32 && dtype != TRI_DTYPE_F64)
        return TRII_FAIL(TRI_ERR_INTERNAL, "a part of %s is added", tri_dtype_name(dtype));
    if (in[1]->dtype != dtype)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "x is %s, but src is %s", tri_dtype_name(dtype),
                         tri_dtype_name(in[1]->dtype));
    return trii_rule_shape(in[1], "src", part.ndim, part.shape);
}

static void add_element(char *y, const char *x, tri_dtype dtype)
{
    if (dtype == TRI_DTYPE_F32)
        *(float *)y += *(const float *)x;
    else
        *(double *)y += *(const double *)x;
}

static tri_status update_reference(const trii_kernel_args *args)
{
    const trii_type *whole = args->out[0].type, *part = args->in[1].type;
    size_t size = tri_dtype_size(whole->dtype), bytes = trii_type_bytes(whole);
    int64_t n = trii_type_numel(part), at[TRI_MAX_DIMS] = {0}, stride[TRI_MAX_DIMS] = {0},
            start = 0;
    const char *x = args->in[1].data;
    char *y = args->out[0].data;

    if (bytes > 0 && args->out[0].data != args->in[0].data)
        memcpy(y, args->in[0].data, bytes);
    trii_walk_strides(whole, stride);
    for (int d = 0; d < part->ndim; d++) {
        start += args->iattr[3 * d] * stride[d];
        stride[d] *= args->iattr[3 * d + 1];
    }
    for (int64_t i = 0, offset = start; i < n;
         i++, offset = start + trii_walk_next(part, at, stride)) {
        if (args->iattr[3 * whole->ndim] != 0)
            add_element(y + offset * (int64_t)size, x + (size_t)i * size, whole->dtype);
        else
            memcpy(y + offset * (int64_t)size, x + (size_t)i * size, size);
    }
    return TRI_OK;
}

const trii_graph_op trii_op_slice_update = {
    .name = "slice_scatter",
    .precision = TRII_PRECISION_ANY,
    .alias_mask = 1 << 0,
    .alias = {0},
    .shape = update_shape,
    .gradient = TRII_GRADIENT_slice_update,
    .reference = update_reference,
};

tri_tensor *tri_slice_scatter(tri_tensor *x, tri_tensor *src, int dim, int64_t start, int64_t end,
                              int64_t stride)
{
    tri_tensor *const in[2] = {x, src};
    trii_step *step = trii_step_current();
    trii_vid ids[2] = {TRII_NO_VALUE, TRII_NO_VALUE}, out = TRII_NO_VALUE;
    trii_attrs attrs;
    int d = 0;
    tri_status status =
        step != NULL ? trii_dim_operand(step, x, dim, &ids[0], &d) : TRI_ERR_NO_MEMORY;

    if (status == TRI_OK)
        status = src != NULL ? trii_resolve(step, src, &ids[1])
                             : TRII_FAIL(TRI_ERR_INVALID_ARG, "src is NULL");
    if (status == TRI_OK)
        status = trii_rec_cast(step, ids[1], trii_type_of(step, ids[0])->dtype, &ids[1]);
    if (status == TRI_OK)
        status = trii_slice_attrs(trii_type_of(step, ids[0]), d, start, end, stride, &attrs);
    if (status == TRI_OK) {
        trii_attrs_add(&attrs, 0);
        status = trii_record_values(step, &trii_op_slice_update, ids, 2, &attrs, &out);
    }
    return status == TRI_OK ? trii_handle_recorded(step, out)
                            : trii_handle_refused(step, "slice_scatter", in, 2, status);
}
