/*
 * parallel.h - data-parallel training (DDP): every rank holds a replica, gradients are averaged
 * while the backward pass runs, and replicas stay equal bit for bit.
 *
 *     tri_module *model = tri_ddp(net, NULL);
 *
 * and nothing else changes: tri_forward(model, x), tri_backward(loss), tri_optimizer_step(opt).
 *
 * A forward in training (tri_module_train) first broadcasts rank 0's buffers. A forward in
 * evaluation communicates nothing, so `if (tri_rank() == 0) evaluate(model)` is fine: each rank
 * evaluates with the running statistics of its own samples, unless tri_ddp_sync_buffers has given
 * all ranks those of rank 0.
 *
 * A parameter that is unfrozen later (tri_requires_grad, on all ranks) is averaged from the next
 * synchronised forward on. One context trains a model at a time: a backward is refused (STATE)
 * while the backward of another context has yet to run.
 *
 * The average is over samples, not over ranks: a rank's weight is the number of samples that its
 * loss is the mean of (see tri_backward in tensor.h; the count of tri_backward_of overrides it), so
 * batches of different sizes, even empty ones, give the gradient of the whole batch. Where a mean
 * divides by something else (ignored targets, weighted classes), that is the rank's weight; with a
 * sum all ranks have equal weights. With equal batches this is torch's DistributedDataParallel.
 *
 * A step that fails on a rank fails the group if it fails between a forward in training (outside of
 * tri_no_sync_begin and tri_no_sync_end) and the average of its gradients (or the end of the step,
 * if several forwards went into one loss): peers may be waiting for this rank already, and get its
 * error (ABORTED) at once. This is so even where all ranks make the same mistake, since no rank can
 * know that. To continue, make a new group (tri_group_shrink, which all ranks may join) and a new
 * model with tri_ddp, which gives all ranks the parameters and buffers of rank 0. It does not do so
 * for the states of optimizers and gradient scalers, and one rank may have updated where another
 * failed: load a checkpoint on all ranks, or broadcast rank 0's.
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
    size_t bucket_cap_bytes; /* of a bucket of gradients, about; 0 = 25 MiB */
    size_t first_bucket_bytes; /* of the first bucket, so that sending starts early, and the last,
                                  so that little is left to send when the backward ends; 0 = 1 MiB,
                                  or bucket_cap_bytes if that is less */
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
 *   buffer that differs, or whose layer does), INVALID_ARG (this process is not a member of the
 *   group; no parameter that requires a gradient; one that another model of tri_ddp trains; a model
 *   of tri_ddp inside of the network; a device that does not exist, or is not where the network
 *   lies), UNSUPPORTED (a parameter to be trained
 *   that is neither f32 nor f64), NO_MEMORY, those of the group. A group of one sends nothing.
 * Blocks: until all ranks called it.
 */
TRI_API tri_module *tri_ddp(tri_module *own_net, const tri_ddp_options *opt);

/* Between these calls, forward and backward communicate nothing: gradients add up on each rank, and
 * the next synchronised backward averages the sum. The calls nest, and do nothing for modules
 * without tri_ddp. An update in between lets replicas drift apart; the log warns once.
 * SyncBatchNorm communicates even then, and its sums need the ranks' weights: gradients are then
 * weighted pass by pass before they add up.
 */
TRI_API void tri_no_sync_begin(tri_module *model);
TRI_API void tri_no_sync_end(tri_module *model);

/* A vote to stop, sent with the next synchronised backward at no extra cost. After that step
 * tri_ddp_stopped is true on all ranks if any rank voted, so that all leave the loop together. */
TRI_API void tri_ddp_vote_stop(tri_module *model);
TRI_API bool tri_ddp_stopped(const tri_module *model);

/* The number of samples, on all ranks together, that the last synchronised backward averaged over
 * (including rows with an ignored target); known once the step has run, 0 before. */
TRI_API int64_t tri_ddp_sample_count(const tri_module *model);

/* Zero means the default. */
typedef struct tri_ddp_join_options {
    /* Ranks must have as many batches each. Where some have none left and others do, the step of
     * the others fails, and so does tri_ddp_join: with MISMATCH, or ABORTED from a rank that knew
     * before, and a line that names who ran out. No rank updates with what was left. */
    bool throw_on_early_termination;
} tri_ddp_join_options;

/**
 * For a rank that runs out of data before others (torch's join): continues with empty batches until
 * no rank has data left, so that its replica stays equal and takes part in what the network
 * communicates in forward (batch norm over all ranks). All ranks call it after their loops. A rank
 * in tri_ddp_join has weight 0 in the averages. Until the last rank has come, whatever forward and
 * update count on this rank is counted as on the others; a last pass, without any data, changes
 * nothing. Gradients that tri_no_sync_begin has left on a rank count as data. Buffers are those of
 * rank 0 while it had data in the last pass, then those of the highest rank that had; at the end
 * all ranks have them (unless no_buffer_sync).
 *
 *   loss    the loss of a forward of the model in training on a batch of no rows: as in the loop,
 *           without tri_backward
 *   update  what stands behind tri_backward in the loop: clipping, tri_optimizer_step, schedules.
 *           Called behind each pass: where the loop has several synchronised ones for an update it
 *           counts them. Any status but TRI_OK fails the group
 *   arg     what they are called with
 *   opt     NULL = defaults
 *
 * Errors: INVALID_ARG (not a model of tri_ddp; the loss is not a synchronised one of it), MISMATCH
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
