/*
 * shm.h - the engine for ranks of one host, inside: what its files share.
 *
 *   shm.c        the table; running, waiting, waking, faults
 *   connect.c    meeting the peers, mapping their blocks, watching them
 *   slot.c       arriving, who has arrived, disagreement
 *   direct.c     what happens once all have arrived
 *   cma.c       the same for memory that the peers do not map but may read
 *   cma_sum.c   ... and sum
 *   staged.c      the same for memory that they may not even read, or that is little
 *   parts.c      what a rank reads from which peer, for every kind of call
 *   pair.c       send and recv: posting, ending, describing
 *   pair_in.c    ... what comes from a rank
 *   pair_out.c   ... what goes to one
 *   arena.c      memory that all ranks map
 */
#ifndef TRII_SHM_H
#define TRII_SHM_H

#include "engines/shm/layout.h"
#include "group/engine.h"
#include "os/futex.h"
#include "os/loop.h"
#include "os/shmem.h"
#include "os/thread.h"

extern const trii_engine trii_engine_shm;

/* The largest group: parts of a stage are at least a few lines for every rank. */
#define SHM_MAX_RANKS 256
#define SHM_MAX_EXTENTS 64
#define SHM_SCRATCH_BYTES ((size_t)128 << 10) /* stays in the second-level cache */
#define SHM_CMA_PIECE_MIN ((size_t)8 << 10)   /* below, system calls cost more than the copy */

/* How a collective is done, decided when all have arrived. */
typedef enum shm_path {
    SHM_PATH_INLINE,   /* data inside the arrivals */
    SHM_PATH_ONE_SHOT, /* every rank put its data into its slot part before it arrived */
    SHM_PATH_DIRECT,   /* all buffers in arenas */
    SHM_PATH_CMA,      /* out of the peers' heaps */
    SHM_PATH_STAGED    /* through the stages, piece by piece */
} shm_path;

typedef enum shm_phase {
    SHM_QUEUED,
    SHM_ARRIVED,
    SHM_RUNNING,
    SHM_SUMMED, /* cma_sum.c: our slice is */
    SHM_WAITING,
    SHM_DONE
} shm_phase;

/* A buffer of a call. */
typedef enum shm_buffer { SHM_SRC, SHM_DST } shm_buffer;

/* An operation's progress, in its scratch. */
typedef struct shm_step {
    trii_waiting waiting; /* send: while it is offered; recv: without a message */
    shm_phase phase;
    shm_path path;
    int seen;                /* ranks below this have arrived */
    unsigned flags;          /* of our arrival */
    unsigned everywhere;     /* flags that all ranks so far have (broadcast: that the root has) */
    int cell;                /* recv: of the message */
    uint64_t src_at, dst_at; /* our arena addresses, 0 = heap */
    uint64_t first_piece, n_pieces;
    uint64_t in, out; /* pieces of this operation that we have put in, taken out */
    uint64_t moved;   /* send, recv: bytes */
    uint64_t number;  /* recv: of the send */
} shm_step;

static inline shm_step *shm_step_of(trii_op *op)
{
    _Static_assert(sizeof(shm_step) <= sizeof(op->scratch), "the scratch holds a step");
    return (shm_step *)(void *)op->scratch;
}

typedef struct shm_group shm_group;

/* Operations, first in, first out. */
typedef struct shm_queue {
    trii_op *first, *last;
} shm_queue;

