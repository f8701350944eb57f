/*
 * parallel.h - data-parallel training (DDP): every rank holds a replica, gradients are averaged
 * while the backward pass runs, and replicas stay equal bit for bit.
 *
 *     tri_module *model = tri_ddp(net, NULL);
 *
 * The rest of the program stays as it is: tri_forward(model, x), tri_backward(loss),
 * tri_optimizer_step(opt).
 *
 * A forward in training (tri_module_train) first broadcasts rank 0's buffers. A forward in
 * evaluation communicates nothing, so `if (tri_rank() == 0) evaluate(model)` is fine: each rank
 * evaluates with the running statistics of its own samples, unless tri_ddp_sync_buffers has given
 * all ranks those of rank 0.
 *
 * Gradients of its parameters are averaged whatever the forward was: a backward through a forward
 * of the network inside (tri_module_unwrapped) averages, too, without that broadcast.
 *
 * A parameter that is unfrozen later (tri_requires_grad, on all ranks) is averaged from the next
 * synchronised forward on. Models may share what is frozen; once it is unfrozen it belongs to the
 * one that is trained next. One context trains a model at a time: a backward is refused (STATE)
 * while the backward of another context has yet to run.
 *
 * The average is over samples, not over ranks: a rank's weight is the number of samples that its
 * loss is the mean of (see tri_backward in tensor.h; the count of tri_backward_of overrides it), so
 * batches of different sizes, even empty ones, give the gradient of the whole batch. Where a mean
 * divides by something else (ignored targets, weighted classes), that is the rank's weight; with a
 * sum all ranks have equal weights. Where it is 0 (no rows, no target that counts) the rank adds
 * nothing, be it a penalty or what label smoothing gives a target whose class weighs 0, but its
 * rows' part in statistics that ranks share; its loss is NaN, which TRI_CHECK=nan allows once the
 * backward is recorded. With equal batches this is torch's DistributedDataParallel.
 *
 * Several backward passes before an update add up as on one process, each with an average of its
 * own. A loss may leave parameters unused, on some ranks or on all. A pass in which no rank has a
 * sample leaves what was averaged before it as it is.
 *
 * Before its second forward in training a model puts its buckets in order, which blocks until all
 * ranks are there: ranks that train several models, also on groups of their own, do these forwards
 * in one order.
 *
 * A step that fails on a rank fails the group if it fails between a forward in training (outside of
 * tri_ddp_no_sync_begin and tri_ddp_no_sync_end) and the average of its gradients (or the end of
 * the step, if several forwards went into one loss): peers may be waiting for this rank already,
 * and get its error (ABORTED) at once. This is so even where all ranks make the same mistake, since
 * no rank can know that. A forward whose failed result the program looks at and drops is no failed
 * step: a rank that skips such a batch makes one pass fewer than its peers, which wait for it
 * (tri_group_abort tells them). Parameters, gradients and counts stay as they were on every rank (a
 * gradient that the run had begun to write is lost: see tri_grad), and so do buffers, unless rank
 * 0's had arrived, with which a forward begins.
 *
 * To continue after a failure, make a new group (tri_group_shrink, which all ranks may join) and a
 * new model with tri_ddp, which gives all ranks the parameters and buffers of rank 0. It does not
 * do so for the states of optimizers and gradient scalers, and one rank may have updated where
 * another failed: load a checkpoint on all ranks, or broadcast rank 0's.
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
    size_t bucket_cap_bytes; /* approximate size of a bucket of gradients; 0 = 25 MiB */
    /* Size of the first bucket, so that sending starts early, and of the last, so that little is
     * left to send when the backward ends; 0 = 1 MiB, or bucket_cap_bytes if that is less. */
    size_t first_bucket_bytes;
    /* Forwards do not broadcast buffers: after tri_ddp each rank keeps its own (torch's
     * forward_sync_buffers=False). */
    bool no_buffer_sync;
    /* NULL = a sum. Else one of the hooks of reducer.h, or one of the program's own, the same on
     * all ranks. It gets gradients in plain order; those of two or more dimensions have the first
     * one as rows. The contents of tri_bucket_memory are lost before the second synchronised
     * forward, when buckets get their final order, and when parameters are unfrozen; PowerSGD keeps
     * its state. A group of one calls no hook. */
    tri_bucket_hook hook;
    void *hook_state; /* borrowed while the model lives */
    /* The one device on which the whole network lies (each rank has its own): inputs that lie
     * elsewhere are moved there. NULL: none is moved, and the network may lie on several. */
    const tri_device *device_ids;
    int n_devices;                   /* number of device_ids: 1, or 0 if NULL */
    const tri_device *output_device; /* results are moved there; NULL: they stay where they are */
    /* Accepted, without effect. Programs from torch set them so that DDP finds the parameters that
     * a loss does not reach, and steps that repeat; tri_ddp finds both by itself. */
    bool find_unused_parameters;
    bool static_graph;
    TRI_RESERVED(8);
} tri_ddp_options;

