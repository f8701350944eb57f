/*
 * pair_in.c - messages from a rank: finding their receives, keeping unexpected ones, which have
 * none yet, and answering offers. See pair.c.
 */
/* build: hot */
#include "comm/engines/shm/pair.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "comm/engines/shm/arena.h"
#include "comm/engines/shm/call_text.h"
#include "comm/engines/shm/fault.h"
#include "os/cross_memory.h"

/* Of an offered message at a time, so that other operations of this rank advance in between. */
#define READ_PIECE ((size_t)4 << 20)
/* Cells that are free for the next messages even if many are unexpected: their sender need not wait
 * until we have copied them. */
#define FREE_CELLS (SHM_CELLS / 2)

/* An announcement, read. */
typedef struct announcement {
    trii_message message;
    uint64_t number, site, at;
} announcement;

/* A message that no receive was posted for. */
typedef struct shm_unexpected {
    trii_tagged tagged;
    announcement announced;
    size_t counted;      /* bytes, in the peer's unexpected_bytes */
    int cell;            /* that holds its data; -1 = none does */
    unsigned char *data; /* its copy, if it had to leave its cell */
    unsigned char payload[SHM_CELL_INLINE];
} shm_unexpected;

static shm_pair *pair_of(const shm_group *g, const shm_peer *peer)
{
    return &peer->block->pairs[g->rank];
}

static announcement announcement_read(const shm_message *message)
{
    uint64_t site = shm_load(&message->site);

    return (announcement){.message = {.dtype = (tri_dtype)(shm_load(&message->call) & 0xff),
                                      .count = (size_t)shm_load(&message->count),
                                      .bytes = (size_t)shm_load(&message->bytes)},
                          .number = shm_load(&message->number),
                          .site = site,
                          .at = site & SHM_OFFERED ? shm_load(&message->data.at) : 0};
}

static void message_release(shm_group *g, shm_message *message)
{
    shm_publish(g, &message->released, shm_load(&message->seq));
}

/* If sender and receiver differ in their dtype, the group fails. */
static bool check_dtype(shm_group *g, const shm_peer *peer, const trii_op *op,
                        const announcement *n)
{
    const trii_collective *call = &op->call;
    trii_collective theirs = *call;
    char file[SHM_FILE_TEXT], text[TRII_ERR_BYTES];

    if (TRII_LIKELY(n->message.dtype == call->dtype))
        return true;
    theirs.kind = TRII_KIND_SEND;
    theirs.root = shm_name(g, g->rank);
    theirs.dtype = n->message.dtype;
    theirs.count = n->message.count;
    theirs.seq = n->number;
    theirs.site = shm_site_of(peer->block, n->site, file);
    trii_collective_disagree(shm_name(g, g->rank), call, shm_name(g, peer->rank), &theirs, text,
                             sizeof(text));
    shm_fail(g, TRI_ERR_MISMATCH, "%s", text);
    return false;
}

/* --- a receive that has its message --------------------------------------- */

/* Copies what has arrived in the cell so far; true: the whole message. */
static bool take_from_cell(shm_group *g, shm_peer *peer, trii_op *op)
{
    shm_step *step = shm_step_of(op);
    shm_pair *pair = pair_of(g, peer);
    shm_message *message = &pair->messages[step->cell];
    uint64_t there = shm_load_acquire(&message->data.produced);

    if (there > step->moved)
        memcpy((char *)op->call.dst + step->moved, pair->data[step->cell] + step->moved,
               (size_t)(there - step->moved));
    step->moved = there;
    if (there < op->bytes)
        return false;
    message_release(g, message);
    return true;
}

/* A receive has its message, which lies in a cell or with its sender. */
static void recv_begin(shm_group *g, shm_peer *peer, trii_op *op, const announcement *n, int cell)
{
    shm_step *step = shm_step_of(op);

    step->moved = 0;
    step->cell = cell;
    step->number = n->number;
    step->src_at = n->at;
    step->flags = (unsigned)n->site;
    if (n->site & SHM_OFFERED)
        shm_queue_push(&peer->to_answer, op);
    else if (take_from_cell(g, peer, op))
        shm_pair_finish(g, op, TRI_OK, NULL);
    else
        shm_queue_push(&peer->from_cells, op);
}

