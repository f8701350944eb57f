/*
 * pair_out.c - messages to a rank: copying them into cells or offering them, and sending the data
 * that the receiver asks for. See pair.c.
 */
/* build: hot */
#include "comm/engines/shm/pair.h"

#include <string.h>

#include "comm/engines/shm/arena.h"
#include "comm/engines/shm/call_text.h"
#include "comm/engines/shm/fault.h"

#define FIRST_PIECE ((size_t)4 << 10) /* is in the cell before the message is announced */
#define PIECE_BYTES ((size_t)64 << 10)

/* Rendezvous: whether the data stay here until the receiver answers. */
static bool is_offered(const shm_pair *pair, const trii_collective *call)
{
    return call->bytes > SHM_CELL_BYTES ||
           (call->bytes > SHM_CELL_INLINE &&
            shm_load(&pair->stream.unexpected_bytes) >= TRII_KEPT_EAGER);
}

/* Publishes the announcement; its data, or the first of them, are in place. */
static void message_announce(shm_group *g, shm_message *message, const trii_op *op, unsigned flags,
                             uint64_t seq)
{
    const trii_collective *call = &op->call;

    shm_store(&message->call, (uint64_t)call->dtype | (uint64_t)(uint32_t)call->tag << 32);
    shm_store(&message->count, call->count);
    shm_store(&message->bytes, call->bytes);
    shm_store(&message->site, shm_site_word(g, &call->site, flags));
    shm_store(&message->number, call->seq);
    shm_publish(g, &message->seq, seq);
}

/* Copies the whole message into its cell; the receiver takes the first pieces meanwhile. */
static void send_through_cell(shm_group *g, shm_message *message, unsigned char *cell,
                              const trii_op *op, uint64_t seq)
{
    const trii_collective *call = &op->call;
    size_t done = call->bytes < FIRST_PIECE ? call->bytes : FIRST_PIECE;

    memcpy(cell, call->src, done);
    shm_store(&message->data.produced, done);
    message_announce(g, message, op, 0, seq);
    if (done < call->bytes)
        shm_wake_peers(g);
    while (done < call->bytes) {
        size_t left = call->bytes - done, n = left < PIECE_BYTES ? left : PIECE_BYTES;

        memcpy(cell + done, (const char *)call->src + done, n);
        done += n;
        shm_publish(g, &message->data.produced, done);
    }
}

/* Announces where the data lie; 0: the receiver has to ask for them. */
static void send_offer(shm_group *g, shm_peer *peer, shm_message *message, trii_op *op,
                       uint64_t seq)
{
    const trii_collective *call = &op->call;
    shm_step *step = shm_step_of(op);
    uint64_t in_arena = shm_arena_find(g, call->src, call->bytes);
    uint64_t in_heap = g->cma > 0 ? (uint64_t)(uintptr_t)call->src : 0;

    shm_store(&message->data.at, in_arena != 0 ? in_arena : in_heap);
    step->waiting.tagged.tag = call->seq;
    trii_tags_add(&peer->offered, &step->waiting.tagged);
    message_announce(g, message, op, SHM_OFFERED | (in_arena != 0 ? SHM_SRC_IN_ARENA : 0), seq);
}

/* Announces the oldest send; false: its cell is not free. */
static bool send_start_oldest(shm_group *g, shm_peer *peer)
{
    shm_pair *pair = &g->block->pairs[peer->rank];
    uint64_t seq = peer->n_announced + 1;
    shm_message *message = &pair->messages[seq % SHM_CELLS];
    trii_op *op = peer->sends.first;
    const trii_collective *call = &op->call;

    if (seq > SHM_CELLS && shm_load_acquire(&message->released) != seq - SHM_CELLS)
        return false;
    peer->n_announced = seq;
    shm_queue_pop(&peer->sends);
    if (is_offered(pair, call)) {
        send_offer(g, peer, message, op, seq);
        return true;
    }
    if (call->bytes <= SHM_CELL_INLINE) {
        if (call->bytes > 0)
            memcpy(message->data.payload, call->src, call->bytes);
        message_announce(g, message, op, SHM_IN_MESSAGE, seq);
    } else {
        send_through_cell(g, message, pair->data[seq % SHM_CELLS], op, seq);
    }
    /* We write the next announcement there soon, and the receiver's cache holds it. */
    TRII_PREFETCH_WRITE(&pair->messages[(seq + 1) % SHM_CELLS]);
    shm_pair_finish(g, op, TRI_OK, NULL);
    return true;
}

/* The receiver has read offered messages, or asks for their data. */
static bool take_answers(shm_group *g, shm_peer *peer, shm_stream *stream)
{
    uint64_t answered = shm_load_acquire(&stream->answered);

    if (peer->n_answers_seen == answered)
        return false;
    while (peer->n_answers_seen < answered) {
        uint64_t answer = shm_load(&stream->answers[peer->n_answers_seen % SHM_ANSWERS]);
        trii_tagged *one = trii_tags_find(&peer->offered, answer >> 1);

        peer->n_answers_seen++;
        if (one == NULL)
            continue;
        trii_tags_remove(&peer->offered, one);
        if (answer & 1)
            shm_pair_finish(g, trii_waiting_op(one), TRI_OK, NULL);
        else
            shm_queue_push(&peer->to_ring, trii_waiting_op(one));
    }
    shm_publish(g, &stream->answers_seen, peer->n_answers_seen);
    return true;
}

/* Puts a piece of the oldest message that was asked for into the ring, as far as there is room. */
static bool send_through_ring(shm_group *g, shm_peer *peer, shm_pair *pair)
{
    trii_op *op = peer->to_ring.first;
    shm_step *step = shm_step_of(op);
    size_t offset = (size_t)(peer->ring_put % SHM_RING_BYTES), left = op->call.bytes - step->moved;
    size_t room =
        SHM_RING_BYTES - (size_t)(peer->ring_put - shm_load_acquire(&pair->stream.consumed));
    size_t n = left < room ? left : room;

    n = n < PIECE_BYTES ? n : PIECE_BYTES; /* which the receiver takes meanwhile */
    n = n < SHM_RING_BYTES - offset ? n : SHM_RING_BYTES - offset;
    if (n == 0)
        return false;
    memcpy(pair->ring + offset, (const char *)op->call.src + step->moved, n);
    step->moved += n;
    peer->ring_put += n;
    shm_publish(g, &pair->stream.produced, peer->ring_put);
    if (step->moved == op->call.bytes)
        shm_pair_finish(g, shm_queue_pop(&peer->to_ring), TRI_OK, NULL);
    return true;
}

bool shm_pair_advance_out(shm_group *g, shm_peer *peer, bool *stuck_out)
{
    shm_pair *pair = &g->block->pairs[peer->rank];
    bool did = false;

    while (peer->sends.first != NULL) {
        if (!send_start_oldest(g, peer)) {
            *stuck_out = true;
            break;
        }
        did = true;
    }
    if (peer->offered.count > 0)
        did |= take_answers(g, peer, &pair->stream);
    if (peer->to_ring.first != NULL)
        did |= send_through_ring(g, peer, pair);
    return did;
}
