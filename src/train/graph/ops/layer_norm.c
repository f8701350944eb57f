/*
 * layer_norm.c - layer and rms normalisation: each row, which is what the last dimensions hold,
 * by statistics of its own.
 *
 *   layer: x^ = (x - mean) rstd, rstd = 1 / sqrt(var + eps)      rms: x^ = x rstd, rstd = 1 /
 *   sqrt(mean(x^2) + eps)                                        y = x^ w (+ b)
 */
#include <float.h>
#include <math.h>

#include "base/option.h"
#include "train/graph/ops/rules.h"

/* Both: i: number of normalised dimensions; f: eps. */
static int64_t row_length(const trii_type *x, int64_t n_dims)
{
    int64_t n = 1;

    for (int d = x->ndim - (int)n_dims; d < x->ndim; d++)
        n *= x->shape[d];
    return n;
}

void trii_row_types(const trii_type *x, int64_t n_dims, trii_type *stats, trii_type *shared)
{
    int first = x->ndim - (int)n_dims;

    stats->dtype = shared->dtype = x->dtype;
    stats->device = shared->device = x->device;
    stats->ndim = first;
    shared->ndim = (int)n_dims;
    for (int d = 0; d < stats->ndim; d++)
        stats->shape[d] = x->shape[d];
    for (int d = 0; d < shared->ndim; d++)
        shared->shape[d] = x->shape[first + d];
}

static tri_status check_rows(const trii_type *x, int64_t n_dims, const trii_type *const *shared,
                             int n_shared)
{
    static const char *const names[2] = {"weight", "bias"};
    trii_type stats, want;
    tri_status status = trii_rule_float(x, "x");

    if (status == TRI_OK && n_dims > x->ndim)
        status =
            TRII_FAIL(TRI_ERR_INVALID_ARG, "%d dimensions are to be normalised, the tensor has %d",
                      (int)n_dims, x->ndim);
    if (status != TRI_OK)
        return status;
    trii_row_types(x, n_dims, &stats, &want);
    for (int i = 0; i < n_shared && status == TRI_OK; i++) {
        if (shared[i] == NULL)
            continue;
        status = trii_rule_same_dtype(x, shared[i]);
        if (status == TRI_OK)
            status = trii_rule_shape(shared[i], names[i], want.ndim, want.shape);
    }
    return status;
}

/* --- forward -------------------------------------------------------------- */

/* out y, mean, rstd */
static tri_status layer_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                              trii_type *out, int *n_out)
{
    trii_type shared;
    tri_status status = check_rows(in[0], attrs->i[0], in + 1, 2);

    (void)n_in;
    *n_out = 3;
    if (status != TRI_OK)
        return status;
    trii_type_copy(&out[0], in[0]);
    trii_row_types(in[0], attrs->i[0], &out[1], &shared);
    trii_type_copy(&out[2], &out[1]);
    return TRI_OK;
}

/* out y, rstd */
static tri_status rms_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                            trii_type *out, int *n_out)
{
    trii_type shared;
    tri_status status = check_rows(in[0], attrs->i[0], in + 1, 1);

    (void)n_in;
    *n_out = 2;
    if (status != TRI_OK)
        return status;
    trii_type_copy(&out[0], in[0]);
    trii_row_types(in[0], attrs->i[0], &out[1], &shared);
    return TRI_OK;
}

static void normalise_row(const double *x, double *y, int64_t n, const double *w, const double *b,
                          double mean, double rstd)
{
    for (int64_t i = 0; i < n; i++) {
        double xhat = (x[i] - mean) * rstd;

        y[i] = (w != NULL ? xhat * w[i] : xhat) + (b != NULL ? b[i] : 0);
    }
}

static double row_variance(const double *x, int64_t n, double mean)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += (x[i] - mean) * (x[i] - mean);
    return sum / (double)n;
}

static tri_status layer_kernel(const trii_kernel_args *args)
{
    const trii_type *type = args->in[0].type;
    int64_t n = row_length(type, args->iattr[0]), rows = trii_type_numel(args->out[1].type);
    double *means = args->out[1].data, *rstds = args->out[2].data;

    for (int64_t r = 0; r < rows; r++) {
        const double *x = (const double *)args->in[0].data + r * n;
        double sum = 0;

        for (int64_t i = 0; i < n; i++)
            sum += x[i];
        means[r] = sum / (double)n;
        rstds[r] = 1 / sqrt(row_variance(x, n, means[r]) + args->fattr[0]);
        normalise_row(x, (double *)args->out[0].data + r * n, n, args->in[1].data, args->in[2].data,
                      means[r], rstds[r]);
    }
    return TRI_OK;
}

static tri_status rms_kernel(const trii_kernel_args *args)
{
    const trii_type *type = args->in[0].type;
    int64_t n = row_length(type, args->iattr[0]), rows = trii_type_numel(args->out[1].type);
    double *rstds = args->out[1].data;

    for (int64_t r = 0; r < rows; r++) {
        const double *x = (const double *)args->in[0].data + r * n;

        rstds[r] = 1 / sqrt(row_variance(x, n, 0) + args->fattr[0]);
        normalise_row(x, (double *)args->out[0].data + r * n, n, args->in[1].data, NULL, 0,
                      rstds[r]);
    }
    return TRI_OK;
}

static tri_status layer_reference(const trii_kernel_args *args)
{
    return trii_in_double(args, layer_kernel);
}

static tri_status rms_reference(const trii_kernel_args *args)
{
    return trii_in_double(args, rms_kernel);
}

/* --- backward ------------------------------------------------------------- */

/* in g x w? mean? rstd (no mean: rms); i: normalised dimensions, 1 = dw, 1 = db; out dx, and dw, db
 * where they are wanted */
