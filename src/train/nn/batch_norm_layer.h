/*
 * batch_norm_layer.h - batch normalisation as a layer: tri_nn_batch_norm1d and 2d, and for
 * parallel/ the form that shares its statistics, which a module may become later.
 */
#ifndef TRII_BATCH_NORM_LAYER_H
#define TRII_BATCH_NORM_LAYER_H

#include "train/graph/ops/shared_statistics.h"
#include "train/nn/module.h"

/* The data of a module. */
typedef struct trii_batch_norm {
    tri_batch_norm_args args;
    int64_t channels;
    bool cumulative;
    tri_tensor *num_batches_tracked; /* NULL: it has no running statistics */
    tri_tensor *one;                 /* owned */
    /* of a class that shares statistics; NULL in plain batch norm */
    void *shared;
} trii_batch_norm;

extern const tri_module_class trii_batch_norm1d_class, trii_batch_norm2d_class;

/* `label` is the function's name, for messages. */
tri_module *trii_batch_norm_new(const tri_module_class *type, const char *label, int64_t channels,
                                const tri_nn_batch_norm2d_options *opt);
/* forward for x of any shape [N, C, ..]. NULL: by its own batch alone. */
tri_tensor *trii_batch_norm_forward(tri_module *self, tri_tensor *x, const trii_exchange *exchange);
int trii_batch_norm_repr(tri_module *self, char *text, size_t bytes);
void trii_batch_norm_destroy(tri_module *self);

#endif
