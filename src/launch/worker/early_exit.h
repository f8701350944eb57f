/*
 * early_exit.h - lets workers that wait for the others in tri_init know of one that has exited and
 * will not join: in their store, below the prefix of their attempt, "ended/R" says how rank R
 * ended, then "ended" that there is such a rank.
 */
#ifndef TRII_LAUNCH_EARLY_EXIT_H
#define TRII_LAUNCH_EARLY_EXIT_H

#include "launch/worker/environment.h"
#include "launch/worker/worker.h"
#include "store/tcp_server.h"

typedef struct trii_early_exit trii_early_exit;

/* job: of this attempt, copied; store: its workers' if it is this agent's, else NULL. Where workers
 * of torchrun take part nothing is published. Errors: NO_MEMORY. */
tri_status trii_early_exit_create(const trii_launch_job *job, trii_tcp_server *store,
                                  trii_loop *loop, trii_early_exit **early_out) TRI_MUST_CHECK;
/* This worker has ended, and others still run. Never waits: a thread writes to a store on another
 * host. NULL allowed. */
void trii_early_exit_publish(trii_early_exit *early, const trii_worker *worker);
/* What has not been published by now is not needed. Before the store's end. NULL allowed. */
void trii_early_exit_destroy(trii_early_exit *early);

#endif
