/*
 * rpc_internal.h - the inside of a worker, shared by the files of this room.
 *
 * One lock guards all of a worker but what says otherwise; no code of the user runs under it
 * (rpc_unlock runs what has been put aside for that). It comes after the loop's lock: under it no
 * function of os/loop.h is called, except from the loop's own callbacks.
 *
 * A ring, or the socket of tcp, is read by the control thread when it is woken, or by a thread that
 * waits for a call, which reads that of the worker that it waits for; `reading` of a peer is taken
 * by one at a time. A ring without a reader has its `in->sleep` set, so that the control thread is
 * woken, or the thread in tri_rpc_join if that looks after it (`is_watched`).
 */
#ifndef TRII_RPC_INTERNAL_H
#define TRII_RPC_INTERNAL_H

#include <stdatomic.h>

#include "base/site.h"
#include "os/clock.h"
#include "os/loop.h"
#include "os/shmem.h"
#include "os/thread.h"
#include "os/unforked.h"
#include "rpc/rpc_record.h"
#include "rpc/rpc_ring.h"
#include "rpc/rpc_spin.h"
#include "store/handshake.h"

#define RPC_MAX_DEFERRED 65536 /* calls that wait for a promise, in a worker */
#define RPC_MAX_FUNCTIONS 4096 /* that a peer may define */
#define RPC_MAX_ARENAS 256
#define RPC_TOKEN 16
#define RPC_TEXT 512
#define RPC_ERROR 1024 /* of a call's line */

typedef struct rpc_peer rpc_peer;
typedef struct rpc_block rpc_block;
typedef struct rpc_waiter rpc_waiter;
typedef struct rpc_address rpc_address;

/* --- objects and what came ------------------------------------------------ */

typedef struct rpc_object {
    struct rpc_object *after; /* released: waits for rpc_unlock */
    uint64_t id;
    const tri_rpc_object *type;
    void *object;
    char *name;             /* NULL = none */
    long users;             /* references here, holds of peers, requests, its name */
    uint64_t chain;         /* of the request that runs, if it is serial */
    int depth;              /* so many of that chain run */
    tri_rpc_request *queue; /* of other chains */
    tri_rpc_request **queue_end;
} rpc_object;

/* A message that came, and what it lies in. */
typedef struct rpc_received {
    tri_rpc_message message;
    rpc_peer *peer; /* whose arenas it lies in, and which it keeps; NULL = none */
    void *body;     /* owned; NULL = `small` */
    void *lists;    /* owned; NULL = the few */
    tri_rpc_part few_parts[2];
    tri_rpc_ref *few_refs[2];
    TRII_ALIGNED(64) unsigned char small[192];
} rpc_received;

/* A message to send: a whole frame whose references are written when it goes. */
typedef struct rpc_packet {
    unsigned char *frame; /* room, or owned */
    size_t bytes;
    size_t weight; /* with the bytes of parts that lie elsewhere: what it takes of the window */
    tri_rpc_ref **refs; /* owned, each a user; NULL = none */
    rpc_block **blocks; /* owned, each a user; NULL = none */
    rpc_peer *to;       /* while it is packed: who is woken before it is sent; NULL = nobody */
    int n_refs, n_blocks;
    TRII_ALIGNED(64) unsigned char room[320];
} rpc_packet;

/* --- references ----------------------------------------------------------- */

struct tri_rpc_ref {
    tri_rpc *rpc;      /* used */
    rpc_peer *peer;    /* used; NULL: own, or a promise */
    rpc_object *local; /* used; NULL: a peer's, or this worker */
    uint64_t object;
    int users;
    char owner[RPC_NAME];
    uint64_t holds;      /* that came with it, and go with it */
    char *name;          /* it was found by; NULL: it was not */
    tri_rpc_call *maker; /* a promise: of this call, used; NULL: there, or failed */
    tri_status status;   /* of a promise that failed */
    char *error;         /* and its line */
    bool told;           /* somebody has seen the error */
    bool revives;        /* a job looks for the next worker of the name */
    tri_rpc_call *waiting, **waiting_end; /* calls that wait for either */
    tri_rpc_request *replies;             /* the same */
};

