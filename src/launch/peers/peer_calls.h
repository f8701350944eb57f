/*
 * peer_calls.h - calls to the agents of other hosts, each by a thread of its own: a host that does
 * not answer delays nobody, least of all the agent's loop, in which others want to hear from us.
 */
#ifndef TRII_PEER_CALLS_H
#define TRII_PEER_CALLS_H

#include "launch/rendezvous/rendezvous.h"
#include "store/handshake.h"

typedef struct trii_peer_calls trii_peer_calls;

typedef struct trii_peer_call {
    trii_rdzv_agent agent; /* whom we call */
    int64_t round;
    int rank;            /* its own */
    int caller_rank;     /* ours */
    int64_t patience_ms; /* for its host to answer */
} trii_peer_call;

typedef enum trii_peer_answer {
    TRII_PEER_CONNECTED,
    TRII_PEER_STRANGER, /* it is not one of ours: another call is in vain */
    TRII_PEER_NOBODY,   /* its host refuses: no agent is there */
    TRII_PEER_MUTE,     /* its host answers, and it says nothing */
    TRII_PEER_SILENT    /* nobody answers, or there is no way to it */
} trii_peer_answer;

/* What came of it. CONNECTED: fd, the caller's to close, over which all was said; else -1, and
 * why. */
typedef void trii_peer_call_answered(void *arg, const trii_peer_call *call, int fd,
                                     trii_peer_answer answer, const char *why);

/* answered: from the loop. key: copied. Errors: IO, NO_MEMORY. */
tri_status trii_peer_calls_create(trii_loop *loop, const trii_job_key *key,
                                  trii_peer_call_answered *answered, void *arg,
                                  trii_peer_calls **calls_out) TRI_MUST_CHECK;
/* Errors: NO_MEMORY. Copied. */
tri_status trii_peer_calls_start(trii_peer_calls *calls, const trii_peer_call *call) TRI_MUST_CHECK;
/* Waits for calls that are under way, some seconds at most; nobody is told of them. One that takes
 * longer, to resolve a name, is left behind and ends by itself. NULL allowed. */
void trii_peer_calls_destroy(trii_peer_calls *calls);

#endif
