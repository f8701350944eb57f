/*
 * rdzv_internal.h - the rendezvous thread's state, shared by
 *
 *   rendezvous.c     what the agent calls
 *   rdzv_thread.c    the thread: orders, and a round that is on
 *   rdzv_wait.c      what it waits for (orders, keys of a round), and its events
 *   rdzv_phase.c     which phase may follow which
 *   rdzv_static.c    the handlers (rdzv_handler.h): with given ranks,
 *   rdzv_dynamic.c   and c10d and etcd, with rdzv_join.c: how they form a round,
 *   rdzv_lead.c      ... and how one agent writes the shared state for the others
 *   rdzv_exchange.c  what the members of a round tell each other before it begins
 *   rdzv_server.c    the agents' store, and whether all agents mean the same job
 */
#ifndef TRII_RDZV_INTERNAL_H
#define TRII_RDZV_INTERNAL_H

#include <stdatomic.h>

#include <trireme/store.h>

#include "launch/rendezvous/rdzv_backend.h"
#include "launch/rendezvous/rdzv_handler.h"
#include "launch/rendezvous/rdzv_phase.h"
#include "launch/rendezvous/rendezvous.h"
#include "store/exchange.h"
#include "store/own_address.h"
#include "store/tcp_server.h"

#define TRII_RDZV_ORDERS 64

typedef enum trii_rdzv_order_kind {
    TRII_ORDER_NONE,
    TRII_ORDER_JOIN,
    TRII_ORDER_FINISH,
    TRII_ORDER_HEARD,
    TRII_ORDER_LOST,
    TRII_ORDER_LEAVE,
    TRII_ORDER_CLOSE,
    TRII_ORDER_QUIT
} trii_rdzv_order_kind;

typedef struct trii_rdzv_order {
    trii_rdzv_order_kind kind;
    int port, restarts;   /* JOIN */
    int64_t round;        /* HEARD, LOST: that which the news are about; by now it may be another */
    trii_rdzv_news news;  /* ... */
    trii_rdzv_agent gone; /* LOST */
} trii_rdzv_order;

/* For how long a node has not shown that it lives, by our own clock. Time in which we did not look
 * does not count. */
typedef struct trii_rdzv_observed {
    trii_rdzv_node node;
    int64_t beat_us, silent_ns;
    uint64_t look; /* in which it was there last */
} trii_rdzv_observed;

typedef struct trii_rdzv_event_list {
    trii_rdzv_event event;
    struct trii_rdzv_event_list *next;
} trii_rdzv_event_list;

#define TRII_RDZV_NO_ROUND (-1)

/* What the leader knows of a follower (rdzv_lead.c). */
typedef struct trii_rdzv_request {
    int64_t number;           /* of its key */
    trii_rdzv_node node;      /* no address: it was not read yet */
    int64_t left;             /* it takes part in each round after that one */
    int64_t beat;             /* a number that grows, */
    int64_t written, writing; /* ... and which of them the state has, or has if this write wins */
    bool carried, carrying; /* the state had it when we last read or wrote it, so an agent that has
                               taken it out since takes it for dead; or has it if this write wins */
    bool asked;             /* for another round, since then */
    bool dead;              /* it was taken for that: deleted, until it stays so */
    bool withdrawn;         /* it has left */
} trii_rdzv_request;

typedef struct trii_rdzv_lead {
    bool leads, follows; /* neither: all agents act on their own */
    int64_t left;        /* our last round, or TRII_RDZV_NO_ROUND */
    char text[120];      /* the leader's key at the last look */
    /* of a follower */
    int64_t own; /* the number of our request, from 1; 0 = there is none */
    int64_t beat, beat_ns;
    int n_nodes; /* in the state, by the leader's key */
    /* of the leader */
    trii_rdzv_request *requests;
    int n, room;
    int64_t n_known;    /* so many requests there were so far */
    int64_t carried_ns; /* when heartbeats were written into the state */
    bool carries;       /* ... and whether they are being written now */
} trii_rdzv_lead;