/* What a peer holds of this worker. The count may pass through 0 and below: a DROP may overtake a
 * HOLD. */
typedef struct rpc_hold {
    struct rpc_hold *next;
    rpc_object *object; /* used while count > 0 */
    uint64_t id;
    int64_t count;
} rpc_hold;

/* --- peers ---------------------------------------------------------------- */

typedef enum rpc_peer_state {
    RPC_PEER_KNOWN, /* no connection yet */
    RPC_PEER_CONNECTING,
    RPC_PEER_UP,
    RPC_PEER_LOST
} rpc_peer_state;

typedef struct rpc_unsent {
    struct rpc_unsent *next;
    size_t bytes, sent;
    uint64_t call; /* of a request; 0 = none */
    unsigned char data[];
} rpc_unsent;

/* Parts of a reply that the peer reads. */
typedef struct rpc_kept {
    struct rpc_kept *next;
    uint64_t call;
    rpc_block **blocks;
    int n;
} rpc_kept;

struct rpc_peer {
    rpc_peer *next;
    tri_rpc *rpc;
    char name[RPC_NAME];
    uint64_t incarnation;
    char where[96];   /* "host b, pid 411" */
    char record[640]; /* in the store; "" = not read */
    rpc_peer_state state;
    bool mirror; /* the other end of a connection with ourselves */
    bool leaving, left, joined, said_bye;
    uint32_t ended; /* of its hello */
    int users;
    char why[RPC_TEXT]; /* it is lost */

    int fd;
    bool is_unix;
    bool is_remote; /* on another host */
    int64_t unacked_since_ns;
    trii_watch watch;
    trii_unforked unforked;
    bool closed;      /* fd is, or there was none */
    bool is_promised; /* a job connects it */
    bool is_member;   /* of a closed set, and not met yet */
    bool is_early;    /* used until the closed set has met */
    bool hung;        /* the connection has ended: the control thread reads the rest */
    rpc_unsent *out_first, **out_end;
    atomic_bool backlog; /* out_first != NULL */
    bool reading;        /* somebody reads; nobody else does */
    bool is_watched;     /* by the thread in tri_rpc_join */
    bool is_polled;      /* tcp: by a thread that waits, and not by the loop */
    int poke_fd;         /* tcp: wakes that thread; -1 = there has been none */
    unsigned events;     /* tcp: what the loop tells of */
    int is_left; /* by a waiter that will be back soon: ticks of the timer before it takes over */
    bool unread; /* came while somebody else read */
    trii_shmem shm;          /* of both rings */
    rpc_ring *in, *out_ring; /* NULL: tcp */
    uint64_t head_seen, tail_seen;
    rpc_spin spin;

    unsigned char *buffer; /* tcp: what came and is not a frame yet */
    size_t buffered;
    rpc_header large;          /* whose body comes into large_body */
    unsigned char *large_body; /* NULL while skipping */
    size_t large_got;
    bool in_large;

    int window_calls, used_calls; /* of its window, by us */
    size_t window_bytes, used_bytes;
    int in_calls; /* of this worker's window, by it */
    size_t in_bytes;
    tri_rpc_call *starved, **starved_end;
    int n_defined;                  /* of our functions it knows the numbers below */
    const tri_rpc_function **known; /* by its numbers; NULL = we do not serve it */
    char **known_names;
    int n_known, known_room, known_names_room;
    tri_rpc_request *requests; /* from it, unanswered */

    uint64_t arenas_sent[RPC_MAX_ARENAS / 64];
    struct {
        const unsigned char *base;
        size_t bytes;
    } views[RPC_MAX_ARENAS];
    rpc_hold *holds;
    bool is_held;       /* by itself, for them */
    bool is_introduced; /* others hear of its end from us */
    rpc_kept *kept;
};

