/*
 * reductions.c - sums and their relatives over some dimensions. Kernels add in f64, in plain order.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "train/graph/ops/reduce_rules.h"

/* i: mask of the reduced dimensions, keepdim. */
void trii_reduced_type(const trii_type *in, int64_t mask, bool keepdim, trii_type *out)
{
    out->dtype = in->dtype;
    out->ndim = 0;
    for (int d = 0; d < in->ndim; d++) {
        if ((mask >> d & 1) == 0)
            out->shape[out->ndim++] = in->shape[d];
        else if (keepdim)
            out->shape[out->ndim++] = 1;
    }
}

tri_status trii_reduce_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                             trii_type *out, int *n_out)
{
    (void)n_in;
    *n_out = 1;
    trii_reduced_type(in[0], attrs->i[0], attrs->i[1] != 0, out);
    return trii_rule_float(in[0], "x");
}

/* Elements that go into one result. */
int64_t trii_reduced_count(const trii_type *in, int64_t mask)
{
    int64_t n = 1;

    for (int d = 0; d < in->ndim; d++) {
        if (mask >> d & 1)
            n *= in->shape[d];
    }
    return n;
}

/* y[..] += x[..] over the dimensions of the mask; y has in's kept dimensions. */
static void add_up(const trii_type *in, int64_t mask, const double *x, double *y)
{
    int64_t n = trii_type_numel(in), at[TRI_MAX_DIMS] = {0}, stride[TRI_MAX_DIMS], step = 1, row;
    int last = in->ndim - 1;

    assert(last < TRI_MAX_DIMS);
    for (int d = last; d >= 0; d--) {
        bool reduced = (mask >> d & 1) != 0;

        stride[d] = reduced ? 0 : step;
        step *= reduced ? 1 : in->shape[d];
    }
    row = last >= 0 ? in->shape[last] : 1;
    for (int64_t i = 0; i < n; i += row) {
        double *to = y;

        for (int d = 0; d < last; d++)
            to += at[d] * stride[d];
        if (last >= 0 && stride[last] != 0) {
            for (int64_t k = 0; k < row; k++)
                to[k] += x[i + k];
        } else {
            double sum = *to;

            for (int64_t k = 0; k < row; k++)
                sum += x[i + k];
            *to = sum;
        }
        for (int d = last - 1; d >= 0 && ++at[d] == in->shape[d]; d--)
            at[d] = 0;
    }
}

static void zero(const trii_array *array)
{
    int64_t n = trii_type_numel(array->type);
    double *y = array->data;

    for (int64_t i = 0; i < n; i++)
        y[i] = 0;
}

static tri_status sum_kernel(const trii_kernel_args *args)
{
    zero(&args->out[0]);
    add_up(args->in[0].type, args->iattr[0], args->in[0].data, args->out[0].data);
    return TRI_OK;
}

static tri_status mean_kernel(const trii_kernel_args *args)
{
    int64_t n = trii_type_numel(args->out[0].type);
    double count = (double)trii_reduced_count(args->in[0].type, args->iattr[0]);
    double *y = args->out[0].data;
    tri_status status = sum_kernel(args);

    for (int64_t i = 0; i < n; i++)
        y[i] /= count; /* 0/0 is NaN, as in PyTorch */
    return status;
}

static tri_status sum_reference(const trii_kernel_args *args)
{
    return trii_in_double(args, sum_kernel);
}

static tri_status mean_reference(const trii_kernel_args *args)
{
    return trii_in_double(args, mean_kernel);
}

const trii_graph_op trii_op_sum = {
    .name = "sum",
    .op_class = TRII_CLASS_REDUCTION,
    .shape = trii_reduce_shape,
    .gradient = TRII_GRADIENT_sum,
    .reference = sum_reference,
};
const trii_graph_op trii_op_mean = {
    .name = "mean",
    .op_class = TRII_CLASS_REDUCTION,
    .shape = trii_reduce_shape,
    .gradient = TRII_GRADIENT_mean,
    .reference = mean_reference,
};

/* --- sum_to --------------------------------------------------------------- */

