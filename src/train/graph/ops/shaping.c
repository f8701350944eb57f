/*
 * shaping.c - operations that move or repeat elements and never change them; any dtype.
 */
#include <inttypes.h>
#include <string.h>

#include "train/graph/ops/rules.h"
#include "train/graph/step/strides.h"

static void copy_sizes(const trii_attrs *attrs, tri_dtype dtype, trii_type *out)
{
    out->dtype = dtype;
    out->ndim = attrs->n_i;
    for (int d = 0; d < attrs->n_i; d++)
        out->shape[d] = attrs->i[d];
}

/* --- reshape -------------------------------------------------------------- */

/* "[2, -1]" */
static const char *sizes_text(const trii_attrs *attrs, char text[TRII_TYPE_TEXT])
{
    trii_type type;

    copy_sizes(attrs, TRI_DTYPE_F32, &type);
    return strchr(trii_type_text(&type, text), '[');
}

/* Resolves one -1 here, so that equal results have equal attributes only if written alike; the cost
 * is at most a second plan. */
static tri_status reshape_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                                trii_type *out, int *n_out)
{
    int64_t have = trii_type_numel(in[0]), known = 1;
    char text[TRII_TYPE_TEXT];
    int open = -1;

    (void)n_in;
    copy_sizes(attrs, in[0]->dtype, out);
    for (int d = 0; d < out->ndim; d++) {
        if (out->shape[d] == -1 && open < 0) {
            open = d;
            continue;
        }
        if (out->shape[d] == -1)
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "sizes of -1 in dimensions %d and %d: only one "
                             "can be worked out",
                             open, d);
        if (out->shape[d] < 0)
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "size %" PRId64 " in dimension %d", out->shape[d],
                             d);
        if (__builtin_mul_overflow(known, out->shape[d], &known))
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "the sizes overflow");
    }
    if (open >= 0 && (known == 0 || have % known != 0))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%" PRId64 " elements do not divide into %s", have,
                         sizes_text(attrs, text));
    if (open >= 0)
        out->shape[open] = have / known;
    else if (known != have)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%" PRId64 " elements do not fit %" PRId64 ", those of %s", have, known,
                         sizes_text(attrs, text));
    *n_out = 1;
    return TRI_OK;
}

static tri_status bytes_reference(const trii_kernel_args *args)
{
    size_t bytes = trii_type_bytes(args->out[0].type);

    if (bytes > 0)
        memcpy(args->out[0].data, args->in[0].data, bytes);
    return TRI_OK;
}

static bool reshape_view(const trii_type *in, const trii_type *out, const int64_t *iattr, int o,
                         const trii_strides *from, trii_strides *to)
{
    (void)iattr;
    (void)o;
    return trii_strides_reshape(in, from, out, to);
}

static bool reshape_view_from(const trii_type *in, const trii_type *out, const int64_t *iattr,
                              const trii_strides *from, trii_strides *to)
{
    (void)iattr;
    return trii_strides_reshape(out, from, in, to);
}

const trii_graph_op trii_op_reshape = {
    .name = "reshape",
    .precision = TRII_PRECISION_ANY,
    .op_class = TRII_CLASS_VIEW,
    .view = reshape_view,
    .view_from = reshape_view_from,
    .shape = reshape_shape,
    .gradient = TRII_GRADIENT_reshape,
    .reference = bytes_reference,
};

tri_status trii_rec_reshape(trii_step *step, trii_vid a, const int64_t *shape, int ndim,
                            trii_vid *out)
{
    return trii_rec_shaped(step, &trii_op_reshape, a, shape, ndim, out);
}

/* --- expand --------------------------------------------------------------- */

static tri_status expand_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                               trii_type *out, int *n_out)
{
    (void)n_in;
    copy_sizes(attrs, in[0]->dtype, out);
    *n_out = 1;
    if (out->ndim < in[0]->ndim)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%d dimensions cannot become %d", in[0]->ndim,
                         out->ndim);
    for (int d = 0; d < out->ndim; d++) {
        int e = d - (out->ndim - in[0]->ndim);
        int64_t n = e >= 0 ? in[0]->shape[e] : 1;

        if (out->shape[d] == -1 && e >= 0)
            out->shape[d] = n;
        if (out->shape[d] < 0 || (n != 1 && n != out->shape[d]))
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "size %" PRId64 " cannot grow to %" PRId64 " in dimension %d", n,
                             out->shape[d], d);
    }
    return TRI_OK;
}

