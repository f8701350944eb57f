/*
 * parallel_whole.c - modules whose parameters stay whole: TRI_SEQUENCE, through which each rank
 * puts its part of the tokens, and TRI_PREPARE, around which values change from whole to parts or
 * back.
 */
#include <string.h>

#include <trireme/dist.h>

#include "base/alloc.h"
#include "base/err.h"
#include "train/parallel/tensor/tensor_parallel.h"

/* --- sequence ------------------------------------------------------------- */

static void sequence_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                             int n_out)
{
    const trii_parallel_cut *cut = trii_parallel_cut_of(self);
    trii_share share;
    tri_tensor *x;
    tri_status status;
    int dim;

    if (!trii_one_to_one(self, n_in, out, n_out))
        return;
    if (cut->takes == TRI_WHOLE)
        trii_share_note_whole(in[0]);
    x = cut->takes == TRI_WHOLE ? trii_tokens_take(&cut->tokens, in[0]) : in[0];
    status = trii_tokens_share(&cut->tokens, x, &share, &dim);
    if (status != TRI_OK) {
        out[0] = trii_tokens_refused(&cut->tokens, x, status);
        return;
    }
    if (cut->weight != NULL || cut->bias != NULL) {
        /* each rank has the gradients of its tokens: theirs is the sum, here and once */
        tri_tensor *weight = cut->weight, *bias = cut->bias;

        weight = weight != NULL ? tri_dist_copy_to(weight, cut->group) : NULL;
        bias = bias != NULL ? tri_dist_copy_to(bias, cut->group) : NULL;
        out[0] = trii_row_norm_with(self, x, weight, bias);
    } else {
        trii_forward_part(self, x, out, &share, dim);
    }
    if (cut->gives == TRI_WHOLE)
        out[0] = trii_tokens_join(&cut->tokens, out[0]);
}

tri_status trii_parallel_sequence(tri_module *module, const tri_parallel_rule *rule,
                                  trii_parallel_cut *cut)
{
    if (rule->input == TRI_SHARDED || rule->output == TRI_SHARDED || rule->parts != 0 ||
        rule->block != 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "TRI_SEQUENCE takes and gives TRI_SHARDED_SEQUENCE or TRI_WHOLE, and has "
                         "no parts and blocks");
    if (!trii_row_norm_of(module, &cut->weight, &cut->bias) && tri_module_state_count(module) > 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "a %s has parameters or buffers: of modules with such, LayerNorm and "
                         "RMSNorm work on parts of a sequence; one of your own reads its "
                         "parameters through tri_dist_copy_to",
                         module->type->name);
    cut->base.forward = sequence_forward;
    cut->takes = rule->input != TRI_PARALLEL_DEFAULT ? rule->input : TRI_SHARDED_SEQUENCE;
    cut->gives = rule->output != TRI_PARALLEL_DEFAULT ? rule->output : TRI_SHARDED_SEQUENCE;
    return TRI_OK;
}

/* --- dropout of features -------------------------------------------------- */

static void dropout_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                            int n_out)
{
    trii_share share;

    if (!trii_one_to_one(self, n_in, out, n_out))
        return;
    if (in[0] == NULL || tri_tensor_status(in[0]) != TRI_OK || tri_tensor_ndim(in[0]) < 1) {
        self->type->forward(self, in, 1, out, 1);
        return;
    }
    share = trii_share_noted(trii_parallel_cut_of(self)->group, tri_tensor_size(in[0], -1));
    trii_forward_part(self, in[0], out, &share, -1);
}

bool trii_parallel_is_dropout(const tri_module *module)
{
    return strcmp(module->type->name, "Dropout") == 0 && module->parameters.n == 0 &&
           module->n_children == 0;
}

static bool may_be_sharded(tri_parallel_value value)
{
    return value == TRI_PARALLEL_DEFAULT || value == TRI_SHARDED;
}

tri_status trii_parallel_dropout(const tri_parallel_rule *rule, trii_parallel_cut *cut)
{
    if (rule->style != TRI_COLWISE || !may_be_sharded(rule->input) ||
        !may_be_sharded(rule->output) || rule->parts != 0 || rule->block != 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "a Dropout takes and gives this rank's part of the features that the "
                         "layer before it has cut: name it TRI_COLWISE and leave the rest out");
    cut->base.forward = dropout_forward;
    cut->takes = cut->gives = TRI_SHARDED;
    return TRI_OK;
}

/* --- prepare -------------------------------------------------------------- */

/* Parts of the last dimension are equal ones here: nothing says how large the others are. */
static tri_tensor *converted(const trii_parallel_cut *cut, tri_tensor *x, tri_parallel_value from,
                             tri_parallel_value to)
{
    trii_share share;

    if (from == to || x == NULL || tri_tensor_status(x) != TRI_OK)
        return x;
    if (from == TRI_SHARDED) {
        tri_status status = trii_share_check_order(x);

        x = tri_dist_gather_from(status == TRI_OK ? x : trii_forward_failed(status), -1,
                                 cut->group);
    }
    if (from == TRI_SHARDED_SEQUENCE)
        x = trii_tokens_join(&cut->tokens, x);
    if (to == TRI_SHARDED_SEQUENCE)
        return trii_tokens_take(&cut->tokens, x);
    if (to != TRI_SHARDED)
        return x;
    share = trii_share_of(cut->group, tri_tensor_size(x, -1), 1, 1);
    return trii_share_give(&share, x);
}

static void prepared_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                             int n_out)
{
    const trii_parallel_cut *cut = trii_parallel_cut_of(self);
    tri_tensor **x = trii_alloc((size_t)n_in + 1, sizeof(tri_tensor *), "inputs of a module");

    if (x == NULL) {
        trii_forward_refused(TRI_ERR_NO_MEMORY, out, n_out);
        return;
    }
    for (int i = 0; i < n_in; i++) {
        int same = 0;

        while (same < i && in[same] != in[i])
            same++;
        x[i] = same < i ? x[same] : converted(cut, in[i], cut->takes, cut->wanted[0]);
    }
    if (cut->takes == TRI_WHOLE && n_in > 0)
        trii_share_note_whole(in[0]);
    self->type->forward(self, x, n_in, out, n_out);
    for (int o = 0; o < n_out; o++)
        out[o] = converted(cut, out[o], cut->gives, cut->wanted[1]);
    trii_free(x);
}

tri_status trii_parallel_prepare(const tri_parallel_rule *rule, trii_parallel_cut *cut)
{
    if ((rule->input == TRI_PARALLEL_DEFAULT) != (rule->wanted_input == TRI_PARALLEL_DEFAULT) ||
        (rule->output == TRI_PARALLEL_DEFAULT) != (rule->wanted_output == TRI_PARALLEL_DEFAULT) ||
        (rule->input == TRI_PARALLEL_DEFAULT && rule->output == TRI_PARALLEL_DEFAULT) ||
        rule->parts != 0 || rule->block != 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "TRI_PREPARE says what comes and what is wanted: input and wanted_input, "
                         "or output and wanted_output, or all four, and no parts and blocks");
    cut->base.forward = prepared_forward;
    cut->takes = rule->input;
    cut->gives = rule->output;
    cut->wanted[0] = rule->wanted_input;
    cut->wanted[1] = rule->wanted_output;
    cut->tokens.may_be_last = true;
    return TRI_OK;
}
