/*
 * ddp.h - DistributedDataParallel: what the files of this folder share.
 *
 *   ddp.c              the module: options, construction, forward, no_sync, the stop vote
 *   params.c           which parameters are averaged
 *   ddp_verify.c       ranks compare their models; one rank's state is sent to all
 *   buckets.c          where gradients lie: storages in the group's arena, their order, the rebuild
 *   backward_hook.c    what tri_backward records: the header, one collective per bucket
 *   ddp_collectives.h  the recorded collectives while they run
 *   buffers.c          one rank's buffers are sent to all before a forward in training
 *   ddp_counts.c       samples that wait to be averaged
 *   ddp_join.c         ranks that have run out of data
 *   ddp_stats.c        how long each bucket takes
 *
 * How the average is made. With c_r samples on rank r (or what their mean divides by) and N = sum
 * of c_r, the gradient of the mean over all samples is sum of (c_r / N) g_r. A header (8-byte
 * sums: what the means divide by; stop votes and ranks with unused parameters; samples; ranks
 * without data any more) is the first operation of the backward pass: it depends on nothing or on
 * targets alone, so it is exchanged while forward runs. Its result, the weight c_r / N in double
 * rounded once, is the *seed* (torch: grad_output) of the backward pass: every gradient comes out
 * weighted, and a bucket is one plain sum, without a pass over memory before or after it. With
 * equal counts the weight is 1/W; torch multiplies each gradient by 1/W instead, which is the same
 * for W a power of two (scaling is exact) and equal to rounding else. Where gradients had added up
 * before (no_sync, a second loss), these are multiplied by the weight: weights sum to 1, so what
 * was averaged already stays; where no rank has a sample all weigh the same. Where the seed is not
 * ours alone to choose (a loss of several models) it stays 1, and the sums are multiplied instead.
 *
 * Gradients that go through sums over ranks on their way (SyncBatchNorm) mix the ranks' losses, so
 * these have to be weighted before. That is what the seed does; a pass without synchronisation has
 * a header and a seed too then, and its gradients add up as they will be summed.
 *
 * A bucket is one operation of the step. With a hook whose later stages communicate it is two,
 * since those stages have one order over all buckets: all buckets are sent, then all are waited
 * for, and the group begins nothing else in between.
 */
#ifndef TRII_DDP_H
#define TRII_DDP_H

#include <trireme/parallel.h>

#include "base/compiler.h"
#include "base/site.h"
#include "train/graph/step/host_op.h"
#include "train/graph/step/step.h"
#include "train/nn/module.h"
#include "comm/reducer/averager.h"

typedef struct trii_ddp trii_ddp;
typedef struct trii_ddp_bucket trii_ddp_bucket;

/* A host operation has at most 64 operands. */
#define TRII_DDP_ITEMS 63
/* As many contexts may train one model at a time. */
#define TRII_DDP_OPEN 8

typedef struct trii_ddp_param {
    const char *name;   /* the module's */
    tri_tensor *tensor; /* borrowed from its trii_ddp_watched */
    trii_ddp_bucket *bucket;
    /* Of a parameter in a device's own memory, whose gradient lies there too: the view of the
     * bucket through which it is copied; owned. NULL: the gradient itself lies in the bucket. */
    tri_tensor *bucket_view;
    size_t offset, bytes; /* in the bucket */
    bool used_here;       /* by the last synchronised backward */
    bool unknown;         /* it was not: the map says whether there is a gradient */
} trii_ddp_param;

/* What the ranks tell each other of a backward pass. */
typedef enum trii_header_use {
    TRII_HEADER_AVERAGE, /* it averages what has added up */
    /* It does not average, but its gradients go through sums over ranks, in which they must be
       weighted before. */
    TRII_HEADER_WEIGH,
    TRII_HEADER_CHECK /* the same, but they cannot be: all ranks must have equal weights */
} trii_header_use;

/* A parameter of the network, whether it is trained or not. */
typedef struct trii_ddp_watched {
    const char *name;   /* the module's */
    tri_tensor *tensor; /* a reference is held */
    bool listed;        /* among ddp->params, for good */
} trii_ddp_watched;

/* One recorded collective, from recording until it is done. */
typedef enum trii_ddp_coll_state {
    TRII_DDP_COLL_FREE,
    TRII_DDP_COLL_RECORDED,
    TRII_DDP_COLL_STARTED
} trii_ddp_coll_state;