/* The leader's key. */
typedef struct trii_rdzv_led {
    bool is_new; /* since the last look */
    int64_t round;
    bool complete, closed;
    int participants, waiting, nodes;
} trii_rdzv_led;

struct trii_rendezvous {
    const trii_launch_options *options;
    trii_rdzv_setup setup;
    char id[256];
    char node_name[TRII_RDZV_ADDR_BYTES]; /* our own host, for people */
    const trii_rdzv_handler *handler;
    const trii_rdzv_time *time;
    int64_t join_ms, last_call_ms, beat_ms, dead_ms, read_ms;
    trii_rdzv_rules rules;
    int64_t exchange_ms;     /* for the members of a complete round to introduce themselves */
    trii_tcp_server *server; /* of the agents' store, in the agent's loop; NULL = not ours */
    int server_port;
    trii_thread thread;
    int event_fd;
    _Atomic trii_rdzv_phase phase; /* only the thread changes it */
    _Atomic int64_t answered_ns;   /* when the store did so last */
    atomic_int came; /* hosts of the round that is being formed; 0 = no store yet, -1 = no place */
    atomic_int met;  /* the same of one that is complete, whose members have not all introduced
                        themselves */

    trii_mutex mutex; /* guards what follows */
    trii_cond changed;
    trii_rdzv_order orders[TRII_RDZV_ORDERS];
    int n_orders;
    char waited_for[TRII_RDZV_ADDR_BYTES + 40]; /* the member that is waited for */
    trii_rdzv_event_list *events;

    /* the thread's own */
    trii_rdzv_backend *backend;
    tri_store *base;       /* the backend's keys */
    bool ours_serves;      /* ... in the store of an agent of trirun */
    trii_own_address *own; /* whether the others find the store that we serve */
    trii_rdzv_node self;
    int worker_port, restarts;
    int64_t counted_ns;       /* when `came` was counted */
    int64_t beat_ns;          /* when we last showed that we live */
    int64_t looked_ns;        /* when the shared state was last read */
    int64_t members_ns;       /* when we last looked whether the members are there */
    int64_t closed_ns;        /* when the job was first seen to be closed; 0 = not */
    int64_t call_us, call_ns; /* the last call's end that was seen last, and when first */
    trii_wire_buffer raw;     /* the shared state as it was read last, */
    trii_rdzv_state state;    /* ... and what it means */
    trii_rdzv_observed *observed;
    int n_observed, observed_room;
    int observed_next; /* where the next node of the state is likely to be */
    uint64_t n_looks;
    trii_rdzv_lead lead;
    bool redundant;        /* at the last look */
    int gone;              /* rank of an agent that is dead; -1 = none */
    trii_rdzv_round round; /* the last one */
    trii_rdzv_node *nodes; /* its members by rank; NULL before the first, and where static */
    int waited_rank;       /* of the member that is waited for */
    int round_serves;      /* rank of the agent whose store this is; -1 = unknown */
    tri_store *kv;         /* its keys */
    uint64_t jitter;
};

static inline int64_t trii_rdzv_now(const trii_rendezvous *r)
{
    return r->time->now_ns();
}

static inline int64_t trii_rdzv_deadline(const trii_rendezvous *r, int64_t timeout_ms)
{
    return trii_rdzv_now(r) + timeout_ms * TRII_NS_PER_MS;
}

/* AGAIN, of this host alone. */
static inline trii_rdzv_event trii_rdzv_taken_for_dead(void)
{
    return (trii_rdzv_event){.kind = TRII_RDZV_AGAIN,
                             .alone = true,
                             .news = {.gone = -1, .why = "this host was taken for dead"}};
}

/* The store has done what it was asked for. */
static inline void trii_rdzv_answered(trii_rendezvous *r)
{
    atomic_store(&r->answered_ns, trii_rdzv_now(r));
}

