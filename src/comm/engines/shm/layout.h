/*
 * layout.h - what the ranks of a group share: one block of memory per rank, made by that rank
 * and mapped by all.
 *
 *   block:  head | slots | one-shot parts, one per slot | stages | pairs, one per rank
 *
 * Every field has one writer, its rank, unless it says "anybody". Fields that a peer polls
 * have 128 bytes of their own: two lines, because the processor fetches lines in pairs.
 * Sequence numbers only grow and are never reset, so nothing is ever cleared.
 *
 * Collective number n uses slot n modulo SHM_SLOTS. A rank arrives in it by storing the call, then
 * the number. It may do so once every rank has completed the collective that used the slot before;
 * so nobody writes to a slot while a peer may still read it.
 */
#ifndef TRII_SHM_LAYOUT_H
#define TRII_SHM_LAYOUT_H

#include <stdatomic.h>
#include <stddef.h>

#include "base/compiler.h"
#include "base/err.h"
#include "comm/engines/matching.h"
#include "os/cpu.h"
#include "os/cpu_quota.h"
#include "os/robust_futex.h"

#define SHM_SLOTS 16
#define SHM_INLINE_BYTES 96 /* payload inside the arrival */
#define SHM_ONE_SHOT_BYTES ((size_t)16 << 10)
#define SHM_STAGES 2
#define SHM_STAGE_BYTES ((size_t)128 << 10) /* both stages stay in the second-level cache */
#define SHM_FILES 64
#define SHM_FILE_WORDS 6
#define SHM_FILE_TEXT (SHM_FILE_WORDS * 8 + 1)
#define SHM_CELLS 8 /* announcements of a pair that the receiver has not released */
#define SHM_CELL_BYTES TRII_EAGER_BYTES
#define SHM_CELL_INLINE 80 /* fills two lines; 16 bytes of it lie in the first */
#define SHM_ANSWERS 16
#define SHM_RING_BYTES ((size_t)2 << 20) /* a piece that was read has left its reader's cache */
#define SHM_MAGIC UINT64_C(0x54524953484d3035)

typedef _Atomic uint64_t shm_u64;

static inline uint64_t shm_load(const shm_u64 *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

static inline uint64_t shm_load_acquire(const shm_u64 *word)
{
    return atomic_load_explicit(word, memory_order_acquire);
}

static inline void shm_store(shm_u64 *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_relaxed);
}

/* State of a rank. */
enum { SHM_ACTIVE = 0, SHM_LEFT = 1, SHM_FAILED = 2 };

/* Flags of an arrival or an announcement: where its data lie. */
enum {
    SHM_SRC_IN_ARENA = 1,
    SHM_DST_IN_ARENA = 2,
    SHM_COPIED = 4,     /* src is in the one-shot part too */
    SHM_IN_MESSAGE = 8, /* send: inside the announcement */
    SHM_OFFERED = 16    /* send: with the sender until the receiver has answered (rendezvous);
                           SHM_SRC_IN_ARENA then says in which memory */
};

/* Source line of a call, and its flags, in one word. `file`: index in head.files, SHM_FILES if
 * unknown. */
#define SHM_SITE(line, file, flags)                                                                \
    ((uint64_t)(uint32_t)(line) << 32 | (uint64_t)(file) << 8 | (uint64_t)(flags))

typedef struct shm_arrival {
    shm_u64 seq;   /* number of the collective; stored last */
    shm_u64 call;  /* shm_call_word */
    shm_u64 count; /* elements */
    shm_u64 site;  /* SHM_SITE */
    union {
        struct {
            uint64_t src, dst; /* arena addresses if the flags say so, else of the process */
        } at;
        unsigned char payload[SHM_INLINE_BYTES];
    } data;
} shm_arrival;

typedef struct shm_counter {
    TRII_ALIGNED(128) shm_u64 value;
} shm_counter;

/* Chunks of this rank's slice of a direct all_reduce: seq << 24 | how many. Anybody. */
typedef struct shm_chunks {
    TRII_ALIGNED(128) shm_u64 claimed;
    TRII_ALIGNED(128) shm_u64 done;
} shm_chunks;

typedef struct shm_slot {
    TRII_ALIGNED(128) shm_arrival arrival;
    shm_chunks chunks;
    shm_counter summed;   /* number of the collective of which this rank has summed its slice */
    shm_counter finished; /* number of the collective in which this rank reads peers no more */
} shm_slot;