/**
 * Wraps a network for training on all ranks of a group. Collective: every rank calls it with the
 * same network. Parameters and buffers become those of rank 0. Names in the state stay those of
 * `own_net`.
 *
 *   own_net  owned from now on, also on failure
 *
 * Never returns NULL: a failed model carries its error (tri_module_status) into forward and
 * optimizer.
 * Errors: MISMATCH on every rank if the networks differ (names the rank and the first parameter or
 *   buffer that differs, or whose layer does), INVALID_ARG (this process is not a member of the
 *   group; no parameter requires a gradient; another model of tri_ddp trains one of them; the
 *   network contains a model of tri_ddp; a device does not exist, or is not where the network
 *   lies), UNSUPPORTED (a parameter to be trained is neither f32 nor f64), NO_MEMORY, those of the
 *   group. A group of one sends nothing.
 * Blocks until all ranks have called it.
 */
TRI_API tri_module *tri_ddp(tri_module *own_net, const tri_ddp_options *opt);

/* Between these calls, forward and backward communicate nothing: gradients add up on each rank, and
 * the next synchronised backward averages the sum. The calls nest, and do nothing for modules
 * without tri_ddp. An update in between lets replicas drift apart; the log warns once.
 * SyncBatchNorm communicates even then, and its sums need the ranks' weights: gradients are then
 * weighted pass by pass before they add up. */
TRI_API void tri_ddp_no_sync_begin(tri_module *model);
TRI_API void tri_ddp_no_sync_end(tri_module *model);

/* A vote to stop, sent with the next synchronised backward at no extra cost. After that step
 * tri_ddp_is_stopped is true on all ranks if any rank voted, so that all leave the loop
 * together. */
TRI_API void tri_ddp_vote_stop(tri_module *model);
TRI_API bool tri_ddp_is_stopped(const tri_module *model);

/* The number of samples, on all ranks together, that the last synchronised backward averaged over
 * (including rows with an ignored target); 0 until the step has run. */
TRI_API int64_t tri_ddp_sample_count(const tri_module *model);

/* Zero means the default. */
typedef struct tri_ddp_join_options {
    /* All ranks must have the same number of batches. If some ranks run out of batches before
     * others, the next step of the others fails, and so does tri_ddp_join: with MISMATCH, or with
     * ABORTED if another rank found it first. The error line names the ranks that ran out. No rank
     * updates with the batches that were left. */
    bool throw_on_early_termination;
    TRI_RESERVED(4);
} tri_ddp_join_options;

/**
 * For a rank that runs out of data before others (torch's join): continues with empty batches until
 * no rank has data left, so that its replica stays equal and takes part in what the network
 * communicates in forward (batch norm over all ranks). All ranks call it after their loops. A rank
 * in tri_ddp_join has weight 0 in the averages. Until the last rank has called it, counters that
 * forwards and updates keep count as on the other ranks; a last pass, in which no rank has data,
 * changes nothing: an average that waits for its update is there after it. Gradients that
 * tri_ddp_no_sync_begin has left on a rank count as data. Buffers are those of rank 0 if it had
 * data in the last pass, else of the highest rank that had; at the end all ranks have them (unless
 * no_buffer_sync).
 * A loop whose passes go through SyncBatchNorm inside tri_ddp_no_sync_begin has no counterpart in
 * the join, which makes one pass for each average: MISMATCH.
 *
 *   loss    computes the loss of a forward of the model, in training, for a batch without rows, as
 *           the loop does; does not call tri_backward
 *   update  does what the loop does after tri_backward: clipping, tri_optimizer_step, schedules. It
 *           is called after each pass; if the loop has several synchronised passes per update, it
 *           counts them and updates after the last. Any status but TRI_OK fails the group
 *   arg     passed to both
 *   opt     NULL = defaults
 *
 * Errors: INVALID_ARG (this is not a model of tri_ddp; the loss is not of a synchronised forward of
 *   the model), MISMATCH (throw_on_early_termination), those of the passes and of update.
 * Blocks until no rank has data left. A group of one returns at once.
 */
TRI_API TRI_MUST_CHECK tri_status tri_ddp_join(tri_module *model, tri_tensor *(*loss)(void *arg),
                                               tri_status (*update)(void *arg), void *arg,
                                               const tri_ddp_join_options *opt);

/* Means over the passes since the last call, as this rank measured them. */
typedef struct tri_ddp_pass_stats {
    int64_t n_passes; /* number of these passes: synchronised backwards */
    int n_buckets;
    size_t bytes; /* of gradients, in all buckets */
    /* What this rank passed to the group's calls: `bytes`, or fewer if a hook compresses; of a
     * hook, only calls whose work it returned are counted. Under tri_zero also its part of each
     * bucket of parameters, and of averages to which a backward adds. */
    size_t sent_bytes;
    /* Time in which some bucket was sent and not yet averaged, or, under tri_zero, parameters were
     * being gathered. */
    double comm_ms;
    double exposed_ms; /* the part of it in which this rank waited and computed nothing */
    double hidden;     /* the share of comm_ms that is not exposed, 0 to 1; 1 if comm_ms is 0 */
    TRI_RESERVED(4);
} tri_ddp_pass_stats;

