/*
 * activation_layers.c - further activations, softmax, dropout, flatten.
 */
#include <stdio.h>

#include "base/err.h"
#include "train/nn/simple_layer.h"

static int gelu_repr(tri_module *self, char *text, size_t bytes)
{
    const trii_simple_layer *layer = tri_module_data(self);

    return snprintf(text, bytes, "approximate='%s'", layer->a == TRI_GELU_TANH ? "tanh" : "none");
}

static tri_tensor *apply_gelu(const tri_module *self, const trii_simple_layer *layer, tri_tensor *x)
{
    (void)self;
    return tri_gelu(x, (tri_gelu_form)layer->a);
}

tri_module *tri_nn_gelu(tri_gelu_form form)
{
    static const tri_module_class type = TRII_SIMPLE_CLASS("GELU", gelu_repr);

    if (form != TRI_GELU_ERF && form != TRI_GELU_TANH)
        return trii_module_failed(TRII_FAIL(TRI_ERR_INVALID_ARG,
                                            "nn_gelu: form %d is not TRI_GELU_ERF or TRI_GELU_TANH",
                                            (int)form));
    return trii_simple_new(&type, (trii_simple_layer){.apply = apply_gelu, .a = (int)form});
}

tri_module *tri_nn_silu(void)
{
    static const tri_module_class type = TRII_SIMPLE_CLASS("SiLU", NULL);

    return trii_simple_new(&type,
                           (trii_simple_layer){.apply = trii_simple_unary, .unary = tri_silu});
}

tri_module *tri_nn_tanh(void)
{
    static const tri_module_class type = TRII_SIMPLE_CLASS("Tanh", NULL);

    return trii_simple_new(&type,
                           (trii_simple_layer){.apply = trii_simple_unary, .unary = tri_tanh});
}

tri_module *tri_nn_sigmoid(void)
{
    static const tri_module_class type = TRII_SIMPLE_CLASS("Sigmoid", NULL);

    return trii_simple_new(&type,
                           (trii_simple_layer){.apply = trii_simple_unary, .unary = tri_sigmoid});
}

static int dropout_repr(tri_module *self, char *text, size_t bytes)
{
    char p[TRII_FLOAT_TEXT];

    return snprintf(text, bytes, "p=%s, inplace=False",
                    trii_float_text(((trii_simple_layer *)tri_module_data(self))->p, p));
}

static tri_tensor *apply_dropout(const tri_module *self, const trii_simple_layer *layer,
                                 tri_tensor *x)
{
    return tri_dropout(x, layer->p, self->training);
}

static tri_module *new_dropout(const tri_module_class *type, const char *name, double p,
                               tri_tensor *(*apply)(const tri_module *self,
                                                    const trii_simple_layer *layer, tri_tensor *x))
{
    if (!(p >= 0 && p <= 1))
        return trii_module_failed(
            TRII_FAIL(TRI_ERR_INVALID_ARG, "%s(%g): p must be in [0, 1]", name, p));
    return trii_simple_new(type, (trii_simple_layer){.apply = apply, .p = p});
}

tri_module *tri_nn_dropout(double p)
{
    static const tri_module_class type = TRII_SIMPLE_CLASS("Dropout", dropout_repr);

    return new_dropout(&type, "nn_dropout", p, apply_dropout);
}

static tri_tensor *apply_dropout2d(const tri_module *self, const trii_simple_layer *layer,
                                   tri_tensor *x)
{
    return tri_dropout2d(x, layer->p, self->training);
}

tri_module *tri_nn_dropout2d(double p)
{
    static const tri_module_class type = TRII_SIMPLE_CLASS("Dropout2d", dropout_repr);

    return new_dropout(&type, "nn_dropout2d", p, apply_dropout2d);
}

static int flatten_repr(tri_module *self, char *text, size_t bytes)
{
    return snprintf(text, bytes, "start_dim=%d, end_dim=-1",
                    ((trii_simple_layer *)tri_module_data(self))->a);
}

static tri_tensor *apply_flatten(const tri_module *self, const trii_simple_layer *layer,
                                 tri_tensor *x)
{
    (void)self;
    return tri_flatten(x, layer->a);
}

tri_module *tri_nn_flatten(int start_dim)
{
    static const tri_module_class type = TRII_SIMPLE_CLASS("Flatten", flatten_repr);

    return trii_simple_new(&type, (trii_simple_layer){.apply = apply_flatten, .a = start_dim});
}

static int dim_repr(tri_module *self, char *text, size_t bytes)
{
    return snprintf(text, bytes, "dim=%d", ((trii_simple_layer *)tri_module_data(self))->a);
}

static tri_tensor *apply_softmax(const tri_module *self, const trii_simple_layer *layer,
                                 tri_tensor *x)
{
    (void)self;
    return tri_softmax(x, layer->a);
}

tri_module *tri_nn_softmax(int dim)
{
    static const tri_module_class type = TRII_SIMPLE_CLASS("Softmax", dim_repr);

    return trii_simple_new(&type, (trii_simple_layer){.apply = apply_softmax, .a = dim});
}

static tri_tensor *apply_log_softmax(const tri_module *self, const trii_simple_layer *layer,
                                     tri_tensor *x)
{
    (void)self;
    return tri_log_softmax(x, layer->a);
}

tri_module *tri_nn_log_softmax(int dim)
{
    static const tri_module_class type = TRII_SIMPLE_CLASS("LogSoftmax", dim_repr);

    return trii_simple_new(&type, (trii_simple_layer){.apply = apply_log_softmax, .a = dim});
}

static int leaky_relu_repr(tri_module *self, char *text, size_t bytes)
{
    char slope[TRII_FLOAT_TEXT];

    return snprintf(text, bytes, "negative_slope=%s",
                    trii_float_text(((trii_simple_layer *)tri_module_data(self))->p, slope));
}

static tri_tensor *apply_leaky_relu(const tri_module *self, const trii_simple_layer *layer,
                                    tri_tensor *x)
{
    (void)self;
    return tri_leaky_relu(x, layer->p);
}

tri_module *tri_nn_leaky_relu(double negative_slope)
{
    static const tri_module_class type = TRII_SIMPLE_CLASS("LeakyReLU", leaky_relu_repr);

    return trii_simple_new(&type,
                           (trii_simple_layer){.apply = apply_leaky_relu, .p = negative_slope});
}
