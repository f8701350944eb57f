/*
 * slicing.c - parts of a tensor, and tensors put together; elements of any type, never changed.
 */
#include <inttypes.h>
#include <string.h>

#include "train/graph/ops/own_part.h"
#include "train/graph/ops/rules.h"
#include "train/graph/ops/walks.h"
#include "train/graph/step/strides.h"

/* --- slice ---------------------------------------------------------------- */

/* i: for each dimension start, step, number */
static tri_status slice_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                              trii_type *out, int *n_out)
{
    (void)n_in;
    *n_out = 1;
    trii_type_copy(out, in[0]);
    if (attrs->n_i != 3 * out->ndim)
        return TRII_FAIL(TRI_ERR_INTERNAL, "a slice of %d dimensions", attrs->n_i / 3);
    for (int d = 0; d < out->ndim; d++) {
        const int64_t *part = &attrs->i[3 * d];

        out->shape[d] = part[2];
        if (part[2] > 0 && (part[0] < 0 || part[1] < 1 ||
                            (part[2] - 1) > (in[0]->shape[d] - 1 - part[0]) / part[1]))
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "%" PRId64 " elements from %" PRId64 " on, step %" PRId64
                             ", of dimension %d, which has %" PRId64,
                             part[2], part[0], part[1], d, in[0]->shape[d]);
    }
    return TRI_OK;
}

/* Copies between the plain tensor `part` and the elements of `whole` that the slice names. */
static void copy_part(const trii_array *part, const trii_type *whole, const int64_t *slice,
                      char *whole_data, bool into_whole)
{
    const trii_type *type = part->type;
    size_t size = tri_dtype_size(type->dtype);
    int64_t n = trii_type_numel(type), at[TRI_MAX_DIMS] = {0}, stride[TRI_MAX_DIMS] = {0},
            start = 0;
    char *p = part->data;

    trii_walk_strides(whole, stride);
    for (int d = 0; d < type->ndim; d++) {
        start += slice[3 * d] * stride[d];
        stride[d] *= slice[3 * d + 1];
    }
    for (int64_t i = 0, offset = start; i < n;
         i++, offset = start + trii_walk_next(type, at, stride)) {
        char *w = whole_data + offset * (int64_t)size;

        memcpy(into_whole ? w : p, into_whole ? p : w, size);
        p += size;
    }
}

static tri_status slice_reference(const trii_kernel_args *args)
{
    copy_part(&args->out[0], args->in[0].type, args->iattr, args->in[0].data, false);
    return TRI_OK;
}

static bool slice_view(const trii_type *in, const trii_type *out, const int64_t *iattr, int o,
                       const trii_strides *from, trii_strides *to)
{
    (void)in;
    (void)o;
    to->offset = from->offset;
    for (int d = 0; d < out->ndim; d++) {
        to->offset += iattr[3 * d] * from->stride[d];
        to->stride[d] = iattr[3 * d + 1] * from->stride[d];
    }
    return true;
}

#define SLICE(what, grad)                                                                          \
    {                                                                                              \
        .name = (what), .precision = TRII_PRECISION_ANY, .op_class = TRII_CLASS_VIEW,              \
        .view = slice_view, .shape = slice_shape, .gradient = TRII_GRADIENT_##grad,                \
        .reference = slice_reference                                                               \
    }
const trii_graph_op trii_op_slice = SLICE("slice", slice);
/* The same with the gradient of own_part.h. */
const trii_graph_op trii_op_dist_scatter_to = SLICE("dist_scatter_to", own_part);
const trii_graph_op trii_op_dist_copy_to = SLICE("dist_copy_to", own_part);

/* in g; i: .., sizes of x: zeros but for the slice */
static tri_status slice_backward_shape(const trii_type *const *in, int n_in,
                                       const trii_attrs *attrs, trii_type *out, int *n_out)
{
    (void)n_in;
    *n_out = 1;
    trii_type_copy(out, in[0]);
    for (int d = 0; d < out->ndim; d++)
        out->shape[d] = attrs->i[3 * out->ndim + d];
    return TRI_OK;
}