static void recv_copy(shm_group *g, trii_op *op, const void *data)
{
    if (op->bytes > 0)
        memcpy(op->call.dst, data, op->bytes);
    shm_pair_finish(g, op, TRI_OK, NULL);
}

/* --- messages without a receive ------------------------------------------- */

static void count_unexpected(const shm_group *g, shm_peer *peer, size_t bytes)
{
    peer->unexpected_bytes = bytes;
    shm_store(&pair_of(g, peer)->stream.unexpected_bytes, bytes);
}

/* False: not now. */
static bool keep_unexpected(shm_group *g, shm_peer *peer, const announcement *n, uint64_t tag,
                            int cell)
{
    shm_message *message = &pair_of(g, peer)->messages[cell];
    bool in_cell = (n->site & (SHM_IN_MESSAGE | SHM_OFFERED)) == 0;
    size_t counted = sizeof(shm_unexpected) + (in_cell ? n->message.bytes : 0);
    shm_unexpected *kept;

    if (trii_fault_status(g->fault) != TRI_OK || peer->unexpected_bytes + counted > TRII_KEPT_MOST)
        return false;
    kept = trii_alloc(1, sizeof(*kept), "message without a receive");
    if (kept == NULL)
        return false; /* it can wait */
    kept->tagged.tag = tag;
    kept->announced = *n;
    kept->counted = counted;
    kept->cell = in_cell ? cell : -1;
    if (n->site & SHM_IN_MESSAGE)
        memcpy(kept->payload, message->data.payload, n->message.bytes);
    if (in_cell) {
        peer->in_cell[cell] = kept;
        peer->n_in_cell++;
    } else {
        message_release(g, message);
    }
    trii_tags_add(&peer->unexpected, &kept->tagged);
    count_unexpected(g, peer, peer->unexpected_bytes + counted);
    return true;
}

static void unexpected_drop(shm_peer *peer, shm_unexpected *kept)
{
    trii_tags_remove(&peer->unexpected, &kept->tagged);
    if (kept->cell >= 0) {
        peer->in_cell[kept->cell] = NULL;
        peer->n_in_cell--;
    }
    peer->unexpected_bytes -= kept->counted;
    trii_free(kept->data);
    trii_free(kept);
}

void shm_pair_drop_unexpected(shm_peer *peer)
{
    trii_tagged *one;

    while ((one = trii_tags_walk(&peer->unexpected, NULL)) != NULL)
        unexpected_drop(peer, (shm_unexpected *)one);
    trii_tags_clear(&peer->unexpected);
}

bool shm_pair_forget(shm_group *g, shm_peer *peer, uint64_t number)
{
    for (trii_tagged *one = trii_tags_walk(&peer->unexpected, NULL); one != NULL;
         one = trii_tags_walk(&peer->unexpected, one)) {
        shm_unexpected *kept = (shm_unexpected *)one;

        if (kept->announced.number == number) {
            unexpected_drop(peer, kept);
            count_unexpected(g, peer, peer->unexpected_bytes);
            return true;
        }
    }
    return false;
}

bool shm_pair_take_unexpected(shm_group *g, shm_peer *peer, trii_op *op)
{
    trii_tagged *one = trii_tags_find(&peer->unexpected, trii_tag_of(&op->call));
    shm_unexpected *kept = (shm_unexpected *)one;
    char why[TRII_ERR_BYTES];

    if (kept == NULL || (op->call.kind == TRII_KIND_RECV_ANY && !trii_op_win(op)))
        return false;
    op->peer = peer->rank;
    if (!check_dtype(g, peer, op, &kept->announced)) {
        trii_recv_wait(&peer->recvs, op, ++g->n_recvs); /* until it ends with the group */
        return true;
    }
    if (!trii_recv_fits(op, &kept->announced.message, why)) {
        shm_pair_finish(g, op, TRI_ERR_INVALID_ARG, why);
        return true;
    }
    if (kept->announced.site & SHM_IN_MESSAGE)
        recv_copy(g, op, kept->payload);
    else if (kept->data != NULL)
        recv_copy(g, op, kept->data);
    else
        recv_begin(g, peer, op, &kept->announced, kept->cell);
    unexpected_drop(peer, kept);
    count_unexpected(g, peer, peer->unexpected_bytes);
    return true;
}

