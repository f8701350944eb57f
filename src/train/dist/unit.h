/*
 * unit.h - a unit: parameters whose gradients become whole together, as sums over the ranks of one
 * group, weighted by how many samples each rank had. What the files of this folder share about it:
 *
 *   placement.h        what a tensor says of itself
 *   backward.c         tri_backward: opens each unit that a loss reaches, gives it its gradients
 *   samples.c          how many samples a loss is the mean of
 *   unit.c             a unit's life, and its list of parameters
 *   weight.c           the weight of this rank: recorded first, and multiplied by
 *   finish.c           gradients become whole: one recorded sum for each bucket
 *   unused.c           parameters that a loss did not reach here, but perhaps elsewhere
 *   undo.c             what a step that fails gives back
 *   buckets.c          where gradients lie: storages in the group's arena, order, rebuild
 *   shards.c           which part of each bucket a rank has and updates (ZeRO)
 *   gather_op.c        parameters become whole after the update of such parts
 *   gathered.c         or only while a step uses them (ZeRO 3)
 *   rounded.c          in 16 bits, if they are to be sent so
 *   whole.c            or while the program reads them
 *   unit_collective.h  the recorded collectives while they run: header_op.c, bucket_op.c
 *   unit_timing.c      how long each bucket takes, and how much is sent
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
 * A bucket is one operation of the step. Which gradients share one is agreed between the ranks (and
 * hooks such as PowerSGD depend on it), so it is decided here and not by the plan. With a hook
 * whose later stages communicate it is two, since those stages have one order over all buckets: all
 * buckets are sent, then all are waited for, and the group begins nothing else in between.
 */
#ifndef TRII_UNIT_H
#define TRII_UNIT_H

#include <trireme/parallel.h>

#include "base/compiler.h"
#include "base/site.h"
#include "comm/reducer/averager.h"
#include "train/dist/placement.h"
#include "train/dist/samples.h"
#include "train/graph/step/retired.h"
#include "train/graph/step/host_op.h"
#include "train/graph/step/step.h"
#include "train/graph/step/witness.h"

typedef struct trii_unit trii_unit;
typedef struct trii_unit_bucket trii_unit_bucket;

/* A host operation has at most 64 operands. */
#define TRII_UNIT_ITEMS 63
/* Buckets whose parameters a step may have at a time: a power of two. */
#define TRII_UNIT_LIVE 8

typedef struct trii_unit_param {
    const char *name;   /* the module's */
    tri_tensor *tensor; /* borrowed from its trii_placed */
    /* What is updated here, and gets the average as its gradient: the piece, or the tensor. */
    tri_tensor *home;
    int place; /* its trii_placed */
    trii_unit_bucket *bucket;
    /* Of a parameter in a device's own memory, whose gradient lies there too: the view of the
     * bucket through which it is copied; owned. NULL: the gradient itself lies in the bucket. */
    tri_tensor *bucket_view;
    size_t offset, bytes; /* in the bucket */
    size_t home_offset;   /* there, of what home's gradient is */
    bool used_here;       /* by the last synchronised backward */
    bool is_behind;       /* an update of its piece was recorded, and no gather after it */
    /* Stage 3: its contents in the step of generation view_in, and the gather whose result they are
     * a part of. */
    trii_vid view, view_of;
    uint64_t view_in;
    trii_held held;       /* what of it this rank has while it is closed */
    const trii_held *cut; /* the tensor's while it is open (tri_parallelize); NULL: it has all */
    int32_t version;      /* when it was opened */
} trii_unit_param;

/* What the ranks tell each other of a backward pass. */
typedef enum trii_header_use {
    TRII_HEADER_AVERAGE, /* it averages what has added up */
    /* It does not average, but its gradients go through sums over ranks, in which they must be
       weighted before. */
    TRII_HEADER_WEIGH,
    TRII_HEADER_CHECK /* the same, but they cannot be: all ranks must have equal weights */
} trii_header_use;

/* One recorded collective, from recording until it is done. */
typedef enum trii_unit_coll_state {
    TRII_UNIT_COLL_FREE,
    TRII_UNIT_COLL_RECORDED,
    TRII_UNIT_COLL_STARTED
} trii_unit_coll_state;

