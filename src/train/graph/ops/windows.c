/*
 * windows.c - windows that slide along a dimension.
 */
#include <inttypes.h>
#include <string.h>

#include "train/graph/ops/rules.h"
#include "train/graph/ops/walks.h"
#include "train/graph/step/strides.h"

/* in x; i: dim, size, step */
static tri_status unfold_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                               trii_type *out, int *n_out)
{
    int64_t dim = attrs->i[0], size = attrs->i[1], step = attrs->i[2];

    (void)n_in;
    *n_out = 1;
    trii_type_copy(out, in[0]);
    if (step < 1)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "step %" PRId64 ": must be at least 1", step);
    if (size < 0 || size > out->shape[dim])
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "windows of %" PRId64 " of dimension %" PRId64 ", which has %" PRId64,
                         size, dim, out->shape[dim]);
    if (out->ndim == TRI_MAX_DIMS)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "a result of %d dimensions: at most %d are allowed",
                         out->ndim + 1, TRI_MAX_DIMS);
    out->shape[dim] = (out->shape[dim] - size) / step + 1;
    out->shape[out->ndim++] = size;
    return TRI_OK;
}

static bool unfold_view(const trii_type *in, const trii_type *out, const int64_t *iattr, int o,
                        const trii_strides *from, trii_strides *to)
{
    (void)out;
    (void)o;
    to->offset = from->offset;
    for (int d = 0; d < in->ndim; d++)
        to->stride[d] = from->stride[d] * (d == iattr[0] ? iattr[2] : 1);
    to->stride[in->ndim] = from->stride[iattr[0]];
    return true;
}

/* Where the windows lie in the plain x. */
static void window_strides(const trii_type *x, const int64_t *iattr, int64_t *stride)
{
    trii_strides plain, windows;

    trii_strides_plain(x, &plain);
    (void)unfold_view(x, NULL, iattr, 0, &plain, &windows);
    memcpy(stride, windows.stride, ((size_t)x->ndim + 1) * sizeof(*stride));
}

static tri_status unfold_reference(const trii_kernel_args *args)
{
    const trii_type *type = args->out[0].type;
    size_t size = tri_dtype_size(type->dtype);
    int64_t n = trii_type_numel(type), at[TRI_MAX_DIMS] = {0}, stride[TRI_MAX_DIMS];

    window_strides(args->in[0].type, args->iattr, stride);
    for (int64_t i = 0, from = 0; i < n; i++, from = trii_walk_next(type, at, stride))
        memcpy((char *)args->out[0].data + (size_t)i * size,
               (const char *)args->in[0].data + (size_t)from * size, size);
    return TRI_OK;
}

const trii_graph_op trii_op_unfold = {
    .name = "unfold",
    .precision = TRII_PRECISION_ANY,
    .op_class = TRII_CLASS_VIEW,
    .view = unfold_view,
    .shape = unfold_shape,
    .gradient = TRII_GRADIENT_unfold,
    .reference = unfold_reference,
};

/* in g; i: dim, size, step, sizes of x: where windows overlap, gradients are added */
static tri_status unfold_backward_shape(const trii_type *const *in, int n_in,
                                        const trii_attrs *attrs, trii_type *out, int *n_out)
{
    (void)n_in;
    *n_out = 1;
    trii_type_copy(out, in[0]);
    out->ndim--;
    for (int d = 0; d < out->ndim; d++)
        out->shape[d] = attrs->i[3 + d];
    return TRI_OK;
}

static tri_status unfold_backward_kernel(const trii_kernel_args *args)
{
    const trii_type *type = args->in[0].type;
    int64_t n = trii_type_numel(type), at[TRI_MAX_DIMS] = {0}, stride[TRI_MAX_DIMS];
    const double *g = args->in[0].data;
    double *x = args->out[0].data;

    window_strides(args->out[0].type, args->iattr, stride);
    for (int64_t i = trii_type_numel(args->out[0].type) - 1; i >= 0; i--)
        x[i] = 0;
    for (int64_t i = 0, to = 0; i < n; i++, to = trii_walk_next(type, at, stride))
        x[to] += g[i];
    return TRI_OK;
}

static tri_status unfold_backward_reference(const trii_kernel_args *args)
{
    return trii_in_double(args, unfold_backward_kernel);
}

const trii_graph_op trii_op_unfold_backward = {
    .name = "unfold_backward",
    .shape = unfold_backward_shape,
    .gradient = TRII_GRADIENT_unfold_backward,
    .reference = unfold_backward_reference,
};

tri_tensor *tri_unfold(tri_tensor *x, int dim, int64_t size, int64_t stride)
{
    trii_step *step = trii_step_current();
    trii_vid id = TRII_NO_VALUE, out = TRII_NO_VALUE;
    trii_attrs attrs;
    int d = 0;
    tri_status status = step != NULL ? trii_dim_operand(step, x, dim, &id, &d) : TRI_ERR_NO_MEMORY;

    if (status == TRI_OK && stride > trii_type_of(step, id)->shape[d])
        stride = trii_type_of(step, id)->shape[d] + 1; /* with one window any step is allowed */
    attrs.n_i = attrs.n_f = 0;
    trii_attrs_add(&attrs, d);
    trii_attrs_add(&attrs, size);
    trii_attrs_add(&attrs, stride);
    if (status == TRI_OK)
        status = trii_record_values(step, &trii_op_unfold, &id, 1, &attrs, &out);
    return status == TRI_OK ? trii_handle_recorded(step, out)
                            : trii_handle_refused(step, "unfold", &x, 1, status);
}