static tri_status sum_to_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                               trii_type *out, int *n_out)
{
    (void)n_in;
    *n_out = 1;
    out->dtype = in[0]->dtype;
    out->ndim = attrs->n_i;
    for (int d = 0; d < attrs->n_i; d++)
        out->shape[d] = attrs->i[d];
    for (int d = 0; d < out->ndim; d++) {
        int e = d + in[0]->ndim - out->ndim;

        if (e < 0 || (out->shape[d] != 1 && out->shape[d] != in[0]->shape[e]))
            return TRII_FAIL(TRI_ERR_INTERNAL,
                             "sum_to: dimension %d cannot be summed to its size in the result", d);
    }
    return trii_rule_float(in[0], "x");
}

static tri_status sum_to_kernel(const trii_kernel_args *args)
{
    const trii_type *in = args->in[0].type, *out = args->out[0].type;
    int64_t mask = 0;

    for (int d = 0; d < in->ndim; d++) {
        int e = d - (in->ndim - out->ndim);

        if (e < 0 || out->shape[e] == 1)
            mask |= INT64_C(1) << d;
    }
    zero(&args->out[0]);
    add_up(in, mask, args->in[0].data, args->out[0].data);
    return TRI_OK;
}

static tri_status sum_to_reference(const trii_kernel_args *args)
{
    return trii_in_double(args, sum_to_kernel);
}

const trii_graph_op trii_op_sum_to = {
    .name = "sum_to",
    .op_class = TRII_CLASS_REDUCTION,
    .shape = sum_to_shape,
    .gradient = TRII_GRADIENT_sum_to,
    .reference = sum_to_reference,
};

tri_status trii_rec_sum_to(trii_step *step, trii_vid a, const trii_type *like, trii_vid *out)
{
    if (trii_type_same_shape(&step->values[a].type, like)) {
        *out = a;
        return TRI_OK;
    }
    return trii_rec_shaped(step, &trii_op_sum_to, a, like->shape, like->ndim, out);
}

/* --- amax ----------------------------------------------------------------- */

/* Strides into the reduced tensor (0 for reduced dimensions) for a walk over `in`. */
void trii_reduced_strides(const trii_type *in, int64_t mask, int64_t *stride)
{
    int64_t step = 1;

    for (int d = in->ndim - 1; d >= 0; d--) {
        bool reduced = (mask >> d & 1) != 0;

        stride[d] = reduced ? 0 : step;
        step *= reduced ? 1 : in->shape[d];
    }
}

/* The next index of a walk in plain order; returns the offset for it. */
static int64_t advance(const trii_type *type, int64_t *at, const int64_t *stride)
{
    int64_t offset = 0;

    for (int d = type->ndim - 1; d >= 0 && ++at[d] == type->shape[d]; d--)
        at[d] = 0;
    for (int d = 0; d < type->ndim; d++)
        offset += at[d] * stride[d];
    return offset;
}

static tri_status amax_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                             trii_type *out, int *n_out)
{
    if (trii_reduced_count(in[0], attrs->i[0]) == 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "a dimension of size 0 has no largest element");
    return trii_reduce_shape(in, n_in, attrs, out, n_out);
}

static tri_status amax_kernel(const trii_kernel_args *args)
{
    const trii_type *in = args->in[0].type;
    int64_t n = trii_type_numel(in), n_out = trii_type_numel(args->out[0].type);
    int64_t at[TRI_MAX_DIMS] = {0}, stride[TRI_MAX_DIMS], offset = 0;
    const double *x = args->in[0].data;
    double *y = args->out[0].data;

    trii_reduced_strides(in, args->iattr[0], stride);
    for (int64_t i = 0; i < n_out; i++)
        y[i] = -(double)INFINITY;
    for (int64_t i = 0; i < n; i++) {
        if (!(x[i] <= y[offset])) /* NaN wins, and stays: nothing is <= NaN, but see below */
            y[offset] = y[offset] != y[offset] ? y[offset] : x[i];
        offset = advance(in, at, stride);
    }
    return TRI_OK;
}

static tri_status amax_reference(const trii_kernel_args *args)
{
    return trii_in_double(args, amax_kernel);
}

const trii_graph_op trii_op_amax = {
    .name = "amax",
    .op_class = TRII_CLASS_REDUCTION,
    .shape = amax_shape,
    .gradient = TRII_GRADIENT_amax,
    .reference = amax_reference,
};