typedef struct trii_unit_coll {
    trii_host_op op;   /* first: a trii_host_op * of this room is a trii_unit_coll */
    atomic_int owners; /* the model, and the step in which it is recorded until that ends */
    trii_unit *unit;   /* NULL: it is gone */
    tri_group *left;   /* then: the group whose ranks wait for it, a reference; NULL = none does */
    trii_unit_bucket *bucket;      /* what it carries; NULL: a header, or what `load` says */
    void *load;                    /* of the strategy: what its own kinds carry */
    int place;                     /* of several of its kind, for messages; -1 = it is alone */
    struct trii_unit_coll *next;   /* of the same kind */
    struct trii_unit_coll *header; /* of a bucket: the header of the same backward */
    trii_unit_coll_state state;
    uint64_t generation; /* of the step in which it is recorded */
    trii_site site;      /* the forward or backward that recorded it */
    tri_work *work;
    size_t from, until; /* gather: of which elements of the bucket */
    size_t sent;        /* gather: bytes of this rank's part of them */
    int64_t sent_ns;    /* gather: when, if that is measured */
    bool gathers_grads; /* gather: of gradients, else of parameters */
    char *aside;        /* gather, while it runs: where it happens, if not in the bucket; owned */
    bool last; /* bucket: the last of its backward; sends the map of used parameters if needed */
    int n;     /* operands */
    int item[TRII_UNIT_ITEMS + 1]; /* bucket: parameter of operand i, -1 = none; load: its own */
    void *out[TRII_UNIT_ITEMS + 1];
    size_t out_bytes[TRII_UNIT_ITEMS + 1];
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
} trii_unit_coll;

struct trii_unit_bucket {
    trii_bucket *wire; /* of the averager */
    trii_storage *storage;
    trii_unit_coll *colls, *ends;
    /* Where each rank has a part: elements of the ranks' parts [size], and the parameters, which
     * lie as their gradients do; see shards.c. */
    size_t *counts, *some; /* some: [size], for calls that give a part of it */
    trii_storage *values;  /* stage 3: of this rank's part alone */
    trii_unit_coll *gathers;
    bool rounds; /* stage 3: they send 16 bits of some of its parameters */
    /* Stage 3: the parameters' own memory, addresses that only have memory while the program reads
     * them (n_opened > 0); the last gather's result, in the step of this generation. */
    trii_storage *whole;
    int n_opened;
    int32_t epoch; /* counts updates */
    bool visited;  /* unshard.c's */
    trii_vid live;
    uint64_t live_in, read_in; /* read_in: the last step that has read them */
    /* When it was opened, if the step had read them: of what is there. */
    bool is_hashed;
    uint64_t hash;
    int64_t sent_ns;             /* of its gradients: when, if that is measured */
    int64_t comm_ns, exposed_ns; /* see unit_timing.c */
    size_t sent_bytes;
    /* Of the backward that is being recorded: what sends the bucket, and its results. */
    trii_unit_coll *recorded;
    trii_vid sent[TRII_UNIT_ITEMS + 1];
};

/* What recording a backward pass changes; a step that fails gets it back. */
typedef struct trii_tally {
    int64_t local_count; /* samples of backward passes without synchronisation */
    int64_t local_fixed; /* of them, what means divide by that divide by their number */
    /* What the others divide by: known as they run, and worth something while the gradients that
     * they belong to add up (epoch). */
    double local_valued;
    uint64_t epoch, valued_epoch;
    int64_t sample_count;
    bool vote_stop;
    /* What has added up since the last average is weighted: passes without synchronisation went
     * through sums over ranks. */
    bool weighted;
} trii_tally;

/* A step in which the unit takes part. */
typedef struct trii_unit_step {
    trii_witness witness; /* first */
    atomic_int owners;    /* the unit, and the step until it ends */
    trii_unit *unit;      /* NULL: it is gone */
    struct trii_unit_step *next;
    uint64_t generation; /* of the step */
    /* Synchronised forwards whose backwards' buckets are not all there: peers wait for them. */
    int n_open;
    int32_t first_node; /* of the segment that pends, before which `before` was; -1 = none */
    trii_tally before;
} trii_unit_step;

