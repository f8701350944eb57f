/*
 * zero.h - data-parallel training in which each rank keeps a part of what the others keep too under
 * tri_ddp (ZeRO: torch's ZeroRedundancyOptimizer is stage 1, its fully_shard is stage 3):
 *
 *     tri_module *model = tri_zero(net, NULL);
 *     tri_optimizer *opt = tri_adam(model, 1e-3, NULL);
 *
 * The rest of the program stays as it is, and so do the numbers: weights after each step have the
 * bits that they have under tri_ddp. What parallel.h says of tri_ddp (samples, weights, buffers,
 * failures), and its functions, hold of these models, too, but for what stands here.
 *
 * Each rank owns a range of the parameters. It gets the averages of their gradients, holds the
 * optimizer's state of them and updates them. In stages 1 and 2 the ranks gather each other's
 * ranges after an update. In stage 3 a step gathers them when it first reads them, a bucket at a
 * time, and keeps them until its last reader of the forward pass; it gathers them once more for the
 * backward pass (and for what that computes again). With N ranks and P parameters of f32 under Adam
 * a rank keeps 8 P + 8 P / N bytes in stage 1 and 4 P + 12 P / N in stage 2 (and two buckets on
 * their way), in place of 16 P, and sends as much as under tri_ddp; in stage 3 it keeps 16 P / N
 * (and the buckets that are gathered, and gradients on their way), and sends half as much again.
 * tri_bucket_hook_f16 and _bf16 halve what gradients send, as they do there, and keep 2 P bytes
 * more. (Other hooks send more: all ranks get all averages first.)
 */
#ifndef TRIREME_ZERO_H
#define TRIREME_ZERO_H

#include <trireme/group.h>
#include <trireme/mesh.h>
#include <trireme/nn.h>
#include <trireme/reducer.h>

TRI_BEGIN_DECLS

/* Zero means the default. */
typedef struct tri_zero_options {
    tri_group *group; /* as in tri_ddp_options, like all that is called alike there */
    /* In place of the group. One axis: its ranks. Two: ranks along the second divide the network,
     * and along the first they have the same part (torch's HSDP): then a step sends less over the
     * first. The bits are those of tri_ddp where the second axis has a power of two of ranks, and
     * with hooks, whose sums go over all ranks at once. Only used in this call. */
    const tri_mesh *mesh;
    /* What is divided: 1 = the optimizer's state and updates; 2 = gradients, too; 3 = parameters,
     * too; 0 = 1 (3 for tri_fully_shard). Gradients that add up between tri_ddp_no_sync_begin and
     * tri_ddp_no_sync_end are whole in any stage, and in stage 2 so are all of a network that is
     * so small that the rank's part and two buckets would take no less memory. */
    int stage;
    size_t bucket_cap_bytes, first_bucket_bytes;
    bool no_buffer_sync;
    tri_bucket_hook hook;
    void *hook_state;
    /* Stage 3, up to prefetch_bytes: how many buckets are gathered ahead of the one that is used;
     * -1 = none, at most 7; 0 = 1, or 7 with prefetch_bytes */
    int prefetch;
    /* What forward has gathered stays until backward has read it: a third less is sent, and the
     * parameters are whole between the two (torch's reshard_after_forward=False). */
    bool keep_after_forward;
    /* Parameters of fewer elements stay whole, as in stage 2 (DeepSpeed's
     * stage3_param_persistence_threshold). */
    int64_t keep_below;
    /* [n_units]: paths of modules whose parameters are gathered as one, such as "h.*", of which a *
     * stands for any characters of one name; a path that several modules have makes a unit of each.
     * Larger ones than a bucket are several. NULL: buckets alone decide. Only used in this call. */
    const char *const *units;
    int n_units;
    /* What is gathered ahead has at most so many bytes, too: one bucket that has more starts when
     * it is used (DeepSpeed's stage3_prefetch_bucket_size, and stage3_max_live_parameters less the
     * bucket in use, which count elements). 0 = any number */
    size_t prefetch_bytes;
    /* BF16 or F16: a step gathers parameters in it, half the bytes, and reads them rounded (torch's
     * MixedPrecisionPolicy(param_dtype)); what is kept, updated and saved stays f32. Those of fewer
     * than two dimensions (biases, norms) or of f64, and what tri_unshard_begin has made whole, are
     * read as they are. Linear layers that tri_autocast runs in bf16 round their weights anyway: a
     * network of these keeps its bits. What is read in f32, such as an embedding, does not.
     * 0 = as they are */
    tri_dtype gather_dtype;
    int n_devices;
    const tri_device *device_ids;
    const tri_device *output_device;
    TRI_RESERVED(4);
} tri_zero_options;