typedef struct shm_head {
    uint64_t magic;
    uint64_t nonce; /* also published through the store: a process that reads it here shares our
                       memory */
    int32_t rank;
    int32_t size;
    int32_t pid;
    uint64_t cma_probe_at; /* address in that process of a copy of the nonce */
    atomic_int cma;        /* 0: this rank cannot read all others; 1: it can; 2: and shall wherever
                              possible. Valid once all have mapped */
    trii_cpu_set cpus;
    trii_cpu_quota quota;

    TRII_ALIGNED(128) trii_robust_futex death_mark; /* marked by the kernel when the process ends */

    TRII_ALIGNED(128) atomic_int state; /* SHM_ACTIVE, ...; stored after the three below */
    int32_t status;                     /* SHM_FAILED: the tri_status */
    int32_t lost_rank;                  /* likewise, as in trii_fault */
    atomic_int core;                    /* on which this rank last spun or woke others; -1: none */
    char text[TRII_ERR_BYTES];

    TRII_ALIGNED(128) atomic_int wake;     /* futex of this rank's sleepers. Anybody */
    atomic_int sleeping;                   /* how many threads of this rank sleep */
    TRII_ALIGNED(128) atomic_int sleepers; /* rank 0's counts those of all ranks. Anybody */

    shm_counter completed;                 /* this rank has completed all collectives up to here */
    shm_counter staged_in;                 /* pieces that this rank has copied into its stages */
    shm_counter staged_out;                /* pieces of which this rank reads no more */
    shm_counter staged_summed[SHM_STAGES]; /* 1 + the piece of which it has summed its slice */

    shm_u64 files[SHM_FILES][SHM_FILE_WORDS]; /* zero-terminated ends of file names */
} shm_head;

/* A message, or the announcement of one. Written by the sender, except the last word. */
typedef struct shm_message {
    TRII_ALIGNED(128) shm_u64 seq; /* of the pair's announcements, from 1; stored last */
    shm_u64 call;                  /* dtype | tag << 32 */
    shm_u64 count;
    shm_u64 bytes;
    shm_u64 site;   /* SHM_SITE; its flags say which member of `data` is meant */
    shm_u64 number; /* of the send */
    union {
        unsigned char payload[SHM_CELL_INLINE]; /* SHM_IN_MESSAGE */
        shm_u64 at;       /* SHM_OFFERED: arena address, or address in the sender's process; 0: the
                             receiver has to ask for the data */
        shm_u64 produced; /* else: bytes put into the cell so far */
    } data;
    TRII_ALIGNED(128) shm_u64 released; /* receiver: seq of the last message that it released */
} shm_message;

/* The receiver's answers to messages that were offered, and a ring through which the sender passes
 * those that the receiver asked for, one after the other. */
typedef struct shm_stream {
    TRII_ALIGNED(128) shm_u64 produced; /* sender: bytes put into the ring, of all messages */
    shm_u64 answers_seen;               /* sender: answers that it has acted on */
    TRII_ALIGNED(128) shm_u64 consumed; /* receiver: bytes taken out of the ring */
    shm_u64 answered;                   /* receiver: answers that it has given */
    shm_u64 unexpected_bytes;           /* receiver: of messages that wait for a receive */
    TRII_ALIGNED(128)
    shm_u64 answers[SHM_ANSWERS]; /* receiver: number of the send << 1 | 1 if the message was
                                     read, 0 to ask for its data */
} shm_stream;

/* Data begin in the middle of a page: users' buffers begin at its start or a little after it, and
 * a copy between two such addresses stalls the processor. */
typedef struct shm_pair {
    shm_message messages[SHM_CELLS];
    unsigned char data[SHM_CELLS][SHM_CELL_BYTES];
    unsigned char ring[SHM_RING_BYTES]; /* of the stream */
    TRII_ALIGNED(2048) shm_stream stream;
} shm_pair;

typedef struct shm_block {
    shm_head head;
    shm_slot slots[SHM_SLOTS];
    TRII_ALIGNED(4096) unsigned char one_shot[SHM_SLOTS][SHM_ONE_SHOT_BYTES];
    unsigned char stage[SHM_STAGES][SHM_STAGE_BYTES];
    shm_pair pairs[]; /* [size]: messages from this rank to each */
} shm_block;

_Static_assert(sizeof(shm_arrival) == 128, "an arrival is two lines");
_Static_assert(offsetof(shm_pair, data) % 4096 == 2048 && sizeof(shm_pair) % 4096 == 0,
               "data begins in the middle of a page");
_Static_assert(offsetof(shm_message, released) == 128, "an announcement is two lines");

#endif
