/*
 * pair.c - send and recv. The sender's block has SHM_CELLS cells for every pair of ranks, each with
 * an announcement and room for the data of a message.
 *
 * Eager: a message that fits into a cell is copied there, and the send is over. Rendezvous: a
 * larger one is offered, that is, only announced; it stays with its sender until the receiver
 * answers. The receiver reads it where it lies, in one copy, and says so, or, where ranks cannot
 * read each other's memory, asks for its data, which then pass through a ring.
 *
 * The receiver takes announcements in order and finds the receive by tag. An unexpected message,
 * for which no receive was posted yet, stays in its cell until the cell is needed, and then in the
 * receiver's own memory: so no message ever blocks another. The sender sees how many bytes of them
 * there are: from TRII_KEPT_EAGER on it offers all messages that do not fit into their
 * announcement, and at TRII_KEPT_MOST it waits.
 *
 * pair_in.c is the receiver's side, pair_out.c the sender's; here are posting, advancing, ending.
 */
/* build: hot */
#include "comm/engines/shm/pair.h"

#include "comm/engines/shm/call_text.h"

static void post_recv(shm_group *g, trii_op *op)
{
    bool any = op->call.kind == TRII_KIND_RECV_ANY;
    trii_tags *recvs = any ? &g->any_recvs : &g->peers[op->peer].recvs;

    if (!any && shm_pair_take_unexpected(g, &g->peers[op->peer], op))
        return;
    for (int i = 1; i <= g->size && any; i++) {
        if (shm_pair_take_unexpected(g, &g->peers[(g->rank + i) % g->size], op))
            return;
    }
    trii_recv_wait(recvs, op, ++g->n_recvs);
}

void shm_pair_submit(shm_group *g, trii_op *op)
{
    g->n_pair_ops++;
    if (op->call.kind == TRII_KIND_SEND)
        shm_queue_push(&g->peers[op->peer].sends, op);
    else
        post_recv(g, op);
}

bool shm_pair_poll_all(shm_group *g)
{
    bool did = false;

    for (int r = 0; r < g->size; r++)
        did |= shm_pair_poll(g, &g->peers[r]);
    return did;
}

bool shm_pair_advance(shm_group *g)
{
    bool did = false, stuck = false;

    for (int r = 0; r < g->size && g->n_pair_ops > 0; r++) {
        shm_peer *peer = &g->peers[r];

        did |= shm_pair_advance_out(g, peer, &stuck);
        if (peer->recvs.count > 0 || g->any_recvs.count > 0)
            did |= shm_pair_poll(g, peer);
        did |= shm_pair_advance_in(g, peer);
    }
    /* The peer may wait for a free cell as we do: take in what it, and all others, have sent. */
    return stuck ? shm_pair_poll_all(g) || did : did;
}

/* --- ends ----------------------------------------------------------------- */

static void queue_fail_all(shm_queue *queue, tri_status status, const char *why)
{
    while (queue->first != NULL)
        trii_op_finish(shm_queue_pop(queue), status, why);
}

static void tags_fail_all(trii_tags *tags, tri_status status, const char *why)
{
    trii_op *op;

    while ((op = trii_waiting_pop(tags)) != NULL)
        trii_op_finish(op, status, why);
}

void shm_pair_fail_all(shm_group *g, tri_status status, const char *why)
{
    for (int r = 0; r < g->size; r++) {
        shm_peer *peer = &g->peers[r];

        queue_fail_all(&peer->sends, status, why);
        tags_fail_all(&peer->offered, status, why);
        queue_fail_all(&peer->to_ring, status, why);
        tags_fail_all(&peer->recvs, status, why);
        queue_fail_all(&peer->from_cells, status, why);
        queue_fail_all(&peer->to_answer, status, why);
        queue_fail_all(&peer->from_ring, status, why);
        shm_pair_drop_unexpected(peer);
    }
    tags_fail_all(&g->any_recvs, status, why);
    g->n_pair_ops = 0;
}

/* False: it is not in the queue. */
static bool queue_remove(shm_queue *queue, const trii_op *op)
{
    trii_op *before = NULL, **link = &queue->first;

    while (*link != NULL && *link != op) {
        before = *link;
        link = &before->next;
    }
    if (*link == NULL)
        return false;
    *link = op->next;
    if (queue->last == op)
        queue->last = before;
    return true;
}

static bool cancel_send(shm_group *g, trii_op *op)
{
    shm_peer *self = &g->peers[g->rank];
    trii_tagged *one = &trii_waiting_of(op)->tagged;

    shm_pair_poll_all(g); /* what was announced is an unexpected message then */
    if (queue_remove(&self->sends, op))
        return true;
    if (!shm_pair_forget(g, self, op->call.seq))
        return false;
    trii_tags_remove(&self->offered, one);
    return true;
}

bool shm_pair_cancel(shm_group *g, trii_op *op)
{
    bool found;

    if (trii_op_status(op) != TRI_INPROGRESS)
        return false;
    found =
        op->call.kind == TRII_KIND_SEND ? cancel_send(g, op) : trii_recv_cancel(&g->any_recvs, op);
    g->n_pair_ops -= found;
    return found;
}

void shm_pair_fail_no_sender(shm_group *g)
{
    trii_tagged *one = trii_tags_walk(&g->any_recvs, NULL);

    while (one != NULL) {
        trii_tagged *next = trii_tags_walk(&g->any_recvs, one);
        trii_op *op = trii_waiting_op(one);

        if (op->won != NULL) {
            trii_tags_remove(&g->any_recvs, one);
            shm_pair_finish(g, op, TRI_ERR_PEER_LOST, "every rank of this host left the group");
        }
        one = next;
    }
}

static trii_op *any_of(const trii_tags *tags)
{
    trii_tagged *one = trii_tags_walk(tags, NULL);

    return one != NULL ? trii_waiting_op(one) : NULL;
}

trii_op *shm_pair_needing(const shm_peer *peer)
{
    trii_op *const ops[] = {any_of(&peer->recvs),  peer->from_cells.first, peer->to_answer.first,
                            peer->from_ring.first, peer->sends.first,      any_of(&peer->offered),
                            peer->to_ring.first};

    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        if (ops[i] != NULL)
            return ops[i];
    }
    return NULL;
}

/* --- in words ------------------------------------------------------------- */

void shm_pair_describe(const shm_group *g, trii_op *op, char *text, size_t size)
{
    bool send = op->call.kind == TRII_KIND_SEND;
    char last[240], full[120];
    size_t kept;
    int r;

    if (op->call.kind == TRII_KIND_RECV_ANY) { /* `peer` may be written just now */
        snprintf(text, size, "any rank to send");
        return;
    }
    r = op->peer;
    kept = send ? (size_t)atomic_load(&g->block->pairs[r].stream.unexpected_bytes)
                : g->peers[r].unexpected_bytes;
    trii_kept_describe(send ? "it" : "this rank", kept, full, sizeof(full));
    shm_describe_last(g, r, last, sizeof(last));
    snprintf(text, size, "rank %d to %s (its last collective: %s)%s", shm_name(g, r),
             send ? "receive" : "send", last, full);
}
