/*
 * engine.h - the contract between a process group and what moves its bytes.
 *
 * The group (call/) checks arguments, numbers calls, waits, times out, warns and records; an engine
 * moves bytes and says which ranks it waits for. Every call becomes one trii_collective inside one
 * trii_op; an engine gets those, never twenty functions. Besides this header engines include only
 * group_limits.h and group/reduce.
 *
 * Life of an operation: submit() takes it, trii_op_finish() ends it exactly once, and in
 * between its buffers are borrowed. When a group fails, its trii_fault keeps the first cause, and
 * every pending and later operation ends with that.
 */
#ifndef TRII_ENGINE_H
#define TRII_ENGINE_H

#include <stdatomic.h>
#include <string.h>

#include <trireme/device_queue.h>
#include <trireme/group.h>

#include "base/compiler.h"
#include "base/dtype.h"
#include "base/err.h"
#include "base/site.h"
#include "comm/group/kinds.h"

#define TRII_ENGINE_ABI 11u
#define TRII_ALLOC_ROOM ((size_t)256)

/* One call, checked: the buffers do not overlap wrongly, bytes does not overflow, root and
 * peer exist, dtype and op fit together. */
typedef struct trii_collective {
    trii_kind kind;
    tri_dtype dtype; /* NONE for a barrier */
    tri_redop op;    /* TRII_REDOP_PREMUL_SUM (base/dtype.h): the sum, with each rank's factor */
    int root;        /* broadcast, reduce, gather, scatter: the root; send, recv: the peer (recv
                        any: -1); all_gather_v and reduce_scatter_v: hash of the parts; else 0 */
    int tag;         /* send, recv */
    bool scaled;     /* the group's: asked for with a factor */
    const void *src; /* broadcast: the same as dst; recv, scatter but at the root: NULL */
    void *dst;       /* send, reduce and gather but at the root: NULL */
    size_t count;    /* elements of one rank's part (all_gather: src, reduce_scatter: dst);
                        all_gather_v, reduce_scatter_v: of all parts; all_to_all_v: 0; recv: for
                        which there is room */
    size_t bytes;    /* count * size of dtype */
    /* Element at which the part of rank r begins in src or dst, [size + 1]; NULL = r * count. Only
     * all_to_all_v has both; in src: reduce_scatter_v; in dst: all_gather_v. */
    const size_t *src_parts, *dst_parts;
    int *from;       /* recv any: whose message it was, written before the end; else NULL */
    void *temporary; /* the group's: freed with the operation */
    float factor;    /* the group's: of a premul_sum; src is scaled already */
    int parts;       /* the group's: numbers in one element of the caller's; 2 = complex */
    uint64_t seq;    /* 1, 2, ... over the group's collectives; send, recv: over a pair's sends
                        or receives (each direction by itself, all tags together) */
    trii_site site;  /* caller's source line; file NULL if unknown */
    /* Set by composites only. A piece of a larger call: the whole call, as the user made it, which
     * ranks compare and messages name instead of this one; NULL = this is the whole. */
    const struct trii_collective *piece_of;
} trii_collective;

/* The call that ranks compare and messages name. */
static inline const trii_collective *trii_collective_whole(const trii_collective *call)
{
    return call->piece_of != NULL ? call->piece_of : call;
}

/* "all_reduce #7 of 100 f32, sum (train.c:12)": the call in words, into text. */
void trii_collective_describe(const trii_collective *call, char *text, size_t size);
/* The line of a MISMATCH, the same from every engine and on every rank: both ranks' calls with
 * their source lines, the lower rank's first. */
void trii_collective_disagree(int rank_a, const trii_collective *a, int rank_b,
                              const trii_collective *b, char *text, size_t size);
/* Whether two ranks make the same call. */
static inline bool trii_collective_agree(const trii_collective *a, const trii_collective *b)
{
    return a->kind == b->kind && a->dtype == b->dtype && a->op == b->op && a->root == b->root &&
           a->count == b->count;
}
/* Where the part of `rank` begins and how long it is, in elements; parts as in the call. */
static inline size_t trii_part_at(const size_t *parts, size_t count, int rank)
{
    return parts != NULL ? parts[rank] : count * (size_t)rank;
}
static inline size_t trii_part_count(const size_t *parts, size_t count, int rank)
{
    return parts != NULL ? parts[rank + 1] - parts[rank] : count;
}

