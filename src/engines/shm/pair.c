/*
 * pair.c - send and recv: messages of a pair lie in the sender's block, SHM_MESSAGES of them
 * at a time, each with a ring for its data. A message that fits into its ring is gone for the
 * sender when it was copied; a larger one flows as the receiver takes it, or is read straight
 * from the sender's arena. A receive takes the oldest message that carries its tag; of receives
 * from one rank and from any rank, the one that was posted first has the choice.
 */
#include <inttypes.h>
#include <string.h>

#include "engines/shm/shm.h"

static inline uint64_t load(const shm_u64 *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

static inline uint64_t load_acquire(const shm_u64 *word)
{
    return atomic_load_explicit(word, memory_order_acquire);
}

static inline void store(shm_u64 *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_relaxed);
}

static uint64_t message_word(const trii_collective *call)
{
    return (uint64_t)call->dtype | (uint64_t)(uint32_t)call->tag << 32;
}

void shm_pair_submit(shm_group *g, trii_op *op)
{
    trii_op **at = &g->any_recvs;

    if (op->call.kind == TRII_KIND_SEND)
        at = &g->peers[op->call.root].sends;
    else if (op->call.kind == TRII_KIND_RECV)
        at = &g->peers[op->call.root].recvs;
    while (*at != NULL)
        at = &(*at)->next;
    shm_step_of(op)->posted = ++g->n_recvs;
    op->next = NULL;
    *at = op;
    g->n_pair_ops++;
}

/* Copies between a ring and a buffer; `at` counts the bytes since the message began. */
static void ring_copy(unsigned char *ring, uint64_t at, char *buffer, size_t n, bool into_ring)
{
    while (n > 0) {
        size_t offset = (size_t)(at % SHM_MESSAGE_BYTES);
        size_t part = SHM_MESSAGE_BYTES - offset < n ? SHM_MESSAGE_BYTES - offset : n;

        if (into_ring)
            memcpy(ring + offset, buffer, part);
        else
            memcpy(buffer, ring + offset, part);
        at += part;
        buffer += part;
        n -= part;
    }
}

/* Announces the message of a send if its slot is free. */
static bool announce(shm_group *g, shm_pair *pair, trii_op *op)
{
    const trii_collective *call = &op->call;
    shm_step *step = shm_step_of(op);
    int slot = (int)(call->seq % SHM_MESSAGES);
    shm_message *message = &pair->messages[slot];
    unsigned flags = 0;

    if (call->seq > SHM_MESSAGES && load_acquire(&message->released) != call->seq - SHM_MESSAGES)
        return false;
    if (call->bytes > SHM_MESSAGE_BYTES)
        step->src_at = shm_arena_find(g, call->src, call->bytes);
    if (step->src_at != 0)
        flags |= SHM_SRC_IN_ARENA;
    else if (call->bytes <= SHM_MESSAGE_INLINE)
        flags |= SHM_IN_MESSAGE;
    /* What is there before the receiver looks costs it no second look. */
    if (flags & SHM_IN_MESSAGE) {
        if (call->bytes > 0)
            memcpy(message->payload, call->src, call->bytes);
        step->moved = call->bytes;
    } else if (flags == 0) {
        step->moved = call->bytes < SHM_MESSAGE_FIRST ? call->bytes : SHM_MESSAGE_FIRST;
        ring_copy(pair->data[slot], 0, (char *)(uintptr_t)call->src, step->moved, true);
    }
    store(&message->call, message_word(call));
    store(&message->count, call->count);
    store(&message->place, shm_place(g, &call->site, flags));
    store(&message->at, step->src_at);
    store(&message->produced, step->moved);
    /* The receiver counts from zero again before it releases, so consumed is 0 here. */
    atomic_store_explicit(&message->seq, call->seq, memory_order_release);
    step->message = slot + 1;
    g->must_wake = true;
    return true;
}

