/*
 * tcp.h - what the files of the tcp engine share. A group is a full mesh of connections, one per
 * pair of ranks. The files from top to bottom; each calls only files further down:
 *
 *   tcp.c             the engine's table; creating, leaving, aborting a group
 *   tcp_connect.c     forms the mesh through the store
 *   tcp_heartbeat.c   finds hosts that fall silent
 *   tcp_coll.c        collectives: their frames, the reduction
 *   tcp_plan.c        which streams between pairs of ranks a collective has
 *   tcp_p2p.c         send and recv
 *   tcp_unexpected.c  frames that come before the call that they are for
 *   tcp_progress.c    posts and ends operations, polls, moves frames in and out of sockets; calls
 *                     the owners of the frames, tcp_coll.c and tcp_p2p.c, through tcp_owner.h
 *   tcp_hangup.c      what it means when a connection ends
 *   tcp_fault.c       fails the group and tells the peers
 *   tcp_frame.h       the frames
 *
 * The way of an all_reduce: tcp_submit posts it (tcp_progress.c), coll_start_queued starts it
 * (tcp_coll.c), tcp_plan opens its streams (tcp_plan.c). Then tcp_progress polls and moves bytes;
 * tcp_coll.c tells it which, reduces those that came, and has the call end (tcp_finish).
 */
#ifndef TRII_ENGINE_TCP_H
#define TRII_ENGINE_TCP_H

#include "comm/engines/matching.h"
#include "comm/engines/tcp/tcp_frame.h"
#include "comm/engines/tcp/tcp_owner.h"
#include "comm/group/engine.h"
#include "os/loop.h"
#include "os/proc.h"
#include "os/socket.h"
#include "os/thread.h"
#include "os/unforked.h"

extern const trii_engine trii_engine_tcp;

#define TCP_SLOTS 4 /* collectives under way at once */
#define TCP_PAST 16 /* last calls that are remembered, to name them */
/* Data are reduced and sent on in pieces of this size, which stay in the cache. */
#define TCP_CHUNK ((size_t)128 << 10)
/* Size of the rings for all peers' parts that are not reduced yet; it stays in the cache, too. */
#define TCP_RING ((size_t)1 << 20)
/* If a rank sends no more than this in total, one phase is faster. */
#define TCP_SMALL ((size_t)64 << 10)
#define TCP_UNEXPECTED TRII_KEPT_MOST /* bytes of unexpected messages kept, per connection */
/* No more than this is read from a connection that the peer has closed. */
#define TCP_TAIL ((size_t)64 << 20)
#define TCP_GRACE_MS 40         /* for pending calls to complete after a failure elsewhere */
#define TCP_READ ((size_t)4096) /* headers and small payloads come with one read */

/* Bytes between this rank and one peer in one direction, in order. */
typedef struct tcp_stream {
    char *at;
    size_t total;
    size_t framed; /* announced by headers */
    size_t done;   /* received; sent in whole frames */
    size_t ring;   /* > 0: `at` is a ring of so many bytes, for what is not summed yet */
    bool open;     /* something, if only an empty frame, is still to come */
} tcp_stream;

typedef struct tcp_streams {
    tcp_stream part_out, part_in;     /* phase 1 */
    tcp_stream result_out, result_in; /* phase 2 */
} tcp_streams;

/* A collective under way. */
typedef struct tcp_coll {
    trii_op *op;
    tcp_streams *peers; /* [size]; the own one is unused */
    size_t elem_bytes;
    bool reduces;        /* the parts are summed into own_dst */
    bool forwards;       /* what comes from the root is handed on (broadcast) */
    const char *own_src; /* reduces: this rank's contribution to its own slice */
    char *own_dst;
    size_t own_bytes; /* of the own slice */
    size_t ready;     /* of these are final and may be sent on */
    int n_open;       /* streams */
    int n_part_out;   /* of these: outgoing parts */
    bool one_phase;   /* every rank that needs the sum makes all of it */
    char *scratch;    /* rings of the peers' parts; what a reduce makes for the root */
    size_t scratch_bytes, ring;
} tcp_coll;

