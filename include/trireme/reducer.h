/*
 * reducer.h - data-parallel training for programs with gradients of their own: plain buffers
 * become averages over all workers while the backward pass still computes.
 *
 *     tri_reducer_create(NULL, &r);                            // averages over the world
 *     tri_reducer_add(r, &(tri_reducer_grad){.data = g, .count = n}, NULL);   // each gradient
 *     ...
 *     tri_reducer_begin(r, batch);      // so many samples stand under this worker's mean
 *     ... compute a gradient ...  tri_reducer_ready(r, index);               // in any order
 *     tri_reducer_finish(r);            // now every buffer holds the mean over all samples
 *
 * Gradients are sent in buckets, in reverse order of their registration (the order in which a
 * backward pass completes them): a first bucket of about 1 MiB, so that sending starts early, then
 * buckets of 25 MiB. A bucket is sent as soon as all of it is ready, in the same order on all
 * ranks.
 *
 * The average is over samples, not over ranks: the weight of a rank's gradient is the number of
 * samples it gives. If each rank's gradient is that of the mean over its own samples, the result is
 * the gradient of the mean over all samples. Results are the same on all ranks, bit for bit,
 * whatever the buckets.
 *
 * Threads: one at a time. Errors of the group (PEER_LOST, GROUP_TIMEOUT, MISMATCH, ABORTED) are
 * permanent: every later call returns them. A failure on one rank aborts the group, so that its
 * peers get the reason instead of waiting; on this rank it is returned as ABORTED too, with its
 * cause in the line.
 */
#ifndef TRIREME_REDUCER_H
#define TRIREME_REDUCER_H

#include <trireme/group.h>

TRI_BEGIN_DECLS

typedef struct tri_reducer tri_reducer;

/* One gradient. Zero means the default. */
typedef struct tri_reducer_grad {
    void *data; /* [count]; borrowed until the reducer is destroyed. NULL = the reducer places it in
                   memory that all local ranks map, and nothing is copied: tri_reducer_data */
    size_t count;
    tri_dtype dtype;  /* f16, bf16, f32 or f64; 0 = f32 */
    const char *name; /* for messages; copied; NULL = its number */
    size_t rows;      /* count = rows x columns: lets hooks treat it as a matrix; 0 = a vector */
} tri_reducer_grad;

/* --- communication hooks -----------------------------------------------------
 * A hook replaces the sum of a bucket, usually to send fewer bytes. */

typedef struct tri_bucket_part {
    const char *name;
    size_t offset, count; /* elements of the bucket's data; between the parts are zeros */
    size_t rows;
    int index; /* the gradient's number; of a model: the parameter's, of those that are trained */
} tri_bucket_part;

typedef struct tri_bucket {
    int index, n_buckets;
    tri_group *group;
    tri_dtype dtype;
    void *data; /* [count]: this rank's gradients times `weight`, so that their sum over the ranks
                   is the average; the hook leaves the average there */
    size_t count;
    double weight; /* this rank's share of all samples; 0: it has none, and data is zeros */
    const tri_bucket_part *parts;
    int n_parts;
    int64_t pass; /* how many were begun before */
    void *owner;  /* the library's own */
} tri_bucket;

/**
 * Called with stage 0 when the bucket is complete; with stage 1 when the work that it left in
 * *work_out is done, and so on, until it leaves NULL there (as it is before the call): then the
 * average is in bucket->data. Stage 0 overlaps with the computation and should only start
 * something; later stages run in tri_reducer_finish (for a model: when all buckets have been sent),
 * stage by stage over all buckets. So all ranks make the same calls in the same order if their
 * hooks do. Any status but TRI_OK aborts the group.
 */
typedef tri_status (*tri_bucket_hook)(void *state, tri_bucket *bucket, int stage,
                                      tri_work **work_out);

/* Memory of a hook that stays with the bucket and is freed with it: zeros at first, and the same
 * memory in each call. Asking for more than before loses the contents. NULL: out of memory. */
TRI_API void *tri_bucket_memory(tri_bucket *bucket, size_t bytes);

/* Half the bytes of f32: buckets are sent as f16 or bf16, sums are made in f32 and rounded once.
 * Buckets of 16-bit types are sent as they are. `state` is not used. */
TRI_API tri_status tri_bucket_hook_f16(void *state, tri_bucket *bucket, int stage,
                                       tri_work **work_out);
TRI_API tri_status tri_bucket_hook_bf16(void *state, tri_bucket *bucket, int stage,
                                        tri_work **work_out);

/* PowerSGD (Vogels, Karimireddy, Jaggi, NeurIPS 2019; defaults of torch's hook): an n x m matrix is
 * sent as n x r and m x r; what is lost is added to the next gradient (error feedback). Applies to
 * f32 gradients with `rows` and enough to gain; all others are sent as they are. */
typedef struct tri_power_sgd_options {
    int rank;           /* r; 0 = 1 */
    int64_t start_pass; /* passes before that are plain averages; 0 = 1000, -1 = none */
    double min_rate;    /* only where (n + m) r min_rate < n m; 0 = 2 */
    bool no_feedback;   /* what is lost stays lost */
    bool no_warm_start; /* each pass starts from new random numbers */
    uint64_t seed;      /* the same on all ranks */
} tri_power_sgd_options;

typedef struct tri_power_sgd tri_power_sgd;
TRI_API TRI_MUST_CHECK tri_status tri_power_sgd_create(const tri_power_sgd_options *opt,
                                                       tri_power_sgd **state_out);