/* --- rdzv_server.c -------------------------------------------------------- */
/* Opens the store of the agents if that is our task. */
tri_status trii_rdzv_serve(trii_rendezvous *r) TRI_MUST_CHECK;
/* Whether the store's address is one of this host: only such a one can be bound. */
bool trii_rdzv_is_own_address(const char *host);
/* The option that says where the store is. */
const char *trii_rdzv_place_option(const trii_rendezvous *r);
/* Sets our name but for the address, unless that was given: then true. */
bool trii_rdzv_name_self(trii_rendezvous *r);
/* Connects to the store, and finds our address: that which was given, that by which others reach
 * the store that we serve, or that of our end of the connection to it. */
tri_status trii_rdzv_connect(trii_rendezvous *r,
                             const tri_store_tcp_options *options) TRI_MUST_CHECK;
/* The key that names the agent which serves the store. */
const char *trii_rdzv_serves_key(bool given_ranks);
/* The server of the store looks whether its address leads to it, and after a while knows whether it
 * leads to another agent of the job. */
tri_status trii_rdzv_watch_own(trii_rendezvous *r) TRI_MUST_CHECK;
/* Errors: INVALID_ARG (it does). */
tri_status trii_rdzv_check_own(const trii_rendezvous *r) TRI_MUST_CHECK;
/* What the agent that serves the store says of itself. */
void trii_rdzv_settings_text(const trii_rendezvous *r, char *text_out, size_t bytes);
/* The number of a node of trirun. */
int64_t trii_rdzv_local_id(const trii_launch_options *options, uint32_t random);
/* Whether the agent that serves the store is one of trirun (r->ours_serves), and if so was started
 * with our --nnodes. Errors: INVALID_ARG (it was not). */
tri_status trii_rdzv_agrees_with_server(trii_rendezvous *r) TRI_MUST_CHECK;
/* Whether all nodes of trirun in the state were. Errors: INVALID_ARG. */
tri_status trii_rdzv_agrees_with_all(const trii_rendezvous *r,
                                     const trii_rdzv_state *state) TRI_MUST_CHECK;

/* --- rdzv_thread.c -------------------------------------------------------- */
/* The thread. */
void trii_rdzv_main(void *arg);

/* --- rdzv_wait.c ---------------------------------------------------------- */
/* Takes a step of the table in rdzv_phase.c. */
void trii_rdzv_enter(trii_rendezvous *r, trii_rdzv_phase phase);
/* The first that waits, or the first LOST or HEARD; false: none does. */
bool trii_rdzv_next_order(trii_rendezvous *r, bool only_losses, trii_rdzv_order *order_out);
void trii_rdzv_emit(trii_rendezvous *r, const trii_rdzv_event *event);
void trii_rdzv_emit_kind(trii_rendezvous *r, trii_rdzv_event_kind kind, const char *why);
/* Waits for an order or the deadline; false: only that. */
bool trii_rdzv_pause(trii_rendezvous *r, int64_t deadline_ns);
/* ... for nine to eleven tenths of that time, each agent for another. */
bool trii_rdzv_pause_about(trii_rendezvous *r, int64_t ms);
/* An order that ends the joining is there. */
bool trii_rdzv_interrupted(trii_rendezvous *r);
/* Takes an agent that is lost out of what is shared. */
tri_status trii_rdzv_drop(trii_rendezvous *r, const trii_rdzv_order *lost) TRI_MUST_CHECK;
/* The agent that is gone by the news is not waited for in the next round. */
void trii_rdzv_take_news(trii_rendezvous *r, int64_t round, const trii_rdzv_news *news);
/* Carries out the LOST and HEARD orders that wait. */
void trii_rdzv_take_losses(trii_rendezvous *r);
/* Waits for the first n_needed of n keys of the round, and sees to orders meanwhile; then all n are
 * read, NULL for those that are not there (tri_store_free). waits: NULL, or called with the first
 * that is missing, after each look. STATE: interrupted; INPROGRESS: the round is over before it
 * began; TIMEOUT. */
