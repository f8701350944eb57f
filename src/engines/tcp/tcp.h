/*
 * tcp.h - the inside of the tcp engine: a full mesh of connections, one per pair of ranks.
 *
 *   tcp.c          the engine's table: submit, progress, abort, leaving
 *   tcp_connect.c  forming the mesh through the store
 *   tcp_io.c       frames in and out of sockets; what a lost connection means
 *   tcp_coll.c     collectives as streams between pairs, and the reduction
 *   tcp_plan.c     which streams a collective has
 *   tcp_p2p.c      send and recv
 *   tcp_early.c    what comes before the call that it is for
 *   tcp_beat.c     hosts that fall silent, processes that stop
 *
 * Frames (host byte order, a header of 64 bytes and a payload) follow each other on each
 * connection in the order of the calls. Whoever has nothing to do with a collective's frame yet
 * leaves it in the kernel: that is the flow control. Of a message larger than TRII_EAGER_BYTES so
 * much comes at once, or all if that is not much more, and the rest when the receiver has a receive
 * and asks for it, upon which the send may end; from a receiver that keeps TRII_KEPT_EAGER of
 * messages without receives comes HOLD, and then nothing of a message goes out unasked unless it is
 * tiny.
 */
#ifndef TRII_ENGINE_TCP_H
#define TRII_ENGINE_TCP_H

#include "engines/matching.h"
#include "group/engine.h"
#include "os/loop.h"
#include "os/proc.h"
#include "os/socket.h"
#include "os/thread.h"
#include "os/unforked.h"

extern const trii_engine trii_engine_tcp;

#define TCP_SLOTS 4                   /* collectives under way at once */
#define TCP_PAST 16                   /* last calls that are remembered, to name them */
#define TCP_CHUNK ((size_t)128 << 10) /* reduced and sent on at once: stays in the cache */
#define TCP_RING ((size_t)1 << 20)    /* of all peers' parts that are not summed yet: as well */
#define TCP_FULL ((size_t)64 << 10)   /* sent by a rank in total: one phase instead of two */
#define TCP_EARLY TRII_KEPT_MOST      /* messages kept before their recv, per connection */
#define TCP_TAIL ((size_t)64 << 20)   /* read after the peer has closed */
#define TCP_SILENCE_MS 21000          /* of a host: an outage of ten seconds, twice, and a pause */
#define TCP_GRACE_MS 40               /* for pending calls after a failure elsewhere */
#define TCP_READ ((size_t)4096)       /* headers and small payloads come with one read */

typedef enum tcp_frame_type {
    TCP_FRAME_NONE = 0,
    TCP_FRAME_PART,    /* phase 1 of a collective: a rank's part, to be reduced or handed on */
    TCP_FRAME_RESULT,  /* phase 2: what is final */
    TCP_FRAME_MESSAGE, /* of a send */
    TCP_FRAME_OFFER,   /* the same, to be asked for: the payload is but the first part, or all */
    TCP_FRAME_WANT,    /* the rest of the peer's message `seq` shall come, if there is one */
    TCP_FRAME_REST,    /* the rest of message `seq` */
    TCP_FRAME_HOLD,    /* root 1: we keep much, offer without payload; 0: no more */
    TCP_FRAME_GOODBYE, /* the peer leaves, and this is no failure */
    TCP_FRAME_FAULT,   /* the peer's group failed: status in root, the line as payload */
    TCP_FRAME_BEAT,    /* the peer's process runs */
    TCP_FRAME_WAITS,   /* the collective that the peer has not ended for long */
    TCP_FRAME_LISTENS, /* likewise, in a send or receive */
} tcp_frame_type;

typedef struct tcp_frame {
    uint8_t type;
    uint8_t kind, dtype, op; /* the call, so that both can be named when they differ */
    int32_t root;            /* message: 0 */
    uint64_t seq;
    uint64_t count;
    uint64_t bytes; /* of the payload */
    uint32_t part;  /* message, listens: tag; fault: 1 + the lost rank; else 0 */
    uint32_t line;  /* of the caller; 0 = unknown */
    char file[24];  /* its start, zeros behind it */
} tcp_frame;
#define TCP_FILE_TEXT (sizeof(((tcp_frame *)NULL)->file) + 1)

