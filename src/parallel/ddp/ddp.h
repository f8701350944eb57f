/*
 * ddp.h - the inside of data-parallel training, for the files of this folder.
 *
 *   ddp.c      the module: options, construction, forward, no_sync, the stop vote
 *   params.c   which parameters are averaged
 *   agree.c    ranks compare their models; rank 0's state to all
 *   buckets.c  where gradients lie: storages in the group's arena, their order, the rebuild
 *   attach.c   what tri_backward gets to record: the header, one collective per bucket
 *   travel.c   the recorded collectives while they run
 *   buffers.c  rank 0's buffers to all before a forward in training
 *
 * How the average is made. With c_r samples on rank r (or what their mean divides by) and N = sum
 * of c_r, the gradient of the mean over all samples is sum of (c_r / N) g_r. A header (three 8-byte
 * sums: what the means divide by; stop votes and ranks with unused parameters; samples) is the
 * first operation of the backward pass: it depends on nothing or on targets alone, so it is
 * exchanged while forward runs. Its result, the weight c_r / N in double rounded once, is the
 * *seed* of the backward pass, so that every gradient comes out weighted, and a bucket is one plain
 * sum: no pass over memory before it and none after. With equal counts the weight is 1/W; torch
 * multiplies each gradient by 1/W instead, which is the same for W a power of two (scaling is
 * exact) and equal to rounding else. Where gradients had added up before (no_sync, a second loss),
 * the seed stays 1 and the sums are multiplied by the weight: weights sum to 1, so what was
 * averaged already stays.
 */
#ifndef TRII_DDP_H
#define TRII_DDP_H

#include <trireme/parallel.h>

#include "base/compiler.h"
#include "base/site.h"
#include "graph/host_op.h"
#include "graph/step.h"
#include "nn/module.h"

typedef struct trii_ddp trii_ddp;
typedef struct trii_ddp_bucket trii_ddp_bucket;

/* A host operation has at most 64 operands. */
#define TRII_DDP_ITEMS 63

typedef struct trii_ddp_param {
    const char *name;   /* the module's */
    tri_tensor *tensor; /* borrowed from its trii_ddp_watched */
    trii_ddp_bucket *bucket;
    /* Of a parameter in a device's own memory, whose gradient lies there too: its place in the
     * bucket, through which copies go; owned. NULL: the gradient itself lies in the bucket. */
    tri_tensor *place;
    size_t offset, bytes; /* of its place in the bucket */
    bool used_here;       /* by the last synchronised backward */
} trii_ddp_param;

/* A parameter of the network, whether it is trained or not. */
typedef struct trii_ddp_watched {
    const char *name;   /* the module's */
    tri_tensor *tensor; /* a reference is held */
    bool listed;        /* among ddp->params, for good */
} trii_ddp_watched;

/* One recorded collective, from recording until it is done. */
typedef enum trii_travel_state {
    TRII_TRAVEL_FREE,
    TRII_TRAVEL_RECORDED,
    TRII_TRAVEL_STARTED
} trii_travel_state;

typedef struct trii_travel {
    trii_host_op op;   /* first: a trii_host_op * of ours is a trii_travel */
    atomic_int owners; /* the model, and the step in which it is recorded until that ends */
    trii_ddp *ddp;     /* NULL: it is gone */
    tri_group *left;   /* then: the group whose ranks wait for it, a reference; NULL = none does */
    trii_ddp_bucket *bucket; /* what it carries: one of the two, or a header */
    struct trii_ddp_block *block;
    struct trii_travel *next;   /* of the same kind */
    struct trii_travel *header; /* of a bucket: the header of the same backward */
    trii_travel_state state;
    uint64_t generation; /* of the step in which it is recorded */
    trii_site site;      /* the forward or backward that recorded it */
    tri_work *work;
    bool last; /* bucket: the last of its backward; sends the map of used parameters if needed */
    uint64_t pass;                /* bucket: of which forward, see open_pass */
    int n;                        /* operands */
    int item[TRII_DDP_ITEMS + 1]; /* bucket: parameter of operand i, -1 = none; buffers: buffer */
    void *out[TRII_DDP_ITEMS + 1];
    size_t out_bytes[TRII_DDP_ITEMS + 1];
    double sums[3];   /* header: divisors; votes + (ranks with unused parameters << 32); samples */
    trii_vid weight;  /* header: its first result */
    double divisor;   /* header: what the means here divide by, together */
    int64_t count;    /* header: samples here */
    int64_t fixed;    /* header: of the divisor, what was known when it was recorded */
    bool valued;      /* header: the rest of it is the last operand */
    uint64_t epoch;   /* header, count: which gradients add up */
    unsigned n_polls; /* header */
    bool vote_stop;   /* header */
    bool unused;      /* header: some parameter is not used here */
    tri_work *map_work;
} trii_travel;

struct trii_ddp_bucket {
    int index;
    tri_dtype dtype;
    trii_storage *storage;
    size_t bytes; /* used of the storage */
    int *params;  /* [n_params], by offset */
    int n_params;
    trii_travel *travels;
};

