/*
 * batch_norm_layer.c - batch_norm2d: parameters, running statistics, a counter.
 */
#include "base/err.h"
#include "graph/ops/table.h"
#include "graph/step.h"
#include "nn/module.h"

typedef struct batch_norm2d {
    tri_batch_norm_args args;
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

    if (!trii_one_to_one(self, n_in, out, n_out))
        return;
    layer->args.training = self->training;
    out[0] = tri_batch_norm(in[0], &layer->args);
    if (!self->training || tri_tensor_status(out[0]) != TRI_OK)
        return;
    st = count_batch(layer);
    if (st < 0)
        out[0] = trii_handle_failed(trii_step_current(), TRII_FAIL_CTX(st, "num_batches_tracked"));
}

static void batch_norm2d_destroy(tri_module *self)
{
    tri_tensor_unref(((batch_norm2d *)tri_module_data(self))->one);
}

tri_module *tri_nn_batch_norm2d(int64_t channels)
{
    static const tri_module_class type = {.name = "batch_norm2d",
                                          .size = sizeof(batch_norm2d),
                                          .forward = batch_norm2d_forward,
                                          .destroy = batch_norm2d_destroy};
    tri_module *self;
    batch_norm2d *layer;
    tri_batch_norm_args *a;
    tri_status st;

    if (channels < 1)
        return trii_module_failed(TRII_FAIL(TRI_ERR_INVALID_ARG,
                                            "nn_batch_norm2d(%lld): channels must be at least 1",
                                            (long long)channels));
    self = tri_module_create(&type);
    if (tri_module_status(self) < 0)
        return self;
    layer = tri_module_data(self);
    a = &layer->args;
    a->weight = tri_module_parameter(self, "weight", trii_parameter_new(&channels, 1));
    a->bias = tri_module_parameter(self, "bias", trii_parameter_new(&channels, 1));
    a->running_mean = tri_module_buffer(self, "running_mean", trii_parameter_new(&channels, 1));
    a->running_var = tri_module_buffer(self, "running_var", trii_parameter_new(&channels, 1));
    layer->num_batches_tracked =
        tri_module_buffer(self, "num_batches_tracked", tri_tensor_create(TRI_DTYPE_I64, NULL, 0));
    layer->one = tri_tensor_from(TRI_DTYPE_I64, NULL, 0, &(int64_t){1});
    st = tri_tensor_status(layer->one);
    if (st == TRI_OK)
        st = tri_init_constant(a->weight, 1.0);
    if (st == TRI_OK)
        st = tri_init_constant(a->running_var, 1.0);
    if (st < 0)
        trii_module_fail(self, st);
    return self;
}
