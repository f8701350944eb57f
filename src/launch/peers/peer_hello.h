/*
 * peer_hello.h - the first bytes from an agent that dials another one: who it is.
 *
 * With a job key both sides prove it (store/handshake.h, for "agent"). Then 64 bytes, padded with
 * blanks: "TRA1 TOKEN ROUND RANK". The token is that of the agent that is dialed, from
 * the agents' store: who knows it can read that store. No clocks, no sockets.
 */
#ifndef TRII_PEER_HELLO_H
#define TRII_PEER_HELLO_H

#include "store/handshake.h"

#define TRII_PEER_HELLO_BYTES 64
#define TRII_PEER_TOKEN_BYTES 17
#define TRII_PEER_PURPOSE "agent"

/* The side that was dialed, as bytes come in; all zero at first. */
typedef struct trii_peer_hello {
    trii_handshake shake;
    char text[TRII_PEER_HELLO_BYTES];
    size_t got;
    int64_t round; /* once it is complete */
    int rank;
} trii_peer_hello;

void trii_peer_hello_write(const char *token, int64_t round, int rank,
                           char text_out[TRII_PEER_HELLO_BYTES]);

/**
 * Takes bytes of the dialer; those behind the hello are left alone.
 *
 *   used_out          how many were taken; written on OK and INPROGRESS
 *   answer_out        what to send back now; *answer_bytes_out 0 = nothing
 *
 * Returns OK (round and rank are known, the rank is not negative), INPROGRESS, FORMAT (close it).
 */
tri_status trii_peer_hello_feed(trii_peer_hello *hello, const trii_job_key *key, const char *token,
                                const void *data, size_t bytes, size_t *used_out,
                                unsigned char answer_out[TRII_ANSWER_BYTES],
                                size_t *answer_bytes_out) TRI_MUST_CHECK;

#endif
