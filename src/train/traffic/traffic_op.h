/*
 * traffic_op.h - what traffic.c, with the collectives, and traffic_message.c have in common: one
 * recorded operation that communicates. For these two.
 */
#ifndef TRII_TRAFFIC_OP_H
#define TRII_TRAFFIC_OP_H

#include "comm/group/join/world.h"
#include "train/traffic/awaited.h"
#include "train/traffic/traffic.h"

/* Gradients of messages have tags of their own, so that they never take each other's place. */
#define TRII_TRAFFIC_GRADIENT_TAG TRII_TRAFFIC_TAGS

typedef struct trii_traffic {
    trii_host_op op;  /* first */
    tri_group *group; /* a reference */
    tri_work *work;   /* while it is under way */
    trii_site site;   /* of the call that recorded it */
    const char *what; /* what it is for; NULL: its own name says enough */
    bool is_over;
    bool receives;
    bool compared; /* TRI_CHECK=order */
    tri_dtype dtype;
    size_t count; /* elements of one rank's part; all_to_all_v: of a row */
    tri_redop redop;
    int peer, tag;
    trii_traffic_grad grad; /* NULL: the kind's own */
    trii_awaited awaited;   /* its gradient */
    trii_vid answer;        /* recv: the token of the gradient's send; NO_VALUE: none yet */
    bool for_backward;      /* recv: tri_gradients sends none */
    size_t elements[];      /* all_to_all_v: what goes to each rank, then what comes from each */
} trii_traffic;

#define TRII_TRAFFIC_KIND(name_, start_, in_place_, compare_, mixes_, grad_)                       \
    static const trii_host_kind name_##_kind = {.name = #name_,                                    \
                                                .in_place = (in_place_),                           \
                                                .start = start_##_start,                           \
                                                .poll = trii_traffic_poll,                         \
                                                .wait = trii_traffic_wait,                         \
                                                .abort = trii_traffic_abort,                       \
                                                .compare = (compare_),                             \
                                                .mixes = (mixes_),                                 \
                                                .grad = (grad_),                                   \
                                                .release = trii_traffic_release};

/* The entries that all kinds have. */
tri_status trii_traffic_poll(trii_host_op *op);
tri_status trii_traffic_wait(trii_host_op *op, int64_t for_ns);
void trii_traffic_abort(trii_host_op *op, const char *why);
void trii_traffic_release(trii_host_op *op);

/* To be started: messages of failures name the line that recorded it, wherever the step runs. */
trii_traffic *trii_traffic_begin(trii_host_op *op);

/* The operation whose gradient is being recorded. */
const trii_traffic *trii_traffic_differentiated(const trii_node *node);
/* The operation that gave this value. */
trii_traffic *trii_traffic_of(const trii_step *step, trii_vid out);
/* like: what every operation has, with its group. The call is whole. */
tri_status trii_traffic_record(trii_step *step, const trii_host_kind *kind,
                               const trii_traffic *like, const trii_host_call *call,
                               trii_vid *out) TRI_MUST_CHECK;

#endif
