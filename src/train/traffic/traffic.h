/*
 * traffic.h - communication as part of a recorded step: collectives and messages, with gradients.
 *
 * They run as the plan finds time for them (train/graph/step/host_op.h), those of one group in the
 * order in which they were recorded. Gradients communicate too, and so all ranks of a group record
 * them in one order: what one rank differentiates, all do.
 *
 * A NULL group is the world. The step holds the group until it ends. Ranks whose operands differ in
 * type fail the group (MISMATCH). Operands of any layout and on any device; without elements too.
 */
#ifndef TRII_TRAFFIC_H
#define TRII_TRAFFIC_H

#include <trireme/group.h>

#include "train/graph/step/host_op.h"

/* out = op over ranks r of x_r, which is what the gradient is, too: of sums and averages (the
 * gradient of others fails: UNSUPPORTED). */
tri_status trii_record_all_reduce(trii_step *step, tri_group *group, trii_vid x, tri_redop op,
                                  trii_vid *out) TRI_MUST_CHECK;
/* x of shape [..] -> [size, ..]: out[r] = x_r. Its gradient is a reduce_scatter. */
tri_status trii_record_all_gather(trii_step *step, tri_group *group, trii_vid x,
                                  trii_vid *out) TRI_MUST_CHECK;
/* x [size, ..] -> [..]: out = op over r of x_r[rank]. Its gradient is an all_gather. */
tri_status trii_record_reduce_scatter(trii_step *step, tri_group *group, trii_vid x, tri_redop op,
                                      trii_vid *out) TRI_MUST_CHECK;
/* x [size, ..] -> [size, ..]: out[r] = x_r[rank]. So is its gradient. */
tri_status trii_record_all_to_all(trii_step *step, tri_group *group, trii_vid x,
                                  trii_vid *out) TRI_MUST_CHECK;
/* Parts that differ in size, of tensors that are alike but for their first dimension. */
typedef struct trii_row_exchange {
    const size_t *to, *from; /* [size]: elements of x for each rank, and of the result */
    trii_type type;          /* of the result */
} trii_row_exchange;
/* x is the parts for all ranks, one after the other, and out those that came. So is its gradient.
 */
tri_status trii_record_all_to_all_v(trii_step *step, tri_group *group, trii_vid x,
                                    const trii_row_exchange *exchange,
                                    trii_vid *out) TRI_MUST_CHECK;

/* out = x of rank root, on all; elsewhere x is only read for its type. Its gradient is the sum at
 * the root, and zeros elsewhere. */
tri_status trii_record_broadcast(trii_step *step, tri_group *group, trii_vid x, int root,
                                 trii_vid *out) TRI_MUST_CHECK;

/* all_reduce of sums and all_gather, with a gradient that the caller records: from g, that of the
 * result, that of x. */
typedef tri_status (*trii_traffic_grad)(trii_step *step, tri_group *group, trii_vid g,
                                        trii_vid *out);
tri_status trii_record_sum_by(trii_step *step, tri_group *group, trii_vid x, trii_traffic_grad grad,
                              trii_vid *out) TRI_MUST_CHECK;
tri_status trii_record_gather_by(trii_step *step, tri_group *group, trii_vid x,
                                 trii_traffic_grad grad, trii_vid *out) TRI_MUST_CHECK;

/* What the operation that gave this value is for: its failures begin with this, static text. */
void trii_traffic_is_for(trii_step *step, trii_vid out, const char *what);

/* A message; messages between a pair with one tag (0 to TRII_TRAFFIC_TAGS - 1) arrive in order. Its
 * gradient comes back from where it went. *token_out: f32 [0], complete when it is sent; a backward
 * pass on this rank begins at it (tri_backward), or goes through it. */
#define TRII_TRAFFIC_TAGS (1 << 29)
tri_status trii_record_send(trii_step *step, tri_group *group, trii_vid x, int peer, int tag,
                            trii_vid *token_out) TRI_MUST_CHECK;
/* What the peer has sent, of this type: a message of another length or dtype fails the step.
 * requires_grad: its gradient goes back to the peer, which then waits for it. after: the receive is
 * posted once these values are complete, and has its memory from then on; NULL or none: when the
 * step begins to run. Of tokens of sends, also: once the message is there what they sent is, too
 * (the message answers them), so their memory is free. */
typedef struct trii_after {
    const trii_vid *values;
    int n;
} trii_after;
tri_status trii_record_recv(trii_step *step, tri_group *group, const trii_type *type,
                            bool requires_grad, int peer, int tag, const trii_after *after,
                            trii_vid *out) TRI_MUST_CHECK;
/* The peer waits for one gradient, that of the backward: tri_gradients goes no further than here,
 * and sends none. */
void trii_traffic_for_backward(trii_step *step, trii_vid received);
/* The token of the send of its gradient, once that is recorded; NO_VALUE before. */
trii_vid trii_traffic_answer(const trii_step *step, trii_vid received);
/* The peer waits for a gradient: where no backward has recorded one, none ever will, it gets zeros.
 */
tri_status trii_traffic_answer_zeros(trii_step *step, trii_vid received) TRI_MUST_CHECK;

#endif
