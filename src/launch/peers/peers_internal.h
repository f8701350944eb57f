/*
 * peers_internal.h - the state of peers.h, shared by peers.c (rounds, beginning and end),
 * peer_links.c (connections and what is said over them), peer_verdicts.c (who lives, who is called)
 * and peer_news.c (what the agent is told).
 *
 * All of it runs on the thread of the peers' own loop, under that loop's lock; what the agent calls
 * takes the lock.
 */
#ifndef TRII_PEERS_INTERNAL_H
#define TRII_PEERS_INTERNAL_H

#include <stdatomic.h>

#include "launch/peers/peer_calls.h"
#include "launch/peers/peer_hello.h"
#include "launch/peers/peer_messages.h"
#include "launch/peers/peers.h"
#include "os/thread.h"

typedef struct trii_peer_link {
    trii_watch watch;
    trii_peers *peers;
    struct trii_peer_link *next;
    int64_t round;
    int rank;              /* -1: it has not said who it is */
    bool dead;             /* of a round that we have not heard of yet: it is told then */
    trii_peer_hello hello; /* of a stranger */
    int64_t came_ns;
    trii_peer_messages words; /* of one that is none any more */
} trii_peer_link;

/* That a host will be taken away: its last one. */
typedef struct trii_peer_notice {
    int number; /* 0: none */
    int64_t deadline_ns;
} trii_peer_notice;

/* What we know of an agent of this round. */
typedef struct trii_peer_seat {
    bool watched; /* it has, had or will have a connection with us */
    bool told;    /* that it is lost */
    bool bye;     /* it went in order */
    bool reached; /* there was a connection */
    bool calling;
    bool host_answers; /* it took our last call, and said nothing */
    int n_links;
    int64_t heard_ns;              /* when it spoke last; at first when the round began */
    int64_t again_ns;              /* not called before */
    int64_t held_up_ms, remark_ms; /* for how long its loop stands still; when that is told */
    trii_peer_notice notice;
    char why[TRII_ERR_BYTES]; /* the last call was in vain */
} trii_peer_seat;

/* An agent that was called in vain, round after round. */
typedef struct trii_peer_unreached {
    char token[TRII_PEER_TOKEN_BYTES];
    int64_t round; /* the last in which it was called in vain */
    int n;
} trii_peer_unreached;

typedef struct trii_peer_news trii_peer_news;

struct trii_peers {
    trii_loop *agent_loop;
    trii_timer tick;           /* of the agent's loop */
    _Atomic int64_t ticked_ns; /* when it fired last */
    trii_watch news_watch;     /* of the agent's loop */
    int news_fd;
    trii_peer_news *news; /* the oldest first */

    trii_loop *loop;
    trii_thread thread;
    bool has_thread;
    atomic_bool stop;
    trii_watch listener;
    bool deaf; /* no descriptor was left for who calls: not asked until the next beat */
    trii_timer beat;
    int port;
    char token[TRII_PEER_TOKEN_BYTES];
    trii_job_key key;
    trii_peers_events events;
    trii_peer_calls *calls;
    trii_peer_link *links;
    int n_links;
    int64_t silence_ms;
    int64_t beat_ns;       /* of the last beat */
    trii_rdzv_round round; /* number -1: none yet; changed by the agent's thread only */
    int n;                 /* agents that are watched: its group_size, or 0 */
    trii_peer_seat *seats; /* by rank */
    trii_peer_notice own;
    trii_peer_unreached unreached[TRII_PEER_NEIGHBOURS];
};

/* --- peer_links.c --- */
/* Takes the descriptor. rank -1: a stranger. NULL: no room or memory, it is closed. */
trii_peer_link *trii_peer_link_add(trii_peers *p, int fd, int rank, int64_t round);
/* reset: at once, whatever has not been taken yet, so that who still hears us learns of it. */
void trii_peer_link_drop(trii_peer_link *l, bool reset);
void trii_peer_link_say(const trii_peer_link *l, const char *words);
/* It has said who it is, and that it is in our round. */
bool trii_peer_link_is_of_round(const trii_peer_link *l);
/* What we know of the hosts, to who is new to us. */
void trii_peer_link_say_notices(const trii_peer_link *l);
/* To all agents that we have a connection with, but the one that told us. */
void trii_peer_links_spread(trii_peers *p, const trii_peer_link *from, int rank);
void trii_peer_links_accept(trii_watch *watch, unsigned events);
/* Drops all connections with an agent of our round. */
void trii_peer_links_drop(trii_peers *p, int rank);

/* --- peer_verdicts.c --- */
void trii_peer_beat(trii_timer *timer);
void trii_peer_call_rank(trii_peers *p, int rank);
void trii_peer_answered(void *arg, const trii_peer_call *call, int fd, trii_peer_answer answer,
                        const char *why);
void trii_peer_lost(trii_peers *p, int rank, const char *why);

/* --- peer_news.c --- */
typedef enum trii_peer_news_kind {
    TRII_PEER_LOST,
    TRII_PEER_REFUSED,
    TRII_PEER_NOTICED,
    TRII_PEER_REMARKED
} trii_peer_news_kind;

/* Opens and closes what the agent's loop watches. Errors: IO, NO_MEMORY. */
tri_status trii_peer_news_open(trii_peers *p) TRI_MUST_CHECK;
void trii_peer_news_close(trii_peers *p);
/* The agent's loop will tell it. rank: in the round that is on, or -1; left_ms: of NOTICED. */
void trii_peer_news_post(trii_peers *p, trii_peer_news_kind kind, int rank, int64_t left_ms,
                         const char *text);

#define TRII_PEER_NAME_BYTES (TRII_RDZV_ADDR_BYTES + 40)
/* "host NAME (pid N)": its rank is another one in the next round. */
const char *trii_peer_name(const trii_rdzv_agent *agent, char text_out[TRII_PEER_NAME_BYTES]);

#endif