static tri_status expand_reference(const trii_kernel_args *args)
{
    const trii_type *in = args->in[0].type, *out = args->out[0].type;
    size_t size = tri_dtype_size(out->dtype);
    int64_t n = trii_type_numel(out), at[TRI_MAX_DIMS] = {0}, stride[TRI_MAX_DIMS], step = 1;
    const char *x = args->in[0].data;
    char *y = args->out[0].data;

    for (int d = out->ndim - 1; d >= 0; d--) {
        int e = d - (out->ndim - in->ndim);
        int64_t m = e >= 0 ? in->shape[e] : 1;

        stride[d] = m == 1 ? 0 : step;
        step *= m;
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t offset = 0;

        for (int d = 0; d < out->ndim; d++)
            offset += at[d] * stride[d];
        memcpy(y + (size_t)i * size, x + (size_t)offset * size, size);
        for (int d = out->ndim - 1; d >= 0 && ++at[d] == out->shape[d]; d--)
            at[d] = 0;
    }
    return TRI_OK;
}

static bool expand_view(const trii_type *in, const trii_type *out, const int64_t *iattr, int o,
                        const trii_strides *from, trii_strides *to)
{
    int shift = out->ndim - in->ndim;

    (void)iattr;
    (void)o;
    to->offset = from->offset;
    for (int d = 0; d < out->ndim; d++) {
        bool repeats = d < shift || in->shape[d - shift] != out->shape[d];

        to->stride[d] = repeats ? 0 : from->stride[d - shift];
    }
    return true;
}

const trii_graph_op trii_op_expand = {
    .name = "expand",
    .precision = TRII_PRECISION_ANY,
    .op_class = TRII_CLASS_VIEW,
    .view = expand_view,
    .shape = expand_shape,
    .gradient = TRII_GRADIENT_expand,
    .reference = expand_reference,
};

tri_status trii_rec_expand(trii_step *step, trii_vid a, const int64_t *shape, int ndim,
                           trii_vid *out)
{
    return trii_rec_shaped(step, &trii_op_expand, a, shape, ndim, out);
}

/* --- permute, flip -------------------------------------------------------- */

/* Copies in output order; input element = sum of index times stride, from `start`. */
static void gather(const trii_kernel_args *args, const int64_t *stride, int64_t start)
{
    const trii_type *out = args->out[0].type;
    size_t size = tri_dtype_size(out->dtype);
    int64_t n = trii_type_numel(out), at[TRI_MAX_DIMS] = {0};
    const char *x = (const char *)args->in[0].data + (size_t)start * size;
    char *y = args->out[0].data;

    for (int64_t i = 0; i < n; i++) {
        int64_t offset = 0;

        for (int d = 0; d < out->ndim; d++)
            offset += at[d] * stride[d];
        memcpy(y + (size_t)i * size, x + offset * (int64_t)size, size);
        for (int d = out->ndim - 1; d >= 0 && ++at[d] == out->shape[d]; d--)
            at[d] = 0;
    }
}

static void plain_strides(const trii_type *type, int64_t *stride)
{
    int64_t step = 1;

    for (int d = type->ndim - 1; d >= 0; d--) {
        stride[d] = step;
        step *= type->shape[d];
    }
}

static tri_status permute_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                                trii_type *out, int *n_out)
{
    unsigned seen = 0;

    (void)n_in;
    *n_out = 1;
    if (attrs->n_i != in[0]->ndim)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%d dimensions are named, the tensor has %d",
                         attrs->n_i, in[0]->ndim);
    out->dtype = in[0]->dtype;
    out->ndim = in[0]->ndim;
    for (int d = 0; d < out->ndim; d++) {
        int64_t from = attrs->i[d];

        if (from < 0 || from >= out->ndim || (seen >> from & 1))
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "dims[%d] is %lld: each of 0 to %d must occur once", d,
                             (long long)attrs->i[d], in[0]->ndim - 1);
        seen |= 1u << from;
        out->shape[d] = in[0]->shape[from];
    }
    return TRI_OK;
}

