/*
 * recorder.h - a context, the recorder of a step, and the functions that the files of this folder
 * share. Nobody else includes it.
 */
#ifndef TRII_RECORDER_H
#define TRII_RECORDER_H

#include "base/err.h"
#include "train/graph/host_op.h"
#include "train/graph/known.h"
#include "train/graph/replica.h"
#include "train/graph/step.h"
#include "train/graph/type.h"
#include "train/tensor/device_list.h"

/* A step that nobody ends belongs to a program that forgot tri_step_end: refused at this many
 * nodes. */
#define TRII_STEP_MAX_NODES 1000000
/* Room for what one gradient rule records, so that its `node` does not move: so many nodes of at
 * most so many values and edges each, and one node with as many as are allowed. */
#define TRII_RESERVE_NODES 64
#define TRII_RESERVE_VALUES 8

typedef struct trii_failure {
    tri_status status;
    char *line; /* owned; NULL = out of memory */
} trii_failure;

/* The contents of a value before the run that overwrites it. */
typedef struct trii_aside {
    trii_vid id;
    trii_storage *storage; /* owned */
    const trii_layout *layout;
} trii_aside;

/* tri_autocast_begin: how deep, and which types; the innermost is the lowest bit. */
#define TRII_AUTOCAST_DEPTH 64
typedef struct trii_autocast {
    int depth;
    uint64_t f16; /* bit set: to f16, else to bf16 */
} trii_autocast;
static inline tri_dtype trii_autocast_to(const trii_autocast *autocast)
{
    if (autocast->depth == 0)
        return TRI_DTYPE_NONE;
    return (autocast->f16 & 1) != 0 ? TRI_DTYPE_F16 : TRI_DTYPE_BF16;
}

/* The copy of a value on another device. */
typedef struct trii_copy {
    uint64_t generation; /* of the step; an entry of another step is free */
    trii_vid of, is;
    tri_device device;
} trii_copy;

/* Memory of the context, used again from step to step. */
typedef struct trii_block {
    void *data;
    size_t bytes;
} trii_block;

