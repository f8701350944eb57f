/*
 * embedding_layer.c - embedding: looks up rows of a weight by index; embedding_bag: and reduces
 * them.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/option.h"
#include "base/param.h"
#include "train/nn/module.h"

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

const tri_embedding_options *trii_embedding_options_of(const tri_module *module)
{
    return module->type->forward == embedding_forward ? &((const embedding *)module->data)->opt
                                                      : NULL;
}

tri_tensor *tri_nn_embedding_scores(tri_module *module, tri_tensor *x)
{
    tri_status status = trii_need(module, "tri_nn_embedding_scores", "embedding");

    if (status == TRI_OK)
        status = trii_need(x, "tri_nn_embedding_scores", "x");
    if (status == TRI_OK)
        status = tri_module_status(module);
    if (status == TRI_OK && trii_embedding_options_of(module) == NULL)
        status =
            TRII_FAIL(TRI_ERR_INVALID_ARG, "tri_nn_embedding_scores: a %s has no table of rows",
                      module->type->name);
    if (status != TRI_OK)
        return trii_forward_failed(status);
    return module->cut != NULL && module->cut->scores != NULL
               ? trii_scores_cut(module, x)
               : tri_linear(x, ((const embedding *)module->data)->weight, NULL);
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

/* What both refuse; *padding_io becomes the row's number. */
static tri_status check_table(const char *name, int64_t rows, int64_t dim, tri_opt *padding_io)
{
    char what[64];
    int64_t padding_idx;
    tri_status status;

    snprintf(what, sizeof(what), "%s: padding_idx", name);
    status = trii_option_whole(*padding_io, what, 0, &padding_idx);
    if (status != TRI_OK)
        return status;
    if (rows < 1 || dim < 1)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s(%lld, %lld): %s must be at least 1", name,
                         (long long)rows, (long long)dim,
                         rows < 1 ? "num_embeddings" : "embedding_dim");
    if (padding_idx < -rows || padding_idx >= rows)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s(%lld, %lld): padding_idx %lld is out of range (%lld rows)", name,
                         (long long)rows, (long long)dim, (long long)padding_idx, (long long)rows);
    padding_io->value = (double)(padding_idx < 0 ? padding_idx + rows : padding_idx);
    return TRI_OK;
}

/* The weight of a new layer, with its initial values. */
static tri_tensor *add_table(tri_module *self, int64_t rows, int64_t dim, tri_opt padding_idx)
{
    const int64_t shape[2] = {rows, dim};
    tri_tensor *weight = tri_module_add_parameter(self, "weight", trii_parameter_new(shape, 2));
    tri_status status = tri_init_normal(weight, 0.0, 1.0);

    if (status == TRI_OK && padding_idx.given != NULL)
        status = clear_row(weight, rows, (int64_t)padding_idx.value);
    if (status != TRI_OK)
        trii_module_fail(self, status);
    return weight;
}

tri_module *tri_nn_embedding(int64_t num_embeddings, int64_t embedding_dim,
                             const tri_embedding_options *opt)
{
    static const tri_module_class type = {.name = "Embedding",
                                          .size = sizeof(embedding),
                                          .forward = embedding_forward,
                                          .extra_repr = embedding_repr};
    tri_embedding_options o = opt != NULL ? *opt : (tri_embedding_options){0};
    tri_module *self;
    embedding *layer;
    tri_status status = TRII_CHECK_RESERVED(tri_embedding_options, opt);

    if (status == TRI_OK)
        status = check_table("nn_embedding", num_embeddings, embedding_dim, &o.padding_idx);
    if (status != TRI_OK)
        return trii_module_failed(status);
    self = tri_module_create(&type);
    if (tri_module_status(self) < 0)
        return self;
    layer = tri_module_data(self);
    layer->opt = o;
    layer->weight = add_table(self, num_embeddings, embedding_dim, o.padding_idx);
    return self;
}

/* --- bags ----------------------------------------------------------------- */

typedef struct embedding_bag {
    tri_tensor *weight;
    tri_embedding_bag_options opt; /* padding_idx is not negative */
} embedding_bag;

static void bag_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                        int n_out)
{
    const embedding_bag *layer = tri_module_data(self);
    tri_embedding_bag_options opt = layer->opt;

    if (n_in < 1 || n_in > 3 || n_out != 1) {
        trii_forward_refused(TRII_FAIL(TRI_ERR_INVALID_ARG,
                                       "%s takes indices, offsets and per_sample_weights (the last "
                                       "two may be left out) to 1 output, not %d to %d",
                                       self->type->name, n_in, n_out),
                             out, n_out);
        return;
    }
    opt.per_sample_weights = n_in > 2 ? in[2] : NULL;
    out[0] = tri_embedding_bag(in[0], layer->weight, n_in > 1 ? in[1] : NULL, &opt);
}

static int bag_repr(tri_module *self, char *text, size_t bytes)
{
    static const char *const modes[] = {
        [TRI_BAG_MEAN] = "mean", [TRI_BAG_SUM] = "sum", [TRI_BAG_AMAX] = "max"};
    const embedding_bag *layer = tri_module_data(self);
    char padding[40] = "";

    if (layer->opt.padding_idx.given != NULL)
        snprintf(padding, sizeof(padding), ", padding_idx=%lld",
                 (long long)layer->opt.padding_idx.value);
    return snprintf(text, bytes, "%lld, %lld, mode='%s'%s",
                    (long long)tri_tensor_size(layer->weight, 0),
                    (long long)tri_tensor_size(layer->weight, 1), modes[layer->opt.mode], padding);
}

tri_module *tri_nn_embedding_bag(int64_t num_embeddings, int64_t embedding_dim,
                                 const tri_nn_embedding_bag_options *opt)
{
    static const tri_module_class type = {.name = "EmbeddingBag",
                                          .size = sizeof(embedding_bag),
                                          .forward = bag_forward,
                                          .extra_repr = bag_repr};
    tri_nn_embedding_bag_options o = opt != NULL ? *opt : (tri_nn_embedding_bag_options){0};
    tri_module *self;
    embedding_bag *layer;
    tri_status status = TRII_CHECK_RESERVED(tri_nn_embedding_bag_options, opt);

    if (status == TRI_OK)
        status = check_table("nn_embedding_bag", num_embeddings, embedding_dim, &o.padding_idx);
    if (status == TRI_OK && o.mode != TRI_BAG_MEAN && o.mode != TRI_BAG_SUM &&
        o.mode != TRI_BAG_AMAX)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG,
                           "nn_embedding_bag(%lld, %lld): mode %d: mean, sum and max are allowed",
                           (long long)num_embeddings, (long long)embedding_dim, (int)o.mode);
    if (status != TRI_OK)
        return trii_module_failed(status);
    self = tri_module_create(&type);
    if (tri_module_status(self) < 0)
        return self;
    layer = tri_module_data(self);
    layer->opt = (tri_embedding_bag_options){
        .mode = o.mode, .include_last_offset = o.include_last_offset, .padding_idx = o.padding_idx};
    layer->weight = add_table(self, num_embeddings, embedding_dim, o.padding_idx);
    return self;
}
