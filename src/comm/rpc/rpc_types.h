/*
 * rpc_types.h - what a worker consists of: peers, calls, requests, objects and references to them.
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
#ifndef TRII_RPC_TYPES_H
#define TRII_RPC_TYPES_H

#include <stdatomic.h>

#include "base/site.h"
#include "os/clock.h"
#include "os/loop.h"
#include "os/shmem.h"
#include "os/thread.h"
#include "os/unforked.h"
#include "comm/rpc/rpc_record.h"
#include "comm/rpc/rpc_ring.h"
#include "comm/rpc/rpc_spin.h"
#include "store/handshake.h"

/* Seldom called: built for size where the file is built for speed. */
#define RPC_COLD __attribute__((cold))

#define RPC_MAX_DEFERRED 65536 /* calls that wait for a promise, in a worker */
#define RPC_MAX_FUNCTIONS 4096 /* that a peer may define */
#define RPC_MAX_ARENAS 256
#define RPC_MAX_VOID_HOLDS 8192 /* of a peer: drops that have overtaken the holds */
#define RPC_MAX_INTRODUCED 1024 /* peers that others have told of, and that never came */
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
    int depth;              /* so many of that chain run, */
    int n_waiting;          /* of which so many wait for what they have called */
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

/* Calls that wait, in their order; what has ended meanwhile counts until it is taken out. */
typedef struct rpc_line {
    tri_rpc_call *first, **end;
    int n;
    size_t bytes; /* of their packets' weights */
} rpc_line;

/* --- references ----------------------------------------------------------- */

struct tri_rpc_ref {
    tri_rpc *rpc;      /* used */
    rpc_peer *peer;    /* used; NULL: own, or a promise */
    rpc_object *local; /* used; NULL: a peer's, or this worker */
    uint64_t object;
    int users;
    char owner[RPC_NAME];
    uint64_t holds;           /* that came with it, and go with it */
    char *name;               /* it was found by; NULL: it was not */
    tri_rpc_call *maker;      /* a promise: of this call, used; NULL: there, or failed */
    tri_status status;        /* of a promise that failed */
    char *error;              /* and its line */
    bool told;                /* somebody has seen the error */
    bool revives;             /* a job looks for the next worker of the name */
    int n_piped;              /* calls on their way to the maker's callee */
    bool drains;              /* those come back, and go on together, before others do */
    tri_rpc_ref *next;        /* of those resolved */
    rpc_line waiting;         /* calls that wait for either */
    tri_rpc_request *replies; /* the same */
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
    int kind;
    unsigned char data[];
} rpc_unsent;

/* Parts of a reply that the peer reads. */
typedef struct rpc_kept {
    struct rpc_kept *next;
    uint64_t call;
    rpc_block **blocks;
    int n;
} rpc_kept;

/* What a call of the peer's has returned first. */
typedef enum rpc_outcome {
    RPC_OUTCOME_FAILED, /* or it has no reference */
    RPC_OUTCOME_HERE,
    RPC_OUTCOME_ELSEWHERE /* it is another worker's */
} rpc_outcome;

typedef struct rpc_result {
    struct rpc_result *next;
    uint64_t call;
    rpc_object *object; /* used; NULL: this worker, or nothing of it */
    rpc_outcome outcome;
} rpc_result;

struct rpc_peer {
    rpc_peer *next;
    tri_rpc *rpc;
    char name[RPC_NAME];
    uint64_t incarnation;
    char where[96];   /* " (host b, pid 411)"; "" before it was met */
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
    int n_unread;        /* answers among them */
    size_t unread_bytes; /* of what is neither request nor answer */
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
    unsigned char *large_body; /* NULL: nothing of it is kept, */
    size_t large_kept;         /* or that much; the rest is skipped */
    size_t large_got;
    bool in_large;

