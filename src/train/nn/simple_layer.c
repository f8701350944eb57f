/*
 * simple_layer.c - what layers without parameters share, and the simplest of them.
 */
#include "train/nn/simple_layer.h"

#include "base/err.h"

void trii_simple_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                         int n_out)
{
    const trii_simple_layer *layer = tri_module_data(self);

    if (n_in == 1 && n_out == 1) {
        out[0] = layer->apply(self, layer, in[0]);
        return;
    }
    (void)trii_one_to_one(self, n_in, out, n_out); /* it says so */
}

tri_module *trii_simple_new(const tri_module_class *type, trii_simple_layer attributes)
{
    tri_module *self = tri_module_create(type);

    if (tri_module_status(self) == TRI_OK)
        *(trii_simple_layer *)tri_module_data(self) = attributes;
    return self;
}

tri_tensor *trii_simple_unary(const tri_module *self, const trii_simple_layer *layer, tri_tensor *x)
{
    (void)self;
    return layer->unary(x);
}

tri_module *tri_nn_relu(void)
{
    static const tri_module_class type = TRII_SIMPLE_CLASS("ReLU", NULL);

    return trii_simple_new(&type,
                           (trii_simple_layer){.apply = trii_simple_unary, .unary = tri_relu});
}

static tri_tensor *apply_identity(const tri_module *self, const trii_simple_layer *layer,
                                  tri_tensor *x)
{
    (void)self;
    (void)layer;
    return x;
}

tri_module *tri_nn_identity(void)
{
    static const tri_module_class type = TRII_SIMPLE_CLASS("Identity", NULL);

    return trii_simple_new(&type, (trii_simple_layer){.apply = apply_identity});
}
