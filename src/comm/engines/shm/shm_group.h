/*
 * shm_group.h - a group of ranks of one host, as this process sees it. shm.h says which file does
 * what, layout.h what lies in shared memory.
 */
#ifndef TRII_SHM_GROUP_H
#define TRII_SHM_GROUP_H

#include "comm/engines/shm/layout.h"
#include "comm/engines/shm/spin.h"
#include "comm/group/engine.h"
#include "comm/group/group_limits.h"
#include "os/futex.h"
#include "os/loop.h"
#include "os/shmem.h"
#include "os/thread.h"

#define SHM_MAX_EXTENTS 64
#define SHM_SCRATCH_BYTES ((size_t)128 << 10) /* stays in the second-level cache */
#define SHM_LINE_BYTES ((size_t)64)

/* How the data of a collective move; slot.c chooses. */
typedef enum shm_path {
    SHM_PATH_INLINE,   /* inside the arrivals */
    SHM_PATH_ONE_SHOT, /* in the one-shot parts of the slots, copied there before arriving */
    SHM_PATH_DIRECT,   /* all buffers lie in arenas */
    SHM_PATH_CMA,      /* read out of the peers' own memory */
    SHM_PATH_CMA_SUM,  /* ... and summed */
    SHM_PATH_STAGED    /* through the stages, piece by piece */
} shm_path;

typedef enum shm_phase {
    SHM_QUEUED,
    SHM_ARRIVED,
    SHM_RUNNING,
    SHM_SUMMED, /* cma_sum.c: this rank has summed its slice */
    SHM_WAITING,
    SHM_DONE
} shm_phase;

/* A buffer of a call. */
typedef enum shm_buffer { SHM_SRC, SHM_DST } shm_buffer;

/* An operation's progress, in its scratch. */
typedef struct shm_step {
    trii_waiting waiting; /* send: while it is offered; recv: while it has no message */
    shm_phase phase;
    shm_path path;
    int seen;                /* ranks below this have arrived */
    unsigned flags;          /* of our arrival */
    unsigned everywhere;     /* flags of all arrivals seen (broadcast: of the root's) */
    int cell;                /* recv: of the message */
    uint64_t src_at, dst_at; /* arena addresses of our buffers, 0 = not in an arena */
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

static inline void shm_queue_push(shm_queue *queue, trii_op *op)
{
    op->next = NULL;
    if (queue->first != NULL)
        queue->last->next = op;
    else
        queue->first = op;
    queue->last = op;
}

static inline trii_op *shm_queue_pop(shm_queue *queue)
{
    trii_op *op = queue->first;

    queue->first = op->next;
    return op;
}

typedef struct shm_peer {
    shm_group *group;
    int rank;
    shm_block *block;
    trii_shmem memory;
    int socket; /* passes descriptors, and closes when the peer ends; -1 = ourselves */
    int pidfd;  /* -1 = none: same process, or not visible */
    trii_watch socket_watch;
    trii_watch process_watch;

    /* Messages to it. Guard: lock, as all below. */
    shm_queue sends;         /* not announced, in the order of posting */
    trii_tags offered;       /* announced, by number: wait for the answer */
    shm_queue to_ring;       /* the peer asked for their data; in that order */
    uint64_t n_announced;    /* announcements */
    uint64_t n_answers_seen; /* answers that we have acted on */
    uint64_t ring_put;       /* bytes put into the ring */

    /* Messages from it. */
    trii_tags recvs;      /* no message has come for them */
    trii_tags unexpected; /* messages that no receive has been posted for */
    size_t unexpected_bytes;
    struct shm_unexpected *in_cell[SHM_CELLS]; /* of those: whose data still lie in their cells */
    int n_in_cell;
    shm_queue from_cells; /* their data come through cells */
    shm_queue to_answer;  /* offered messages that we have to answer */
    shm_queue from_ring;  /* we asked for their data; in that order */
    uint64_t n_received;  /* announcements */
    uint64_t n_answered;  /* answers that we have given */
    uint64_t ring_taken;  /* bytes taken out of the ring */
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
    trii_timer death_mark_timer; /* has the control thread hold our death mark */

    trii_lock lock;
    trii_op *queue; /* guard: lock; collectives not done, in order */
    trii_op **queue_tail;
    uint64_t completed;           /* guard: lock */
    uint32_t completed_ahead;     /* guard: lock; bit i: completed + 1 + i is done */
    uint64_t completed_by_all;    /* guard: lock; a lower bound */
    uint64_t next_piece;          /* guard: lock; the first that belongs to no operation yet */
    int n_pair_ops;               /* guard: lock; sends and receives that are not done */
    uint64_t n_recvs;             /* guard: lock; ever posted */
    trii_tags any_recvs;          /* guard: lock; from any rank, without a message yet */
    bool must_wake;               /* guard: lock; we published something since the last wake */
    atomic_int end_published;     /* the peers can see, or soon will, that we left or failed */
    int cma;                      /* all ranks may read each other's memory; 2: wherever possible */
    uint64_t cma_probe;           /* the block's nonce: what the peers read to find out */
    unsigned char *scratch;       /* SHM_SCRATCH_BYTES; guard: lock */
    int64_t checked_ns;           /* guard: lock; when the peers were last checked */
    bool crowded;                 /* more ranks than cores: a waiting thread yields its core */
    shm_spin spin;                /* guard: lock */
    const char *files[SHM_FILES]; /* guard: lock; whose text is in head.files */

    const shm_group *arena; /* whose extents are searched: this group's, or the adopted one's */
    trii_mutex arena_lock;
    struct shm_arena_call *arena_call; /* guard: arena_lock; of arena.c */
    atomic_int n_extents; /* grows under arena_lock; an extent never changes once counted */
    shm_extent extents[SHM_MAX_EXTENTS];
    struct shm_span *spans; /* guard: arena_lock; pieces of the extents, in order */
};

/* What error messages call a rank. */
static inline int shm_name(const shm_group *g, int rank)
{
    return trii_rank_name(g->names, rank);
}

static inline shm_slot *shm_slot_of(const shm_group *g, int rank, uint64_t seq)
{
    return &g->peers[rank].block->slots[seq % SHM_SLOTS];
}

/* Stores a word that peers wait for; shm_wake_peers wakes them. Guard: lock. */
static inline void shm_publish(shm_group *g, shm_u64 *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_release);
    g->must_wake = true;
}

#endif