typedef struct shm_peer {
    shm_group *group;
    int rank;
    shm_block *block;
    trii_shmem memory;
    int socket; /* for descriptors and to notice the end of the peer; -1 = ourselves */
    int pidfd;  /* -1 = none: same process, or not visible */
    trii_watch socket_watch;
    trii_watch process_watch;

    /* Messages to it. Guard: lock, as all below. */
    shm_queue sends;      /* not announced, in the order of posting */
    trii_tags offered;    /* announced, by number: wait for the answer */
    shm_queue asked;      /* their data go through the ring, one after the other */
    uint64_t n_announced; /* announcements */
    uint64_t n_acted;     /* answers that we have acted on */
    uint64_t put;         /* bytes put into the ring */

    /* Messages from it. */
    trii_tags recvs; /* no message has come for them */
    trii_tags kept;  /* messages that no receive has come for */
    size_t kept_bytes;
    struct shm_kept *in_cell[SHM_MESSAGES]; /* of those: whose data still lie in their cells */
    int n_in_cell;
    shm_queue taking;    /* the data come through their cells */
    shm_queue to_answer; /* offered messages that we have to answer */
    shm_queue awaited;   /* asked for, in that order */
    uint64_t n_heard;    /* announcements */
    uint64_t n_answered; /* answers that we have given */
    uint64_t taken;      /* bytes taken out of the ring */
} shm_peer;

/* A file of arena memory, the same size on every rank. */
typedef struct shm_extent {
    size_t bytes;
    trii_shmem *memory; /* [size], by rank */
} shm_extent;

struct shm_group {
    int rank;
    int size;
    const char *name;
    trii_fault *fault;
    const int *names; /* of the ranks, in messages; NULL = their numbers */
    int64_t timeout_ns;
    shm_block *block; /* ours */
    shm_peer *peers;  /* [size], ourselves too */
    trii_loop *loop;
    trii_timer hold; /* has the control thread hold our death mark */

    trii_lock lock;
    trii_op *queue; /* guard: lock; collectives not done, in order */
    trii_op **queue_tail;
    uint64_t completed;        /* guard: lock */
    uint32_t completed_ahead;  /* guard: lock; bit i: completed + 1 + i is done */
    uint64_t completed_by_all; /* guard: lock; a lower bound */
    uint64_t next_piece;       /* guard: lock; the first that belongs to no operation yet */
    int n_pair_ops;            /* guard: lock; sends and receives that are not done */
    uint64_t n_recvs;          /* guard: lock; ever posted */
    trii_tags any_recvs;       /* guard: lock; from any rank, without a message yet */
    bool must_wake;            /* guard: lock; we published something since the last wake */
    atomic_int told;           /* the peers were told that we failed */
    int cma;                   /* all ranks may read each other's heap; 2: wherever they can */
    uint64_t cma_probe;        /* the block's nonce: what the peers read to find out */
    unsigned char *scratch;    /* SHM_SCRATCH_BYTES; guard: lock */
    int64_t checked_ns;        /* guard: lock; when a look last saw how the peers are */
    bool crowded;              /* more ranks than cores: who waits hands its core on */
    int64_t spin_ns;           /* guard: lock; how long to spin now */
    int64_t spin_max_ns;
    const char *files[SHM_FILES]; /* guard: lock; whose text is in head.files */

    const shm_group *arena; /* whose extents are looked at: this group, or the adopted one */
    trii_mutex arena_lock;
    struct shm_arena_call *arena_call; /* guard: arena_lock; of arena.c */
    atomic_int n_extents; /* grows under arena_lock; an extent never changes once counted */
    shm_extent extents[SHM_MAX_EXTENTS];
    struct shm_span *spans; /* guard: arena_lock; pieces of the extents, in order */
};

/* What messages call a rank. */
static inline int shm_name(const shm_group *g, int rank)
{
    return trii_rank_name(g->names, rank);
}

/* --- connect.c --- */
tri_status shm_create(const trii_group_args *args, void **self_out);
/* Frees everything that create made; half-built groups too. */
void shm_release(shm_group *g);

/* A peer's process has ended: unless it left or failed before, so does the group, with what the
 * peer did last. False: it had left or failed. Any thread. */
bool shm_peer_ended(shm_group *g, int rank, const char *how);