/* For a struct that each call clears: in two halves, each a few stores. The whole would be cleared
 * by rep stos, which takes 10 ns of a call that takes 170. */
static TRII_INLINE void trii_clear(void *p, size_t bytes)
{
    memset(p, 0, bytes / 2);
    memset((char *)p + bytes / 2, 0, bytes - bytes / 2);
}

/* --- the group's first failure -------------------------------------------- */

typedef struct trii_fault {
    atomic_int status; /* 0 = none; written last, so text is whole once it is set */
    atomic_int claimed;
    atomic_int lost_rank; /* 1 + a rank that is known to be lost; 0 = none */
    char text[TRII_ERR_BYTES];
} trii_fault;

/* The first caller wins; later causes are dropped. Any thread. True if this call set it. A cause
 * that is not of the group's range becomes one that is: GROUP_TIMEOUT, or ABORTED with its name
 * before the text. */
bool trii_fault_raise(trii_fault *fault, tri_status status, const char *format, ...)
    TRII_PRINTF(3, 4);
/* TRI_OK or the cause. */
static inline tri_status trii_fault_status(const trii_fault *fault)
{
    return (tri_status)atomic_load_explicit(&fault->status, memory_order_acquire);
}

/* The cause of a fault that has been raised, perhaps by a thread that is still copying its text,
 * for which it waits; ABORTED if that thread does not finish within a second (in a debugger). */
tri_status trii_fault_cause(const trii_fault *fault);

/* --- operations ----------------------------------------------------------- */

typedef struct trii_op trii_op;

/* Lives on the caller's stack (blocking call) or in a tri_work; the engine may use next and
 * scratch while it owns the operation. trii_op_init fills it; the rest is not zeroed. */
struct trii_op {
    union {
        const trii_collective call; /* engines only read it */
        trii_collective made;       /* the same, until it is submitted */
    };
    atomic_int status;           /* TRI_INPROGRESS until finished; also a futex */
    void (*finished)(trii_op *); /* the group's; NULL for blocking calls */
    uint64_t record;             /* the group's; number in the flight recorder, 0 = none */
    /* The group's; written only for an engine with `device`: the calling thread's current queue of
     * that, NULL = the default one. Borrowed until submit returns. The operation comes after what
     * is on it then (trireme/device_queue.h). */
    void *queue;
    atomic_int *counted; /* a composite's: less one at the end; or NULL */
    /* Of a message only; as in `call`, but for what an engine writes to a receive: whose message it
     * has chosen (recv any; -1 before), and at the end what came. */
    int peer; /* a number of the engine's */
    size_t count, bytes;
    const int *names; /* a composite's: the ranks' numbers for texts; NULL = 0, 1, ... */
    atomic_int *won;  /* a composite's, of a recv any that two engines have: the one that sets it
                         takes a message */
    trii_op *next;    /* engine's */
    uint64_t scratch[16];       /* engine's; zero at submit */
    char error[TRII_ERR_BYTES]; /* set by finish when status < 0 */
};

/* Its call in words, or that of which it is a piece. */
void trii_op_describe(const trii_op *op, char *text, size_t size);
/* Last act of an operation: any thread, exactly once, after which the engine must not touch
 * it. why: copied; NULL on TRI_OK. */
void trii_op_finish(trii_op *op, tri_status status, const char *why);
static inline tri_status trii_op_status(const trii_op *op)
{
    int status = atomic_load_explicit(&op->status, memory_order_acquire);

    return status > 0 ? TRI_INPROGRESS : (tri_status)status;
}
/* Whether this engine wins a receive from any rank, and may take a message for it; then it must. */
static inline bool trii_op_win(const trii_op *op)
{
    int nobody = 0;

    return op->won == NULL || atomic_compare_exchange_strong(op->won, &nobody, 1);
}
static inline bool trii_op_is_won(const trii_op *op)
{
    return op->won != NULL && atomic_load(op->won) != 0;
}
/* For engines whose operations are finished by another thread: sleep until op is finished or
 * the monotonic time until_ns has come. */
