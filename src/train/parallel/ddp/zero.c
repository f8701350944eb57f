/*
 * zero.c - tri_zero: DDP's module around a network whose unit is divided over the ranks
 * (train/dist/shards.c).
 */
#include <inttypes.h>

#include <trireme/zero.h>

#include "base/dtype.h"
#include "base/err.h"
#include "base/option.h"
#include "train/parallel/ddp/ddp.h"

static tri_status check_options(const tri_zero_options *opt)
{
    if (opt->stage < 0 || opt->stage > 3)
        return TRII_FAIL(
            TRI_ERR_INVALID_ARG,
            "stage %d does not exist: 1 divides the optimizer's state, 2 gradients, too, "
            "3 parameters, too",
            opt->stage);
    if (opt->prefetch < -1 || opt->prefetch >= TRII_UNIT_LIVE)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "prefetch %d: -1 (none) to %d buckets (0 = 1)",
                         opt->prefetch, TRII_UNIT_LIVE - 1);
    if (opt->gather_dtype != TRI_DTYPE_NONE && !trii_dtype_is_half(opt->gather_dtype))
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "gather_dtype %s: bf16 or f16 (0 = each parameter in its own)",
                         tri_dtype_name(opt->gather_dtype));
    if (opt->keep_below < 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "keep_below %" PRId64 ": a number of elements",
                         opt->keep_below);
    if (opt->stage > 1 && opt->hook != NULL && opt->hook != tri_bucket_hook_f16 &&
        opt->hook != tri_bucket_hook_bf16)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                         "stage %d with a hook that needs all gradients at once: stage 1 keeps "
                         "them, and tri_bucket_hook_f16 and _bf16 go with any stage",
                         opt->stage);
    return TRI_OK;
}

/* The ranks, without which no other can be told what is wrong here. */
static tri_status check_ranks(const tri_zero_options *opt)
{
    tri_status status = TRII_CHECK_RESERVED(tri_zero_options, opt);

    if (status != TRI_OK || opt == NULL)
        return status;
    if (opt->mesh != NULL && opt->group != NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "a mesh and a group: give one of them");
    if (opt->mesh != NULL && tri_mesh_axis_count(opt->mesh) > 2)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "a mesh of %d axes: one that divides, or one of replicas and one that "
                         "divides (tri_mesh_submesh picks them)",
                         tri_mesh_axis_count(opt->mesh));
    return TRI_OK;
}

/* What take_mesh makes; the caller frees it. */
typedef struct mesh_groups {
    tri_mesh *flat; /* one axis of all ranks in place of two */
    tri_group *within, *across;
} mesh_groups;

/* The groups of a mesh. */
static tri_status take_mesh(const tri_mesh *mesh, trii_ddp_recipe *recipe, mesh_groups *own)
{
    const char *names[2] = {tri_mesh_axis_name(mesh, 0), tri_mesh_axis_name(mesh, 1)};
    tri_group *axis = tri_mesh_group(mesh, names[tri_mesh_axis_count(mesh) - 1]);
    tri_group *copies = tri_mesh_group(mesh, names[0]);
    tri_status status;

    recipe->options.group = axis;
    if (tri_mesh_axis_count(mesh) == 1 || tri_group_size(copies) == 1)
        return TRI_OK;
    status = tri_mesh_flatten(mesh, names, 2, "all", &own->flat);
    if (status == TRI_OK)
        status = tri_group_split(axis, 0, 0, NULL, &own->within);
    if (status == TRI_OK)
        status = tri_group_split(copies, 0, 0, NULL, &own->across);
    if (status != TRI_OK) {
        if (own->flat == NULL)
            return status; /* all failed, or tri_mesh_flatten has told them */
        (void)trii_ddp_tell(tri_mesh_group(own->flat, NULL), status);
        (void)trii_ddp_tell(axis, status);
        return trii_ddp_tell(copies, status);
    }
    recipe->axis = axis;
    recipe->within = own->within;
    recipe->across = own->across;
    recipe->options.group = tri_mesh_group(own->flat, NULL);
    return TRI_OK;
}

static void take_options(const tri_zero_options *opt, trii_ddp_recipe *recipe)
{
    recipe->options.bucket_cap_bytes = opt->bucket_cap_bytes;
    recipe->options.first_bucket_bytes = opt->first_bucket_bytes;
    recipe->options.no_buffer_sync = opt->no_buffer_sync;
    recipe->options.hook = opt->hook;
    recipe->options.hook_state = opt->hook_state;
    recipe->options.device_ids = opt->device_ids;
    recipe->options.n_devices = opt->n_devices;
    recipe->options.output_device = opt->output_device;
    if (opt->stage > 0)
        recipe->stage = opt->stage;
    /* stage 3 */
    if (opt->prefetch != 0)
        recipe->prefetch = opt->prefetch > 0 ? opt->prefetch : 0;
    else if (opt->prefetch_bytes > 0)
        recipe->prefetch = TRII_UNIT_LIVE - 1;
    recipe->prefetch_bytes = opt->prefetch_bytes;
    recipe->gather_dtype = opt->gather_dtype;
    recipe->keep_after_forward = opt->keep_after_forward;
    recipe->keep_below = opt->keep_below;
    recipe->units = opt->units;
    recipe->n_units = opt->n_units;
}

static tri_module *make(tri_module *own_net, const tri_zero_options *opt, const char *call)
{
    tri_module *model;
    mesh_groups own = {0};
    trii_ddp_recipe recipe = {.call = call, .stage = 1, .prefetch = 1, .known = check_ranks(opt)};

    recipe.is_lost = recipe.known != TRI_OK;
    if (opt != NULL)
        recipe.options.group = opt->group;
    if (recipe.known == TRI_OK && opt != NULL && opt->mesh != NULL) {
        recipe.known = take_mesh(opt->mesh, &recipe, &own);
        recipe.is_lost = recipe.known != TRI_OK;
    }
    if (recipe.known == TRI_OK && opt != NULL)
        recipe.known = check_options(opt);
    if (recipe.known == TRI_OK && opt != NULL)
        take_options(opt, &recipe);
    model = trii_ddp_make(own_net, &recipe);
    tri_group_unref(own.within);
    tri_group_unref(own.across);
    tri_mesh_destroy(own.flat);
    return model;
}

tri_module *(tri_zero)(tri_module *own_net, const tri_zero_options *opt)
{
    return make(own_net, opt, "tri_zero");
}

tri_module *(tri_fully_shard)(tri_module *own_net, const tri_zero_options *opt)
{
    tri_zero_options all = opt != NULL ? *opt : (tri_zero_options){0};

    if (all.stage == 0)
        all.stage = 3;
    return make(own_net, &all, "tri_fully_shard");
}