/* --- shm.c --- */
/* Whoever sleeps sees what we published since the last time. Guard: lock. */
void shm_wake_peers(shm_group *g);
/* Ends what our own rank waits for; any thread. */
void shm_wake_self(shm_group *g);
/* Whether a peer has failed or ended: then so have we, with its reason. Any thread. */
bool shm_check_peers(shm_group *g);
/* The fault was raised: tell the peers and end local waits. Any thread. */
void shm_abort(void *self);
/* The first failure of the group, found by us: kept; whoever holds the lock tells the peers. */
void shm_fail(shm_group *g, tri_status status, const char *format, ...) TRII_PRINTF(3, 4);

/* --- slot.c (guard: lock) --- */
bool shm_slot_free(shm_group *g, uint64_t seq);
void shm_arrive(shm_group *g, trii_op *op);
/* Whether all ranks have arrived; a disagreement fails the group. */
bool shm_all_arrived(shm_group *g, trii_op *op);
/* Word for the source line of a call, its file put into our table. */
uint64_t shm_place(shm_group *g, const trii_site *site, unsigned flags);
/* The latest collective of a rank in words. Any thread. */
void shm_describe_last(const shm_group *g, int rank, char *text, size_t size);
/* The source line that a word of SHM_PLACE means; its file is written into `file`. */
trii_site shm_site_of(const shm_block *block, uint64_t place, char file[SHM_FILE_TEXT]);
static inline shm_slot *shm_slot_of(const shm_group *g, int rank, uint64_t seq)
{
    return &g->peers[rank].block->slots[seq % SHM_SLOTS];
}

/* --- direct.c (guard: lock) --- */
/* Chooses the path of an operation in which all have arrived. */
void shm_begin(shm_group *g, trii_op *op);
/* Does what can be done now; sets SHM_DONE at the end. True if something was done. */
bool shm_advance(shm_group *g, trii_op *op);
/* We read nothing of the peers any more; whether that holds for all, then SHM_DONE. */
void shm_finish_reading(shm_group *g, trii_op *op);
bool shm_all_finished(shm_group *g, trii_op *op);
/* The part of [0, count) that belongs to `rank`: whole lines but for the end. */
void shm_slice(const shm_group *g, int rank, size_t count, size_t elem_bytes, size_t *from,
               size_t *to);

/* --- staged.c (guard: lock) --- */
void shm_staged_begin(shm_group *g, trii_op *op);
bool shm_staged_advance(shm_group *g, trii_op *op);

/* --- cma.c (guard: lock) --- */
/* Whether we can read every peer's heap; when all blocks are mapped. */
bool shm_cma_works(shm_group *g);
/* Whether an operation in which all have arrived goes this way: the same answer on all ranks. */
bool shm_cma_pays(const shm_group *g, const trii_collective *call);
/* Whether it then sums (cma_sum.c). */
bool shm_cma_sums(trii_kind kind);
/* Reads all that this rank needs of the others; false: the group has failed. */
bool shm_cma_all(shm_group *g, const trii_op *op);
/* Reads `bytes` at `offset` of a buffer of rank r's call; false: the group has failed. */
bool shm_cma_read(shm_group *g, int r, const trii_op *op, shm_buffer which, size_t offset, void *to,
                  size_t bytes);

/* --- cma_sum.c (guard: lock) --- */
/* Whether the scratch has room for pieces of so many ranks. */
bool shm_cma_sum_fits(const shm_group *g);
bool shm_cma_sum_advance(shm_group *g, trii_op *op);

/* --- parts.c --- */
/* Whether a rank's input has a region for every rank (else all of it is for all, or the root). */
bool shm_has_regions(trii_kind kind);
/* Whether this rank puts anything in. */
bool shm_puts(const shm_group *g, const trii_collective *call);
/* Elements that this rank puts in, if it does; the most that any rank does (equal on all ranks
 * but in an all_to_all_v). */
