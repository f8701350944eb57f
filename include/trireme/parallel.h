/*
 * parallel.h - data-parallel training (DDP): every rank holds a replica, gradients are averaged
 * while the backward pass runs, and replicas stay equal bit for bit.
 *
 *     tri_module *model = tri_ddp(net, NULL);
 *
 * and nothing else changes: tri_forward(model, x), tri_backward(loss), tri_optimizer_step(opt).
 *
 * A forward in training (tri_module_train) gives all ranks rank 0's buffers first, if they were
 * changed since. One in evaluation communicates nothing: `if (tri_rank() == 0) evaluate(model)` is
 * fine. Each rank then evaluates with the running statistics of its own samples;
 * tri_ddp_sync_buffers gives all of them rank 0's.
 *
 * A parameter that is unfrozen later (tri_requires_grad, on all ranks) is averaged from the next
 * synchronised forward on.
 *
 * The average is over samples, not over ranks: each rank weighs as many samples as its loss is the
 * mean of (see tri_backward in tensor.h; a count of tri_backward_of overrides), so batches of
 * different sizes, also empty ones, give the gradient of the whole batch. Where a mean divides by
 * something else (targets that are ignored, classes that weigh differently), ranks weigh by that;
 * with a sum they count equally. With equal batches this is torch's DistributedDataParallel.
 *
 * A step that fails on a rank, from a forward in training on (outside of tri_no_sync_begin and end)
 * until its gradients are averaged, fails the group: peers may be waiting for this rank already,
 * and get its error (ABORTED) instead of a deadline. So it is where all ranks make the same
 * mistake, which none knows of the others. To go on takes a new group (tri_group_shrink, to which
 * all may come) and a new model of tri_ddp, whose parameters and buffers become rank 0's. States of
 * optimizers and gradient scalers do not, and of two ranks one may have updated where the other
 * failed: load a checkpoint on all ranks, or give them rank 0's.
 */
#ifndef TRIREME_PARALLEL_H
#define TRIREME_PARALLEL_H

#include <trireme/group.h>
#include <trireme/nn.h>

TRI_BEGIN_DECLS

/* Zero means the default. */
typedef struct tri_ddp_options {
    tri_group *group;        /* NULL = the world (joined now if it was not); a reference is taken */
    size_t bucket_cap_bytes; /* gradients travel in pieces of about this; 0 = 25 MiB */
    size_t first_bucket_bytes; /* the first piece, so that sending starts early; 0 = 1 MiB */
    bool no_buffer_sync;       /* leave buffers to each rank: no broadcast before a forward */
} tri_ddp_options;

/**
 * Wrap a network for training on all ranks of a group. Collective: every rank calls it with the
 * same network. Parameters and buffers become those of rank 0. State names stay those of `net`.
 *
 *   own_net  owned from now on, also on failure
 *
 * Never NULL: a failed one carries its error (tri_module_status) into forward and optimizer.
 * Errors: MISMATCH on every rank if the networks differ (names the rank and the first parameter
 *   or buffer that differs), INVALID_ARG (no parameter that requires a gradient), those of the
 *   group. A group of one sends nothing.
 * Blocks: until all ranks called it.
 */
TRI_API tri_module *tri_ddp(tri_module *own_net, const tri_ddp_options *opt);

/* Between these, forward and backward communicate nothing: gradients add up on each rank, and the
 * next synchronised backward averages the sum. They nest. Harmless for other modules. An update in
 * between lets replicas drift apart, of which the log warns once. */
TRI_API void tri_no_sync_begin(tri_module *model);
TRI_API void tri_no_sync_end(tri_module *model);

/* A vote to stop, which travels with the next synchronised backward at no cost. After the step
 * tri_ddp_stopped is true on all ranks if any rank voted; so all leave the loop together. */
TRI_API void tri_ddp_vote_stop(tri_module *model);
TRI_API bool tri_ddp_stopped(const tri_module *model);

/* Samples that the last synchronised backward averaged over, on all ranks together (rows with an
 * ignored target among them); known after the step ran. 0 before. */
TRI_API int64_t tri_ddp_sample_count(const tri_module *model);

/**
 * Gives all ranks rank 0's buffers (running statistics and the like), after running what was
 * recorded: before an evaluation on all ranks that is to give what rank 0's model gives.
 * Collective.
 * Errors: INVALID_ARG (not a model of tri_ddp), of the step, those of the group.
 */
TRI_API TRI_MUST_CHECK tri_status tri_ddp_sync_buffers(tri_module *model);

/**
 * Proves that all replicas are equal: compares the hashes of the state (tri_module_hash).
 * Collective. With `buffers` false only parameters are compared (running statistics are equal
 * only right after a synchronised forward in training began, or after tri_ddp_sync_buffers).
 * Errors: MISMATCH (names the rank and the first entry that differs), those of the group.
 */
TRI_API TRI_MUST_CHECK tri_status tri_ddp_verify(tri_module *model, bool buffers);

TRI_END_DECLS

#endif
