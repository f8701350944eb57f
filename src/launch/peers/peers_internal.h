/*
 * peers_internal.h - the state of peers.h, shared by peers.c (rounds, beginning and end),
 * peer_liveness.c (heartbeats, who lives, who is dialed), peer_links.c (connections and the
 * messages over them) and peer_events.c (the way back to the agent's loop); each calls only those
 * after it.
 *
 * All of it runs on the thread of the peers' own loop, under that loop's lock; what the agent calls
 * takes the lock.
 */
#ifndef TRII_PEERS_INTERNAL_H
#define TRII_PEERS_INTERNAL_H

#include <stdatomic.h>

#include "launch/peers/peer_dialer.h"
#include "launch/peers/peer_hello.h"
#include "launch/peers/peer_messages.h"
#include "launch/peers/peers.h"
#include "os/thread.h"

typedef struct trii_peer_link {
    trii_watch watch;
    trii_peers *peers;
    struct trii_peer_link *next;
    int64_t round;
    int rank;              /* -1: it has not identified itself */
    bool dead;             /* of a round that we have not heard of yet: it is reported then */
    trii_peer_hello hello; /* as far as it has come */
    int64_t came_ns;
    trii_peer_messages messages; /* once it has identified itself */
} trii_peer_link;

/* That a host will be preempted: the last such notice of it. */
typedef struct trii_peer_preemption {
    int number; /* 0: none */
    int64_t deadline_ns;
} trii_peer_preemption;

/* What we know of an agent of this round. */
typedef struct trii_peer_state {
    bool watched;  /* it has, had or will have a connection with us */
    bool reported; /* as lost or incompatible */
    bool left;     /* in order */
    bool reached;  /* there was a connection */
    bool dialing;
    bool host_answers; /* it accepted our last connection, and its agent sent nothing */
    int n_links;
    int64_t heard_ns;   /* when it last sent something; at first when the round began */
    int64_t retry_ns;   /* not dialed again before */
    int64_t stalled_ms; /* for how long its loop has not run */
    int64_t warn_at_ms; /* users are warned once it is that long */
    trii_peer_preemption preemption;
    char why[TRII_ERR_BYTES]; /* the last dial failed */
} trii_peer_state;

/* An agent that could not be reached, round after round. */
typedef struct trii_peer_unreachable {
    char token[TRII_PEER_TOKEN_BYTES];
    int64_t round; /* the last of them */
    int n;
} trii_peer_unreachable;

typedef struct trii_peer_event trii_peer_event;

struct trii_peers {
    trii_loop *agent_loop;
    trii_timer tick;           /* of the agent's loop */
    _Atomic int64_t ticked_ns; /* when it fired last */
    trii_watch events_watch;   /* of the agent's loop */
    int events_fd;
    trii_peer_event *queue; /* the oldest first */

    trii_loop *loop;
    trii_thread thread;
    bool has_thread;
    atomic_bool stop;
    trii_watch listener;
    bool accept_paused; /* until the next heartbeat: no descriptor was left */
    trii_timer heartbeat;
    int port;
    char token[TRII_PEER_TOKEN_BYTES];
    trii_job_key key;
    trii_peers_callbacks callbacks;
    trii_peer_dialer *dialer;
    trii_peer_link *links;
    int n_links;
    int64_t silence_ms;
    int64_t heartbeat_ns;     /* when the last was sent */
    trii_rdzv_round round;    /* number -1: none yet; changed by the agent's thread only */
    int n;                    /* agents that are watched: its group_size, or 0 */
    trii_peer_state *states;  /* by rank */
    trii_peer_preemption own; /* of this host */
    trii_peer_unreachable unreachable[TRII_PEER_NEIGHBOURS];
};

/* --- peer_liveness.c ------------------------------------------------------ */
void trii_peer_heartbeat(trii_timer *timer);
void trii_peer_dial_rank(trii_peers *p, int rank);
void trii_peer_dial_done(void *arg, const trii_peer_dial *dial, int fd,
                         trii_peer_dial_result result, const char *why);

/* --- peer_links.c --------------------------------------------------------- */
/* Takes the descriptor. rank -1: it has to identify itself. NULL: no room or memory, it is
 * closed. */
trii_peer_link *trii_peer_link_add(trii_peers *p, int fd, int rank, int64_t round);
/* reset: at once, whatever has not been taken yet, so that who still hears us learns of it. */
void trii_peer_link_drop(trii_peer_link *l, bool reset);
void trii_peer_link_send(const trii_peer_link *l, const char *messages);
/* It has identified itself, and is in our round. */
bool trii_peer_link_is_in_round(const trii_peer_link *l);
/* All notices of preemption that we know, to an agent that is new to us. */
void trii_peer_link_send_preemptions(const trii_peer_link *l);
/* The notice of that rank, to all agents that we are connected with, but the one it came from. */
void trii_peer_links_forward_preemption(trii_peers *p, const trii_peer_link *from, int rank);
void trii_peer_links_accept(trii_watch *watch, unsigned events);
/* Drops all connections with an agent of our round. */
void trii_peer_links_drop(trii_peers *p, int rank);

/* --- peer_events.c -------------------------------------------------------- */
typedef enum trii_peer_event_kind {
    TRII_PEER_LOST,
    TRII_PEER_INCOMPATIBLE,
    TRII_PEER_PREEMPTED,
    TRII_PEER_WARNING /* for people; it changes nothing */
} trii_peer_event_kind;

/* Opens and closes what the agent's loop watches. Errors: IO, NO_MEMORY. */
tri_status trii_peer_events_open(trii_peers *p) TRI_MUST_CHECK;
void trii_peer_events_close(trii_peers *p);
/* The agent's loop will call the agent back. rank: in the round that is on, or -1; left_ms: of
 * PREEMPTED. */
void trii_peer_events_post(trii_peers *p, trii_peer_event_kind kind, int rank, int64_t left_ms,
                           const char *text);

/* Posts LOST of an agent of this round, once. */
void trii_peer_lost(trii_peers *p, int rank, const char *why);

#define TRII_PEER_NAME_BYTES (TRII_RDZV_ADDR_BYTES + 40)
/* "host NAME (pid N)": its rank is another one in the next round. */
const char *trii_peer_name(const trii_rdzv_agent *agent, char text_out[TRII_PEER_NAME_BYTES]);

#endif