static tri_status permute_reference(const trii_kernel_args *args)
{
    int64_t plain[TRI_MAX_DIMS], stride[TRI_MAX_DIMS];

    plain_strides(args->in[0].type, plain);
    for (int d = 0; d < args->out[0].type->ndim; d++)
        stride[d] = plain[args->iattr[d]];
    gather(args, stride, 0);
    return TRI_OK;
}

static bool permute_view(const trii_type *in, const trii_type *out, const int64_t *iattr, int o,
                         const trii_strides *from, trii_strides *to)
{
    (void)in;
    (void)o;
    to->offset = from->offset;
    for (int d = 0; d < out->ndim; d++)
        to->stride[d] = from->stride[iattr[d]];
    return true;
}

static bool permute_view_from(const trii_type *in, const trii_type *out, const int64_t *iattr,
                              const trii_strides *from, trii_strides *to)
{
    (void)in;
    to->offset = from->offset;
    for (int d = 0; d < out->ndim; d++)
        to->stride[iattr[d]] = from->stride[d];
    return true;
}

const trii_graph_op trii_op_permute = {
    .name = "permute",
    .precision = TRII_PRECISION_ANY,
    .op_class = TRII_CLASS_VIEW,
    .view = permute_view,
    .view_from = permute_view_from,
    .shape = permute_shape,
    .gradient = TRII_GRADIENT_permute,
    .reference = permute_reference,
};

/* i: dim */
static tri_status flip_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                             trii_type *out, int *n_out)
{
    (void)n_in;
    (void)attrs;
    trii_type_copy(out, in[0]);
    *n_out = 1;
    return TRI_OK;
}

static tri_status flip_reference(const trii_kernel_args *args)
{
    const trii_type *type = args->in[0].type;
    int64_t stride[TRI_MAX_DIMS], dim = args->iattr[0], start;

    plain_strides(type, stride);
    start = (type->shape[dim] - 1) * stride[dim];
    stride[dim] = -stride[dim];
    gather(args, stride, start);
    return TRI_OK;
}

const trii_graph_op trii_op_flip = {
    .name = "flip",
    .precision = TRII_PRECISION_ANY,
    .shape = flip_shape,
    .gradient = TRII_GRADIENT_flip,
    .reference = flip_reference,
};

/* --- public --------------------------------------------------------------- */

static tri_tensor *refused(const char *name, tri_tensor *x, tri_status status)
{
    return trii_handle_refused(trii_step_current(), name, &x, 1, status);
}

/* A list of sizes or dimensions that a user gives. */
static tri_status check_list(const void *list, const char *what, int ndim)
{
    if (ndim < 0 || ndim > TRI_MAX_DIMS)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%d dimensions, 0 to %d are allowed", ndim,
                         TRI_MAX_DIMS);
    if (ndim > 0 && list == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s is NULL, with %d dimensions", what, ndim);
    return TRI_OK;
}

static tri_tensor *shaped(const trii_graph_op *op, tri_tensor *x, const int64_t *shape, int ndim)
{
    trii_attrs attrs;

    tri_status status = check_list(shape, "shape", ndim);

    if (status != TRI_OK)
        return refused(op->name, x, status);
    attrs.n_i = ndim;
    attrs.n_f = 0;
    for (int d = 0; d < ndim; d++)
        attrs.i[d] = shape[d];
    return trii_record(op, &x, 1, &attrs);
}

tri_tensor *tri_reshape(tri_tensor *x, const int64_t *shape, int ndim)
{
    return shaped(&trii_op_reshape, x, shape, ndim);
}

tri_tensor *tri_expand(tri_tensor *x, const int64_t *shape, int ndim)
{
    return shaped(&trii_op_expand, x, shape, ndim);
}

tri_tensor *tri_flatten(tri_tensor *x, int start_dim)
{
    int ndim = x != NULL ? tri_tensor_ndim(x) : -1, dim = 0;
    int64_t shape[TRI_MAX_DIMS];
    tri_status status;

    if (ndim < 0)
        return trii_record(&trii_op_reshape, &x, 1, NULL); /* reports what is wrong with x */
    status = trii_rule_dim(start_dim, ndim, &dim);
    if (status != TRI_OK)
        return refused("flatten", x, status);
    if (ndim == 0)
        return shaped(&trii_op_reshape, x, TRI_SHAPE(1));
    for (int d = 0; d < dim; d++)
        shape[d] = tri_tensor_size(x, d);
    shape[dim] = 1;
    for (int d = dim; d < ndim; d++)
        shape[dim] *= tri_tensor_size(x, d);
    return shaped(&trii_op_reshape, x, shape, dim + 1);
}

