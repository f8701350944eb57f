/*
 * peers_internal.h - the state of peers.h, shared by peers.c (rounds, events, beginning and end),
 * peer_liveness.c (heartbeats, which agents live and which are dialed) and peer_links.c
 * (connections and what goes over them); each calls only those after it. peer_links.c notes what
 * happens to connections, peer_liveness.c judges it.
 *
 * All of it runs on the thread of the peers' own loop, under that loop's lock; what the agent
 * calls, and the threads that dial, take the lock.
 */
#ifndef TRII_PEERS_INTERNAL_H
#define TRII_PEERS_INTERNAL_H

#include <stdatomic.h>

#include "launch/peers/peer_frame.h"
#include "launch/peers/peers.h"
#include "os/thread.h"

#define TRII_PEER_READ_BYTES 256 /* from a connection at a time */

typedef struct trii_peer_link {
    trii_watch watch;
    trii_peers *peers;
    struct trii_peer_link *next;
    int64_t came_ns;
    int rank;      /* -1: it has not identified itself */
    int64_t round; /* may be one that we have not heard of yet */
    trii_peer_reader in;
    char early[TRII_PEER_READ_BYTES]; /* of such a round: not looked at yet */
    size_t early_bytes;
    bool muted; /* until then */
    char out[sizeof(trii_peer_frame) + TRII_PEER_TEXT_BYTES];
    size_t out_bytes;
    size_t unsent; /* last bytes of `out` that the connection had no room for */
} trii_peer_link;

/* News of this round, in the order in which they came. */
typedef struct trii_peer_item {
    trii_rdzv_news news;
    bool reported; /* to our agent; also if it was told by it */
    struct trii_peer_item *next;
} trii_peer_item;

/* That a host will be preempted: the last such notice of it. */
typedef struct trii_peer_preemption {
    int number; /* 0: none */
    int64_t deadline_ns;
    bool reported; /* to our agent; also if it is its own */
} trii_peer_preemption;

/* When workers of a host made progress. */
typedef struct trii_peer_progress {
    int rank;          /* of its agent */
    int64_t theirs_ns; /* by the clock of that host */
    int64_t at_ns;     /* by ours */
} trii_peer_progress;

typedef enum trii_peer_dial_result {
    TRII_PEER_NOT_DIALED,
    TRII_PEER_CONNECTED,
    TRII_PEER_FOREIGN,    /* it is not an agent of this job: dialing again is pointless */
    TRII_PEER_NO_AGENT,   /* its host refuses the connection: no agent is there */
    TRII_PEER_NO_ANSWER,  /* its host accepts it, and the agent sends nothing */
    TRII_PEER_UNREACHABLE /* its host does not answer, or there is no route to it */
} trii_peer_dial_result;

/* What we know of an agent of this round. */
typedef struct trii_peer_state {
    bool watched; /* it has, had or will have a connection with us */
    bool left;    /* in order */
    bool reached; /* there was a connection */
    bool dialing;
    trii_peer_dial_result dialed; /* how the last dial ended */
    char why[TRII_ERR_BYTES];     /* ... if it failed */
    int n_links;
    int64_t heard_ns;   /* when it last sent something; at first when the round began */
    int64_t retry_ns;   /* not dialed again before */
    int64_t stalled_ms; /* for how long its loop has not run */
    int64_t warned_ms;  /* ... when users were warned last */
    trii_peer_preemption preemption;
    int64_t progress_ns; /* by its clock: its last progress that we have heard of */

    trii_peer_event_kind judgement;  /* NOTHING, LOST or INCOMPATIBLE */
    trii_peer_event_kind unreported; /* waits for the agent, since then: */
    int64_t event_ns;
    char text[TRII_ERR_BYTES];
} trii_peer_state;

/* An agent that could not be reached, round after round. */
typedef struct trii_peer_unreachable {
    char token[TRII_PEER_TOKEN_BYTES + 1];
    int n;
} trii_peer_unreachable;

struct trii_peers {
    atomic_int n_users; /* the agent, and each thread that dials; the last one frees all */
    trii_loop *agent_loop;
    trii_timer tick;           /* of the agent's loop */
    _Atomic int64_t ticked_ns; /* when it fired last */
    int events_fd;

    trii_loop *loop;
    trii_thread thread;
    bool has_thread;
    atomic_bool closed;
    trii_watch listener;
    bool accept_paused; /* until the next heartbeat: no descriptor was left */
    trii_timer heartbeat;
    int port;
    char token[TRII_PEER_TOKEN_BYTES + 1];
    trii_job_key key;
    trii_peer_link *links;
    int n_links;
    int64_t silence_ms;
    int64_t heartbeat_ns;     /* when the last was sent */
    trii_rdzv_round round;    /* number -1: none yet; changed by the agent's thread only */
    int n;                    /* agents that are watched: its group_size, or 0 */
    trii_peer_state *states;  /* by rank */
    trii_peer_preemption own; /* of this host */
    trii_peer_item *news;
    _Atomic int64_t progress_ns; /* when workers of this host made progress last; 0 = not watched */
    trii_peer_progress others;   /* the last of any other host in this round */
    trii_peer_unreachable unreachable[TRII_PEER_NEIGHBOURS];
    int n_unreachable; /* that there have been; the oldest entry makes room */
};

/* --- peer_liveness.c ------------------------------------------------------ */
void trii_peer_heartbeat(trii_timer *timer);

/* --- peer_links.c --------------------------------------------------------- */
/* No link is left. */
void trii_peers_unref(trii_peers *p);
/* Connects by a thread of its own; what becomes of it will stand in the agent's state. */
void trii_peer_dial(trii_peers *p, int rank, int64_t patience_ms);
/* reset: at once, whatever has not been taken yet, so that an agent that still hears us learns of
 * it. */
void trii_peer_link_drop(trii_peer_link *l, bool reset);
void trii_peer_link_send(trii_peer_link *l, const trii_peer_frame *frame);
/* Adds it to p->news and sends it over all connections of this round but `from`, unless it is
 * nothing new: false. own: the agent knows it. */
bool trii_peer_links_spread(trii_peers *p, const trii_peer_link *from, const trii_rdzv_news *news,
                            bool own);
/* If it is of the round that is watched: its agent is one that we reach, and gets all news and
 * notices of preemption that we know. */
void trii_peer_link_enter_round(trii_peer_link *l);
/* The notice of that rank, to all agents that we are connected with, but the one it came from. */
void trii_peer_links_forward_preemption(trii_peers *p, const trii_peer_link *from, int rank);
void trii_peer_links_accept(trii_watch *watch, unsigned events);
/* Takes in all that was sent to us and that the loop has not come to yet. */
void trii_peer_links_hear(trii_peers *p);

#endif
