/*
 * embedding.c - rows of a table by index, and the gradient: rows are added up in the order in which
 * they were taken.
 */
#include <inttypes.h>
#include <string.h>

#include "base/option.h"
#include "train/graph/ops/kernel_rules.h"
#include "train/graph/ops/rules.h"

/* in weight indices; i: padding index, -1 = none */
static tri_status embedding_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                                  trii_type *out, int *n_out)
{
    tri_status status = trii_rule_ndim(in[0], 2, "weight");

    (void)n_in;
    *n_out = 1;
    if (status == TRI_OK)
        status = trii_rule_index(in[1], "indices");
    if (status == TRI_OK && in[1]->ndim == TRI_MAX_DIMS)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "indices of %d dimensions, at most %d are allowed",
                           in[1]->ndim, TRI_MAX_DIMS - 1);
    if (status == TRI_OK && attrs->i[0] >= in[0]->shape[0])
        status = TRII_FAIL(TRI_ERR_INVALID_ARG,
                           "padding_idx %" PRId64 " is out of range (%" PRId64 " rows)",
                           attrs->i[0], in[0]->shape[0]);
    if (status != TRI_OK)
        return status;
    trii_type_copy(out, in[1]);
    out->dtype = in[0]->dtype;
    out->shape[out->ndim++] = in[0]->shape[1];
    return TRI_OK;
}

static tri_status embedding_reference(const trii_kernel_args *args)
{
    const trii_type *weight = args->in[0].type;
    size_t row = (size_t)weight->shape[1] * tri_dtype_size(weight->dtype);
    const int64_t *index = args->in[1].data;
    int64_t n = trii_type_numel(args->in[1].type);
    tri_status status = TRI_OK;

    for (int64_t i = 0; i < n && status == TRI_OK; i++) {
        status = trii_index_check(index[i], i, weight->shape[0], "rows");
        if (status == TRI_OK && row > 0)
            memcpy((char *)args->out[0].data + (size_t)i * row,
                   (const char *)args->in[0].data + (size_t)index[i] * row, row);
    }
    return status;
}

const trii_graph_op trii_op_embedding = {
    .name = "embedding",
    .may_refuse = true,
    .precision = TRII_PRECISION_ANY,
    .shape = embedding_shape,
    .gradient = TRII_GRADIENT_embedding,
    .reference = embedding_reference,
};

static tri_status backward_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                                 trii_type *out, int *n_out)
{
    (void)n_in;
    *n_out = 1;
    out->dtype = in[0]->dtype;
    out->ndim = 2;
    out->shape[0] = attrs->i[1];
    out->shape[1] = in[0]->shape[in[0]->ndim - 1];
    return trii_rule_float(in[0], "g");
}

static tri_status backward_kernel(const trii_kernel_args *args)
{
    const trii_type *out = args->out[0].type;
    int64_t n = trii_type_numel(args->in[1].type), cols = out->shape[1];
    const double *g = args->in[0].data;
    const int64_t *index = args->in[1].data;
    double *dw = args->out[0].data;
    tri_status status = TRI_OK;

    for (int64_t i = 0; i < trii_type_numel(out); i++)
        dw[i] = 0;
    for (int64_t i = 0; i < n && status == TRI_OK; i++) {
        status = trii_index_check(index[i], i, out->shape[0], "rows");
        for (int64_t c = 0; c < cols && status == TRI_OK && index[i] != args->iattr[0]; c++)
            dw[index[i] * cols + c] += g[i * cols + c];
    }
    return status;
}

static tri_status backward_reference(const trii_kernel_args *args)
{
    return trii_in_double(args, backward_kernel);
}

const trii_graph_op trii_op_embedding_backward = {
    .name = "embedding_backward",
    .shape = backward_shape,
    .gradient = TRII_GRADIENT_embedding_backward,
    .reference = backward_reference,
};

tri_tensor *tri_embedding(tri_tensor *indices, tri_tensor *weight, const tri_embedding_options *opt)
{
    int64_t rows = weight != NULL ? tri_tensor_size(weight, 0) : 0;
    bool padded = opt != NULL && opt->padding_idx.given != NULL;
    int64_t padding_idx = -1;
    trii_attrs attrs;
    tri_status status = TRII_CHECK_RESERVED_INLINE(tri_embedding_options, opt);

    if (status == TRI_OK && padded)
        status =
            trii_option_whole(opt->padding_idx, "tri_embedding: padding_idx", -1, &padding_idx);
    attrs.n_i = 1;
    attrs.n_f = 0;
    attrs.i[0] = padded && padding_idx < 0 ? padding_idx + rows : padding_idx;
    if (status == TRI_OK && padded && attrs.i[0] < 0 && rows > 0)
        status =
            TRII_FAIL(TRI_ERR_INVALID_ARG,
                      "tri_embedding: padding_idx %" PRId64 " is out of range (%" PRId64 " rows)",
                      padding_idx, rows);
    if (status != TRI_OK)
        return trii_handle_failed(trii_step_current(), status);
    return trii_record(&trii_op_embedding, (tri_tensor *const[]){weight, indices}, 2, &attrs);
}