    int window_calls, used_calls; /* of its window, by us; it is ours until it has told */
    size_t window_bytes, used_bytes;
    int in_calls; /* of this worker's window, by it */
    size_t in_bytes;
    rpc_line starved;               /* calls that wait for either, or for the connection */
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
    int n_void_holds;   /* without an object */
    bool is_held;       /* by itself, for them */
    bool is_introduced; /* others hear of its end from us */
    rpc_kept *kept;
    int n_lent; /* replies of it whose parts the program here has, until tri_rpc_message_free */
    size_t lent_bytes;
    rpc_result *results; /* of its calls, until it says FREED */
    int n_results;
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
    bool lent; /* the program has its reply, until tri_rpc_message_free */
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
    bool keeps;     /* the same, for what is called on its promise */
    bool piped;     /* it went where its target is made */
    bool went_back; /* and goes on before others */
};

struct tri_rpc_request {
    tri_rpc_request *next;                  /* of one queue */
    tri_rpc_request *of_peer, **of_peer_at; /* the next unanswered of the peer; its link to this */
    tri_rpc *rpc;
    rpc_peer *peer;                   /* used */
    const tri_rpc_function *function; /* NULL: it is not served here, */
    int function_number;              /* and this is its number at the peer */
    rpc_object *object;               /* used; NULL = the worker */
    uint64_t call, chain;
    int64_t deadline_ns, came_ns, started_ns; /* 0 = it waits */
    size_t weight;
    bool running, answered, in_object, queued;
    bool postponed; /* its reply waits for a promise */
    bool keeps;     /* its result may be called before its caller has it */
    rpc_outcome outcome, target;
    rpc_object *made;           /* used; of the outcome HERE */
    tri_rpc_request *promised;  /* to be started when it has ended, with what it made */
    tri_rpc_request *waits_for; /* the one whose `promised` this is in */
    atomic_bool cancelled;
    rpc_packet packet;
    rpc_kept *kept; /* for parts of the reply, until it goes */
    rpc_received in;
};

/* A thread of the executor. */
typedef struct rpc_place {
    struct rpc_place *next;
    tri_rpc_request *request; /* it runs; NULL: it is idle */
    int thread;               /* the system's number of it */
    bool lent;                /* it waits for what its handler has called */
    bool dozes;               /* it slept when it was last looked at, */
    bool asleep;              /* and the time before: it waits for something else */
} rpc_place;

/* What a thread runs, innermost first. */
typedef struct rpc_run {
    struct rpc_run *outer;
    tri_rpc *rpc;
    tri_rpc_request *request; /* NULL: what was told to the program */
    bool inlined;             /* it must not block */
    rpc_place *place;         /* of the executor; NULL: another thread runs it */
} rpc_run;

/* A thread that waits. */
struct rpc_waiter {
    rpc_waiter *next;
    rpc_peer *peer; /* whose ring it reads; NULL = it sleeps */
    uint64_t chain;
    trii_site site; /* of a call that it waits for */
    bool busy;      /* runs what came of its chain */
    bool reads;
    atomic_int kicked; /* 0, 1 = look again, 2 = it sleeps on this, 3 = it polls */
    tri_rpc_request *inbox;
};

enum { RPC_STATE_ON, RPC_STATE_LEAVING, RPC_STATE_OFF };

