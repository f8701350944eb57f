/*
 * shm_group.h - a group of ranks of one host, as this process sees it, and what the files of this
 * room offer each other, from the ground floor up: each calls what is declared above its own
 * section. shm.h says which file does what, layout.h what lies in shared memory.
 */
#ifndef TRII_SHM_GROUP_H
#define TRII_SHM_GROUP_H

#include "comm/engines/shm/layout.h"
#include "comm/group/engine.h"
#include "comm/group/group_limits.h"
#include "os/cpu.h"
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
    uint64_t completed;        /* guard: lock */
    uint32_t completed_ahead;  /* guard: lock; bit i: completed + 1 + i is done */
    uint64_t completed_by_all; /* guard: lock; a lower bound */
    uint64_t next_piece;       /* guard: lock; the first that belongs to no operation yet */
    int n_pair_ops;            /* guard: lock; sends and receives that are not done */
    uint64_t n_recvs;          /* guard: lock; ever posted */
    trii_tags any_recvs;       /* guard: lock; from any rank, without a message yet */
    bool must_wake;            /* guard: lock; we published something since the last wake */
    atomic_int end_published;  /* the peers can see, or soon will, that we left or failed */
    int cma;                   /* all ranks may read each other's memory; 2: wherever possible */
    uint64_t cma_probe;        /* the block's nonce: what the peers read to find out */
    unsigned char *scratch;    /* SHM_SCRATCH_BYTES; guard: lock */
    int64_t checked_ns;        /* guard: lock; when the peers were last checked */
    bool crowded;              /* more ranks than cores: a waiting thread yields its core */
    int64_t spin_ns;           /* guard: lock; how long to spin now */
    int64_t spin_max_ns;
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

/* --- call_text.c ---------------------------------------------------------- */

/* What a call must have in common on all ranks beside its count, of a whole call: its number among
 * the group's calls as well, of which a composite may make only some here. */
static inline uint64_t shm_call_word(const trii_collective *call)
{
    return (uint64_t)call->kind | (uint64_t)call->dtype << 8 | (uint64_t)call->op << 16 |
           (call->seq & 0xff) << 24 | (uint64_t)(uint32_t)call->root << 32;
}

/* Writes the file's name into head.files[i]. Guard: lock. */
void shm_publish_file(shm_group *g, unsigned i, const char *file);
/* SHM_SITE of a call. Different files may take turns at one index: then a message names the later
 * one, the price for never allocating. Guard: lock. */
static inline uint64_t shm_site_word(shm_group *g, const trii_site *site, unsigned flags)
{
    unsigned i = (unsigned)(((uintptr_t)site->file >> 3) * 0x9e3779b1u >> 7) % SHM_FILES;

    if (site->file == NULL)
        i = SHM_FILES;
    else if (TRII_UNLIKELY(g->files[i] != site->file))
        shm_publish_file(g, i, site->file);
    return SHM_SITE(site->line, i, flags);
}

/* The source line that a word of SHM_SITE means; the name of its file is written into `file`. */
trii_site shm_site_of(const shm_block *block, uint64_t word, char file[SHM_FILE_TEXT]);
/* The call that an arrival announces, for messages. */
trii_collective shm_call_of(const shm_block *block, const shm_arrival *arrival,
                            char file[SHM_FILE_TEXT]);
/* The latest collective of a rank in words. Any thread. */
void shm_describe_last(const shm_group *g, int rank, char *text, size_t size);

/* --- fault.c -------------------------------------------------------------- */

void shm_wake_rank(shm_group *g, int rank);
/* Wakes the threads that sleep. */
void shm_wake_all(shm_group *g);
/* Tells the peers on which core we are, and returns it; -1: unknown. Guard: lock. */
static inline int shm_say_core(shm_group *g)
{
    atomic_int *said = &g->block->head.core;
    int core = trii_cpu_current();

    if (atomic_load_explicit(said, memory_order_relaxed) != core)
        atomic_store_explicit(said, core, memory_order_relaxed);
    return core;
}

/* Makes sleepers see what we published since the last time. Guard: lock. */
static inline void shm_wake_peers(shm_group *g)
{
    if (!g->must_wake)
        return;
    g->must_wake = false;
    atomic_thread_fence(memory_order_seq_cst);
    if (TRII_UNLIKELY(
            atomic_load_explicit(&g->peers[0].block->head.sleepers, memory_order_relaxed) != 0)) {
        (void)shm_say_core(g); /* so that nobody sleeps again for where we were before */
        shm_wake_all(g);
    }
}

/* Fails the group with a cause that we found, unless it has failed before. The thread that holds
 * the lock publishes it (shm_abort). */
