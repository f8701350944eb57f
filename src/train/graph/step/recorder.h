/*
 * recorder.h - a context, which records a step, and what the files of graph share. No room outside
 * of graph includes it.
 */
#ifndef TRII_RECORDER_H
#define TRII_RECORDER_H

#include "base/err.h"
#include "train/graph/step/grads.h"
#include "train/graph/step/host_op.h"
#include "train/graph/step/known.h"
#include "train/graph/step/step.h"
#include "train/graph/step/type.h"
#include "train/graph/step/witness.h"
#include "train/tensor/device_list.h"

/* A step that nobody ends belongs to a program that forgot tri_step_end: refused at this many
 * nodes. */
#define TRII_STEP_MAX_NODES 1000000
/* Room for what one gradient rule records, so that its `node` does not move: so many nodes of at
 * most so many values and edges each, and one node with as many as are allowed. */
#define TRII_RESERVE_NODES 96
#define TRII_RESERVE_VALUES 8

typedef struct trii_failure {
    tri_status status;
    char *line; /* owned; NULL = out of memory */
} trii_failure;

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

/* Memory of the context, used again from step to step. */
typedef struct trii_block {
    void *data;
    size_t bytes;
} trii_block;

/* What pends: the part of the step that the next run will take. */
typedef struct trii_pending {
    uint64_t *key; /* of the plan */
    size_t n_key, cap_key;
    trii_vid *inputs;
    int32_t n_inputs, cap_inputs;
    trii_vid *outputs;
    int32_t n_outputs, cap_outputs;
    uint32_t number;   /* unique in the recorder */
    int32_t n_ordinal; /* outputs of its nodes */
    int32_t n_copied;  /* regions of recomputation that it has copies of */
    bool any_stays;    /* it has host operations with `stays` */
} trii_pending;

/* What a rank has of values, along one dimension: of each of `parts` equal ones in a row, which
 * have `whole` elements, n from `start` on. */
typedef struct trii_random_part {
    int dim; /* negative: from the last one */
    int parts;
    int64_t whole, start, n;
    bool heads; /* the dimension is that of the heads of tri_attention */
} trii_random_part;

/* The scopes that a program has opened, and what gradients are recorded for. */
typedef struct trii_scopes {
    int no_grad; /* depth of tri_no_grad_begin */
    trii_autocast autocast;
    int recompute;        /* depth of tri_recompute_begin */
    int32_t region;       /* number for the nodes recorded now: see trii_node */
    int32_t part;         /* the same */
    trii_replica replica; /* the replica that is recorded now */
    /* A forward is recorded: a tensor of which this rank has a part is its own module's to read. */
    bool whole_only;
    /* random numbers are those of the whole; NULL: this is it */
    const trii_random_part *random_part;
    int deferred;      /* eager mode is put off: inside tri_backward */
    uint32_t walks;    /* number of the walk back, from 1 on */
    bool walking;      /* inside of it */
    bool create_graph; /* it records differentiable gradients */
    bool keep_graph;   /* and another walk may follow after a run */
    bool for_inputs;   /* it is that of tri_gradients */
} trii_scopes;

/* record/retired.c: values that are to be retired once the operation is recorded whose operands
 * are looked up now: it may be their last reader. */
typedef struct trii_retiring {
    int held; /* depth of such operations */
    int n;
    trii_vid due[TRII_MAX_INPUTS];
    uint64_t owned_in; /* generation of the last step that had a value with an owner */
} trii_retiring;

/* failures.c */
typedef struct trii_failures {
    trii_failure *list; /* messages of failed values */
    int32_t n, cap;
    char *line;         /* of step.failed; NULL = out of memory */
    bool returned;      /* a call has returned step.failed */
    tri_status carried; /* the error of a tri_step_end that no call has returned yet */
    char *carried_line;
} trii_failures;

/* known.c: a hash table. */
typedef struct trii_known_table {
    trii_known *at;
    size_t mask;
    int shift;
    int32_t n, room; /* of this step; before the table grows */
} trii_known_table;

/* step_memory.c: blocks of this step, in the order of recording. */
typedef struct trii_blocks {
    trii_block *list;
    int32_t n, cap, made;
} trii_blocks;

/* hold.c: what a run reads and writes. */
typedef struct trii_holds {
    uintptr_t *list;
    int32_t n, cap;
} trii_holds;

/* names.c: of values. */
typedef struct trii_names {
    struct trii_named_value *list;
    int32_t n, cap;
} trii_names;

/* grads.c: whose gradient the pending segment changes; borrowed: the step holds them. */
typedef struct trii_changes {
    tri_tensor **list;
    int32_t n, cap;
} trii_changes;

