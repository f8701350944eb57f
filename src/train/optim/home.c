/*
 * home.c - optimizers of sharded parameters (train/dist/placement.h): each rank updates its piece,
 * and of that alone it has a gradient and state. Which piece is noted when the optimizer is made.
 */
#include <string.h>

#include "base/err.h"
#include "train/dist/unit_collective.h"
#include "train/optim/optimizer.h"

tri_status trii_home_stays(tri_tensor *tensor, const tri_tensor *home, const char *owner,
                           const char *name)
{
    if (TRII_LIKELY(trii_home(tensor) == home))
        return TRI_OK;
    if (home == tensor)
        return TRII_FAIL(
            TRI_ERR_STATE,
            "%s was made before %s divided its parameters (%s): make it from the module "
            "that %s returns",
            owner, trii_unit_of(tensor)->call, name, trii_unit_of(tensor)->call);
    return TRII_FAIL(TRI_ERR_STATE,
                     "the model that divided %s was destroyed after %s was made: make "
                     "a new one from the module that has the parameters now",
                     name, owner);
}

tri_status trii_home_check(const trii_step *step, tri_tensor *tensor, const tri_tensor *home,
                           const char *owner, const char *name)
{
    tri_status status = trii_home_stays(tensor, home, owner, name);

    if (status == TRI_OK && home != tensor && trii_unit_sharding(tensor) != NULL &&
        trii_unit_sharding(tensor)->n_opened > 0)
        return TRII_FAIL(TRI_ERR_STATE,
                         "%s is whole between tri_unshard_begin and tri_unshard_end, and ranks "
                         "update it in pieces: call tri_unshard_end first",
                         name);
    if (status != TRI_OK || home == tensor || !trii_step_has_grad(step, tensor))
        return status;
    return TRII_FAIL(TRI_ERR_STATE,
                     "%s has a gradient of this rank's losses alone (tri_ddp_no_sync_begin), and "
                     "ranks update it in pieces: call tri_backward once after tri_ddp_no_sync_end, "
                     "which averages what has added up",
                     name);
}

void trii_home_changed(tri_tensor *tensor, const tri_tensor *home)
{
    if (home != tensor)
        trii_unit_changed(trii_unit_of(tensor), tensor->placed->index);
}

tri_status trii_home_tell(const tri_tensor *tensor, const tri_tensor *home, tri_status status)
{
    return home != tensor && status == TRI_ERR_NO_MEMORY
               ? trii_unit_tell(trii_unit_of(tensor), status)
               : status;
}

tri_status trii_home_gather(tri_tensor *tensor, const tri_tensor *home, trii_step *step)
{
    return home != tensor ? trii_unit_gather(trii_unit_of(tensor), step) : TRI_OK;
}
