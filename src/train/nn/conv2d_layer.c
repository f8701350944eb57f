/*
 * conv2d_layer.c - conv2d: a weight, a bias and one operation.
 */
#include <stdio.h>

#include "base/err.h"
#include "base/option.h"
#include "train/nn/module.h"
#include "train/nn/pairs.h"

typedef struct conv2d {
    tri_tensor *weight, *bias;
    tri_conv_options opt;
} conv2d;

static void conv2d_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                           int n_out)
{
    conv2d *layer = tri_module_data(self);

    if (trii_one_to_one(self, n_in, out, n_out))
        out[0] = tri_conv(in[0], layer->weight, layer->bias, &layer->opt);
}

/* Appends as snprintf does; only settings that are not torch's defaults are shown. */
static int append_pair(char *text, size_t bytes, int used, const char *name, const int pair[2],
                       int usual)
{
    size_t at = (size_t)used < bytes ? (size_t)used : bytes;

    if (pair[0] == usual && pair[1] == usual)
        return used;
    return used + snprintf(text + at, bytes - at, ", %s=(%d, %d)", name, pair[0], pair[1]);
}

static int conv2d_repr(tri_module *self, char *text, size_t bytes)
{
    const conv2d *layer = tri_module_data(self);
    const tri_conv_options *o = &layer->opt;
    const tri_tensor *w = layer->weight;
    int groups = o->groups;
    int used = snprintf(text, bytes, "%lld, %lld, kernel_size=(%lld, %lld), stride=(%d, %d)",
                        (long long)tri_tensor_size(w, 1) * groups, (long long)tri_tensor_size(w, 0),
                        (long long)tri_tensor_size(w, 2), (long long)tri_tensor_size(w, 3),
                        o->stride[0], o->stride[1]);
    size_t at;

    used = append_pair(text, bytes, used, "padding", o->padding, 0);
    used = append_pair(text, bytes, used, "dilation", o->dilation, 1);
    at = (size_t)used < bytes ? (size_t)used : bytes;
    if (groups != 1)
        used += snprintf(text + at, bytes - at, ", groups=%d", groups);
    at = (size_t)used < bytes ? (size_t)used : bytes;
    if (layer->bias == NULL)
        used += snprintf(text + at, bytes - at, ", bias=False");
    return used;
}

static tri_status read_options(int64_t in_channels, int64_t out_channels, int kernel,
                               const tri_nn_conv2d_options *o, int kernel_out[2],
                               tri_conv_options *opt_out)
{
    const trii_pair_option sizes[] = {{"kernel", kernel, o->kernel_hw, 1, 0},
                                      {"stride", o->stride, o->stride_hw, 1, 1},
                                      {"padding", o->padding, o->padding_hw, 0, 0},
                                      {"dilation", o->dilation, o->dilation_hw, 1, 1}};
    int *const pairs[] = {kernel_out, opt_out->stride, opt_out->padding, opt_out->dilation};
    int64_t groups = o->groups != 0 ? o->groups : 1;
    const char *wrong = NULL;
    char call[96];

    snprintf(call, sizeof(call), "nn_conv2d(%lld, %lld, kernel %d)", (long long)in_channels,
             (long long)out_channels, kernel);
    if (in_channels < 1 || out_channels < 1)
        wrong = "channels must be at least 1";
    else if (groups < 1)
        wrong = "groups must be at least 1";
    else if (in_channels % groups != 0 || out_channels % groups != 0)
        wrong = "groups must divide both numbers of channels";
    if (wrong != NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s, groups %lld: %s", call, (long long)groups,
                         wrong);
    for (int i = 0; i < 4; i++) {
        tri_status status = trii_pair_get(call, &sizes[i], pairs[i]);

        if (status != TRI_OK)
            return status;
    }
    opt_out->groups = (int)groups;
    return TRI_OK;
}

tri_module *tri_nn_conv2d(int64_t in_channels, int64_t out_channels, int kernel,
                          const tri_nn_conv2d_options *opt)
{
    static const tri_module_class type = {.name = "Conv2d",
                                          .size = sizeof(conv2d),
                                          .forward = conv2d_forward,
                                          .extra_repr = conv2d_repr};
    const tri_nn_conv2d_options o = opt != NULL ? *opt : (tri_nn_conv2d_options){0};
    tri_conv_options read = {0};
    int hw[2] = {0};
    tri_status status = TRII_CHECK_RESERVED(tri_nn_conv2d_options, opt);
    tri_module *self;
    conv2d *layer;

    if (status == TRI_OK)
        status = read_options(in_channels, out_channels, kernel, &o, hw, &read);
    if (status != TRI_OK)
        return trii_module_failed(status);
    self = tri_module_create(&type);
    if (tri_module_status(self) < 0)
        return self;
    layer = tri_module_data(self);
    layer->opt = read;
    trii_add_weight_and_bias(self,
                             (int64_t[]){out_channels, in_channels / read.groups, hw[0], hw[1]}, 4,
                             !o.no_bias, &layer->weight, &layer->bias);
    return self;
}