void shm_fail(shm_group *g, tri_status status, const char *format, ...) TRII_PRINTF(3, 4);
/* False: the peer has failed or ended, and so have we now, with its reason. Any thread. */
bool shm_peer_is_well(shm_group *g, int rank);
/* Whether a peer has failed or ended: then so have we, with its reason. Any thread. */
static inline bool shm_check_peers(shm_group *g)
{
    /* Callers have read memory that a failed peer may write to again: those reads come first. */
    atomic_thread_fence(memory_order_acquire);
    for (int r = 0; r < g->size; r++) {
        const shm_head *head = &g->peers[r].block->head;
        bool ended = trii_robust_futex_owner_died(atomic_load(&head->death_mark.word));
        bool failed = atomic_load_explicit(&head->state, memory_order_acquire) == SHM_FAILED;

        if (TRII_UNLIKELY(ended || failed) && r != g->rank && !shm_peer_is_well(g, r))
            return true;
    }
    return false;
}
/* The group has failed: publishes that and ends local waits. Any thread. */
void shm_abort(void *self);
/* A peer's process has ended: unless it left or failed before, the group fails, with what the
 * peer did last. False: it had left or failed. Any thread. */
bool shm_peer_ended(shm_group *g, int rank, const char *how);

/* --- arena.c -------------------------------------------------------------- */

tri_status shm_arena_init(shm_group *g);
tri_status shm_arena_alloc(void *self, size_t bytes, void **p_out);
void shm_arena_free(void *self, void *p);
void shm_arena_release(shm_group *g);
/* Arena address of `bytes` at p (extent + 1 << 48 | offset), or 0 if they do not lie in our
 * arena. */
static inline uint64_t shm_arena_find(const shm_group *g, const void *p, size_t bytes)
{
    int n = atomic_load_explicit(&g->arena->n_extents, memory_order_acquire);

    for (int e = 0; e < n; e++) {
        const shm_extent *extent = &g->arena->extents[e];
        uintptr_t base = (uintptr_t)extent->memory[g->rank].base, at = (uintptr_t)p;

        if (at >= base && at - base < extent->bytes && bytes <= extent->bytes &&
            at - base <= extent->bytes - bytes)
            return (uint64_t)(e + 1) << 48 | (uint64_t)(at - base);
    }
    return 0;
}
/* Where a rank's arena address lies in this process. */
static inline char *shm_arena_at(const shm_group *g, int rank, uint64_t at)
{
    return (char *)g->arena->extents[(at >> 48) - 1].memory[rank].base +
           (at & ((UINT64_C(1) << 48) - 1));
}

/* --- parts.c -------------------------------------------------------------- */

/* Elements of the largest part; of an all_to_all_v only once all have arrived. */
size_t shm_largest_part(const shm_group *g, const trii_collective *call);

/* How much of one peer's input a sum by CMA has in the scratch at a time. Groups of two ranks and
 * more. */
static inline size_t shm_cma_sum_piece_bytes(const shm_group *g)
{
    return SHM_SCRATCH_BYTES / (size_t)(g->size - 1) / SHM_LINE_BYTES * SHM_LINE_BYTES;
}

/* Whether a rank's input has a region for every rank (else all of it is for all, or the root). */
static inline bool shm_has_regions(trii_kind kind)
{
    return trii_kind_in(kind, TRII_KINDS_WHOLE_SRC);
}

/* Whether this rank puts anything in. */
static inline bool shm_puts(const shm_group *g, const trii_collective *call)
{
    return !trii_kind_in(call->kind, TRII_KINDS_FROM_ROOT) || call->root == g->rank;
}

/* Elements that this rank puts in, if it does. */
static inline size_t shm_own_elems(const shm_group *g, const trii_collective *call)
{
    if (TRII_UNLIKELY(call->kind == TRII_KIND_ALL_GATHER_V))
        return trii_part_count(call->dst_parts, 0, g->rank);
    return shm_has_regions(call->kind) ? trii_part_at(call->src_parts, call->count, g->size)
                                       : call->count;
}

/* The most that any rank puts in: equal on all ranks, except in an all_to_all_v. */
static inline size_t shm_most_elems(const shm_group *g, const trii_collective *call)
{
    return TRII_UNLIKELY(call->kind == TRII_KIND_ALL_GATHER_V) ? shm_largest_part(g, call)
                                                               : shm_own_elems(g, call);
}

/* The slice of elements [0, count) that belongs to `rank`: whole lines except at the end. */
static inline void shm_slice(const shm_group *g, int rank, size_t count, size_t elem_bytes,
                             size_t *from_out, size_t *to_out)
{
    size_t line = SHM_LINE_BYTES / elem_bytes;
    size_t each = (count + (size_t)g->size - 1) / (size_t)g->size;
    size_t start;

    each = (each + line - 1) / line * line;
    start = each * (size_t)rank;
    *from_out = start < count ? start : count;
    *to_out = start + each < count ? start + each : count;
}

/* all_to_all_v: where the parts of the rank's src begin, [size + 1]; it lies in front of its
 * one-shot part. */
const uint64_t *shm_parts_of(const shm_group *g, int rank, uint64_t seq);
/* Whether this rank sums elements [from, from + n) of all inputs into its dst. */
bool shm_sums(const shm_group *g, const trii_collective *call, size_t *from_out, size_t *n_out);
/* How many elements this rank reads from `rank`: from element *from_out of its input into element
 * *to_out of our dst. */