/* Bytes between this rank and one peer in one direction, in order. */
typedef struct tcp_stream {
    char *at;
    size_t total;
    size_t framed; /* announced by headers */
    size_t done;   /* moved */
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
    bool full;        /* everybody sums everything: one phase */
    char *scratch;    /* rings of the peers' parts; what a reduce makes for the root */
    size_t scratch_bytes, ring;
} tcp_coll;

/* A frame that came before its call: a message before its recv, or a collective's frame that
 * a message was behind. */
typedef struct tcp_early {
    trii_tagged tagged; /* of a message */
    struct tcp_early *next;
    tcp_frame head;
    trii_op *send; /* to ourselves, and not copied */
    size_t done;
    size_t replayed; /* of a collective's frame */
    char data[];
} tcp_early;

struct tcp_group;

typedef struct tcp_conn {
    trii_watch watch; /* first: callbacks get its address */
    struct tcp_group *group;
    int rank;               /* of the peer */
    int fd;                 /* -1 = none */
    trii_unforked unforked; /* a forked child that has it too would hide our end */
    trii_proc_id process;   /* the peer's */
    trii_watch ending;      /* of that: a copy of its socket may outlive it */
    int process_fd;         /* -1 = not to be seen from here */
    trii_timer orphan;      /* it has ended: when we look whether all that it sent has come */
    char peer[TRII_ADDR_TEXT];
    unsigned armed; /* what the control thread watches */

    /* in */
    char *in; /* bytes that were read ahead: TCP_READ, or all that came before the end */
    size_t in_room, in_used, in_done;
    tcp_frame head;
    size_t head_done;
    bool parked; /* head is whole, but its call is not under way here */
    bool full;   /* the ring of the payload is: what is in it must be summed first */
    char *in_to; /* where the payload goes */
    size_t in_left;
    tcp_coll *in_coll; /* one of these three says whose it is; else a fault's text */
    trii_op *in_recv;
    tcp_early *in_early;
    tcp_stream *in_stream;
    bool want_in;    /* to be pumped: something may have come, or the parked call has */
    bool ended;      /* all that will ever come is in `in` */
    bool gone;       /* it said goodbye, and all before that was taken */
    bool is_lost;    /* it ended without a word */
    tri_status doom; /* the end means this failure, once all that came was taken; 0 = none */
    char doom_text[TRII_ERR_BYTES];
    tcp_frame last; /* last call heard, for messages */
    tcp_frame said; /* last that the peer has waited in for long */

    /* out */
    tcp_frame out;
    size_t out_head_left; /* of the header */
    const char *out_from;
    size_t out_left;
    tcp_coll *out_coll; /* one of these says whose it is */
    tcp_stream *out_stream;
    trii_op *out_send;
    bool out_stuck; /* the socket is full */
    bool want_out;  /* to be pumped: something may be sent */
    bool want_beat; /* nothing was sent for a while */
    bool want_say;  /* the group's `say` is to be sent */

    bool remote;      /* on another host */
    int64_t owed_ns;  /* since when its host owes us an acknowledgement; 0 = it does not */
    int64_t heard_ns; /* last frame */

    trii_op *sends, *last_send;    /* not sent, or as far as they go unasked */
    trii_tags offered;             /* the rest has to be asked for, by number */
    trii_op *asked, *last_asked;   /* and was */
    bool holds;                    /* the peer keeps much */
    trii_tags recvs;               /* without a message yet */
    trii_tags resting;             /* the first part came, by number of the send */
    trii_op *wants, *last_want;    /* receives of which the rest is to be asked for */
    bool held, want_hold;          /* we have told the peer that we keep much; shall tell it */
    trii_tags early;               /* messages without a recv */
    tcp_early *stash, *last_stash; /* frames of collectives */
    tcp_coll *stash_coll;          /* of the oldest, if it is under way */
    tcp_stream *stash_stream;
    size_t early_bytes;
} tcp_conn;