/* Moves a send on; SHM_DONE when its buffer is free again. */
static bool advance_send(shm_group *g, shm_pair *pair, trii_op *op)
{
    const trii_collective *call = &op->call;
    shm_step *step = shm_step_of(op);
    shm_message *message = &pair->messages[step->message - 1];
    uint64_t taken, room, left = call->bytes - step->moved;
    size_t n;

    if (step->src_at != 0) {
        if (load_acquire(&message->released) != call->seq)
            return false;
        step->phase = SHM_DONE;
        return true;
    }
    if (left > 0) {
        taken = load_acquire(&message->consumed);
        room = SHM_MESSAGE_BYTES - (step->moved - taken);
        n = (size_t)(left < room ? left : room);
        n = n < SHM_MESSAGE_PIECE ? n : SHM_MESSAGE_PIECE; /* which the receiver takes meanwhile */
        if (n == 0)
            return false;
        /* the ring is only read */
        ring_copy(pair->data[step->message - 1], step->moved,
                  (char *)(uintptr_t)call->src + step->moved, n, true);
        step->moved += n;
        atomic_store_explicit(&message->produced, step->moved, memory_order_release);
        g->must_wake = true;
    }
    if (step->moved == call->bytes) {
        step->phase = SHM_DONE;
        /* The next message's place: the receiver's cache has it, and we write there soon. */
        TRII_PREFETCH_WRITE(&pair->messages[(call->seq + 1) % SHM_MESSAGES]);
    }
    return true;
}

/* The oldest message up to number `last` with the tag that nobody receives yet. */
static int find_message(const shm_peer *peer, const shm_pair *pair, uint64_t last,
                        const trii_collective *call)
{
    int found = -1;

    for (int i = 0; i < SHM_MESSAGES; i++) {
        const shm_message *message = &pair->messages[i];
        uint64_t seq = load_acquire(&message->seq);
        bool taken = seq == 0 || seq > last || load(&message->released) >= seq;

        for (trii_op *op = peer->recvs; op != NULL && !taken; op = op->next)
            taken = shm_step_of(op)->message == i + 1;
        if (!taken && (uint32_t)(load(&message->call) >> 32) == (uint32_t)call->tag &&
            (found < 0 || seq < load(&pair->messages[found].seq)))
            found = i;
    }
    return found;
}

static bool check_message(shm_group *g, const shm_message *message, const trii_op *op)
{
    const trii_collective *call = &op->call;
    trii_collective theirs = *call;
    char file[SHM_FILE_TEXT], text[TRII_ERR_BYTES];

    if (load(&message->call) == message_word(call) && load(&message->count) == call->count)
        return true;
    theirs.kind = TRII_KIND_SEND;
    theirs.root = g->rank;
    theirs.dtype = (tri_dtype)(load(&message->call) & 0xff);
    theirs.count = (size_t)load(&message->count);
    theirs.seq = load(&message->seq);
    theirs.site = shm_site_of(g->peers[call->root].block, load(&message->place), file);
    trii_collective_disagree(shm_name(g, g->rank), call, shm_name(g, call->root), &theirs, text,
                             sizeof(text));
    shm_fail(g, TRI_ERR_MISMATCH, "%s", text);
    return false;
}

static bool advance_recv(shm_group *g, shm_pair *pair, trii_op *op)
{
    const trii_collective *call = &op->call;
    shm_step *step = shm_step_of(op);
    int slot = step->message - 1;
    shm_message *message = &pair->messages[slot];
    uint64_t there, place = load(&message->place);
    bool did = false;

    if (place & SHM_IN_MESSAGE) {
        if (call->bytes > 0)
            memcpy(call->dst, message->payload, call->bytes);
        step->moved = call->bytes;
    } else if (place & SHM_SRC_IN_ARENA) {
        memcpy(call->dst, shm_arena_at(g, call->root, load(&message->at)), call->bytes);
        step->moved = call->bytes;
    } else {
        there = load_acquire(&message->produced);
        if (there > step->moved) {
            ring_copy(pair->data[slot], step->moved, (char *)call->dst + step->moved,
                      (size_t)(there - step->moved), false);
            step->moved = there;
            atomic_store_explicit(&message->consumed, there, memory_order_release);
            g->must_wake = true;
            did = true;
        }
    }
    if (step->moved < call->bytes)
        return did;
    store(&message->consumed, 0);
    atomic_store_explicit(&message->released, load(&message->seq), memory_order_release);
    g->must_wake = true;
    step->phase = SHM_DONE;
    return true;
}

static void unlink_and_finish(shm_group *g, trii_op **at)
{
    trii_op *op = *at;

    *at = op->next;
    g->n_pair_ops--;
    trii_op_finish(op, TRI_OK, NULL);
}

static bool advance_sends(shm_group *g, shm_peer *peer)
{
    shm_pair *pair = &g->block->pairs[peer->rank];
    bool did = false;

    for (trii_op **at = &peer->sends; *at != NULL;) {
        shm_step *step = shm_step_of(*at);

        /* In order: a message must not overtake an older one. */
        if (step->message == 0 && !announce(g, pair, *at))
            return did;
        did |= advance_send(g, pair, *at);
        if (step->phase == SHM_DONE)
            unlink_and_finish(g, at);
        else
            at = &(*at)->next;
    }
    return did;
}

