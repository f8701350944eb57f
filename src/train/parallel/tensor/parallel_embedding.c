/*
 * parallel_embedding.c - embeddings of which each rank has some rows (words of the vocabulary) or
 * some columns. By rows a rank has zeros for words of others, so that the sum over ranks has the
 * bits of the one row that is meant.
 */
#include <trireme/dist.h>
#include <trireme/ops.h>

#include "base/err.h"
#include "train/parallel/tensor/tensor_parallel.h"
#include "train/tensor/persistent.h"

static void by_rows(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out, int n_out)
{
    const trii_parallel_cut *cut = trii_parallel_cut_of(self);
    const tri_opt padding = trii_embedding_options_of(self)->padding_idx;
    tri_embedding_options here = {.padding_idx = TRI_DEFAULT};
    tri_tensor *index, *outside, *y;
    int64_t row = (int64_t)padding.value - cut->in.start;

    if (!trii_one_to_one(self, n_in, out, n_out))
        return;
    if (padding.given != NULL && row >= 0 && row < cut->in.n)
        here.padding_idx = TRI_SET(row);
    trii_share_note_whole(in[0]);
    index = trii_share_find(&cut->in, in[0], &outside);
    y = tri_masked_fill(tri_embedding(index, cut->weight, &here), tri_unsqueeze(outside, -1), 0.0);
    y = cut->gives == TRI_SHARDED_SEQUENCE ? trii_tokens_reduce(&cut->tokens, y)
                                           : tri_dist_reduce_from(y, cut->group);
    out[0] = cut->gives == TRI_SHARDED ? trii_share_give(&cut->out, y) : y;
}

static void by_columns(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                       int n_out)
{
    const trii_parallel_cut *cut = trii_parallel_cut_of(self);

    if (n_in > 0)
        trii_share_note_whole(in[0]);
    self->type->forward(self, in, n_in, out, n_out);
    if (n_out == 1 && cut->gives == TRI_WHOLE)
        out[0] = trii_share_join(&cut->out, out[0], -1);
    else
        trii_share_note(&cut->out);
}

/* The table as a layer after all others, whose input is whole: by rows it has some outputs of it,
 * by columns some inputs. */
static tri_tensor *scores_by_rows(tri_module *self, tri_tensor *x)
{
    const trii_parallel_cut *cut = trii_parallel_cut_of(self);

    return tri_linear(tri_dist_copy_to(x, cut->group), cut->weight, NULL);
}

static tri_tensor *scores_by_columns(tri_module *self, tri_tensor *x)
{
    const trii_parallel_cut *cut = trii_parallel_cut_of(self);

    x = trii_share_take(&cut->out, x, -1);
    return tri_dist_reduce_from(tri_linear(x, cut->weight, NULL), cut->group);
}

tri_status trii_parallel_embedding(const tri_module *module, const tri_parallel_rule *rule,
                                   trii_parallel_cut *cut)
{
    bool columns = rule->style == TRI_COLWISE;
    tri_status status = TRI_OK;

    if (rule->input != TRI_PARALLEL_DEFAULT || rule->parts > 1)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "an Embedding takes whole indices and has no parts: "
                                              "leave input and parts out");
    if (columns && rule->output == TRI_SHARDED_SEQUENCE)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "an Embedding cut by columns gives TRI_SHARDED or "
                         "TRI_WHOLE: one cut by rows gives parts of sequences");
    cut->base.forward = columns ? by_columns : by_rows;
    cut->base.scores = columns ? scores_by_columns : scores_by_rows;
    cut->takes = TRI_WHOLE;
    cut->gives = columns ? TRI_SHARDED : TRI_WHOLE;
    if (rule->output != TRI_PARALLEL_DEFAULT)
        cut->gives = rule->output;
    cut->weight = module->parameters.items[0].tensor;
    cut->in = (trii_share){.group = cut->group, .parts = 1, .whole = cut->weight->shape[0]};
    cut->out = (trii_share){.group = cut->group, .parts = 1, .whole = cut->weight->shape[1]};
    if (!columns)
        status = trii_share_out(cut->in.whole, rule, "rows", &cut->in);
    if (status == TRI_OK && (columns || cut->gives == TRI_SHARDED))
        status = trii_share_out(cut->out.whole, columns ? rule : NULL, "columns", &cut->out);
    trii_parallel_add_part(cut, cut->weight, columns, columns ? &cut->out : &cut->in);
    return status;
}