/* Copies unexpected messages out of the cells that the sender uses next. */
static bool free_cells(shm_group *g, shm_peer *peer)
{
    shm_pair *pair = pair_of(g, peer);
    bool did = false;

    for (uint64_t seq = peer->n_received + 1; seq <= peer->n_received + FREE_CELLS; seq++) {
        int cell = (int)(seq % SHM_CELLS);
        shm_unexpected *kept = peer->in_cell[cell];
        size_t bytes = kept != NULL ? kept->announced.message.bytes : 0;

        if (kept == NULL || shm_load_acquire(&pair->messages[cell].data.produced) < bytes)
            continue;
        kept->data = trii_alloc_aligned(TRII_CACHE_LINE, bytes, "message without a receive");
        if (kept->data == NULL)
            continue; /* it can wait */
        memcpy(kept->data, pair->data[cell], bytes);
        kept->cell = -1;
        peer->in_cell[cell] = NULL;
        peer->n_in_cell--;
        message_release(g, &pair->messages[cell]);
        did = true;
    }
    return did;
}

/* --- announcements -------------------------------------------------------- */

/* Gives the message to its receive or keeps it; false: not now. */
static bool message_deliver(shm_group *g, shm_peer *peer, int cell)
{
    shm_message *message = &pair_of(g, peer)->messages[cell];
    announcement n = announcement_read(message);
    uint64_t tag = shm_load(&message->call) >> 32;
    char why[TRII_ERR_BYTES];

    for (;;) {
        trii_op *op = trii_recv_take(&peer->recvs, &g->any_recvs, tag, peer->rank);

        if (op == NULL)
            return keep_unexpected(g, peer, &n, tag, cell);
        if (!check_dtype(g, peer, op, &n)) {
            trii_recv_wait(&peer->recvs, op, ++g->n_recvs); /* until it ends with the group */
            return false;
        }
        if (!trii_recv_fits(op, &n.message, why)) {
            shm_pair_finish(g, op, TRI_ERR_INVALID_ARG, why);
            continue;
        }
        if (n.site & SHM_IN_MESSAGE) {
            recv_copy(g, op, message->data.payload);
            message_release(g, message);
            return true;
        }
        recv_begin(g, peer, op, &n, cell);
        if (n.site & SHM_OFFERED)
            message_release(g, message);
        return true;
    }
}

bool shm_pair_poll(shm_group *g, shm_peer *peer)
{
    shm_pair *pair = pair_of(g, peer);
    bool did = false;

    for (;;) {
        uint64_t seq = peer->n_received + 1;
        int cell = (int)(seq % SHM_CELLS);

        if (shm_load_acquire(&pair->messages[cell].seq) != seq || !message_deliver(g, peer, cell))
            break;
        peer->n_received = seq;
        did = true;
        if (peer->n_in_cell > 0)
            (void)free_cells(g, peer);
    }
    if (peer->n_in_cell > 0)
        did |= free_cells(g, peer);
    return did;
}

/* --- offered messages ----------------------------------------------------- */

static bool answer_offer(shm_group *g, shm_peer *peer, shm_stream *stream, uint64_t word)
{
    if (peer->n_answered - shm_load_acquire(&stream->answers_seen) >= SHM_ANSWERS)
        return false;
    shm_store(&stream->answers[peer->n_answered % SHM_ANSWERS], word);
    shm_publish(g, &stream->answered, ++peer->n_answered);
    return true;
}

/* Reads an offered message, or a piece of it, where it lies. If the system does not allow that any
 * more, src_at is 0: we have to ask for the data. */
