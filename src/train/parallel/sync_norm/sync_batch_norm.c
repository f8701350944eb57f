/*
 * sync_batch_norm.c - batch norm over the batches of all ranks of a group: the layer, and the
 * conversion of existing layers. train/graph/ops/batch_norm_shared.c computes; this file records
 * the collectives between its parts.
 */
#include <trireme/sync_batch_norm.h>

#include "base/err.h"
#include "base/option.h"
#include "train/graph/record/replica.h"
#include "comm/group/join/world.h"
#include "train/nn/batch_norm_layer.h"
#include "train/tensor/pipeline_stages.h"
#include "train/traffic/traffic.h"

/* --- the ranks, as the operation asks for them ---------------------------- */

/* One forward's; the step owns it, since gradients come later than the module may live. */
typedef struct peers {
    trii_host_op owned;     /* first; never recorded */
    trii_exchange exchange; /* with a reference to the group */
} peers;

static tri_status gather(const trii_exchange *exchange, trii_step *step, trii_vid x, trii_vid *out)
{
    tri_status status = trii_record_all_gather(step, exchange->group, x, out);

    if (status == TRI_OK)
        trii_traffic_is_for(step, *out, "SyncBatchNorm (2 C + 1 numbers of C channels)");
    return status;
}

static tri_status sum(const trii_exchange *exchange, trii_step *step, trii_vid x, trii_vid *out)
{
    tri_status status = trii_record_all_reduce(step, exchange->group, x, TRI_REDOP_SUM, out);

    if (status == TRI_OK)
        trii_traffic_is_for(step, *out, "gradient of SyncBatchNorm");
    return status;
}

static void release(trii_host_op *owned)
{
    tri_group_unref(((peers *)(void *)owned)->exchange.group);
}

static tri_status peers_new(trii_step *step, tri_group *group, peers **peers_out)
{
    static const trii_host_kind kind = {.name = "SyncBatchNorm", .release = release};
    trii_host_op *owned = NULL;
    tri_status status = trii_group_resolve(&group, "SyncBatchNorm");

    if (status == TRI_OK)
        status = trii_host_op_new(step, &kind, sizeof(peers), &owned);
    if (status != TRI_OK)
        return status;
    *peers_out = (peers *)(void *)owned;
    (*peers_out)->exchange =
        (trii_exchange){.gather = gather, .sum = sum, .group = tri_group_ref(group)};
    return TRI_OK;
}

/* --- the layer ------------------------------------------------------------ */

/* Whom it shares with now, maybe a group that this process is not a member of; NULL: nobody. */
static tri_group *group_of(const tri_module *self)
{
    const trii_batch_norm *layer = self->data;
    tri_group *group = layer->shared != NULL ? layer->shared : trii_group_get_world();

    return self->training && group != NULL && tri_group_size(group) != 1 ? group : NULL;
}

/* What would leave the peers waiting is found before anything is recorded. */
static tri_status check_input(const trii_batch_norm *layer, trii_step *step, tri_tensor *x)
{
    trii_replica replica = trii_replica_now(step);

    if (tri_tensor_status(x) < 0)
        return TRI_OK; /* it says why itself */
    if (tri_tensor_ndim(x) < 2 || tri_tensor_size(x, 1) != layer->channels)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "SyncBatchNorm takes x [N, %lld, ..]; this one has %d dimensions, %lld "
                         "channels",
                         (long long)layer->channels, tri_tensor_ndim(x),
                         tri_tensor_ndim(x) > 1 ? (long long)tri_tensor_size(x, 1) : 0LL);
    if (replica.home != replica.device)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                         "SyncBatchNorm does not share the statistics of replicas: under "
                         "tri_data_parallel use batch norm, or tri_ddp with a process per device");
    return TRI_OK;
}

/* Other ranks of its pipeline have other layers, and would never come. */
static tri_status check_stages(const tri_module *self, const tri_group *group)
{
    const trii_batch_norm *layer = self->data;
    const tri_tensor *any =
        self->parameters.n > 0 ? self->parameters.items[0].tensor : layer->num_batches_tracked;

    if (any == NULL || any->staged == NULL || !trii_group_meets(any->staged->of->group, group))
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_INVALID_ARG,
                     "SyncBatchNorm shares its statistics over ranks of this pipeline, which have "
                     "other stages: give tri_convert_sync_batch_norm the group of the data axis of "
                     "the mesh, or a group of this rank alone");
}

static void sync_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                         int n_out)
{
    trii_step *step = trii_step_current();
    peers *with = NULL;
    tri_group *group;
    tri_status status;

    if (!trii_one_to_one(self, n_in, out, n_out))
        return;
    status = step != NULL ? check_input(tri_module_data(self), step, in[0]) : TRI_ERR_NO_MEMORY;
    group = group_of(self);
    if (status == TRI_OK && group != NULL)
        status = check_stages(self, group);
    if (status == TRI_OK && group != NULL)
        status = peers_new(step, group, &with);
    if (status != TRI_OK)
        trii_forward_refused(status, out, n_out);
    else
        out[0] = trii_batch_norm_forward(self, in[0], with != NULL ? &with->exchange : NULL);
}

static void sync_destroy(tri_module *self)
{
    tri_group_unref(((trii_batch_norm *)self->data)->shared);
    trii_batch_norm_destroy(self);
}

static const tri_module_class sync_class = {.name = "SyncBatchNorm",
                                            .size = sizeof(trii_batch_norm),
                                            .forward = sync_forward,
                                            .extra_repr = trii_batch_norm_repr,
                                            .destroy = sync_destroy};

tri_module *tri_nn_sync_batch_norm(int64_t channels, const tri_nn_sync_batch_norm_options *opt)
{
    tri_nn_batch_norm2d_options plain = {0};
    tri_status status = TRII_CHECK_RESERVED(tri_nn_sync_batch_norm_options, opt);
    tri_module *self;

    if (status != TRI_OK)
        return trii_module_failed(status);
    if (opt != NULL)
        plain =
            (tri_nn_batch_norm2d_options){.eps = opt->eps,
                                          .momentum = opt->momentum,
                                          .cumulative = opt->cumulative,
                                          .no_affine = opt->no_affine,
                                          .no_track_running_stats = opt->no_track_running_stats};
    self = trii_batch_norm_new(&sync_class, "nn_sync_batch_norm", channels, &plain);
    if (opt != NULL && self->type == &sync_class)
        ((trii_batch_norm *)self->data)->shared = tri_group_ref(opt->group);
    return self;
}

/* --- conversion ----------------------------------------------------------- */

/* A module stays one and the same, so that programs may hold pointers to it: it changes its
 * class. */
static int convert(tri_module *module, tri_group *group)
{
    int n = 0;

    if (module->type == &trii_batch_norm1d_class || module->type == &trii_batch_norm2d_class ||
        module->type == &sync_class) {
        trii_batch_norm *layer = module->data;
        tri_group *before = layer->shared;

        layer->shared = tri_group_ref(group);
        tri_group_unref(before);
        module->type = &sync_class;
        n = 1;
    }
    for (int i = 0; i < module->n_children; i++)
        n += convert(module->children[i], group);
    return n;
}

int tri_convert_sync_batch_norm(tri_module *module, tri_group *group)
{
    if (module == NULL) {
        trii_module_refused("tri_convert_sync_batch_norm");
        return 0;
    }
    return tri_module_status(module) < 0 ? 0 : convert(module, group);
}