void trii_op_sleep(trii_op *op, int64_t until_ns);

/* For create(): every rank of the group says whether its part of `step` went well (status and,
 * through the error line, why not), and learns whether everybody's did: TRI_OK, or the status
 * of the lowest failing rank with its line (before those that are ABORTED because of another), the
 * same on all ranks; TIMEOUT names the ranks that did not say. Blocks until all said or
 * args->deadline_ns. */
struct trii_group_args;
tri_status trii_group_agree(const struct trii_group_args *args, const char *step,
                            tri_status mine) TRI_MUST_CHECK;
/* The same, and everybody's text: texts_out [size], to be freed with tri_store_free; written on OK
 * only. text: NULL allowed if `mine` is a failure. size must be above 1. */
tri_status trii_group_gather(const struct trii_group_args *args, const char *step, tri_status mine,
                             const char *text, char **texts_out) TRI_MUST_CHECK;
typedef struct trii_engine_id {
    const char *what;    /* "engine NAME" */
    const size_t *sizes; /* [n_sizes]: of the structures that ranks share or send */
    int n_sizes;
} trii_engine_id;
/* The same as the first step of create(), whichever engine it is: so ranks that have chosen
 * different ones meet here, and so do those of different builds of the library, whose layouts of
 * what they share or send may differ. All ranks fail then: INVALID_ARG, STATE (names two of them).
 */
tri_status trii_group_begin(const struct trii_group_args *args, const trii_engine_id *id,
                            tri_status mine, const char *text, char **texts_out) TRI_MUST_CHECK;
/* The failure that args->is_over means. */
tri_status trii_group_is_over(const struct trii_group_args *args);
/* Milliseconds until args->deadline_ns for store calls: at least 1. */
int64_t trii_group_left_ms(const struct trii_group_args *args);

/* --- the table ------------------------------------------------------------ */

typedef struct trii_group_args {
    tri_store *store; /* already private to this group: plain key names cannot collide.
                         Borrowed for create only, NULL if size is 1 */
    int rank;
    int size;
    int64_t timeout_ns;    /* default of waits; INT64_MAX = none */
    int64_t deadline_ns;   /* monotonic; forming the group must end by then */
    const char *name;      /* for messages; copy it */
    const char *bind_host; /* tri_group_options.bind_host or NULL; borrowed for create */
    trii_fault *fault;     /* the group's; outlives self */
    const int *names;      /* [size]: the ranks' numbers in messages and in fault->lost_rank; NULL =
                              0, 1, ...; outlives self */
    /* NULL, or asked now and then by a rank that waits while the group forms: true = a rank of it
     * will never come. */
    bool (*is_over)(void *arg);
    void *is_over_arg;
    /* NULL, or told by a rank that waits for the others no longer, before it takes back what they
     * may have seen of it. arg: is_over_arg. */
    void (*give_up)(void *arg);
} trii_group_args;

/* What is known of another rank. */
typedef enum trii_loss {
    TRII_LOSS_NONE = 0, /* nothing bad */
    TRII_LOSS_CUT,      /* its connection broke or its host is silent, its process may run */
    TRII_LOSS_ENDED,    /* its process has ended, or it has left the group */
} trii_loss;

static inline int trii_rank_name(const int *names, int rank)
{
    return names != NULL ? names[rank] : rank;
}