struct trii_unit {
    const char *call; /* that made the model, for messages: "tri_ddp"; static text */
    tri_group *group; /* a reference; NULL = one rank, which only counts its samples */
    int rank, size;
    /* A unit over a mesh of two axes (HSDP): its ranks share out the parts along `within`, and
     * ranks along `across` have the same part. Groups of its own, since what it calls there has the
     * order of `group`; `axis` has the ranks of `within`, and is the mesh's, for what others record
     * and order. References; NULL: along one axis, which is `group`. */
    tri_group *within, *across, *axis;
    /* Unique in the process, and growing: part of plans' identity, and the order of units. */
    uint64_t id;
    size_t first_bucket_bytes, bucket_cap_bytes;
    trii_placed *placed; /* all parameters, whether they are trained or not */
    int n_placed;
    trii_unit_param *params; /* those that are */
    int n_params;
    trii_averager averager;    /* buckets, in the order in which they are sent */
    trii_unit_bucket *buckets; /* [averager.n_buckets] */
    bool any_layout; /* gradients lie in the parameters' layouts, on which all ranks agree */
    /* Of ZeRO: 1, each rank gets the averages of, and updates, its part of each bucket; 2,
     * gradients have no other place: buckets pass through the memory of `staging`; 3, so do
     * parameters, which a step gathers while it uses them. 0: all have all. */
    int stage;
    /* Stage 3: a second group of trii_unit_parts's ranks, for gathers alone. Sums are recorded
     * after the whole walk of a backward pass, and in one group none would start before its last
     * gather. A reference. */
    tri_group *apart;
    /* So many buckets, of at most so many bytes (0 = any number), are gathered before the one that
     * is used is done with. */
    int prefetch;
    size_t prefetch_bytes;
    tri_dtype gather_dtype;  /* BF16, F16: in which they are sent; NONE: as they are */
    bool keep_after_forward; /* what forward has gathered stays for backward */
    int64_t keep_below;      /* parameters of fewer elements stay whole, as in stage 2 */
    /* The last gathers of the step of this generation, number n - 1 the last of them, of which
     * those below `kept` are retired: their results and their bytes, and the last value that was
     * recorded before each (NO_VALUE: none that pends). */
    struct {
        uint64_t generation;
        unsigned n, kept;
        trii_vid whole[TRII_UNIT_LIVE], before[TRII_UNIT_LIVE];
        size_t bytes[TRII_UNIT_LIVE];
    } gathered;
    trii_storage *staging[2];
    /* The last operation that reads or writes it, in the step of this generation. */
    struct {
        trii_vid value;
        uint64_t generation;
    } staged[2];
    bool is_behind; /* where a rank has a part: some parameter is */
    bool rebuilt;   /* buckets have their final order */
    int *observed;  /* [n_params]: order in which the first backward completed gradients */
    bool has_observed;
    trii_unit_step *steps;
    trii_unit_coll *headers;
    trii_unit_coll *counts; /* of backward passes without synchronisation */
    trii_unit_coll *header; /* of the backward that is being recorded */
    /* The last header that was recorded, and its step: what follows there may depend on what it
     * brings. */
    trii_vid last_weight;
    uint64_t last_generation;
    bool seeded;  /* its gradients come weighted */
    bool crossed; /* its gradients are sums over some of its ranks before they are added up */
    bool held;    /* gradients had added up before it */
    /* Of the backward that is being recorded: its weight as f32 and f64, and on the device of the
     * parameter that was last multiplied by it; NO_VALUE = none. What gradients held before is
     * multiplied by it, or all of them. */
    trii_vid weight[2], weight_there[2];
    tri_device weight_device;
    /* f32, f64: operands that carry a type; 1, which TRI_CHECK=nan takes for the weight when it
     * repeats a step without communication */
    tri_tensor *one[2];
    trii_vid *grad_of;  /* [n_params]: room for trii_unit_finish */
    unsigned char *map; /* [n_params]: used by some rank */
    bool promises;      /* some gradient waits for the map (tri_tensor.grad_promised) */
    int no_sync;        /* depth */
    /* Backward passes are those of the micro-batches of a pipeline, which together are one
     * (trii_backward_end_parts): they are neither weighted nor counted each by itself. */
    bool in_parts;
    trii_tally tally;
    bool stopped;
    uint64_t stopped_in; /* generation of the step whose header said so */
    bool joined;         /* passes that are recorded now are empty for ever */
    bool throws;         /* and no rank may have data then */
    int n_joined;        /* in the last pass, of all ranks */
    int source; /* whose buffers all get: rank 0, or, once its data are used up, the highest rank
                   that had data in the last pass */
    struct {
        bool on;
        int64_t n_passes, comm_ns, exposed_ns, until_ns;
    } stats;
    tri_ddp_volume_stats volume; /* since it was last asked for */
};

