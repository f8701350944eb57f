/*
 * rpc_ring.h - frames from one worker to another of the same host, in memory that both map. One
 * thread writes at a time and one reads; frames begin at multiples of 64 bytes.
 *
 * The reader says how it wants to be woken: `sleep` is set, then the ring is looked at once more;
 * the writer moves `head`, then looks at `sleep`. `starved` is the same in the other direction, for
 * a writer that found no room. A writer that copies something large first may wake a reader before
 * it is there (`coming`), so that one does not wait for the other.
 */
#ifndef TRII_RPC_RING_H
#define TRII_RPC_RING_H

#include <stdatomic.h>

#include "base/compiler.h"
#include "comm/rpc/rpc_frame.h"

#define RPC_RING_BYTES ((size_t)256 << 10)

enum {
    RPC_LOOKS = 0, /* somebody looks at the ring, or will */
    RPC_BY_SOCKET, /* the control thread sleeps: a record on the socket */
    RPC_BY_FUTEX,  /* a thread that waits for a call sleeps on this word */
    RPC_BY_BELL    /* the thread in tri_rpc_join sleeps on `bell` */
};

typedef struct rpc_ring {
    TRII_ALIGNED(64) _Atomic uint64_t head; /* written so far */
    TRII_ALIGNED(64) _Atomic uint64_t tail; /* read so far */
    TRII_ALIGNED(64) atomic_int sleep;
    atomic_int starved;
    atomic_int bell;   /* counts */
    atomic_int core;   /* on which the reader last looked, and 1; 0 = it has not */
    atomic_int coming; /* woken by a writer that has nothing there yet */
    TRII_ALIGNED(64) unsigned char data[RPC_RING_BYTES];
} rpc_ring;

/* Bytes at a place of the ring: two pieces where they pass its end. */
typedef struct rpc_source {
    const unsigned char *first, *second;
    size_t n_first;
    void *owned; /* instead: the whole body, allocated, which the receiver takes; */
    bool is_cut; /* nothing of it but the references: nobody wants it */
} rpc_source;

static inline bool rpc_ring_has(rpc_ring *ring)
{
    return atomic_load_explicit(&ring->head, memory_order_acquire) !=
           atomic_load_explicit(&ring->tail, memory_order_relaxed);
}

static inline bool rpc_ring_has_room(rpc_ring *ring, size_t bytes)
{
    return atomic_load_explicit(&ring->head, memory_order_relaxed) -
               atomic_load_explicit(&ring->tail, memory_order_acquire) + rpc_round(bytes, 64) <=
           RPC_RING_BYTES;
}

/* `tail` and `head` as the other side was last seen: while that is enough, its line is not taken
 * away from it. False: no room. The writer looks at `sleep` afterwards (rpc_peer.c). */
bool rpc_ring_write(rpc_ring *ring, uint64_t *tail_seen, const void *frame, size_t bytes);
/* The next frame: INPROGRESS if there is none, FORMAT if its length cannot be. The body is at
 * *source_out until rpc_ring_pass. */
tri_status rpc_ring_look(rpc_ring *ring, uint64_t *head_seen, rpc_header *h_out,
                         rpc_source *source_out) TRI_MUST_CHECK;
void rpc_ring_pass(rpc_ring *ring, const rpc_header *h);
/* A reader looks from now on. The line is the writer's, too: it is left alone where that is said.
 */
static inline void rpc_ring_stay_awake(rpc_ring *in)
{
    if (atomic_load_explicit(&in->sleep, memory_order_relaxed) != RPC_LOOKS)
        atomic_store(&in->sleep, RPC_LOOKS);
}
/* Says where the reader of `in` is: on the core of this thread; and whether the one of the other
 * direction was last there, too. */
bool rpc_ring_shares_core(rpc_ring *in, rpc_ring *out);
void rpc_source_copy(const rpc_source *source, void *to, size_t bytes);

#endif
