/*
 * batch_norm_layer.c - batch_norm2d: parameters, running statistics, a counter.
 */
#include <float.h>
#include <stdio.h>

#include "base/err.h"
#include "base/option.h"
#include "graph/ops/table.h"
#include "graph/step.h"
#include "nn/module.h"

typedef struct batch_norm2d {
    tri_batch_norm_args args;
    int64_t channels;
    tri_tensor *num_batches_tracked;
    tri_tensor *one;
} batch_norm2d;

/* Part of the step, like the statistics: one that fails does not count. */
static tri_status count_batch(const batch_norm2d *layer)
{
    trii_step *step = trii_step_current();
    trii_vid in[2], next = TRII_NO_VALUE;
    tri_status st =
        step != NULL ? trii_resolve(step, layer->num_batches_tracked, &in[0]) : TRI_ERR_NO_MEMORY;

    if (st == TRI_OK && layer->one->device != layer->num_batches_tracked->device)
        st = trii_tensor_send(layer->one, layer->num_batches_tracked->device);
    if (st == TRI_OK)
        st = trii_resolve(step, layer->one, &in[1]);
    if (st == TRI_OK)
        st = trii_record_values(step, &trii_op_add, in, 2, NULL, &next);
    return st == TRI_OK ? trii_bind(step, next, layer->num_batches_tracked) : st;
}

static void batch_norm2d_forward(tri_module *self, tri_tensor *const *in, int n_in,
                                 tri_tensor **out, int n_out)
{
    batch_norm2d *layer = tri_module_data(self);
    tri_status st;
    int ndim;

    if (!trii_one_to_one(self, n_in, out, n_out))
        return;
    ndim = tri_tensor_status(in[0]) == TRI_OK ? tri_tensor_ndim(in[0]) : 4; /* it says why itself */
    if (ndim != 4) {
        trii_forward_refused(TRII_FAIL(TRI_ERR_INVALID_ARG,
                                       "BatchNorm2d takes x [N, C, H, W], not one of %d dimensions",
                                       ndim),
                             out, n_out);
        return;
    }
    layer->args.training = self->training || layer->num_batches_tracked == NULL;
    out[0] = tri_batch_norm(in[0], &layer->args);
    if (!self->training || layer->num_batches_tracked == NULL ||
        tri_tensor_status(out[0]) != TRI_OK)
        return;
    st = count_batch(layer);
    if (st < 0)
        out[0] = trii_handle_failed(trii_step_current(), TRII_FAIL_CTX(st, "num_batches_tracked"));
}

static int batch_norm2d_repr(tri_module *self, char *text, size_t bytes)
{
    const batch_norm2d *layer = tri_module_data(self);
    const char *affine = layer->args.weight != NULL ? "True" : "False";
    char eps[TRII_FLOAT_TEXT], momentum[TRII_FLOAT_TEXT];

    return snprintf(
        text, bytes, "%lld, eps=%s, momentum=%s, affine=%s, bias=%s, track_running_stats=%s",
        (long long)layer->channels, trii_float_text(trii_option(layer->args.eps, 1e-5), eps),
        trii_float_text(trii_option(layer->args.momentum, 0.1), momentum), affine, affine,
        layer->num_batches_tracked != NULL ? "True" : "False");
}

static void batch_norm2d_destroy(tri_module *self)
{
    tri_tensor_unref(((batch_norm2d *)tri_module_data(self))->one);
}

static tri_status add_statistics(tri_module *self, int64_t channels)
{
    batch_norm2d *layer = tri_module_data(self);
    tri_status st;

    layer->args.running_mean =
        tri_module_buffer(self, "running_mean", trii_parameter_new(&channels, 1));
    layer->args.running_var =
        tri_module_buffer(self, "running_var", trii_parameter_new(&channels, 1));
    layer->num_batches_tracked =
        tri_module_buffer(self, "num_batches_tracked", tri_tensor_create(TRI_DTYPE_I64, NULL, 0));
    layer->one = tri_tensor_from(TRI_DTYPE_I64, NULL, 0, &(int64_t){1});
    st = tri_tensor_status(layer->one);
    return st == TRI_OK ? tri_init_constant(layer->args.running_var, 1.0) : st;
}

tri_module *tri_nn_batch_norm2d(int64_t channels, const tri_nn_batch_norm2d_options *opt)
{
    static const tri_module_class type = {.name = "BatchNorm2d",
                                          .size = sizeof(batch_norm2d),
                                          .forward = batch_norm2d_forward,
                                          .extra_repr = batch_norm2d_repr,
                                          .destroy = batch_norm2d_destroy};
    const tri_nn_batch_norm2d_options o = opt != NULL ? *opt : (tri_nn_batch_norm2d_options){0};
    tri_module *self;
    tri_batch_norm_args *a;
    tri_status st = TRI_OK;

    if (channels < 1)
        st = TRII_FAIL(TRI_ERR_INVALID_ARG, "nn_batch_norm2d(%lld): channels must be at least 1",
                       (long long)channels);
    else if (!(o.eps >= 0.0 && o.eps <= DBL_MAX) || !(o.momentum >= 0.0 && o.momentum <= 1.0))
        st = TRII_FAIL(TRI_ERR_INVALID_ARG,
                       "nn_batch_norm2d(%lld): eps %g, momentum %g: eps must be at least 0, "
                       "momentum in [0, 1]",
                       (long long)channels, o.eps, o.momentum);
    if (st < 0)
        return trii_module_failed(st);
    self = tri_module_create(&type);
    if (tri_module_status(self) < 0)
        return self;
    a = &((batch_norm2d *)tri_module_data(self))->args;
    ((batch_norm2d *)tri_module_data(self))->channels = channels;
    a->eps = o.eps;
    a->momentum = o.momentum;
    if (!o.no_affine) {
        a->weight = tri_module_parameter(self, "weight", trii_parameter_new(&channels, 1));
        a->bias = tri_module_parameter(self, "bias", trii_parameter_new(&channels, 1));
        st = tri_init_constant(a->weight, 1.0);
    }
    if (st == TRI_OK && !o.no_track_running_stats)
        st = add_statistics(self, channels);
    if (st < 0)
        trii_module_fail(self, st);
    return self;
}
