/*
 * extents.c - reductions other than sums: products, truth values, logsumexp; the largest and
 * smallest with their indices; running sums.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "train/graph/ops/reduce_rules.h"
#include "train/graph/ops/walks.h"

/* Walks x in plain order with the offset of each element's result. */
typedef struct into {
    int64_t at[TRI_MAX_DIMS], stride[TRI_MAX_DIMS], offset;
} into;

static into into_begin(const trii_type *in, int64_t mask)
{
    into w = {.offset = 0};

    trii_reduced_strides(in, mask, w.stride);
    return w;
}

/* --- prod ----------------------------------------------------------------- */

static tri_status prod_kernel(const trii_kernel_args *args)
{
    const trii_type *in = args->in[0].type;
    int64_t n = trii_type_numel(in), n_out = trii_type_numel(args->out[0].type);
    const double *x = args->in[0].data;
    double *y = args->out[0].data;
    into w = into_begin(in, args->iattr[0]);

    for (int64_t i = 0; i < n_out; i++)
        y[i] = 1;
    for (int64_t i = 0; i < n; i++) {
        y[w.offset] *= x[i];
        w.offset = trii_walk_next(in, w.at, w.stride);
    }
    return TRI_OK;
}

static tri_status prod_reference(const trii_kernel_args *args)
{
    return trii_in_double(args, prod_kernel);
}

const trii_graph_op trii_op_prod = {
    .name = "prod",
    .op_class = TRII_CLASS_REDUCTION,
    .shape = trii_reduce_shape,
    .gradient = TRII_GRADIENT_prod,
    .reference = prod_reference,
};

static tri_status like_second(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                              trii_type *out, int *n_out)
{
    (void)n_in;
    (void)attrs;
    *n_out = 1;
    trii_type_copy(out, in[1]);
    return trii_rule_float(in[1], "x");
}

/* in g x. The product of the others, which is not y / x where something is zero, infinite or NaN:
 * of those before it times of those after it. */
static tri_status prod_backward_kernel(const trii_kernel_args *args)
{
    const trii_type *in = args->in[1].type;
    int64_t n = trii_type_numel(in), n_y = trii_type_numel(args->in[0].type);
    const double *g = args->in[0].data, *x = args->in[1].data;
    double *dx = args->out[0].data;
    double *product = trii_work_take(args, (size_t)n_y + 1, sizeof(*product));
    into w = into_begin(in, args->iattr[0]);

    if (product == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int64_t i = 0; i < n_y; i++)
        product[i] = 1;
    for (int64_t i = 0; i < n; i++) {
        dx[i] = product[w.offset];
        product[w.offset] *= x[i];
        w.offset = trii_walk_next(in, w.at, w.stride);
    }
    for (int64_t i = 0; i < n_y; i++)
        product[i] = 1;
    w = into_begin(in, args->iattr[0]);
    for (int64_t i = n - 1; i >= 0; i--) { /* the walk's mirror image */
        int64_t y = n_y - 1 - w.offset;

        dx[i] = g[y] * (dx[i] * product[y]);
        product[y] *= x[i];
        w.offset = trii_walk_next(in, w.at, w.stride);
    }
    trii_work_return(args, product);
    return TRI_OK;
}

static tri_status prod_backward_reference(const trii_kernel_args *args)
{
    return trii_in_double(args, prod_backward_kernel);
}

const trii_graph_op trii_op_prod_backward = {
    .name = "prod_backward",
    .shape = like_second,
    .reference = prod_backward_reference,
};

/* --- any, all ------------------------------------------------------------- */

static tri_status truth_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                              trii_type *out, int *n_out)
{
    (void)n_in;
    *n_out = 1;
    trii_reduced_type(in[0], attrs->i[0], attrs->i[1] != 0, out);
    out->dtype = TRI_DTYPE_BOOL;
    if (in[0]->dtype == TRI_DTYPE_BOOL)
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_INVALID_ARG, "x must be bool, not %s (tri_cast converts)",
                     tri_dtype_name(in[0]->dtype));
}

/* One false decides all, one true any. */
static tri_status truth_kernel(const trii_kernel_args *args, uint8_t decisive)
{
    const trii_type *in = args->in[0].type;
    int64_t n = trii_type_numel(in), n_out = trii_type_numel(args->out[0].type);
    const uint8_t *x = args->in[0].data;
    uint8_t *y = args->out[0].data;
    into w = into_begin(in, args->iattr[0]);

    for (int64_t i = 0; i < n_out; i++)
        y[i] = !decisive;
    for (int64_t i = 0; i < n; i++) {
        if ((x[i] != 0) == decisive)
            y[w.offset] = decisive;
        w.offset = trii_walk_next(in, w.at, w.stride);
    }
    return TRI_OK;
}

static tri_status any_reference(const trii_kernel_args *args)
{
    return truth_kernel(args, 1);
}

static tri_status all_reference(const trii_kernel_args *args)
{
    return truth_kernel(args, 0);
}