/* A receive from any rank that was posted before **at, with a message of this peer that it can
 * take, becomes one of this peer's, in front of **at. */
static void claim_for_any(shm_group *g, shm_peer *peer, uint64_t last, trii_op **at)
{
    const shm_pair *pair = &peer->block->pairs[g->rank];
    uint64_t before = *at != NULL ? shm_step_of(*at)->posted : UINT64_MAX;

    for (trii_op **link = &g->any_recvs; *link != NULL; link = &(*link)->next) {
        trii_op *op = *link;
        int slot;

        if (shm_step_of(op)->posted > before)
            return;
        slot = trii_op_is_claimed(op) ? -1 : find_message(peer, pair, last, &op->call);
        if (slot < 0 || !trii_op_claim(op))
            continue;
        op->call.root = peer->rank;
        if (!check_message(g, &pair->messages[slot], op))
            return;
        shm_step_of(op)->message = slot + 1;
        *link = op->next;
        op->next = *at;
        *at = op;
        return;
    }
}

static bool advance_recvs(shm_group *g, shm_peer *peer)
{
    shm_pair *pair = &peer->block->pairs[g->rank];
    uint64_t last = 0;
    bool did = false;

    /* One look for all receives of the pass: else a message that comes in between could go to
     * the second of two receives with its tag. */
    for (int i = 0; i < SHM_MESSAGES; i++) {
        uint64_t seq = load_acquire(&pair->messages[i].seq);

        last = seq > last ? seq : last;
    }
    for (trii_op **at = &peer->recvs;;) {
        shm_step *step;

        claim_for_any(g, peer, last, at);
        if (*at == NULL)
            return did;
        step = shm_step_of(*at);
        if (step->message == 0) {
            step->message = 1 + find_message(peer, pair, last, &(*at)->call);
            if (step->message > 0 && !check_message(g, &pair->messages[step->message - 1], *at)) {
                step->message = 0; /* the failing group makes another pass: nothing may be moved */
                return did;
            }
        }
        if (step->message > 0)
            did |= advance_recv(g, pair, *at);
        if (step->phase == SHM_DONE)
            unlink_and_finish(g, at);
        else
            at = &(*at)->next;
    }
}

bool shm_pair_advance(shm_group *g)
{
    bool did = false;

    for (int r = 0; r < g->size && g->n_pair_ops > 0; r++) {
        did |= advance_sends(g, &g->peers[r]);
        did |= advance_recvs(g, &g->peers[r]);
    }
    return did;
}

static void fail_list(trii_op **list, tri_status status, const char *why)
{
    trii_op *op = *list;

    *list = NULL;
    for (trii_op *next; op != NULL; op = next) {
        next = op->next;
        trii_op_finish(op, status, why);
    }
}

void shm_pair_fail_all(shm_group *g, tri_status status, const char *why)
{
    for (int r = 0; r < g->size; r++) {
        fail_list(&g->peers[r].sends, status, why);
        fail_list(&g->peers[r].recvs, status, why);
    }
    fail_list(&g->any_recvs, status, why);
    g->n_pair_ops = 0;
}

bool shm_pair_withdraw(shm_group *g, const trii_op *op)
{
    trii_op **link = &g->any_recvs;

    while (*link != NULL && *link != op)
        link = &(*link)->next;
    if (*link == NULL)
        return false;
    *link = op->next;
    g->n_pair_ops--;
    return true;
}

void shm_pair_end_vain(shm_group *g)
{
    trii_op **link = &g->any_recvs;

    while (*link != NULL) {
        trii_op *op = *link;

        if (op->call.claim == NULL) {
            link = &op->next;
            continue;
        }
        *link = op->next;
        g->n_pair_ops--;
        trii_op_finish(op, TRI_ERR_PEER_LOST, "every rank of this host left the group");
    }
}

void shm_pair_describe(const shm_group *g, trii_op *op, char *text, size_t size)
{
    char last[240];

    if (op->call.root < 0) {
        snprintf(text, size, "any rank to send");
        return;
    }
    shm_describe_last(g, op->call.root, last, sizeof(last));
    snprintf(text, size, "rank %d to %s (its last call: %s)", shm_name(g, op->call.root),
             op->call.kind == TRII_KIND_SEND ? "receive" : "send", last);
}
