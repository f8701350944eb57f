/*
 * optimizer_status.c - failed optimizers, which keep their first failure; and the gradients' hooks,
 * which run before an optimizer reads the gradients.
 */
#include "base/alloc.h"
#include "base/err.h"
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

/* Calls the hook unless the parameter before had the same one. */
tri_status trii_hook_finish_unused(const tri_tensor *tensor, trii_grad_hook **last_io,
                                   trii_step *step)
{
    trii_grad_hook *hook = tensor->grad_hook;

    if (hook == NULL || hook == *last_io)
        return TRI_OK;
    *last_io = hook;
    return hook->finish_unused != NULL ? hook->finish_unused(hook, step) : TRI_OK;
}

tri_status trii_optimizer_finish_unused(tri_optimizer *o, trii_step *step)
{
    trii_grad_hook *last = NULL;
    tri_status status = TRI_OK;

    for (int i = 0; i < o->n_params && status == TRI_OK; i++)
        status = trii_hook_finish_unused(o->params[i].tensor, &last, step);
    return status;
}
