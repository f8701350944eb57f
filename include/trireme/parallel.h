/*
 * parallel.h - data-parallel training (DDP): every rank holds a replica, gradients are averaged
 * while the backward pass runs, and replicas stay equal bit for bit.
 *
 *     tri_module *model = tri_ddp(net, NULL);
 *
 * and nothing else changes: tri_forward(model, x), tri_backward(loss), tri_optimizer_step(opt).
 *
 * A forward in training (tri_module_train) gives all ranks rank 0's buffers first. One in
 * evaluation communicates nothing: `if (tri_rank() == 0) evaluate(model)` is fine. Each rank then
 * evaluates with the running statistics of its own samples; tri_ddp_sync_buffers gives all of them
 * rank 0's.
 *
 * A parameter that is unfrozen later (tri_requires_grad, on all ranks) is averaged from the next
 * synchronised forward on. One context trains a model at a time: a backward while one of another
 * context waits to run is refused (STATE).
 *
 * The average is over samples, not over ranks: each rank weighs as many samples as its loss is the
 * mean of (see tri_backward in tensor.h; a count of tri_backward_of overrides), so batches of
 * different sizes, also empty ones, give the gradient of the whole batch. Where a mean divides by
 * something else (targets that are ignored, classes that weigh differently), ranks weigh by that;
 * with a sum they count equally. With equal batches this is torch's DistributedDataParallel.
 *
 * A step that fails on a rank, from a forward in training on (outside of tri_no_sync_begin and end)
 * until its gradients are averaged (or to its end, if several forwards went into one loss), fails
 * the group: peers may be waiting for this rank already, and get its error (ABORTED) instead of a
 * deadline. So it is where all ranks make the same mistake, which none knows of the others. To go
 * on takes a new group (tri_group_shrink, to which all may come) and a new model of tri_ddp, whose
 * parameters and buffers become rank 0's. States of optimizers and gradient scalers do not, and of
 * two ranks one may have updated where the other failed: load a checkpoint on all ranks, or give
 * them rank 0's.
 */
#ifndef TRIREME_PARALLEL_H
#define TRIREME_PARALLEL_H

#include <trireme/device.h>
#include <trireme/group.h>
#include <trireme/nn.h>
#include <trireme/reducer.h>

TRI_BEGIN_DECLS

/* Zero means the default. */
typedef struct tri_ddp_options {
    tri_group *group;        /* NULL = the world (joined now if it was not); a reference is taken */
    size_t bucket_cap_bytes; /* gradients travel in pieces of about this; 0 = 25 MiB */
    size_t first_bucket_bytes; /* the first piece, so that sending starts early, and the last, so
                                  that little is left when the backward is over; 0 = 1 MiB, or
                                  bucket_cap_bytes if that is less */
    bool no_buffer_sync; /* buffers stay each rank's own once the model is made: no broadcast before
                            a forward (torch's forward_sync_buffers=False) */
    /* NULL = a sum. Else what reducer.h has, or one of the program's, the same on all ranks: it
     * gets gradients in plain order, matrices (and what has more dimensions) with their first
     * dimension as rows. Memory of tri_bucket_memory starts anew before the second synchronised
     * forward, when buckets get their final order, and when parameters are unfrozen; PowerSGD keeps
     * what it has. A group of one calls none. */
    tri_bucket_hook hook;
    void *hook_state; /* borrowed while the model lives */
    /* The one device on which the whole network lies (each rank has its own): inputs that lie
     * elsewhere are moved there. NULL: none is moved, and the network may lie on several. */
    const tri_device *device_ids;
    int n_devices;                   /* in device_ids: 1, or 0 without */
    const tri_device *output_device; /* results are moved there; NULL: they stay where they are */
    bool find_unused_parameters;     /* accepted, as in torch: parameters that a loss does not */
    bool static_graph;               /* reach, and steps that repeat, are found without either */
} tri_ddp_options;

/**
 * Wrap a network for training on all ranks of a group. Collective: every rank calls it with the
 * same network. Parameters and buffers become those of rank 0. State names stay those of `net`.
 *
 *   own_net  owned from now on, also on failure
 *
 * Never NULL: a failed one carries its error (tri_module_status) into forward and optimizer.
 * Errors: MISMATCH on every rank if the networks differ (names the rank and the first parameter or
 *   buffer that differs, or whose layer does), INVALID_ARG (no parameter that requires a gradient;
 *   one that another model of tri_ddp trains; a model of tri_ddp inside of the network; a device
 *   that does not exist, or is not where the network lies), UNSUPPORTED (a parameter to be trained
 *   that is neither f32 nor f64), NO_MEMORY, those of the group. A group of one sends nothing.
 * Blocks: until all ranks called it.
 */
TRI_API tri_module *tri_ddp(tri_module *own_net, const tri_ddp_options *opt);

