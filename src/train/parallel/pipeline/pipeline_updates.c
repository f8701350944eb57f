/*
 * pipeline_updates.c - finds a rank that trains its stages and has no optimizer over them, so that
 * they never learn. The notes that go from stage to stage have room for what each rank knows, and
 * the rank of the last stage says it.
 */
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
    p->updates = (trii_pipeline_updates){.any = stages->is_updated};
    if (!stages->is_updated && trains_here(p->module) && p->n_trained++ >= PATIENCE)
        p->updates.without = p->rank + 1;
}

void trii_pipeline_updates_join(trii_pipeline *p, const trii_pipeline_updates *before)
{
    p->updates.any |= before->any;
    if (p->updates.without == 0)
        p->updates.without = before->without;
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
