/*
 * tcp_p2p.c - send and recv. Messages of a pair travel in order; each goes to the oldest recv with
 * its tag, or is kept (tcp_early.c). Of a large one the first part comes with its announcement, so
 * that nothing is lost where the recv is there already: it is asked for when that begins to come.
 */
#include <string.h>

#include "engines/tcp/tcp.h"

/* A message up to this size comes whole with its announcement, though its send ends only when the
 * receive is there. Of larger ones a first part goes while the rest is asked for: between ranks
 * that send to each other the question is behind that part, and the line is idle until it is
 * answered. */
#define WHOLE_BYTES ((size_t)1 << 20)

/* What the scratch of a send or receive holds behind its trii_waiting. */
typedef struct progress {
    trii_waiting waiting;
    uint64_t moved; /* bytes of the first part */
    uint64_t asked; /* send: the rest was asked for while the first part was under way */
    uint64_t told;  /* recv: the peer was asked for the rest */
} progress;

static progress *progress_of(trii_op *op)
{
    _Static_assert(sizeof(progress) <= sizeof(op->scratch), "the scratch holds it");
    return (progress *)(void *)op->scratch;
}

static void append(trii_op **first, trii_op **last, trii_op *op)
{
    op->next = NULL;
    *(*first != NULL ? &(*last)->next : first) = op;
    *last = op;
}

/* --- posting ---------------------------------------------------------------------------------- */

static void post_recv(tcp_conn *c, trii_op *op)
{
    if (tcp_early_take(c, op))
        return;
    trii_recv_wait(&c->recvs, op, ++c->group->n_recvs);
    c->want_in = c->want_in || c->parked || c->full;
    if (c->gone)
        tcp_fail_gone(c, op);
}

static void post_recv_any(tcp_group *g, trii_op *op)
{
    for (int i = 1; i <= g->size; i++) {
        tcp_conn *c = &g->conns[(g->rank + i) % g->size];

        if (tcp_early_take(c, op))
            return;
        c->want_in = c->want_in || c->parked || c->full;
    }
    trii_recv_wait(&g->any_recvs, op, ++g->n_recvs);
    if (tcp_any_recv_in_vain(g) != NULL)
        tcp_fail_gone(&g->conns[g->rank == 0 ? 1 : 0], op);
}

/* The oldest receive that takes the message, its call become the message's; those that have no room
 * for it end. NULL: none. False: the group has failed, and *op_out ends with it. */
static bool find_recv(tcp_conn *c, const tcp_frame *head, trii_op **op_out)
{
    trii_message message = tcp_message_of(head);
    char why[TRII_ERR_BYTES];

    for (;;) {
        trii_op *op = trii_recv_take(&c->recvs, &c->group->any_recvs, head->part, c->rank);

        *op_out = op;
        if (op == NULL)
            return true;
        if (message.dtype != op->call.dtype) {
            trii_recv_wait(&c->recvs, op, 0);
            tcp_fail_mismatch(c->group, &op->call, c->rank, head);
            return false;
        }
        if (trii_recv_fits(op, &message, why))
            return true;
        tcp_finish(c->group, op, TRI_ERR_INVALID_ARG, why);
    }
}

static void post_to_self(tcp_conn *self, trii_op *op)
{
    tcp_group *g = self->group;
    trii_op *recv;
    tcp_frame head;

    tcp_frame_fill(&head, TCP_FRAME_MESSAGE, &op->call);
    head.part = (uint32_t)op->call.tag;
    if (!find_recv(self, &head, &recv)) {
        tcp_finish(g, op, trii_fault_status(g->fault), g->fault->text);
        return;
    }
    if (recv == NULL) {
        tcp_early_send(self, op);
        return;
    }
    if (op->call.bytes > 0)
        memcpy(recv->call.dst, op->call.src, op->call.bytes);
    tcp_finish(g, recv, TRI_OK, NULL);
    tcp_finish(g, op, TRI_OK, NULL);
}

void tcp_p2p_post(tcp_group *g, trii_op *op)
{
    tcp_conn *c;

    if (op->call.kind == TRII_KIND_RECV_ANY) {
        post_recv_any(g, op);
        return;
    }
    c = &g->conns[op->call.root];
    if (op->call.kind == TRII_KIND_RECV) {
        post_recv(c, op);
    } else if (c->rank == g->rank) {
        post_to_self(c, op);
    } else {
        append(&c->sends, &c->last_send, op);
        c->want_out = true;
        if (c->gone)
            tcp_fail_gone(c, op);
    }
}

/* --- out -------------------------------------------------------------------------------------- */

/* Ends a receive of which all came with the first part, once its sender knows that it was there. */
static void end_if_whole(tcp_conn *c, trii_op *op)
{
    progress *p = progress_of(op);

    if (!p->told || p->moved < op->call.bytes)
        return;
    trii_tags_remove(&c->resting, &p->waiting.tagged);
    tcp_finish(c->group, op, TRI_OK, NULL);
}

