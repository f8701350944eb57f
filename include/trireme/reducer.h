/*
 * reducer.h - data-parallel training for programs with their own gradients: plain buffers become
 * averages over all workers while the backward pass still computes.
 *
 *     tri_reducer_create(NULL, &r);                            // averages over the world
 *     tri_reducer_add(r, &(tri_reducer_grad){.data = g, .count = n}, NULL);   // each gradient
 *     ...
 *     tri_reducer_begin(r, batch);      // the number of samples in this worker's mean
 *     ... compute a gradient ...  tri_reducer_ready(r, index);               // in any order
 *     tri_reducer_finish(r);            // now every buffer holds the mean over all samples
 *
 * Gradients are sent in buckets, in reverse order of their registration (the order in which a
 * backward pass completes them): a first bucket of about 1 MiB, so that sending starts early, then
 * buckets of 25 MiB. A bucket is sent as soon as all of it is ready, in the same order on all
 * ranks. Gradients and buckets are memory of the host, so the group has another engine than nccl
 * (else UNSUPPORTED).
 *
 * The average is over samples, not over ranks: the weight of a rank's gradient is the number of
 * samples it gives. If each rank's gradient is that of the mean over its own samples, the result is
 * the gradient of the mean over all samples. Results are the same on all ranks, bit for bit,
 * whatever the buckets.
 *
 * Threads: one at a time. Errors of the group (PEER_LOST, GROUP_TIMEOUT, MISMATCH, ABORTED) are
 * permanent: every later call returns them. A failure on one rank aborts the group, so that its
 * peers get the reason instead of waiting; the failed rank, too, gets ABORTED, and its error line
 * says why.
 */
#ifndef TRIREME_REDUCER_H
#define TRIREME_REDUCER_H

#include <trireme/group.h>

TRI_BEGIN_DECLS

typedef struct tri_reducer tri_reducer;

/* One gradient. Zero means the default. */
typedef struct tri_reducer_grad {
    /* [count]; borrowed until the reducer is destroyed. NULL = the reducer allocates it in memory
     * that all local ranks map, which saves a copy (see tri_reducer_data) */
    void *data;
    size_t count;
    tri_dtype dtype;  /* f16, bf16, f32 or f64; 0 = f32 */
    const char *name; /* for messages; copied; NULL = its number */
    size_t rows;      /* for hooks: the gradient is a matrix of so many rows; 0 = a vector */
    TRI_RESERVED(4);
} tri_reducer_grad;

/* --- communication hooks -----------------------------------------------------
 * A hook replaces the sum of a bucket, usually to send fewer bytes. */

typedef struct tri_bucket_part {
    const char *name;
    size_t offset, count; /* in elements of the bucket's data, which has zeros between the parts */
    size_t rows;          /* as in tri_reducer_grad */
    int index; /* of the gradient; in a model: of the parameter, among the trained ones */
    TRI_RESERVED(4);
} tri_bucket_part;

typedef struct tri_bucket {
    int index, n_buckets;
    tri_group *group;
    tri_dtype dtype;
    /* [count]: this rank's gradients times `weight`, so that their sum over the ranks is the
     * average; the hook leaves the average there */
    void *data;
    size_t count;
    /* this rank's share of all samples; 0: it has none, and data is zeros unless ranks share
     * statistics (SyncBatchNorm) */
    double weight;
    const tri_bucket_part *parts;
    int n_parts;
    int64_t pass; /* the number of passes that were begun before this one */
    void *owner;  /* used by the library */
    TRI_RESERVED(4);
} tri_bucket;

/**
 * Called with stage 0 when the bucket is complete. If the hook sets *work_out, which is NULL before
 * the call, it is called with stage 1 when that work is done, and so on. A call that leaves NULL
 * there is the last: it must have put the average into bucket->data. Stage 0 overlaps with the
 * computation and should only start something. Later stages run in tri_reducer_finish (for a model:
 * when all buckets have been sent), stage by stage over all buckets; so all ranks make the same
 * calls in the same order if their hooks do. Any status but TRI_OK aborts the group.
 */
