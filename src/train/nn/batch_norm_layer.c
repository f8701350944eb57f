/*
 * batch_norm_layer.c - batch_norm1d and 2d: parameters, running statistics, a counter.
 */
#include <float.h>
#include <stdio.h>

#include "base/err.h"
#include "base/option.h"
#include "train/graph/ops/rules.h"
#include "train/nn/batch_norm_layer.h"

/* Part of the step, as the statistics are: a step that fails is not counted. */
static tri_status count_batch(const trii_batch_norm *layer, trii_step *step, trii_vid *next_out)
{
    trii_vid in[2];
    tri_status status = trii_resolve(step, layer->num_batches_tracked, &in[0]);

    if (status == TRI_OK && layer->one->device != layer->num_batches_tracked->device)
        status = trii_tensor_send(layer->one, layer->num_batches_tracked->device);
    if (status == TRI_OK)
        status = trii_resolve(step, layer->one, &in[1]);
    if (status == TRI_OK)
        status = trii_record_values(step, &trii_op_add, in, 2, NULL, next_out);
    return status == TRI_OK ? trii_bind(step, *next_out, layer->num_batches_tracked) : status;
}

/* The tensor's present value, even when it is written at once (TRI_EAGER=1). */
static tri_status keep(trii_step *step, tri_tensor *running, trii_vid *out)
{
    tri_status status = trii_resolve(step, running, out);

    return status == TRI_OK ? trii_rec_scaled(step, *out, 1, out) : status;
}

/* From the tensor's old value and its new one, that of the n-th batch: old + (now - old) / n. */
static tri_status average(trii_step *step, trii_vid old, tri_tensor *running, trii_vid n)
{
    trii_vid now = TRII_NO_VALUE, by = TRII_NO_VALUE;
    tri_status status = trii_resolve(step, running, &now);

    if (status == TRI_OK)
        status = trii_rec2(step, &trii_op_sub, now, old, &now);
    if (status == TRI_OK)
        status = trii_rec_cast(step, n, running->dtype, &by);
    if (status == TRI_OK)
        status = trii_rec2(step, &trii_op_div, now, by, &now);
    if (status == TRI_OK)
        status = trii_rec2(step, &trii_op_add, old, now, &now);
    return status == TRI_OK ? trii_bind(step, now, running) : status;
}

static tri_tensor *normalise(tri_tensor *x, const tri_batch_norm_args *args,
                             const trii_exchange *exchange)
{
    return exchange != NULL ? trii_batch_norm_shared(x, args, exchange) : tri_batch_norm(x, args);
}

/* In training, with running statistics. */
static tri_tensor *track(const trii_batch_norm *layer, tri_tensor *x, const trii_exchange *exchange)
{
    trii_step *step = trii_step_current();
    tri_batch_norm_args args = layer->args;
    trii_vid old[2] = {TRII_NO_VALUE, TRII_NO_VALUE}, n = TRII_NO_VALUE;
    tri_tensor *y;
    tri_status status = step != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;

    if (layer->cumulative) {
        args.momentum = TRI_SET(1); /* the new values are then the statistics of this batch */
        if (status == TRI_OK)
            status = keep(step, args.running_mean, &old[0]);
        if (status == TRI_OK)
            status = keep(step, args.running_var, &old[1]);
    }
    if (status != TRI_OK)
        return trii_handle_failed(step, status);
    y = normalise(x, &args, exchange);
    if (tri_tensor_status(y) != TRI_OK)
        return y;
    status = count_batch(layer, step, &n);
    if (layer->cumulative && status == TRI_OK)
        status = average(step, old[0], args.running_mean, n);
    if (layer->cumulative && status == TRI_OK)
        status = average(step, old[1], args.running_var, n);
    return status == TRI_OK
               ? y
               : trii_handle_failed(step, TRII_FAIL_CTX(status, "num_batches_tracked"));
}

tri_tensor *trii_batch_norm_forward(tri_module *self, tri_tensor *x, const trii_exchange *exchange)
{
    trii_batch_norm *layer = tri_module_data(self);

    layer->args.training = self->training || layer->num_batches_tracked == NULL;
    if (self->training && layer->num_batches_tracked != NULL)
        return track(layer, x, exchange);
    return normalise(x, &layer->args, exchange);
}

/* As in torch, each class refuses inputs that another one is for: the message says which dimension
 * is missing, instead of a result of another shape. */
static void checked_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                            int n_out)
{
    const bool is_1d = self->type == &trii_batch_norm1d_class;
    const int least = is_1d ? 2 : 4, most = is_1d ? 3 : 4;
    int ndim;

    if (!trii_one_to_one(self, n_in, out, n_out))
        return;
    /* the input's own failure is reported */
    ndim = tri_tensor_status(in[0]) == TRI_OK ? tri_tensor_ndim(in[0]) : least;
    if (ndim < least || ndim > most) {
        trii_forward_refused(
            TRII_FAIL(TRI_ERR_INVALID_ARG, "%s takes x %s, not one of %d dimension%s",
                      self->type->name,
                      is_1d ? "[N, C] or [N, C, L] (tri_nn_batch_norm2d: [N, C, H, W])"
                            : "[N, C, H, W] (tri_nn_batch_norm1d: [N, C] or [N, C, L])",
                      ndim, ndim == 1 ? "" : "s"),
            out, n_out);
        return;
    }
    out[0] = trii_batch_norm_forward(self, in[0], NULL);
}

