/*
 * simple_layer.h - layers without parameters: attributes and one operation.
 */
#ifndef TRII_SIMPLE_LAYER_H
#define TRII_SIMPLE_LAYER_H

#include "train/nn/module.h"

/* Attributes of any of these layers; each uses its own. */
typedef struct trii_simple_layer {
    tri_tensor *(*apply)(const tri_module *self, const struct trii_simple_layer *layer,
                         tri_tensor *x);
    tri_tensor *(*unary)(tri_tensor *x);
    int a, b;
    double p;
    tri_pool_options pool;
} trii_simple_layer;

void trii_simple_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                         int n_out);
tri_module *trii_simple_new(const tri_module_class *type, trii_simple_layer attributes);
/* apply of a layer that is one operation of one operand. */
tri_tensor *trii_simple_unary(const tri_module *self, const trii_simple_layer *layer,
                              tri_tensor *x);

/* `repr` is its extra_repr. */
#define TRII_SIMPLE_CLASS(label, repr)                                                             \
    {                                                                                              \
        .name = label, .size = sizeof(trii_simple_layer), .forward = trii_simple_forward,          \
        .extra_repr = repr                                                                         \
    }

#endif