tri_status trii_rdzv_read_keys(trii_rendezvous *r, const char *const *keys, int n, int n_needed,
                               int64_t deadline_ns, char **values_out,
                               void (*waits)(trii_rendezvous *r, int key)) TRI_MUST_CHECK;

/* --- rdzv_lead.c ---------------------------------------------------------- */
/* The leader: reads what its followers want, */
tri_status trii_rdzv_lead_read(trii_rendezvous *r) TRI_MUST_CHECK;
/* ... decides for each as it would itself, */
tri_status trii_rdzv_lead_decide(trii_rendezvous *r, trii_rdzv_state *s,
                                 bool *dirty) TRI_MUST_CHECK;
/* ... once that is written, remembers whose heartbeats the state has, */
void trii_rdzv_lead_written(trii_rendezvous *r);
/* ... and says what it is. */
tri_status trii_rdzv_lead_publish(trii_rendezvous *r, const trii_rdzv_state *s) TRI_MUST_CHECK;
/* A follower: wants a round after r->lead.left, */
tri_status trii_rdzv_ask(trii_rendezvous *r) TRI_MUST_CHECK;
/* ... reads what the leader has said, and if it is due shows in the same exchange that we live; how
 * often it is, */
tri_status trii_rdzv_follow(trii_rendezvous *r, trii_rdzv_led *led_out) TRI_MUST_CHECK;
bool trii_rdzv_beat_is_due(const trii_rendezvous *r);
int64_t trii_rdzv_follow_ms(const trii_rendezvous *r);
/* ... and leaves: the leader takes it out of the state. */
tri_status trii_rdzv_unfollow(trii_rendezvous *r) TRI_MUST_CHECK;

/* --- rdzv_join.c ---------------------------------------------------------- */
/* Leaves and joins; a round that is complete, or an error. STATE: interrupted by an order. */
tri_status trii_rdzv_join_dynamic(trii_rendezvous *r) TRI_MUST_CHECK;
/* Changes the shared state until it took it: removes the node unless a later round than `round` and
 * its successor is there by now, or closes. */
tri_status trii_rdzv_change(trii_rendezvous *r, const trii_rdzv_node *remove, int64_t round,
                            bool close) TRI_MUST_CHECK;
#define TRII_RDZV_ANY_ROUND (INT64_MAX - 1)
/* Reads the state, shows there that we live, and takes out the dead; the leader does its work. */
tri_status trii_rdzv_look(trii_rendezvous *r, trii_rdzv_state *state_out) TRI_MUST_CHECK;
/* The node is known to be gone: the next round does not wait for it. */
void trii_rdzv_forget(trii_rendezvous *r, const trii_rdzv_node *node);

/* --- rdzv_exchange.c ------------------------------------------------------ */
/* Completes r->round, which has its number, rank and size. */
tri_status trii_rdzv_exchange(trii_rendezvous *r) TRI_MUST_CHECK;
/* How many members have introduced themselves; missing_out: "1, 3", the ranks of the others. */
int trii_rdzv_count_came(trii_rendezvous *r, char *missing_out, size_t bytes);
/* Notes, for messages, that we wait for that rank; -1: for all. */
void trii_rdzv_wait_for(trii_rendezvous *r, int rank);
/* Our own part of it. *taken_out: another agent has done so for our rank, and we have not. */
tri_status trii_rdzv_introduce(trii_rendezvous *r, bool *taken_out) TRI_MUST_CHECK;
/* The keys of that round. */
tri_status trii_rdzv_round_store(trii_rendezvous *r, int64_t round,
                                 tri_store **kv_out) TRI_MUST_CHECK;

/* --- rdzv_dynamic.c ------------------------------------------------------- */
/* Once r->base is open: keeps the state in it. */
tri_status trii_rdzv_share_c10d(trii_rendezvous *r) TRI_MUST_CHECK;

#endif
