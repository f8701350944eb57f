/*
 * resnet.c - ResNet from layers: how to write a module.
 */
#include <trireme/models.h>

#include "models/model_parts.h"

/* Two 3x3 convolutions, or a 3x3 one between two 1x1 (a bottleneck), and a way around them. */
typedef struct block {
    tri_module *conv[3], *bn[3];
    int n;
    tri_module *downsample; /* NULL: the way around is the identity */
} block;

static tri_tensor *block_forward(tri_module *self, tri_tensor *x)
{
    block *b = tri_module_data(self);
    tri_tensor *around = b->downsample != NULL ? tri_forward(b->downsample, x) : x;

    for (int i = 0; i < b->n; i++) {
        x = tri_forward(b->bn[i], tri_forward(b->conv[i], x));
        x = tri_relu(i + 1 < b->n ? x : tri_add(x, around));
    }
    return x;
}

static tri_module *conv_without_bias(int64_t in, int64_t out, int kernel, int stride)
{
    return tri_nn_conv2d(
        in, out, kernel,
        &(tri_nn_conv2d_options){.stride = stride, .padding = kernel / 2, .no_bias = true});
}

tri_module *tri_model_resnet_block(bool bottleneck, int64_t in, int64_t width, int stride)
{
    const trii_model_size sizes[] = {{"in", in}, {"width", width}, {"stride", stride}};
    tri_module *wrong = trii_model_check("tri_model_resnet_block", sizes, 3);
    tri_module *self = wrong != NULL ? wrong
                                     : tri_module_simple(bottleneck ? "Bottleneck" : "BasicBlock",
                                                         sizeof(block), block_forward);
    block *b = tri_module_data(self);
    const int64_t out = bottleneck && wrong == NULL ? 4 * width : width; /* which may be anything */
    const int64_t channels[4] = {in, width, bottleneck ? width : out, out};
    const int kernel[3] = {bottleneck ? 1 : 3, 3, 1};

    if (b == NULL)
        return self; /* a failed module: its users get the error */
    b->n = bottleneck ? 3 : 2;
    for (int i = 0; i < b->n; i++) {
        tri_module *conv =
            conv_without_bias(channels[i], channels[i + 1], kernel[i], i == b->n - 2 ? stride : 1);

        b->conv[i] = trii_model_child(self, "conv", i + 1, conv);
        b->bn[i] = trii_model_child(self, "bn", i + 1, tri_nn_batch_norm2d(channels[i + 1], NULL));
    }
    if (stride != 1 || in != out)
        b->downsample =
            tri_module_add_child(self, "downsample",
                                 tri_nn_sequential(conv_without_bias(in, out, 1, stride),
                                                   tri_nn_batch_norm2d(out, NULL)));
    return self;
}

typedef struct resnet {
    tri_module *conv1, *bn1, *maxpool, *layer[4], *fc;
} resnet;

static void resnet_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                           int n_out)
{
    if (n_in == 1 && n_out == 1)
        out[0] = tri_model_resnet_second_half(self, tri_model_resnet_first_half(self, in[0]));
}

static const tri_module_class resnet_class = {
    .name = "ResNet", .size = sizeof(resnet), .forward = resnet_forward};

/* What `call` gives for a module that is no ResNet, or one that has failed; NULL: it is sound. */
static tri_tensor *refused(const char *call, tri_module *net, tri_tensor *x)
{
    if (tri_module_status(net) != TRI_OK)
        return tri_forward(net, x);
    if (tri_module_type(net) == resnet_class.name)
        return NULL;
    return trii_model_refused(tri_module_fail(NULL, TRI_ERR_INVALID_ARG,
                                              "%s: the module is a %s, not a ResNet", call,
                                              tri_module_type(net)),
                              x);
}

tri_tensor *tri_model_resnet_first_half(tri_module *net, tri_tensor *x)
{
    const resnet *r = tri_module_data(net);
    tri_tensor *failed = refused("tri_model_resnet_first_half", net, x);

    if (failed != NULL)
        return failed;
    x = tri_relu(tri_forward(r->bn1, tri_forward(r->conv1, x)));
    x = tri_forward(r->maxpool, x);
    return tri_forward(r->layer[1], tri_forward(r->layer[0], x));
}

tri_tensor *tri_model_resnet_second_half(tri_module *net, tri_tensor *x)
{
    const resnet *r = tri_module_data(net);
    tri_tensor *failed = refused("tri_model_resnet_second_half", net, x);

    if (failed != NULL)
        return failed;
    x = tri_forward(r->layer[3], tri_forward(r->layer[2], x));
    return tri_forward(r->fc, tri_flatten(tri_adaptive_avg_pool(x, TRI_SHAPE(1, 1)), 1));
}

tri_module *tri_model_resnet(int depth, int64_t classes)
{
    return tri_model_resnet_of_width(depth, 64, classes);
}

tri_module *tri_model_resnet_of_width(int depth, int64_t first_width, int64_t classes)
{
    static const int depths[5][5] = {{18, 2, 2, 2, 2},
                                     {34, 3, 4, 6, 3},
                                     {50, 3, 4, 6, 3},
                                     {101, 3, 4, 23, 3},
                                     {152, 3, 8, 36, 3}};
    const trii_model_size sizes[] = {{"first_width", first_width}, {"classes", classes}};
    tri_module *self = trii_model_check("tri_model_resnet", sizes, 2);
    int64_t channels = first_width;
    int kind = 0;
    resnet *net;

    while (kind < 5 && depths[kind][0] != depth)
        kind++;
    if (kind == 5)
        return tri_module_fail(self, TRI_ERR_INVALID_ARG,
                               "tri_model_resnet: depth %d: must be 18, 34, 50, 101 or 152", depth);
    self = self != NULL ? self : tri_module_create(&resnet_class);
    net = tri_module_data(self);
    if (net == NULL)
        return self; /* a failed module: its users get the error */
    net->conv1 = tri_module_add_child(self, "conv1", conv_without_bias(3, first_width, 7, 2));
    net->bn1 = tri_module_add_child(self, "bn1", tri_nn_batch_norm2d(first_width, NULL));
    net->maxpool = tri_module_add_child(
        self, "maxpool", tri_nn_max_pool2d(3, &(tri_nn_pool2d_options){.stride = 2, .padding = 1}));
    for (int i = 0; i < 4; i++) {
        int64_t width = first_width << i;

        net->layer[i] = trii_model_child(self, "layer", i + 1, tri_nn_sequential_of(0, NULL));
        for (int k = 0; k < depths[kind][i + 1]; k++) {
            int stride = i > 0 && k == 0 ? 2 : 1;

            trii_model_child(net->layer[i], "", k,
                             tri_model_resnet_block(depth >= 50, channels, width, stride));
            channels = depth >= 50 ? 4 * width : width;
        }
    }
    net->fc = tri_module_add_child(self, "fc", tri_nn_linear(channels, classes, NULL));
    for (int64_t i = 0; i < tri_module_state_count(self); i++) { /* torchvision's values */
        tri_tensor *weight = tri_module_state(self, i).tensor;

        if (tri_tensor_ndim(weight) == 4 && tri_init_kaiming_normal(weight, 0, TRI_FAN_OUT) < 0)
            break; /* no memory: the weight carries the error */
    }
    return self;
}
