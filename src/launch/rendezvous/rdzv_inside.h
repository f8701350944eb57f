/*
 * rdzv_inside.h - the rendezvous thread's state, shared by rendezvous.c (the thread, a round
 * that is on), rdzv_setup.c (beginning and end), rdzv_join.c (how a round is formed), rdzv_static.c
 * (the same where ranks are given) and rdzv_exchange.c (what its members tell each other).
 */
#ifndef TRII_RDZV_INSIDE_H
#define TRII_RDZV_INSIDE_H

#include <stdatomic.h>

#include <trireme/store.h>

#include "launch/rendezvous/rdzv_backend.h"
#include "launch/rendezvous/rendezvous.h"
#include "os/thread.h"
#include "store/tcp_server.h"

#define TRII_RDZV_ORDERS 64
#define TRII_RDZV_MAX_WATCHED 256

typedef enum trii_rdzv_order_kind {
    TRII_ORDER_NONE,
    TRII_ORDER_JOIN,
    TRII_ORDER_FINISH,
    TRII_ORDER_TELL,
    TRII_ORDER_LOST,
    TRII_ORDER_LEAVE,
    TRII_ORDER_CLOSE,
    TRII_ORDER_QUIT
} trii_rdzv_order_kind;

typedef struct trii_rdzv_order {
    trii_rdzv_order_kind kind;
    int number;   /* port, rank */
    int restarts; /* JOIN */
    bool over, counts;
    char why[TRII_ERR_BYTES / 2];
} trii_rdzv_order;

/* When a node was last seen to be alive, by our own clock: those of hosts differ. */
typedef struct trii_rdzv_watched {
    trii_rdzv_node node;
    int64_t beat_us, seen_ns;
} trii_rdzv_watched;

typedef struct trii_rdzv_event_list {
    trii_rdzv_event event;
    struct trii_rdzv_event_list *next;
} trii_rdzv_event_list;

/* What one agent tells all others of a round; the first of a round counts. In the store as
 * "OVER COUNTS GONE WHY". */
typedef struct trii_rdzv_news {
    bool over, counts;
    int gone; /* rank of an agent that is not there any more, or -1 */
    char why[TRII_ERR_BYTES / 2];
} trii_rdzv_news;

struct trii_rendezvous {
    const trii_launch_options *options;
    trii_rdzv_setup setup;
    char id[256];
    char node_name[TRII_RDZV_ADDR_BYTES]; /* our own host, for people */
    bool is_static, serves;
    int64_t join_ms, last_call_ms, close_ms, beat_ms, dead_ms, read_ms;
    trii_tcp_server *server; /* of the agents' store, in the agent's loop; NULL = not ours */
    int server_port;
    trii_thread thread;
    int event_fd;
    atomic_int came; /* hosts of the round that is being formed; 0 = no store yet, -1 = no place */

    trii_mutex mutex; /* guards what follows */
    trii_cond changed;
    trii_rdzv_order orders[TRII_RDZV_ORDERS];
    int n_orders;
    bool poked; /* somebody told this round something */
    bool done;
    bool waking, waker_quit; /* the second thread waits; it shall end */
    trii_rdzv_event_list *events;

    /* the thread's own */
    trii_rdzv_backend *backend;
    tri_store *base; /* the backend's keys */
    trii_rdzv_node self;
    int worker_port, restarts;
    int64_t counted_ns; /* when `came` was counted */
    int64_t beat_ns;    /* when we last showed that we live */
    trii_rdzv_watched watched[TRII_RDZV_MAX_WATCHED];
    int n_watched;
    bool on, finishing;    /* a round is on; our workers have succeeded */
    bool knows_end;        /* the others were told that we know how the round ended */
    trii_rdzv_round round; /* the last one */
    trii_rdzv_node *nodes; /* its members by rank; NULL before the first, and where static */
    int round_serves;      /* rank of the agent whose store this is; -1 = unknown */
    tri_store *kv;         /* its keys */
    trii_thread waker;     /* waits for the key that pokes us */
    tri_store *waker_kv;
    char waker_key[64];
};

/* --- rdzv_setup.c --- */
/* Connects to the store, on the thread. */
tri_status trii_rdzv_begin(trii_rendezvous *r) TRI_MUST_CHECK;

/* --- rendezvous.c --- */
/* The thread. */
void trii_rdzv_main(void *arg);
/* The user is told. */
void trii_rdzv_note(trii_rendezvous *r, const char *text);
/* Waits until something is ordered or told, or the deadline; false: neither. */
bool trii_rdzv_pause(trii_rendezvous *r, int64_t deadline_ns);
/* An order that ends the joining is there. */
bool trii_rdzv_interrupted(trii_rendezvous *r);
/* LOST orders that wait, carried out. */
void trii_rdzv_bury(trii_rendezvous *r);
/* Waits for keys of the round, and sees to orders meanwhile. STATE: interrupted; TIMEOUT. */
tri_status trii_rdzv_wait_keys(trii_rendezvous *r, const char *const *keys, int n,
                               int64_t deadline_ns) TRI_MUST_CHECK;
/* Tells all of ours in round `kv` something. */
void trii_rdzv_broadcast(trii_rendezvous *r, tri_store *kv, int64_t number, int n,
                         const trii_rdzv_news *news);
int64_t trii_rdzv_wall_us(void);
/* Ends the second thread's wait for a key of the round. */
void trii_rdzv_stop_waker(trii_rendezvous *r);

/* --- rdzv_join.c --- */
/* Leaves and joins; a round that is complete, or an error. STATE: interrupted by an order. */
tri_status trii_rdzv_join_dynamic(trii_rendezvous *r) TRI_MUST_CHECK;
/* Changes the shared state until it took it: remove the node, or close, and show that we live. */
tri_status trii_rdzv_change(trii_rendezvous *r, const trii_rdzv_node *remove,
                            bool close) TRI_MUST_CHECK;
/* A look at the state while a round is on: keeps us alive there, buries the dead. */
tri_status trii_rdzv_look(trii_rendezvous *r, trii_rdzv_state *state_out) TRI_MUST_CHECK;
/* The node is known to be gone: no round waits for it. */
void trii_rdzv_forget(trii_rendezvous *r, const trii_rdzv_node *node);
tri_status trii_rdzv_round_store(trii_rendezvous *r, int64_t round,
                                 tri_store **kv_out) TRI_MUST_CHECK;

/* --- rdzv_static.c --- */
tri_status trii_rdzv_join_static(trii_rendezvous *r) TRI_MUST_CHECK;

/* --- rdzv_exchange.c --- */
/* r->round with number, rank and size; fills in the rest, and connects nobody. */
tri_status trii_rdzv_exchange(trii_rendezvous *r) TRI_MUST_CHECK;
/* How many hosts have said who they are. missing_out: the first who has not, or -1. */
int trii_rdzv_count_came(trii_rendezvous *r, int *missing_out);
/* Our own part of it. */
tri_status trii_rdzv_introduce(trii_rendezvous *r) TRI_MUST_CHECK;

#endif