const trii_graph_op trii_op_any = {
    .name = "any",
    .op_class = TRII_CLASS_REDUCTION,
    .shape = truth_shape,
    .reference = any_reference,
};
const trii_graph_op trii_op_all = {
    .name = "all",
    .op_class = TRII_CLASS_REDUCTION,
    .shape = truth_shape,
    .reference = all_reference,
};

/* --- logsumexp ------------------------------------------------------------ */

static tri_status logsumexp_kernel(const trii_kernel_args *args)
{
    const trii_type *in = args->in[0].type;
    int64_t n = trii_type_numel(in), n_out = trii_type_numel(args->out[0].type);
    const double *x = args->in[0].data;
    double *y = args->out[0].data, *largest = trii_work_take(args, (size_t)n_out + 1, sizeof(*y));
    into w = into_begin(in, args->iattr[0]);

    if (largest == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int64_t i = 0; i < n_out; i++) {
        largest[i] = -(double)INFINITY;
        y[i] = 0;
    }
    for (int64_t i = 0; i < n; i++) {
        largest[w.offset] = fmax(largest[w.offset], x[i]);
        w.offset = trii_walk_next(in, w.at, w.stride);
    }
    w = into_begin(in, args->iattr[0]);
    for (int64_t i = 0; i < n; i++) {
        double shift = isfinite(largest[w.offset]) ? largest[w.offset] : 0;

        y[w.offset] += exp(x[i] - shift);
        w.offset = trii_walk_next(in, w.at, w.stride);
    }
    for (int64_t i = 0; i < n_out; i++)
        y[i] = log(y[i]) + (isfinite(largest[i]) ? largest[i] : 0);
    trii_work_return(args, largest);
    return TRI_OK;
}

static tri_status logsumexp_reference(const trii_kernel_args *args)
{
    return trii_in_double(args, logsumexp_kernel);
}

const trii_graph_op trii_op_logsumexp = {
    .name = "logsumexp",
    .op_class = TRII_CLASS_REDUCTION,
    .shape = trii_reduce_shape,
    .gradient = TRII_GRADIENT_logsumexp,
    .reference = logsumexp_reference,
};

/* --- cumsum --------------------------------------------------------------- */

/* i: dim, 1 = from the end */
static tri_status cumsum_kernel(const trii_kernel_args *args)
{
    trii_around r = trii_around_of(args->in[0].type, args->iattr[0]);
    bool back = args->iattr[1] != 0;

    for (int64_t o = 0; o < r.outer * r.inner; o++) {
        int64_t start = o / r.inner * r.n * r.inner + o % r.inner;
        const double *x = (const double *)args->in[0].data + start;
        double *y = (double *)args->out[0].data + start, sum = 0;

        for (int64_t k = 0; k < r.n; k++) {
            int64_t at = (back ? r.n - 1 - k : k) * r.inner;

            sum += x[at];
            y[at] = sum;
        }
    }
    return TRI_OK;
}

static tri_status cumsum_reference(const trii_kernel_args *args)
{
    return trii_in_double(args, cumsum_kernel);
}

const trii_graph_op trii_op_cumsum = {
    .name = "cumsum",
    .shape = trii_shape_unary_float,
    .gradient = TRII_GRADIENT_cumsum,
    .reference = cumsum_reference,
};

/* --- topk (and max, min along a dimension) -------------------------------- */

/* i: dim, k, trii_topk_order; out values, indices (i64) */
static tri_status topk_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                             trii_type *out, int *n_out)
{
    int64_t size = in[0]->ndim > 0 ? in[0]->shape[attrs->i[0]] : 1;
    tri_status status = trii_rule_float(in[0], "x");

    (void)n_in;
    *n_out = 2;
    if (status == TRI_OK && (attrs->i[1] < 0 || attrs->i[1] > size))
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "%" PRId64 " of dimension %d, which has %" PRId64,
                           attrs->i[1], (int)attrs->i[0], size);
    for (int o = 0; o < 2; o++) {
        trii_type_copy(&out[o], in[0]);
        if (in[0]->ndim > 0)
            out[o].shape[attrs->i[0]] = attrs->i[1];
    }
    out[1].dtype = TRI_DTYPE_I64;
    return status;
}

/* Whether x comes before y; of equals the first stays. */
static bool is_before(double x, double y, int64_t order)
{
    if (order == TRII_TOPK_SMALLEST)
        return y != y ? x == x : x < y;
    if (x != x || y != y)
        return y == y;
    return order == TRII_TOPK_LARGEST ? x > y : x < y;
}

