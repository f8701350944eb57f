/*
 * step.h - the recorder: what a context has noted since its last tri_step_end.
 *
 * Values and nodes are appended; nothing is removed until the step ends. The nodes since the
 * last run form a segment, which the executor (the plan, or the reference interpreter) runs.
 *
 * Operations are functional, also those that update: "p = p - lr*g" has an output that is
 * *bound* to the tensor p: the executor must leave it in p's storage. So gradients are bound to
 * grad tensors (and through them to buckets), new weights to parameters, running statistics to
 * buffers. Reads of the old contents were recorded before and must run before.
 */
#ifndef TRII_STEP_H
#define TRII_STEP_H

#include <assert.h>

#include "graph/op.h"
#include "base/site.h"
#include "tensor/persistent.h"

typedef enum trii_value_state {
    TRII_VALUE_PENDING, /* its node has not run */
    TRII_VALUE_READY,   /* leaf, or materialised in `storage` */
    TRII_VALUE_DROPPED, /* ran and was not kept, or its tensor was overwritten */
    TRII_VALUE_FAILED   /* carries an error: a refused operation, or a run that failed */
} trii_value_state;

typedef struct trii_value {
    trii_type type;
    int32_t node;   /* producer, or -1 for a leaf */
    int16_t output; /* of the producer */
    uint8_t state;  /* trii_value_state */
    bool requires_grad;
    bool keep;         /* must be readable after the run */
    bool used;         /* an operand of a node */
    bool is_float;     /* of a node: its type is */
    bool torn;         /* bound: a run that failed had begun to write into the tensor */
    tri_tensor *leaf;  /* leaf: the persistent tensor it reads; a reference is held */
    tri_tensor *bound; /* where the result must be left; a reference is held; else NULL */
    /* READY: where the contents are; a reference is held. NULL for a leaf: in its tensor, and for
     * a bound value: in the tensor that it is bound to. Use trii_value_data/_layout to read. */
    trii_storage *storage;
    size_t offset;
    const trii_layout *layout; /* of storage; NULL = plain */

    /* The recorder's own. */
    int32_t version;   /* of the tensor's contents, as a run found or left them; -1 = none did */
    trii_vid replaces; /* bound: the value that the tensor had before, or -1 */
    int32_t slot;      /* number in the plan key: of an input, or of an output; for a
                        * failed value the number of its message */
    uint32_t slot_segment; /* in which segment `slot` counts */
} trii_value;

/* The tensor in which the contents lie; NULL if the value has storage of its own. */
static inline const tri_tensor *trii_value_tensor(const trii_value *value)
{
    if (value->storage != NULL)
        return NULL;
    return value->leaf != NULL ? value->leaf : value->bound;
}

/* Contents of a READY value, in the order of trii_value_layout. */
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
    int16_t n_after;    /* of a host operation: values behind its operands, see host_op.h */
    trii_vid first_out; /* outputs are consecutive values */
    trii_attrs attrs;   /* only the first n_i and n_f numbers are set */
    uint32_t random_index;
    int32_t random_seeded; /* how many were in step->seeded */
    /* > 0: the region of the step that is computed again for backward; < 0: a copy, of a region
     * that is minus that of the segment; see recompute.c */
    int32_t region;
    bool requires_grad; /* an output does */
    bool backward;      /* recorded by tri_backward; for the order of a plan only */
    bool like_operands; /* a host operation whose results have its operands' types */
    uint8_t autocast;   /* recorded under tri_autocast_begin of this tri_dtype; 0 = of none */
    /* A walk back went through, so that nothing needs its values later: which one of the context;
     * 0 = none did. */
    uint32_t differentiated;
    struct trii_host_op *host; /* TRII_CLASS_HOST; owned by whoever recorded it, see host_op.h */
} trii_node;

/* What the executor runs at once: nodes [first_node, end_node), with their inputs and outputs.
 * `key`, the plan key, is the canonical form of all that a plan depends on (operations, edges,
 * types, integer attributes, bindings, which values must survive), written while recording: equal
 * keys have the same plan. */
typedef struct trii_segment {
    int32_t first_node, end_node;
    const trii_vid *inputs; /* READY values read by the nodes, in order of first use */
    int32_t n_inputs;
    const trii_vid *outputs; /* values that must be READY afterwards: kept, bound or needed later */
    int32_t n_outputs;
    const uint64_t *key;
    size_t n_key;
    uint64_t hash;
} trii_segment;

typedef struct trii_step {
    uint64_t generation; /* unique in the process; handles carry it */
    trii_value *values;
    int32_t n_values;
    trii_node *nodes;
    int32_t n_nodes;
    trii_vid *in_ids;
    int32_t n_in_ids;
    int32_t first_pending;   /* first node that has not run */
    tri_random_state random; /* what has not run gets its random numbers from */
    uint32_t random_count;
    tri_random_state *seeded; /* what it was before each tri_manual_seed amid random numbers */
    int32_t n_seeded, cap_seeded;
    tri_status failed;            /* the first failed run of the step: later runs return it */
    struct tri_context *recorder; /* context.c's own */
} trii_step;