typedef struct trii_engine {
    uint32_t abi;     /* TRII_ENGINE_ABI; another number is refused */
    uint32_t size;    /* sizeof(trii_engine) that the engine was built with */
    const char *name; /* as in tri_group_options.engine */
    uint32_t kinds;   /* which calls it has (kinds.h); others are refused before they reach it */
    bool to_self;     /* has messages of a rank to itself, and cancel_recv */

    /* Optional: the device that buffers are the memory of, which only the engine touches: a
     * premul_sum comes unscaled, with call->factor, and operations with their queue. Called with
     * each call, before submit. NULL = buffers are the host's. */
    tri_device (*device)(const void *self);

    /* Required. Blocks until all ranks are connected, at most until args->deadline_ns. Begins
     * with trii_group_begin (plug-ins: the group does). Every rank succeeds or every rank fails
     * (agree through the store). On failure leaves nothing. Errors: UNSUPPORTED (this engine
     * cannot serve these ranks; auto tries the next), TIMEOUT (names the missing ranks), NO_MEMORY,
     * IO. */
    tri_status (*create)(const trii_group_args *args, void **self_out);

    /* Optional, both or none: memory that the engine reads and writes without staging;
     * zeroed, 64-byte aligned. Collective. NULL = heap. May block. */
    tri_status (*alloc)(void *self, size_t bytes, void **p_out);
    void (*free)(void *self, void *p);
    /* Optional, of an engine whose alloc may fail for some ranks while others get their memory: all
     * tell each other then, in this room of TRII_ALLOC_ROOM bytes a rank, since to get some may be
     * just what fails. NULL, or NULL returned = alloc fails for all ranks or none. */
    void *(*alloc_room)(void *self);

    /* Required. Takes op and starts it; never blocks on peers. On failure (returned, with
     * the error line) the operation was not taken. A failed group: finish or return its
     * fault. Calls of one group come one after the other (under the group's lock).
     * waits: the caller will wait for it, so the engine may first, as long as that makes sense
     * without the clock and without a sleep; op may or may not be finished on return. */
    tri_status (*submit)(void *self, trii_op *op, bool waits);

    /* Required. Help op (and all others of the group) along until op is finished or the
     * monotonic time until_ns has come; 0 = one look, never blocks. Must return soon after
     * a fault was raised, with op finished by it. Several threads may be inside at once. */
    void (*progress)(void *self, trii_op *op, int64_t until_ns);

    /* Required. The rank that an unfinished op waits for, in words: "rank 2 (its last collective:
     * ...)", as much as is known. Any thread, never blocks. */
    void (*describe_wait)(void *self, trii_op *op, char *text, size_t size);

    /* Required. The fault was raised: end local waits, tell the peers. Never blocks, may come
     * twice and from any thread. */
    void (*abort)(void *self);

    /* Required. No call runs and none will come: leave, so that peers know that this is no
     * failure (or that it is, after a fault); frees self. Leaving alone raises no fault: with
     * unfinished operations, whose handles nobody holds, the engine raises ABORTED, and they are
     * finished with it. Must not wait for peers for more than a moment. */
    void (*destroy)(void *self);

    /* Optional. No call will come any more, but somebody holds on to the group, as handles of calls
     * that are over do: as destroy, but self and the memory that alloc gave stay, until destroy
     * comes. All operations are finished then; once is enough. NULL = peers learn it by destroy. */
    void (*leave)(void *self);

    /* Optional. Breaks the connection to a peer, as a network would: `draw` chooses which, `half`
     * breaks only the direction to it. For chaos.h; any thread, never blocks. */
    void (*disconnect)(void *self, uint32_t draw, bool half);

    /* Optional: what is known of this other rank, also after a failure. NULL = nothing. Any thread,
     * never blocks. */
    trii_loss (*loss)(void *self, int rank);

    /* Optional. `other` is a group of this engine with the same ranks in the same order, and
     * outlives self: buffers in its arena count as in the arena of self, too. */
    void (*share_arena)(void *self, const void *other);

    /* Optional. Takes back a receive from any rank that another engine has won, or a send to this
     * rank itself whose receive is not posted. False: it is finished already, or will be. An engine
     * that has this ends a receive with `won` for which no sender is left with PEER_LOST, and
     * the group goes on. */
    bool (*cancel_recv)(void *self, trii_op *op);

    /* Optional, both or none: how ranks find that they disagree about calls which make none of them
     * send anything to the others. Any thread, never blocks.
     * skip: a call of the group goes to another engine, so its number will not come here; before
     * any submit of a later one.
     * announce_wait: op (of this engine or another) has been waiting for long. Tells all peers the
     * first call that it waits for, and compares it with what they call under this number or have
     * announced: MISMATCH. */
    void (*skip)(void *self, const trii_collective *call);
    void (*announce_wait)(void *self, const trii_op *op);
} trii_engine;

/* comm/registry/comm.c: the engines of this library, best first, NULL at the end. */
const trii_engine *const *trii_engines(void);

#endif