/* regions.c: the first node of each region of the step. */
typedef struct trii_regions {
    int32_t *first;
    int32_t n, cap;
} trii_regions;

/* endless.c: how often values were asked for in this step, at which size of it, and how often an
 * optimizer stepped. */
typedef struct trii_rounds {
    int32_t n, counted_nodes, updates;
} trii_rounds;

/* What a folder above this one keeps for a recorder, in a struct of its own that only it knows. */
typedef enum trii_floor {
    TRII_FLOOR_RUN,
    TRII_FLOOR_RECORD,
    TRII_FLOOR_AUTOGRAD,
    TRII_FLOOR_NN,   /* train/nn */
    TRII_FLOOR_DIST, /* train/dist */
    TRII_FLOORS
} trii_floor;
typedef struct trii_floor_state {
    void *state; /* NULL until it is first used */
    void (*release)(void *state);
} trii_floor_state;

typedef struct tri_context {
    trii_step step; /* first: a trii_step * can be cast to the recorder */

    /* context.c */
    atomic_int use;
    atomic_int_fast64_t thread; /* the thread that entered it */
    struct tri_context *outer;  /* when entered: the thread's context before */
    int id;                     /* from 1 on; 0 = a thread's own */
    int table_slot;             /* its entry in live.c's table; -1 = none */
    const trii_site *here;      /* call site of the thread that has entered it */
    trii_device_modes devices;  /* of a user's context; those of a thread's own: device_list.c */

    int32_t cap_values, cap_nodes, cap_in_ids;
    int32_t max_values; /* TRII_INDEX_MASK; less in tests */
    /* append.c: sizes of the last step, if this one has been the same so far. */
    int32_t old_nodes, old_values;

    trii_pending pending;
    trii_scopes scopes;
    trii_retiring retiring;
    trii_known_table known;
    trii_blocks blocks;
    trii_holds held;
    struct tri_context *next_running; /* hold.c */
    trii_names names;
    trii_changes changes;
    trii_regions regions;
    trii_failures failures;
    trii_rounds rounds;
    trii_host_op *owned_hosts; /* released when the step ends */
    trii_witness *witnesses;
    trii_floor_state floors[TRII_FLOORS];

    bool active;      /* something was recorded since the last step ended */
    bool breaks;      /* TRI_BREAK=1 */
    bool eager;       /* TRI_EAGER=1 */
    bool check;       /* TRI_CHECK=nan */
    bool check_order; /* TRI_CHECK=order */
} trii_recorder;

static inline trii_recorder *trii_recorder_of(trii_step *step)
{
    return (trii_recorder *)(void *)step;
}

/* How a plan key names operands: results of the segment by number, inputs by number and this
 * bit. */
#define TRII_WORD_INPUT 0x80000000u
#define TRII_WORD_ABSENT 0xffffffffu

/* Handles: bit 0 is 1 (addresses of real tensors are even), bits 1 to 24 are the index of the value
 * in its step, and those above the generation of the step, unique in the process. */
#define TRII_INDEX_BITS 24
#define TRII_INDEX_MASK ((UINT64_C(1) << TRII_INDEX_BITS) - 1)

/* The current context: the one that this thread entered last, else its own; NULL if it has none
 * yet. */
trii_recorder *trii_recorder_mine(void);
/* The same, for the files of this folder. */
extern _Thread_local trii_recorder *trii_recorder_now;
/* Makes the thread's own context if there is no other; NULL when memory is out. */
trii_recorder *trii_recorder_current(void);
/* seed.c: that of contexts that are made from now on. */
void trii_seed_set(uint64_t seed);
/* The state that a floor keeps, of so many bytes; the first call makes it, zeroed, to be freed by
 * release() and trii_free. NULL (and the error line) without memory. */
void *trii_floor_state_of(trii_recorder *r, trii_floor floor, size_t bytes,
                          void (*release)(void *state));
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
    value->retired = false;
    value->leaf = NULL;
    value->bound = NULL;
    value->owner = NULL;
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
/* endless.c: somebody asks for a value. */
void trii_step_count_round(trii_step *step);
/* Releases the references of the value. */
void trii_value_release(trii_value *value);
/* move_out.c: the contents of a READY value, which lie in a tensor, get memory of their own, in the
 * same layout. If another context has written the tensor since, they are gone: the value is
 * DROPPED. */
