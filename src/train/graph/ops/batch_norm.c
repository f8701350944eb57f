/*
 * batch_norm.c - batch normalisation over all dimensions but the second (channels).
 *
 * Training and evaluation are two operations, because they read and leave different things:
 * training normalises by the statistics of the batch and gives the new running ones as outputs,
 * which the public function binds to the buffers; evaluation normalises by the running ones.
 */
#include <math.h>
#include <string.h>

#include "base/option.h"
#include "train/graph/ops/batch_norm.h"

tri_status trii_norm_check_channels(const trii_type *const *in, int first, int n_in,
                                    const trii_type *x)
{
    static const char *const names[] = {"weight", "bias", "running_mean", "running_var"};
    tri_status status = trii_rule_float(x, "x");

    if (status == TRI_OK && x->ndim < 2)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "x must be [N, C, ..]");
    for (int i = first; i < n_in && status == TRI_OK; i++) {
        if ((in[i] == NULL) != (in[first + ((i - first) ^ 1)] == NULL))
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "give both %s and %s, or neither",
                             names[(i - first) & 2], names[((i - first) & 2) + 1]);
        if (in[i] == NULL)
            continue;
        status = trii_rule_same_dtype(x, in[i]);
        if (status == TRI_OK)
            status = trii_rule_shape(in[i], names[i - first], 1, &x->shape[1]);
    }
    return status;
}

static void channel_type(trii_type *out, const trii_type *x)
{
    out->dtype = x->dtype;
    out->ndim = 1;
    out->shape[0] = x->shape[1];
}

/* --- training ------------------------------------------------------------- */

static tri_status train_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                              trii_type *out, int *n_out)
{
    const trii_type *x = in[0];
    tri_status status = trii_norm_check_channels(in, 1, n_in, x);

    (void)attrs;
    if (status != TRI_OK)
        return status;
    if (x->shape[1] > 0 && trii_type_numel(x) / x->shape[1] == 1)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "training needs more than one value per channel for a variance: use a "
                         "larger batch, or evaluate (tri_module_train(model, false))");
    *n_out = in[3] != NULL ? 5 : 3;
    trii_type_copy(&out[0], x);
    for (int o = 1; o < *n_out; o++)
        channel_type(&out[o], x);
    return TRI_OK;
}

/* An empty batch (a rank's last one) has no statistics: the running ones stay. */
static void train_nothing(const trii_kernel_args *args)
{
    size_t bytes = (size_t)args->in[0].type->shape[1] * sizeof(double);

    for (int o = 1; o < args->n_out && bytes > 0; o++) {
        if (o < 3)
            memset(args->out[o].data, 0, bytes);
        else
            memmove(args->out[o].data, args->in[o].data, bytes);
    }
}

/* f: momentum, eps */
static tri_status train_kernel(const trii_kernel_args *args)
{
    trii_norm_geometry geo = trii_norm_geometry_of(args->in[0].type);
    double count = (double)(geo.n * geo.inner), momentum = args->fattr[0], eps = args->fattr[1];
    const double *weight = args->in[1].data, *bias = args->in[2].data;

    if (count == 0) {
        train_nothing(args);
        return TRI_OK;
    }
    for (int64_t c = 0; c < geo.channels; c++) {
        double squares, mean, invstd;
        trii_norm_factors f;

        trii_norm_moments(&geo, c, args->in[0].data, &mean, &squares);
        invstd = 1 / sqrt(squares / count + eps);
        f = (trii_norm_factors){.mean = mean,
                                .scale = weight != NULL ? weight[c] * invstd : invstd,
                                .shift = bias != NULL ? bias[c] : 0};
        trii_norm_apply(&geo, c, &f, args->in[0].data, args->out[0].data);
        ((double *)args->out[1].data)[c] = mean;
        ((double *)args->out[2].data)[c] = invstd;
        if (args->n_out == 5) {
            ((double *)args->out[3].data)[c] =
                (1 - momentum) * ((const double *)args->in[3].data)[c] + momentum * mean;
            ((double *)args->out[4].data)[c] =
                (1 - momentum) * ((const double *)args->in[4].data)[c] +
                momentum * squares / (count - 1);
        }
    }
    return TRI_OK;
}