typedef struct tri_context {
    trii_step step; /* first: a trii_step * can be cast to the recorder */

    /* context.c */
    atomic_int use;
    atomic_int_fast64_t thread; /* the thread that entered it */
    struct tri_context *outer;  /* when entered: the thread's context before */
    int id;                     /* from 1 on; 0 = a thread's own */
    const trii_site *here;      /* call site of the thread that has entered it */

    int32_t cap_values, cap_nodes, cap_in_ids;
    int32_t max_values; /* TRII_INDEX_MASK; less in tests */
    uint64_t *key;      /* of the pending segment */
    size_t n_key, cap_key;
    trii_vid *inputs;
    int32_t n_inputs, cap_inputs;
    trii_vid *outputs;
    int32_t n_outputs, cap_outputs;
    uint32_t segment;  /* number of the pending segment, unique in the recorder */
    int32_t n_ordinal; /* outputs of nodes in the pending segment */

    /* append.c: sizes of the last step, if this one has been the same so far. */
    int32_t old_nodes, old_values;
    int32_t counted_nodes, rounds; /* segment.c: how often values were asked for in this step, */
    int32_t updates;               /* and how often an optimizer stepped */

    int32_t *scratch; /* backward_walk.c: a number for each value */
    int32_t cap_scratch;
    trii_vid *roots; /* where the walk begins and ends */
    int32_t cap_roots;
    trii_block *blocks; /* memory of this step, in the order of recording */
    int32_t n_blocks, cap_blocks, made_blocks;
    trii_host_op *owned_hosts; /* released when the step ends */
    bool any_stays;            /* the pending segment has host operations with `stays` */
    tri_tensor **found;        /* backward.c: tensors of one hook, and their gradients */
    trii_vid *found_grads;
    int32_t cap_found, cap_found_grads;
    /* gradient.c: whose gradient the pending segment changes; borrowed: the step holds them */
    tri_tensor **changes;
    int32_t n_changes, cap_changes;
    trii_aside *aside; /* nan_check.c: during a run */
    int32_t n_aside, cap_aside;

    trii_known *known; /* known.c: a table */
    size_t known_mask;
    int known_shift;
    int32_t n_known, room_known; /* of this step; before the table grows */

    trii_replica replica; /* replica.c: the replica that is recorded now */
    trii_copy *copies;    /* and a hash table of copies; cap_copies is 0 or a power of two */
    int32_t n_copies, cap_copies;
    uint64_t copies_generation; /* the step in which n_copies were counted */

    uintptr_t *held; /* hold.c: what a run reads and writes */
    int32_t n_held, cap_held;
    struct tri_context *next_running;

    struct trii_named_value *names; /* names.c: of values */
    int32_t n_names, cap_names;
    trii_failure *failures; /* messages of failed handles */
    int32_t n_failures, cap_failures;
    char *failed_line;     /* of step.failed; NULL = out of memory */
    bool failure_returned; /* a call has returned step.failed */
    tri_status carried;    /* the error of a tri_step_end that no call has returned yet */
    char *carried_line;

    int recompute;    /* depth of tri_recompute_begin */
    int32_t region;   /* number for the nodes recorded now: see trii_node */
    int32_t *regions; /* recompute.c: the first node of each region of the step */
    int32_t n_regions, cap_regions;
    int32_t n_copied; /* regions that the pending segment has copies of */

    int64_t samples_elsewhere; /* samples.c */

    int no_grad; /* depth of tri_no_grad_begin */
    trii_autocast autocast;
    int deferred;      /* eager mode is put off: inside tri_backward */
    bool walking;      /* inside a walk of backward_walk.c */
    uint32_t walks;    /* number of the walk, from 1 on */
    bool create_graph; /* the walk records differentiable gradients */
    bool keep_graph;   /* and another walk may follow after a run */
    bool for_inputs;   /* it is that of tri_gradients */
    bool active;       /* something was recorded since the last step ended */
    bool breaks;       /* TRI_BREAK=1 */
    bool eager;        /* TRI_EAGER=1 */
    bool check;        /* TRI_CHECK=nan */
    bool without_rows; /* nan_check.c: during a run */
    bool check_order;  /* TRI_CHECK=order */
    int table_slot;    /* its entry in live.c's table; -1 = none */
    /* Of a user's context; the modes of a thread's own context are in device_list.c. */
    trii_device_modes devices;
} trii_recorder;

static inline trii_recorder *trii_recorder_of(trii_step *step)
{
    return (trii_recorder *)(void *)step;
}

/* How a plan key names operands: results of the segment by number, inputs by number and this
 * bit. */
#define TRII_WORD_INPUT 0x80000000u
#define TRII_WORD_ABSENT 0xffffffffu

/* Handles and marks: the index of a value in the low bits, the generation of its step above. */
#define TRII_INDEX_BITS 24
#define TRII_INDEX_MASK ((UINT64_C(1) << TRII_INDEX_BITS) - 1)

/* The current context: the one that this thread entered last, else its own; NULL if it has none
 * yet. */
trii_recorder *trii_recorder_mine(void);
tri_status trii_key_reserve(trii_recorder *r, size_t n);
/* Grows *array to at least `need` elements. */
tri_status trii_grow(void **array, int32_t *cap, int32_t need, size_t size, const char *what);
/* Room for n more nodes: see TRII_RESERVE_NODES. */
tri_status trii_step_reserve(trii_step *step, int32_t n_nodes);
/* A new value: everything but its type is set. The room must be reserved. */
static inline trii_value *trii_value_append(trii_step *step)
{
    trii_value *value = &step->values[step->n_values++];

    value->node = -1;
    value->output = 0;
    value->state = TRII_VALUE_READY;
    value->requires_grad = false;
    value->keep = false;
    value->used = false;
    value->torn = false;
    value->leaf = NULL;
    value->bound = NULL;
    value->storage = NULL;
    value->offset = 0;
    value->layout = NULL;
    value->version = -1;
    value->replaces = TRII_NO_VALUE;
    value->slot = -1;
    value->slot_segment = 0;
    return value;
}
/* append.c: whether the next node of the last step is this one, and may be used. */
bool trii_node_repeats(const trii_step *step, const trii_graph_op *op, const trii_vid *in, int n_in,
                       const trii_attrs *attrs);
