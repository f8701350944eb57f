/*
 * zero.h - data-parallel training in which each rank keeps a part of what the others keep too under
 * tri_ddp (stages 1 and 2 of ZeRO; torch's ZeroRedundancyOptimizer is stage 1):
 *
 *     tri_module *model = tri_zero(net, NULL);
 *     tri_optimizer *opt = tri_adam(model, NULL);
 *
 * The rest of the program stays as it is, and so do the numbers: weights after each step have the
 * bits that they have under tri_ddp. What parallel.h says of tri_ddp (samples, weights, buffers,
 * failures), and its functions, hold of these models, too, but for what stands here.
 *
 * Each rank owns a range of the parameters. It gets the averages of their gradients, holds the
 * optimizer's state of them and updates them; after an update the ranks gather each other's ranges.
 * With N ranks and P parameters of f32 under Adam a rank keeps 8 P + 8 P / N bytes in stage 1 and
 * 4 P + 12 P / N in stage 2 (and two buckets on their way), in place of 16 P, and sends as much as
 * under tri_ddp. tri_bucket_hook_f16 and _bf16 halve what gradients send, as they do there, and
 * keep 2 P bytes more. (Other hooks send more: all ranks get all averages first.)
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
    /* What is divided: 1 = the optimizer's state and updates; 2 = gradients, too (but for those
     * that add up between tri_ddp_no_sync_begin and tri_ddp_no_sync_end); 0 = 1 */
    int stage;
    size_t bucket_cap_bytes, first_bucket_bytes;
    bool no_buffer_sync;
    tri_bucket_hook hook;
    void *hook_state;
    TRI_RESERVED(8);
} tri_zero_options;

/**
 * Wraps a network for training on all ranks of a group, which divide its parameters. Collective:
 * every rank calls it with the same network. Parameters and buffers become those of rank 0.
 * Optimizers, averages (tri_ema) and clips that are made of the module it returns know the ranges;
 * those that were made before it fail in their next step (STATE).
 *
 *   own_net  owned from now on, also on failure
 *
 * What differs from tri_ddp: tri_grad of a parameter shows only what adds up between
 * tri_ddp_no_sync_begin and tri_ddp_no_sync_end, since averages are in pieces; where such gradients
 * are added to averages of an earlier backward before the update, sums are rounded in another
 * order; no parameter may be unfrozen later (UNSUPPORTED).
 *
 * Never returns NULL: a failed model carries its error (tri_module_status) into forward and
 * optimizer.
 * Errors: those of tri_ddp; INVALID_ARG (stage), UNSUPPORTED (a parameter lies in the memory of a
 *   device; a hook that needs all gradients at once, and stage 2), STATE (the program has the
 *   address of a parameter's memory). A group of one divides and sends nothing.
 * Blocks until all ranks have called it.
 */
TRI_API tri_module *tri_zero(tri_module *own_net, const tri_zero_options *opt);

TRI_END_DECLS

#endif
