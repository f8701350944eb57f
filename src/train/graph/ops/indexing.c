/*
 * indexing.c - elements by index: gather, scatter_add, index_select, one_hot.
 */
#include <inttypes.h>
#include <string.h>

#include "train/graph/ops/kernel_rules.h"
#include "train/graph/ops/rules.h"
#include "train/graph/ops/walks.h"

/* `small` has at most the sizes of `large`, except in one dimension (-1: none). */
static tri_status check_within(const trii_type *small, const trii_type *large, int64_t but,
                               const char *what)
{
    char text[2][TRII_TYPE_TEXT];
    bool fits = small->ndim == large->ndim;

    for (int d = 0; d < small->ndim && fits; d++)
        fits = d == but || small->shape[d] <= large->shape[d];
    if (fits)
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_INVALID_ARG,
                     "index %s must have the dimensions of %s %s, and at most "
                     "its sizes",
                     trii_type_text(small, text[0]), what, trii_type_text(large, text[1]));
}

/* --- gather --------------------------------------------------------------- */

/* in x index; i: dim */
static tri_status gather_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                               trii_type *out, int *n_out)
{
    tri_status status = trii_rule_index(in[1], "index");

    (void)n_in;
    *n_out = 1;
    trii_type_copy(out, in[1]);
    out->dtype = in[0]->dtype;
    return status == TRI_OK ? check_within(in[1], in[0], attrs->i[0], "x") : status;
}

/* Offsets into a plain tensor of what each element of index names. */
typedef struct named {
    int64_t stride[TRI_MAX_DIMS], at[TRI_MAX_DIMS], size, along, offset;
} named;

static named named_begin(const trii_type *of, int64_t dim)
{
    named w = {.size = of->shape[dim]};

    trii_walk_strides(of, w.stride);
    w.along = w.stride[dim];
    w.stride[dim] = 0;
    return w;
}

static tri_status gather_reference(const trii_kernel_args *args)
{
    const trii_type *index = args->in[1].type;
    size_t size = tri_dtype_size(args->out[0].type->dtype);
    const int64_t *number = args->in[1].data;
    int64_t n = trii_type_numel(index);
    named w = named_begin(args->in[0].type, args->iattr[0]);
    tri_status status = TRI_OK;

    for (int64_t i = 0; i < n && status == TRI_OK; i++) {
        status = trii_index_check(number[i], i, w.size, "elements");
        if (status == TRI_OK)
            memcpy((char *)args->out[0].data + (size_t)i * size,
                   (const char *)args->in[0].data + (size_t)(w.offset + number[i] * w.along) * size,
                   size);
        w.offset = trii_walk_next(index, w.at, w.stride);
    }
    return status;
}

const trii_graph_op trii_op_gather = {
    .name = "gather_along",
    .may_refuse = true,
    .precision = TRII_PRECISION_ANY,
    .shape = gather_shape,
    .gradient = TRII_GRADIENT_gather,
    .reference = gather_reference,
};

/* --- scatter_add ---------------------------------------------------------- */

/* in x index src; i: dim */
static tri_status scatter_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                                trii_type *out, int *n_out)
{
    tri_status status = trii_rule_float(in[0], "x");

    (void)n_in;
    *n_out = 1;
    trii_type_copy(out, in[0]);
    if (status == TRI_OK)
        status = trii_rule_index(in[1], "index");
    if (status == TRI_OK)
        status = trii_rule_same_dtype(in[0], in[2]);
    if (status == TRI_OK)
        status = check_within(in[1], in[0], attrs->i[0], "x");
    return status == TRI_OK ? check_within(in[1], in[2], -1, "src") : status;
}

