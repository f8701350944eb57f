/*
 * host_op.h - a node that is not a kernel: communication, made by parallel/ and traffic/.
 *
 * The plan orders it and never looks inside. It is started as soon as the values that it reads, and
 * those that it comes after, are complete; polled between kernels; and waited for before the first
 * reader of its results. Operations of one group start in the order in which they were recorded, on
 * every rank, whatever the plan: so collectives always match. One that lacks operands holds back
 * only those of its own group.
 */
#ifndef TRII_HOST_OP_H
#define TRII_HOST_OP_H

#include <trireme/group.h>

#include "train/graph/step/step.h"

typedef struct trii_host_op trii_host_op;

/* The buffers of this run. Data is in `layout` order (NULL = plain), exactly as many bytes as that
 * says; for a value without elements the pointer may be NULL. */
typedef struct trii_host_buffers {
    void **in;  /* [n_in] */
    void **out; /* [n_out] */
    const trii_layout *const *in_layout;
    const trii_layout *const *out_layout;
} trii_host_buffers;

/* What all operations of one kind have in common. The calling thread of the run makes all calls. */
typedef struct trii_host_kind {
    const char *name; /* for messages and plans */
    /* Result k may lie on operand k, if both have one type, or elsewhere: the operation must take
     * both. The plan puts them together where nothing else reads the operand, and a bound result
     * lies in its tensor (a bucket); only under TRI_EAGER=1 may it lie elsewhere and be copied.
     * false: results never lie on operands. */
    bool in_place;
    /* Required. Posts it. Never blocks: peers may be waiting for something else of this rank. */
    tri_status (*start)(trii_host_op *op, const trii_host_buffers *buffers);
    /* Required. OK, INPROGRESS or a failure; never blocks. Not called again once it is over. */
    tri_status (*poll)(trii_host_op *op);
    /* Required. As poll, but blocks until it is over, for at most `for_ns`; INT64_MAX: until the
     * group's deadline. */
    tri_status (*wait)(trii_host_op *op, int64_t for_ns);
    /* Its wait also ends, with INPROGRESS, as soon as any other operation under way whose kind says
     * this has ended: so waiting for one is as good as polling them all. */
    bool wait_any;
    /* start and wait in one, for an operation that is waited for at once while nothing else
     * communicates. NULL: start and wait are called. */
    tri_status (*run)(trii_host_op *op, const trii_host_buffers *buffers);
    /* The segment failed here, so operations that are not complete can never complete on all ranks:
     * ends them soon, here and on the peers, which report `why`. Called for every operation of the
     * segment, started, complete or neither, once or more, before a wait, and for operations
     * recorded in a step that has failed; never blocks. NULL: nothing to do. */
    void (*abort)(trii_host_op *op, const char *why);
    /* TRI_CHECK=order, before a start: fails if another rank starts something else as the next
     * operation of the group. `what` is the kind with its operands, `where` the line that recorded
     * it ("" = unknown). Never waits for peers. NULL: there is nothing to compare. */
    tri_status (*compare)(trii_host_op *op, const char *what, const char *where);
    /* As a gradient rule (gradients/gradient_rules.h); node->host is the operation. Called also if
     * it has no operands. NULL: its results have no gradients. */
    tri_status (*grad)(trii_step *step, const trii_node *node, const trii_vid *grad_out,
                       const bool *needs, trii_vid *grad_in);
    /* What its results depend on is elsewhere, too: `grad` is called even if no operand needs a
     * gradient, and the gradients that go there are those of this rank's loss, as if it were alone:
     * no hook weights them. */
    bool grad_elsewhere;
    /* Somebody elsewhere waits for it: what it needs is computed before everything else of the
     * segment, whose operands live longer meanwhile. Where it needs an operation of a group, those
     * of any group that were recorded before that start first all the same. No effect where the
     * segment has several devices (train/plan/queue_order.c). */
    bool urgent;
    /* The group whose ranks' losses mix in its gradient. NULL: that depends on this rank's alone.
     */
    tri_group *(*mixes)(const trii_host_op *op);
    /* Its results may stay elsewhere. Called once before a start: bit k of `results` = result k is
     * read by operations whose kinds have the same function alone, all of this segment, or by
     * nobody. What its buffer has is then left open, here and where those read it: they agree by
     * themselves on how they pass it on. Not called where every value is looked at (TRI_CHECK=nan,
     * TRI_EAGER=1). NULL: all results are written. */
    void (*stays)(trii_host_op *op, uint64_t results);
    /* For operations that the step owns (trii_host_op_new, whose memory is freed by the step) or
     * has been given (trii_host_op_give): the step has ended, in any thread. NULL: nothing to
     * do. */
    void (*release)(trii_host_op *op);
} trii_host_kind;

