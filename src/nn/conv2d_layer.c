/*
 * conv2d_layer.c - conv2d: a weight, a bias and one operation.
 */
#include "base/err.h"
#include "nn/module.h"

typedef struct conv2d {
    tri_tensor *weight, *bias;
    tri_conv2d_options opt;
} conv2d;

static void conv2d_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                           int n_out)
{
    conv2d *layer = tri_module_data(self);

    if (trii_one_to_one(self, n_in, out, n_out))
        out[0] = tri_conv2d(in[0], layer->weight, layer->bias, &layer->opt);
}

/* What is wrong with a layer's sizes, or NULL. */
static const char *wrong_sizes(int64_t in_channels, int64_t out_channels, int kernel,
                               const tri_nn_conv2d_options *o, int64_t groups)
{
    if (in_channels < 1 || out_channels < 1)
        return "channels must be at least 1";
    if (kernel < 1)
        return "the kernel must be at least 1";
    if (o->stride < 0 || o->padding < 0 || o->dilation < 0 || o->groups < 0)
        return "no option may be negative";
    if (in_channels % groups != 0 || out_channels % groups != 0)
        return "groups must divide both numbers of channels";
    return NULL;
}

tri_module *tri_nn_conv2d(int64_t in_channels, int64_t out_channels, int kernel,
                          const tri_nn_conv2d_options *opt)
{
    static const tri_module_class type = {
        .name = "conv2d", .size = sizeof(conv2d), .forward = conv2d_forward};
    tri_nn_conv2d_options o = opt != NULL ? *opt : (tri_nn_conv2d_options){0};
    int64_t groups = o.groups > 0 ? o.groups : 1;
    int64_t shape[4] = {out_channels, in_channels / groups, kernel, kernel};
    const char *wrong = wrong_sizes(in_channels, out_channels, kernel, &o, groups);
    tri_module *self;
    conv2d *layer;

    if (wrong != NULL)
        return trii_module_failed(TRII_FAIL(
            TRI_ERR_INVALID_ARG,
            "nn_conv2d(%lld, %lld, kernel %d), stride %d, padding %d, dilation %d, groups %d: %s",
            (long long)in_channels, (long long)out_channels, kernel, o.stride, o.padding,
            o.dilation, o.groups, wrong));
    self = tri_module_create(&type);
    if (tri_module_status(self) < 0)
        return self;
    layer = tri_module_data(self);
    layer->opt = (tri_conv2d_options){.stride = {o.stride, o.stride},
                                      .padding = {o.padding, o.padding},
                                      .dilation = {o.dilation, o.dilation},
                                      .groups = o.groups};
    trii_add_weight_and_bias(self, shape, 4, !o.no_bias, &layer->weight, &layer->bias);
    return self;
}