/* --- unit.c --------------------------------------------------------------- */

/* A unit begins zeroed, with its group, ranks, averager and sizes of buckets set by the strategy;
 * its parameters, of which there are at most `room`, are added then. One that was added under
 * another name already is not added again. */
tri_status trii_unit_room(trii_unit *unit, size_t room) TRI_MUST_CHECK;
void trii_unit_add(trii_unit *unit, const char *name, tri_tensor *param);
/* The gradients of those that require one, and of those that did when it was last called, are
 * partial from now on; the lists start over, and the unit has a new id: plans of before have other
 * buckets. On failure the lists of before are still there. */
tri_status trii_unit_list(trii_unit *unit) TRI_MUST_CHECK;
/* The parameters point at their placements. One that is only watched may be watched by other units
 * as well, and the first of them speaks for it until somebody trains it. */
void trii_unit_place(trii_unit *unit);
/* Whether one whose gradient is not partial requires one by now. */
bool trii_unit_grew(const trii_unit *unit);
bool trii_unit_have_grads(const trii_unit *unit);
/* For a group of several ranks: makes the buckets. Collective. */
tri_status trii_unit_set_up(trii_unit *unit) TRI_MUST_CHECK;
/* Frees what it has; what a pending step still points to fails there. */
void trii_unit_free(trii_unit *unit);

/* The ranks over which the parts are shared out. */
static inline tri_group *trii_unit_parts(const trii_unit *unit)
{
    return unit->within != NULL ? unit->within : unit->group;
}
/* The same ranks: the group that several units of one mesh have in common. */
static inline tri_group *trii_unit_axis(const trii_unit *unit)
{
    return unit->axis != NULL ? unit->axis : unit->group;
}
/* Peers that wait in one of its groups get the reason. */
static inline void trii_unit_abort(const trii_unit *unit, const char *why)
{
    tri_group_abort(unit->group, why);
    if (unit->apart != NULL)
        tri_group_abort(unit->apart, why);
    if (unit->within == NULL)
        return;
    tri_group_abort(unit->within, why);
    tri_group_abort(unit->across, why);
    tri_group_abort(unit->axis, why);
}

static inline trii_unit *trii_unit_of(const tri_tensor *tensor)
{
    return tensor->placed != NULL ? tensor->placed->unit : NULL;
}

/* Whether what the next backward leaves is averages of pieces, and no gradients of parameters. */
static inline bool trii_unit_leaves_pieces(const trii_unit *unit)
{
    return unit->stage > 0 && unit->no_sync == 0;
}

/* --- a backward pass ------------------------------------------------------ */

/* unused.c. Before a backward that reaches parameters of the unit records anything: may run the
 * step, so that which of them have a gradient is known. */
tri_status trii_unit_begin(trii_unit *unit, trii_step *step) TRI_MUST_CHECK;
/* weight.c. If the loss reaches parameters of this unit alone: a scalar of this dtype by which all
 * of its gradients are to be multiplied, NO_VALUE = 1. Before the gradients are recorded. */
tri_status trii_unit_weigh(trii_unit *unit, trii_step *step, tri_dtype dtype,
                           const trii_samples *under, trii_vid *seed_out) TRI_MUST_CHECK;
/* A parameter's gradient of before, to which the new one is added: multiplied if it has to be. */
tri_status trii_unit_held(trii_unit *unit, trii_step *step, const tri_tensor *param,
                          trii_vid *term_io) TRI_MUST_CHECK;
/* finish.c. The one function that finishes gradients: params[n] are all of the unit that the loss
 * reaches, grads[n] their gradients, what had added up included; what they are replaced by is bound
 * by the caller (NO_VALUE: the averages are of pieces, which are bound here). */
tri_status trii_unit_finish(trii_unit *unit, trii_step *step, tri_tensor *const *params,
                            trii_vid *grads, int n, const trii_samples *under) TRI_MUST_CHECK;

