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

#include "graph/step.h"

typedef struct trii_host_op trii_host_op;

/* The buffers as they are in this run. Data is in `layout` order (NULL = plain), exactly as many
 * bytes as it says; of a value without elements the pointer may be NULL. */
typedef struct trii_host_buffers {
    void **in;  /* [n_in] */
    void **out; /* [n_out] */
    const trii_layout *const *in_layout;
    const trii_layout *const *out_layout;
} trii_host_buffers;

/* What all operations of one kind have in common. The calling thread of the run makes all calls. */
typedef struct trii_host_kind {
    const char *name; /* for messages and plans */
    /* Result k may lie on operand k, if both are of one type, or apart from it: the operation takes
     * both. The plan lays them together where nothing else reads the operand, and a result that is
     * bound lies in its tensor (a bucket); only under TRI_EAGER=1 may it lie elsewhere and be
     * copied. false: results never lie on operands. */
    bool in_place;
    /* Required. Posts it. Never blocks: peers may be waiting for something else of this rank. */
    tri_status (*start)(trii_host_op *op, const trii_host_buffers *buffers);
    /* Required. OK, INPROGRESS or failure; never blocks. Not called again once it is over. */
    tri_status (*poll)(trii_host_op *op);
    /* Required. As poll, but blocks until it is done, at most for so many nanoseconds; INT64_MAX:
     * at most for the group's deadline. */
    tri_status (*wait)(trii_host_op *op, int64_t for_ns);
    /* start and wait in one, for what is waited for at once while nothing else communicates. NULL:
     * these two. */
    tri_status (*run)(trii_host_op *op, const trii_host_buffers *buffers);
    /* The segment failed here, so that operations that are not done can not complete on all ranks:
     * they end soon, here and on the peers, and `why` is the reason that peers read. Called for
     * every operation of the segment, started, done or neither, once or more, before a wait, and
     * for those that are recorded in a step that has failed; never blocks. NULL: nothing to do. */
    void (*abort)(trii_host_op *op, const char *why);
    /* TRI_CHECK=order, before a start: fails if another rank starts something else as the next
     * operation of the group. `what` is the kind with its operands, `where` the line that recorded
     * it ("" = unknown). Never waits for peers. NULL: there is nothing to compare. */
    tri_status (*compare)(trii_host_op *op, const char *what, const char *where);
    /* As trii_graph_op.grad; node->host is the operation. Called also if it has no operands. NULL:
     * its results have no gradients. */
    tri_status (*grad)(trii_step *step, const trii_node *node, const trii_vid *grad_out,
                       const bool *needs, trii_vid *grad_in);
    /* Its gradient is made of those of other ranks, whose losses it mixes. */
    bool crosses_ranks;
    /* Of operations that the step owns (trii_host_op_new; the memory goes by itself) or has been
     * given (trii_host_op_give): it has ended, whichever thread it was in. NULL: nothing to do. */
    void (*release)(trii_host_op *op);
} trii_host_kind;

struct trii_host_op {
    const trii_host_kind *kind;
    uint64_t identity; /* part of the plan key: equal keys need equal identities */
    uint64_t group;    /* whose order it is part of; 0 = of none's */
    /* true: operand k comes in the layout of the tensor that result k, of its type, is bound to
     * (plain if it is bound to none); false: all come in plain order */
    bool any_layout;
    bool holds_back;          /* later operations of its group start only when it is done */
    trii_host_op *next_owned; /* the recorder's own */
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
    int n_out; /* 1 to TRII_MAX_OUTPUTS; what has nothing to give has a token: no elements */
} trii_host_call;

/* `op` is borrowed and must live until the step has ended: see trii_host_op_give. Ids of the
 * results are written to out_ids [n_out], on success only. The operation itself sees memory of the
 * host: operands from elsewhere are copied before it, results to elsewhere behind it, by copies
 * that are recorded beside it and have gradients. */
tri_status trii_record_host(trii_step *step, trii_host_op *op, const trii_host_call *call,
                            trii_vid *out_ids) TRI_MUST_CHECK;
/* Results of the operands' types, without gradients: in[n] -> out[n]. */
tri_status trii_record_host_like(trii_step *step, trii_host_op *op, const trii_vid *in, int n,
                                 trii_vid *out_ids) TRI_MUST_CHECK;

/* Memory for an operation that the step owns, `bytes` of it (an op first), zeroed but for the kind.
 * It is used again in later steps. */
tri_status trii_host_op_new(trii_step *step, const trii_host_kind *kind, size_t bytes,
                            trii_host_op **op_out) TRI_MUST_CHECK;

/* The step releases the operation when it ends, once. */
void trii_host_op_give(trii_step *step, trii_host_op *op);

/* Before a start: under TRI_CHECK=order compares. For executors. */
tri_status trii_host_check(const trii_step *step, int32_t node) TRI_MUST_CHECK;

/* Calls abort of all host operations of the segment. `why` may not be the error line itself, which
 * they may overwrite. */
void trii_hosts_abort(const trii_step *step, const trii_segment *segment, const char *why);

/* For recorder files. */
extern const trii_graph_op trii_op_host;
static inline bool trii_node_has_gradient(const trii_node *node)
{
    return node->host != NULL ? node->host->kind->grad != NULL : node->op->grad != NULL;
}

#endif