static tri_status amax_backward_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                                      trii_type *out, int *n_out)
{
    (void)n_in;
    (void)attrs;
    *n_out = 1;
    trii_type_copy(out, in[1]);
    return trii_rule_float(in[1], "x");
}

/* in g x y: equal largest elements share the gradient. If NaN is the largest, nothing equals it,
 * and 0 / 0 is what all elements get, as in PyTorch. */
static tri_status amax_backward_kernel(const trii_kernel_args *args)
{
    const trii_type *in = args->in[1].type;
    int64_t n = trii_type_numel(in), n_y = trii_type_numel(args->in[2].type);
    int64_t at[TRI_MAX_DIMS] = {0}, stride[TRI_MAX_DIMS], offset = 0;
    const double *g = args->in[0].data, *x = args->in[1].data, *y = args->in[2].data;
    double *dx = args->out[0].data;
    double *count = trii_work_take(args, (size_t)n_y, sizeof(*count));

    if (count == NULL)
        return TRI_ERR_NO_MEMORY;
    trii_reduced_strides(in, args->iattr[0], stride);
    for (int64_t i = 0; i < n; i++) {
        count[offset] += x[i] == y[offset];
        offset = advance(in, at, stride);
    }
    memset(at, 0, sizeof(at));
    offset = 0;
    for (int64_t i = 0; i < n; i++) {
        dx[i] = (x[i] == y[offset]) * (g[offset] / count[offset]);
        offset = advance(in, at, stride);
    }
    trii_work_return(args, count);
    return TRI_OK;
}

static tri_status amax_backward_reference(const trii_kernel_args *args)
{
    return trii_in_double(args, amax_backward_kernel);
}

const trii_graph_op trii_op_amax_backward = {
    .name = "amax_backward",
    .shape = amax_backward_shape,
    .gradient = TRII_GRADIENT_amax_backward,
    .reference = amax_backward_reference,
};

/* --- argmax --------------------------------------------------------------- */

/* i: dim, keepdim */
static tri_status argmax_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                               trii_type *out, int *n_out)
{
    tri_status status = trii_rule_float(in[0], "x");

    (void)n_in;
    *n_out = 1;
    if (status != TRI_OK)
        return status;
    if (in[0]->ndim == 0 || in[0]->shape[attrs->i[0]] == 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "no element along dimension %d", (int)attrs->i[0]);
    trii_reduced_type(in[0], INT64_C(1) << attrs->i[0], attrs->i[1] != 0, out);
    out->dtype = TRI_DTYPE_I64;
    return TRI_OK;
}

static tri_status argmax_kernel(const trii_kernel_args *args)
{
    const trii_type *in = args->in[0].type;
    int64_t dim = args->iattr[0], n = in->shape[dim], inner = 1, outer;
    const double *x = args->in[0].data;
    int64_t *y = args->out[0].data;

    for (int d = (int)dim + 1; d < in->ndim; d++)
        inner *= in->shape[d];
    outer = trii_type_numel(in) / n / (inner > 0 ? inner : 1);
    for (int64_t o = 0; o < outer; o++) {
        for (int64_t i = 0; i < inner; i++) {
            const double *row = x + o * n * inner + i;
            int64_t best = 0;

            for (int64_t k = 1; k < n; k++) {
                double largest = row[best * inner];

                if (largest == largest && !(row[k * inner] <= largest))
                    best = k;
            }
            y[o * inner + i] = best;
        }
    }
    return TRI_OK;
}

static tri_status argmax_reference(const trii_kernel_args *args)
{
    return trii_in_double(args, argmax_kernel);
}

const trii_graph_op trii_op_argmax = {
    .name = "argmax",
    .op_class = TRII_CLASS_REDUCTION,
    .shape = argmax_shape,
    .reference = argmax_reference,
};

/* --- public --------------------------------------------------------------- */

