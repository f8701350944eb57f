/*
 * embedding_layer.c - embedding: looks up rows of a weight by index.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/option.h"
#include "nn/module.h"

typedef struct embedding {
    tri_tensor *weight;
    tri_embedding_options opt; /* padding_idx is not negative */
} embedding;

static void embedding_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                              int n_out)
{
    const embedding *layer = tri_module_data(self);

    if (trii_one_to_one(self, n_in, out, n_out))
        out[0] = tri_embedding(in[0], layer->weight, &layer->opt);
}

static int embedding_repr(tri_module *self, char *text, size_t bytes)
{
    const embedding *layer = tri_module_data(self);
    char padding[40] = "";

    if (layer->opt.padding_idx.given != NULL)
        snprintf(padding, sizeof(padding), ", padding_idx=%lld",
                 (long long)layer->opt.padding_idx.value);
    return snprintf(text, bytes, "%lld, %lld%s", (long long)tri_tensor_size(layer->weight, 0),
                    (long long)tri_tensor_size(layer->weight, 1), padding);
}

/* Zeros one row: all rows are drawn before, as torch does. */
static tri_status clear_row(tri_tensor *weight, int64_t rows, int64_t row)
{
    size_t bytes = tri_dtype_size(tri_tensor_dtype(weight)) * (size_t)tri_tensor_numel(weight);
    size_t row_bytes = bytes / (size_t)rows;
    char *values = trii_alloc(bytes, 1, "embedding");
    tri_status status;

    if (values == NULL)
        return TRI_ERR_NO_MEMORY;
    status = tri_tensor_copy_out(weight, values, bytes);
    if (status == TRI_OK) {
        memset(values + (size_t)row * row_bytes, 0, row_bytes);
        status = tri_tensor_copy_in(weight, values, bytes);
    }
    trii_free(values);
    return status;
}

tri_module *tri_nn_embedding(int64_t num_embeddings, int64_t embedding_dim,
                             const tri_embedding_options *opt)
{
    static const tri_module_class type = {.name = "Embedding",
                                          .size = sizeof(embedding),
                                          .forward = embedding_forward,
                                          .extra_repr = embedding_repr};
    const int64_t shape[2] = {num_embeddings, embedding_dim};
    tri_embedding_options o = opt != NULL ? *opt : (tri_embedding_options){0};
    int64_t padding_idx;
    tri_module *self;
    embedding *layer;
    tri_status status = TRII_CHECK_RESERVED(tri_embedding_options, opt);

    if (status == TRI_OK)
        status = trii_option_whole(o.padding_idx, "nn_embedding: padding_idx", 0, &padding_idx);
    if (status != TRI_OK)
        return trii_module_failed(status);
    if (num_embeddings < 1 || embedding_dim < 1)
        return trii_module_failed(
            TRII_FAIL(TRI_ERR_INVALID_ARG, "nn_embedding(%lld, %lld): %s must be at least 1",
                      (long long)num_embeddings, (long long)embedding_dim,
                      num_embeddings < 1 ? "num_embeddings" : "embedding_dim"));
    if (padding_idx < -num_embeddings || padding_idx >= num_embeddings)
        return trii_module_failed(
            TRII_FAIL(TRI_ERR_INVALID_ARG,
                      "nn_embedding(%lld, %lld): padding_idx %lld is out of range (%lld rows)",
                      (long long)num_embeddings, (long long)embedding_dim, (long long)padding_idx,
                      (long long)num_embeddings));
    if (padding_idx < 0)
        padding_idx += num_embeddings;
    o.padding_idx.value = (double)padding_idx;
    self = tri_module_create(&type);
    if (tri_module_status(self) < 0)
        return self;
    layer = tri_module_data(self);
    layer->opt = o;
    layer->weight = tri_module_add_parameter(self, "weight", trii_parameter_new(shape, 2));
    status = tri_init_normal(layer->weight, 0.0, 1.0);
    if (status == TRI_OK && o.padding_idx.given != NULL)
        status = clear_row(layer->weight, num_embeddings, padding_idx);
    if (status != TRI_OK)
        trii_module_fail(self, status);
    return self;
}