/* --- calls and requests --------------------------------------------------- */

typedef enum rpc_call_state {
    RPC_CALL_NEW,
    RPC_CALL_DEFERRED, /* for a promise */
    RPC_CALL_STARVED,  /* for credits, or the connection */
    RPC_CALL_SENT,
    RPC_CALL_OVER
} rpc_call_state;

struct tri_rpc_call {
    tri_rpc_call *next;  /* of one list: idle, starved, waiting */
    tri_rpc_call *after; /* its end is told after rpc_unlock */
    tri_rpc *rpc;        /* used */
    rpc_peer *peer;      /* used, while it is in flight */
    tri_rpc_ref *to;     /* used */
    const tri_rpc_function *function;
    uint32_t slot, generation;
    rpc_call_state state;
    int users; /* the handle, the flight, the reply's message, the promise */
    bool in_flight, handle, taken, read, asked, again;
    tri_status status;
    char *error; /* NULL: none, or no memory */
    int64_t deadline_ns, began_ns;
    int64_t ran_ns; /* what WHERE said: < 0 unknown, 0 queued, else since */
    uint64_t chain;
    trii_site site;
    rpc_waiter *waiter;
    void (*done)(tri_rpc_call *call, void *arg);
    void *arg;
    tri_rpc_ref *promise; /* not used: it uses us */
    int record;           /* its place; -1 = none */
    rpc_packet packet;
    rpc_received reply;
    bool has_parts; /* of the reply: FREED is owed */
};

struct tri_rpc_request {
    tri_rpc_request *next;                  /* of one queue */
    tri_rpc_request *of_peer, **of_peer_at; /* the next unanswered of the peer; its link to this */
    tri_rpc *rpc;
    rpc_peer *peer; /* used */
    const tri_rpc_function *function;
    rpc_object *object; /* used; NULL = the worker */
    uint64_t call, chain;
    int64_t deadline_ns, came_ns, started_ns; /* 0 = it waits */
    size_t weight;
    bool running, answered, in_object, queued;
    bool postponed; /* its reply waits for a promise */
    atomic_bool cancelled;
    rpc_packet packet;
    rpc_kept *kept; /* for parts of the reply, until it goes */
    rpc_received in;
};

/* What a thread runs, innermost first. */
typedef struct rpc_run {
    struct rpc_run *outer;
    tri_rpc *rpc;
    tri_rpc_request *request; /* NULL: what was told to the program */
    bool inlined;             /* it must not block */
    bool occupies;            /* a place of the executor */
} rpc_run;

/* A thread that waits. */
struct rpc_waiter {
    rpc_waiter *next;
    rpc_peer *peer; /* whose ring it reads; NULL = it sleeps */
    uint64_t chain;
    bool busy; /* runs what came of its chain */
    bool reads;
    atomic_int kicked; /* 0, 1 = look again, 2 = it sleeps on this, 3 = it polls */
    tri_rpc_request *inbox;
};

enum { RPC_STATE_ON, RPC_STATE_LEAVING, RPC_STATE_OFF };

