/*
 * peer_dialer.h - connects to the agents of other hosts, each by a thread of its own: a host that
 * does not answer delays nobody, least of all the loop that sends the heartbeats.
 */
#ifndef TRII_PEER_DIALER_H
#define TRII_PEER_DIALER_H

#include "launch/rendezvous/rendezvous.h"
#include "store/handshake.h"

typedef struct trii_peer_dialer trii_peer_dialer;

typedef struct trii_peer_dial {
    trii_rdzv_agent agent; /* to connect to */
    int64_t round;
    int rank; /* its own */
    int own_rank;
    int64_t patience_ms; /* for its host to answer */
} trii_peer_dial;

typedef enum trii_peer_dial_result {
    TRII_PEER_CONNECTED,
    TRII_PEER_FOREIGN,    /* it is not an agent of this job: dialing again is pointless */
    TRII_PEER_NO_AGENT,   /* its host refuses the connection: no agent is there */
    TRII_PEER_NO_ANSWER,  /* its host accepts it, and the agent sends nothing */
    TRII_PEER_UNREACHABLE /* its host does not answer, or there is no route to it */
} trii_peer_dial_result;

/* CONNECTED: fd, the receiver's to close, over which the hello was sent; else -1, and why. */
typedef void trii_peer_dialed(void *arg, const trii_peer_dial *dial, int fd,
                              trii_peer_dial_result result, const char *why);

/* done: from the loop. key: copied. Errors: IO, NO_MEMORY. */
tri_status trii_peer_dialer_create(trii_loop *loop, const trii_job_key *key, trii_peer_dialed *done,
                                   void *arg, trii_peer_dialer **dialer_out) TRI_MUST_CHECK;
/* Errors: NO_MEMORY. Copied. */
tri_status trii_peer_dialer_start(trii_peer_dialer *dialer,
                                  const trii_peer_dial *dial) TRI_MUST_CHECK;
/* Waits for connections that are being made, a second at most, without calling back. A thread that
 * takes longer, to resolve a name, is left behind and ends by itself. NULL allowed. */
void trii_peer_dialer_destroy(trii_peer_dialer *dialer);

#endif