typedef tri_status (*tri_bucket_hook)(void *state, tri_bucket *bucket, int stage,
                                      tri_work **work_out);

/* Memory for a hook, which stays with the bucket and is freed with it: zeros at first, and the same
 * memory in each call. Asking for more than before loses the contents. NULL: out of memory. */
TRI_API void *tri_bucket_memory(tri_bucket *bucket, size_t bytes);

/* Buckets are sent as f16 or bf16, half the bytes of f32; they are added in f32 and rounded once.
 * Buckets of 16-bit types are sent as they are. `state` is not used. */
TRI_API tri_status tri_bucket_hook_f16(void *state, tri_bucket *bucket, int stage,
                                       tri_work **work_out);
TRI_API tri_status tri_bucket_hook_bf16(void *state, tri_bucket *bucket, int stage,
                                        tri_work **work_out);

/* PowerSGD (Vogels, Karimireddy, Jaggi, NeurIPS 2019) with the defaults of torch's hook: an n x m
 * matrix is sent as two matrices, n x r and m x r; what is lost is added to the next gradient
 * (error feedback). It applies to f32 gradients that have `rows` and become small enough
 * (min_rate); all others are sent as they are. A matrix that is not finite somewhere gives averages
 * that are not, and nothing of it is kept for later passes. */
typedef struct tri_power_sgd_options {
    int rank;           /* r; 0 = 1 */
    tri_opt start_pass; /* so many first passes are plain averages; default 1000 */
    tri_opt min_rate;   /* applies only if (n + m) r min_rate < n m; default 2 */
    bool no_feedback;   /* what is lost stays lost */
    bool no_warm_start; /* each pass starts from new random numbers */
    uint64_t seed;      /* the same on all ranks */
    TRI_RESERVED(4);
} tri_power_sgd_options;

typedef struct tri_power_sgd tri_power_sgd;
TRI_API TRI_MUST_CHECK tri_status tri_power_sgd_create(const tri_power_sgd_options *opt,
                                                       tri_power_sgd **state_out);
/* Call it after the reducer or model that uses the state is destroyed; NULL allowed. */
TRI_API void tri_power_sgd_destroy(tri_power_sgd *state);
/* `state` is a tri_power_sgd, of one reducer or model only. */
TRI_API tri_status tri_bucket_hook_power_sgd(void *state, tri_bucket *bucket, int stage,
                                             tri_work **work_out);

/* --- the reducer ---------------------------------------------------------- */

/* Zero means the default. Must be the same on all ranks. */
typedef struct tri_reducer_options {
    tri_group *group;        /* NULL = the world (joined now if it was not); a reference is taken */
    size_t bucket_cap_bytes; /* 0 = 25 MiB */
    size_t first_bucket_bytes; /* 0 = 1 MiB, or bucket_cap_bytes if that is less */
    bool find_unused;          /* gradients may stay unready; see tri_reducer_finish */
    tri_bucket_hook hook;      /* NULL = a sum */
    void *hook_state;          /* borrowed */
    TRI_RESERVED(4);
} tri_reducer_options;

/* opt NULL = defaults. Blocks only if it has to join the world. */
TRI_API TRI_MUST_CHECK tri_status tri_reducer_create(const tri_reducer_options *opt,
                                                     tri_reducer **reducer_out);
/* NULL allowed. If a pass was begun and not finished, this aborts the group. */
TRI_API void tri_reducer_destroy(tri_reducer *reducer);

/* Registers a gradient. All ranks register the same ones before the first tri_reducer_begin, in the
 * same order, that of the forward pass. *index_out (NULL allowed) is its number, from 0 on.
 * Errors: INVALID_ARG, STATE (too late), NO_MEMORY. */
TRI_API TRI_MUST_CHECK tri_status tri_reducer_add(tri_reducer *reducer,
                                                  const tri_reducer_grad *grad, int *index_out);