tri_tensor *tri_squeeze(tri_tensor *x, const int64_t *dims, int n)
{
    int ndim = x != NULL ? tri_tensor_ndim(x) : -1, kept = 0, d = 0;
    unsigned goes = n == 0 ? ~0u : 0;
    int64_t shape[TRI_MAX_DIMS];
    tri_status status = ndim < 0 ? TRI_OK : check_list(dims, "dims", n);

    for (int i = 0; ndim >= 0 && i < n && status == TRI_OK; i++) {
        status = trii_rule_dim(dims[i], ndim, &d);
        goes |= 1u << d;
    }
    if (status != TRI_OK)
        return refused("squeeze", x, status);
    if (ndim < 0)
        return trii_record_as("squeeze", &trii_op_reshape, &x, 1, NULL);
    for (d = 0; d < ndim; d++) {
        if ((goes >> d & 1) == 0 || tri_tensor_size(x, d) != 1)
            shape[kept++] = tri_tensor_size(x, d);
    }
    return shaped(&trii_op_reshape, x, shape, kept);
}

tri_tensor *tri_unsqueeze(tri_tensor *x, int dim)
{
    int ndim = x != NULL ? tri_tensor_ndim(x) : -1, at = 0;
    int64_t shape[TRI_MAX_DIMS];
    tri_status status = TRI_OK;

    if (ndim < 0)
        return trii_record_as("unsqueeze", &trii_op_reshape, &x, 1, NULL);
    status = trii_rule_dim(dim, ndim + 1, &at);
    if (status == TRI_OK && ndim == TRI_MAX_DIMS)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "a result of %d dimensions: at most %d are allowed",
                           ndim + 1, TRI_MAX_DIMS);
    if (status != TRI_OK)
        return refused("unsqueeze", x, status);
    for (int d = 0; d <= ndim; d++)
        shape[d] = d == at ? 1 : tri_tensor_size(x, d < at ? d : d - 1);
    return shaped(&trii_op_reshape, x, shape, ndim + 1);
}

tri_tensor *tri_permute(tri_tensor *x, const int64_t *dims, int ndim)
{
    trii_attrs attrs;

    tri_status status = check_list(dims, "dims", ndim);

    if (status != TRI_OK)
        return refused("permute", x, status);
    attrs.n_f = 0;
    attrs.n_i = ndim;
    for (int d = 0; d < ndim; d++)
        attrs.i[d] = dims[d] < 0 ? dims[d] + ndim : dims[d];
    return trii_record(&trii_op_permute, &x, 1, &attrs);
}

tri_tensor *tri_transpose(tri_tensor *x, int dim0, int dim1)
{
    int ndim = x != NULL ? tri_tensor_ndim(x) : -1, a = 0, b = 0;
    int64_t dims[TRI_MAX_DIMS];
    tri_status status;

    if (ndim < 0)
        return trii_record(&trii_op_permute, &x, 1, NULL);
    status = trii_rule_dim(dim0, ndim, &a);
    if (status == TRI_OK)
        status = trii_rule_dim(dim1, ndim, &b);
    if (status != TRI_OK)
        return refused("transpose", x, status);
    for (int d = 0; d < ndim; d++)
        dims[d] = d == a ? b : d == b ? a : d;
    return tri_permute(x, dims, ndim);
}

tri_tensor *tri_flip(tri_tensor *x, int dim)
{
    int ndim = x != NULL ? tri_tensor_ndim(x) : -1, d = 0;
    trii_attrs attrs;
    tri_status status = ndim < 0 ? TRI_OK : trii_rule_dim(dim, ndim, &d);

    if (status != TRI_OK)
        return refused("flip", x, status);
    if (ndim == 0)
        return shaped(&trii_op_reshape, x, NULL, 0);
    attrs.n_i = 1;
    attrs.n_f = 0;
    attrs.i[0] = d;
    return trii_record(&trii_op_flip, &x, 1, &attrs);
}
