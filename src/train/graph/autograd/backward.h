/*
 * backward.h - the walk back from some values, for its two callers: tri_backward
 * (train/dist/backward.c) and tri_gradients (gradients.c).
 */
#ifndef TRII_BACKWARD_H
#define TRII_BACKWARD_H

#include "train/graph/step/recorder.h"
#include "train/graph/step/retired.h"

/* What this folder keeps for a recorder: memory of walks. */
typedef struct trii_autograd_state {
    int32_t *scratch; /* a number for each value */
    int32_t cap_scratch;
    trii_vid *roots; /* where the walk begins and ends */
    int32_t cap_roots;
} trii_autograd_state;
/* backward_walk.c: NULL (and the error line) without memory. */
trii_autograd_state *trii_autograd_state_of(trii_recorder *recorder);

/* In place of a gradient. */
#define TRII_UNREACHED (-2)
#define TRII_REACHED TRII_NO_VALUE /* an output depends on it, but no gradient has arrived yet */

/* Where a walk begins. */
typedef struct trii_roots {
    const char *call; /* the public function, for messages */
    bool takes_seeds; /* else it takes one loss */
    tri_tensor *const *outputs;
    tri_tensor *const *seeds; /* their gradients; NULL, or a NULL among them: 1 */
    int n;
    int n_inputs; /* room for so many more values is needed */
} trii_roots;

/* backward_halves.c: whether a value is on the way of the first half; PUT_OFF: it is not, and what
 * still comes to it is for the second half. */
enum { TRII_WAY_OFF, TRII_WAY_ON, TRII_WAY_PUT_OFF };

typedef struct trii_rest_value {
    trii_vid value;
    int32_t grad, copy, way;
} trii_rest_value;

typedef struct trii_rest_node {
    int32_t node;
    uint64_t operands; /* whose gradients were put off */
} trii_rest_node;

/* What the first half of a walk leaves to the second one, in the same segment. */
typedef struct trii_backward_rest {
    trii_rest_value *values;
    int32_t n_values;
    trii_rest_node *nodes; /* last node first */
    int32_t n_nodes, cap_nodes;
    int32_t last_node, region; /* of the walk */
} trii_backward_rest;

typedef enum trii_backward_half {
    TRII_BACKWARD_WHOLE,
    TRII_BACKWARD_FIRST,
    TRII_BACKWARD_SECOND
} trii_backward_half;

typedef struct trii_backward {
    trii_step *step;
    trii_autograd_state *state;
    const trii_roots *roots;
    trii_vid *outputs; /* [n] */
    trii_vid *seeds;   /* [n]; NO_VALUE = 1 */
    trii_vid *inputs;  /* [n_inputs], the caller's */
    int32_t *grads;    /* [n_values]: UNREACHED, REACHED or a value */
    int32_t *scratch;  /* [n_values], the caller's */
    int32_t *copies;   /* [n_values], if there are regions: see recompute.c */
    int32_t region;    /* the region copied last; 0 = none */
    int32_t n_values;  /* how many there were when it began */
    int32_t last_node; /* the node from which it goes back; -1 = there is none */
    bool owns;         /* some values have owners */
    bool keep_graph;   /* what it went through can be gone through again after a run */
    /* Values past which it does not go: their gradients are for the caller. */
    const trii_vid *stops;
    int n_stops;
    trii_backward_half half;
    trii_backward_rest *rest; /* of halves; the caller's */
    int32_t *ways;            /* [n_values] of halves */
} trii_backward;

/* Fails (STATE) inside a walk, whose memory another one would use. */
tri_status trii_backward_check(const trii_recorder *r) TRI_MUST_CHECK;
/* Changes the modes of the recorder for recording gradients, until trii_backward_leave. Refused
 * (STATE) inside another walk. */
typedef struct trii_backward_mode {
    int no_grad;
    trii_autocast autocast;
    int32_t region;
} trii_backward_mode;
tri_status trii_backward_enter(trii_recorder *r, bool create_graph,
                               trii_backward_mode *mode) TRI_MUST_CHECK;
void trii_backward_leave(trii_recorder *r, const trii_backward_mode *mode);

/* Resolves and checks the outputs and their seeds, and takes memory. */
tri_status trii_backward_open(trii_backward *b, trii_step *step,
                              const trii_roots *roots) TRI_MUST_CHECK;
/* Once all values that the call names are known: takes memory for what is found of each. */
tri_status trii_backward_room(trii_backward *b) TRI_MUST_CHECK;
/* Marks everything on which the outputs depend, as far as gradients flow; with `leads` (a number
 * for each value) only what has a number other than 0. */
void trii_backward_mark(trii_backward *b, const int32_t *leads);
/* Gradients of the outputs: their seeds, times `weight`, a scalar; NO_VALUE = 1. */
tri_status trii_backward_seed(trii_backward *b, trii_vid weight) TRI_MUST_CHECK;
/* Records the gradients of all that is marked. */
tri_status trii_backward_walk(trii_backward *b) TRI_MUST_CHECK;
/* The last walk of this step has failed: what it went through can be gone through again, even after
 * a run. */
void trii_backward_forget(trii_step *step);
/* The operand, or the value that stands for it in gradients. */
static inline trii_vid trii_backward_operand(const trii_backward *b, const trii_node *node, int i)
{
    trii_vid in = b->step->in_ids[node->first_in + i];

    return TRII_UNLIKELY(b->owns) && in != TRII_NO_VALUE ? trii_value_first(b->step, in) : in;
}
/* The dtype in which seeds are weighted: that of all outputs, f32 for 16 bits; NONE if they
 * differ. */
tri_dtype trii_backward_dtype(const trii_backward *b);

/* backward_halves.c. After trii_backward_mark: which values are on the way, and whether an output
 * is; if none is, there is no first half. */
void trii_backward_find_ways(trii_backward *b);
bool trii_backward_is_on_the_way(const trii_backward *b);
/* The first half is at a node on the way: clears the needs that it leaves to the second half, and
 * returns their bits. */
uint64_t trii_backward_put_off(const trii_backward *b, const trii_node *node, bool *needs);
tri_status trii_backward_leave_node(trii_backward_rest *rest, int32_t node,
                                    uint64_t operands) TRI_MUST_CHECK;
/* The first half is over. */
tri_status trii_backward_leave_values(const trii_backward *b,
                                      trii_backward_rest *rest) TRI_MUST_CHECK;
/* The second half begins, instead of trii_backward_mark; and, once nothing asks any more what the
 * outputs depend on, instead of trii_backward_seed. */
void trii_backward_take_reached(trii_backward *b, const trii_backward_rest *rest);
void trii_backward_take_grads(trii_backward *b, const trii_backward_rest *rest);
void trii_backward_rest_free(trii_backward_rest *rest);

/* recompute.c: copies what is needed of the region of node `last`, up to that node. */
tri_status trii_region_copy(trii_backward *b, int32_t last) TRI_MUST_CHECK;
/* The node whose operands and results the gradients of node n read: its copy, or itself. */
const trii_node *trii_region_node(const trii_backward *b, int32_t n);

/* The persistent tensor whose gradient this value's gradient is, or NULL. */
static inline tri_tensor *trii_backward_owner(const trii_value *value)
{
    tri_tensor *tensor = value->leaf != NULL    ? value->leaf
                         : value->bound != NULL ? value->bound
                                                : value->owner;

    return tensor != NULL && tensor->requires_grad ? tensor : NULL;
}

#endif
