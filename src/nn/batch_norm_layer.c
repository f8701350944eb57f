/*
 * batch_norm_layer.c - batch_norm2d: parameters, running statistics, a counter.
 */
#include "base/err.h"
#include "nn/module.h"
#include "tensor/persistent.h"

typedef struct batch_norm2d {
    tri_batch_norm_args args;
    tri_tensor *num_batches_tracked;
} batch_norm2d;

static void batch_norm2d_forward(tri_module *self, tri_tensor *const *in, int n_in,
                                 tri_tensor **out, int n_out)
{
    batch_norm2d *layer = tri_module_data(self);

    if (!trii_one_to_one(self, n_in, out, n_out))
        return;
    layer->args.training = self->training;
    out[0] = tri_batch_norm(in[0], &layer->args);
    /* A counter that no operation reads: counted here, so that it costs no kernel. */
    if (self->training)
        ++*(int64_t *)trii_tensor_data(layer->num_batches_tracked);
}

tri_module *tri_nn_batch_norm2d(int64_t channels)
{
    static const tri_module_class type = {
        .name = "batch_norm2d", .size = sizeof(batch_norm2d), .forward = batch_norm2d_forward};
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
    st = tri_init_constant(a->weight, 1.0);
    if (st == TRI_OK)
        st = tri_init_constant(a->running_var, 1.0);
    if (st < 0)
        trii_module_fail(self, st);
    return self;
}