static tri_status topk_kernel(const trii_kernel_args *args)
{
    trii_around r = trii_around_of(args->in[0].type, args->iattr[0]);
    int64_t k = args->iattr[1], order = args->iattr[2];

    for (int64_t o = 0; o < r.outer * r.inner; o++) {
        int64_t before = o / r.inner, inside = o % r.inner, found = 0;
        const double *x = (const double *)args->in[0].data + before * r.n * r.inner + inside;
        double *y = (double *)args->out[0].data + before * k * r.inner + inside;
        int64_t *index = (int64_t *)args->out[1].data + before * k * r.inner + inside;

        for (int64_t i = 0; i < r.n && k > 0; i++) {
            double value = x[i * r.inner];
            int64_t at = found;

            if (found == k && !is_before(value, y[(k - 1) * r.inner], order))
                continue;
            found += found < k;
            at = at < k ? at : k - 1;
            for (; at > 0 && is_before(value, y[(at - 1) * r.inner], order); at--) {
                y[at * r.inner] = y[(at - 1) * r.inner];
                index[at * r.inner] = index[(at - 1) * r.inner];
            }
            y[at * r.inner] = value;
            index[at * r.inner] = i;
        }
    }
    return TRI_OK;
}

static tri_status topk_reference(const trii_kernel_args *args)
{
    return trii_in_double(args, topk_kernel);
}

const trii_graph_op trii_op_topk = {
    .name = "topk",
    .shape = topk_shape,
    .gradient = TRII_GRADIENT_topk,
    .reference = topk_reference,
};

/* --- public --------------------------------------------------------------- */

tri_tensor *tri_prod(tri_tensor *x, const int64_t *dims, int n_dims, bool keepdim)
{
    return trii_record_reduced(&trii_op_prod, x, dims, n_dims, keepdim);
}

tri_tensor *tri_any(tri_tensor *x, const int64_t *dims, int n_dims, bool keepdim)
{
    return trii_record_reduced(&trii_op_any, x, dims, n_dims, keepdim);
}

tri_tensor *tri_all(tri_tensor *x, const int64_t *dims, int n_dims, bool keepdim)
{
    return trii_record_reduced(&trii_op_all, x, dims, n_dims, keepdim);
}

tri_tensor *tri_logsumexp(tri_tensor *x, const int64_t *dims, int n_dims, bool keepdim)
{
    return trii_record_reduced(&trii_op_logsumexp, x, dims, n_dims, keepdim);
}

/* dim from the user's to [0, ndim); a number counts as one row, as in PyTorch */
static tri_status dim_of(const tri_tensor *x, int dim, int *dim_out)
{
    int ndim = x != NULL ? tri_tensor_ndim(x) : -1;

    *dim_out = 0;
    return ndim < 0 ? TRI_OK : trii_rule_dim(dim, ndim, dim_out);
}

tri_tensor *tri_cumsum(tri_tensor *x, int dim)
{
    trii_attrs attrs;
    int d;
    tri_status status = dim_of(x, dim, &d);

    if (status != TRI_OK)
        return trii_handle_refused(trii_step_current(), "cumsum", &x, 1, status);
    attrs.n_i = 2;
    attrs.n_f = 0;
    attrs.i[0] = d;
    attrs.i[1] = 0;
    return trii_record(&trii_op_cumsum, &x, 1, &attrs);
}

static tri_tensor *ranked(const char *name, tri_tensor *x, int64_t k, int dim,
                          trii_topk_order order, tri_tensor **indices_out)
{
    trii_attrs attrs;
    tri_tensor *values;
    int d;
    tri_status status = dim_of(x, dim, &d);

    attrs.n_i = 3;
    attrs.n_f = 0;
    attrs.i[0] = d;
    attrs.i[1] = k;
    attrs.i[2] = order;
    values = status == TRI_OK ? trii_record_as(name, &trii_op_topk, &x, 1, &attrs)
                              : trii_handle_refused(trii_step_current(), name, &x, 1, status);
    if (indices_out != NULL)
        *indices_out = trii_handle_output(values, 1);
    return values;
}

tri_tensor *tri_topk(tri_tensor *x, int64_t k, int dim, bool smallest, tri_tensor **indices_out)
{
    return ranked("topk", x, k, dim, smallest ? TRII_TOPK_SMALLEST : TRII_TOPK_LARGEST,
                  indices_out);
}

static tri_tensor *extreme(const char *name, tri_tensor *x, int dim, bool keepdim,
                           trii_topk_order order, tri_tensor **indices_out)
{
    int ndim = x != NULL ? tri_tensor_ndim(x) : -1, n = 0;
    int64_t shape[TRI_MAX_DIMS];
    tri_tensor *values = ranked(name, x, 1, dim, order, indices_out);

    if (keepdim || ndim <= 0 || tri_tensor_ndim(values) < 0)
        return values;
    for (int d = 0; d < ndim; d++) {
        if (d != (dim < 0 ? dim + ndim : dim))
            shape[n++] = tri_tensor_size(x, d);
    }
    if (indices_out != NULL)
        *indices_out = tri_reshape(*indices_out, shape, n);
    return tri_reshape(values, shape, n);
}

tri_tensor *tri_max(tri_tensor *x, int dim, bool keepdim, tri_tensor **indices_out)
{
    return extreme("max", x, dim, keepdim, TRII_TOPK_LARGEST, indices_out);
}

tri_tensor *tri_min(tri_tensor *x, int dim, bool keepdim, tri_tensor **indices_out)
{
    return extreme("min", x, dim, keepdim, TRII_TOPK_SMALLEST_OR_NAN, indices_out);
}
