/*
 * peers.h - whether the agents of other hosts live, and what they tell each other: connections to
 * some of them, over which both sides send heartbeats five times a second, from a thread that does
 * nothing else. So an agent whose own loop is blocked (a disk that does not respond) still sends
 * them, and reports for how long its loop has been blocked.
 *
 * What one agent tells (that its host will be preempted, what ends the round) each passes on over
 * all of its connections, so it reaches those that the first one has none with. Heartbeats carry in
 * the same way how long ago a worker of any host made progress.
 *
 * No agent is declared dead in a hurry. Only a connection that ends without a goodbye, or is
 * refused, decides at once: the kernel over there says that no agent is left. An agent that is
 * silent is dialed a second time after half of the silence that is allowed, and lost if nothing
 * came over either connection when that silence is over. An agent that did not run for a while
 * itself starts all its clocks again.
 *
 * Every agent dials the next few of trirun by rank, so each has neighbours on both sides. The
 * dialer knows the other's token from the agents' store, and sends it first (peer_frame.h); with a
 * job key both prove before that they have it.
 */
#ifndef TRII_LAUNCH_PEERS_H
#define TRII_LAUNCH_PEERS_H

#include "launch/rendezvous/rendezvous.h"

#define TRII_PEER_HEARTBEAT_MS 200
#define TRII_PEER_NEIGHBOURS 4

typedef struct trii_peers trii_peers;

typedef enum trii_peer_event_kind {
    TRII_PEER_NOTHING,
    TRII_PEER_WARNING,     /* something that users should know, and that changes nothing */
    TRII_PEER_PREEMPTED,   /* that host will be preempted */
    TRII_PEER_NEWS_CAME,   /* another agent has told what ends the round */
    TRII_PEER_LOST,        /* once per rank and round */
    TRII_PEER_INCOMPATIBLE /* ours cannot work with that agent: it has another job key, or answers
                              in no round. Restarting with it cannot succeed */
} trii_peer_event_kind;

typedef struct trii_peer_event {
    trii_peer_event_kind kind;
    const trii_rdzv_round *round; /* the one that is watched, until the next is */
    int rank;                     /* of the agent that it is about */
    int64_t left_ms;              /* PREEMPTED; -1 = not known when */
    trii_rdzv_news news;          /* NEWS_CAME */
    char text[TRII_ERR_BYTES];    /* of all others */
} trii_peer_event;

/* loop: the agent's; host: the own address that the others dial, NULL = all;
 * silence_ms: how long another agent may be silent. Errors: of the job key, NOT_FOUND, IO,
 * NO_MEMORY. */
tri_status trii_peers_create(trii_loop *loop, const char *host, int64_t silence_ms,
                             trii_peers **peers_out) TRI_MUST_CHECK;
/* What others must know of us: port, token and whether we have a job key. */
void trii_peers_describe(const trii_peers *peers, trii_rdzv_agent *agent_out);
/* Readable while events wait. */
int trii_peers_fd(const trii_peers *peers);
void trii_peers_next(trii_peers *peers, trii_peer_event *event_out);
/* Watches the agents of this round; connections of earlier ones end in order. agents: copied. */
void trii_peers_watch_round(trii_peers *peers, const trii_rdzv_round *round);
/* Notifies the agents of this round that our host will be preempted, and those of later rounds that
 * do not know it yet. */
void trii_peers_announce_preemption(trii_peers *peers, int64_t left_ms);
/* Tells all agents of this round, also those that enter it later. The first news of a round count,
 * and after them only that the job is over, that all have finished, or that one more agent is
 * gone: all else is dropped. */
void trii_peers_tell(trii_peers *peers, const trii_rdzv_news *news);
/* Workers of this host made progress at own_ns. Returns when those of any host did last, as far as
 * is known: news of that may take a few heartbeats, which are allowed for. An agent that never
 * calls this counts as if its workers made progress all the time. */
int64_t trii_peers_progress(trii_peers *peers, int64_t own_ns);
/* Whether all agents of this round that will have a connection with us have had it, or are lost:
 * what we have told reaches all. Changes are events. */
bool trii_peers_have_met(trii_peers *peers);
/* We are about to end: dials those that have not dialed us yet, too. If an agent
 * is stopped, its host's kernel keeps what we send. */
void trii_peers_meet(trii_peers *peers);
/* Whether an agent may be dead that has not been reported as lost: one is silent, or there are more
 * than we watch. */
bool trii_peers_have_suspect(trii_peers *peers);
/* in_order: the others are sent a goodbye, also those whose connection the loop has not come to
 * yet. Dials that are under way are left behind, and end by themselves. NULL allowed. */
void trii_peers_destroy(trii_peers *peers, bool in_order);

#endif
