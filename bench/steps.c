/*
 * steps.c - time of a training step of one process, through the public API:
 *
 *     bench_steps MODEL [BATCH [STEPS [RUNS [bf16]]]]
 *         MODEL: toy, lstm (the layers of a word language model), fashion, resnet18, resnet18_64
 *
 * prints the median of RUNS runs of STEPS steps each, in microseconds a step. Inputs are copied in
 * again each step, as training does; losses are not read. BENCH_CPU=1 counts processor time instead
 * of wall time: for busy machines.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/optim.h>

#include "timing.h"

static tri_module *conv(int64_t in, int64_t out, int kernel, int stride)
{
    return tri_nn_conv2d(
        in, out, kernel,
        &(tri_nn_conv2d_options){.stride = stride, .padding = kernel / 2, .no_bias = true});
}

static tri_module *conv_bn(int64_t in, int64_t out)
{
    return tri_nn_sequential(conv(in, out, 3, 1), tri_nn_batch_norm2d(out, NULL), tri_nn_relu());
}

/* x (or `way`(x)) + body(x), through a ReLU if wanted. */
typedef struct around {
    tri_module *body, *way;
    bool relu;
} around;

static void around_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                           int n_out)
{
    around *a = tri_module_data(self);
    tri_tensor *y = tri_forward(a->body, in[0]);

    (void)n_in;
    (void)n_out;
    y = tri_add(y, a->way != NULL ? tri_forward(a->way, in[0]) : in[0]);
    out[0] = a->relu ? tri_relu(y) : y;
}

static tri_module *residual(tri_module *own_body, tri_module *own_way, bool relu)
{
    static const tri_module_class type = {
        .name = "residual", .size = sizeof(around), .forward = around_forward};
    tri_module *self = tri_module_create(&type);
    around *a = tri_module_data(self);

    if (a == NULL)
        exit(1);
    a->body = tri_module_add_child(self, "body", own_body);
    a->way = own_way != NULL ? tri_module_add_child(self, "way", own_way) : NULL;
    a->relu = relu;
    return self;
}

static tri_module *fashion_block(int64_t width)
{
    return residual(tri_nn_sequential(conv_bn(width, width), conv_bn(width, width)), NULL, false);
}

static tri_module *fashion(void)
{
    return tri_nn_sequential(conv_bn(1, 16), tri_nn_max_pool2d(2, NULL), conv_bn(16, 32),
                             fashion_block(32), tri_nn_max_pool2d(2, NULL), conv_bn(32, 64),
                             fashion_block(64), tri_nn_adaptive_max_pool2d(1, 1), tri_nn_flatten(1),
                             tri_nn_linear(64, 10, NULL));
}

static tri_module *resnet_block(int64_t in, int64_t out, int stride)
{
    tri_module *body =
        tri_nn_sequential(conv(in, out, 3, stride), tri_nn_batch_norm2d(out, NULL), tri_nn_relu(),
                          conv(out, out, 3, 1), tri_nn_batch_norm2d(out, NULL));
    tri_module *way = NULL;

    if (stride != 1 || in != out)
        way = tri_nn_sequential(conv(in, out, 1, stride), tri_nn_batch_norm2d(out, NULL));
    return residual(body, way, true);
}

static tri_module *resnet18(void)
{
    const tri_nn_pool2d_options halve = {.stride = 2, .padding = 1};

    return tri_nn_sequential(
        conv(3, 64, 7, 2), tri_nn_batch_norm2d(64, NULL), tri_nn_relu(),
        tri_nn_max_pool2d(3, &halve), resnet_block(64, 64, 1), resnet_block(64, 64, 1),
        resnet_block(64, 128, 2), resnet_block(128, 128, 1), resnet_block(128, 256, 2),
        resnet_block(256, 256, 1), resnet_block(256, 512, 2), resnet_block(512, 512, 1),
        tri_nn_adaptive_avg_pool2d(1, 1), tri_nn_flatten(1), tri_nn_linear(512, 1000, NULL));
}

typedef struct task {
    tri_module *net;
    tri_optimizer *opt;
    tri_tensor *x, *y;
    void *x_data, *y_data;
    size_t x_bytes, y_bytes;
    bool classes, bf16;
} task;

