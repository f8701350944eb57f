/*
 * step.h - the recorder: what a context has recorded since its last tri_step_end.
 *
 * Values and nodes are appended; nothing is removed until the step ends. The nodes since the last
 * run form a segment, which the executor (the plan, or the reference interpreter) runs.
 *
 * Operations are functional, even those that update: "p = p - lr*g" has an output that is *bound*
 * to the tensor p: the executor must leave it in p's storage. So gradients are bound to grad
 * tensors (and through them to buckets), new weights to parameters, running statistics to buffers.
 * Reads of the old contents were recorded earlier and must run earlier.
 */
#ifndef TRII_STEP_H
#define TRII_STEP_H

#include <assert.h>

#include "base/site.h"
#include "train/graph/step/op.h"
#include "train/tensor/persistent.h"

typedef enum trii_value_state {
    TRII_VALUE_PENDING, /* its node has not run */
    TRII_VALUE_READY,   /* a leaf, or its contents are in `storage` */
    TRII_VALUE_DROPPED, /* ran and was not kept, or its tensor was overwritten */
    TRII_VALUE_FAILED   /* carries an error: a refused operation, or a failed run */
} trii_value_state;

typedef struct trii_value {
    trii_type type;
    int32_t node;   /* producer, or -1 for a leaf */
    int16_t output; /* which output of the producer */
    uint8_t state;  /* trii_value_state */
    bool requires_grad;
    bool keep;        /* must be readable after the run */
    bool used;        /* some node reads it */
    bool is_float;    /* its node requires a gradient */
    bool stays;       /* host_life.c: nothing but operations that may leave it elsewhere read it */
    bool torn;        /* bound: a failed run had begun to write into the tensor */
    bool retired;     /* retired.h: nothing reads it from now on; its state is DROPPED */
    tri_tensor *leaf; /* leaf: the persistent tensor it reads; a reference is held */
    /* the tensor in which the result must be left; a reference is held; else NULL */
    tri_tensor *bound;
    /* not a leaf: the tensor without memory whose contents it is (retired.h); a reference is
     * held; else NULL */
    tri_tensor *owner;
    /* READY: where the contents are; a reference is held. NULL: in the tensor of a leaf, or in the
     * tensor to which the value is bound. Use trii_value_data and trii_value_layout to read. */
    trii_storage *storage;
    size_t offset;
    const trii_layout *layout; /* of storage; NULL = plain */

    /* For the recorder. */
    /* version of the tensor's contents that a run found or left; -1 = no run yet */
    int32_t version;
    /* bound: the value that the tensor had before, or -1; of one with an owner, and of a retired
     * one, see retired.h */
    trii_vid replaces;
    /* number in the plan key: of an input, or of an output; for a failed value the number of its
     * message */
    int32_t slot;
    uint32_t slot_segment; /* in which segment `slot` counts */
} trii_value;

/* The tensor in which the contents are; NULL if the value has storage of its own. */
static inline const tri_tensor *trii_value_tensor(const trii_value *value)
{
    if (value->storage != NULL)
        return NULL;
    return value->leaf != NULL ? value->leaf : value->bound;
}

/* Contents of a READY value, in trii_value_layout. */
static inline void *trii_value_data(const trii_value *value)
{
    const tri_tensor *tensor = trii_value_tensor(value);

    if (tensor != NULL)
        return (char *)tensor->storage->data + tensor->offset;
    assert(value->storage != NULL);
    return (char *)value->storage->data + value->offset;
}

static inline const trii_layout *trii_value_layout(const trii_value *value)
{
    const tri_tensor *tensor = trii_value_tensor(value);

    return tensor != NULL ? tensor->layout : value->layout;
}

typedef struct trii_node {
    const trii_graph_op *op;
    trii_site site;
    int32_t first_in; /* into step->in_ids */
    int16_t n_in, n_out;
    int16_t n_after;    /* of a host operation: values after its operands, see host_op.h */
    trii_vid first_out; /* outputs are consecutive values */
    trii_attrs attrs;   /* only the first n_i and n_f numbers are valid */
    uint32_t random_index;
    int32_t random_seeded; /* random numbers: how many seeds were in step->seeded */
    /* > 0: its checkpointed region; < 0: a recomputed copy, of region -n of the segment; see
     * autograd/recompute.c */
    int32_t region;
    int32_t part;       /* see part.h; 0 = none */
    bool requires_grad; /* some output requires a gradient */
    bool backward;      /* recorded by tri_backward; affects only the order of a plan */
    bool like_operands; /* a host operation whose results have its operands' types */
    /* the dtype of the tri_autocast_begin under which it was recorded; 0 = none */
    uint8_t autocast;
    /* Number of the backward walk that passed this node; 0 = none. Nothing needs its values any
     * more. */
    uint32_t differentiated;
    struct trii_host_op *host; /* TRII_CLASS_HOST; owned by the recording code, see host_op.h */
} trii_node;