static tri_status scatter_kernel(const trii_kernel_args *args)
{
    const trii_type *index = args->in[1].type;
    const int64_t *number = args->in[1].data;
    const double *x = args->in[0].data, *src = args->in[2].data;
    double *y = args->out[0].data;
    int64_t n = trii_type_numel(index), n_x = trii_type_numel(args->out[0].type);
    int64_t src_stride[TRI_MAX_DIMS] = {0}, src_at[TRI_MAX_DIMS] = {0}, src_offset = 0;
    named w = named_begin(args->in[0].type, args->iattr[0]);
    tri_status status = TRI_OK;

    trii_walk_strides(args->in[2].type, src_stride);
    for (int64_t i = 0; i < n_x; i++)
        y[i] = x[i];
    for (int64_t i = 0; i < n && status == TRI_OK; i++) {
        status = trii_index_check(number[i], i, w.size, "elements");
        if (status == TRI_OK)
            y[w.offset + number[i] * w.along] += src[src_offset];
        w.offset = trii_walk_next(index, w.at, w.stride);
        src_offset = trii_walk_next(index, src_at, src_stride);
    }
    return status;
}

static tri_status scatter_reference(const trii_kernel_args *args)
{
    return trii_in_double(args, scatter_kernel);
}

const trii_graph_op trii_op_scatter_add = {
    .name = "scatter_add",
    .may_refuse = true,
    .shape = scatter_shape,
    .gradient = TRII_GRADIENT_scatter_add,
    .reference = scatter_reference,
};

/* --- index_select --------------------------------------------------------- */

/* in x index [n]; i: dim */
static tri_status select_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                               trii_type *out, int *n_out)
{
    tri_status status = trii_rule_index(in[1], "index");

    (void)n_in;
    *n_out = 1;
    trii_type_copy(out, in[0]);
    if (status == TRI_OK)
        status = trii_rule_ndim(in[1], 1, "index");
    if (status == TRI_OK)
        out->shape[attrs->i[0]] = in[1]->shape[0];
    return status;
}

static tri_status select_reference(const trii_kernel_args *args)
{
    trii_around x = trii_around_of(args->in[0].type, args->iattr[0]);
    size_t bytes = (size_t)x.inner * tri_dtype_size(args->in[0].type->dtype);
    const int64_t *number = args->in[1].data;
    int64_t n = args->in[1].type->shape[0];
    tri_status status = TRI_OK;

    for (int64_t i = 0; i < n && status == TRI_OK; i++)
        status = trii_index_check(number[i], i, x.n, "elements");
    for (int64_t o = 0; o < x.outer && status == TRI_OK && bytes > 0; o++) {
        for (int64_t i = 0; i < n; i++)
            memcpy((char *)args->out[0].data + (size_t)(o * n + i) * bytes,
                   (const char *)args->in[0].data + (size_t)(o * x.n + number[i]) * bytes, bytes);
    }
    return status;
}

const trii_graph_op trii_op_index_select = {
    .name = "index_select",
    .may_refuse = true,
    .precision = TRII_PRECISION_ANY,
    .shape = select_shape,
    .gradient = TRII_GRADIENT_index_select,
    .reference = select_reference,
};

/* in g index; i: dim, its size in x */
static tri_status select_backward_shape(const trii_type *const *in, int n_in,
                                        const trii_attrs *attrs, trii_type *out, int *n_out)
{
    (void)n_in;
    *n_out = 1;
    trii_type_copy(out, in[0]);
    out->shape[attrs->i[0]] = attrs->i[1];
    return trii_rule_float(in[0], "g");
}

static tri_status select_backward_kernel(const trii_kernel_args *args)
{
    trii_around g = trii_around_of(args->in[0].type, args->iattr[0]);
    const int64_t *number = args->in[1].data;
    int64_t size = args->iattr[1], n = trii_type_numel(args->out[0].type);
    double *dx = args->out[0].data;
    tri_status status = TRI_OK;

    for (int64_t i = 0; i < n; i++)
        dx[i] = 0;
    for (int64_t i = 0; i < g.n && status == TRI_OK; i++)
        status = trii_index_check(number[i], i, size, "elements");
    for (int64_t o = 0; o < g.outer && status == TRI_OK; o++) {
        for (int64_t i = 0; i < g.n * g.inner; i++)
            dx[(o * size + number[i / g.inner]) * g.inner + i % g.inner] +=
                ((const double *)args->in[0].data)[o * g.n * g.inner + i];
    }
    return status;
}