/* What files lower down call further up: rpc_worker.c knows them all. All locked. */
typedef struct rpc_upcalls {
    /* Frames of a peer; *run_out: a request to be run at once, or NULL. */
    void (*request)(rpc_peer *peer, const rpc_header *h, rpc_source *source,
                    tri_rpc_request **run_out);
    void (*reply)(rpc_peer *peer, const rpc_header *h, rpc_source *source);
    void (*cancel)(rpc_peer *peer, uint64_t call);
    void (*where)(rpc_peer *peer, const rpc_header *h);
    void (*define)(rpc_peer *peer, const rpc_header *h, rpc_source *source);
    void (*hold)(rpc_peer *peer, const rpc_header *h, rpc_source *source);
    void (*held)(rpc_peer *peer, const rpc_header *h);
    void (*drop)(rpc_peer *peer, const rpc_header *h);
    void (*gone)(rpc_peer *peer, const rpc_header *h);
    /* A peer was lost. */
    void (*lose_calls)(rpc_peer *peer);
    void (*lose_requests)(rpc_peer *peer);
    void (*lose_refs)(rpc_peer *peer);
    void (*pump)(rpc_peer *peer);          /* it has credits again */
    void (*connect_later)(rpc_peer *peer); /* by a thread of its own */
    bool (*probe)(tri_rpc *rpc, const rpc_address *address, int64_t deadline_ns);
    void (*stream_read)(rpc_peer *peer);
    void (*stream_flush)(rpc_peer *peer);
    void (*stream_release)(rpc_peer *peer);
    bool (*is_wanted)(rpc_peer *peer, const rpc_header *h); /* within its function's limits */
    void (*run)(tri_rpc_request *request, bool inlined, bool occupies);
    void (*fail)(tri_rpc_request *request, tri_status status, const char *line);
    bool (*forget_find)(tri_rpc_request *request);
    void (*call_unuse)(tri_rpc_call *call);
    void (*submit_waiting)(tri_rpc_ref *ref);
    void (*submit_replies)(tri_rpc_ref *promise);
    void (*revive)(tri_rpc_ref *ref, tri_rpc_call *call);
    void (*free)(tri_rpc *rpc); /* not locked: nobody uses it any more */
} rpc_upcalls;

struct tri_rpc {
    const rpc_upcalls *up;
    trii_mutex lock;
    atomic_int users; /* the handle, executor threads, calls, references, jobs */
    int state;
    bool joined;
    bool has_met;        /* another worker, once */
    bool has_met_all;    /* a closed set has met, or will not */
    int n_met;           /* of it, until then */
    atomic_uint n_ended; /* connections */
    int fork_level;
    char name[RPC_NAME];
    uint64_t incarnation;
    unsigned char token[RPC_TOKEN];
    int rank, size;
    int64_t meeting;         /* where its ranks meet; 0 = open, or not yet */
    tri_rpc_options options; /* defaults filled in */
    char (*names)[RPC_NAME]; /* [size] of all, unless it is open */
    char key[RPC_NAME + 8];  /* ours in the store */
    char *record;            /* what is there */
    tri_store *store;
    trii_mutex store_lock;
    trii_job_key job_key;

    trii_loop *loop;
    trii_watch unix_watch, tcp_watch, kick_watch;
    int unix_fd, tcp_fd, tcp_port, kick_fd;
    trii_timer timer;
    int64_t silence_ns;       /* of a host that is lost; 0 = never */
    _Atomic int64_t timer_ns; /* when it fires */
    struct rpc_pending *pending;
    int n_pending;

    rpc_peer *peers;
    const tri_rpc_function **served;
    int n_served, served_room;
    const tri_rpc_function **used; /* numbers of functions that this worker calls */
    int n_used, used_room;
    rpc_object **objects;
    uint32_t *object_ages;
    int n_objects, object_room;
    tri_rpc_request *finds; /* for names that are not there yet */

    tri_rpc_call **calls; /* by slot */
    int n_calls, calls_room;
    tri_rpc_call *idle_calls;
    tri_rpc_request *idle_requests;
    int n_idle_requests;
    int in_flight, n_requests, n_deferred;
    int n_open; /* calls that were made and have not ended */
    uint64_t next_chain;
    rpc_waiter *waiters;
    trii_cond changed; /* of peers' states, ends of calls and requests, while somebody waits */
    int n_changed_waiters;
    rpc_waiter *joiner; /* the thread in tri_rpc_join */
    rpc_spin joiner_spin;
    bool joiner_sleeps; /* on the bells of the peers that it watches */
    int n_jobs;

    tri_rpc_request *queue, **queue_end;
    trii_cond work;
    int n_threads, n_idle, n_active, n_lent;
    bool stop, empties_queue;
    bool has_requests; /* after its end: they use it until they are answered */