/* What the executor runs at once: nodes [first_node, end_node), with their inputs and outputs.
 * `key`, the plan key, is the canonical form of everything that a plan depends on (operations,
 * edges, types, integer attributes, bindings, which values must survive), written while recording:
 * equal keys have the same plan. */
typedef struct trii_segment {
    int32_t first_node, end_node;
    const trii_vid *inputs; /* READY values read by the nodes, in order of first use */
    int32_t n_inputs;
    /* values that must be READY afterwards: kept, bound, or needed later */
    const trii_vid *outputs;
    int32_t n_outputs;
    const uint64_t *key;
    size_t n_key;
} trii_segment;

/* While it holds, a persistent tensor of `home` means its copy on `device`: one copy a step,
 * recorded at the first use, through which gradients come back and add up. What would be written
 * into such a tensor (running statistics) is not: only the replica at home writes. home = device:
 * no replica. */
typedef struct trii_replica {
    tri_device home, device;
} trii_replica;

typedef struct trii_step {
    uint64_t generation; /* unique in the process; handles carry it */
    trii_value *values;
    int32_t n_values;
    trii_node *nodes;
    int32_t n_nodes;
    trii_vid *in_ids;
    int32_t n_in_ids;
    int32_t first_pending; /* first node that has not run */
    tri_rng random;        /* the state from which pending nodes draw */
    uint32_t random_count;
    tri_rng *seeded; /* states replaced by tri_manual_seed during the step, in order */
    int32_t n_seeded, cap_seeded;
    tri_status failed;            /* the first failed run of the step: later runs return it */
    struct tri_context *recorder; /* for the files of graph */
} trii_step;

static inline const trii_type *trii_type_of(const trii_step *step, trii_vid value)
{
    return &step->values[value].type;
}
static inline trii_vid trii_node_in(const trii_step *step, const trii_node *node, int i)
{
    return step->in_ids[node->first_in + i];
}

/* The step of the current context, created on first use; NULL when memory is out. */
trii_step *trii_step_current(void);

/* Runs segments: the registry's choice unless a test replaces it. run() reads the inputs' contents
 * (trii_value_data) and returns the first failure. It leaves a bound output in its tensor (whose
 * layout it may choose), and sets storage, offset and layout of any other output, with one
 * reference for the value. On failure it marks as torn those bound outputs whose tensors it had
 * begun to write. The recorder then marks the values READY, DROPPED or FAILED. `segment` and what
 * it points to live until run() returns. */
typedef struct trii_executor {
    const char *name;
    tri_status (*run)(trii_step *step, const trii_segment *segment);
    /* Frees what the executor keeps (plans) and nobody uses now; NULL = nothing. */
    void (*release)(void);
    /* Bytes of all memory that it keeps between runs: where values lie while a step runs, outputs
     * that the next run writes again, copies of parameters; NULL = none. */
    size_t (*bytes)(void);
} trii_executor;
void trii_executor_set(const trii_executor *executor); /* NULL: the registry's again */
/* train/registry/train.c sets these, since the graph must not know their rooms: */
extern const trii_executor *const trii_executor_default;
int64_t trii_step_thread_id(void); /* the system's id of this thread */
void trii_step_at_thread_exit(void (*release)(void *arg), void *arg); /* NULL: unregister */
void trii_step_lock(void);                                            /* the lock of hold.c */
void trii_step_unlock(void);
/* Node by node through the reference kernels; what TRI_EAGER=1 uses. */
extern const trii_executor trii_executor_reference;

/* --- recording, for ops/, nn/, optim/ and parallel/ ----------------------- */

/* The body of an operation's public function: resolves handles, checks by the shape rule, appends.
 * `in` may hold NULL for an absent optional input. Returns output 0's handle, or a failed one that
 * names operation, shapes and source line. Further outputs: trii_handle_output. */
tri_tensor *trii_record(const trii_graph_op *op, tri_tensor *const *in, int n_in,
                        const trii_attrs *attrs);
/* The same with values, for gradients and rewrites: writes the first output's id. */
tri_status trii_record_values(trii_step *step, const trii_graph_op *op, const trii_vid *in,
                              int n_in, const trii_attrs *attrs,
                              trii_vid *first_out) TRI_MUST_CHECK;
/* The value of a handle or persistent tensor now. */
tri_status trii_resolve(trii_step *step, tri_tensor *tensor, trii_vid *value_out) TRI_MUST_CHECK;
tri_tensor *trii_handle(trii_step *step, trii_vid value);
/* The handle of a value that a public function recorded by trii_record_values: as at the end of
 * trii_record (TRI_EAGER=1 runs it now). */