/* backward_parts.c. A pipeline's pass of all micro-batches: what their backwards leave, as the
 * gradients of one backward over so many samples, is averaged after the last of them. end: also
 * after a failure, whose status is returned. evenly: weighted by the ranks, and not by samples. */
tri_status trii_backward_begin_parts(trii_unit *unit, trii_step *step) TRI_MUST_CHECK;
tri_status trii_backward_end_parts(trii_unit *unit, trii_step *step, int64_t samples, bool evenly,
                                   tri_status status) TRI_MUST_CHECK;

/* --- between backward and update ------------------------------------------ */

/* unused.c. An optimizer will look which parameters of the unit have a gradient: may run the
 * step. */
tri_status trii_unit_meet_update(trii_unit *unit, trii_step *step) TRI_MUST_CHECK;
/* The same, for each parameter. *last_io: the unit of the parameter before, NULL at first. */
static inline TRI_MUST_CHECK tri_status trii_unit_before_update(const tri_tensor *param,
                                                                trii_unit **last_io,
                                                                trii_step *step)
{
    trii_unit *unit = trii_unit_of(param);

    if (unit == NULL || unit == *last_io)
        return TRI_OK;
    *last_io = unit;
    return trii_unit_meet_update(unit, step);
}
/* Runs what pends, after which all ranks know which parameters have a gradient. */
tri_status trii_unit_settle(trii_unit *unit, trii_step *step) TRI_MUST_CHECK;
/* Nobody waits for the map any more. */
void trii_unit_forget_promises(trii_unit *unit);

/* --- shards.c, gather_op.c: where unit->stage > 0 ------------------------- */

/* After the buckets were made: parameters move next to each other, and get their pieces. */
tri_status trii_unit_shard(trii_unit *unit) TRI_MUST_CHECK;
/* What this rank has of the elements of a parameter that is updated in `home`: its piece, or
 * itself, of which it may have but a part. False: all. */
bool trii_home_holds(const tri_tensor *param, const tri_tensor *home, trii_held *held_out);
/* The same, with references to its groups, for what may outlive the unit or the module; release
 * with trii_home_lets_go in any case, of zeros too. */
bool trii_home_keeps(const tri_tensor *param, const tri_tensor *home, trii_held *held_out);
void trii_home_lets_go(trii_held *held);
void trii_unit_shards_free(trii_unit *unit);
/* Stage 2. What has to be complete before bucket `index` may use its memory, which it shares:
 * writes and returns 1 value, or 0. */
int trii_unit_staging_after(const trii_unit *unit, const trii_step *step, int index,
                            trii_vid *after);
/* The operation that has this result uses it from now on. */
void trii_unit_staging_taken(trii_unit *unit, const trii_step *step, int index, trii_vid by);
/* The piece of this parameter gets new contents. */
static inline void trii_unit_changed(trii_unit *unit, int index)
{
    unit->params[index].is_behind = unit->is_behind = true;
}
/* If pieces have contents, or will when the step runs, that their parameters have not (is_behind):
 * they become whole; in stage 3, what the step reads from now on is new. On all ranks if on one. */
tri_status trii_unit_gather(trii_unit *unit, trii_step *step) TRI_MUST_CHECK;
/* Averages that an earlier backward left in pieces are added to the gradients of this one:
 * grad_of[n_params], NO_VALUE = it has none. */
tri_status trii_unit_add_pieces(trii_unit *unit, trii_step *step, trii_vid *grad_of) TRI_MUST_CHECK;

/* --- gathered.c, whole.c: where unit->stage is 3 -------------------------- */

/* tri_tensor.elsewhere of a parameter that is sharded. */
extern const trii_elsewhere trii_unit_elsewhere;
/* Its contents in a step: trii_elsewhere's `resolve`. */
tri_status trii_unit_resolve(trii_step *step, tri_tensor *tensor, trii_vid old,
                             trii_vid *value_out) TRI_MUST_CHECK;