static tri_status slice_backward_reference(const trii_kernel_args *args)
{
    size_t bytes = trii_type_bytes(args->out[0].type);

    if (bytes > 0)
        memset(args->out[0].data, 0, bytes);
    copy_part(&args->in[0], args->out[0].type, args->iattr, args->out[0].data, true);
    return TRI_OK;
}

const trii_graph_op trii_op_slice_backward = {
    .name = "slice_backward",
    .precision = TRII_PRECISION_ANY,
    .shape = slice_backward_shape,
    .gradient = TRII_GRADIENT_slice_backward,
    .reference = slice_backward_reference,
};

/* --- pad ------------------------------------------------------------------ */

/* i: for each dimension elements before and after; f: their value */
static tri_status pad_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                            trii_type *out, int *n_out)
{
    (void)n_in;
    *n_out = 1;
    trii_type_copy(out, in[0]);
    for (int d = 0; d < out->ndim; d++)
        out->shape[d] += attrs->i[2 * d] + attrs->i[2 * d + 1];
    return TRI_OK;
}

void trii_pad_slice(const trii_type *x, const int64_t *pads, int64_t *slice)
{
    for (int d = 0; d < x->ndim; d++) {
        slice[3 * d] = pads[2 * d];
        slice[3 * d + 1] = 1;
        slice[3 * d + 2] = x->shape[d];
    }
}

static tri_status pad_reference(const trii_kernel_args *args)
{
    const trii_type *type = args->out[0].type;
    size_t size = tri_dtype_size(type->dtype);
    int64_t n = trii_type_numel(type), slice[3 * TRI_MAX_DIMS];
    char element[8];

    trii_element_of(args->fattr[0], type->dtype, element);
    for (int64_t i = 0; i < n; i++)
        memcpy((char *)args->out[0].data + (size_t)i * size, element, size);
    trii_pad_slice(args->in[0].type, args->iattr, slice);
    copy_part(&args->in[0], type, slice, args->out[0].data, true);
    return TRI_OK;
}

const trii_graph_op trii_op_pad = {
    .name = "pad",
    .precision = TRII_PRECISION_ANY,
    .shape = pad_shape,
    .gradient = TRII_GRADIENT_pad,
    .reference = pad_reference,
};

/* --- tril ----------------------------------------------------------------- */

/* i: diagonal, 1 = the upper triangle */
static tri_status tril_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                             trii_type *out, int *n_out)
{
    (void)n_in;
    (void)attrs;
    *n_out = 1;
    trii_type_copy(out, in[0]);
    return in[0]->ndim >= 2 ? TRI_OK
                            : TRII_FAIL(TRI_ERR_INVALID_ARG,
                                        "x must have at least 2 dimensions, not %d", in[0]->ndim);
}

static tri_status tril_reference(const trii_kernel_args *args)
{
    const trii_type *type = args->out[0].type;
    size_t size = tri_dtype_size(type->dtype);
    int64_t rows = type->shape[type->ndim - 2], cols = type->shape[type->ndim - 1];
    int64_t n = trii_type_numel(type);

    for (int64_t i = 0; i < n; i++) {
        int64_t above = i % cols - i / cols % rows; /* of the main diagonal */
        bool stays = args->iattr[1] != 0 ? above >= args->iattr[0] : above <= args->iattr[0];
        char *y = (char *)args->out[0].data + (size_t)i * size;

        if (stays)
            memcpy(y, (const char *)args->in[0].data + (size_t)i * size, size);
        else
            memset(y, 0, size);
    }
    return TRI_OK;
}

const trii_graph_op trii_op_tril = {
    .name = "tril",
    .precision = TRII_PRECISION_ANY,
    .shape = tril_shape,
    .gradient = TRII_GRADIENT_tril,
    .reference = tril_reference,
};

/* --- public --------------------------------------------------------------- */