typedef struct trii_ddp_coll {
    trii_host_op op;   /* first: a trii_host_op * of this room is a trii_ddp_coll */
    atomic_int owners; /* the model, and the step in which it is recorded until that ends */
    trii_ddp *ddp;     /* NULL: it is gone */
    tri_group *left;   /* then: the group whose ranks wait for it, a reference; NULL = none does */
    trii_ddp_bucket *bucket; /* what it carries: one of the two, or a header */
    struct trii_ddp_block *block;
    struct trii_ddp_coll *next;   /* of the same kind */
    struct trii_ddp_coll *header; /* of a bucket: the header of the same backward */
    trii_ddp_coll_state state;
    uint64_t generation; /* of the step in which it is recorded */
    trii_site site;      /* the forward or backward that recorded it */
    tri_work *work;
    bool last; /* bucket: the last of its backward; sends the map of used parameters if needed */
    int n;     /* operands */
    int item[TRII_DDP_ITEMS + 1]; /* bucket: parameter of operand i, -1 = none; buffers: buffer */
    void *out[TRII_DDP_ITEMS + 1];
    size_t out_bytes[TRII_DDP_ITEMS + 1];
    trii_vid weight;     /* header: its first result */
    double divisor;      /* header: what the means here divide by, together */
    int64_t count;       /* header: samples here */
    int64_t fixed;       /* header: of the divisor, what was known when it was recorded */
    bool valued;         /* header: the rest of it is the last operand */
    uint64_t epoch;      /* header, count: which gradients add up */
    unsigned n_polls;    /* header */
    bool vote_stop;      /* header */
    bool unused;         /* header: some parameter is not used here */
    bool joined;         /* header: this rank has no data any more */
    bool throws;         /* header: and all are to fail if others have */
    bool weighted;       /* header: some of what it averages is */
    bool mixes;          /* header: its gradients go through sums over ranks */
    bool held;           /* header: gradients had added up here before its backward */
    bool even;           /* header: fails unless all ranks have equal weights */
    trii_header_use use; /* header */
    tri_work *map_work;
    /* header: divisors; votes + (ranks that throw << 16) + (ranks with unused parameters << 32);
     * samples; which ranks have joined, a bit each */
    double sums[];
} trii_ddp_coll;

struct trii_ddp_bucket {
    trii_bucket *wire; /* of the averager */
    trii_storage *storage;
    trii_ddp_coll *colls, *ends;
    int64_t sent_ns, comm_ns, exposed_ns; /* see ddp_stats.c */
    size_t sent_bytes;
    /* Of the backward that is being recorded: what sends the bucket, and its results. */
    trii_ddp_coll *recorded;
    trii_vid sent[TRII_DDP_ITEMS + 1];
};

/* Some buffers and their block in the arena. */
typedef struct trii_ddp_block {
    trii_storage *storage;
    size_t bytes;
    int first, n; /* of ddp->buffers */
    trii_ddp_coll *colls;
} trii_ddp_block;

typedef struct trii_ddp_buffer {
    tri_tensor *tensor;
    size_t offset, bytes;
} trii_ddp_buffer;

