/*
 * pipeline_updates.c - finds a rank that trains its stages and has no optimizer over them, so that
 * they never learn, and ranks that were given other settings than their neighbours. The notes that
 * go from stage to stage have room for what each rank knows: the rank of the last stage says who
 * has no optimizer, and a note's receiver what differs.
 *
 * All ranks make the same calls between two passes, so what each was given last before a pass is of
 * the same call.
 */
#include "base/err.h"
#include "base/log.h"
#include "train/nn/module.h"
#include "train/parallel/pipeline/pipeline_internal.h"
#include "train/tensor/pipeline_stages.h"
#include "train/tensor/rank_text.h"

#define PATIENCE 2 /* passes in which all ranks may have added up gradients */

static bool trains_here(tri_module *model)
{
    for (int64_t i = 0; i < tri_module_state_count(model); i++)
        if (tri_module_state(model, i).parameter &&
            tri_module_state(model, i).tensor->requires_grad)
            return true;
    return false;
}

void trii_pipeline_updates_begin(trii_pipeline *p)
{
    const trii_stages *stages = p->module->stages;

    if (stages == NULL) /* one rank */
        return;
    p->updates = (trii_pipeline_updates){.any = stages->is_updated, .given = stages->given};
    if (!stages->is_updated && trains_here(p->module) && p->n_trained++ >= PATIENCE)
        p->updates.without = p->rank + 1;
}

static bool differ(double a, double b)
{
    return a >= 0 && b >= 0 && a != b;
}

/* Programs may mean it. */
static void compare_rates(trii_pipeline *p, int sender, double theirs, double ours)
{
    if (!differ(theirs, ours) || p->has_warned_of_rate)
        return;
    p->has_warned_of_rate = true;
    TRII_LOG(TRII_LOG_WARN, "pipeline",
             "%s of the pipeline updates its stages at a rate of %.9g, %s at %.9g: make "
             "optimizers and schedules alike on all ranks, unless that is meant",
             trii_rank_text_of(p->group, sender).text, theirs,
             trii_rank_text_of(p->group, p->rank).text, ours);
}

tri_status trii_pipeline_updates_join(trii_pipeline *p, int sender,
                                      const trii_pipeline_updates *before)
{
    const trii_stages_given *theirs = &before->given, *ours = &p->updates.given;

    p->updates.any |= before->any;
    if (p->updates.without == 0)
        p->updates.without = before->without;
    compare_rates(p, sender, theirs->rate, ours->rate);
    return !differ(theirs->max_norm, ours->max_norm)
               ? TRI_OK
               : TRII_FAIL(TRI_ERR_MISMATCH,
                           "%s of the pipeline has clipped its gradients to a norm of %.9g, %s to "
                           "%.9g: the norm is that of all stages, so give tri_clip_grad_norm the "
                           "same on all ranks",
                           trii_rank_text_of(p->group, sender).text, theirs->max_norm,
                           trii_rank_text_of(p->group, p->rank).text, ours->max_norm);
}

void trii_pipeline_updates_end(trii_pipeline *p)
{
    if (!p->updates.any || p->updates.without == 0 || p->has_warned ||
        trii_pipeline_rank_of(&p->shape, p->shape.stages - 1) != p->rank)
        return;
    p->has_warned = true;
    TRII_LOG(
        TRII_LOG_WARN, "pipeline",
        "%s of the pipeline trains its stages, but no tri_optimizer_step has updated "
        "them, as it has those of other ranks: make an optimizer of the pipeline on each rank, "
        "or freeze what is not to learn (tri_requires_grad(parameter, false))",
        trii_rank_text_of(p->group, p->updates.without - 1).text);
}