int trii_batch_norm_repr(tri_module *self, char *text, size_t bytes)
{
    const trii_batch_norm *layer = tri_module_data(self);
    const char *affine = layer->args.weight != NULL ? "True" : "False";
    char eps[TRII_FLOAT_TEXT], momentum[TRII_FLOAT_TEXT];

    return snprintf(
        text, bytes, "%lld, eps=%s, momentum=%s, affine=%s, bias=%s, track_running_stats=%s",
        (long long)layer->channels, trii_float_text(trii_option(layer->args.eps, 1e-5), eps),
        layer->cumulative ? "None"
                          : trii_float_text(trii_option(layer->args.momentum, 0.1), momentum),
        affine, affine, layer->num_batches_tracked != NULL ? "True" : "False");
}

void trii_batch_norm_destroy(tri_module *self)
{
    tri_tensor_unref(((trii_batch_norm *)tri_module_data(self))->one);
}

static tri_status add_statistics(tri_module *self, int64_t channels)
{
    trii_batch_norm *layer = tri_module_data(self);
    tri_status status;

    layer->args.running_mean =
        tri_module_add_buffer(self, "running_mean", trii_parameter_new(&channels, 1));
    layer->args.running_var =
        tri_module_add_buffer(self, "running_var", trii_parameter_new(&channels, 1));
    layer->num_batches_tracked = tri_module_add_buffer(self, "num_batches_tracked",
                                                       tri_tensor_create(NULL, 0, TRI_DTYPE_I64));
    layer->one = tri_tensor_from(NULL, 0, TRI_DTYPE_I64, &(int64_t){1});
    status = tri_tensor_status(layer->one);
    return status == TRI_OK ? tri_init_constant(layer->args.running_var, 1.0) : status;
}

static tri_status check_options(const char *label, int64_t channels,
                                const tri_nn_batch_norm2d_options *o)
{
    const double eps = trii_option(o->eps, 1e-5), momentum = trii_option(o->momentum, 0.1);

    if (channels < 1)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s(%lld): channels must be at least 1", label,
                         (long long)channels);
    if (!(eps >= 0.0 && eps <= DBL_MAX) || !(momentum >= 0.0 && momentum <= 1.0))
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s(%lld): eps %g, momentum %g: eps must be at least 0, momentum in "
                         "[0, 1]",
                         label, (long long)channels, eps, momentum);
    if (o->cumulative && o->momentum.given != NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s(%lld): momentum %g, and cumulative, which has none: give one of them",
                         label, (long long)channels, momentum);
    return TRI_OK;
}

tri_module *trii_batch_norm_new(const tri_module_class *type, const char *label, int64_t channels,
                                const tri_nn_batch_norm2d_options *opt)
{
    const tri_nn_batch_norm2d_options o = opt != NULL ? *opt : (tri_nn_batch_norm2d_options){0};
    tri_status status = TRII_CHECK_RESERVED(tri_nn_batch_norm2d_options, opt);
    tri_module *self;
    trii_batch_norm *layer;

    if (status == TRI_OK)
        status = check_options(label, channels, &o);
    if (status != TRI_OK)
        return trii_module_failed(status);
    self = tri_module_create(type);
    if (tri_module_status(self) < 0)
        return self;
    layer = tri_module_data(self);
    layer->channels = channels;
    layer->cumulative = o.cumulative;
    layer->args.eps = o.eps;
    layer->args.momentum = o.momentum;
    if (!o.no_affine) {
        layer->args.weight =
            tri_module_add_parameter(self, "weight", trii_parameter_new(&channels, 1));
        layer->args.bias = tri_module_add_parameter(self, "bias", trii_parameter_new(&channels, 1));
        status = tri_init_constant(layer->args.weight, 1.0);
    }
    if (status == TRI_OK && !o.no_track_running_stats)
        status = add_statistics(self, channels);
    if (status != TRI_OK)
        trii_module_fail(self, status);
    return self;
}

const tri_module_class trii_batch_norm1d_class = {.name = "BatchNorm1d",
                                                  .size = sizeof(trii_batch_norm),
                                                  .forward = checked_forward,
                                                  .extra_repr = trii_batch_norm_repr,
                                                  .destroy = trii_batch_norm_destroy};
const tri_module_class trii_batch_norm2d_class = {.name = "BatchNorm2d",
                                                  .size = sizeof(trii_batch_norm),
                                                  .forward = checked_forward,
                                                  .extra_repr = trii_batch_norm_repr,
                                                  .destroy = trii_batch_norm_destroy};

tri_module *tri_nn_batch_norm1d(int64_t channels, const tri_nn_batch_norm2d_options *opt)
{
    return trii_batch_norm_new(&trii_batch_norm1d_class, "nn_batch_norm1d", channels, opt);
}

tri_module *tri_nn_batch_norm2d(int64_t channels, const tri_nn_batch_norm2d_options *opt)
{
    return trii_batch_norm_new(&trii_batch_norm2d_class, "nn_batch_norm2d", channels, opt);
}