size_t shm_reads(const shm_group *g, const trii_collective *call, int rank, size_t *from_out,
                 size_t *to_out);
/* Sums or reads all of it; input_of: where a rank's input lies. */
typedef const char *shm_input_of(const shm_group *g, int rank, const trii_op *op);
void shm_take_all(shm_group *g, const trii_op *op, shm_input_of *input_of);
/* All have arrived in an all_to_all_v: do they send what we expect? If not, the group fails. */
bool shm_parts_agree(shm_group *g, const trii_op *op);

/* --- slot.c (guard: lock) ------------------------------------------------- */

bool shm_slot_is_free(shm_group *g, uint64_t seq);
/* Puts our data, or where they are, into our slot and publishes the call. */
void shm_slot_arrive(shm_group *g, trii_op *op);
/* Whether all ranks have arrived; if they disagree about the call, the group fails. */
bool shm_slot_all_arrived(shm_group *g, trii_op *op);
/* They have: chooses the path. */
void shm_slot_choose_path(shm_group *g, trii_op *op);
/* Sums or reads what came with the arrivals, which ends the operation. */
void shm_slot_take(shm_group *g, trii_op *op);
/* This rank reads no peer any more; whether that holds for all, which makes it SHM_DONE. */
void shm_slot_finish(shm_group *g, trii_op *op);
bool shm_slot_all_finished(shm_group *g, trii_op *op);
/* Has `read` read what this rank needs of its peers (false: the group has failed), then waits
 * until all ranks have. True if something was done. */
typedef bool shm_reader(shm_group *g, const trii_op *op);
bool shm_slot_advance_reading(shm_group *g, trii_op *op, shm_reader *read);

/* --- the paths, one file each (guard: lock) ------------------------------- */

/* As all that follow: does what can be done now; sets SHM_DONE at the end. True if something was
 * done. */
bool shm_direct_advance(shm_group *g, trii_op *op);

/* Whether we can read the memory of every peer; once all blocks are mapped. */
bool shm_cma_works(shm_group *g);
/* Reads `bytes` at `offset` of a buffer of rank r's call; false: the group has failed. */
bool shm_cma_read(shm_group *g, int r, const trii_op *op, shm_buffer which, size_t offset, void *to,
                  size_t bytes);
bool shm_cma_advance(shm_group *g, trii_op *op);

bool shm_cma_sum_advance(shm_group *g, trii_op *op);

/* Once all have arrived, in the order of the operations. */
void shm_staged_begin(shm_group *g, trii_op *op);
bool shm_staged_advance(shm_group *g, trii_op *op);

/* --- pair_in.c (guard: lock) ---------------------------------------------- */

/* Of a send or receive. */
static inline void shm_pair_finish(shm_group *g, trii_op *op, tri_status status, const char *why)
{
    g->n_pair_ops--;
    trii_op_finish(op, status, why);
}

/* A receive from this rank, or from any, was posted; true: its message had come before. */
bool shm_pair_take_unexpected(shm_group *g, shm_peer *peer, trii_op *op);
/* Looks for new announcements. */
bool shm_pair_poll(shm_group *g, shm_peer *peer);
bool shm_pair_advance_in(shm_group *g, shm_peer *peer);
/* Forgets an offered message of this number, if no receive has it. */
bool shm_pair_forget(shm_group *g, shm_peer *peer, uint64_t number);
/* Drops what no receive was posted for. */
void shm_pair_drop_unexpected(shm_peer *peer);

/* --- pair_out.c (guard: lock) --------------------------------------------- */

/* *stuck_out is set if a send finds no free cell. */
bool shm_pair_advance_out(shm_group *g, shm_peer *peer, bool *stuck_out);

/* --- pair.c (guard: lock) ------------------------------------------------- */

void shm_pair_submit(shm_group *g, trii_op *op);
bool shm_pair_advance(shm_group *g);
/* Takes in what has come without a receive, so that the senders can go on. */
bool shm_pair_poll_all(shm_group *g);
/* Ends all sends and receives. */
void shm_pair_fail_all(shm_group *g, tri_status status, const char *why);
/* Takes back a receive from any rank, or a send to ourselves, that has no message or receive yet;
 * false: it has. */
bool shm_pair_cancel(shm_group *g, trii_op *op);
/* No rank is left that could send: ends the receives from any rank that another engine has too. */
void shm_pair_fail_no_sender(shm_group *g);
/* A send or receive that needs the peer, or NULL. */
trii_op *shm_pair_needing(const shm_peer *peer);
void shm_pair_describe(const shm_group *g, trii_op *op, char *text, size_t size);

/* --- connect.c ------------------------------------------------------------ */

tri_status shm_create(const trii_group_args *args, void **self_out);
/* Frees everything that create made; half-built groups too. */
void shm_release(shm_group *g);

#endif