/* What files lower down call further up: rpc_worker.c knows them all. All locked. */
typedef struct rpc_upcalls {
    const tri_rpc_function *find; /* what tri_rpc_find calls */
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
    void (*say_gone)(rpc_peer *peer);      /* to all others */
    void (*pump)(rpc_peer *peer);          /* it has credits again */
    void (*connect_later)(rpc_peer *peer); /* by a thread of its own */
    bool (*probe)(tri_rpc *rpc, const rpc_address *address, int64_t deadline_ns);
    void (*stream_read)(rpc_peer *peer);
    void (*stream_flush)(rpc_peer *peer);
    void (*stream_release)(rpc_peer *peer);
    bool (*is_wanted)(rpc_peer *peer, const rpc_header *h); /* within its function's limits */
    void (*run)(tri_rpc_request *request, bool inlined, rpc_place *place);
    void (*fail)(tri_rpc_request *request, tri_status status, const char *line);
    bool (*forget_find)(tri_rpc_request *request);
    void (*promise_wait)(tri_rpc_request *request, uint64_t call);
    void (*promise_end)(tri_rpc_request *request);
    bool (*promise_forget)(tri_rpc_request *request);
    void (*promise_freed)(rpc_peer *peer, uint64_t call);
    void (*promises_lose)(rpc_peer *peer);
    void (*call_unuse)(tri_rpc_call *call);
    void (*call_fail)(tri_rpc_call *call, tri_rpc_ref *failed);
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
    bool has_called;     /* another worker, or was called by one; to look a name up is no call */
    bool has_parted;     /* from another worker: it has left, or was lost */
    bool has_met_all;    /* a closed set has met, or will not */
    int n_met;           /* of it, until then */
    atomic_uint n_ended; /* connections */
    int fork_level;
    char name[RPC_NAME];
    uint64_t incarnation;
    unsigned char token[RPC_TOKEN];
    int rank, size;
    bool has_read_all;       /* what the others said in the store */
    int64_t meeting;         /* where its ranks meet; 0 = open, or not yet */
    tri_rpc_options options; /* defaults filled in */
    char (*names)[RPC_NAME]; /* [size] of all, unless it is open */
    char key[RPC_NAME + 8];  /* ours in the store */
    char *record;            /* what is there */
    tri_store *store;
    bool store_busy;       /* a thread is in the store */
    bool store_was_silent; /* that thread's, as the store once a closed set has met */
    trii_job_key job_key;

    trii_loop *loop;
    trii_watch unix_watch, tcp_watch, kick_watch;
    int unix_fd, tcp_fd, tcp_port, kick_fd;
    trii_timer timer;
    int64_t silence_ns;        /* of a host that is lost; 0 = never */
    _Atomic int64_t timer_ns;  /* when it fires */
    int64_t accepts_ns;        /* no descriptors: when it accepts connections again; 0 = it does */
    char accept_why[RPC_TEXT]; /* why it did not; "" = it does */
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
    int n_beyond; /* what goes on for requests after their answer */
    int n_open;   /* calls that were made and have not ended */
    uint64_t next_chain;
    rpc_waiter *waiters;
    trii_cond changed; /* of peers' states, ends of calls and requests, while somebody waits */
    int n_changed_waiters;
    rpc_waiter *joiner; /* the thread in tri_rpc_join */
    rpc_spin joiner_spin;
    bool joiner_sleeps; /* on the bells of the peers that it watches */
    bool joiner_yields; /* the same, to leave its core to who answers */
    int n_jobs;
    tri_rpc_request *startable, **startable_end; /* their targets are there */
    bool starts;                                 /* somebody does that, further up the stack */
    tri_rpc_ref *resolved, **resolved_end;       /* promises whose calls are to go on; used */
    bool resolves;

    tri_rpc_request *queue, **queue_end;
    trii_cond work;
    rpc_place *places;
    int n_threads, n_idle, n_active, n_lent;
    int n_coming;    /* started, or called while idle, and not here yet */
    int n_asleep;    /* of the active ones: they wait, and not for calls */
    int64_t look_ns; /* not before then it is looked for such */
    bool stop, empties_queue;
    bool has_requests; /* after its end: they use it until they are answered */

    struct rpc_intro *intros; /* references that owners have been told of, and have not confirmed */
    uint64_t n_intros;
    struct rpc_arena *arenas[RPC_MAX_ARENAS];
    int n_arenas;
    tri_rpc_call *after_calls, **after_calls_end;
    rpc_object *after_objects;
    struct rpc_told *after_events;
    bool tells;                   /* a thread does that */
    rpc_record_file *record_file; /* NULL = none */
    int record_fd, next_record;
    char why[RPC_TEXT]; /* it was aborted */
};

#endif
