/*
 * optimizer_status.c - failed optimizers, which keep their first failure; and what comes before an
 * optimizer reads the gradients.
 */
#include "base/alloc.h"
#include "base/err.h"
#include "train/dist/unit.h"
#include "train/optim/optimizer.h"

tri_optimizer trii_optimizer_out_of_memory = {.status = TRI_ERR_NO_MEMORY};

void trii_optimizer_fail(tri_optimizer *optimizer, tri_status status)
{
    if (optimizer == &trii_optimizer_out_of_memory || optimizer->status != TRI_OK)
        return;
    optimizer->status = status;
    optimizer->why = trii_strdup(tri_last_error(), "optimizer error");
}

tri_status tri_optimizer_status(const tri_optimizer *optimizer)
{
    if (optimizer == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "the optimizer is NULL");
    if (optimizer->status != TRI_OK)
        return TRII_FAIL(optimizer->status, "%s",
                         optimizer->why != NULL ? optimizer->why : "no memory");
    return TRI_OK;
}

/* Of all parameters that the network had before, where it has those of this rank's stages alone. */
static tri_status check_stages(const tri_optimizer *o, const trii_optim_param *param)
{
    if (param->tensor->staged == NULL || o->stages != NULL)
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_STATE,
                     "%s was made before tri_pipeline or tri_pipeline_split divided its network "
                     "(%s): make it of the module that this returns",
                     o->ops->name, param->name);
}

tri_status trii_optimizer_before_update(tri_optimizer *o, trii_step *step)
{
    trii_unit *last = NULL;
    tri_status status = TRI_OK;

    for (int i = 0; i < o->n_params && status == TRI_OK; i++) {
        const trii_optim_param *param = &o->params[i];
        tri_tensor *tensor = param->tensor;

        status = check_stages(o, param);
        if (status == TRI_OK)
            status = trii_unit_before_update(tensor, &last, step);
        if (status == TRI_OK && TRII_UNLIKELY(param->home != tensor || trii_home(tensor) != tensor))
            status = trii_home_check(step, tensor, param->home, o->ops->name, param->name);
    }
    return status;
}