/* Some buffers and their block in the arena. */
typedef struct trii_ddp_block {
    trii_storage *storage;
    size_t bytes;
    int first, n; /* of ddp->buffers */
    trii_travel *travels;
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
    trii_ddp_bucket *buckets; /* in the order in which they are sent */
    int n_buckets;
    bool any_layout; /* gradients lie in the parameters' layouts, on which all ranks agree */
    bool rebuilt;    /* buckets have their final order */
    int *observed;   /* [n_params]: order in which the first backward completed gradients */
    bool has_observed;
    int *sequence; /* [n_params]: parameters as the last backward named them */
    trii_ddp_buffer *buffers;
    int n_buffers;
    trii_ddp_block *blocks;
    int n_blocks;
    /* The step in which a synchronised forward was, and the buckets of its backward are not all
     * sent: peers wait for it. 0 = none. */
    uint64_t open_step;
    uint64_t open_pass; /* the number of that forward */
    bool buffers_stale; /* a forward in training has changed them since they were equal */
    trii_travel *headers;
    trii_travel *counts; /* of backward passes without synchronisation */
    trii_travel *header; /* of the backward that is being recorded */
    bool seeded;         /* its gradients come weighted */
    /* f32, f64: operands that carry a type; 1, which TRI_CHECK=nan takes for the weight when it
     * repeats a step without communication */
    tri_tensor *unit[2];
    trii_vid *grad_of;   /* [n_params]: room for attach */
    unsigned char *map;  /* [n_params]: used by some rank */
    bool unsettled;      /* some has_grad waits for the map */
    int no_sync;         /* depth */
    int64_t local_count; /* samples of backward passes without synchronisation */
    int64_t local_fixed; /* of them, what means divide by that divide by their number */
    /* What the others divide by: known as they run, and worth something while the gradients that
     * they belong to add up (epoch). */
    double local_valued;
    uint64_t epoch, valued_epoch;
    bool vote_stop, stopped;
    int64_t sample_count;
    /* What recording a backward pass changes, as it was before the segment that pends; a step that
     * fails gets it back. */
    struct {
        uint64_t generation; /* of the step, 0 = nothing is kept */
        int32_t first_node;  /* of the segment */
        int64_t local_count, local_fixed, sample_count;
        double local_valued;
        uint64_t epoch, valued_epoch;
        bool vote_stop, unsettled;
    } before;
};

/* agree.c. Collective. `contents`: compare values too, else names, types and shapes. */
tri_status trii_ddp_compare(trii_ddp *ddp, bool contents, bool buffers) TRI_MUST_CHECK;
tri_status trii_ddp_broadcast_state(trii_ddp *ddp) TRI_MUST_CHECK;

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
/* Fills params with those that require a gradient, and those that did; the lists start anew. */
tri_status trii_ddp_params_list(trii_ddp *ddp) TRI_MUST_CHECK;
void trii_ddp_params_hook(trii_ddp *ddp);
/* Whether one that is not listed requires a gradient by now. */
bool trii_ddp_params_grew(const trii_ddp *ddp);
bool trii_ddp_params_have_grads(const trii_ddp *ddp);
const char *trii_ddp_param_name(const trii_ddp *ddp, const tri_tensor *tensor);
void trii_ddp_params_free(trii_ddp *ddp);

/* attach.c: the hook's functions. */
/* attach of a world of one. */
tri_status trii_ddp_count_alone(trii_grad_hook *hook, trii_step *step, tri_tensor *const *params,
                                trii_vid *grads, int n, const trii_samples *under);
tri_status trii_ddp_seed(trii_grad_hook *hook, trii_step *step, tri_dtype dtype,
                         const trii_samples *under, trii_vid *seed_out);
tri_status trii_ddp_attach(trii_grad_hook *hook, trii_step *step, tri_tensor *const *params,
                           trii_vid *grads, int n, const trii_samples *under);
tri_status trii_ddp_settle(trii_grad_hook *hook, trii_step *step);

/* The pending segment of the step will never complete. */
void trii_ddp_take_back(trii_ddp *ddp, const trii_step *step);

/* travel.c: what became of a call to the group, which the program did not make itself: where the
 * ranks' calls differ the error says what ours are for. */
tri_status trii_ddp_called(tri_status st);
/* A free one of the list (a new one if all are under way), marked as recorded. */
tri_status trii_travel_take(trii_ddp *ddp, trii_travel **list, trii_step *step,
                            trii_travel **travel_out) TRI_MUST_CHECK;
/* What a pending step still points to fails when it is started, here and on the peers, and is freed
 * when the step ends. */
void trii_travels_free(trii_travel *list);
/* Fill in the operation of the three kinds. */
void trii_travel_is_header(trii_travel *travel);
void trii_travel_is_count(trii_travel *travel);
void trii_travel_is_bucket(trii_travel *travel);
void trii_travel_is_block(trii_travel *travel);

/* buffers.c */
tri_status trii_ddp_buffers_make(trii_ddp *ddp) TRI_MUST_CHECK;
tri_status trii_ddp_buffers_record(trii_ddp *ddp, trii_step *step) TRI_MUST_CHECK;
void trii_ddp_buffers_free(trii_ddp *ddp);

#endif