struct trii_ddp {
    trii_grad_hook hook; /* first */
    tri_group *group;    /* a reference; NULL = one rank, which only counts its samples */
    int rank, size;
    uint64_t id; /* unique in the process: part of plans' identity */
    tri_ddp_options options;
    tri_module *net;
    trii_ddp_watched *watched;
    int n_watched;
    trii_ddp_param *params;
    int n_params;
    trii_averager averager;   /* buckets, in the order in which they are sent */
    trii_ddp_bucket *buckets; /* [averager.n_buckets] */
    bool any_layout; /* gradients lie in the parameters' layouts, on which all ranks agree */
    bool rebuilt;    /* buckets have their final order */
    int *observed;   /* [n_params]: order in which the first backward completed gradients */
    bool has_observed;
    int *sequence; /* [n_params]: parameters as the last backward named them */
    trii_ddp_buffer *buffers;
    int n_buffers;
    trii_ddp_block *blocks;
    int n_blocks;
    /* Steps with synchronised forwards, and the buckets of their backwards are not all there:
     * peers wait for them. If there are too many the oldest is forgotten. */
    struct {
        uint64_t generation; /* 0 = free */
        uint64_t number;     /* of its first forward */
        int n_forwards;      /* without a backward that is complete */
    } open[TRII_DDP_OPEN];
    uint64_t n_opened;
    trii_ddp_coll *headers;
    trii_ddp_coll *counts; /* of backward passes without synchronisation */
    trii_ddp_coll *header; /* of the backward that is being recorded */
    /* The last header that was recorded, and its step: what follows there may depend on what it
     * brings. */
    trii_vid last_weight;
    uint64_t last_generation;
    bool seeded; /* its gradients come weighted */
    bool held;   /* gradients had added up before it */
    /* What has added up since the last average is weighted: passes without synchronisation went
     * through sums over ranks. */
    bool weighted;
    /* Of the backward that is being recorded: its weight as f32 and f64, and on the device of the
     * parameter that was last multiplied by it; NO_VALUE = none. What gradients held before is
     * multiplied by it, or all of them. */
    trii_vid weight[2], weight_there[2];
    tri_device weight_device;
    /* f32, f64: operands that carry a type; 1, which TRI_CHECK=nan takes for the weight when it
     * repeats a step without communication */
    tri_tensor *unit[2];
    trii_vid *grad_of;   /* [n_params]: room for attach */
    unsigned char *map;  /* [n_params]: used by some rank */
    int n_unknown;       /* params whose has_grad waits for the map */
    int no_sync;         /* depth */
    int64_t local_count; /* samples of backward passes without synchronisation */
    int64_t local_fixed; /* of them, what means divide by that divide by their number */
    /* What the others divide by: known as they run, and worth something while the gradients that
     * they belong to add up (epoch). */
    double local_valued;
    uint64_t epoch, valued_epoch;
    bool vote_stop, stopped;
    uint64_t stopped_in; /* generation of the step whose header said so */
    bool joined;         /* passes that are recorded now are empty for ever */
    bool throws;         /* and no rank may have data then */
    int n_joined;        /* in the last pass, of all ranks */
    int source; /* whose buffers all get: rank 0, or, once its data are used up, the highest rank
                   that had data in the last pass */
    int64_t sample_count;
    const tri_device *device, *output; /* of options: one of its own or NULL */
    tri_device devices[2];
    struct {
        bool on;
        int64_t n_passes, comm_ns, exposed_ns, until_ns;
    } stats;
    /* What recording a backward pass changes, as it was before the segment that pends; a step that
     * fails gets it back. */
    struct {
        uint64_t generation; /* of the step, 0 = nothing is kept */
        int32_t first_node;  /* of the segment */
        int64_t local_count, local_fixed, sample_count;
        double local_valued;
        uint64_t epoch, valued_epoch;
        bool vote_stop, weighted;
    } before;
};

/* ddp_verify.c. Collective. `contents`: compare values too, else names, types and shapes. */
tri_status trii_ddp_compare(trii_ddp *ddp, bool contents, bool buffers) TRI_MUST_CHECK;
/* This rank has no network to compare: the others are told why when they compare theirs. */
void trii_replica_failed(tri_group *group, const char *line);
/* The root's values of a network on which all agree. */
tri_status trii_replica_send(tri_module *net, tri_group *group, int root) TRI_MUST_CHECK;

/* ddp.c. NULL: it is none. */
trii_ddp *trii_ddp_of(const tri_module *model);
/* What failed here: peers that are where the ranks meet get the reason. */
tri_status trii_ddp_tell(tri_group *group, tri_status status);

/* buckets.c. Storage in the group's arena. */
tri_status trii_ddp_storage_create(trii_ddp *ddp, size_t bytes,
                                   trii_storage **storage_out) TRI_MUST_CHECK;
/* Buckets for the parameters in this order; gradients move there. Collective. */
tri_status trii_ddp_buckets_make(trii_ddp *ddp, const int *order) TRI_MUST_CHECK;
/* Once, after the first backward: rank 0's order, layouts on which all agree. Collective; nothing
 * may pend. */
tri_status trii_ddp_buckets_rebuild(trii_ddp *ddp) TRI_MUST_CHECK;
void trii_ddp_buckets_free(trii_ddp *ddp);

/* params.c. */
tri_status trii_ddp_params_watch(trii_ddp *ddp) TRI_MUST_CHECK;
/* Fills params with those that require a gradient, and those that did; the lists start over. */
tri_status trii_ddp_params_list(trii_ddp *ddp) TRI_MUST_CHECK;
void trii_ddp_params_hook(trii_ddp *ddp);
/* Whether one that is not listed requires a gradient by now. */
bool trii_ddp_params_grew(const trii_ddp *ddp);
bool trii_ddp_params_have_grads(const trii_ddp *ddp);
const char *trii_ddp_param_name(const trii_ddp *ddp, const tri_tensor *tensor);
void trii_ddp_params_free(trii_ddp *ddp);

