/*
 * peers.h - whether the agents of other hosts live: connections to some of them, over which both
 * sides send heartbeats five times a second, from a thread that does nothing else. So an agent
 * whose own loop is blocked (a disk that does not respond) still sends them, and reports for how
 * long its loop has been blocked.
 *
 * Nobody is declared dead in a hurry. Only a connection that ends without a goodbye, or is refused,
 * decides at once: the kernel over there says that no agent is left. An agent that is silent is
 * dialed a second time after half of the silence that is allowed, and lost if nothing came over
 * either connection when that silence is over. An agent that did not run for a while itself starts
 * all its clocks anew.
 *
 * Every agent dials the next few by rank, so each has neighbours on both sides. The dialer knows
 * the other's token from the agents' store, and sends it first (peer_hello.h); with a job key both
 * prove before that they have it. Then messages follow (peer_messages.h).
 */
#ifndef TRII_LAUNCH_PEERS_H
#define TRII_LAUNCH_PEERS_H

#include "launch/rendezvous/rendezvous.h"

#define TRII_PEER_HEARTBEAT_MS 200
#define TRII_PEER_NEIGHBOURS 4

typedef struct trii_peers trii_peers;

/* Called from the agent's loop; required. */
typedef struct trii_peers_callbacks {
    /* Once per rank and round; the round is the one that is watched. */
    void (*lost)(void *arg, const trii_rdzv_round *round, int rank, const char *why);
    /* An agent takes part that ours cannot work with: it has another job key, or answers in no
     * round. Restarting with it cannot succeed. */
    void (*incompatible)(void *arg, const char *why);
    /* The host of that rank will be preempted; left_ms: -1 = nobody said when. */
    void (*preempted)(void *arg, int rank, const trii_rdzv_agent *agent, int64_t left_ms);
    /* Something that users should know, and that changes nothing. */
    void (*warning)(void *arg, const char *text);
    void *arg;
} trii_peers_callbacks;

/* loop: the agent's; host: an address of ours where the others dial, NULL = all of ours;
 * silence_ms: how long another agent may be silent; callbacks: copied. Errors: of the job key,
 * NOT_FOUND, IO, NO_MEMORY. */
tri_status trii_peers_create(trii_loop *loop, const char *host, int64_t silence_ms,
                             const trii_peers_callbacks *callbacks,
                             trii_peers **peers_out) TRI_MUST_CHECK;
int trii_peers_port(const trii_peers *peers);
const char *trii_peers_token(const trii_peers *peers); /* 16 characters */
bool trii_peers_keyed(const trii_peers *peers);        /* we have a job key */
/* Watches the agents of this round; connections of earlier ones end in order. agents: copied. */
void trii_peers_watch_round(trii_peers *peers, const trii_rdzv_round *round);
/* Notifies the agents of this round that our host will be preempted, and those of later rounds that
 * do not know it yet. */
void trii_peers_announce_preemption(trii_peers *peers, int64_t left_ms);
/* Whether an agent may be dead that has not been reported as lost: one is silent, or there are more
 * than we watch. */
bool trii_peers_have_suspect(trii_peers *peers);
/* in_order: the others are sent a goodbye. Waits for connections that are being made.
 * NULL allowed. */
void trii_peers_destroy(trii_peers *peers, bool in_order);

#endif