tri_status trii_value_move_out(trii_value *value) TRI_MUST_CHECK;
/* Whether the tensor has other contents by now than those that a run found or left as the value. */
static inline bool trii_value_is_stale(const trii_value *value, const tri_tensor *tensor)
{
    return value->version >= 0 && value->version != tensor->version;
}
/* host_life.c: the step has ended: releases the host operations that it owns. */
void trii_hosts_release(trii_recorder *recorder);
/* witness.c */
void trii_witnesses_failed(const trii_recorder *recorder, const char *why);
void trii_witnesses_ended(trii_recorder *recorder);
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

    if (TRII_UNLIKELY(r->known.at == NULL))
        return NULL;
    for (size_t at = trii_known_hash(tensor) >> r->known.shift;; at = (at + 1) & r->known.mask) {
        trii_known *known = &r->known.at[at];

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
/* Whether the tensor has a gradient once what pends has run. known: its entry, or NULL. */
static inline bool trii_known_has_grad(const trii_known *known, const tri_tensor *tensor)
{
    return known == NULL || known->grad == TRII_GRAD_AS_PUBLISHED ? trii_grad_published(tensor)
                                                                  : known->grad == TRII_GRAD_THERE;
}
/* Where the table is full. */
tri_status trii_known_add(trii_step *step, const tri_tensor *tensor, trii_vid value,
                          trii_vid *before_out) TRI_MUST_CHECK;
/* Sets it; *before_out: what it was. */
static inline TRI_MUST_CHECK tri_status trii_known_set(trii_step *step, const tri_tensor *tensor,
                                                       trii_vid value, trii_vid *before_out)
{
    trii_recorder *r = step->recorder;
    trii_known *known;

    if (TRII_UNLIKELY(r->known.n >= r->known.room))
        return trii_known_add(step, tensor, value, before_out);
    for (size_t at = trii_known_hash(tensor) >> r->known.shift;; at = (at + 1) & r->known.mask) {
        known = &r->known.at[at];
        if (known->generation != step->generation)
            break;
        if (known->tensor == tensor) {
            *before_out = known->value;
            known->value = value;
            return TRI_OK;
        }
    }
    r->known.n++;
    known->tensor = tensor;
    known->generation = step->generation;
    known->value = value;
    known->overwritten = TRII_NO_VALUE;
    known->found = -1;
    known->grad = TRII_GRAD_AS_PUBLISHED;
    *before_out = TRII_NO_VALUE;
    return TRI_OK;
}

/* names.c: frees the names of values. The name of a value, or NULL. */
void trii_names_clear(trii_recorder *recorder);
/* Takes the name over, also when it fails. */
tri_status trii_value_name_set(trii_recorder *recorder, trii_vid value,
                               char *own_name) TRI_MUST_CHECK;
const char *trii_value_name(const trii_recorder *recorder, trii_vid value);
static inline uint64_t trii_handle_generation(const tri_tensor *handle)
{
    return (uint64_t)(uintptr_t)handle >> (TRII_INDEX_BITS + 1);
}
static inline trii_vid trii_handle_index(const tri_tensor *handle)
{
    return (trii_vid)((uint64_t)(uintptr_t)handle >> 1 & TRII_INDEX_MASK);
}
/* The value that a handle of this step stands for, or NO_VALUE. */
static inline trii_vid trii_handle_value(const trii_step *step, const tri_tensor *handle)
{
    return trii_handle_generation(handle) == step->generation &&
                   trii_handle_index(handle) < step->n_values
               ? trii_handle_index(handle)
               : TRII_NO_VALUE;
}

/* With TRI_BREAK=1 a debugger stops here, below the call that failed. */
void trii_break(const trii_recorder *recorder);

/* Frees the messages of failed handles. */
void trii_failures_clear(trii_recorder *recorder);
/* The value's message becomes the error line; returns its status. */
tri_status trii_failure_get(trii_recorder *recorder, const trii_value *value);
/* Turns the value into a failed one with the current error line. */
void trii_value_fail(trii_recorder *recorder, trii_value *value, tri_status status);

/* grads.c: the pending segment has run: its changes are true now. */
void trii_grads_publish(trii_recorder *recorder);
/* The segment will never complete: undoes its changes. `segment` has run in part; NULL = it has not
 * begun. */
void trii_grads_revert(trii_recorder *recorder, const trii_segment *segment);

/* failures.c: as trii_step_fail. `segment` has run in part; NULL = nothing that is pending has
 * begun, and it never will: peers that wait for it get the reason instead. */
void trii_step_fail_in(trii_step *step, tri_status status, const trii_segment *segment);

/* regions.c: begins a region of recomputation at the next node. */
tri_status trii_region_open(trii_recorder *recorder);
/* The region whose copies will make the value again; 0 = none: it is there or is kept. */
int32_t trii_region_of(const trii_step *step, trii_vid value);
/* Marks the pending values of regions that must outlive the run; for
 * collect_outputs. */
void trii_regions_keep(trii_recorder *recorder);
/* The step has ended. */
void trii_regions_end_step(trii_recorder *recorder);

#endif