static tri_status select_backward_reference(const trii_kernel_args *args)
{
    return trii_in_double(args, select_backward_kernel);
}

const trii_graph_op trii_op_index_select_backward = {
    .name = "index_select_backward",
    .shape = select_backward_shape,
    .gradient = TRII_GRADIENT_index_select_backward,
    .reference = select_backward_reference,
};

/* --- one_hot -------------------------------------------------------------- */

/* in index; i: classes */
static tri_status one_hot_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                                trii_type *out, int *n_out)
{
    tri_status status = trii_rule_index(in[0], "index");

    (void)n_in;
    *n_out = 1;
    trii_type_copy(out, in[0]);
    if (status == TRI_OK && out->ndim == TRI_MAX_DIMS)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "index of %d dimensions, at most %d are allowed",
                           out->ndim, TRI_MAX_DIMS - 1);
    if (status == TRI_OK && attrs->i[0] < 1)
        status =
            TRII_FAIL(TRI_ERR_INVALID_ARG, "%" PRId64 " classes: must be at least 1", attrs->i[0]);
    if (status == TRI_OK)
        out->shape[out->ndim++] = attrs->i[0];
    return status;
}

static tri_status one_hot_reference(const trii_kernel_args *args)
{
    const int64_t *number = args->in[0].data;
    int64_t n = trii_type_numel(args->in[0].type), classes = args->iattr[0];
    int64_t *y = args->out[0].data;
    tri_status status = TRI_OK;

    for (int64_t i = 0; i < n * classes; i++)
        y[i] = 0;
    for (int64_t i = 0; i < n && status == TRI_OK; i++) {
        status = trii_index_check(number[i], i, classes, "classes");
        if (status == TRI_OK)
            y[i * classes + number[i]] = 1;
    }
    return status;
}

const trii_graph_op trii_op_one_hot = {
    .name = "one_hot",
    .may_refuse = true,
    .shape = one_hot_shape,
    .reference = one_hot_reference,
};

/* --- public --------------------------------------------------------------- */

/* i: dim of the first operand */
static tri_tensor *along(const trii_graph_op *op, tri_tensor *const *in, int n_in, int dim)
{
    int ndim = in[0] != NULL ? tri_tensor_ndim(in[0]) : -1, d = 0;
    trii_attrs attrs;
    tri_status status = ndim < 0 ? TRI_OK : trii_rule_dim(dim, ndim, &d);

    if (ndim == 0)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "x has no dimensions");
    if (status != TRI_OK)
        return trii_handle_refused(trii_step_current(), op->name, in, n_in, status);
    attrs.n_i = 1;
    attrs.n_f = 0;
    attrs.i[0] = d;
    return trii_record(op, in, n_in, &attrs);
}

tri_tensor *tri_gather_along(tri_tensor *x, int dim, tri_tensor *index)
{
    return along(&trii_op_gather, (tri_tensor *const[]){x, index}, 2, dim);
}

tri_tensor *tri_scatter_add(tri_tensor *x, int dim, tri_tensor *index, tri_tensor *src)
{
    return along(&trii_op_scatter_add, (tri_tensor *const[]){x, index, src}, 3, dim);
}

tri_tensor *tri_index_select(tri_tensor *x, int dim, tri_tensor *index)
{
    return along(&trii_op_index_select, (tri_tensor *const[]){x, index}, 2, dim);
}

tri_tensor *tri_one_hot(tri_tensor *index, int64_t n_classes)
{
    trii_attrs attrs;

    attrs.n_i = 1;
    attrs.n_f = 0;
    attrs.i[0] = n_classes;
    return trii_record(&trii_op_one_hot, &index, 1, &attrs);
}