/* Number of elements and attributes of a slice along one dimension; other dimensions are whole. */
static void whole_slice(const trii_type *x, trii_attrs *attrs)
{
    attrs->n_i = attrs->n_f = 0;
    for (int d = 0; d < x->ndim; d++) {
        trii_attrs_add(attrs, 0);
        trii_attrs_add(attrs, 1);
        trii_attrs_add(attrs, x->shape[d]);
    }
}

tri_status trii_rec_narrow(trii_step *step, trii_vid x, int dim, int64_t start, int64_t n,
                           trii_vid *out)
{
    trii_attrs attrs;

    whole_slice(trii_type_of(step, x), &attrs);
    attrs.i[3 * dim] = start;
    attrs.i[3 * dim + 2] = n;
    return trii_record_values(step, &trii_op_slice, &x, 1, &attrs, out);
}

static tri_status own_part(trii_step *step, const trii_graph_op *op, trii_vid x, trii_attrs *attrs,
                           const trii_part_gradient *gradient, trii_vid *out)
{
    trii_attrs_add_f(attrs, (double)((uintptr_t)gradient >> 32));
    trii_attrs_add_f(attrs, (double)((uintptr_t)gradient & 0xffffffffu));
    return trii_record_values(step, op, &x, 1, attrs, out);
}

tri_status trii_rec_own_part(trii_step *step, trii_vid x, int dim, int64_t start, int64_t n,
                             const trii_part_gradient *gradient, trii_vid *out)
{
    trii_attrs attrs;

    whole_slice(trii_type_of(step, x), &attrs);
    attrs.i[3 * dim] = start;
    attrs.i[3 * dim + 2] = n;
    return own_part(step, &trii_op_dist_scatter_to, x, &attrs, gradient, out);
}

tri_status trii_rec_own_whole(trii_step *step, trii_vid x, const trii_part_gradient *gradient,
                              trii_vid *out)
{
    trii_attrs attrs;

    whole_slice(trii_type_of(step, x), &attrs);
    return own_part(step, &trii_op_dist_copy_to, x, &attrs, gradient, out);
}

const trii_part_gradient *trii_part_gradient_of(const trii_node *node)
{
    const double *f = node->attrs.f;

    if (node->op != &trii_op_dist_scatter_to && node->op != &trii_op_dist_copy_to)
        return NULL;
    return (const trii_part_gradient *)((uintptr_t)f[0] << 32 | (uintptr_t)f[1]);
}

tri_status trii_dim_operand(trii_step *step, tri_tensor *x, int dim, trii_vid *id, int *d)
{
    tri_status status = x != NULL ? trii_resolve(step, x, id)
                                  : TRII_FAIL(TRI_ERR_INVALID_ARG, "x is NULL" TRII_WHENCE_NULL);

    if (status == TRI_OK && trii_type_of(step, *id)->ndim == 0)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "x has no dimensions");
    return status == TRI_OK ? trii_rule_dim(dim, trii_type_of(step, *id)->ndim, d) : status;
}

static tri_tensor *finished(trii_step *step, const char *name, tri_tensor *x, tri_status status,
                            trii_vid out)
{
    return status == TRI_OK ? trii_handle_recorded(step, out)
                            : trii_handle_refused(step, name, &x, 1, status);
}

tri_tensor *tri_narrow(tri_tensor *x, int dim, int64_t start, int64_t length)
{
    trii_step *step = trii_step_current();
    trii_vid id = TRII_NO_VALUE, out = TRII_NO_VALUE;
    int d = 0;
    tri_status status = step != NULL ? trii_dim_operand(step, x, dim, &id, &d) : TRI_ERR_NO_MEMORY;

    if (status == TRI_OK) {
        int64_t size = trii_type_of(step, id)->shape[d];
        int64_t first = start < 0 && start >= -size ? start + size : start;

        if (first < 0 || first > size || length < 0 || length > size - first)
            status = TRII_FAIL(TRI_ERR_INVALID_ARG,
                               "start %" PRId64 ", length %" PRId64
                               " of dimension %d, which has %" PRId64,
                               start, length, d, size);
        else
            status = trii_rec_narrow(step, id, d, first, length, &out);
    }
    return finished(step, "narrow", x, status, out);
}