static tri_status train_reference(const trii_kernel_args *args)
{
    return trii_in_double(args, train_kernel);
}

const trii_graph_op trii_op_batch_norm = {
    .name = "batch_norm",
    .precision = TRII_PRECISION_FOLLOWS,
    .activations_in = 1 << 0,
    .activations_out = 1 << 0,
    .state_in = 0x18,
    .state_out = 2,
    .optional = 0x1e,
    .alias_mask = 0x18,
    .alias = {0, 0, 0, 3, 4},
    .shape = train_shape,
    .gradient = TRII_GRADIENT_batch_norm,
    .reference = train_reference,
};

static tri_status backward_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                                 trii_type *out, int *n_out)
{
    (void)n_in;
    (void)attrs;
    *n_out = 3;
    trii_type_copy(&out[0], in[1]);
    channel_type(&out[1], in[1]);
    channel_type(&out[2], in[1]);
    return trii_rule_float(in[1], "x");
}

/* in g x weight? mean invstd. With xhat = (x - mean) invstd, means over the batch and space:
 * dx = weight invstd (g - mean(g) - xhat mean(g xhat)), dweight = sum g xhat, dbias = sum g. */
static tri_status backward_kernel(const trii_kernel_args *args)
{
    trii_norm_geometry geo = trii_norm_geometry_of(args->in[1].type);
    double count = (double)(geo.n * geo.inner);
    const double *weight = args->in[2].data;

    for (int64_t c = 0; c < geo.channels; c++) {
        double mean = ((const double *)args->in[3].data)[c];
        double invstd = ((const double *)args->in[4].data)[c];
        double sum, dot;
        trii_norm_factors f = {.mean = mean, .scale = weight != NULL ? weight[c] * invstd : invstd};

        trii_norm_sums(&geo, c, mean, args->in[0].data, args->in[1].data, &sum, &dot);
        dot *= invstd;
        f.shift = sum / count;
        f.along = invstd * (dot / count);
        trii_norm_gradient(&geo, c, &f, args->in[0].data, args->in[1].data, args->out[0].data);
        ((double *)args->out[1].data)[c] = dot;
        ((double *)args->out[2].data)[c] = sum;
    }
    return TRI_OK;
}

static tri_status backward_reference(const trii_kernel_args *args)
{
    return trii_in_double(args, backward_kernel);
}

const trii_graph_op trii_op_batch_norm_backward = {
    .name = "batch_norm_backward",
    .precision = TRII_PRECISION_FOLLOWS,
    .activations_in = 1 << 0 | 1 << 1,
    .activations_out = 1 << 0,
    .optional = 1 << 2,
    .shape = backward_shape,
    .reference = backward_reference,
};

/* --- evaluation ----------------------------------------------------------- */

static tri_status eval_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                             trii_type *out, int *n_out)
{
    (void)attrs;
    *n_out = 1;
    trii_type_copy(&out[0], in[0]);
    return trii_norm_check_channels(in, 1, n_in, in[0]);
}

/* in x weight? bias? running_mean running_var; f: momentum (unused), eps */
static tri_status eval_kernel(const trii_kernel_args *args)
{
    trii_norm_geometry geo = trii_norm_geometry_of(args->in[0].type);
    const double *weight = args->in[1].data, *bias = args->in[2].data;

    for (int64_t c = 0; c < geo.channels; c++) {
        double invstd = 1 / sqrt(((const double *)args->in[4].data)[c] + args->fattr[1]);
        trii_norm_factors f = {.mean = ((const double *)args->in[3].data)[c],
                               .scale = weight != NULL ? weight[c] * invstd : invstd,
                               .shift = bias != NULL ? bias[c] : 0};

        trii_norm_apply(&geo, c, &f, args->in[0].data, args->out[0].data);
    }
    return TRI_OK;
}

static tri_status eval_reference(const trii_kernel_args *args)
{
    return trii_in_double(args, eval_kernel);
}

const trii_graph_op trii_op_batch_norm_eval = {
    .name = "batch_norm_eval",
    .precision = TRII_PRECISION_FOLLOWS,
    .activations_in = 1 << 0,
    .activations_out = 1 << 0,
    .optional = 0x6,
    .shape = eval_shape,
    .gradient = TRII_GRADIENT_batch_norm_eval,
    .reference = eval_reference,
};