bool tcp_p2p_next_note(tcp_conn *c)
{
    if (c->want_hold) {
        c->want_hold = false;
        c->out = (tcp_frame){.type = TCP_FRAME_HOLD, .root = c->held};
        return true;
    }
    if (c->wants != NULL) {
        trii_op *op = c->wants;

        c->out = (tcp_frame){.type = TCP_FRAME_WANT, .seq = progress_of(op)->asked};
        c->wants = op->next;
        progress_of(op)->told = 1;
        end_if_whole(c, op);
        return true;
    }
    return false;
}

/* How much of a message goes out before it is asked for. */
static size_t first_part(const tcp_conn *c, size_t bytes)
{
    if (c->holds)
        return bytes <= TRII_TINY_BYTES ? bytes : 0;
    return bytes <= WHOLE_BYTES ? bytes : TRII_EAGER_BYTES;
}

bool tcp_p2p_next_frame(tcp_conn *c)
{
    trii_op *op = c->asked != NULL ? c->asked : c->sends;

    if (op == NULL)
        return false;
    if (op == c->asked) {
        c->out = (tcp_frame){.type = TCP_FRAME_REST,
                             .seq = op->call.seq,
                             .bytes = op->call.bytes - progress_of(op)->moved};
    } else {
        tcp_frame_fill(&c->out, TCP_FRAME_MESSAGE, &op->call);
        c->out.root = c->rank;
        c->out.part = (uint32_t)op->call.tag;
        c->out.bytes = first_part(c, op->call.bytes);
        if (c->out.bytes < op->call.bytes || op->call.bytes > TRII_EAGER_BYTES)
            c->out.type = TCP_FRAME_OFFER;
    }
    c->out_from = (const char *)op->call.src + progress_of(op)->moved;
    c->out_send = op;
    return true;
}

/* Its receive is there. */
static void rest_is_wanted(tcp_conn *c, trii_op *op)
{
    if (progress_of(op)->moved == op->call.bytes) {
        tcp_finish(c->group, op, TRI_OK, NULL);
        return;
    }
    append(&c->asked, &c->last_asked, op);
    c->want_out = true;
}

void tcp_p2p_sent(tcp_conn *c)
{
    trii_op *op = c->out_send;
    progress *p = progress_of(op);

    c->out_send = NULL;
    if (op == c->asked)
        c->asked = op->next;
    else
        c->sends = op->next;
    if (c->out.type != TCP_FRAME_OFFER) {
        tcp_finish(c->group, op, TRI_OK, NULL);
        return;
    }
    p->moved = c->out.bytes;
    p->waiting.tagged.tag = op->call.seq;
    if (p->asked)
        rest_is_wanted(c, op);
    else
        trii_tags_add(&c->offered, &p->waiting.tagged);
}

void tcp_p2p_wanted(tcp_conn *c)
{
    trii_tagged *one = trii_tags_find(&c->offered, c->head.seq);

    if (one != NULL) {
        trii_tags_remove(&c->offered, one);
        rest_is_wanted(c, trii_waiting_op(one));
    } else if (c->out_send != NULL && c->out_send->call.seq == c->head.seq) {
        progress_of(c->out_send)->asked = 1;
    }
}

/* --- in --------------------------------------------------------------------------------------- */

/* The rest is asked for while the first part comes. */
static void ask(tcp_conn *c, const tcp_frame *head, trii_op *op)
{
    progress_of(op)->asked = head->seq;
    append(&c->wants, &c->last_want, op);
    c->want_out = true;
}

bool tcp_p2p_accept(tcp_conn *c)
{
    trii_op *op = NULL;

    if (!find_recv(c, &c->head, &op))
        return false;
    if (op == NULL)
        return tcp_early_keep(c);
    c->in_recv = op;
    c->in_to = op->call.dst;
    if (c->head.type == TCP_FRAME_OFFER)
        ask(c, &c->head, op);
    return true;
}

void tcp_p2p_take_over(tcp_conn *c, trii_op *op, const char *data)
{
    size_t came = (size_t)c->head.bytes - c->in_left;

    memcpy(op->call.dst, data, came);
    c->in_recv = op;
    c->in_to = (char *)op->call.dst + came;
    if (c->head.type == TCP_FRAME_OFFER)
        ask(c, &c->head, op);
}

/* The first part is there, and the rest was asked for. */
static void rest_follows(tcp_conn *c, const tcp_frame *head, trii_op *op)
{
    progress *p = progress_of(op);

    p->moved = head->bytes;
    p->waiting.tagged.tag = head->seq;
    trii_tags_add(&c->resting, &p->waiting.tagged);
    end_if_whole(c, op);
}

void tcp_p2p_got(tcp_conn *c, const tcp_frame *head, trii_op *op)
{
    if (head->type != TCP_FRAME_OFFER) {
        tcp_finish(c->group, op, TRI_OK, NULL);
        return;
    }
    ask(c, head, op);
    rest_follows(c, head, op);
}

