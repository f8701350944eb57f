/*
 * random_net.h - the network of a random program, its data and its optimizers. Tests only.
 */
#ifndef TEST_RANDOM_NET_H
#define TEST_RANDOM_NET_H

#include "strategies/random_program.h"
#include "train/tensor/persistent.h"

/* --- the network ---------------------------------------------------------- */

typedef struct random_net {
    const program *p;
    tri_module *first, *last, *layer[PROGRAM_LAYERS];
    tri_tensor *param[PROGRAM_LAYERS];
} random_net;

static _Thread_local unsigned branches; /* those that the batch takes, a bit for each layer */

static tri_tensor *layer_forward(const random_net *net, int i, tri_tensor *x)
{
    switch (net->p->layers[i].kind) {
    case BRANCH:
        return (branches >> i & 1) != 0 ? tri_add(x, tri_forward(net->layer[i], x)) : x;
    case SCALE:
        return tri_mul(x, net->param[i]);
    case EMPTY:
        return tri_concat((tri_tensor *[]){x, net->param[i]}, 2, 0);
    case UNREACHED:
        return x;
    case LINEAR:
    case AGAIN:
    case FROZEN:
    case PIECES:
        return tri_tanh(tri_forward(net->layer[i], x));
    default:
        return tri_forward(net->layer[i], x);
    }
}

static tri_tensor *random_net_forward(tri_module *self, tri_tensor *x)
{
    const random_net *net = tri_module_data(self);

    x = tri_tanh(tri_forward(net->first, x));
    for (int i = 0; i < net->p->n_layers; i++)
        x = layer_forward(net, i, x);
    return tri_forward(net->last, x);
}

/* What AGAIN is of, or NULL. */
static tri_module *linear_before(const random_net *net, int i)
{
    for (int j = i - 1; j >= 0; j--)
        if (net->p->layers[j].kind <= BRANCH && net->layer[j] != NULL)
            return net->layer[j];
    return NULL;
}

static tri_module *layer_of(const program *p, layer_kind kind)
{
    const int64_t width = p->width;

    switch (kind) {
    case NORM:
        return tri_nn_layer_norm(&width, 1, NULL);
    case DROPOUT:
        return tri_nn_dropout(0.3);
    case STATISTICS:
        return tri_nn_batch_norm1d(width, NULL);
    default:
        return tri_nn_linear(width, width, &(tri_nn_linear_options){.no_bias = !p->bias});
    }
}

static void add_layer(tri_module *self, random_net *net, int i)
{
    const program *p = net->p;
    const layer_kind kind = p->layers[i].kind;
    tri_tensor *param;
    char name[16];

    snprintf(name, sizeof(name), "layer%d", i);
    if (kind == SCALE || kind == EMPTY) {
        param =
            tri_tensor_create(kind == SCALE ? (const int64_t[]){1} : (const int64_t[]){0, p->width},
                              kind == SCALE ? 1 : 2, p->dtype);
        net->param[i] = tri_module_add_parameter(self, name, param);
        if (tri_init_constant(param, 0.9) != TRI_OK)
            tri_module_fail(self, TRI_ERR_INTERNAL, "no value");
        return;
    }
    net->layer[i] = kind == AGAIN ? linear_before(net, i) : NULL;
    if (net->layer[i] != NULL)
        return;
    net->layer[i] = layer_of(p, kind);
    if (kind == PIECES)
        net->layer[i] = tri_data_parallel(
            net->layer[i],
            &(tri_data_parallel_options){.device_ids = (tri_device[]){TRI_CPU(0), TRI_CPU(1)},
                                         .n_devices = 2});
    tri_module_add_child(self, name, net->layer[i]);
    if (kind == FROZEN)
        tri_module_requires_grad(net->layer[i], false);
    tri_module_set_recompute(net->layer[i], p->layers[i].recompute);
}

/* The seed is the process's: one thread at a time draws initial values. */
static trii_mutex drawing = TRII_MUTEX_INITIALIZER;

static tri_module *random_net_build(const program *p)
{
    tri_module *self;
    random_net *net;

    trii_mutex_lock(&drawing);
    tri_manual_seed(p->number + 1);
    tri_set_default_dtype(p->dtype);
    self = tri_module_simple("RandomNet", sizeof(random_net), random_net_forward);
    net = tri_module_data(self);
    net->p = p;
    net->first = tri_module_add_child(self, "first", tri_nn_linear(PROGRAM_IN, p->width, NULL));
    for (int i = 0; i < p->n_layers; i++)
        add_layer(self, net, i);
    net->last = tri_module_add_child(self, "last", tri_nn_linear(p->width, PROGRAM_OUT, NULL));
    tri_set_default_dtype(TRI_DTYPE_F32);
    trii_mutex_unlock(&drawing);
    return self;
}