typedef struct tri_ddp_bucket_stats {
    size_t bytes, sent_bytes; /* as above, of this bucket */
    int n_parameters;
    double comm_ms, exposed_ms;
    TRI_RESERVED(4);
} tri_ddp_bucket_stats;

/**
 * Measures how long gradients, and parameters under tri_zero, are in transit. The first call starts
 * the measurement and returns no passes; from then on it costs some clock readings per bucket.
 * Passes before a change of the buckets' order (before the second step, or when a parameter is
 * unfrozen) are not counted.
 *
 *   buckets_out  [room], in the order in which they are sent: the first min(room, n_buckets) are
 *                written; NULL with room 0
 *
 * Errors: INVALID_ARG (this is not a model of tri_ddp; NULL; room is negative). Does not
 * communicate. A group of one has no buckets.
 */
TRI_API TRI_MUST_CHECK tri_status tri_ddp_stats(tri_module *model, tri_ddp_pass_stats *stats_out,
                                                tri_ddp_bucket_stats *buckets_out, int room);

/* Elements of the calls that a model has made since the last look, by kind: of all ranks' parts
 * together, as a call gets them. Each tensor in a bucket is padded to 64 bytes. A reduce_scatter or
 * all_gather of n elements moves n (N - 1) / N through each of N ranks, an all_reduce twice that.
 */
typedef struct tri_ddp_volume_stats {
    /* Gradients: sums that all ranks get, and those of which each rank gets its part (tri_zero, and
     * over a mesh of two axes that part enters an all_reduce along the first). */
    int64_t all_reduce, reduce_scatter;
    /* tri_zero: parameters after an update (in stage 3: for forward, and again for backward), and
     * averages to which a further backward adds. */
    int64_t all_gather;
    /* tri_zero: clipping by the norm, and gradient scalers: sums of squares (f64), one for each
     * 4,096 elements of a tensor, in an all_reduce. Of several models on one group under one
     * optimizer the first counts them all. */
    int64_t norm;
    /* What precedes and ends a backward: samples and votes (f64), and which parameters are used
     * where some are not on some rank (bytes). */
    int64_t header;
    int64_t buffer_bytes; /* running statistics, in broadcasts */
    int64_t hook_bytes;   /* what a hook's calls got, in place of all_reduce and reduce_scatter */
    TRI_RESERVED(8);
} tri_ddp_volume_stats;

/**
 * How much a model of tri_ddp or tri_zero has communicated since the last call, or since it was
 * made. Counts what forward, backward and update record, also in steps that fail later; not what
 * ranks exchange when the model is made, put in order or verified.
 * Errors: INVALID_ARG (this is not a model of tri_ddp; NULL). Does not communicate. A group of one
 * sends nothing.
 */
TRI_API TRI_MUST_CHECK tri_status tri_ddp_volume(tri_module *model,
                                                 tri_ddp_volume_stats *volume_out);

/**
 * Broadcasts the root's parameters and buffers of any module to all ranks: after one rank has
 * loaded a checkpoint, or before training without tri_ddp. Runs what was recorded first.
 * Collective.
 *
 *   group  NULL = the world (joined now if it was not)
 *
 * Errors: MISMATCH on every rank if the modules differ (names the rank and the first entry),
 *   INVALID_ARG (root out of range), those of the step and of the group.
 */
TRI_API TRI_MUST_CHECK tri_status tri_module_broadcast(tri_module *module, tri_group *group,
                                                       int root);

/**
 * Broadcasts rank 0's buffers (running statistics and the like) to all ranks: before an evaluation
 * on all ranks, so that its results are those of rank 0's model. Runs what was recorded first.
 * Collective.
 * Errors: INVALID_ARG (this is not a model of tri_ddp), those of the step and of the group.
 */
TRI_API TRI_MUST_CHECK tri_status tri_ddp_sync_buffers(tri_module *model);

/**
 * Checks that all replicas are equal by comparing the hashes of their states (tri_module_hash).
 * Collective. With `buffers` false only parameters are compared: running statistics are equal only
 * right after a synchronised forward in training began, or after tri_ddp_sync_buffers.
 * Errors: MISMATCH (names the rank and the first entry that differs), those of the group.
 */
TRI_API TRI_MUST_CHECK tri_status tri_ddp_verify(tri_module *model, bool buffers);

TRI_END_DECLS

/* They wait for peers: messages name the line of the caller (call_site.h). */
#ifndef TRI_NO_SITES
#define tri_ddp(...) TRI_SITE_SET_(tri_ddp(__VA_ARGS__))
#define tri_module_broadcast(...) TRI_SITE_STATUS_(tri_module_broadcast(__VA_ARGS__))
#define tri_ddp_sync_buffers(...) TRI_SITE_STATUS_(tri_ddp_sync_buffers(__VA_ARGS__))
#define tri_ddp_verify(...) TRI_SITE_STATUS_(tri_ddp_verify(__VA_ARGS__))
#endif

#endif