/* An unexpected frame, which came before its call: a message before its recv, or a collective's
 * frame that was put aside because a recv waits for a later message. */
typedef struct tcp_unexpected {
    trii_tagged tagged; /* of a message */
    struct tcp_unexpected *next;
    tcp_frame head;
    trii_op *send;    /* a send to ourselves that was not copied, or NULL */
    size_t delivered; /* of a collective's frame: bytes that its call has taken */
    char data[];
} tcp_unexpected;

typedef struct tcp_conn {
    trii_watch watch; /* first: callbacks get its address */
    struct tcp_group *group;
    int rank;                 /* of the peer */
    int fd;                   /* -1 = none */
    trii_unforked unforked;   /* closes fd in forked children, which would hide that we ended */
    trii_proc_id process;     /* the peer's */
    trii_watch process_watch; /* for the end of that process: a copy of its socket may outlive it */
    int process_fd;           /* -1 = not visible from here */
    trii_timer late_data_timer; /* then we check whether all that the process sent has come */
    char peer[TRII_ADDR_TEXT];
    unsigned armed; /* what the control thread watches */

    /* in */
    char *in; /* bytes that were read ahead: TCP_READ, or all that came before the end */
    size_t in_room, in_used, in_done;
    tcp_frame head;
    size_t head_done;
    bool parked;               /* head is whole, but its owner cannot take the frame yet */
    bool full;                 /* its owner has no room for more of the payload yet */
    const tcp_owner *in_owner; /* of the payload that comes; NULL = none does */
    char *in_to;               /* where the payload goes */
    size_t in_left;
    bool want_in;               /* to be pumped: something may have come, or be taken now */
    bool ended;                 /* all that will ever come is in `in` */
    bool has_left;              /* it said goodbye, and all before that was taken */
    bool is_lost;               /* it ended without a goodbye or a fault */
    tri_status pending_failure; /* fails the group once all that came was taken; 0 = none */
    char pending_text[TRII_ERR_BYTES];
    tcp_frame last_call; /* the last that was heard of the peer, for error lines */
    tcp_frame peer_wait; /* the last that the peer has been waiting in for long */

    /* out */
    tcp_frame out;
    size_t out_head_left; /* of the header */
    const char *out_from;
    size_t out_left;
    const tcp_owner *out_owner;
    trii_op *out_op;    /* that the payload is of; NULL = the frame has none */
    bool out_stuck;     /* the socket is full */
    bool want_out;      /* to be pumped: something may be sent */
    bool want_request;  /* a request of some owner is to be sent, before payloads and long reads */
    bool want_announce; /* the group's `announced` is to be sent */
    bool heartbeat_due; /* nothing was sent for a while */
    char *rest;         /* after a failure: what is still to be sent; NULL = nothing */
    const char *rest_from;
    size_t rest_left;

    bool remote;              /* on another host */
    int64_t unacked_since_ns; /* its host owes us an acknowledgement since then; 0 = it does not */
    int64_t heard_ns;         /* last frame */

    /* tcp_coll.c's */
    tcp_coll *in_coll, *out_coll; /* in_coll NULL: the frame that comes is put aside */
    tcp_stream *in_stream, *out_stream;
    tcp_unexpected *stash, *last_stash; /* frames that were put aside */
    tcp_coll *stash_coll;               /* of the oldest, if it is under way */
    tcp_stream *stash_stream;

    /* tcp_p2p.c's */
    trii_op *sends, *last_send;      /* to be sent: as MESSAGE or RTS */
    trii_tags rts_sent;              /* sends that wait for CTS, by number */
    trii_op *cleared, *last_cleared; /* sends of which the rest is to be sent */
    trii_tags recvs;                 /* without a message yet */
    trii_op *in_recv;                /* gets the payload that comes; NULL = it is kept */
    trii_tags rest_expected;         /* receives that have the first part, by number of the send */
    trii_op *cts_due, *last_cts_due; /* receives that owe the peer a CTS */
    bool peer_holds;                 /* the peer sent HOLD */

    /* tcp_unexpected.c's */
    tcp_unexpected *in_unexpected; /* gets the payload that comes; NULL = it is not kept */
    trii_tags unexpected;          /* messages without a recv */
    size_t unexpected_bytes;
    bool we_hold, hold_due; /* the peer shall hold its messages; is to be told so */
} tcp_conn;

