/*
 * record.h - what the files that record share: which operands an operation takes, and what
 * recording inserts by itself.
 */
#ifndef TRII_RECORD_H
#define TRII_RECORD_H

#include "train/graph/step/recorder.h"

/* The operations that recording inserts by itself: cast.c, copy.c. */
extern const trii_graph_op trii_op_cast, trii_op_copy, trii_op_to;
/* The value in this dtype: itself if it has it. */
tri_status trii_rec_cast(trii_step *step, trii_vid a, tri_dtype dtype,
                         trii_vid *out) TRI_MUST_CHECK;
/* Writes the number as an element of the type, rounded as tri_cast rounds. */
void trii_element_of(double value, tri_dtype dtype, void *element);

/* What a shape rule is asked about. */
typedef struct trii_operands {
    const trii_type *types[TRII_MAX_INPUTS]; /* NULL: absent */
    tri_device device;                       /* of all that are there */
    tri_dtype narrow; /* the 16-bit type of the operation's activations, or NONE */
} trii_operands;

/* plain.c: fills the operands but for `narrow`, and leaves room for one node. */
tri_status trii_operands_check(trii_step *step, const trii_graph_op *op, const trii_vid *in,
                               int n_in, const trii_attrs *attrs,
                               trii_operands *operands_out) TRI_MUST_CHECK;
/* Asks the shape rule and appends the node. */
tri_status trii_operands_record(trii_step *step, const trii_graph_op *op, const trii_vid *in,
                                int n_in, const trii_attrs *attrs, const trii_operands *operands,
                                trii_vid *first_out) TRI_MUST_CHECK;
/* An operation on one value that runs in any precision. */
tri_status trii_record_plain(trii_step *step, const trii_graph_op *op, trii_vid in,
                             const trii_attrs *attrs, trii_vid *out) TRI_MUST_CHECK;

/* precision.c: whether the operation needs casts (autocast, or operands of 16 bits). */
bool trii_precision_matters(const trii_step *step, const trii_graph_op *op,
                            const trii_type *const *types, int n_in);
/* The operands as the operation needs them, cast where they differ: f32 throughout, or its
 * activations in *narrow_out (NONE: none are narrow). Leaves room for one more node. */
tri_status trii_precision_fit(trii_step *step, const trii_graph_op *op, const trii_vid *in,
                              int n_in, trii_vid *fitted, tri_dtype *narrow_out) TRI_MUST_CHECK;
/* replica.c: the value of a persistent tensor in the replica that is recorded now. */
tri_status trii_replica_value(trii_step *step, trii_vid id, trii_vid *value_out) TRI_MUST_CHECK;
static inline bool trii_in_replica(const trii_step *step)
{
    return step->recorder->scopes.replica.home != step->recorder->scopes.replica.device;
}
/* retired.c. Between the two the operands of an operation are looked up and it is recorded: none
 * of them is retired meanwhile. They nest. */
void trii_retire_due(trii_recorder *r);
static inline void trii_operands_begin(trii_recorder *r)
{
    r->retiring.held++;
}
static inline void trii_operands_end(trii_recorder *r)
{
    if (--r->retiring.held == 0 && TRII_UNLIKELY(r->retiring.n > 0))
        trii_retire_due(r);
}
/* Runs what is pending if TRI_EAGER=1 and nothing puts it off. */
tri_status trii_step_eager(trii_step *step);

#endif
