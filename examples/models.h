/*
 * models.h - networks for the examples, written with the public API only: how a module of one's
 * own is made. Names of parameters are torchvision's.
 */
#ifndef EXAMPLES_MODELS_H
#define EXAMPLES_MODELS_H

#include <stdio.h>

#include <trireme/nn.h>

/* --- ResNet-18 (He et al. 2015) ------------------------------------------------------------- */

/* Two 3x3 convolutions and a way around them. */
typedef struct basic_block {
    tri_module *conv1, *bn1, *conv2, *bn2;
    tri_module *downsample; /* NULL: the way around is the identity */
} basic_block;

static inline void basic_block_forward(tri_module *self, tri_tensor *const *in, int n_in,
                                       tri_tensor **out, int n_out)
{
    basic_block *b = (basic_block *)tri_module_data(self);
    tri_tensor *x = in[0], *around, *y;

    (void)n_in;
    (void)n_out;
    y = tri_relu(tri_forward(b->bn1, tri_forward(b->conv1, x)));
    y = tri_forward(b->bn2, tri_forward(b->conv2, y));
    around = b->downsample != NULL ? tri_forward(b->downsample, x) : x;
    out[0] = tri_relu(tri_add(y, around));
}

static inline tri_module *conv_without_bias(int64_t in, int64_t out, int kernel, int stride)
{
    tri_nn_conv2d_options opt = {0};

    opt.stride = stride;
    opt.padding = kernel / 2;
    opt.no_bias = true;
    return tri_nn_conv2d(in, out, kernel, &opt);
}

static inline tri_module *basic_block_create(int64_t in, int64_t out, int stride)
{
    static const tri_module_class type = {"basic_block", sizeof(basic_block), basic_block_forward,
                                          NULL};
    tri_module *self = tri_module_create(&type);
    basic_block *b = (basic_block *)tri_module_data(self);

    if (b == NULL)
        return self; /* a failed module: whoever uses it gets the error */
    b->conv1 = tri_module_child(self, "conv1", conv_without_bias(in, out, 3, stride));
    b->bn1 = tri_module_child(self, "bn1", tri_nn_batch_norm2d(out, NULL));
    b->conv2 = tri_module_child(self, "conv2", conv_without_bias(out, out, 3, 1));
    b->bn2 = tri_module_child(self, "bn2", tri_nn_batch_norm2d(out, NULL));
    if (stride != 1 || in != out)
        b->downsample = tri_module_child(
            self, "downsample",
            tri_sequential(conv_without_bias(in, out, 1, stride), tri_nn_batch_norm2d(out, NULL)));
    return self;
}

typedef struct resnet {
    tri_module *conv1, *bn1, *maxpool, *layer[4], *fc;
} resnet;

static inline void resnet_forward(tri_module *self, tri_tensor *const *in, int n_in,
                                  tri_tensor **out, int n_out)
{
    resnet *net = (resnet *)tri_module_data(self);
    tri_tensor *x = in[0];

    (void)n_in;
    (void)n_out;
    x = tri_relu(tri_forward(net->bn1, tri_forward(net->conv1, x)));
    x = tri_forward(net->maxpool, x);
    for (int i = 0; i < 4; i++)
        x = tri_forward(net->layer[i], x);
    x = tri_flatten(tri_adaptive_avg_pool2d(x, 1, 1), 1);
    out[0] = tri_forward(net->fc, x);
}

/* torchvision.models.resnet18: images [N, 3, H, W] -> logits [N, classes]. */
static inline tri_module *resnet18_create(int64_t classes)
{
    static const tri_module_class type = {"resnet", sizeof(resnet), resnet_forward, NULL};
    static const int64_t width[4] = {64, 128, 256, 512};
    tri_module *self = tri_module_create(&type);
    resnet *net = (resnet *)tri_module_data(self);
    tri_nn_pool2d_options halve = {0};
    int64_t in = 64;

    if (net == NULL)
        return self;
    halve.stride = 2;
    halve.padding = 1;
    net->conv1 = tri_module_child(self, "conv1", conv_without_bias(3, 64, 7, 2));
    net->bn1 = tri_module_child(self, "bn1", tri_nn_batch_norm2d(64, NULL));
    net->maxpool = tri_module_child(self, "maxpool", tri_nn_max_pool2d(3, &halve));
    for (int i = 0; i < 4; i++) {
        char name[16];

        snprintf(name, sizeof(name), "layer%d", i + 1);
        net->layer[i] =
            tri_module_child(self, name,
                             tri_sequential(basic_block_create(in, width[i], i == 0 ? 1 : 2),
                                            basic_block_create(width[i], width[i], 1)));
        in = width[i];
    }
    net->fc = tri_module_child(self, "fc", tri_nn_linear(512, classes, NULL));
    /* torchvision draws convolutions from a normal distribution. */
    for (int64_t i = 0; i < tri_module_state_count(self); i++) {
        tri_state_entry entry = tri_module_state(self, i);

        if (entry.parameter && tri_tensor_ndim(entry.tensor) == 4 &&
            tri_init_kaiming_normal(entry.tensor) < 0)
            break; /* no memory; the values are the layer's own, which train as well */
    }
    return self;
}

#endif