/* After the reducer or model that uses it; NULL allowed. */
TRI_API void tri_power_sgd_destroy(tri_power_sgd *state);
/* `state` is a tri_power_sgd, of one reducer or model only. */
TRI_API tri_status tri_bucket_hook_power_sgd(void *state, tri_bucket *bucket, int stage,
                                             tri_work **work_out);

/* --- the reducer ---------------------------------------------------------- */

/* Zero means the default. All ranks give the same. */
typedef struct tri_reducer_options {
    tri_group *group;        /* NULL = the world (joined now if it was not); a reference is taken */
    size_t bucket_cap_bytes; /* 0 = 25 MiB */
    size_t first_bucket_bytes; /* 0 = 1 MiB, or bucket_cap_bytes if that is less */
    bool find_unused;          /* gradients may stay unready; see tri_reducer_finish */
    tri_bucket_hook hook;      /* NULL = a sum */
    void *hook_state;          /* borrowed */
} tri_reducer_options;

/* NULL options = defaults. Blocks only where it joins the world. */
TRI_API TRI_MUST_CHECK tri_status tri_reducer_create(const tri_reducer_options *opt,
                                                     tri_reducer **reducer_out);
/* NULL allowed. A pass that was begun and not finished aborts the group. */
TRI_API void tri_reducer_destroy(tri_reducer *reducer);

/* Registers a gradient, in the order of the forward pass and the same on all ranks, before the
 * first tri_reducer_begin. index_out (may be NULL): its number, counting from 0.
 * Errors: INVALID_ARG, STATE (too late), NO_MEMORY. */
TRI_API TRI_MUST_CHECK tri_status tri_reducer_add(tri_reducer *reducer,
                                                  const tri_reducer_grad *grad, int *index_out);

/**
 * Ends the registration: makes the buckets and compares all ranks' gradients. Collective; blocks
 * until all ranks called it. The first tri_reducer_begin does it otherwise.
 * Errors: MISMATCH (names the first gradient that differs, and both ranks' words about it).
 */
TRI_API TRI_MUST_CHECK tri_status tri_reducer_commit(tri_reducer *reducer);
/* Where the gradient lies, 64-byte aligned if the reducer placed it (from tri_reducer_commit on,
 * zeros at first); NULL if there is none of that number, or no place yet. */
TRI_API void *tri_reducer_data(tri_reducer *reducer, int index);

/**
 * Begins a pass. Collective: all ranks begin, mark and finish the same number of passes.
 *
 *   n_samples  under this rank's mean; batches may differ. 0: this rank's data are used up. It
 *              takes part with nothing, and gets the averages, so that it may update its replica
 *              with the others.
 *
 * Returns TRI_END when no rank has a sample left: all leave their loops together.
 * Blocks: with 0 samples until all ranks have begun; else not.
 */
TRI_API TRI_MUST_CHECK tri_status tri_reducer_begin(tri_reducer *reducer, int64_t n_samples);

/* The gradient of this number is complete: from now to tri_reducer_finish its buffer belongs to the
 * reducer. Sends its bucket if that is complete and next, which blocks until all ranks have begun
 * the pass; helps what is under way along.
 * Errors: INVALID_ARG (no such number, marked twice: nothing happened), STATE (no pass). */
TRI_API TRI_MUST_CHECK tri_status tri_reducer_ready(tri_reducer *reducer, int index);

/**
 * Ends the pass: sends what is left, and returns when every buffer holds its average.
 *
 * A gradient that this rank did not mark counts as zeros, and its buffer gets the others' average.
 * With find_unused that is as it should be, and one that no rank marked stays as it is (zeros, if
 * the reducer placed it): see tri_reducer_used. Without, it is INVALID_ARG that names the gradients
 * (after the pass, so that peers go on), unless this rank has no samples.
 */
TRI_API TRI_MUST_CHECK tri_status tri_reducer_finish(tri_reducer *reducer);

/* Accumulation: gradients of so many further samples were added up in the buffers without a pass
 * (torch's no_sync); the next pass averages the sums. With k batches of one size per pass the
 * result is the sum of the k averages. */
TRI_API TRI_MUST_CHECK tri_status tri_reducer_no_sync(tri_reducer *reducer, int64_t n_samples);

/* For a rank whose data are used up: takes part with nothing until no rank has samples left, and
 * calls update(arg) after each pass, where the averages are applied, so that its replica stays
 * equal. A failure of update aborts the group. */
TRI_API TRI_MUST_CHECK tri_status tri_reducer_join(tri_reducer *reducer,
                                                   tri_status (*update)(void *arg), void *arg);

/* Of the last finished pass: did any rank mark the gradient (true without find_unused)? */
TRI_API bool tri_reducer_used(const tri_reducer *reducer, int index);
/* Samples of all ranks in the last finished pass. */
TRI_API int64_t tri_reducer_samples(const tri_reducer *reducer);
TRI_API int tri_reducer_buckets(const tri_reducer *reducer); /* their number; 0 before commit */

#ifndef TRI_NO_SITES
#define tri_reducer_begin(...) TRI_SITE_SET_(tri_reducer_begin(__VA_ARGS__))
#define tri_reducer_ready(...) TRI_SITE_SET_(tri_reducer_ready(__VA_ARGS__))
#define tri_reducer_finish(...) TRI_SITE_SET_(tri_reducer_finish(__VA_ARGS__))
#endif

TRI_END_DECLS

#endif