struct trii_host_op {
    const trii_host_kind *kind;
    uint64_t identity; /* part of the plan key: equal keys need equal identities */
    uint64_t group;    /* the group in whose order it runs; 0 = in none */
    /* true: operand k comes in the layout of the tensor to which result k, of its type, is bound
     * (plain if it is not bound); false: all operands come in plain order */
    bool any_layout;
    /* The call that it belongs to, for messages: "tri_ddp (gradients)", of a kind "gradients".
     * Static text; NULL: the kind's name says it. */
    const char *of;
    bool holds_back; /* later operations of its group start only when it is complete */
    /* It calls other groups than its own, or makes a call once another is over: waiting for another
     * operation of its group does not progress it, nor the other way round. */
    bool apart;
    trii_host_op *next_owned; /* recorder's list */
};

typedef struct trii_host_result {
    trii_type type;
    bool requires_grad; /* under tri_no_grad_begin none does */
} trii_host_result;

typedef struct trii_host_call {
    const trii_vid *in;
    int n_in; /* 0 to TRII_MAX_INPUTS */
    /* Values that must be complete before it may start, but which it does not read. */
    const trii_vid *after;
    int n_after;
    const trii_host_result *out; /* NULL: as many as operands, of their types, without gradients */
    /* 1 to TRII_MAX_OUTPUTS; an operation without a result gives a token, which has no elements */
    int n_out;
} trii_host_call;

/* `op` is borrowed and must live until the step has ended: see trii_host_op_give. The ids of the
 * results are written to out_ids [n_out], on success only. The operation itself sees memory of the
 * host: operands on other devices are copied before it, results for other devices after it, by
 * copies that are recorded beside it and have gradients. */
tri_status trii_record_host(trii_step *step, trii_host_op *op, const trii_host_call *call,
                            trii_vid *out_ids) TRI_MUST_CHECK;
/* Results of the operands' types, without gradients: in[n] -> out[n]. */
tri_status trii_record_host_like(trii_step *step, trii_host_op *op, const trii_vid *in, int n,
                                 trii_vid *out_ids) TRI_MUST_CHECK;

/* Memory for an operation that the step owns, `bytes` of it (with a trii_host_op first), zeroed
 * except for the kind. Later steps use the memory again. */
tri_status trii_host_op_new(trii_step *step, const trii_host_kind *kind, size_t bytes,
                            trii_host_op **op_out) TRI_MUST_CHECK;

/* The step will call release() once, when it ends. */
void trii_host_op_give(trii_step *step, trii_host_op *op);

/* Before a start: compares ranks under TRI_CHECK=order. For executors. */
tri_status trii_host_check(const trii_step *step, int32_t node) TRI_MUST_CHECK;

/* Calls stays() of the segment's host operations that have it. */
void trii_hosts_stay(trii_step *step, const trii_segment *segment);

/* Calls abort() of all host operations of the segment. `why` must not be the error line itself,
 * which they may overwrite. */
void trii_hosts_abort(const trii_step *step, const trii_segment *segment, const char *why);

/* What messages call it. */
const char *trii_host_text(const trii_host_op *op, char text[TRII_OP_TEXT]);

/* For the files of the recorder. */
extern const trii_graph_op trii_op_host;
/* A gradient that flows into it goes on somewhere else, whether its operands need one or not. */
static inline bool trii_node_leads_elsewhere(const trii_node *node)
{
    return node->host != NULL && (node->n_in == 0 || node->host->kind->grad_elsewhere);
}
static inline bool trii_node_has_gradient(const trii_node *node)
{
    return node->host != NULL ? node->host->kind->grad != NULL
                              : node->op->gradient != TRII_GRADIENT_NONE;
}

#endif