typedef struct tcp_group {
    int rank, size;
    trii_fault *fault;
    const int *names;               /* of the ranks, in messages; NULL = their numbers */
    const tcp_owner *const *owners; /* [TCP_OWNERS], in the order in which they send */
    trii_proc_id process;           /* ours */
    trii_loop *loop;
    trii_mutex mutex;
    trii_cond turn;         /* the thread that polls has left, or an operation is finished */
    bool polling;           /* guarded by mutex, as all below; a thread polls for all */
    bool frame_stuck;       /* a frame may be begun that its socket has no room for */
    int waiting;            /* threads on `turn` */
    int wake_fd;            /* ends the poll */
    bool failed;            /* the fault was acted on */
    bool left;              /* only destroy is to come */
    int pending;            /* operations */
    tcp_conn *failure_from; /* the first connection with a pending failure */
    int64_t failure_due_ns; /* it happens then at the latest */
    trii_timer failure_timer;
    trii_timer heartbeat_timer;
    int64_t silence_ns;             /* how long a host may be silent; 0 = for ever */
    tcp_frame announced;            /* the last call that we have been waiting in for long */
    uint64_t started;               /* seq of the last collective that was started */
    trii_collective past[TCP_PAST]; /* the last ones, whole, by seq, with those that went elsewhere;
                                       their buffers may be gone */
    uint64_t past_seq[TCP_PAST];    /* of each of them here */
    tcp_conn *conns;                /* [size]; the own one is unused */
    tcp_coll slots[TCP_SLOTS];
    tcp_coll *running[TCP_SLOTS]; /* by seq */
    int n_running;
    trii_op *queue, *last_queued; /* collectives that wait for a slot */
    trii_tags any_recvs;          /* from any rank, without a message yet */
    uint64_t n_recvs;             /* ever posted */
    const void **sources;         /* [size]: for the reduction */
    int *poll_fds;                /* [size + 1], as the next two */
    unsigned *poll_events, *poll_ready;
    int64_t spin_ns, spin_max_ns; /* of the thread that polls, before it sleeps */
    unsigned n_polls;
} tcp_group;

/* What messages call a rank. */
static inline int tcp_name(const tcp_group *g, int rank)
{
    return trii_rank_name(g->names, rank);
}

/* --- tcp_fault.c ---------------------------------------------------------- */

/* Raises this fault unless one was raised before; ends everything pending with it, and sends it to
 * the peers. */
void tcp_fail(tcp_group *g, tri_status status, const char *format, ...) TRII_PRINTF(3, 4);
/* After a failure: sends what it left to be sent, and then closes our side; false: the socket is
 * full. */
bool tcp_send_rest(tcp_conn *c);
/* Fails the group, since the peer's frame is of another call than ours. */
void tcp_fail_mismatch(tcp_group *g, const trii_collective *ours, int peer,
                       const tcp_frame *theirs);
/* Fails the group, since the peer has left it but `op` still needs the peer. */
void tcp_fail_left(tcp_conn *c, const trii_op *op);
/* Describes the call of a frame in words. */
void tcp_frame_describe(const tcp_group *g, const tcp_frame *frame, char *text, size_t size);
/* Appends the peer, the last call that it has announced, which need not be its last one, and
 * whether its process seems to be stopped; `more`: the text names another peer already. Returns the
 * length of the text. */
size_t tcp_peer_describe(const tcp_conn *c, char *text, size_t used, bool more, size_t size);

/* --- tcp_hangup.c --------------------------------------------------------- */

/* Call it when the peer has closed the connection, or it broke: reads what is left and finds out
 * what it means. Then call tcp_advance, which fails the group if necessary. */