/* ddp_stats.c, where they are on: a bucket is sent; somebody has waited for it since; its averages
 * are there. */
void trii_ddp_stats_sent(trii_ddp_bucket *bucket);
void trii_ddp_stats_waited(trii_ddp *ddp, trii_ddp_bucket *bucket, int64_t since_ns);
void trii_ddp_stats_over(trii_ddp *ddp, trii_ddp_bucket *bucket, bool last);

/* backward_hook.c. Runs what pends, after which all ranks know which parameters have a gradient. */
tri_status trii_ddp_settle(trii_ddp *ddp, trii_step *step) TRI_MUST_CHECK;

/* backward_hook.c: the hook's functions. */
tri_status trii_ddp_begin(trii_grad_hook *hook, trii_step *step);
tri_status trii_ddp_seed(trii_grad_hook *hook, trii_step *step, tri_dtype dtype,
                         const trii_samples *under, trii_vid *seed_out);
tri_status trii_ddp_record_backward(trii_grad_hook *hook, trii_step *step,
                                    tri_tensor *const *params, trii_vid *grads, int n,
                                    const trii_samples *under);
tri_status trii_ddp_held(trii_grad_hook *hook, trii_step *step, const tri_tensor *param,
                         trii_vid *term_io);
tri_status trii_ddp_finish_unused(trii_grad_hook *hook, trii_step *step);
void trii_ddp_cleared(trii_grad_hook *hook, const tri_tensor *param);

/* ddp_counts.c. Before a backward is recorded: what the step gives back if it fails. Fails (STATE)
 * while one of another context pends, whose counts are the model's too. */
tri_status trii_ddp_remember(trii_ddp *ddp, const trii_step *step) TRI_MUST_CHECK;
/* The pending segment of the step will never complete. */
void trii_ddp_take_back(trii_ddp *ddp, const trii_step *step);
/* Nobody waits for the map any more. */
void trii_ddp_forget_unknown(trii_ddp *ddp);
/* Gradients that were consumed or thrown away take along what was noted about them: true. */
bool trii_ddp_forget_if_cleared(trii_ddp *ddp);
/* A backward without synchronisation: what its mean divides by counts later. */
tri_status trii_ddp_count(trii_ddp *ddp, trii_step *step, const trii_samples *under) TRI_MUST_CHECK;
/* attach of a world of one. */
tri_status trii_ddp_count_alone(trii_grad_hook *hook, trii_step *step, tri_tensor *const *params,
                                trii_vid *grads, int n, const trii_samples *under);

/* ddp_collectives.c: what became of a call to the group, which the program did not make itself:
 * where the ranks' calls differ the error says what ours are for. */
tri_status trii_ddp_called(tri_status status);
/* The same of a call in a forward or backward: also what a rank that has left may have missed. */
tri_status trii_ddp_passed(const trii_ddp *ddp, tri_status status);
/* A free one of the list (a new one if all are under way), marked as recorded. */
tri_status trii_ddp_coll_take(trii_ddp *ddp, trii_ddp_coll **list, trii_step *step,
                              trii_ddp_coll **coll_out) TRI_MUST_CHECK;
/* What a pending step still points to fails when it is started, here and on the peers, and is freed
 * when the step ends. */
void trii_ddp_colls_free(trii_ddp_coll *list);
/* Numbers in a header. */
size_t trii_ddp_header_count(const trii_ddp *ddp);
/* Fill in the operation of the kinds. */
void trii_ddp_coll_is_header(trii_ddp_coll *coll);
void trii_ddp_coll_is_count(trii_ddp_coll *coll);
/* Sends the bucket; without a hook waits for its averages. */
void trii_ddp_coll_is_bucket(trii_ddp_coll *coll);
/* With a hook: waits for the bucket's averages. */
void trii_ddp_coll_is_end(trii_ddp_coll *coll);

/* buffers.c */
tri_status trii_ddp_buffers_make(trii_ddp *ddp) TRI_MUST_CHECK;
tri_status trii_ddp_buffers_record(trii_ddp *ddp, trii_step *step) TRI_MUST_CHECK;
void trii_ddp_buffers_free(trii_ddp *ddp);

#endif