    struct rpc_intro *intros; /* references that owners have been told of, and have not confirmed */
    uint64_t n_intros;
    struct rpc_arena *arenas[RPC_MAX_ARENAS];
    int n_arenas;
    tri_rpc_call *after_calls, **after_calls_end;
    rpc_object *after_objects;
    struct rpc_told *after_events;
    rpc_record_file *record_file; /* NULL = none */
    int record_fd, next_record;
    char why[RPC_TEXT]; /* it was aborted */
};

/* --- rpc_base.c: what all need -------------------------------------------- */

extern _Thread_local rpc_run *rpc_running;
/* The process's own; NULL. */
extern _Atomic(tri_rpc *) rpc_own;
void rpc_kick(tri_rpc *rpc, rpc_waiter *waiter); /* locked; it looks again */
/* NULL becomes the process's own. STATE: there is none, or a parent's. */
tri_status rpc_resolve(tri_rpc **rpc_io, const char *call) TRI_MUST_CHECK;
tri_status rpc_check_process(const tri_rpc *rpc, const char *call) TRI_MUST_CHECK;
/* In a forked child: its lock may be held by a thread that is not there, and what is sent goes out
 * in the parent's name. */
bool rpc_is_parents(const tri_rpc *rpc);
void rpc_use(tri_rpc *rpc);
void rpc_unuse(tri_rpc *rpc); /* without the lock */
void rpc_lock(tri_rpc *rpc);
/* And runs what was put aside: ends that programs want to know, releases of objects, events. */
void rpc_unlock(tri_rpc *rpc);
void rpc_tell(tri_rpc *rpc, tri_rpc_event_kind kind, const char *worker, const char *text);
/* Locked. Somebody who waits for a change looks again. */
void rpc_changed(tri_rpc *rpc);
/* And of peers: tri_rpc_join, too. */
void rpc_peers_changed(tri_rpc *rpc);
/* Locked: sleeps on a condition, after what was put aside. False: the deadline has passed. */
bool rpc_sleep(tri_rpc *rpc, trii_cond *cond, int64_t deadline_ns);
/* Any thread: the control thread looks at deadlines then, at the latest. */
void rpc_arm(tri_rpc *rpc, int64_t at_ns);
static inline void rpc_drop_use(tri_rpc *rpc) /* not the last one */
{
    (void)atomic_fetch_sub(&rpc->users, 1);
}
/* The last thing that a thread of the library does. Locked; unlocks. */
void rpc_thread_ends(tri_rpc *rpc, int *count);
/* A name that may be published. */
tri_status rpc_check_name(const char *name, const char *call) TRI_MUST_CHECK;
/* Locked: a thread of its own for something that happens now and then. */
tri_status rpc_start_job(tri_rpc *rpc, void (*run)(void *arg), void *arg) TRI_MUST_CHECK;

/* --- rpc_peer.c: frames in and out; all locked ---------------------------- */

rpc_peer *rpc_peer_of(tri_rpc *rpc, const char *name, uint64_t incarnation); /* NULL: no memory */
rpc_peer *rpc_peer_mirror(tri_rpc *rpc);
/* The one that is up, or is still to be tried; NULL. */
rpc_peer *rpc_peer_named(tri_rpc *rpc, const char *name);
void rpc_peer_use(rpc_peer *peer);
void rpc_peer_unuse(rpc_peer *peer);
/* A connection becomes the peer's, with its rings; then it is watched, and up. */
void rpc_peer_take(rpc_peer *peer, int fd, bool is_unix, const trii_shmem *shm, bool connects);
void rpc_peer_give_back(rpc_peer *peer); /* it cannot be watched */
void rpc_peer_up(rpc_peer *peer);
void rpc_peer_lose(rpc_peer *peer, bool left, const char *format, ...) TRII_PRINTF(3, 4);
/* request: its call's number, or 0. Never blocks. */
void rpc_send(rpc_peer *peer, const void *frame, size_t bytes, uint64_t request);
void rpc_send_kind(rpc_peer *peer, int kind, uint64_t call, uint64_t object, uint64_t chain);
void rpc_flush(rpc_peer *peer);
/* Reads all that is there; may unlock meanwhile. The caller holds a use of the peer. */
void rpc_read(rpc_peer *peer);
/* The thread that takes over from a reader is told. */
void rpc_stop_reading(rpc_peer *peer);
/* The same of a waiter, which may be back in microseconds while it has calls in flight: to have
 * itself woken in between would cost the peer a system call for each reply. */