tri_tensor *trii_handle_recorded(trii_step *step, trii_vid value);
/* Handle of another output of the operation; a failed handle is returned as it is. */
tri_tensor *trii_handle_output(tri_tensor *first, int output);
/* A handle that carries the current error line, for functions that check their arguments
 * themselves. A NULL step (no memory for one) gives the shared failed tensor. */
tri_tensor *trii_handle_failed(trii_step *step, tri_status status);
/* The handle of a refused call: prepends its name, the operands (NULL is allowed) and the caller's
 * line to the error line. If an operand has failed already, that one is returned. */
tri_tensor *trii_handle_refused(trii_step *step, const char *name, tri_tensor *const *in, int n_in,
                                tri_status status);
/* The value on this device: itself if it is there, else a copy. */
tri_status trii_record_to(trii_step *step, trii_vid value, tri_device device,
                          trii_vid *out) TRI_MUST_CHECK;
/* The value must end up in `tensor` (same shape and dtype), and reading the tensor means this value
 * from now on. An earlier binding of the tensor that has not run is dropped. A value that has run
 * already, or is a leaf or bound elsewhere, is copied. */
tri_status trii_bind(trii_step *step, trii_vid value, tri_tensor *tensor) TRI_MUST_CHECK;

/* --- gradients ------------------------------------------------------------ */

/* Whether the gradients being recorded must be differentiable again. */
bool trii_step_creates_graph(const trii_step *step);
/* Whether they may be recorded a second time after a run, from the same values; always under
 * TRI_EAGER=1, whose runs nobody asked for. */
bool trii_step_keeps_graph(const trii_step *step);
/* Whether parts of the forward pass are computed again in the next run (tri_recompute_begin). */
bool trii_step_computes_again(const trii_step *step);
/* Whether they are those of tri_gradients, which changes no tensor's gradient. */
bool trii_step_walks_for_inputs(const trii_step *step);
/* The number of the backward pass that is being recorded. */
uint32_t trii_step_walk(const trii_step *step);
/* The value of the gradient that the optimizer shall use; NO_VALUE in *grad_out if the tensor has
 * none (then nothing changes). From now on the tensor has no gradient: the next tri_backward starts
 * a new one. */
tri_status trii_grad_consume(trii_step *step, tri_tensor *tensor,
                             trii_vid *grad_out) TRI_MUST_CHECK;
/* The gradient no longer pends; the tensor's grad holds one if `has`. */
void trii_grad_publish(tri_tensor *tensor, bool has);
/* Whether the tensor has a gradient once everything pending in the current context has run. */
bool trii_has_grad(const tri_tensor *tensor);
/* The same for everything pending in this step. */
bool trii_step_has_grad(const trii_step *step, const tri_tensor *tensor);
/* Reserves the gradient for this step until it has run or failed. Fails (STATE) if another
 * context's step has reserved it. */
tri_status trii_grad_claim(trii_step *step, tri_tensor *tensor) TRI_MUST_CHECK;
/* Makes the tensor's grad, without contents, unless it exists. */
tri_status trii_grad_prepare(tri_tensor *tensor) TRI_MUST_CHECK;
/* The value becomes the tensor's gradient: bound to its grad, which must exist. A step that fails
 * before this has run leaves the tensor with the gradient that it had before, or with none. STATE
 * as trii_grad_claim. */
tri_status trii_grad_bind(trii_step *step, trii_vid value, tri_tensor *tensor) TRI_MUST_CHECK;
/* Fails (STATE) if the step of another context will write the tensor's gradient. */
tri_status trii_grad_check(const trii_step *step, const tri_tensor *tensor) TRI_MUST_CHECK;
/* The tensor has no gradient, whatever was recorded. Fails the current step (STATE) if another
 * context's step will write it. */
void trii_grad_clear(tri_tensor *tensor);
/* TRI_CHECK=nan for what runs from now on; returns the old setting. */
bool trii_nan_check_set(trii_step *step, bool on);
/* Of the run that is under way, or else of the next: a loss in it is the mean of none, so that it
 * is NaN and weighs nothing. The check looks only at what outlives the step. */
void trii_nan_check_without_rows(void);
/* The first failure of the step, from tri_backward and others that return no status; the next run
 * returns it. Keeps the current error line. */
void trii_step_fail(trii_step *step, tri_status status);

/* Prepends which operation of the step failed; returns `status`. */
tri_status trii_node_failed(const trii_step *step, int32_t node, tri_status status);

/* change_device.c: moves a persistent tensor and its gradient to another device. If the
 * step uses the tensor, pending nodes run first; values that are already recorded keep the old
 * contents, on the old device. */
tri_status trii_tensor_send(tri_tensor *tensor, tri_device device) TRI_MUST_CHECK;
/* Nothing of the current context's step runs any more, not under TRI_EAGER=1 either, unless it is
 * asked for. */