/* in g x weight? running_mean running_var */
static tri_status eval_backward_kernel(const trii_kernel_args *args)
{
    trii_norm_geometry geo = trii_norm_geometry_of(args->in[1].type);
    const double *weight = args->in[2].data;
    double *dweight = args->out[1].data, *dbias = args->out[2].data;

    for (int64_t c = 0; c < geo.channels; c++) {
        double mean = ((const double *)args->in[3].data)[c], dot;
        double invstd = 1 / sqrt(((const double *)args->in[4].data)[c] + args->fattr[1]);
        trii_norm_factors f = {.scale = weight != NULL ? weight[c] * invstd : invstd};

        trii_norm_sums(&geo, c, mean, args->in[0].data, args->in[1].data, &dbias[c], &dot);
        dweight[c] = dot * invstd;
        trii_norm_apply(&geo, c, &f, args->in[0].data, args->out[0].data);
    }
    return TRI_OK;
}

static tri_status eval_backward_reference(const trii_kernel_args *args)
{
    return trii_in_double(args, eval_backward_kernel);
}

const trii_graph_op trii_op_batch_norm_eval_backward = {
    .name = "batch_norm_eval_backward",
    .precision = TRII_PRECISION_FOLLOWS,
    .activations_in = 1 << 0 | 1 << 1,
    .activations_out = 1 << 0,
    .optional = 1 << 2,
    .shape = backward_shape,
    .reference = eval_backward_reference,
};

/* --- public --------------------------------------------------------------- */

tri_status trii_norm_bind_running(trii_step *step, const tri_batch_norm_args *args, trii_vid first)
{
    tri_tensor *buffers[2] = {args->running_mean, args->running_var};
    tri_status status = TRI_OK;

    for (int i = 0; i < 2 && status == TRI_OK; i++) {
        if (trii_is_handle(buffers[i]))
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "running statistics must be persistent tensors");
        status = trii_bind(step, first + i, buffers[i]);
    }
    return status;
}

tri_status trii_norm_attrs(const tri_batch_norm_args *args, trii_attrs *attrs)
{
    tri_status status = TRII_CHECK_RESERVED_INLINE(tri_batch_norm_args, args);

    if (status != TRI_OK)
        return status;
    attrs->n_i = 0;
    attrs->n_f = 2;
    attrs->f[0] = trii_option(args->momentum, 0.1);
    attrs->f[1] = trii_option(args->eps, 1e-5);
    if (isfinite(attrs->f[0]) && isfinite(attrs->f[1]) && attrs->f[1] >= 0)
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_INVALID_ARG,
                     "tri_batch_norm: momentum %g, eps %g: both must be finite, eps not negative",
                     attrs->f[0], attrs->f[1]);
}

tri_tensor *tri_batch_norm(tri_tensor *x, const tri_batch_norm_args *args)
{
    static const tri_batch_norm_args defaults;
    tri_tensor *in[5] = {x};
    tri_tensor *y;
    trii_vid first = TRII_NO_VALUE;
    trii_attrs attrs;
    tri_status status;

    if (args == NULL)
        args = &defaults;
    in[1] = args->weight;
    in[2] = args->bias;
    in[3] = args->running_mean;
    in[4] = args->running_var;
    status = trii_norm_attrs(args, &attrs);
    if (status != TRI_OK)
        return trii_handle_failed(trii_step_current(), status);
    if (!args->training)
        return trii_record(&trii_op_batch_norm_eval, in, 5, &attrs);
    y = trii_record(&trii_op_batch_norm, in, 5, &attrs);
    if (args->running_mean == NULL || tri_tensor_ndim(y) < 0)
        return y;
    status = trii_resolve(trii_step_current(), trii_handle_output(y, 3), &first);
    if (status == TRI_OK)
        status = trii_norm_bind_running(trii_step_current(), args, first);
    if (status != TRI_OK)
        return trii_handle_failed(trii_step_current(), TRII_FAIL_CTX(status, "tri_batch_norm"));
    return y;
}
