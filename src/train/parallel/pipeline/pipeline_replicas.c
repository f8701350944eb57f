/*
 * pipeline_replicas.c - tri_ddp and tri_zero around a pipeline: each stage has replicas on the
 * ranks of another axis of the mesh, and each of these pipelines has its own rows of the batch.
 *
 * The gradients of all micro-batches add up as they do in one process; after the last backward they
 * are averaged once, weighted by the rows of each pipeline, which all of its stages know. Where the
 * loss is a sum over what options.count counts, the ranks of the last stage have divided it by the
 * count of all pipelines, and all weigh alike.
 */
#include "base/err.h"
#include "train/nn/module.h"
#include "train/parallel/ddp/ddp.h"
#include "train/parallel/pipeline/pipeline_internal.h"

/* NULL: nothing is averaged. */
static trii_unit *unit_of(const tri_module *model)
{
    trii_ddp *ddp = trii_ddp_of(model);

    return ddp != NULL ? &ddp->unit : NULL;
}

/* tri_forward comes through the model around the pipeline by itself. */
tri_status trii_pipeline_replicas_check(const trii_pipeline *p, const tri_module *model,
                                        trii_pipeline_call call)
{
    const trii_unit *unit = unit_of(model);

    if (call == TRII_PIPELINE_OUTPUTS)
        return TRI_OK;
    for (int k = 0; k < p->first[p->n_local]; k++)
        for (int64_t i = 0; i < tri_module_state_count(p->parts[k]); i++) {
            const tri_state_entry entry = tri_module_state(p->parts[k], i);
            const trii_unit *its = trii_unit_of(entry.tensor);

            if (its != NULL && its != unit)
                return TRII_FAIL(TRI_ERR_INVALID_ARG,
                                 "%s is trained by a model of %s, which averages its gradients: "
                                 "give tri_pipeline_step that model",
                                 entry.name, its->call);
        }
    return TRI_OK;
}

tri_status trii_pipeline_replicas_begin(tri_module *model, trii_step *step, trii_pipeline_call call)
{
    trii_unit *unit = unit_of(model);
    tri_status status;

    if (unit == NULL || call == TRII_PIPELINE_OUTPUTS)
        return TRI_OK;
    status = trii_ddp_enter(model);
    return status == TRI_OK && call == TRII_PIPELINE_TRAIN ? trii_backward_begin_parts(unit, step)
                                                           : status;
}

tri_status trii_pipeline_replicas_end(const trii_pipeline *p, tri_module *model, trii_step *step,
                                      trii_pipeline_call call, const int64_t *rows,
                                      tri_status status)
{
    trii_unit *unit = unit_of(model);

    return unit != NULL && call == TRII_PIPELINE_TRAIN
               ? trii_backward_end_parts(unit, step, *rows, p->count != NULL, status)
               : status;
}

tri_group *trii_pipeline_counted_over(const trii_pipeline *p, const tri_module *model,
                                      trii_pipeline_call call)
{
    const trii_ddp *ddp = trii_ddp_of(model);

    if (ddp == NULL || p->count == NULL || call != TRII_PIPELINE_TRAIN)
        return NULL;
    return ddp->is_bare ? ddp->bare_group : ddp->unit.group;
}

void trii_pipeline_replicas_abort(const tri_module *model, const char *why)
{
    const trii_ddp *ddp = trii_ddp_of(model);

    if (ddp != NULL && ddp->unit.group != NULL)
        trii_unit_abort(&ddp->unit, why);
    if (ddp != NULL && ddp->bare_group != NULL)
        tri_group_abort(ddp->bare_group, why);
}