/* The step of the current context, created on first use; NULL when memory is out. */
trii_step *trii_step_current(void);

/* Who runs segments: the registry's choice unless a test swaps it. run() reads the inputs'
 * contents (trii_value_data) and returns the first failure. A bound output it leaves in its tensor
 * (whose layout it may choose); any other output's storage, offset and layout it sets, with one
 * reference for the value. On failure it marks the bound outputs torn whose tensors it had begun to
 * write. The recorder then marks the values READY, DROPPED or FAILED. `segment` and what it points
 * to live until run() returns. */
typedef struct trii_executor {
    const char *name;
    tri_status (*run)(trii_step *step, const trii_segment *segment);
    /* Frees what the executor keeps (plans) and nobody uses now; NULL = nothing. */
    void (*release)(void);
} trii_executor;
void trii_executor_set(const trii_executor *executor); /* NULL: the registry's again */
/* registry/train.c fills these, which the graph may not know: */
extern const trii_executor *const trii_executor_default;
int64_t trii_step_thread_id(void); /* the system's number of this thread */
void trii_step_at_thread_exit(void (*release)(void *arg), void *arg); /* NULL: no longer */
void trii_step_lock(void);                                            /* of hold.c */
void trii_step_unlock(void);
/* Node by node through the reference kernels; what TRI_EAGER=1 uses. */
extern const trii_executor trii_executor_reference;

/* --- recording, for ops/, nn/, optim/ and parallel/ ----------------------- */

/* What an operation's public function does: resolve handles, check by the shape rule, append.
 * `in` may hold NULL for an absent optional input. Returns output 0's handle, or a failed one
 * that names op, shapes and source line. Further outputs: trii_handle_output. */
tri_tensor *trii_record(const trii_graph_op *op, tri_tensor *const *in, int n_in,
                        const trii_attrs *attrs);
/* The same on values, for gradients and rewrites: writes the first output's id. */
tri_status trii_record_values(trii_step *step, const trii_graph_op *op, const trii_vid *in,
                              int n_in, const trii_attrs *attrs,
                              trii_vid *first_out) TRI_MUST_CHECK;
/* The value that a handle or persistent tensor stands for now. */
tri_status trii_resolve(trii_step *step, tri_tensor *tensor, trii_vid *value_out) TRI_MUST_CHECK;
tri_tensor *trii_handle(trii_step *step, trii_vid value);
/* The handle of a value that a public function recorded by trii_record_values: what trii_record
 * does at its end (TRI_EAGER=1 runs it now). */
tri_tensor *trii_handle_recorded(trii_step *step, trii_vid value);
/* Handle of another output of the operation; a failed handle gives itself. */
tri_tensor *trii_handle_output(tri_tensor *first, int output);
/* A handle that carries the current error line, for functions that check by themselves. A NULL
 * step (no memory for one) gives the shared failed tensor. */
tri_tensor *trii_handle_failed(trii_step *step, tri_status status);
/* The handle of a refused call: the error line gets its name, the operands (NULL is allowed) and
 * the caller's line. What is failed among the operands is returned on. */
tri_tensor *trii_handle_refused(trii_step *step, const char *name, tri_tensor *const *in, int n_in,
                                tri_status status);
/* The value on this device: itself if it lies there, else a copy. */
tri_status trii_record_to(trii_step *step, trii_vid value, tri_device device,
                          trii_vid *out) TRI_MUST_CHECK;
/* The value must end up in `tensor` (same shape and dtype), and reading the tensor means this
 * value from now on. A not yet run earlier binding of the tensor is given up. A value that has
 * run already, or is a leaf or bound elsewhere, is copied. */
tri_status trii_bind(trii_step *step, trii_vid value, tri_tensor *tensor) TRI_MUST_CHECK;

/* --- gradients ------------------------------------------------------------ */

/* What a loss is the mean of: so many samples, whose mean divides by the value `divisor`, an f64
 * scalar; NO_VALUE: by their number. crosses_ranks: its gradients on the way are sums over ranks,
 * so that ranks are weighed before these or not at all. */
typedef struct trii_samples {
    int64_t count;
    trii_vid divisor;
    bool crosses_ranks;
} trii_samples;

/* A parallel strategy's say in tri_backward: parameters point at it (tensor->grad_hook). After
 * the gradients are recorded, attach() gets all parameters of this hook that the loss reaches,
 * with the value of each one's gradient (accumulated ones added), and may record operations and
 * replace the values; they are then bound to the parameters' grads. */
