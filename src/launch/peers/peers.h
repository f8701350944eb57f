/*
 * peers.h - whether the agents of other hosts live: connections to some of them, over which both
 * sides say so five times a second, from a thread that does nothing else. So an agent whose own
 * loop stands still (a disk that does not answer) is heard, and says for how long it does.
 *
 * Nobody is taken for dead in a hurry. Only a connection that ends without a good-bye, or is
 * refused, decides at once: the kernel over there says that no agent is left. One that is silent is
 * called a second time after half of the silence that is allowed, over a new connection, and lost
 * if nothing was heard over either when that silence is over. An agent that did not run for a while
 * itself starts all its clocks anew.
 *
 * Every agent calls the next few by rank, so each has neighbours on both sides. Who calls knows the
 * other's token from the agents' store, and says it first (peer_hello.h); with a job key both prove
 * that before. Then words follow (peer_messages.h).
 */
#ifndef TRII_LAUNCH_PEERS_H
#define TRII_LAUNCH_PEERS_H

#include "launch/rendezvous/rendezvous.h"

#define TRII_PEER_BEAT_MS 200
#define TRII_PEER_NEIGHBOURS 4

typedef struct trii_peers trii_peers;

/* From the agent's loop. */
typedef struct trii_peers_events {
    /* Once per rank and round; the round is the one that is watched. */
    void (*lost)(void *arg, const trii_rdzv_round *round, int rank, const char *why);
    /* An agent takes part that we cannot work with: it has another job key, or answers in no round.
     * To start again with it is in vain. */
    void (*refused)(void *arg, const char *why);
    /* The host of that rank will be taken away; left_ms: -1 = nobody said when. */
    void (*noticed)(void *arg, int rank, const trii_rdzv_agent *agent, int64_t left_ms);
    /* Something that people should know, and that changes nothing. */
    void (*remarked)(void *arg, const char *text);
    void *arg;
} trii_peers_events;

/* loop: the agent's; host: an address of ours where the others call, NULL = all of ours;
 * silence_ms: how long another agent may be silent; events: copied. Errors: of the job key,
 * NOT_FOUND, IO, NO_MEMORY. */
tri_status trii_peers_create(trii_loop *loop, const char *host, int64_t silence_ms,
                             const trii_peers_events *events,
                             trii_peers **peers_out) TRI_MUST_CHECK;
int trii_peers_port(const trii_peers *peers);
const char *trii_peers_token(const trii_peers *peers); /* 16 characters */
bool trii_peers_keyed(const trii_peers *peers);        /* we have a job key */
/* Watches the agents of this round; connections of earlier ones end in order. agents: copied. */
void trii_peers_round(trii_peers *peers, const trii_rdzv_round *round);
/* Tells the agents of this round that our host will be taken away, and those of later rounds that
 * have not heard of it. */
void trii_peers_notice(trii_peers *peers, int64_t left_ms);
/* Whether an agent may be dead that was not told to be lost: one is silent, or there are more than
 * we watch. */
bool trii_peers_are_doubtful(trii_peers *peers);
/* in_order: the others know that we go, and need not wonder. Waits for calls that are under way.
 * NULL allowed. */
void trii_peers_destroy(trii_peers *peers, bool in_order);

#endif