bool tcp_p2p_accept_rest(tcp_conn *c)
{
    trii_tagged *one = trii_tags_find(&c->resting, c->head.seq);
    trii_op *op = one != NULL ? trii_waiting_op(one) : NULL;

    if (op == NULL || c->head.bytes != op->call.bytes - progress_of(op)->moved)
        return false;
    trii_tags_remove(&c->resting, one);
    c->in_recv = op;
    c->in_to = (char *)op->call.dst + progress_of(op)->moved;
    return true;
}

void tcp_p2p_came(tcp_conn *c)
{
    trii_op *op = c->in_recv;

    c->in_recv = NULL;
    c->in_early = NULL; /* it is kept */
    if (op == NULL)
        return;
    if (c->head.type == TCP_FRAME_OFFER)
        rest_follows(c, &c->head, op);
    else
        tcp_finish(c->group, op, TRI_OK, NULL);
}

/* --- ends ------------------------------------------------------------------------------------- */

static const trii_op *some(const trii_tags *tags)
{
    const trii_tagged *one = trii_tags_walk(tags, NULL);

    return one != NULL ? trii_waiting_op(one) : NULL;
}

const trii_op *tcp_p2p_needing(const tcp_conn *c)
{
    const trii_op *ops[] = {c->in_recv,        some(&c->resting), c->sends,
                            some(&c->offered), c->asked,          some(&c->recvs)};

    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        if (ops[i] != NULL)
            return ops[i];
    }
    return NULL;
}

const trii_op *tcp_any_recv_in_vain(tcp_group *g)
{
    if (g->size == 1 || g->any_recvs.count == 0) /* alone, we may still send to ourselves */
        return NULL;
    for (int r = 0; r < g->size; r++) {
        if (r != g->rank && !g->conns[r].gone)
            return NULL;
    }
    for (trii_tagged *one = trii_tags_walk(&g->any_recvs, NULL), *next; one != NULL; one = next) {
        trii_op *op = trii_waiting_op(one);

        next = trii_tags_walk(&g->any_recvs, one);
        if (op->call.claim == NULL)
            return op;
        trii_tags_remove(&g->any_recvs, one);
        tcp_finish(g, op, TRI_ERR_PEER_LOST, "every rank left the group");
    }
    return NULL;
}

bool tcp_p2p_withdraw(tcp_group *g, trii_op *op)
{
    trii_tagged *one = trii_tags_find(&g->any_recvs, trii_tag_of(&op->call));
    bool found = false;

    if (trii_op_status(op) != TRI_INPROGRESS)
        return false;
    if (op->call.kind == TRII_KIND_SEND) {
        found = tcp_early_take_back(&g->conns[g->rank], op);
    } else {
        while (one != NULL && trii_waiting_op(one) != op)
            one = trii_tags_next(one);
        found = one != NULL;
        if (one != NULL)
            trii_tags_remove(&g->any_recvs, one);
    }
    g->pending -= found;
    return found;
}

static void fail_tags(tcp_group *g, trii_tags *tags, tri_status status, const char *why)
{
    trii_tagged *one;

    while ((one = trii_tags_walk(tags, NULL)) != NULL) {
        trii_tags_remove(tags, one);
        tcp_finish(g, trii_waiting_op(one), status, why);
    }
    trii_tags_clear(tags);
}

static void fail_list(tcp_group *g, trii_op **list, tri_status status, const char *why)
{
    while (*list != NULL) {
        trii_op *op = *list;

        *list = op->next;
        tcp_finish(g, op, status, why);
    }
}

void tcp_p2p_fail_any(tcp_group *g, tri_status status, const char *why)
{
    fail_tags(g, &g->any_recvs, status, why);
}

void tcp_p2p_fail_all(tcp_conn *c, tri_status status, const char *why)
{
    tcp_group *g = c->group;

    c->wants = NULL; /* they are among the receives */
    c->out_send = NULL;
    fail_list(g, &c->sends, status, why);
    fail_list(g, &c->asked, status, why);
    fail_tags(g, &c->offered, status, why);
    fail_tags(g, &c->recvs, status, why);
    fail_tags(g, &c->resting, status, why);
    if (c->in_recv != NULL)
        tcp_finish(g, c->in_recv, status, why);
    c->in_recv = NULL;
    tcp_early_fail_all(c, status, why);
}

void tcp_p2p_describe(tcp_group *g, const trii_op *op, char *text, size_t size)
{
    bool send = op->call.kind == TRII_KIND_SEND;
    const tcp_conn *c = op->call.root >= 0 ? &g->conns[op->call.root] : NULL;
    size_t used;

    if (c == NULL || c->rank == g->rank)
        used = (size_t)snprintf(text, size, "%s", c == NULL ? "any rank" : "this rank itself");
    else
        used = tcp_peer_describe(c, text, 0, false, size);
    if (used < size)
        used += (size_t)snprintf(text + used, size - used, " to %s the message",
                                 send ? "take" : "send");
    if (c != NULL && !send && c->early_bytes > TCP_EARLY - 1024 && used < size)
        snprintf(text + used, size - used,
                 "; this rank keeps %zu MiB of messages that it has not received", TCP_EARLY >> 20);
}