void rpc_leave_ring(rpc_peer *peer);
/* The timer: reads rings that were left; true: some are left still. */
#define RPC_LEFT_NS (2 * TRII_NS_PER_MS)
bool rpc_take_over_left(tri_rpc *rpc);
/* One frame that is no longer in a ring; frees what is owned. May unlock. */
void rpc_take_frame(rpc_peer *peer, const rpc_header *h, rpc_source *source);
bool rpc_peer_is_active(rpc_peer *peer); /* also unlocked */
/* Wakes a reader of its ring that sleeps in a thread of the program: a frame will be there in some
 * microseconds. */
void rpc_wake_early(rpc_peer *peer);
/* Sends the file of an arena, unless the peer has it. */
void rpc_send_arena(rpc_peer *peer, uint32_t arena);
/* Takes in what its socket has beside the rings: files of arenas. */
void rpc_take_records(rpc_peer *peer);
/* The kernel's word of the connection: the loop's callback. */
void rpc_peer_ready(trii_watch *watch, unsigned events);
/* Closes the descriptor; from the loop, or not locked. */
void rpc_peer_close(rpc_peer *peer);

/* --- rpc_stream.c: tcp; locked -------------------------------------------- */

void rpc_stream_read(rpc_peer *peer);
void rpc_stream_flush(rpc_peer *peer);
/* A thread that waits polls the socket from now on, or the loop does again. False: it could not be
 * woken. */
bool rpc_stream_claim(rpc_peer *peer);
void rpc_stream_release(rpc_peer *peer);

/* --- rpc_heartbeat.c; locked ---------------------------------------------- */

/* TRI_HEARTBEAT_MS. */
tri_status rpc_heartbeat_init(tri_rpc *rpc) TRI_MUST_CHECK;
/* It may be on another host, and is looked at from now on. */
void rpc_heartbeat_begin(rpc_peer *peer);
/* The timer: loses those whose hosts are silent. When it looks next. */
int64_t rpc_heartbeat(tri_rpc *rpc, int64_t now_ns);

/* --- rpc_message.c -------------------------------------------------------- */

/* Not locked: builds the frame of a message, with its parts in arenas. What it uses is released by
 * rpc_packet_fini. Errors: INVALID_ARG, NO_MEMORY. */
tri_status rpc_pack(tri_rpc *rpc, const tri_rpc_message *message, const rpc_header *head,
                    const rpc_limits *limits, const char *what, rpc_packet *packet) TRI_MUST_CHECK;
void rpc_packet_fini(tri_rpc *rpc, rpc_packet *packet); /* locked */
/* Locked: sends it, its references and arenas. NO_MEMORY. */
tri_status rpc_send_packet(rpc_peer *peer, rpc_packet *packet, bool is_request) TRI_MUST_CHECK;
/* Locked: takes a body in. */
tri_status rpc_receive(rpc_peer *peer, const rpc_header *h, rpc_source *source,
                       const rpc_limits *limits, rpc_received *received_out) TRI_MUST_CHECK;
void rpc_received_fini(rpc_received *received); /* locked */
rpc_limits rpc_limits_of(const tri_rpc *rpc, const tri_rpc_function *function, bool reply);

/* --- rpc_call_end.c, rpc_call.c ------------------------------------------- */