/* --- data ----------------------------------------------------------------- */

static tri_tensor *some_rows(const program *p, int rows, int width, uint64_t from)
{
    tri_tensor *t;
    float small[PROGRAM_ROWS * PROGRAM_IN];
    double data[PROGRAM_ROWS * PROGRAM_IN];

    for (int i = 0; i < rows * width; i++) {
        data[i] = number_of(p->number, from + (uint64_t)i, 2001) / 1000.0 - 1;
        small[i] = (float)data[i];
    }
    t = tri_tensor_from(TRI_SHAPE(rows, width), p->dtype,
                        p->dtype == TRI_DTYPE_F64 ? (const void *)data : small);
    return t;
}

/* The loss of a batch: which one is its number, of which the step is `batch / 100`. */
static tri_tensor *random_loss(const program *p, tri_module *model, uint64_t batch)
{
    const uint64_t from = 1000 + batch * 1000;
    int rows = p->empty_batches && number_of(p->number, from, 4) == 0
                   ? 0
                   : 2 + number_of(p->number, from + 1, PROGRAM_ROWS - 1);
    tri_tensor *x = some_rows(p, rows, PROGRAM_IN, from + 10),
               *y = some_rows(p, rows, PROGRAM_OUT, from + 100), *loss;

    branches = (unsigned)number_of(p->number, (p->own_branches ? from : batch / 100 * 100000) + 2,
                                   1 << PROGRAM_LAYERS);
    if (p->autocast != 0)
        tri_autocast_begin(p->autocast);
    loss = tri_mse_loss(tri_forward(model, x), y, NULL);
    if (p->autocast != 0)
        tri_autocast_end();
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    return loss;
}

/* --- optimizers ----------------------------------------------------------- */

#define NET_PARAMS 64

/* Of the parameters that are trained every second one, from `first` on. */
static int some_params(tri_module *model, int first, int each, tri_tensor **params)
{
    int seen = 0, n = 0;

    for (int64_t i = 0; i < tri_module_state_count(model); i++) {
        tri_state_entry e = tri_module_state(model, i);

        if (e.parameter && e.tensor->requires_grad && seen++ % each == first)
            params[n++] = e.tensor;
    }
    return n;
}

static tri_optimizer *optimizer_of_groups(const program *p, const tri_param_group *groups, int n)
{
    const tri_rmsprop_options rmsprop = {.momentum = 0.5, .centered = true};

    switch (p->optimizer) {
    case P_SGD:
        return tri_sgd_of(groups, n, 0.1, NULL);
    case P_MOMENTUM:
        return tri_sgd_of(
            groups, n, 0.1,
            &(tri_sgd_options){.momentum = 0.9, .nesterov = true, .weight_decay = 0.01});
    case P_ADAM:
        return tri_adam_of(groups, n, 0.01, NULL);
    case P_ADAMW:
        return tri_adamw_of(groups, n, 0.01, NULL);
    case P_AMSGRAD:
        return tri_adam_of(groups, n, 0.01, &(tri_adam_options){.amsgrad = true});
    case P_RMSPROP:
        return tri_rmsprop_of(groups, n, 0.01, &rmsprop);
    default:
        return tri_adagrad_of(groups, n, 0.05, NULL);
    }
}

/* One of all parameters, in one group or in two, or one of each half of them. */
static int random_optimizers(const program *p, tri_module *model, tri_optimizer **opt)
{
    tri_tensor *half[2][NET_PARAMS];
    tri_param_group groups[2];

    if (!p->two_optimizers && !p->classes) {
        opt[0] = optimizer_of_groups(p, &(tri_param_group){.model = model}, 1);
        return 1;
    }
    for (int g = 0; g < 2; g++)
        groups[g] =
            (tri_param_group){.params = half[g], .n_params = some_params(model, g, 2, half[g])};
    groups[1].weight_decay = TRI_SET(0.05);
    groups[1].lr = TRI_SET(0.02);
    for (int g = 0; g < 2 && p->two_optimizers; g++)
        opt[g] = optimizer_of_groups(p, &groups[g], 1);
    if (!p->two_optimizers)
        opt[0] = optimizer_of_groups(p, groups, 2);
    return p->two_optimizers ? 2 : 1;
}

#endif