typedef struct tcp_group {
    int rank, size;
    trii_fault *fault;
    const int *names;     /* of the ranks, in messages; NULL = their numbers */
    trii_proc_id process; /* ours */
    trii_loop *loop;
    trii_mutex mutex;
    trii_cond turn;  /* the thread that polls has left, or an operation is finished */
    bool polling;    /* guarded by mutex, as all below; a thread polls for all */
    int waiting;     /* threads on `turn` */
    int wake_fd;     /* ends the poll */
    bool failed;     /* the fault was acted on */
    bool left;       /* only destroy is to come */
    int pending;     /* operations */
    int64_t doom_ns; /* it happens then at the latest */
    trii_timer doom_timer;
    trii_timer beat_timer;
    int64_t silence_ns;             /* how long a host may be silent; 0 = for ever */
    tcp_conn *doomed_by;            /* the first connection whose end means a failure */
    tcp_frame say;                  /* the last call that we have waited in for long */
    uint64_t started;               /* seq of the last collective that was started */
    trii_collective past[TCP_PAST]; /* the last ones, by seq; their buffers may be gone; and those
                                       that were noted */
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

/* --- tcp_connect.c -------------------------------------------------------------------------- */

/* The connection to this peer, from now on the group's. */
void tcp_conn_take(tcp_conn *c, int fd);
/* Connects all pairs. g may be NULL if status says why: this rank has failed already, and
 * the others are told. *agreed_out (always written): all ranks know the result; else the
 * caller must agree with them. On failure some connections may be open. */
tri_status tcp_connect_all(tcp_group *g, const trii_group_args *args, tri_status status,
                           bool *agreed_out) TRI_MUST_CHECK;

/* --- tcp_io.c ------------------------------------------------------------------------------- */

/* Everything that can be done now without blocking: starts, sends, receives. */
void tcp_advance(tcp_group *g);
/* The peer closed or the connection broke: reads what is left and finds out what it means.
 * tcp_advance must follow: it fails the group if that is called for. */
void tcp_hang_up(tcp_conn *c);
/* What is known of the peer, also after a failure. Guard: mutex. */
trii_loss tcp_loss(tcp_conn *c);
/* Raises the fault, or takes the one that was raised: everything pending ends with it, peers
 * are told. */
void tcp_fail(tcp_group *g, tri_status status, const char *format, ...) TRII_PRINTF(3, 4);
/* The call of a frame in words. */
void tcp_frame_describe(const tcp_group *g, const tcp_frame *frame, char *text, size_t size);
/* The peer's frame is of another call than ours. */
void tcp_fail_mismatch(tcp_group *g, const trii_collective *ours, int peer,
                       const tcp_frame *theirs);
void tcp_frame_fill(tcp_frame *frame, tcp_frame_type type, const trii_collective *piece);
/* Ends an operation that is in no list any more. */
void tcp_finish(tcp_group *g, trii_op *op, tri_status status, const char *why);
/* The peer has left in order, but `op` still needs it. */
void tcp_fail_gone(tcp_conn *c, const trii_op *op);

/* --- tcp_coll.c ----------------------------------------------------------------------------- */

/* Whether the peer's frame is of another call than ours of this number: then the group fails. */
bool tcp_coll_disagrees(tcp_conn *c, const tcp_frame *frame);
/* Starts queued collectives as long as there is room. */
void tcp_coll_start_queued(tcp_group *g);
/* The collective of this frame, or NULL if it is not under way yet or the group failed, as a
 * wrong frame makes it do. *stream_out: where the payload goes. */
tcp_coll *tcp_coll_accept(tcp_conn *c, const tcp_frame *frame, tcp_stream **stream_out);
/* Where the next bytes of the stream go, and how many may come now: at most `bytes`; 0 = its ring
 * is full. */
size_t tcp_coll_room(const tcp_coll *coll, const tcp_stream *stream, size_t bytes, char **to_out);
/* Bytes came; the stream's counters say how many. */
void tcp_coll_came(tcp_conn *c, tcp_coll *coll, tcp_stream *stream);
/* The next frame for this peer: fills conn's out fields; false if there is none now. */
bool tcp_coll_next_frame(tcp_conn *c);
void tcp_coll_sent(tcp_conn *c, tcp_coll *coll, tcp_stream *stream);
/* The first collective under way that still needs this peer, or NULL. */
const trii_op *tcp_coll_needing(const tcp_group *g, int peer);
void tcp_coll_describe_wait(tcp_group *g, const trii_op *op, char *text, size_t size);
/* Appends the peer and the last call that was heard from it, which need not be its last one;
 * `more`: behind another one. Returns how long the text is. */
size_t tcp_peer_describe(const tcp_conn *c, char *text, size_t used, bool more, size_t size);

/* --- tcp_plan.c ----------------------------------------------------------------------------- */

bool tcp_reduces(trii_kind kind);
/* Opens the streams, and fills what is known about the sum. Obtains the scratch memory. */
tri_status tcp_plan(tcp_group *g, tcp_coll *coll) TRI_MUST_CHECK;

/* --- tcp_beat.c ------------------------------------------------------------------------------ */

/* The group is formed: begins to watch for hosts that fall silent, if there are others. */
tri_status tcp_beat_start(tcp_group *g) TRI_MUST_CHECK;
/* Whether the host that the facts are about has been silent for too long. *owed_ns: since when,
 * kept from look to look, 0 at first. */
bool tcp_beat_is_silent(const trii_socket_health *health, int64_t now, int64_t silence_ns,
                        int64_t *owed_ns);
/* Appends what is known about the peer's process, if it does not seem to run. */
size_t tcp_beat_describe(const tcp_conn *c, char *text, size_t used, size_t size);

/* --- tcp_p2p.c ------------------------------------------------------------------------------ */

void tcp_p2p_post(tcp_group *g, trii_op *op);
/* The next frame for this peer: what is said about messages, and messages. */
bool tcp_p2p_next_note(tcp_conn *c);
bool tcp_p2p_next_frame(tcp_conn *c);
void tcp_p2p_sent(tcp_conn *c);
/* A message begins: says where it goes (fills in_to and the owner); false = parked. */
bool tcp_p2p_accept(tcp_conn *c);
/* The rest of one, likewise; false = nobody asked for it. */
bool tcp_p2p_accept_rest(tcp_conn *c);
void tcp_p2p_came(tcp_conn *c);
/* The peer asks for the rest of a message. */
void tcp_p2p_wanted(tcp_conn *c);
/* The receive has the first part of a message, or all of it: ends it or asks for the rest. */
void tcp_p2p_got(tcp_conn *c, const tcp_frame *head, trii_op *op);
/* A receive has come for the message of which `data` has what came so far. */
void tcp_p2p_take_over(tcp_conn *c, trii_op *op, const char *data);
/* The first operation that needs this peer, or NULL. */
const trii_op *tcp_p2p_needing(const tcp_conn *c);
/* The receive that could take a message of any rank, if no rank is left to send one. Those that
 * another engine has too are ended. */
const trii_op *tcp_any_recv_in_vain(tcp_group *g);
/* Takes back a receive from any rank or a send to ourselves; false: it has what it waits for. */
bool tcp_p2p_withdraw(tcp_group *g, trii_op *op);
/* Ends the receives from any rank. */
void tcp_p2p_fail_any(tcp_group *g, tri_status status, const char *why);
/* Takes every operation out of its lists and ends it; drops early messages. */
void tcp_p2p_fail_all(tcp_conn *c, tri_status status, const char *why);
void tcp_p2p_describe(tcp_group *g, const trii_op *op, char *text, size_t size);

/* --- tcp_early.c ---------------------------------------------------------------------------- */

/* What a frame says of its message, and whether its payload is no more than that. */
trii_message tcp_message_of(const tcp_frame *head);
bool tcp_message_is_sound(const tcp_frame *head);
/* Keeps the message that begins; false: there is no room. */
bool tcp_early_keep(tcp_conn *c);
/* Gives a kept message to a receive; true: there was one. */
bool tcp_early_take(tcp_conn *c, trii_op *op);
/* A send to ourselves for which there is no receive yet. */
void tcp_early_send(tcp_conn *self, trii_op *op);
bool tcp_early_take_back(tcp_conn *self, const trii_op *send);
/* At the end: ends the sends and receives among them. */
void tcp_early_fail_all(tcp_conn *c, tri_status status, const char *why);
/* A collective's frame cannot be taken yet, or others were put aside before it. If a recv waits for
 * what is behind it, it is put aside (fills in_to and the owner); else false: it stays in the
 * connection. */
bool tcp_stash_accept(tcp_conn *c);
/* The ring of the payload that comes is full: puts aside what is left of it, likewise. */
bool tcp_stash_rest(tcp_conn *c);
/* The oldest frame that was put aside goes where it belongs, if that can be by now. */
bool tcp_stash_replay(tcp_conn *c);

#endif