size_t shm_own_elems(const shm_group *g, const trii_collective *call);
size_t shm_most_elems(const shm_group *g, const trii_collective *call);
/* Elements of the largest part; of an all_to_all_v only once all have arrived. */
size_t shm_limit(const shm_group *g, const trii_collective *call);
/* all_to_all_v: where the parts of the rank's src begin, [size + 1]; it lies in front of its
 * one-shot part. */
const uint64_t *shm_parts_of(const shm_group *g, int rank, uint64_t seq);
/* Whether this rank sums elements [from, from + n) of all inputs into its dst. */
bool shm_sums(const shm_group *g, const trii_collective *call, size_t *from_out, size_t *n_out);
/* How many elements this rank reads from `rank`: from element from of its input into element to
 * of our dst. */
size_t shm_reads(const shm_group *g, const trii_collective *call, int rank, size_t *from_out,
                 size_t *to_out);
/* Sums or reads all of it; base_of: where a rank's input lies. */
typedef const char *shm_base_of(const shm_group *g, int rank, const trii_op *op);
void shm_take_all(shm_group *g, const trii_op *op, shm_base_of *base_of);
/* All have arrived in an all_to_all_v: do they send what we expect? Else the group fails. */
bool shm_parts_agree(shm_group *g, const trii_op *op);

/* --- pair.c (guard: lock) --- */
void shm_pair_submit(shm_group *g, trii_op *op);
bool shm_pair_advance(shm_group *g);
/* Puts aside what has come and no receive is there for, so that the senders can go on. */
bool shm_pair_listen(shm_group *g);
/* Ends all sends and receives; they are finished by the caller's status. */
void shm_pair_fail_all(shm_group *g, tri_status status, const char *why);
/* Takes back a receive from any rank, or a send to ourselves, that has no message or receive yet;
 * false: it has. */
bool shm_pair_withdraw(shm_group *g, trii_op *op);
/* Nobody is left: ends the receives from any rank that another engine has too. */
void shm_pair_end_vain(shm_group *g);
/* A send or receive that needs the peer, or NULL. */
trii_op *shm_pair_needing(const shm_peer *peer);
void shm_pair_describe(const shm_group *g, trii_op *op, char *text, size_t size);
void shm_pair_finish(shm_group *g, trii_op *op, tri_status status, const char *why);
void shm_queue_push(shm_queue *queue, trii_op *op);
trii_op *shm_queue_pop(shm_queue *queue);

/* --- pair_in.c (guard: lock) --- */
/* A receive from this rank, or from any, was posted; true: its message was kept. */
bool shm_pair_take_kept(shm_group *g, shm_peer *peer, trii_op *op);
/* Looks for new announcements. */
bool shm_pair_hear(shm_group *g, shm_peer *peer);
bool shm_pair_advance_in(shm_group *g, shm_peer *peer);
/* An offered message of this number is forgotten, if no receive has it. */
bool shm_pair_forget(shm_group *g, shm_peer *peer, uint64_t number);
/* Drops what no receive has come for. */
void shm_pair_drop_kept(shm_peer *peer);

/* --- pair_out.c (guard: lock) --- */
/* *stuck_out is set if a send finds no room. */
bool shm_pair_advance_out(shm_group *g, shm_peer *peer, bool *stuck_out);

/* --- arena.c --- */
tri_status shm_arena_init(shm_group *g);
tri_status shm_arena_alloc(void *self, size_t bytes, void **p_out);
void shm_arena_free(void *self, void *p);
void shm_arena_release(shm_group *g);
/* Arena address of `bytes` at p, or 0 if they are not in our arena. */
uint64_t shm_arena_find(const shm_group *g, const void *p, size_t bytes);
/* Where a rank's arena address lies in this process. */
static inline char *shm_arena_at(const shm_group *g, int rank, uint64_t at)
{
    return (char *)g->arena->extents[(at >> 48) - 1].memory[rank].base +
           (at & ((UINT64_C(1) << 48) - 1));
}

#endif
