/*
 * train_ranks.h - what ranks that train have in common: their mesh, and the end of a step. Tests
 * only.
 */
#ifndef TRAIN_RANKS_H
#define TRAIN_RANKS_H

#include <trireme/trireme.h>

#include "testing/ranks.h"

/* Of all ranks, whose group it keeps. */
static inline tri_status rank_mesh(rank_env *env, const int64_t *sizes, int n,
                                   const char *const *names, tri_mesh **mesh_out)
{
    tri_group *world = NULL;
    tri_status status = tri_group_create(env->store, env->rank, env->size, env->options, &world);

    if (status == TRI_OK)
        status = tri_mesh_create(world, sizes, n, names, mesh_out);
    tri_group_unref(world);
    return status;
}

/* What has replicas over this group: by tri_zero of the stage, or by tri_ddp if that is 0. */
static inline tri_module *replicate(tri_module *model, tri_group *data, int zero)
{
    return zero > 0 ? tri_zero(model, &(tri_zero_options){.group = data, .stage = zero})
                    : tri_ddp(model, &(tri_ddp_options){.group = data});
}

/* Updates, reads the loss, and ends the step. */
static inline tri_status update_and_read(tri_optimizer *opt, tri_tensor *loss, double *loss_out)
{
    tri_status status = tri_optimizer_step(opt);

    if (status == TRI_OK)
        status = tri_item_status(loss, loss_out);
    return status == TRI_OK ? tri_step_end_status() : status;
}

#endif