tri_status trii_reduce_mask(const int64_t *dims, int n_dims, int ndim, int64_t *mask_out)
{
    tri_status status = TRI_OK;

    *mask_out = 0;
    if (dims != NULL && (n_dims < 0 || n_dims > (ndim > 0 ? ndim : 1)))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%d dimensions are named, the tensor has %d", n_dims,
                         ndim);
    for (int i = 0; dims != NULL && i < n_dims && status == TRI_OK; i++) {
        int dim = 0;

        status = trii_rule_dim(dims[i], ndim, &dim);
        if (status == TRI_OK && (*mask_out >> dim & 1))
            status = TRII_FAIL(TRI_ERR_INVALID_ARG, "dimension %d is named twice", dim);
        *mask_out |= INT64_C(1) << dim;
    }
    if (dims == NULL || n_dims == 0 || ndim == 0)
        *mask_out = (INT64_C(1) << ndim) - 1;
    return status;
}

tri_tensor *trii_record_reduced(const trii_graph_op *op, tri_tensor *x, const int64_t *dims,
                                int n_dims, bool keepdim)
{
    int ndim = x != NULL ? tri_tensor_ndim(x) : -1;
    trii_attrs attrs;
    tri_status status;

    attrs.n_i = 2;
    attrs.n_f = 0;
    attrs.i[0] = 0;
    attrs.i[1] = keepdim;
    if (ndim < 0)
        return trii_record(op, &x, 1, &attrs);
    status = trii_reduce_mask(dims, n_dims, ndim, &attrs.i[0]);
    if (status != TRI_OK)
        return trii_handle_refused(trii_step_current(), op->name, &x, 1, status);
    return trii_record(op, &x, 1, &attrs);
}

tri_tensor *tri_sum(tri_tensor *x, const int64_t *dims, int n_dims, bool keepdim)
{
    return trii_record_reduced(&trii_op_sum, x, dims, n_dims, keepdim);
}

tri_tensor *tri_mean(tri_tensor *x, const int64_t *dims, int n_dims, bool keepdim)
{
    return trii_record_reduced(&trii_op_mean, x, dims, n_dims, keepdim);
}

tri_tensor *tri_amax(tri_tensor *x, const int64_t *dims, int n_dims, bool keepdim)
{
    return trii_record_reduced(&trii_op_amax, x, dims, n_dims, keepdim);
}

static tri_status rec_argmax(trii_step *step, tri_tensor *x, int64_t dim, bool keepdim,
                             bool smallest, trii_vid *out)
{
    trii_vid id = TRII_NO_VALUE;
    trii_attrs attrs;
    int d = 0;
    tri_status status = x != NULL
                            ? trii_resolve(step, x, &id)
                            : TRII_FAIL(TRI_ERR_INVALID_ARG, "argument 0 is NULL" TRII_WHENCE_NULL);
    bool number = status == TRI_OK && trii_type_of(step, id)->ndim == 0;

    if (status == TRI_OK)
        status = trii_rule_dim(dim, trii_type_of(step, id)->ndim, &d);
    if (status == TRI_OK && number) /* a row of one element */
        status = trii_rec_reshape(step, id, (int64_t[]){1}, 1, &id);
    if (status == TRI_OK && smallest)
        status = trii_rec1(step, &trii_op_neg, id, &id);
    if (status != TRI_OK)
        return status;
    attrs.n_i = 2;
    attrs.n_f = 0;
    attrs.i[0] = d;
    attrs.i[1] = keepdim && !number;
    return trii_record_values(step, &trii_op_argmax, &id, 1, &attrs, out);
}

static tri_tensor *index_of(const char *name, tri_tensor *x, int dim, bool keepdim, bool smallest)
{
    trii_step *step = trii_step_current();
    trii_vid out = TRII_NO_VALUE;
    tri_status status =
        step != NULL ? rec_argmax(step, x, dim, keepdim, smallest, &out) : TRI_ERR_NO_MEMORY;

    return status == TRI_OK ? trii_handle_recorded(step, out)
                            : trii_handle_refused(step, name, &x, 1, status);
}

tri_tensor *tri_argmax(tri_tensor *x, int dim, bool keepdim)
{
    return index_of("argmax", x, dim, keepdim, false);
}

tri_tensor *tri_argmin(tri_tensor *x, int dim, bool keepdim)
{
    return index_of("argmin", x, dim, keepdim, true);
}
