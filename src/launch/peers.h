/*
 * peers.h - whether the agents of other hosts live: a connection to some of them, over which both
 * sides say so five times a second. One that breaks, or is silent for a second, is told at once.
 *
 * Who connects knows the listener's token from the agents' store, and says it first:
 * "TRA1 TOKEN ROUND RANK", padded with blanks to 64 bytes. Then bytes follow: 'h' I live, 'q' I go
 * in order. Every agent connects to the next few by rank, so each has neighbours on both sides.
 */
#ifndef TRII_LAUNCH_PEERS_H
#define TRII_LAUNCH_PEERS_H

#include "launch/rendezvous/rendezvous.h"

#define TRII_PEER_BEAT_MS 200
#define TRII_PEER_SILENCE_MS 1000
#define TRII_PEER_NEIGHBOURS 4

typedef struct trii_peers trii_peers;

/* lost(arg, rank, why): once per rank and round; from the loop. Errors: IO, NO_MEMORY. */
tri_status trii_peers_create(trii_loop *loop, void (*lost)(void *arg, int rank, const char *why),
                             void *arg, trii_peers **peers_out) TRI_MUST_CHECK;
int trii_peers_port(const trii_peers *peers);
const char *trii_peers_token(const trii_peers *peers); /* 16 characters */
/* Watches the agents of this round; connections of earlier ones end in order. agents: copied. */
void trii_peers_round(trii_peers *peers, const trii_rdzv_round *round);
/* Says good-bye to all. NULL allowed. */
void trii_peers_destroy(trii_peers *peers);

#endif