static void step(task *t)
{
    tri_tensor *out, *loss;

    TRI_TRY(tri_tensor_copy_in(t->x, t->x_data, t->x_bytes));
    TRI_TRY(tri_tensor_copy_in(t->y, t->y_data, t->y_bytes));
    if (t->bf16)
        tri_autocast_begin(TRI_DTYPE_BF16);
    out = tri_forward(t->net, t->x);
    if (t->bf16)
        tri_autocast_end();
    loss = t->classes ? tri_cross_entropy(out, t->y, NULL) : tri_mse_loss(out, t->y, NULL);
    tri_backward(loss);
    TRI_TRY(tri_optimizer_step(t->opt));
    tri_step_end();
}

/* Numbers without a pattern; any will do. */
static uint32_t random_word(void)
{
    static uint32_t state = 1;

    state = state * 1664525u + 1013904223u;
    return state >> 8;
}

static void make_data(task *t, const int64_t *shape, int ndim, int64_t outputs)
{
    int64_t n = 1, rows = shape[0], n_y = t->classes ? rows : rows * outputs;
    float *x;

    for (int d = 0; d < ndim; d++)
        n *= shape[d];
    t->x_bytes = (size_t)n * sizeof(float);
    t->y_bytes = (size_t)n_y * (t->classes ? sizeof(int64_t) : sizeof(float));
    x = t->x_data = malloc(t->x_bytes);
    t->y_data = malloc(t->y_bytes);
    if (x == NULL || t->y_data == NULL)
        exit(1);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)random_word() / 16777216.0f - 0.5f;
    for (int64_t i = 0; i < n_y; i++) {
        if (t->classes)
            ((int64_t *)t->y_data)[i] = random_word() % (uint32_t)outputs;
        else
            ((float *)t->y_data)[i] = (float)random_word() / 16777216.0f;
    }
    t->x = tri_tensor_create(shape, ndim, TRI_DTYPE_F32);
    t->y = tri_tensor_create((int64_t[]){rows, outputs}, t->classes ? 1 : 2,
                             t->classes ? TRI_DTYPE_I64 : TRI_DTYPE_F32);
}

static int number(int argc, char **argv, int i, int fallback)
{
    return argc > i ? (int)strtol(argv[i], NULL, 10) : fallback;
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "toy";
    int64_t batch = number(argc, argv, 2, 0);
    int steps = number(argc, argv, 3, 10), runs = number(argc, argv, 4, 5);
    double *times = malloc((size_t)runs * sizeof(double));
    task t = {.classes = true, .bf16 = argc > 5 && strcmp(argv[5], "bf16") == 0};

    if (strcmp(name, "toy") == 0) {
        t.classes = false;
        t.net = tri_nn_sequential(tri_nn_linear(10, 10, NULL), tri_nn_relu(),
                                  tri_nn_linear(10, 5, NULL));
        make_data(&t, (int64_t[]){batch > 0 ? batch : 20, 10}, 2, 5);
    } else if (strcmp(name, "lstm") == 0) {
        batch = batch > 0 ? batch : 20;
        t.classes = false;
        t.net = tri_nn_sequential(tri_nn_lstm(200, 200, &(tri_nn_lstm_options){.num_layers = 2}),
                                  tri_nn_flatten(1));
        make_data(&t, (int64_t[]){35, batch, 200}, 3, batch * 200);
    } else if (strcmp(name, "fashion") == 0) {
        t.net = fashion();
        make_data(&t, (int64_t[]){batch > 0 ? batch : 64, 1, 28, 28}, 4, 10);
    } else if (strncmp(name, "resnet18", 8) == 0) {
        int64_t size = name[8] == '_' ? strtol(name + 9, NULL, 10) : 224;

        t.net = resnet18();
        make_data(&t, (int64_t[]){batch > 0 ? batch : 16, 3, size, size}, 4, 1000);
    } else {
        fprintf(stderr,
                "usage: %s toy|lstm|fashion|resnet18[_SIZE] [BATCH [STEPS [RUNS [bf16]]]]\n",
                argv[0]);
        return 2;
    }
    if (times == NULL)
        return 1;
    t.opt = tri_sgd(t.net, 0.001, &(tri_sgd_options){.momentum = t.classes ? 0.9 : 0});
    for (int i = 0; i < 3; i++)
        step(&t);
    for (int r = 0; r < runs; r++) {
        double begin = cost_us();

        for (int i = 0; i < steps; i++)
            step(&t);
        times[r] = (cost_us() - begin) / steps;
    }
    printf("%.3f\n", median(times, runs));
    tri_optimizer_destroy(t.opt);
    tri_module_destroy(t.net);
    tri_tensor_unref(t.x);
    tri_tensor_unref(t.y);
    free(t.x_data);
    free(t.y_data);
    free(times);
    return 0;
}
