/*
 * softmax.c - softmax and log_softmax along one dimension. i: dim.
 */
#include <math.h>

#include "train/graph/ops/rules.h"

/* The tensor as [outer, n, inner] around a dimension. */
typedef struct rows {
    int64_t outer, n, inner;
} rows;

static rows rows_of(const trii_type *type, int64_t dim)
{
    rows r = {1, 1, 1};

    for (int d = 0; d < type->ndim; d++) {
        if (d < dim)
            r.outer *= type->shape[d];
        else if (d == dim)
            r.n = type->shape[d];
        else
            r.inner *= type->shape[d];
    }
    return r;
}

static tri_status softmax_kernel(const trii_kernel_args *args, bool logarithm)
{
    rows r = rows_of(args->in[0].type, args->iattr[0]);

    for (int64_t o = 0; o < r.outer * r.inner; o++) {
        int64_t start = o / r.inner * r.n * r.inner + o % r.inner;
        const double *x = (const double *)args->in[0].data + start;
        double *y = (double *)args->out[0].data + start;
        double largest = -(double)INFINITY, sum = 0;

        for (int64_t k = 0; k < r.n; k++)
            largest = x[k * r.inner] > largest ? x[k * r.inner] : largest;
        for (int64_t k = 0; k < r.n; k++)
            sum += exp(x[k * r.inner] - largest);
        for (int64_t k = 0; k < r.n; k++) {
            double shifted = x[k * r.inner] - largest;

            y[k * r.inner] = logarithm ? shifted - log(sum) : exp(shifted) / sum;
        }
    }
    return TRI_OK;
}

static tri_status plain_kernel(const trii_kernel_args *args)
{
    return softmax_kernel(args, false);
}

static tri_status log_kernel(const trii_kernel_args *args)
{
    return softmax_kernel(args, true);
}

static tri_status softmax_reference(const trii_kernel_args *args)
{
    return trii_in_double(args, plain_kernel);
}

static tri_status log_softmax_reference(const trii_kernel_args *args)
{
    return trii_in_double(args, log_kernel);
}

/* in g y. softmax: y (g - sum g y); log_softmax: g - exp(y) sum g. */
static tri_status backward_kernel(const trii_kernel_args *args, bool logarithm)
{
    rows r = rows_of(args->in[0].type, args->iattr[0]);

    for (int64_t o = 0; o < r.outer * r.inner; o++) {
        int64_t start = o / r.inner * r.n * r.inner + o % r.inner;
        const double *g = (const double *)args->in[0].data + start;
        const double *y = (const double *)args->in[1].data + start;
        double *dx = (double *)args->out[0].data + start, sum = 0;

        for (int64_t k = 0; k < r.n * r.inner; k += r.inner)
            sum += logarithm ? g[k] : g[k] * y[k];
        for (int64_t k = 0; k < r.n * r.inner; k += r.inner)
            dx[k] = logarithm ? g[k] - exp(y[k]) * sum : y[k] * (g[k] - sum);
    }
    return TRI_OK;
}

static tri_status plain_backward_kernel(const trii_kernel_args *args)
{
    return backward_kernel(args, false);
}

static tri_status log_backward_kernel(const trii_kernel_args *args)
{
    return backward_kernel(args, true);
}

static tri_status softmax_backward_reference(const trii_kernel_args *args)
{
    return trii_in_double(args, plain_backward_kernel);
}

static tri_status log_softmax_backward_reference(const trii_kernel_args *args)
{
    return trii_in_double(args, log_backward_kernel);
}

const trii_graph_op trii_op_softmax = {
    .name = "softmax",
    .shape = trii_shape_unary_float,
    .gradient = TRII_GRADIENT_softmax,
    .reference = softmax_reference,
};
const trii_graph_op trii_op_softmax_backward = {
    .name = "softmax_backward",
    .shape = trii_shape_broadcast_float,
    .gradient = TRII_GRADIENT_softmax_backward,
    .reference = softmax_backward_reference,
};
const trii_graph_op trii_op_log_softmax = {
    .name = "log_softmax",
    .shape = trii_shape_unary_float,
    .gradient = TRII_GRADIENT_log_softmax,
    .reference = log_softmax_reference,
};
const trii_graph_op trii_op_log_softmax_backward = {
    .name = "log_softmax_backward",
    .shape = trii_shape_broadcast_float,
    .gradient = TRII_GRADIENT_log_softmax_backward,
    .reference = log_softmax_backward_reference,
};

static tri_tensor *along(const trii_graph_op *op, tri_tensor *x, int dim)
{
    int ndim = x != NULL ? tri_tensor_ndim(x) : -1, d = 0;
    trii_attrs attrs;
    tri_status status = ndim < 0 ? TRI_OK : trii_rule_dim(dim, ndim, &d);

    if (status != TRI_OK)
        return trii_handle_refused(trii_step_current(), op->name, &x, 1, status);
    attrs.n_i = 1;
    attrs.n_f = 0;
    attrs.i[0] = d;
    return trii_record(op, &x, 1, &attrs);
}

tri_tensor *tri_softmax(tri_tensor *x, int dim)
{
    return along(&trii_op_softmax, x, dim);
}

tri_tensor *tri_log_softmax(tri_tensor *x, int dim)
{
    return along(&trii_op_log_softmax, x, dim);
}
