/*
 * host_op.h - a node that is not a kernel: communication, made by parallel/.
 *
 * The plan orders it and never looks inside. It is started as soon as the values that it reads
 * are complete, polled between kernels, and waited for before the first reader of its outputs.
 * Host operations start in the order in which they were recorded, on every rank, whatever the
 * plan: so collectives always match.
 */
#ifndef TRII_HOST_OP_H
#define TRII_HOST_OP_H

#include "graph/step.h"

typedef struct trii_host_op trii_host_op;

/* The buffers as they are in this run. Output o may lie on input o (in == out) or apart from it:
 * the operation must take both. The plan lays them together where nothing else reads the input, and
 * an output that is bound lies in its tensor (a bucket); only under TRI_EAGER=1 may it lie
 * elsewhere and be copied. Data is in `layout` order (NULL = plain), exactly as many bytes as it
 * says. */
typedef struct trii_host_buffers {
    void **in;  /* [n_in] */
    void **out; /* [n_out] */
    const trii_layout *const *in_layout;
    const trii_layout *const *out_layout;
} trii_host_buffers;

struct trii_host_op {
    const char *name;  /* for logs and plans */
    uint64_t identity; /* equal words need equal identities: part of the plan's key */
    /* true: operand k comes in the layout of the tensor that result k is bound to (plain if it is
     * bound to none); false: all come in plain order */
    bool any_layout;
    tri_status (*start)(trii_host_op *op, const trii_host_buffers *buffers);
    tri_status (*poll)(trii_host_op *op); /* OK, INPROGRESS or failure; never blocks */
    tri_status (*wait)(trii_host_op *op); /* until done, at most the group's deadline */
    /* The segment failed here, so that operations that are not done can not complete on all ranks:
     * they end soon, here and on the peers, and `why` is the reason that peers read. Called for
     * every operation of the segment, started, done or neither, once or more, before a wait; never
     * blocks. NULL: nothing to do. */
    void (*abort)(trii_host_op *op, const char *why);
    trii_host_op *next_orphan; /* the recorder's own */
};

/* in[n] -> out[n] of the same types, n <= TRII_MAX_INPUTS; out ids are written to out_ids. `op` is
 * borrowed and must live until the step has ended (or see trii_host_op_orphan). */
tri_status trii_record_host(trii_step *step, trii_host_op *op, const trii_vid *in, int n,
                            trii_vid *out_ids) TRI_MUST_CHECK;

/* The owner goes while the step of this generation may still point to `op`: the memory that begins
 * with `op` is the recorder's, which gives it to trii_free when this thread's step ends, or now if
 * that is not the step. The owner has replaced its functions by some that need it no more. */
void trii_host_op_orphan(trii_host_op *op, uint64_t generation);

/* Calls abort of all host operations of the segment. `why` may not be the error line itself, which
 * they may overwrite. */
void trii_hosts_abort(const trii_step *step, const trii_segment *segment, const char *why);

#endif
