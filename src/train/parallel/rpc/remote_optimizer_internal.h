/*
 * remote_optimizer_internal.h - what remote_optimizer.c and remote_optimizer_ask.c share.
 */
#ifndef TRII_REMOTE_OPTIMIZER_INTERNAL_H
#define TRII_REMOTE_OPTIMIZER_INTERNAL_H

#include "train/optim/optimizer.h"
#include "train/parallel/rpc/account.h"

#define TRII_REMOTE_LINE 400

/* A listed module, whose owner is asked. */
typedef struct trii_remote_owner {
    trii_remote *remote; /* a reference */
    tri_rpc_ref *session;
    tri_rpc_call *call;
    tri_status status; /* of the last question; INPROGRESS: not asked */
    char line[TRII_REMOTE_LINE];
    trii_remote_updated reply;
} trii_remote_owner;

struct tri_remote_optimizer {
    tri_optimizer *own; /* borrowed; NULL */
    bool own_done;      /* it has stepped in an earlier attempt at this step */
    trii_remote_owner *owners;
    int n;
    trii_remote_steps *steps;
    tri_remote_optimizer_options options;
    bool has_lr;
    double lr, norm;
    trii_account_request *request; /* room for a message */
    trii_account_member *members;  /* [size][n], with options.average: what each rank has added */
    char *standings;               /* remote_optimizer_group.c's */
    int rank, size;                /* in the group; 0 and 1 without */
    tri_status status;             /* of its making */
    char *why;
};

/* What the owners are asked, all at the same time; waits for their answers. factor: of COMMIT. OK,
 * or the first failure, with its line. */
tri_status trii_remote_ask(tri_remote_optimizer *optimizer, trii_remote_kind kind,
                           double factor) TRI_MUST_CHECK;
/* Tells those that are there to drop the step; waits for nothing. Keeps the error line. */
void trii_remote_tell_drop(tri_remote_optimizer *optimizer);
/* The key of the step, and of the trainer. */
void trii_remote_key_now(const tri_remote_optimizer *optimizer, trii_remote_key *key_out);

/* remote_optimizer_group.c, for options.average; without it they do nothing. */
tri_status trii_remote_group_join(tri_remote_optimizer *optimizer) TRI_MUST_CHECK;
void trii_remote_group_leave(tri_remote_optimizer *optimizer);
/* Fails if `status` is a failure on one of the ranks: here that with its own line, elsewhere with
 * that of the first such rank. squares: rank 0's counts. */
tri_status trii_remote_agree(tri_remote_optimizer *optimizer, tri_status status,
                             double *squares_io) TRI_MUST_CHECK;
/* The same after the run; then the members of all ranks are known. samples: of this one. */
tri_status trii_remote_agree_first(tri_remote_optimizer *optimizer, tri_status status,
                                   int64_t samples) TRI_MUST_CHECK;

#endif
