/*
 * batch_norm_shared.c - batch normalisation over the batches of several ranks: tri_batch_norm in
 * parts, with an exchange between them (shared_statistics.h). Recorded by parallel/sync_norm.
 *
 * Forward: mean, variance and number of values of the rank's own batch, as one vector; the vectors
 * of all ranks, gathered; the statistics of all values together; x normalised by them. Backward:
 * two sums per channel of the rank's own batch, which are the gradients of weight and bias; the
 * sums over all ranks; dx. Names are those of torch's kernels.
 */
#include <math.h>

#include "train/graph/ops/batch_norm.h"

/* --- statistics of one batch ---------------------------------------------- */

/* [C] means, [C] biased variances, their number. */
static tri_status stats_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                              trii_type *out, int *n_out)
{
    tri_status status = trii_rule_float(in[0], "x");

    (void)n_in;
    (void)attrs;
    if (status == TRI_OK && in[0]->ndim < 2)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "x must be [N, C, ..]");
    if (status != TRI_OK)
        return status;
    *n_out = 1;
    out[0].dtype = in[0]->dtype;
    out[0].ndim = 1;
    out[0].shape[0] = 2 * in[0]->shape[1] + 1;
    return TRI_OK;
}

static tri_status stats_kernel(const trii_kernel_args *args)
{
    trii_norm_geometry geo = trii_norm_geometry_of(args->in[0].type);
    double count = (double)(geo.n * geo.inner);
    double *mean = args->out[0].data, *var = mean + geo.channels;

    mean[2 * geo.channels] = count;
    for (int64_t c = 0; c < geo.channels; c++) {
        double squares;

        trii_norm_moments(&geo, c, args->in[0].data, &mean[c], &squares);
        var[c] = count > 0 ? squares / count : 0;
    }
    return TRI_OK;
}

static tri_status stats_reference(const trii_kernel_args *args)
{
    return trii_in_double(args, stats_kernel);
}

const trii_graph_op trii_op_batch_norm_stats = {
    .name = "batch_norm_stats",
    .precision = TRII_PRECISION_FOLLOWS,
    .activations_in = 1 << 0,
    .shape = stats_shape,
    .reference = stats_reference,
};

/* --- statistics of all ---------------------------------------------------- */

enum { OUT_MEAN, OUT_VAR, OUT_COUNT, OUT_RUNNING_MEAN, OUT_RUNNING_VAR };

/* in: gathered [size, 2 C + 1], running_mean? running_var? */
static tri_status gather_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                               trii_type *out, int *n_out)
{
    static const char *const names[] = {"running_mean", "running_var"};
    const int64_t channels = in[0]->ndim == 2 ? (in[0]->shape[1] - 1) / 2 : 0;

    (void)attrs;
    (void)n_in; /* always 3 */
    if (in[0]->ndim != 2 || in[0]->shape[1] != 2 * channels + 1)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "statistics must be [size, 2 C + 1]");
    if ((in[1] == NULL) != (in[2] == NULL))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "give both running_mean and running_var, or neither");
    for (int i = 1; i <= 2 && in[i] != NULL; i++) {
        tri_status status = trii_rule_same_dtype(in[0], in[i]);

        if (status == TRI_OK)
            status = trii_rule_shape(in[i], names[i - 1], 1, &channels);
        if (status != TRI_OK)
            return status;
    }
    *n_out = in[1] != NULL ? 5 : 3;
    for (int o = 0; o < *n_out; o++) {
        out[o].dtype = in[0]->dtype;
        out[o].ndim = 1;
        out[o].shape[0] = o == OUT_COUNT ? 1 : channels;
    }
    return trii_rule_float(in[0], "statistics");
}

/* Channel c, in the order of the ranks: the same bits on all ranks. */
static void merge(const trii_kernel_args *args, int64_t size, int64_t channels, double count,
                  int64_t c)
{
    const double *part = args->in[0].data;
    int64_t row = 2 * channels + 1;
    double momentum = args->fattr[0], mean = 0, squares = 0;

    for (int64_t r = 0; r < size && count > 0; r++)
        mean += part[r * row + 2 * channels] / count * part[r * row + c];
    for (int64_t r = 0; r < size; r++) {
        double d = part[r * row + c] - mean;

        squares += part[r * row + 2 * channels] * (part[r * row + channels + c] + d * d);
    }
    ((double *)args->out[OUT_MEAN].data)[c] = mean;
    ((double *)args->out[OUT_VAR].data)[c] = count > 0 ? squares / count : 0;
    for (int o = OUT_RUNNING_MEAN; o < args->n_out; o++) {
        double old = ((const double *)args->in[o - 2].data)[c];
        double now = o == OUT_RUNNING_MEAN ? mean : squares / (count - 1);

        ((double *)args->out[o].data)[c] = count > 0 ? (1 - momentum) * old + momentum * now : old;
    }
}