/* Parameters of the bucket have new contents: what the step has gathered is of before. */
void trii_unit_forget_live(const trii_unit *unit, trii_unit_bucket *bucket, trii_step *step);
/* rounded.c: whether gathers of the bucket send 16 bits of some of its parameters. */
bool trii_unit_rounds(const trii_unit *unit, const trii_unit_bucket *bucket);
/* Addresses for the parameters of a bucket, with memory until it is closed. */
tri_status trii_unit_reserve(size_t bytes, trii_storage **storage_out) TRI_MUST_CHECK;
/* Parameters of the bucket can be read and written in their own memory, until as many calls have
 * closed it: then each rank keeps its part of what is there. Nothing may pend. Opening is
 * collective. */
tri_status trii_unit_open(trii_unit *unit, trii_unit_bucket *bucket) TRI_MUST_CHECK;
tri_status trii_unit_close(trii_unit *unit, trii_unit_bucket *bucket,
                           trii_step *step) TRI_MUST_CHECK;
/* The bucket, whose parameters are sharded, that has this one, or NULL. */
static inline trii_unit_bucket *trii_unit_sharding(const tri_tensor *tensor)
{
    const trii_unit *unit = trii_unit_of(tensor);
    trii_unit_bucket *bucket =
        unit != NULL && tensor->placed->gradient == TRII_PLACEMENT_PARTIAL && unit->stage == 3
            ? unit->params[tensor->placed->index].bucket
            : NULL;

    return bucket != NULL && bucket->whole != NULL ? bucket : NULL;
}
/* The unit is going: parameters that stay have memory, without their contents. */
void trii_unit_leave(trii_unit *unit, trii_unit_bucket *bucket);

/* --- weight.c ------------------------------------------------------------- */

/* Forgets the weight of the backward before. */
void trii_unit_forget_weight(trii_unit *unit);
/* Whether the gradients of the backward that is being recorded come weighted. */
bool trii_unit_is_seeded(const trii_unit *unit, const trii_step *step);
/* A header whose weight no gradient has yet: `use` says why. */
tri_status trii_unit_weight(trii_unit *unit, trii_step *step, trii_header_use use,
                            const trii_samples *under) TRI_MUST_CHECK;
/* Multiplies by that weight. */
tri_status trii_unit_apply_weight(trii_unit *unit, trii_step *step, const tri_tensor *param,
                                  trii_vid *grad_io) TRI_MUST_CHECK;
/* Gradients that were consumed or thrown away take along what was noted about them: true. */
bool trii_unit_forget_if_cleared(trii_unit *unit);
/* A backward without synchronisation: what its mean divides by counts later. */
tri_status trii_unit_count(trii_unit *unit, trii_step *step,
                           const trii_samples *under) TRI_MUST_CHECK;

/* --- undo.c --------------------------------------------------------------- */

/* Before a backward is recorded: what the step gives back if it fails. Fails (STATE) while one of
 * another context pends, whose counts are the unit's too. */
tri_status trii_unit_remember(trii_unit *unit, trii_step *step) TRI_MUST_CHECK;
/* From here to the last bucket of the backward a failure of the step is told to the peers. */
tri_status trii_unit_open_pass(trii_unit *unit, trii_step *step) TRI_MUST_CHECK;
void trii_unit_close_pass(trii_unit *unit, uint64_t generation);
void trii_unit_steps_free(trii_unit *unit);

/* --- buckets.c ------------------------------------------------------------ */

/* Storage in a group's arena. */
tri_status trii_unit_storage_create(tri_group *group, size_t bytes,
                                    trii_storage **storage_out) TRI_MUST_CHECK;
/* Buckets for the parameters in reverse order; gradients move there. Collective. */
tri_status trii_unit_buckets_make(trii_unit *unit) TRI_MUST_CHECK;
/* Once, after the first backward: rank 0's order, layouts on which all agree. Collective; nothing
 * may pend. */
tri_status trii_unit_buckets_rebuild(trii_unit *unit) TRI_MUST_CHECK;
void trii_unit_buckets_free(trii_unit *unit);

/* --- unit_timing.c, where stats are on ------------------------------------ */

/* Somebody has waited for a bucket that is sent, or gathered; it is there: when it was sent, and
 * how many bytes of it this rank has sent. */
void trii_unit_stats_waited(trii_unit *unit, trii_unit_bucket *bucket, int64_t since_ns);
void trii_unit_stats_over(trii_unit *unit, trii_unit_bucket *bucket, int64_t *sent_ns,
                          size_t bytes);

#endif
