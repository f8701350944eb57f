/*
 * rpc_ring.c - see rpc_ring.h.
 */
/* build: hot leaf */
#include "comm/rpc/rpc_ring.h"

#include <string.h>

#include "base/err.h"
#include "os/cpu.h"

bool rpc_ring_write(rpc_ring *ring, uint64_t *tail_seen, const void *frame, size_t bytes)
{
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    size_t at = head % RPC_RING_BYTES, first = RPC_RING_BYTES - at;

    if (head - *tail_seen + rpc_round(bytes, 64) > RPC_RING_BYTES) {
        *tail_seen = atomic_load_explicit(&ring->tail, memory_order_acquire);
        if (head - *tail_seen + rpc_round(bytes, 64) > RPC_RING_BYTES)
            return false;
    }
    first = first < bytes ? first : bytes;
    memcpy(ring->data + at, frame, first);
    memcpy(ring->data, (const char *)frame + first, bytes - first);
    atomic_store(&ring->head, head + rpc_round(bytes, 64));
    return true;
}

tri_status rpc_ring_look(rpc_ring *ring, uint64_t *head_seen, rpc_header *h_out,
                         rpc_source *source_out)
{
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed), there;
    size_t at = tail % RPC_RING_BYTES;

    if (*head_seen == tail)
        *head_seen = atomic_load_explicit(&ring->head, memory_order_acquire);
    there = *head_seen - tail;
    if (there == 0)
        return TRI_INPROGRESS;
    if (there % 64 != 0 || there > RPC_RING_BYTES || tail % 64 != 0)
        return TRII_FAIL(TRI_ERR_FORMAT, "its ring in shared memory is damaged");
    memcpy(h_out, ring->data + at, sizeof(*h_out)); /* the writer could change it meanwhile */
    if (h_out->bytes > RPC_MAX_FRAME || rpc_round(sizeof(*h_out) + h_out->bytes, 64) > there)
        return TRII_FAIL(TRI_ERR_FORMAT, "its ring in shared memory is damaged");
    at = (at + sizeof(*h_out)) % RPC_RING_BYTES;
    *source_out = (rpc_source){
        .first = ring->data + at, .second = ring->data, .n_first = RPC_RING_BYTES - at};
    return TRI_OK;
}

void rpc_ring_pass(rpc_ring *ring, const rpc_header *h)
{
    atomic_store(&ring->tail, atomic_load_explicit(&ring->tail, memory_order_relaxed) +
                                  rpc_round(sizeof(*h) + h->bytes, 64));
}

bool rpc_ring_shares_core(rpc_ring *in, rpc_ring *out)
{
    int core = trii_cpu_current() + 1;

    if (core <= 0)
        return false;
    if (atomic_load_explicit(&in->core, memory_order_relaxed) != core)
        atomic_store_explicit(&in->core, core, memory_order_relaxed);
    return atomic_load_explicit(&out->core, memory_order_relaxed) == core;
}

void rpc_source_copy(const rpc_source *source, void *to, size_t bytes)
{
    size_t first = source->n_first < bytes ? source->n_first : bytes;

    if (bytes == 0)
        return;
    memcpy(to, source->first, first);
    if (bytes > first)
        memcpy((char *)to + first, source->second, bytes - first);
}