static tri_status gather_kernel(const trii_kernel_args *args)
{
    int64_t size = args->in[0].type->shape[0], channels = (args->in[0].type->shape[1] - 1) / 2;
    double count = 0;

    for (int64_t r = 0; r < size; r++)
        count += ((const double *)args->in[0].data)[r * (2 * channels + 1) + 2 * channels];
    if (count == 1 && channels > 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "training needs more than one value per channel for a variance, and the "
                         "batches of all ranks together have one: use larger batches, or evaluate "
                         "(tri_module_train(model, false))");
    for (int64_t c = 0; c < channels; c++)
        merge(args, size, channels, count, c);
    ((double *)args->out[OUT_COUNT].data)[0] = count > 0 ? count : 1; /* used only as a divisor */
    return TRI_OK;
}

static tri_status gather_reference(const trii_kernel_args *args)
{
    return trii_in_double(args, gather_kernel);
}

const trii_graph_op trii_op_batch_norm_gather_stats = {
    .name = "batch_norm_gather_stats",
    .may_refuse = true,
    .state_in = 0x6,
    .state_out = 2,
    .optional = 0x6,
    .alias_mask = 0x18,
    .alias = {0, 0, 0, 1, 2},
    .shape = gather_shape,
    .reference = gather_reference,
};

/* --- normalising by them -------------------------------------------------- */

static tri_status elemt_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                              trii_type *out, int *n_out)
{
    static const int64_t one = 1;
    tri_status status = trii_norm_check_channels(in, 1, n_in - 1, in[0]);

    (void)attrs;
    if (status == TRI_OK)
        status = trii_rule_shape(in[TRII_ELEMT_COUNT], "count", 1, &one);
    *n_out = 1;
    trii_type_copy(&out[0], in[0]);
    return status;
}

/* Normalises by given statistics, as in evaluation. */
static tri_status elemt_reference(const trii_kernel_args *args)
{
    return trii_op_batch_norm_eval.reference(args);
}

const trii_graph_op trii_op_batch_norm_elemt = {
    .name = "batch_norm_elemt",
    .precision = TRII_PRECISION_FOLLOWS,
    .activations_in = 1 << 0,
    .activations_out = 1 << 0,
    .optional = 0x6,
    .shape = elemt_shape,
    .gradient = TRII_GRADIENT_batch_norm_elemt,
    .reference = elemt_reference,
};

/* --- its gradient --------------------------------------------------------- */

/* in g x weight? (for kernels that find the sign of a ReLU after it) mean var; f: eps. With
 * xhat = (x - mean) / sqrt(var + eps): out [sum of g, sum of g xhat], and these two by themselves,
 * which are the gradients of weight and bias. */
static tri_status reduce_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                               trii_type *out, int *n_out)
{
    (void)n_in;
    (void)attrs;
    *n_out = 3;
    for (int o = 0; o < 3; o++) {
        out[o].dtype = in[1]->dtype;
        out[o].ndim = 1;
        out[o].shape[0] = o == 0 ? 2 * in[1]->shape[1] : in[1]->shape[1];
    }
    return trii_rule_float(in[1], "x");
}

static tri_status reduce_kernel(const trii_kernel_args *args)
{
    trii_norm_geometry geo = trii_norm_geometry_of(args->in[1].type);
    double *sums = args->out[0].data, *dweight = args->out[1].data, *dbias = args->out[2].data;

    for (int64_t c = 0; c < geo.channels; c++) {
        double mean = ((const double *)args->in[3].data)[c];
        double invstd = 1 / sqrt(((const double *)args->in[4].data)[c] + args->fattr[0]);
        double sum, dot;

        trii_norm_sums(&geo, c, mean, args->in[0].data, args->in[1].data, &sum, &dot);
        sums[c] = dbias[c] = sum;
        sums[geo.channels + c] = dweight[c] = dot * invstd;
    }
    return TRI_OK;
}

static tri_status reduce_reference(const trii_kernel_args *args)
{
    return trii_in_double(args, reduce_kernel);
}

const trii_graph_op trii_op_batch_norm_backward_reduce = {
    .name = "batch_norm_backward_reduce",
    .precision = TRII_PRECISION_FOLLOWS,
    .activations_in = 1 << 0 | 1 << 1,
    .optional = 1 << 2,
    .shape = reduce_shape,
    .reference = reduce_reference,
};