/* Locked. The call has ended. */
void rpc_call_end(tri_rpc_call *call, tri_status status, const char *format, ...) TRII_PRINTF(3, 4);
/* Locked: its deadline has passed. */
void rpc_call_expire(tri_rpc_call *call);
void rpc_call_unuse(tri_rpc_call *call); /* locked */
tri_rpc_call *rpc_call_at(const tri_rpc *rpc, uint64_t number);
uint64_t rpc_call_number(const tri_rpc_call *call);
void rpc_call_log(const tri_rpc_call *call); /* that it failed and nobody has looked */
bool rpc_call_is_over(void *call);
/* When somebody looks at it: 20 ms before its deadline the callee is asked where it is. */
int64_t rpc_call_look_ns(const tri_rpc_call *call);
void rpc_call_ask(tri_rpc_call *call);
/* The reply's parts are not read any more. */
void rpc_reply_release(tri_rpc_call *call);

typedef struct rpc_plan { /* of a call */
    tri_rpc_ref *to;
    const tri_rpc_function *function;
    const tri_rpc_message *in;
    const tri_rpc_call_options *options;
    const char *what; /* "rpc_sync" */
} rpc_plan;
/* Not locked: a call that is ready to be submitted, with one user. */
tri_status rpc_call_make(const rpc_plan *plan, tri_rpc_call **call_out) TRI_MUST_CHECK;

/* --- rpc_flight.c: calls on their way; locked ----------------------------- */

/* The next state of a call that is new, or whose promise or credits have come. */
void rpc_call_submit(tri_rpc_call *call);
/* Whether it would have to wait for credits. */
bool rpc_would_starve(const tri_rpc_call *call);
void rpc_on_reply(rpc_peer *peer, const rpc_header *h, rpc_source *source);
/* Calls of the peer's that wait, or are in flight, when it was lost. */
void rpc_calls_lose(rpc_peer *peer);
void rpc_pump(rpc_peer *peer);
/* The control thread: calls whose deadline has passed; when the next one does. */
int64_t rpc_calls_expire(tri_rpc *rpc);
/* Calls that have waited in the reference. */
void rpc_submit_waiting(tri_rpc_ref *ref);

/* --- rpc_find.c ----------------------------------------------------------- */

/* Blocks, not locked: a connected worker, and its object if the name has one. */
tri_status rpc_look_up(tri_rpc *rpc, const char *name, bool wait, int64_t deadline_ns,
                       tri_rpc_ref **ref_out) TRI_MUST_CHECK;
/* Built in: finds an object by name. */
extern const tri_rpc_function rpc_find_function;
bool rpc_forget_find(tri_rpc_request *request);
/* Locked: calls wait in the reference until there is a next worker, or none. */
void rpc_revive(tri_rpc_ref *ref, tri_rpc_call *call);

/* --- rpc_record.c; locked ------------------------------------------------- */

void rpc_record_open(tri_rpc *rpc);
void rpc_record_close(tri_rpc *rpc);
void rpc_record_call(tri_rpc_call *call);
void rpc_record_state(tri_rpc_call *call, int state); /* 0: it is over */

/* --- rpc_wait.c ----------------------------------------------------------- */

/* Locked, and again at its end; unlocked in between. False: the deadline has passed. */
bool rpc_wait(tri_rpc *rpc, rpc_peer *peer, bool (*is_over)(void *arg), void *arg,
              rpc_waiter *waiter, int64_t deadline_ns);
/* STATE where this thread must not block. */
tri_status rpc_may_block(const char *call) TRI_MUST_CHECK;
/* Sleeps until it is kicked. Not locked. */
void rpc_sleep_on(rpc_waiter *waiter, int64_t deadline_ns);

/* --- rpc_watch.c ---------------------------------------------------------- */

/* tri_rpc_join's thread: reads all rings, asleep where nothing comes. Locked, and unlocked
 * meanwhile; returns when kicked, or at the deadline. */
void rpc_watch_all(tri_rpc *rpc, rpc_waiter *waiter, int64_t deadline_ns);

/* --- rpc_request.c -------------------------------------------------------- */

#define RPC_NEAREST 240
/* Locked: "a, b, c", up to three of n_names that are most like `name`, and how many they are.
 * name_at: NULL = none. */