/* If so: takes it over, which needs no room. */
tri_status trii_node_repeat(trii_step *step, const trii_attrs *attrs,
                            trii_vid *first_out) TRI_MUST_CHECK;
/* replica.c: the value of a persistent tensor in the replica that is recorded now. */
tri_status trii_replica_value(trii_step *step, trii_vid id, trii_vid *value_out) TRI_MUST_CHECK;
static inline bool trii_in_replica(const trii_step *step)
{
    return step->recorder->replica.home != step->recorder->replica.device;
}
/* What a node has if it is a host operation. */
typedef struct trii_host_node {
    trii_host_op *op;
    const trii_vid *after; /* pending values */
    int n_after;
    bool like_operands;     /* results have the operands' types */
    uint64_t requires_grad; /* bit o: of result o */
} trii_host_node;
/* append.c: both for a host operation, whose `after` are counted already. */
bool trii_host_repeats(const trii_step *step, const trii_vid *in, int n_in,
                       const trii_host_node *host);
tri_status trii_host_repeat(trii_step *step, const trii_host_node *host,
                            trii_vid *first_out) TRI_MUST_CHECK;
/* Appends a node whose operands and result types are known. The room must be reserved. host: NULL
 * unless it is a host operation. */
tri_status trii_node_append(trii_step *step, const trii_graph_op *op, const trii_vid *in, int n_in,
                            const trii_attrs *attrs, const trii_host_node *host,
                            const trii_type *out, int n_out) TRI_MUST_CHECK;
/* Before the tensor becomes the next value: checks whether the last step read such a tensor
 * here. */
void trii_leaf_repeats(trii_step *step, const tri_tensor *tensor);
/* precision.c: whether the operation needs casts (autocast, or operands of 16 bits). */
bool trii_precision_matters(const trii_step *step, const trii_graph_op *op,
                            const trii_type *const *types, int n_in);
/* The operands as the operation needs them, cast where they differ: f32 throughout, or its
 * activations in *narrow_out (NONE: none are narrow). Leaves room for one more node. */
tri_status trii_precision_fit(trii_step *step, const trii_graph_op *op, const trii_vid *in,
                              int n_in, trii_vid *fitted, tri_dtype *narrow_out) TRI_MUST_CHECK;
/* trii_step_run for the recorder itself, not because the user asked for a value. */
tri_status trii_step_catch_up(trii_step *step) TRI_MUST_CHECK;
/* Runs what is pending if TRI_EAGER=1 and nothing puts it off. */
tri_status trii_step_eager(trii_step *step);
/* Releases the references of the value. */
void trii_value_release(trii_value *value);
/* host_op.c: the step has ended: releases the host operations that it owns. */
void trii_hosts_release(trii_recorder *recorder);
/* Memory until the step ends, not zeroed: the last step's, where it is large enough. */
tri_status trii_block_take(trii_recorder *r, size_t bytes, const char *what,
                           void **data_out) TRI_MUST_CHECK;

/* live.c: makes the step known to the error messages of other contexts. */
void trii_live_announce(trii_recorder *recorder);
void trii_live_moves(trii_recorder *recorder); /* to another thread */
void trii_live_end(trii_recorder *recorder);
void trii_live_forget(trii_recorder *recorder);
/* Errors that name both sides: this context does something with a tensor that a run of another
 * context excludes; uses contents that have been overwritten since; needs a gradient that another
 * context will write; or uses another step's tensor (that step may also have ended). */
tri_status trii_refuse_run(const tri_tensor *tensor, bool writes, bool other_writes,
                           uint64_t generation);
tri_status trii_refuse_stale(const tri_tensor *tensor);
tri_status trii_refuse_gradient(const tri_tensor *tensor, uint64_t generation);
tri_status trii_refuse_handle(uint64_t generation);

