/*
 * parallel_attention.c - attention of which each rank has some heads: their rows of the joint
 * projection, and their columns of the output's, which is a linear layer of its own.
 */
#include <trireme/dist.h>

#include "base/err.h"
#include "train/graph/step/recorder.h"
#include "train/parallel/tensor/tensor_parallel.h"
#include "train/tensor/persistent.h"

#define INPUTS 5 /* query, key, value and two masks */

static void attention_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                              int n_out)
{
    const trii_parallel_cut *cut = trii_parallel_cut_of(self);
    const trii_share *all = &cut->out;
    const trii_random_part heads = {.parts = 1,
                                    .whole = all->whole / all->block,
                                    .start = all->start / all->block,
                                    .n = all->n / all->block,
                                    .heads = true};
    trii_step *step = trii_step_current();
    const trii_random_part *outer = NULL; /* of a module that this one is in */
    tri_tensor *copy[INPUTS];

    if (cut->takes == TRI_WHOLE && n_in > 0)
        trii_share_note_whole(in[0]);
    for (int i = 0; i < n_in && n_in <= INPUTS; i++) {
        int same = 0;

        while (same < i && in[same] != in[i])
            same++;
        /* what is one tensor stays one: self-attention projects it once */
        if (i > 2 || same < i)
            copy[i] = i > 2 ? in[i] : copy[same];
        else if (cut->takes == TRI_SHARDED_SEQUENCE)
            copy[i] = trii_tokens_gather(&cut->tokens, in[i]);
        else
            copy[i] = tri_dist_copy_to(in[i], cut->group);
    }
    if (step != NULL) {
        outer = trii_recorder_of(step)->scopes.random_part;
        trii_recorder_of(step)->scopes.random_part = &heads;
    }
    self->type->forward(self, n_in <= INPUTS ? copy : in, n_in, out, n_out);
    if (step != NULL)
        trii_recorder_of(step)->scopes.random_part = outer;
}

static void keep_heads(tri_module *self)
{
    const trii_parallel_cut *cut = trii_parallel_cut_of(self);

    trii_attention_keep(self, cut->out.n / cut->out.block);
}

tri_status trii_parallel_attention(const tri_module *module, const tri_parallel_rule *rule,
                                   trii_parallel_cut *cut)
{
    trii_attention a;
    tri_parallel_rule heads = *rule;
    tri_status status;

    if (!trii_attention_of(module, &a))
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "a %s has no heads to be cut: MultiheadAttention has (TRI_HEADS)",
                         module->type->name);
    if (rule->parts != 0 || rule->block != 0 || rule->input == TRI_SHARDED ||
        rule->output == TRI_SHARDED)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "TRI_HEADS takes and gives all features of a token, and "
                         "knows its parts and blocks: leave them out");
    heads.parts = 3;
    heads.block = a.head_width;
    cut->base.forward = attention_forward;
    cut->kept = keep_heads;
    cut->takes = rule->input == TRI_SHARDED_SEQUENCE ? rule->input : TRI_WHOLE;
    cut->gives = TRI_WHOLE; /* of its own heads to the output's projection */
    cut->weight = a.weight;
    cut->bias = a.bias;
    cut->in = (trii_share){.group = cut->group, .parts = 1, .whole = a.weight->shape[1]};
    cut->out.group = cut->group;
    status = trii_share_out(a.weight->shape[0], &heads, "outputs", &cut->out);
    trii_parallel_add_part(cut, a.weight, 0, &cut->out);
    if (a.bias != NULL)
        trii_parallel_add_part(cut, a.bias, 0, &cut->out);
    return status;
}

tri_status trii_parallel_output(const tri_module *module, const tri_parallel_rule *rule,
                                trii_parallel_cut *cut)
{
    trii_attention a;

    if (module->parent == NULL || !trii_attention_of(module->parent, &a))
        return TRII_FAIL(TRI_ERR_INTERNAL, "the output of no attention");
    return trii_parallel_linear(
        module,
        &(tri_parallel_rule){.style = TRI_ROWWISE, .block = a.head_width, .output = rule->output},
        cut);
}
