/*
 * activation_layers.c - further activations, softmax, dropout, flatten.
 */
#include "base/err.h"
#include "nn/simple_layer.h"

static tri_tensor *apply_gelu(const tri_module *self, const trii_simple_layer *layer, tri_tensor *x)
{
    (void)self;
    return tri_gelu(x, (tri_gelu_form)layer->a);
}

tri_module *tri_nn_gelu(tri_gelu_form form)
{
    static const tri_module_class type = TRII_SIMPLE_CLASS("gelu");

    if (form != TRI_GELU_ERF && form != TRI_GELU_TANH)
        return trii_module_failed(TRII_FAIL(TRI_ERR_INVALID_ARG,
                                            "nn_gelu: form %d is not TRI_GELU_ERF or TRI_GELU_TANH",
                                            (int)form));
    return trii_simple_new(&type, (trii_simple_layer){.apply = apply_gelu, .a = (int)form});
}

tri_module *tri_nn_silu(void)
{
    static const tri_module_class type = TRII_SIMPLE_CLASS("silu");

    return trii_simple_new(&type,
                           (trii_simple_layer){.apply = trii_simple_unary, .unary = tri_silu});
}

tri_module *tri_nn_tanh(void)
{
    static const tri_module_class type = TRII_SIMPLE_CLASS("tanh");

    return trii_simple_new(&type,
                           (trii_simple_layer){.apply = trii_simple_unary, .unary = tri_tanh});
}

tri_module *tri_nn_sigmoid(void)
{
    static const tri_module_class type = TRII_SIMPLE_CLASS("sigmoid");

    return trii_simple_new(&type,
                           (trii_simple_layer){.apply = trii_simple_unary, .unary = tri_sigmoid});
}

static tri_tensor *apply_dropout(const tri_module *self, const trii_simple_layer *layer,
                                 tri_tensor *x)
{
    return tri_dropout(x, layer->p, self->training);
}

tri_module *tri_nn_dropout(double p)
{
    static const tri_module_class type = TRII_SIMPLE_CLASS("dropout");

    if (!(p >= 0.0 && p < 1.0))
        return trii_module_failed(
            TRII_FAIL(TRI_ERR_INVALID_ARG, "nn_dropout(%g): p must be in [0, 1)", p));
    return trii_simple_new(&type, (trii_simple_layer){.apply = apply_dropout, .p = p});
}

static tri_tensor *apply_flatten(const tri_module *self, const trii_simple_layer *layer,
                                 tri_tensor *x)
{
    (void)self;
    return tri_flatten(x, layer->a);
}

tri_module *tri_nn_flatten(int start_dim)
{
    static const tri_module_class type = TRII_SIMPLE_CLASS("flatten");

    return trii_simple_new(&type, (trii_simple_layer){.apply = apply_flatten, .a = start_dim});
}

static tri_tensor *apply_softmax(const tri_module *self, const trii_simple_layer *layer,
                                 tri_tensor *x)
{
    (void)self;
    return tri_softmax(x, layer->a);
}

tri_module *tri_nn_softmax(int dim)
{
    static const tri_module_class type = TRII_SIMPLE_CLASS("softmax");

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
    static const tri_module_class type = TRII_SIMPLE_CLASS("log_softmax");

    return trii_simple_new(&type, (trii_simple_layer){.apply = apply_log_softmax, .a = dim});
}

static tri_tensor *apply_leaky_relu(const tri_module *self, const trii_simple_layer *layer,
                                    tri_tensor *x)
{
    (void)self;
    return tri_leaky_relu(x, layer->p);
}

tri_module *tri_nn_leaky_relu(double negative_slope)
{
    static const tri_module_class type = TRII_SIMPLE_CLASS("leaky_relu");

    return trii_simple_new(&type,
                           (trii_simple_layer){.apply = apply_leaky_relu, .p = negative_slope});
}