static tri_status backward_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                                 trii_type *out, int *n_out)
{
    trii_type stats, shared;
    tri_status status = trii_rule_float(in[1], "x");

    (void)n_in;
    *n_out = 1;
    if (status != TRI_OK)
        return status;
    trii_type_copy(&out[0], in[1]);
    trii_row_types(in[1], attrs->i[0], &stats, &shared);
    for (int k = 1; k <= 2; k++) {
        if (attrs->i[k] != 0)
            trii_type_copy(&out[(*n_out)++], &shared);
    }
    return TRI_OK;
}

typedef struct row_gradient {
    int64_t n;
    const double *w;
    double mean, rstd;
    bool centred;
    double *dw, *db; /* NULL: not wanted */
} row_gradient;

static void backward_row(const row_gradient *r, const double *g, const double *x, double *dx)
{
    double sum = 0, product = 0;

    for (int64_t i = 0; i < r->n; i++) {
        double xhat = (x[i] - r->mean) * r->rstd, dy = r->w != NULL ? g[i] * r->w[i] : g[i];

        sum += dy;
        product += dy * xhat;
        if (r->dw != NULL)
            r->dw[i] += g[i] * xhat;
        if (r->db != NULL)
            r->db[i] += g[i];
    }
    sum = r->centred ? sum / (double)r->n : 0;
    product /= (double)r->n;
    for (int64_t i = 0; i < r->n; i++) {
        double xhat = (x[i] - r->mean) * r->rstd, dy = r->w != NULL ? g[i] * r->w[i] : g[i];

        dx[i] = r->rstd * (dy - sum - xhat * product);
    }
}

static tri_status backward_kernel(const trii_kernel_args *args)
{
    int64_t n = row_length(args->in[1].type, args->iattr[0]);
    int64_t rows = trii_type_numel(args->in[4].type);
    const double *means = args->in[3].data, *rstds = args->in[4].data;
    int at = 1;
    row_gradient r = {.n = n, .w = args->in[2].data, .centred = means != NULL};

    if (args->iattr[1] != 0)
        r.dw = args->out[at++].data;
    if (args->iattr[2] != 0)
        r.db = args->out[at++].data;
    for (int64_t i = 0; i < n; i++) {
        if (r.dw != NULL)
            r.dw[i] = 0;
        if (r.db != NULL)
            r.db[i] = 0;
    }
    for (int64_t k = 0; k < rows; k++) {
        r.mean = means != NULL ? means[k] : 0;
        r.rstd = rstds[k];
        backward_row(&r, (const double *)args->in[0].data + k * n,
                     (const double *)args->in[1].data + k * n, (double *)args->out[0].data + k * n);
    }
    return TRI_OK;
}

static tri_status backward_reference(const trii_kernel_args *args)
{
    return trii_in_double(args, backward_kernel);
}

const trii_graph_op trii_op_row_norm_backward = {
    .name = "row_norm_backward",
    .precision = TRII_PRECISION_FOLLOWS,
    .activations_in = 1 << 0 | 1 << 1,
    .activations_out = 1 << 0,
    .optional = 1 << 2 | 1 << 3,
    .shape = backward_shape,
    .reference = backward_reference,
};

const trii_graph_op trii_op_layer_norm = {
    .name = "layer_norm",
    .precision = TRII_PRECISION_FOLLOWS,
    .activations_in = 1 << 0,
    .activations_out = 1 << 0,
    .optional = 1 << 1 | 1 << 2,
    .shape = layer_shape,
    .gradient = TRII_GRADIENT_layer_norm,
    .reference = layer_reference,
};
const trii_graph_op trii_op_rms_norm = {
    .name = "rms_norm",
    .precision = TRII_PRECISION_FOLLOWS,
    .activations_in = 1 << 0,
    .activations_out = 1 << 0,
    .optional = 1 << 1,
    .shape = rms_shape,
    .gradient = TRII_GRADIENT_rms_norm,
    .reference = rms_reference,
};

/* --- public --------------------------------------------------------------- */

static tri_tensor *normalised(const trii_graph_op *op, tri_tensor *const *in, int n_in, int n_dims,
                              double eps)
{
    trii_attrs attrs;
    tri_status status = TRI_OK;

    if (n_dims < 1 || n_dims > TRI_MAX_DIMS)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG,
                           "tri_%s: %d dimensions are to be normalised, 1 to %d are allowed",
                           op->name, n_dims, TRI_MAX_DIMS);
    else if (!(eps >= 0 && eps <= DBL_MAX))
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "tri_%s: eps %g: must be a number of at least 0",
                           op->name, eps);
    if (status != TRI_OK)
        return trii_handle_failed(trii_step_current(), status);
    attrs.n_i = 1;
    attrs.n_f = 1;
    attrs.i[0] = n_dims;
    attrs.f[0] = eps;
    return trii_record(op, in, n_in, &attrs);
}

tri_tensor *tri_layer_norm(tri_tensor *x, int n_dims, tri_tensor *weight, tri_tensor *bias,
                           double eps)
{
    return normalised(&trii_op_layer_norm, (tri_tensor *const[]){x, weight, bias}, 3, n_dims, eps);
}

tri_tensor *tri_rms_norm(tri_tensor *x, int n_dims, tri_tensor *weight, tri_opt eps)
{
    bool wide = x != NULL && tri_tensor_dtype(x) == TRI_DTYPE_F64;

    return normalised(&trii_op_rms_norm, (tri_tensor *const[]){x, weight}, 2, n_dims,
                      trii_option(eps, wide ? DBL_EPSILON : (double)FLT_EPSILON));
}