/**
 * Wraps a network for training on all ranks of a group, which divide its parameters. Collective:
 * every rank calls it with the same network. Parameters and buffers become those of rank 0.
 * Optimizers, averages (tri_ema) and clips that are made of the module it returns know the ranges;
 * those that were made before it fail in their next step (STATE).
 *
 *   own_net  owned from now on, also on failure
 *
 * In stage 3 all ranks run the same modules in the same order, in evaluation, too, since each
 * forward gathers (a rank that does not fails its peers with MISMATCH or GROUP_TIMEOUT); one rank
 * can evaluate alone while the parameters are whole on all (tri_unshard_begin). Under tri_ddp_join
 * `loss` runs forward as often as a step of the others does, and makes their passes between
 * tri_ddp_no_sync_begin and tri_ddp_no_sync_end, with tri_backward, before the one that it returns
 * (else GROUP_TIMEOUT). A parameter has its name, shape and
 * dtype, but its contents are read and written between tri_unshard_begin and tri_unshard_end alone,
 * and elsewhere it fails (STATE). A loss whose parameters were updated since its forward has no
 * gradient any more (STATE). tri_data_parallel inside is refused (UNSUPPORTED).
 *
 * What differs from tri_ddp:
 *   - tri_grad of a parameter shows only what adds up between tri_ddp_no_sync_begin and
 *     tri_ddp_no_sync_end, since averages are in pieces. Where such gradients are added to averages
 *     of an earlier backward before the update, sums are rounded in another order.
 *   - A parameter that is frozen in this call stays so (else UNSUPPORTED).
 *   - A rank that leaves between a backward and its update takes its range along: the others, which
 *     under tri_ddp have all they need, lose the parameters (STATE).
 *   - A child of fork() may share memory of parameters with its parent: it neither writes them nor
 *     reads what is still trained.
 *
 * Never returns NULL: a failed model carries its error (tri_module_status) into forward and
 * optimizer.
 * Errors: those of tri_ddp; INVALID_ARG (stage, gather_dtype), UNSUPPORTED (a parameter lies in the
 *   memory of a device; a hook that needs all gradients at once, and stage 2), STATE (the program
 *   has the address of a parameter's memory). A group of one divides and sends nothing.
 * Blocks until all ranks have called it.
 */
TRI_API tri_module *tri_zero(tri_module *own_net, const tri_zero_options *opt);

/**
 * As tri_zero, with stage 3 unless the options say another one (torch's fully_shard, but called
 * once for all of the network: modules that torch wraps one by one are `units`).
 */
TRI_API tri_module *tri_fully_shard(tri_module *own_net, const tri_zero_options *opt);

/**
 * Under stage 3: makes the parameters of the module whole on each rank, so that the program can
 * read and write them (torch's summon_full_params, DeepSpeed's GatheredParameters). Collective.
 *
 *   module  the model, or a part of it; the parameters that share buckets with its own become
 *           whole, too
 *
 * Until as many tri_unshard_end they stay whole, and no optimizer updates them (STATE). Of what is
 * written meanwhile each rank keeps its own range, so all ranks write the same. Runs what pends.
 * Under other stages, and where nothing is sharded, only that. tri_save, tri_load and
 * tri_module_hash need no such call: they make one bucket whole at a time, and all ranks call them.
 * Errors: those of the module and of the step; INVALID_ARG (NULL), NO_MEMORY, those of
 *   tri_all_gather_v. Blocks until all ranks have called it.
 */
TRI_API TRI_MUST_CHECK tri_status tri_unshard_begin(tri_module *module);
/**
 * Ends that, with the same module: what other ranks own is given back, also if the step has failed.
 * Runs what pends; not collective. Errors: those of the step; STATE (without tri_unshard_begin).
 */
TRI_API TRI_MUST_CHECK tri_status tri_unshard_end(tri_module *module);

TRI_END_DECLS

/* They wait for peers: messages name the line of the caller (call_site.h). */
#ifndef TRI_NO_SITES
#define tri_zero(...) TRI_SITE_SET_(tri_zero(__VA_ARGS__))
#define tri_fully_shard(...) TRI_SITE_SET_(tri_fully_shard(__VA_ARGS__))
#define tri_unshard_begin(...) TRI_SITE_STATUS_(tri_unshard_begin(__VA_ARGS__))
#endif

#endif