/* known.c: the tensor's entry in the step, or NULL. Valid until a tensor is added. */
static inline trii_known *trii_known_find(const trii_step *step, const tri_tensor *tensor)
{
    const trii_recorder *r = step->recorder;

    if (TRII_UNLIKELY(r->known == NULL))
        return NULL;
    for (size_t at = trii_known_hash(tensor) >> r->known_shift;; at = (at + 1) & r->known_mask) {
        trii_known *known = &r->known[at];

        if (known->generation != step->generation)
            return NULL;
        if (TRII_LIKELY(known->tensor == tensor))
            return known;
    }
}
/* The value that is the tensor's contents now; NO_VALUE: the step has not read or bound it. */
static inline trii_vid trii_known_value(const trii_step *step, const tri_tensor *tensor)
{
    const trii_known *known = trii_known_find(step, tensor);

    return known != NULL ? known->value : TRII_NO_VALUE;
}
/* Where the table is full. */
tri_status trii_known_add(trii_step *step, const tri_tensor *tensor, trii_vid value) TRI_MUST_CHECK;
/* Sets it. */
static inline TRI_MUST_CHECK tri_status trii_known_set(trii_step *step, const tri_tensor *tensor,
                                                       trii_vid value)
{
    trii_recorder *r = step->recorder;
    trii_known *known;

    if (TRII_UNLIKELY(r->n_known >= r->room_known))
        return trii_known_add(step, tensor, value);
    for (size_t at = trii_known_hash(tensor) >> r->known_shift;; at = (at + 1) & r->known_mask) {
        known = &r->known[at];
        if (known->generation != step->generation)
            break;
        if (known->tensor == tensor) {
            known->value = value;
            return TRI_OK;
        }
    }
    r->n_known++;
    known->tensor = tensor;
    known->generation = step->generation;
    known->value = value;
    known->found = -1;
    known->grad = TRII_GRAD_AS_PUBLISHED;
    return TRI_OK;
}

/* names.c: frees the names of values. The name of a value, or NULL. */
void trii_names_clear(trii_recorder *recorder);
const char *trii_value_name(const trii_recorder *recorder, trii_vid value);
/* The value that a handle of this step stands for, or NO_VALUE. */
trii_vid trii_handle_value(const trii_step *step, const tri_tensor *handle);

/* With TRI_BREAK=1 a debugger stops here, below the call that failed. */
void trii_break(const trii_recorder *recorder);

/* Frees the messages of failed handles. */
void trii_failures_clear(trii_recorder *recorder);
/* The value's message becomes the error line; returns its status. */
tri_status trii_failure_get(trii_recorder *recorder, const trii_value *value);
/* Turns the value into a failed one with the current error line. */
void trii_value_fail(trii_recorder *recorder, trii_value *value, tri_status status);

/* gradient.c: the pending segment has run: its changes are true now. */
void trii_grads_publish(trii_recorder *recorder);
/* The segment will never complete: undoes its changes. `segment` has run in part; NULL = it has not
 * begun. */
void trii_grads_revert(trii_recorder *recorder, const trii_segment *segment);

/* recompute.c: marks the pending values of regions that must outlive the run; for
 * collect_outputs. */
void trii_regions_keep(trii_recorder *recorder);
/* The step has ended. */
void trii_regions_end_step(trii_recorder *recorder);

/* samples.c: the samples under a loss (or several) whose last node this is; reached[v] ==
 * TRII_NO_VALUE: it depends on value v, for all values; scratch: as many numbers. */
/* The samples of a loss whose gradients go on at other workers are added to what trii_samples_take
 * gives; known: their number, -1 = it is to be found. */
void trii_samples_go_elsewhere(trii_step *step, int32_t last_node, const int32_t *reached,
                               int32_t *scratch, int64_t known);
tri_status trii_samples_under(trii_step *step, int32_t last_node, const int32_t *reached,
                              int32_t *scratch, trii_samples *samples_out) TRI_MUST_CHECK;

/* nan_check.c: see there. */
tri_status trii_nan_before(trii_step *step, const trii_segment *segment);
tri_status trii_nan_after(trii_step *step, const trii_segment *segment);
void trii_nan_done(trii_recorder *recorder);
/* The reference interpreter. With `dry` (after the segment has run): keeps nothing, skips host
 * operations, which must not communicate again, and checks every result for NaN. */
tri_status trii_reference_run(trii_step *step, const trii_segment *segment, bool dry);
tri_status trii_nan_check_output(const trii_step *step, int32_t node, int output, const void *data);

#endif