void tcp_hang_up(tcp_conn *c);
/* The same for a peer that sent something that is not a frame. */
void tcp_hang_up_malformed(tcp_conn *c);
/* Fails the group with its pending failure, if that is due. */
void tcp_fail_if_due(tcp_group *g);
/* In a group that has failed: finds out whether the peer has ended too, and how. */
void tcp_read_after_fault(tcp_conn *c);

/* --- tcp_progress.c ------------------------------------------------------- */

/* Functions of the engine's table. */
tri_status tcp_submit(void *self, trii_op *op, bool waits);
void tcp_progress(void *self, trii_op *op, int64_t until_ns);
/* Ends an operation, which must have been removed from all lists. */
void tcp_finish(tcp_group *g, trii_op *op, tri_status status, const char *why);
/* Starts, sends and receives all that is possible now without blocking. */
void tcp_advance(tcp_group *g);
/* Called by the control thread when something has happened on this connection. */
void tcp_on_ready(trii_watch *watch, unsigned events);

/* --- tcp_unexpected.c ----------------------------------------------------- */

/* Keeps the message whose header is in c->head; false: there is no room. */
bool tcp_unexpected_keep(tcp_conn *c);
/* Keeps a send to ourselves for which there is no receive yet. */
void tcp_unexpected_send(tcp_conn *self, trii_op *op);
bool tcp_unexpected_cancel_send(tcp_conn *self, const trii_op *send);
void tcp_unexpected_free(tcp_conn *c, tcp_unexpected *kept);
/* Call it if a collective's frame, or what is left of it by c->head, cannot be taken yet. If a recv
 * waits for a later one, the frame is put aside (sets in_to); otherwise it stays in the
 * connection, and this returns false. */
bool tcp_stash_put(tcp_conn *c);
/* Frees the oldest frame that was put aside. */
void tcp_stash_drop(tcp_conn *c);
/* At the end: drops all, and ends the sends among them. */
void tcp_unexpected_fail_all(tcp_conn *c, tri_status status, const char *why);

/* --- tcp_plan.c ----------------------------------------------------------- */

/* Opens the call's streams, sets the fields that the sum needs, and allocates scratch memory. */
tri_status tcp_plan(tcp_group *g, tcp_coll *coll) TRI_MUST_CHECK;

/* --- tcp_coll.c ----------------------------------------------------------- */

/* Keeps the call that has its number, for comparisons. */
void tcp_coll_note(tcp_group *g, const trii_collective *call);
/* Whether the peer's frame is of another call than ours of this number; fails the group if so. */
bool tcp_coll_disagrees(tcp_conn *c, const tcp_frame *frame);
/* The first collective under way that still needs this peer, or NULL. */
const trii_op *tcp_coll_needing(const tcp_conn *c);
/* Describes which ranks the collective waits for. */
void tcp_coll_describe_wait(tcp_group *g, const trii_op *op, char *text, size_t size);

/* --- tcp_p2p.c ------------------------------------------------------------ */

/* Cancels a receive from any rank or a send to ourselves; false: it has found its message or its
 * receive already. */
bool tcp_p2p_cancel(tcp_group *g, trii_op *op);
void tcp_p2p_describe_wait(tcp_group *g, const trii_op *op, char *text, size_t size);

/* --- tcp_heartbeat.c ------------------------------------------------------ */

/* Begins to watch for hosts that fall silent, if there are others. The group must be complete. */
tri_status tcp_heartbeat_start(tcp_group *g) TRI_MUST_CHECK;
/* What is known of the peer, also after a failure. Guard: mutex. */
trii_loss tcp_heartbeat_loss(tcp_conn *c);

/* --- tcp_connect.c -------------------------------------------------------- */

/* Connects all pairs. g may be NULL if status says why: this rank has failed already, which is
 * reported to the others. *agreed_out (always written): whether all ranks know the result; if not,
 * the caller must agree with them. On failure some connections may be open. */
tri_status tcp_connect_all(tcp_group *g, const trii_group_args *args, tri_status status,
                           bool *agreed_out) TRI_MUST_CHECK;

#endif