/* As in x[start:end:step]: clamps the ends to the tensor. */
static int64_t clamped(int64_t at, int64_t size)
{
    if (at < 0)
        at = at < -size ? 0 : at + size;
    return at > size ? size : at;
}

tri_status trii_slice_attrs(const trii_type *x, int dim, int64_t start, int64_t end, int64_t stride,
                            trii_attrs *attrs)
{
    int64_t size = x->shape[dim], first = clamped(start, size), last = clamped(end, size);

    whole_slice(x, attrs);
    if (stride < 1)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "step %" PRId64 ": must be at least 1", stride);
    attrs->i[3 * dim] = first;
    attrs->i[3 * dim + 2] = last > first ? (last - first - 1) / stride + 1 : 0;
    /* with one element any step is allowed */
    attrs->i[3 * dim + 1] = attrs->i[3 * dim + 2] > 1 ? stride : 1;
    return TRI_OK;
}

tri_tensor *tri_slice(tri_tensor *x, int dim, int64_t start, int64_t end, int64_t stride)
{
    trii_step *step = trii_step_current();
    trii_vid id = TRII_NO_VALUE, out = TRII_NO_VALUE;
    trii_attrs attrs;
    int d = 0;
    tri_status status = step != NULL ? trii_dim_operand(step, x, dim, &id, &d) : TRI_ERR_NO_MEMORY;

    if (status == TRI_OK)
        status = trii_slice_attrs(trii_type_of(step, id), d, start, end, stride, &attrs);
    if (status == TRI_OK)
        status = trii_record_values(step, &trii_op_slice, &id, 1, &attrs, &out);
    return finished(step, "slice", x, status, out);
}

/* One element along the dimension, which the result lacks. */
static tri_status rec_select(trii_step *step, trii_vid x, int dim, int64_t index, trii_vid *out)
{
    trii_type type = *trii_type_of(step, x);
    tri_status status = trii_rec_narrow(step, x, dim, index, 1, out);

    for (int d = dim; d + 1 < type.ndim; d++)
        type.shape[d] = type.shape[d + 1];
    return status == TRI_OK ? trii_rec_reshape(step, *out, type.shape, type.ndim - 1, out) : status;
}

tri_tensor *tri_select(tri_tensor *x, int dim, int64_t index)
{
    trii_step *step = trii_step_current();
    trii_vid id = TRII_NO_VALUE, out = TRII_NO_VALUE;
    int d = 0;
    tri_status status = step != NULL ? trii_dim_operand(step, x, dim, &id, &d) : TRI_ERR_NO_MEMORY;

    if (status == TRI_OK) {
        int64_t size = trii_type_of(step, id)->shape[d];

        if (index < -size || index >= size)
            status = TRII_FAIL(TRI_ERR_INVALID_ARG,
                               "index %" PRId64 " is out of range (dimension %d has %" PRId64 ")",
                               index, d, size);
        else
            status = rec_select(step, id, d, index < 0 ? index + size : index, &out);
    }
    return finished(step, "select", x, status, out);
}

void tri_unbind(tri_tensor *x, int dim, tri_tensor **out, int n)
{
    trii_step *step = trii_step_current();
    trii_vid id = TRII_NO_VALUE, part = TRII_NO_VALUE;
    int d = 0;
    tri_status status = step != NULL ? trii_dim_operand(step, x, dim, &id, &d) : TRI_ERR_NO_MEMORY;
    tri_tensor *failed;

    if (out == NULL || n <= 0) {
        if (step != NULL)
            trii_step_fail(step, TRII_FAIL(TRI_ERR_INVALID_ARG, "tri_unbind: no room for results"));
        return;
    }
    if (status == TRI_OK && trii_type_of(step, id)->shape[d] != n)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "n is %d, but dimension %d has %" PRId64, n, d,
                           trii_type_of(step, id)->shape[d]);
    for (int i = 0; i < n && status == TRI_OK; i++) {
        status = rec_select(step, id, d, i, &part);
        if (status == TRI_OK)
            out[i] = trii_handle_recorded(step, part);
    }
    if (status == TRI_OK)
        return;
    failed = trii_handle_refused(step, "unbind", &x, 1, status);
    for (int i = 0; i < n; i++)
        out[i] = failed;
}