/* in g x weight? mean var sums count; f: eps. With sums and count of all:
 * dx = weight invstd (g - sums[0] / count - xhat sums[1] / count). */
static tri_status backward_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                                 trii_type *out, int *n_out)
{
    (void)n_in;
    (void)attrs;
    *n_out = 1;
    trii_type_copy(&out[0], in[1]);
    return trii_rule_float(in[1], "x");
}

static tri_status backward_kernel(const trii_kernel_args *args)
{
    trii_norm_geometry geo = trii_norm_geometry_of(args->in[1].type);
    const double *weight = args->in[2].data, *sums = args->in[5].data;
    double count = ((const double *)args->in[6].data)[0];

    for (int64_t c = 0; c < geo.channels; c++) {
        double invstd = 1 / sqrt(((const double *)args->in[4].data)[c] + args->fattr[0]);
        trii_norm_factors f = {.mean = ((const double *)args->in[3].data)[c],
                               .scale = weight != NULL ? weight[c] * invstd : invstd,
                               .shift = sums[c] / count,
                               .along = invstd * (sums[geo.channels + c] / count)};

        trii_norm_gradient(&geo, c, &f, args->in[0].data, args->in[1].data, args->out[0].data);
    }
    return TRI_OK;
}

static tri_status backward_reference(const trii_kernel_args *args)
{
    return trii_in_double(args, backward_kernel);
}

const trii_graph_op trii_op_batch_norm_backward_elemt = {
    .name = "batch_norm_backward_elemt",
    .precision = TRII_PRECISION_FOLLOWS,
    .activations_in = 1 << 0 | 1 << 1,
    .activations_out = 1 << 0,
    .optional = 1 << 2,
    .shape = backward_shape,
    .reference = backward_reference,
};

/* --- recording ------------------------------------------------------------ */

/* A persistent tensor or handle as an operand; NULL is absent. */
static tri_status operand(trii_step *step, tri_tensor *tensor, trii_vid *out)
{
    *out = TRII_NO_VALUE;
    return tensor != NULL ? trii_resolve(step, tensor, out) : TRI_OK;
}

static tri_status record(trii_step *step, tri_tensor *x, const tri_batch_norm_args *args,
                         const trii_exchange *exchange, trii_vid *y)
{
    trii_vid in[6], running[3], stats = TRII_NO_VALUE, first = TRII_NO_VALUE;
    trii_attrs attrs;
    tri_status status = trii_norm_attrs(args, &attrs);

    if (status == TRI_OK)
        status = operand(step, x, &in[TRII_ELEMT_X]);
    if (status == TRI_OK)
        status = operand(step, args->weight, &in[TRII_ELEMT_WEIGHT]);
    if (status == TRI_OK)
        status = operand(step, args->bias, &in[TRII_ELEMT_BIAS]);
    if (status == TRI_OK)
        status = operand(step, args->running_mean, &running[1]);
    if (status == TRI_OK)
        status = operand(step, args->running_var, &running[2]);
    if (status == TRI_OK)
        status = trii_record_values(step, &trii_op_batch_norm_stats, in, 1, NULL, &stats);
    if (status == TRI_OK)
        status = exchange->gather(exchange, step, stats, &running[0]);
    if (status == TRI_OK)
        status =
            trii_record_values(step, &trii_op_batch_norm_gather_stats, running, 3, &attrs, &first);
    if (status != TRI_OK)
        return status;
    if (args->running_mean != NULL)
        status = trii_norm_bind_running(step, args, first + OUT_RUNNING_MEAN);
    for (int o = 0; o < 3; o++)
        in[TRII_ELEMT_MEAN + o] = first + o;
    trii_norm_put_exchange(&attrs, exchange);
    if (status == TRI_OK)
        status = trii_record_values(step, &trii_op_batch_norm_elemt, in, 6, &attrs, y);
    return status;
}

tri_tensor *trii_batch_norm_shared(tri_tensor *x, const tri_batch_norm_args *args,
                                   const trii_exchange *exchange)
{
    trii_step *step = trii_step_current();
    trii_vid y = TRII_NO_VALUE;
    tri_status status = step != NULL ? record(step, x, args, exchange, &y) : TRI_ERR_NO_MEMORY;

    return status == TRI_OK ? trii_handle_recorded(step, y)
                            : trii_handle_refused(step, "batch_norm", &x, 1, status);
}
