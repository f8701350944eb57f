/*
 * parallel_linear.c - linear layers of which each rank has some outputs or some inputs.
 */
#include <string.h>

#include <trireme/dist.h>
#include <trireme/ops.h>

#include "base/err.h"
#include "train/parallel/tensor/tensor_parallel.h"
#include "train/tensor/persistent.h"

/* --- forward -------------------------------------------------------------- */

/* A rank that has another x than the others would leave them waiting: what is wrong goes through
 * the collectives, which give up the group. */
static tri_tensor *check_input(const trii_parallel_cut *cut, tri_tensor *x)
{
    const trii_share *in = &cut->in;
    int64_t wanted = cut->takes != TRI_SHARDED ? in->whole : in->n;
    tri_status status = cut->takes == TRI_SHARDED ? trii_share_check_order(x) : TRI_OK;

    if (x == NULL || tri_tensor_status(x) != TRI_OK)
        return x;
    if (status != TRI_OK)
        return trii_forward_failed(status);
    if (cut->takes == TRI_WHOLE)
        trii_share_note_whole(x);
    if (tri_tensor_ndim(x) >= 1 && tri_tensor_size(x, -1) == wanted)
        return x;
    return trii_forward_failed(TRII_FAIL(
        TRI_ERR_INVALID_ARG,
        "x %s: its last dimension must be %lld, %s%lld inputs (tri_parallel_rule.input)",
        tri_tensor_shape_text(x), (long long)wanted,
        cut->takes != TRI_SHARDED ? "all of its " : "this rank's part of ", (long long)in->whole));
}

/* Of a copy each rank has the gradient of its own use: theirs is the sum. */
static tri_tensor *shared(const trii_parallel_cut *cut, tri_tensor *parameter)
{
    return cut->sharers != NULL && parameter != NULL ? tri_dist_copy_to(parameter, cut->sharers)
                                                     : parameter;
}

static tri_tensor *product(const trii_parallel_cut *cut, tri_tensor *x, tri_tensor *bias)
{
    tri_tensor *weight = shared(cut, cut->weight), *y;

    bias = shared(cut, bias);
    if (!cut->in_out)
        return tri_linear(x, weight, bias);
    y = tri_matmul(x, weight);
    return bias != NULL ? tri_add(y, bias) : y;
}

/* Of all inputs to this rank's outputs. */
static tri_tensor *by_columns(const trii_parallel_cut *cut, tri_tensor *x)
{
    if (cut->takes == TRI_SHARDED)
        x = trii_share_join(&cut->in, x, -1);
    x = cut->takes == TRI_SHARDED_SEQUENCE ? trii_tokens_gather(&cut->tokens, x)
                                           : tri_dist_copy_to(x, cut->group);
    x = product(cut, x, cut->bias);
    if (cut->gives == TRI_SHARDED)
        trii_share_note_of(&cut->out, x);
    return cut->gives == TRI_WHOLE ? trii_share_join(&cut->out, x, -1) : x;
}

/* Of this rank's inputs, as a sum over ranks, to all outputs. */
static tri_tensor *by_rows(const trii_parallel_cut *cut, tri_tensor *x)
{
    bool by_tokens = cut->gives == TRI_SHARDED_SEQUENCE;

    if (cut->takes == TRI_WHOLE)
        x = trii_share_take(&cut->in, x, -1);
    x = product(cut, x, NULL);
    x = by_tokens ? trii_tokens_reduce(&cut->tokens, x) : tri_dist_reduce_from(x, cut->group);
    if (cut->bias != NULL) /* of which each rank has its tokens' part of the gradient then */
        x = tri_add(x, by_tokens ? tri_dist_copy_to(cut->bias, cut->group) : cut->bias);
    return cut->gives == TRI_SHARDED ? trii_share_give(&cut->out, x) : x;
}

static void linear_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                           int n_out)
{
    const trii_parallel_cut *cut = trii_parallel_cut_of(self);
    tri_tensor *x;

    if (!trii_one_to_one(self, n_in, out, n_out))
        return;
    x = check_input(cut, in[0]);
    out[0] = cut->style == TRI_COLWISE ? by_columns(cut, x) : by_rows(cut, x);
}

/* --- the cut -------------------------------------------------------------- */

static tri_tensor *parameter(const tri_module *module, const char *name)
{
    for (int i = 0; i < module->parameters.n; i++) {
        if (strcmp(module->parameters.items[i].name, name) == 0)
            return module->parameters.items[i].tensor;
    }
    return NULL;
}

tri_status trii_parallel_linear(const tri_module *module, const tri_parallel_rule *rule,
                                trii_parallel_cut *cut)
{
    /* A layer of this name is a linear one with its weight the other way round in GPT-2 and in
     * tri_model_gpt2. */
    bool in_out = strcmp(module->type->name, "Conv1D") == 0, columns = rule->style == TRI_COLWISE;
    tri_tensor *weight = parameter(module, "weight"), *bias = parameter(module, "bias");
    int n_expected = 1 + (bias != NULL), cut_dim = columns == in_out;
    tri_status status = TRI_OK;

    if ((!in_out && strcmp(module->type->name, "Linear") != 0) || weight == NULL ||
        weight->ndim != 2 || module->parameters.n != n_expected || module->n_children > 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "a %s cannot be cut by columns or rows: Linear, Conv1D and Embedding can",
                         module->type->name);
    cut->base.forward = linear_forward;
    cut->style = rule->style;
    cut->takes = columns ? TRI_WHOLE : TRI_SHARDED;
    cut->gives = columns ? TRI_SHARDED : TRI_WHOLE;
    if (rule->input != TRI_PARALLEL_DEFAULT)
        cut->takes = rule->input;
    if (rule->output != TRI_PARALLEL_DEFAULT)
        cut->gives = rule->output;
    if ((columns ? cut->gives : cut->takes) == TRI_SHARDED_SEQUENCE)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "TRI_SHARDED_SEQUENCE is what TRI_COLWISE takes and TRI_ROWWISE gives");
    if (rule->parts > 1 && (!columns || cut->gives == TRI_WHOLE))
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "parts %d: only outputs that stay cut are in parts (TRI_COLWISE, output "
                         "TRI_SHARDED)",
                         rule->parts);
    cut->weight = weight;
    cut->bias = bias;
    cut->in_out = in_out;
    cut->in = (trii_share){.group = cut->group, .whole = weight->shape[!in_out]};
    cut->out = (trii_share){.group = cut->group, .whole = weight->shape[in_out]};
    /* heads of keys that several ranks' queries share; a layer that adds up, or joins, its parts
     * would count copies twice */
    cut->out.copies = columns && rule->block > 0 && cut->gives == TRI_SHARDED;
    if (!columns || cut->takes == TRI_SHARDED)
        status = trii_share_out(cut->in.whole, columns ? NULL : rule, "inputs", &cut->in);
    if (status == TRI_OK && (columns || cut->gives == TRI_SHARDED))
        status = trii_share_out(cut->out.whole, columns ? rule : NULL, "outputs", &cut->out);
    trii_parallel_add_part(cut, weight, cut_dim, columns ? &cut->out : &cut->in);
    if (columns && bias != NULL)
        trii_parallel_add_part(cut, bias, 0, &cut->out);
    return status;
}
