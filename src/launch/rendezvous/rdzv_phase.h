/*
 * rdzv_phase.h - the phases of the rendezvous thread, and which may follow which. Its
 * table is walked by rdzv_phase_test.c; rdzv_thread.c and rdzv_join.c take the steps.
 */
#ifndef TRII_RDZV_PHASE_H
#define TRII_RDZV_PHASE_H

#include <stdbool.h>

typedef enum trii_rdzv_phase {
    TRII_RDZV_CONNECTING, /* to the store */
    TRII_RDZV_NO_STORE,   /* it could not be reached */
    TRII_RDZV_CONNECTED,  /* no agent has seen us there yet */
    TRII_RDZV_APPLYING,   /* joins for the first time: our settings are compared with the others' */
    TRII_RDZV_JOINING,    /* others may see us */
    TRII_RDZV_RUNNING,    /* a round is on */
    TRII_RDZV_FINISHING,  /* ... and our workers have succeeded */
    TRII_RDZV_STOPPED,    /* the round is over: we are still a member, and join or leave next */
    TRII_RDZV_JOB_ENDED,  /* ... and so is the job, and the host of the store knows that we know */
    TRII_RDZV_BROKEN,     /* joining or the store has failed: we can only leave */
    TRII_RDZV_GONE,       /* we have left */
    TRII_RDZV_DONE,       /* the thread has ended */
    TRII_RDZV_N_PHASES
} trii_rdzv_phase;

/* Whether the step is in the table; to stay is no step. */
bool trii_rdzv_phase_may(trii_rdzv_phase from, trii_rdzv_phase to);
const char *trii_rdzv_phase_name(trii_rdzv_phase phase);
/* A round is on, and news of it matter. */
bool trii_rdzv_phase_is_on(trii_rdzv_phase phase);
/* We are in the shared state, and have to show there that we live. */
bool trii_rdzv_phase_is_member(trii_rdzv_phase phase);

#endif