/* torch's order: pairs from the last dimension on. */
tri_tensor *tri_pad(tri_tensor *x, const int64_t *pad, int n, double value)
{
    trii_step *step = trii_step_current();
    trii_vid id = TRII_NO_VALUE;
    trii_attrs attrs, cut;
    bool cuts = false;
    const trii_type *type;
    tri_status status = step == NULL ? TRI_ERR_NO_MEMORY
                        : x != NULL  ? trii_resolve(step, x, &id)
                                     : TRII_FAIL(TRI_ERR_INVALID_ARG, "x is NULL" TRII_WHENCE_NULL);

    if (status == TRI_OK && (n < 0 || n % 2 != 0 || n / 2 > trii_type_of(step, id)->ndim))
        status = TRII_FAIL(TRI_ERR_INVALID_ARG,
                           "%d numbers of padding: two for each of the last dimensions, of which "
                           "there are %d",
                           n, trii_type_of(step, id)->ndim);
    if (status == TRI_OK && n > 0 && pad == NULL)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "pad is NULL");
    if (status == TRI_OK)
        status = trii_rule_number(value, trii_type_of(step, id)->dtype);
    if (status != TRI_OK)
        return trii_handle_refused(step, "pad", &x, 1, status);
    type = trii_type_of(step, id);
    attrs.n_i = 2 * type->ndim;
    attrs.n_f = 1;
    attrs.f[0] = value;
    whole_slice(type, &cut);
    for (int d = 0; d < type->ndim && status == TRI_OK; d++) {
        int k = 2 * (type->ndim - 1 - d);
        int64_t ends[2] = {k < n ? pad[k] : 0, k < n ? pad[k + 1] : 0}, size = type->shape[d];

        for (int e = 0; e < 2 && status == TRI_OK; e++) {
            if (ends[e] > TRII_TYPE_ELEMENTS || ends[e] < -size)
                status = TRII_FAIL(TRI_ERR_INVALID_ARG,
                                   "padding of %" PRId64 " for dimension %d, which has %" PRId64,
                                   ends[e], d, size);
            attrs.i[2 * d + e] = ends[e] > 0 ? ends[e] : 0;
            cuts = cuts || ends[e] < 0;
        }
        if (status != TRI_OK)
            break; /* cannot be negated */
        cut.i[3 * d] = ends[0] < 0 ? -ends[0] : 0;
        cut.i[3 * d + 2] = size - cut.i[3 * d] + (ends[1] < 0 ? ends[1] : 0);
        if (status == TRI_OK && cut.i[3 * d + 2] < 0)
            status = TRII_FAIL(TRI_ERR_INVALID_ARG, "nothing would be left of dimension %d", d);
    }
    if (status == TRI_OK && cuts)
        status = trii_record_values(step, &trii_op_slice, &id, 1, &cut, &id);
    if (status == TRI_OK)
        status = trii_record_values(step, &trii_op_pad, &id, 1, &attrs, &id);
    return finished(step, "pad", x, status, id);
}

static tri_tensor *triangle(const char *name, tri_tensor *x, int64_t diagonal, bool upper)
{
    trii_attrs attrs;

    attrs.n_i = 2;
    attrs.n_f = 0;
    attrs.i[0] = diagonal;
    attrs.i[1] = upper;
    return trii_record_as(name, &trii_op_tril, &x, 1, &attrs);
}

tri_tensor *tri_tril(tri_tensor *x, int64_t diagonal)
{
    return triangle("tril", x, diagonal, false);
}

tri_tensor *tri_triu(tri_tensor *x, int64_t diagonal)
{
    return triangle("triu", x, diagonal, true);
}
