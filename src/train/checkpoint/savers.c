/*
 * savers.c - which ranks have parts of one network, and have to agree before and
 * after they save it.
 */
#include "train/checkpoint/snapshot.h"

#include <trireme/group.h>

#include "base/err.h"
#include "train/dist/unit.h"
#include "train/nn/module.h"
#include "train/optim/staged_updates.h"
#include "train/tensor/elsewhere.h"
#include "train/tensor/pipeline_stages.h"

tri_group *trii_group_of_cuts(tri_module *module)
{
    for (int64_t i = 0; i < tri_module_state_count(module); i++) {
        const tri_tensor *tensor = tri_module_state(module, i).tensor;

        if (trii_tensor_is_cut(tensor))
            return tensor->held->group;
    }
    return NULL;
}

tri_group *trii_sharers(tri_module *module)
{
    for (int64_t i = 0; module != NULL && i < tri_module_state_count(module); i++) {
        const tri_tensor *tensor = tri_module_state(module, i).tensor;
        const trii_unit *unit = trii_is_handle(tensor) ? NULL : trii_unit_of(tensor);

        if (unit != NULL && unit->stage > 0 && unit->size > 1 &&
            (trii_tensor_is_cut(tensor) || tensor->staged != NULL))
            return unit->group;
    }
    return NULL;
}

tri_status trii_stages_agree(tri_module *module, tri_group *sharers, tri_status status)
{
    tri_group *ranks = tri_module_unwrapped(module)->stages->group;
    tri_group *cut = trii_group_of_cuts(module);

    /* first here: a stage of which nothing is cut or shared out is in neither of the others */
    status = trii_ranks_agree(ranks, status);
    if (cut != NULL)
        status = trii_ranks_agree(cut, status);
    if (sharers != NULL)
        status = trii_ranks_agree(sharers, status);
    return trii_ranks_agree(ranks, status);
}

static const trii_unit *unit_of_parts(tri_module *module)
{
    for (int64_t i = 0; i < tri_module_state_count(module); i++) {
        const tri_tensor *tensor = tri_module_state(module, i).tensor;
        const trii_unit *unit = trii_is_handle(tensor) ? NULL : trii_unit_of(tensor);

        if (unit != NULL && unit->stage == 0 &&
            (trii_tensor_is_cut(tensor) || tensor->staged != NULL))
            return unit;
    }
    return NULL;
}

tri_status trii_replicas_begin(trii_replicas *replicas, const char *call, tri_module *module,
                               const tri_checkpoint_save_options *opt)
{
    const trii_unit *unit = NULL;
    const trii_stages *stages = NULL;
    int32_t found[2] = {0, 0}; /* there are replicas; these are not the first */
    tri_status status = TRI_OK;

    if (opt != NULL && opt->all_ranks && tri_module_status(module) == TRI_OK) {
        unit = unit_of_parts(module);
        stages = tri_module_unwrapped(module)->stages;
    }
    if (unit != NULL) {
        found[0] = 1;
        found[1] = unit->rank > 0;
    }
    if (stages != NULL)
        status = trii_ranks_meet(stages->group, call, TRI_OK);
    if (stages != NULL && status == TRI_OK)
        status = tri_all_reduce(stages->group, found, found, 2, TRI_DTYPE_I32, TRI_REDOP_MAX, NULL);
    *replicas = (trii_replicas){.group = unit != NULL ? unit->group : NULL,
                                .in_pipeline = stages != NULL && found[0] != 0,
                                .saves = found[1] == 0};
    return status == TRI_OK && !replicas->saves ? tri_run() : status;
}

tri_status trii_replicas_end(const trii_replicas *replicas, tri_module *module, tri_status status)
{
    if (replicas->group != NULL)
        status = trii_ranks_agree(replicas->group, status);
    return replicas->in_pipeline ? trii_stages_agree(module, NULL, status) : status;
}

tri_status trii_stages_optimize(tri_module *module, tri_group *sharers,
                                const tri_optimizer *optimizer, tri_status status)
{
    const trii_stages *stages = tri_module_unwrapped(module)->stages;
    tri_group *groups[3] = {trii_group_of_cuts(module), sharers, stages->group};
    int32_t gives[2] = {optimizer != NULL, optimizer == NULL};

    if (status == TRI_OK)
        status = trii_optimizer_check_stages(optimizer, stages);
    status = trii_stages_agree(module, sharers, status);
    for (int i = 0; i < 3 && status == TRI_OK; i++)
        if (groups[i] != NULL)
            status = tri_all_reduce(groups[i], gives, gives, 2, TRI_DTYPE_I32, TRI_REDOP_MAX, NULL);
    if (status == TRI_OK && gives[0] != 0 && gives[1] != 0)
        status = TRII_FAIL(TRI_ERR_MISMATCH,
                           "some ranks give no optimizer: all of a pipeline give theirs, or none");
    return trii_stages_agree(module, sharers, status);
}