static void read_offered(shm_group *g, const shm_peer *peer, trii_op *op)
{
    shm_step *step = shm_step_of(op);
    size_t left = op->bytes - step->moved, piece = left < READ_PIECE ? left : READ_PIECE;
    int error;

    if (step->flags & SHM_SRC_IN_ARENA) {
        memcpy(op->call.dst, shm_arena_at(g, peer->rank, step->src_at), op->bytes);
        step->moved = op->bytes;
    } else if (trii_cross_memory_read(peer->block->head.pid, step->src_at + step->moved,
                                      (char *)op->call.dst + step->moved, piece, &error)) {
        step->moved += piece;
    } else {
        step->moved = 0;
        step->src_at = 0;
    }
}

/* Reads the offered messages, or asks for them, and answers. */
static bool answer_offers(shm_group *g, shm_peer *peer, shm_stream *stream)
{
    bool did = false;

    while (peer->to_answer.first != NULL) {
        trii_op *op = peer->to_answer.first;
        shm_step *step = shm_step_of(op);

        if (trii_fault_status(g->fault) != TRI_OK)
            return did; /* a sender that failed may have had its buffer back while we read it */
        if (step->src_at != 0 && step->moved < op->bytes) {
            read_offered(g, peer, op);
            did = true;
            if (shm_check_peers(g))
                return did;
            if (step->src_at != 0 && step->moved < op->bytes)
                return did; /* the rest after other operations had a turn */
        }
        if (!answer_offer(g, peer, stream, step->number << 1 | (step->src_at != 0)))
            return did;
        did = true;
        shm_queue_pop(&peer->to_answer);
        if (step->src_at != 0)
            shm_pair_finish(g, op, TRI_OK, NULL);
        else
            shm_queue_push(&peer->from_ring, op);
    }
    return did;
}

/* Copies what is in the ring. */
static bool take_from_ring(shm_group *g, shm_peer *peer, shm_pair *pair)
{
    trii_op *op = peer->from_ring.first;
    shm_step *step = shm_step_of(op);
    size_t there = (size_t)(shm_load_acquire(&pair->stream.produced) - peer->ring_taken);
    size_t left = op->bytes - step->moved, n = there < left ? there : left;
    size_t offset = (size_t)(peer->ring_taken % SHM_RING_BYTES);

    n = n < SHM_RING_BYTES - offset ? n : SHM_RING_BYTES - offset;
    if (n == 0)
        return false;
    memcpy((char *)op->call.dst + step->moved, pair->ring + offset, n);
    step->moved += n;
    peer->ring_taken += n;
    shm_publish(g, &pair->stream.consumed, peer->ring_taken);
    if (step->moved == op->bytes)
        shm_pair_finish(g, shm_queue_pop(&peer->from_ring), TRI_OK, NULL);
    return true;
}

/* Copies what is in the cells; a message that is not whole does not hold up the others. */
static bool take_from_cells(shm_group *g, shm_peer *peer)
{
    shm_queue rest = {NULL, NULL};
    bool did = false;

    while (peer->from_cells.first != NULL) {
        trii_op *op = shm_queue_pop(&peer->from_cells);
        uint64_t before = shm_step_of(op)->moved;

        if (take_from_cell(g, peer, op)) {
            shm_pair_finish(g, op, TRI_OK, NULL);
            did = true;
        } else {
            did |= shm_step_of(op)->moved > before;
            shm_queue_push(&rest, op);
        }
    }
    peer->from_cells = rest;
    return did;
}

bool shm_pair_advance_in(shm_group *g, shm_peer *peer)
{
    shm_pair *pair = pair_of(g, peer);
    bool did = false;

    if (peer->from_cells.first != NULL)
        did |= take_from_cells(g, peer);
    if (peer->to_answer.first != NULL)
        did |= answer_offers(g, peer, &pair->stream);
    if (peer->from_ring.first != NULL)
        did |= take_from_ring(g, peer, pair);
    return did;
}
