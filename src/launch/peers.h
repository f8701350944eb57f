/*
 * peers.h - whether the agents of other hosts live: a connection to some of them, over which both
 * sides say so five times a second. One that breaks, or is silent for a second, is told at once.
 *
 * Every agent calls the next few by rank, so each has neighbours on both sides. Who calls knows the
 * other's token from the agents' store, and says it first (peer_hello.h); with a job key both prove
 * that before. Then bytes follow: 'h' I live, 'q' I go in order, "nRANK,NUMBER,MS;" the host of
 * that agent will be taken away in so many milliseconds (-1: nobody said when), its NUMBER-th
 * notice, which each hands on once, and says on every new connection.
 */
#ifndef TRII_LAUNCH_PEERS_H
#define TRII_LAUNCH_PEERS_H

#include "launch/rendezvous/rendezvous.h"

#define TRII_PEER_BEAT_MS 200
#define TRII_PEER_SILENCE_MS 1000
#define TRII_PEER_NEIGHBOURS 4

typedef struct trii_peers trii_peers;

/* From the loop, or from trii_peers_round. */
typedef struct trii_peers_events {
    /* Once per rank and round; the round is the one that is watched. */
    void (*lost)(void *arg, const trii_rdzv_round *round, int rank, const char *why);
    /* An agent takes part that we cannot work with: it has another job key, or answers in no round.
     * To start again with it is in vain. */
    void (*refused)(void *arg, const char *why);
    /* The host of that rank will be taken away; left_ms: -1 = nobody said when. */
    void (*noticed)(void *arg, int rank, const trii_rdzv_agent *agent, int64_t left_ms);
    void *arg;
} trii_peers_events;

/* host: an address of ours where the others call; NULL = all of ours. events: copied. Errors: of
 * the job key, NOT_FOUND, IO, NO_MEMORY. */
tri_status trii_peers_create(trii_loop *loop, const char *host, const trii_peers_events *events,
                             trii_peers **peers_out) TRI_MUST_CHECK;
int trii_peers_port(const trii_peers *peers);
const char *trii_peers_token(const trii_peers *peers); /* 16 characters */
bool trii_peers_keyed(const trii_peers *peers);        /* we have a job key */
/* Watches the agents of this round; connections of earlier ones end in order. agents: copied. */
void trii_peers_round(trii_peers *peers, const trii_rdzv_round *round);
/* Tells the agents of this round that our host will be taken away, and those of later rounds that
 * have not heard of it. */
void trii_peers_notice(trii_peers *peers, int64_t left_ms);
/* in_order: the others know that we go, and need not wonder. Waits for calls that are under way.
 * NULL allowed. */
void trii_peers_destroy(trii_peers *peers, bool in_order);

#endif