/* Between these, forward and backward communicate nothing: gradients add up on each rank, and the
 * next synchronised backward averages the sum. They nest. Harmless for other modules. An update in
 * between lets replicas drift apart, of which the log warns once. SyncBatchNorm communicates all
 * the same, and its sums weigh ranks: gradients then add up weighed, each pass by its own samples.
 */
TRI_API void tri_no_sync_begin(tri_module *model);
TRI_API void tri_no_sync_end(tri_module *model);

/* A vote to stop, which travels with the next synchronised backward at no cost. After the step
 * tri_ddp_stopped is true on all ranks if any rank voted; so all leave the loop together. */
TRI_API void tri_ddp_vote_stop(tri_module *model);
TRI_API bool tri_ddp_stopped(const tri_module *model);

/* Samples that the last synchronised backward averaged over, on all ranks together (rows with an
 * ignored target among them); known after the step ran. 0 before. */
TRI_API int64_t tri_ddp_sample_count(const tri_module *model);

/* Zero means the default. */
typedef struct tri_ddp_join_options {
    /* Ranks must have as many batches each. Where some have none left and others do, the step of
     * the others fails, and so does tri_ddp_join: with MISMATCH, or ABORTED from a rank that knew
     * before, and a line that names who ran out. No rank updates with what was left. */
    bool throw_on_early_termination;
} tri_ddp_join_options;

/**
 * For a rank whose data are used up before those of others (torch's join): goes on with empty
 * batches until no rank has data left, so that its replica stays equal and what its network sends
 * in forward (batch norm over all ranks) finds it there. All ranks call it behind their loops. A
 * rank that is here weighs nothing in the averages. Until the last one has come, what forward and
 * update count on this rank goes on as on the others; a last pass, without any data, changes
 * nothing. Gradients that tri_no_sync_begin has left on a rank are data. Buffers are rank 0's while
 * it had data in the last pass, then those of the highest rank that had; in the end all ranks have
 * them (unless no_buffer_sync).
 *
 *   loss    the loss of a forward of the model in training on a batch of no rows: as in the loop,
 *           without tri_backward
 *   update  what stands behind tri_backward in the loop: clipping, tri_optimizer_step, schedules.
 *           Called behind each pass: where the loop has several synchronised ones for an update it
 *           counts them. Any status but TRI_OK fails the group
 *   arg     what they are called with
 *   opt     NULL = defaults
 *
 * Errors: INVALID_ARG (not a model of tri_ddp; the loss is no synchronised one of it), MISMATCH
 *   (throw_on_early_termination), those of the passes and of update.
 * Blocks: until no rank has data left. A group of one returns at once.
 */
TRI_API TRI_MUST_CHECK tri_status tri_ddp_join(tri_module *model, tri_tensor *(*loss)(void *arg),
                                               tri_status (*update)(void *arg), void *arg,
                                               const tri_ddp_join_options *opt);

/* Of the passes since the last call, in the mean of them, as this rank saw them. */
typedef struct tri_ddp_pass_stats {
    int64_t n_passes; /* synchronised backwards */
    int n_buckets;
    size_t bytes;      /* of gradients, all buckets together */
    size_t sent_bytes; /* what this rank gave to the group's calls for them: as many, or what a hook
                          made of them and left to be waited for */
    double comm_ms;    /* while a bucket was between being sent and being averaged */
    double exposed_ms; /* of it, while this rank waited and computed nothing */
    double hidden;     /* the share of comm_ms that is not exposed, 0 to 1; 1 if there is none */
} tri_ddp_pass_stats;

typedef struct tri_ddp_bucket_stats {
    size_t bytes, sent_bytes; /* as above */
    int n_parameters;
    double comm_ms, exposed_ms;
} tri_ddp_bucket_stats;

/**
 * How long gradients are under way. The first call begins to take the time, which costs some clock
 * readings a bucket from then on, and gives no passes. Passes before buckets got another order (in
 * front of the second step, or when a parameter was unfrozen) are not counted.
 *
 *   buckets_out  [room], in the order in which they are sent: the first min(room, n_buckets) are
 *                written; NULL with room 0
 *
 * Errors: INVALID_ARG (not a model of tri_ddp; NULL; a negative room). Does not communicate. A
 * group of one has no buckets.
 */
TRI_API TRI_MUST_CHECK tri_status tri_ddp_stats(tri_module *model, tri_ddp_pass_stats *stats_out,
                                                tri_ddp_bucket_stats *buckets_out, int room);

/**
 * Gives all ranks the root's parameters and buffers, of any module: after loading a checkpoint on
 * one rank, or before training without tri_ddp. What was recorded runs first. Collective.
 *
 *   group  NULL = the world (joined now if it was not)
 *
 * Errors: MISMATCH on every rank if the modules differ (names the rank and the first entry),
 *   INVALID_ARG (root out of range), of the step, those of the group.
 */
TRI_API TRI_MUST_CHECK tri_status tri_module_broadcast(tri_module *module, tri_group *group,
                                                       int root);

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