typedef struct trii_grad_hook {
    tri_status (*attach)(struct trii_grad_hook *hook, trii_step *step, tri_tensor *const *params,
                         trii_vid *grads, int n, const trii_samples *under);
    /* Of a parameter, amid that: what its gradient held before, as a term of the sum. NULL: as it
     * is. */
    tri_status (*held)(struct trii_grad_hook *hook, trii_step *step, const tri_tensor *param,
                       trii_vid *term_io);
    /* May replace the seed of the backward pass by a scalar of this dtype, which then scales all
     * gradients; TRII_NO_VALUE leaves it at 1. Called before the gradients are recorded, and only
     * if this is the hook of every parameter that the loss reaches. NULL: never replaced. */
    tri_status (*seed)(struct trii_grad_hook *hook, trii_step *step, tri_dtype dtype,
                       const trii_samples *under, trii_vid *seed_out);
    /* Called by the optimizer before it looks which parameters have a gradient: the last chance to
     * set or clear has_grad of parameters that the loss did not reach here but may have reached
     * elsewhere; may run the step. NULL: nothing to do. */
    tri_status (*finish_unused)(struct trii_grad_hook *hook, trii_step *step);
    /* The step has failed, so that what peers still expect of it will never come from here. Called
     * at the first failure, once or more, if the step has read a tensor of this hook; never
     * blocks. NULL: nothing to do. */
    void (*failed)(struct trii_grad_hook *hook, const trii_step *step, const char *why);
} trii_grad_hook;

/* Whether the gradients that are being recorded are to be differentiated again. */
bool trii_step_creates_graph(const trii_step *step);
/* The value of the gradient that the optimizer shall use; NO_VALUE in *grad_out if the tensor has
 * none (then nothing changes). From now on the tensor has no gradient: the next tri_backward
 * starts a new one. */
tri_status trii_grad_consume(trii_step *step, tri_tensor *tensor,
                             trii_vid *grad_out) TRI_MUST_CHECK;
/* Nothing of it pends: its grad holds a gradient now, or none. */
void trii_grad_publish(tri_tensor *tensor, bool has);
/* Whether the tensor has a gradient, once what pends in the current context has run. */
bool trii_has_grad(const tri_tensor *tensor);
bool trii_step_has_grad(const trii_step *step, const tri_tensor *tensor); /* of this one */
/* What pends of the step will write the gradient, and nobody else may: STATE if another context's
 * step will. Until it has run, or has failed. */
tri_status trii_grad_claim(trii_step *step, tri_tensor *tensor) TRI_MUST_CHECK;
/* Makes the tensor's grad, empty, unless it is there. */
tri_status trii_grad_prepare(tri_tensor *tensor) TRI_MUST_CHECK;
/* The value becomes the tensor's gradient: bound to its grad, which must be there. A step that
 * fails before this has run leaves the tensor with the gradient that it had before, or with none.
 * STATE as trii_grad_claim. */
tri_status trii_grad_bind(trii_step *step, trii_vid value, tri_tensor *tensor) TRI_MUST_CHECK;
/* Fails (STATE) if the step of another context will write the tensor's gradient. */
tri_status trii_grad_check(const trii_step *step, const tri_tensor *tensor) TRI_MUST_CHECK;
/* The tensor has no gradient, whatever was recorded. Fails the current step (STATE) if that of
 * another context will write it. */
void trii_grad_clear(tri_tensor *tensor);
/* TRI_CHECK=nan for what runs from now on; returns what it was. */
bool trii_nan_check_set(trii_step *step, bool on);
/* The first failure of the step: what tri_backward and others without a status report; the next
 * run returns it. Keeps the current error line. */
void trii_step_fail(trii_step *step, tri_status status);

/* Prepends which operation of the step it was whose run failed; returns `status`. */
tri_status trii_node_failed(const trii_step *step, int32_t node, tri_status status);

/* change_device.c: a persistent tensor and its gradient change their device. If the step has
 * something to do with it, what pends runs first; what was recorded of it keeps the old ones. */
tri_status trii_tensor_send(tri_tensor *tensor, tri_device device) TRI_MUST_CHECK;
/* During a run, of a tensor that the segment reads: whether no other context's run reads it. Under
 * trii_step_lock, which holds up all that would begin: so an executor may change its layout. */
bool trii_step_holds_alone(trii_step *step, const tri_tensor *tensor);
/* Behind "is NULL" of a tensor: it is rarely the program's own constant. */
#define TRII_WHENCE_NULL " (tri_module_find and tri_grad return NULL for what is not there)"
/* Which value that is: "the value of tri_relu at x.c:12". */
#define TRII_VALUE_TEXT 256
const char *trii_value_text(const trii_step *step, trii_vid id, char text[TRII_VALUE_TEXT]);
/* Its arrays grow: a step that has become very large is warned about. */
void trii_step_grew(const trii_step *step);
/* An optimizer steps in this step: after many of them somebody has forgotten to end it. */
void trii_step_count_update(trii_step *step);
/* Run everything pending of the step. */
tri_status trii_step_run(trii_step *step) TRI_MUST_CHECK;
/* The same where the program does not expect it, rarely: all values stay, since it may still use
 * any of them. */
tri_status trii_step_run_and_keep(trii_step *step) TRI_MUST_CHECK;
/* Frees this thread's own context (its step must have ended) and leaves those that it has entered,
 * as when a thread exits, and frees what the default executor keeps. */
void trii_step_release(void);

/* Of the current context. */
void trii_random_stream_set(uint64_t stream);
/* The counter of a node's random numbers. */
trii_random trii_step_random(const trii_step *step, const trii_node *node);
/* The seed of tri_manual_seed (0 before), and how often it was set: a generator of its own, such
 * as that of parameter initialisation, starts again when the count changes. */
uint64_t trii_seed(uint64_t *count_out);

#endif