/**
 * Ends the registration: forms the buckets and compares what all ranks have registered. Collective;
 * blocks until all ranks have called it. Without this call the first tri_reducer_begin does it.
 * Errors: MISMATCH (names the first gradient that differs, and how each of the two ranks registered
 * it).
 */
TRI_API TRI_MUST_CHECK tri_status tri_reducer_commit(tri_reducer *reducer);
/* The address of the gradient. One that the reducer allocates is 64-byte aligned, has its address
 * from tri_reducer_commit on, and is zeros at first. NULL: there is no gradient of that number, or
 * it has no address yet. */
TRI_API void *tri_reducer_data(tri_reducer *reducer, int index);

/**
 * Begins a pass. Collective: all ranks begin, mark and finish the same number of passes.
 *
 *   n_samples  the number of samples in this rank's mean; batches may differ. 0: this rank's data
 *              are used up. It then adds nothing to the averages but gets them, so that it can
 *              update its replica like the others.
 *
 * Returns TRI_END when no rank has samples left, so that all leave their loops together.
 * Blocks with 0 samples until all ranks have begun; otherwise it does not block.
 */
TRI_API TRI_MUST_CHECK tri_status tri_reducer_begin(tri_reducer *reducer, int64_t n_samples);

/* Marks the gradient of this number as complete: from now to tri_reducer_finish its buffer belongs
 * to the reducer. Sends its bucket if that is complete and the next in order, which blocks until
 * all ranks have begun the pass; makes progress on buckets that are being sent. Errors: INVALID_ARG
 * (there is no such gradient, or it is marked already; nothing has happened), STATE (no pass was
 * begun). */
TRI_API TRI_MUST_CHECK tri_status tri_reducer_ready(tri_reducer *reducer, int index);

/**
 * Ends the pass: sends what is left, and returns when every buffer holds its average.
 *
 * A gradient that this rank did not mark counts as zeros, and its buffer gets the average like any
 * other. With find_unused this is allowed, and a gradient that no rank marked stays as it is
 * (zeros, if the reducer allocated it; see tri_reducer_is_used). Without find_unused, a rank that
 * has samples and left gradients unmarked gets INVALID_ARG, which names them; it comes after the
 * pass, so that its peers can continue.
 */
TRI_API TRI_MUST_CHECK tri_status tri_reducer_finish(tri_reducer *reducer);

/* Gradient accumulation (torch's no_sync): says that the buffers also have the gradients of so many
 * further samples, added up without a pass. The next pass averages the sums of the gradients that
 * are marked in it; with k batches of one size per pass the result is the sum of the k averages. */
TRI_API TRI_MUST_CHECK tri_status tri_reducer_no_sync(tri_reducer *reducer, int64_t n_samples);

/* For a rank whose data are used up: takes part in passes with 0 samples until no rank has samples
 * left. After each pass it calls update(arg), which applies the averages, so that this rank's
 * replica stays equal to the others. What tri_reducer_no_sync has announced since the last pass is
 * data: all buffers count in the first pass. A failure of update aborts the group. */
TRI_API TRI_MUST_CHECK tri_status tri_reducer_join(tri_reducer *reducer,
                                                   tri_status (*update)(void *arg), void *arg);

/* Whether any rank marked the gradient in the last finished pass; true without find_unused. */
TRI_API bool tri_reducer_is_used(const tri_reducer *reducer, int index);
/* Samples of all ranks in the last finished pass. */
TRI_API int64_t tri_reducer_sample_count(const tri_reducer *reducer);
/* The number of buckets; 0 before tri_reducer_commit. */
TRI_API int tri_reducer_bucket_count(const tri_reducer *reducer);

#ifndef TRI_NO_SITES
#define tri_reducer_begin(...) TRI_SITE_SET_(tri_reducer_begin(__VA_ARGS__))
#define tri_reducer_ready(...) TRI_SITE_SET_(tri_reducer_ready(__VA_ARGS__))
#define tri_reducer_finish(...) TRI_SITE_SET_(tri_reducer_finish(__VA_ARGS__))
#endif

TRI_END_DECLS

#endif
