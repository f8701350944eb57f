/*
 * zero.c - tri_zero: DDP's module around a network whose unit is divided over the ranks
 * (train/dist/shards.c).
 */
#include <trireme/zero.h>

#include "base/err.h"
#include "base/option.h"
#include "train/parallel/ddp/ddp.h"

static tri_status check_options(const tri_zero_options *opt)
{
    tri_status status = TRII_CHECK_RESERVED(tri_zero_options, opt);

    if (status != TRI_OK || opt == NULL)
        return status;
    if (opt->stage < 0 || opt->stage > 2)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "stage %d: 1 or 2 (0 = 1)", opt->stage);
    if (opt->stage > 1 && opt->hook != NULL && opt->hook != tri_bucket_hook_f16 &&
        opt->hook != tri_bucket_hook_bf16)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                         "stage %d with a hook that needs all gradients at once: stage 1 keeps "
                         "them, and tri_bucket_hook_f16 and _bf16 go with any stage",
                         opt->stage);
    return TRI_OK;
}

tri_module *tri_zero(tri_module *own_net, const tri_zero_options *opt)
{
    const tri_status known = check_options(opt);
    trii_ddp_recipe recipe = {.call = "tri_zero", .stage = 1, .known = known};

    if (known == TRI_OK && opt != NULL)
        recipe.options = (tri_ddp_options){.group = opt->group,
                                           .bucket_cap_bytes = opt->bucket_cap_bytes,
                                           .first_bucket_bytes = opt->first_bucket_bytes,
                                           .no_buffer_sync = opt->no_buffer_sync,
                                           .hook = opt->hook,
                                           .hook_state = opt->hook_state};
    else if (opt != NULL)
        recipe.options.group = opt->group;
    if (known == TRI_OK && opt != NULL && opt->stage > 0)
        recipe.stage = opt->stage;
    return trii_ddp_make(own_net, &recipe);
}