int rpc_name_nearest(const tri_rpc *rpc, int n_names, const char *(*name_at)(const tri_rpc *, int),
                     const char *name, char *text, size_t size);

/* All locked. *run_out: one to be run at once by rpc_run_request; NULL = none. */
void rpc_on_request(rpc_peer *peer, const rpc_header *h, rpc_source *source,
                    tri_rpc_request **run_out);
void rpc_request_fail_line(tri_rpc_request *request, tri_status status, const char *line);
/* The frame alone; then it has been answered, and nobody finds it any more. */
void rpc_request_status(tri_rpc_request *request, tri_status status, const char *line);
void rpc_request_retire(tri_rpc_request *request);
bool rpc_is_wanted(rpc_peer *peer, const rpc_header *h);
void rpc_on_cancel(rpc_peer *peer, uint64_t call);
void rpc_on_where(rpc_peer *peer, const rpc_header *h);
void rpc_on_define(rpc_peer *peer, const rpc_header *h, rpc_source *source);
void rpc_requests_lose(rpc_peer *peer); /* the peer was lost */
/* Locked, unlocked meanwhile. */
void rpc_run_request(tri_rpc_request *request, bool inlined, bool occupies);
void rpc_request_fail(tri_rpc_request *request, tri_status status, const char *format, ...)
    TRII_PRINTF(3, 4);
/* Locked: where it runs. NULL, or it is to be run at once. */
tri_rpc_request *rpc_dispatch(tri_rpc_request *request);

/* --- rpc_reply.c; locked -------------------------------------------------- */

void rpc_answer_with(tri_rpc_request *request, tri_rpc_ref *ref);
/* Those that have waited for the promise. */
void rpc_submit_replies(tri_rpc_ref *promise);

/* --- rpc_executor.c; locked ----------------------------------------------- */

void rpc_execute(tri_rpc_request *request);
/* What is queued, or comes later, is not run. */
void rpc_executor_stop(tri_rpc *rpc);
void rpc_executor_lend(tri_rpc *rpc);
void rpc_executor_return(tri_rpc *rpc);
bool rpc_executor_remove(tri_rpc_request *request);

/* --- rpc_leave.c; locked -------------------------------------------------- */

/* Every call ends with ABORTED. */
void rpc_end_calls(tri_rpc *rpc, const char *why);
/* And every peer is lost. */
void rpc_end_all(tri_rpc *rpc, const char *why);

/* --- rpc_ref.c; locked ---------------------------------------------------- */

tri_rpc_ref *rpc_ref_make(tri_rpc *rpc, rpc_peer *peer, rpc_object *local, uint64_t object);
void rpc_ref_unuse(tri_rpc_ref *ref);
/* As it goes to `to`: counts what the owner must know. */
void rpc_ref_write(rpc_peer *to, tri_rpc_ref *ref, rpc_wire_ref *wire_out);
/* As it came; NULL: no memory. */
tri_rpc_ref *rpc_ref_read(rpc_peer *from, const rpc_wire_ref *wire);
void rpc_on_hold(rpc_peer *peer, const rpc_header *h, rpc_source *source);
void rpc_on_held(rpc_peer *peer, const rpc_header *h);
void rpc_on_drop(rpc_peer *peer, const rpc_header *h);
void rpc_on_gone(rpc_peer *peer, const rpc_header *h);
void rpc_object_unuse(tri_rpc *rpc, rpc_object *object);
rpc_object *rpc_object_at(tri_rpc *rpc, uint64_t id);
/* The call that made it has ended. */
void rpc_promise_resolve(tri_rpc_ref *promise, tri_rpc_call *call);
rpc_object *rpc_object_named(const tri_rpc *rpc, const char *name);
tri_status rpc_object_add(tri_rpc *rpc, rpc_object *object) TRI_MUST_CHECK;
/* What a lost peer held, and its word for what others hold. */
void rpc_refs_lose(rpc_peer *peer);
/* The log names what others hold. */
void rpc_log_holds(tri_rpc *rpc);

#endif