void trii_step_only_record(trii_step *step);
/* keep_read.c: steps that wait, while other contexts write what they have read. */
/* The step's value of the tensor, if it has read it and has not written it, keeps the contents of
 * now: a reference to their memory. A context that writes the tensor then has to renew it first; if
 * it does not, the step's next run that reads the value fails (STATE). Nothing happens to a tensor
 * over memory with a fixed place. Under hold.c's lock, which it takes. */
void trii_step_keep_read(trii_step *step, const tri_tensor *tensor);
/* What the step has read of the tensor, or written to it by earlier runs, is what the tensor has
 * now, whichever context wrote that. */
void trii_step_read_again(trii_step *step, const tri_tensor *tensor);
/* Whether some step keeps its contents. */
bool trii_tensor_is_kept(const tri_tensor *tensor);
/* Contents that a tensor had: see below. */
typedef struct trii_renewed {
    trii_storage *storage; /* a reference is held; NULL: nothing was done */
    const trii_layout *layout;
} trii_renewed;
/* Before a step writes a tensor that is kept: the step reads the old contents, and will write into
 * new memory. Nobody else may use the tensor until trii_tensor_renew_end, which takes the old ones
 * back if the run has failed. */
tri_status trii_tensor_renew(trii_step *step, tri_tensor *tensor,
                             trii_renewed *old_out) TRI_MUST_CHECK;
void trii_tensor_renew_end(tri_tensor *tensor, trii_renewed *old, bool written);
/* For close_key: contents that the value keeps have been written over. */
static inline bool trii_kept_is_lost(const trii_value *value)
{
    return value->leaf != NULL && value->leaf->storage == value->storage &&
           value->leaf->version != value->version;
}
/* During a run, for a tensor that the segment reads: whether no other context's run reads it. Call
 * it under trii_step_lock, which keeps new runs from beginning: an executor may then change the
 * tensor's layout. */
bool trii_step_holds_alone(trii_step *step, const tri_tensor *tensor);
/* Suffix of "is NULL" errors about a tensor: the NULL mostly comes from a failed lookup. */
#define TRII_WHENCE_NULL " (tri_module_find and tri_grad return NULL for what is not there)"
/* Describes the value: "the value of tri_relu at x.c:12". */
#define TRII_VALUE_TEXT 256
const char *trii_value_text(const trii_step *step, trii_vid id, char text[TRII_VALUE_TEXT]);
/* What messages call the node's operation: "tri_relu", "tri_ddp (gradients)". */
#define TRII_OP_TEXT 96
const char *trii_node_text(const trii_node *node, char text[TRII_OP_TEXT]);
/* Call when the arrays grow; warns once if the step is very large. */
void trii_step_grew(const trii_step *step);
/* An optimizer steps in this step: after many of them the program has probably forgotten to end
 * it. */
void trii_step_count_update(trii_step *step);
/* Runs everything that is pending. */
tri_status trii_step_run(trii_step *step) TRI_MUST_CHECK;
/* The same, but not because the user asked for a value. */
tri_status trii_step_catch_up(trii_step *step) TRI_MUST_CHECK;
/* As trii_step_run where the program does not expect it (rare): all values stay, since it may still
 * use any of them. */
tri_status trii_step_run_and_keep(trii_step *step) TRI_MUST_CHECK;
/* Frees this thread's own context (its step must have ended), leaves those that it has entered, as
 * when a thread exits, and frees what the default executor keeps. */
void trii_step_release(void);

/* Modes of the context that what is recorded here and runs elsewhere needs there. */
typedef struct trii_modes {
    bool no_grad;
    tri_dtype autocast; /* NONE = none */
} trii_modes;
trii_modes trii_step_modes(const trii_step *step);

/* Random numbers that are drawn elsewhere for this step: the numbers `first` and following of its
 * random operations are theirs, so that they get the bits that they would get here. */
typedef struct trii_random_place {
    uint32_t first;
    int32_t seeded;
} trii_random_place;
trii_random_place trii_random_take(trii_step *step, uint32_t n);
/* Once the step runs: from what state. */
tri_rng trii_random_from(const trii_step *step, const trii_random_place *place);
/* And there, before anything is recorded: its next random operation is number `first`. */
void trii_random_continue(trii_step *step, const tri_rng *state, uint32_t first);

/* For the random numbers of the current context. */
void trii_random_stream_set(uint64_t stream);
/* The counter of a node's random numbers. */
trii_random trii_step_random(const trii_step *step, const trii_node *node);
/* The seed of tri_manual_seed (0 before), and how often it was set: another generator, such as that
 * of parameter initialisation, starts again when the count changes. */
uint64_t trii_seed(uint64_t *count_out);

#endif
