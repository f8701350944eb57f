/*
 * shaping.c - operations that move or repeat elements and never change them; any dtype.
 */
#include <inttypes.h>
#include <string.h>

#include "graph/ops/rules.h"

static void copy_sizes(const trii_attrs *attrs, tri_dtype dtype, trii_type *out)
{
    out->dtype = dtype;
    out->ndim = attrs->n_i;
    for (int d = 0; d < attrs->n_i; d++)
        out->shape[d] = attrs->i[d];
}

/* --- reshape ---------------------------------------------------------------------------------- */

/* Resolves one -1 here, so that equal results have equal attributes only if written alike; that
 * costs at most a second plan. */
static tri_status reshape_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                                trii_type *out, int *n_out)
{
    int64_t have = trii_type_numel(in[0]), known = 1;
    int open = -1;

    (void)n_in;
    copy_sizes(attrs, in[0]->dtype, out);
    for (int d = 0; d < out->ndim; d++) {
        if (out->shape[d] == -1 && open < 0) {
            open = d;
            continue;
        }
        if (out->shape[d] < 0)
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "size %" PRId64 " in dimension %d", out->shape[d],
                             d);
        if (__builtin_mul_overflow(known, out->shape[d], &known))
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "the sizes overflow");
    }
    if (open >= 0 && (known == 0 || have % known != 0))
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%" PRId64 " elements do not divide into the given sizes", have);
    if (open >= 0)
        out->shape[open] = have / known;
    else if (known != have)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%" PRId64 " elements do not fit %" PRId64, have,
                         known);
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

static tri_status reshape_grad(trii_step *step, const trii_node *node, const trii_vid *g,
                               const bool *needs, trii_vid *grad_in)
{
    const trii_type type = *trii_type_of(step, trii_node_in(step, node, 0));

    (void)needs;
    return trii_rec_reshape(step, g[0], type.shape, type.ndim, &grad_in[0]);
}

const trii_op trii_op_reshape = {
    .name = "reshape",
    .op_class = TRII_CLASS_VIEW,
    .shape = reshape_shape,
    .grad = reshape_grad,
    .reference = bytes_reference,
};

/* --- expand ----------------------------------------------------------------------------------- */

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

static tri_status expand_grad(trii_step *step, const trii_node *node, const trii_vid *g,
                              const bool *needs, trii_vid *grad_in)
{
    const trii_type type = *trii_type_of(step, trii_node_in(step, node, 0));

    (void)needs;
    return trii_rec_sum_to(step, g[0], &type, &grad_in[0]);
}

const trii_op trii_op_expand = {
    .name = "expand",
    .op_class = TRII_CLASS_ELEMENTWISE,
    .shape = expand_shape,
    .grad = expand_grad,
    .reference = expand_reference,
};

/* --- public ----------------------------------------------------------------------------------- */

static tri_tensor *shaped(const trii_op *op, tri_tensor *x, const int64_t *shape, int ndim)
{
    trii_attrs attrs;

    if (ndim < 0 || ndim > TRI_MAX_DIMS || (ndim > 0 && shape == NULL)) {
        trii_step *step = trii_step_current();
        tri_status status = TRII_FAIL(TRI_ERR_INVALID_ARG, "tri_%s: %d dimensions", op->name, ndim);

        return step != NULL ? trii_handle_failed(step, status) : trii_tensor_failed(status);
    }
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
