/*
 * tcp_p2p.c - send and recv. The messages of a pair of ranks travel in order; each goes to the
 * oldest recv with its tag, or is kept until there is one (tcp_unexpected.c). Small ones are sent
 * whole (eager); larger ones send RTS with a first part, and wait for CTS with the rest
 * (rendezvous, tcp_frame.h). The receiver sends CTS as soon as the first part begins to come, so
 * that the connection is not idle in between. tcp_progress.c calls this file through tcp_p2p_owner.
 */
#include <string.h>

#include "comm/engines/tcp/tcp.h"

/* A message up to this size comes whole with its RTS, though its send ends only with the CTS. Of
 * larger ones a first part goes while the CTS is on its way: between ranks that send to each other
 * the CTS comes after such a part, and the connection is idle until it has come. */
#define WHOLE_BYTES ((size_t)1 << 20)

/* What the scratch of a send or receive holds. */
typedef struct transfer {
    trii_waiting waiting;
    uint64_t moved;    /* bytes of the first part */
    uint64_t cleared;  /* send: its CTS came while the first part was under way */
    uint64_t send_seq; /* recv: of the send */
    uint64_t cts_sent; /* recv */
} transfer;

static transfer *transfer_of(trii_op *op)
{
    _Static_assert(sizeof(transfer) <= sizeof(op->scratch), "the scratch holds it");
    return (transfer *)(void *)op->scratch;
}

static void append(trii_op **first, trii_op **last, trii_op *op)
{
    op->next = NULL;
    *(*first != NULL ? &(*last)->next : first) = op;
    *last = op;
}

/* --- the rest of a message ------------------------------------------------ */

/* Ends a receive of which all came with the first part, once the CTS has told its sender so. */
static void end_if_whole(tcp_conn *c, trii_op *op)
{
    transfer *p = transfer_of(op);

    if (!p->cts_sent || p->moved < op->bytes)
        return;
    trii_tags_remove(&c->rest_expected, &p->waiting.tagged);
    tcp_finish(c->group, op, TRI_OK, NULL);
}

/* A CTS is to be sent, while the first part still comes. */
static void request_rest(tcp_conn *c, const tcp_frame *head, trii_op *op)
{
    transfer_of(op)->send_seq = head->seq;
    append(&c->cts_due, &c->last_cts_due, op);
    c->want_out = c->want_request = true;
}

/* The first part is there, and the CTS is sent or due. */
static void expect_rest(tcp_conn *c, const tcp_frame *head, trii_op *op)
{
    transfer *p = transfer_of(op);

    p->moved = head->bytes;
    p->waiting.tagged.tag = head->seq;
    trii_tags_add(&c->rest_expected, &p->waiting.tagged);
    end_if_whole(c, op);
}

/* --- posting -------------------------------------------------------------- */

/* A message that is in no table any more, and all that came of it is there. */
static void deliver_unexpected(tcp_conn *c, tcp_unexpected *kept, trii_op *op)
{
    trii_op *send = kept->send;
    const tcp_frame head = kept->head;

    if (head.bytes > 0)
        memcpy(op->call.dst, send != NULL ? send->call.src : kept->data, (size_t)head.bytes);
    tcp_unexpected_free(c, kept);
    if (send != NULL)
        tcp_finish(c->group, send, TRI_OK, NULL);
    if (head.type == TCP_FRAME_RTS) {
        request_rest(c, &head, op);
        expect_rest(c, &head, op);
    } else {
        tcp_finish(c->group, op, TRI_OK, NULL);
    }
}

/* A message that is still coming: the rest of its frame goes where it belongs. */
static void take_over_unexpected(tcp_conn *c, tcp_unexpected *kept, trii_op *op)
{
    size_t came = (size_t)c->head.bytes - c->in_left;

    memcpy(op->call.dst, kept->data, came);
    c->in_unexpected = NULL;
    c->in_recv = op;
    c->in_to = (char *)op->call.dst + came;
    if (c->head.type == TCP_FRAME_RTS)
        request_rest(c, &c->head, op);
    tcp_unexpected_free(c, kept);
}

/* The message that a frame announces. */
static trii_message message_of(const tcp_frame *head)
{
    trii_message message = {.dtype = (tri_dtype)head->dtype,
                            .count = (size_t)head->count,
                            .bytes = (size_t)head->bytes};

    if (head->type == TCP_FRAME_RTS &&
        __builtin_mul_overflow(message.count, tri_dtype_size(message.dtype), &message.bytes))
        message.bytes = SIZE_MAX; /* no receive has room for that */
    return message;
}

/* Gives the receive the oldest message with its tag that was kept; false: there is none. */
static bool recv_unexpected(tcp_conn *c, trii_op *op)
{
    tcp_unexpected *kept = (tcp_unexpected *)trii_tags_find(&c->unexpected, trii_tag_of(&op->call));
    trii_message message;
    char why[TRII_ERR_BYTES];

    if (kept == NULL || (op->call.kind == TRII_KIND_RECV_ANY && !trii_op_win(op)))
        return false;
    op->peer = c->rank;
    message = message_of(&kept->head);
    if (message.dtype != op->call.dtype) {
        trii_recv_wait(&c->recvs, op, 0); /* ends with the group */
        tcp_fail_mismatch(c->group, &op->call, c->rank, &kept->head);
        return true;
    }
    if (!trii_recv_fits(op, &message, why)) {
        tcp_finish(c->group, op, TRI_ERR_INVALID_ARG, why);
        return true;
    }
    trii_tags_remove(&c->unexpected, &kept->tagged);
    if (kept == c->in_unexpected)
        take_over_unexpected(c, kept, op);
    else
        deliver_unexpected(c, kept, op);
    return true;
}

static void post_recv(tcp_conn *c, trii_op *op)
{
    if (recv_unexpected(c, op))
        return;
    trii_recv_wait(&c->recvs, op, ++c->group->n_recvs);
    c->want_in = c->want_in || c->parked || c->full;
    if (c->has_left)
        tcp_fail_left(c, op);
}

/* Once all peers have left, no sender is left for receives from any rank: returns the first of
 * them, or NULL. Those that another engine has too are ended. */
static const trii_op *no_sender_left(tcp_group *g)
{
    if (g->size == 1 || g->any_recvs.count == 0) /* alone, we may still send to ourselves */
        return NULL;
    for (int r = 0; r < g->size; r++) {
        if (r != g->rank && !g->conns[r].has_left)
            return NULL;
    }
    for (trii_tagged *one = trii_tags_walk(&g->any_recvs, NULL), *next; one != NULL; one = next) {
        trii_op *op = trii_waiting_op(one);

        next = trii_tags_walk(&g->any_recvs, one);
        if (op->won == NULL)
            return op;
        trii_tags_remove(&g->any_recvs, one);
        tcp_finish(g, op, TRI_ERR_PEER_LOST, "every rank left the group");
    }
    return NULL;
}

static void post_recv_any(tcp_group *g, trii_op *op)
{
    for (int i = 1; i <= g->size; i++) {
        tcp_conn *c = &g->conns[(g->rank + i) % g->size];

        if (recv_unexpected(c, op))
            return;
        c->want_in = c->want_in || c->parked || c->full;
    }
    trii_recv_wait(&g->any_recvs, op, ++g->n_recvs);
    if (no_sender_left(g) != NULL)
        tcp_fail_left(&g->conns[g->rank == 0 ? 1 : 0], op);
}

/* The oldest receive that takes the message, its call become the message's; those that have no room
 * for it end. NULL: none. False: the group has failed, and *op_out ends with it. */
static bool find_recv(tcp_conn *c, const tcp_frame *head, trii_op **op_out)
{
    trii_message message = message_of(head);
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
        tcp_unexpected_send(self, op);
        return;
    }
    if (op->call.bytes > 0)
        memcpy(recv->call.dst, op->call.src, op->call.bytes);
    tcp_finish(g, recv, TRI_OK, NULL);
    tcp_finish(g, op, TRI_OK, NULL);
}

static void p2p_post(tcp_group *g, trii_op *op)
{
    tcp_conn *c;

    if (op->call.kind == TRII_KIND_RECV_ANY) {
        post_recv_any(g, op);
        return;
    }
    c = &g->conns[op->peer];
    if (op->call.kind == TRII_KIND_RECV) {
        post_recv(c, op);
    } else if (c->rank == g->rank) {
        post_to_self(c, op);
    } else {
        append(&c->sends, &c->last_send, op);
        c->want_out = true;
        if (c->has_left)
            tcp_fail_left(c, op);
    }
}

/* --- out ------------------------------------------------------------------ */

/* Sends a HOLD or a CTS. */
static bool p2p_next_request(tcp_conn *c)
{
    trii_op *op = c->cts_due;

    if (c->hold_due) {
        c->hold_due = false;
        c->out = (tcp_frame){.type = TCP_FRAME_HOLD, .root = c->we_hold};
        return true;
    }
    if (op == NULL)
        return false;
    c->out = (tcp_frame){.type = TCP_FRAME_CTS, .seq = transfer_of(op)->send_seq};
    c->cts_due = op->next;
    transfer_of(op)->cts_sent = 1;
    end_if_whole(c, op);
    return true;
}

/* How much of a message goes out before its CTS has come. */
static size_t first_part(const tcp_conn *c, size_t bytes)
{
    if (c->peer_holds)
        return bytes <= TRII_TINY_BYTES ? bytes : 0;
    return bytes <= WHOLE_BYTES ? bytes : TRII_EAGER_BYTES;
}

static bool p2p_next_frame(tcp_conn *c)
{
    trii_op *op = c->cleared != NULL ? c->cleared : c->sends;

    if (op == NULL)
        return false;
    if (op == c->cleared) {
        c->out = (tcp_frame){.type = TCP_FRAME_REST,
                             .seq = op->call.seq,
                             .bytes = op->call.bytes - transfer_of(op)->moved};
    } else {
        tcp_frame_fill(&c->out, TCP_FRAME_MESSAGE, &op->call);
        c->out.root = c->rank;
        c->out.part = (uint32_t)op->call.tag;
        c->out.bytes = first_part(c, op->call.bytes);
        if (c->out.bytes < op->call.bytes || op->call.bytes > TRII_EAGER_BYTES)
            c->out.type = TCP_FRAME_RTS;
    }
    c->out_from = (const char *)op->call.src + transfer_of(op)->moved;
    c->out_op = op;
    return true;
}

/* The CTS of a send has come, and its first part was sent. */
static void send_rest(tcp_conn *c, trii_op *op)
{
    if (transfer_of(op)->moved == op->call.bytes) {
        tcp_finish(c->group, op, TRI_OK, NULL);
        return;
    }
    append(&c->cleared, &c->last_cleared, op);
    c->want_out = true;
}

static void p2p_sent(tcp_conn *c, trii_op *op)
{
    transfer *p = transfer_of(op);

    if (op == c->cleared)
        c->cleared = op->next;
    else
        c->sends = op->next;
    if (c->out.type != TCP_FRAME_RTS) {
        tcp_finish(c->group, op, TRI_OK, NULL);
        return;
    }
    p->moved = c->out.bytes;
    p->waiting.tagged.tag = op->call.seq;
    if (p->cleared) {
        send_rest(c, op);
        return;
    }
    trii_tags_add(&c->rts_sent, &p->waiting.tagged);
    c->want_in = c->want_in || c->parked || c->full; /* the CTS comes after that */
}

/* --- in ------------------------------------------------------------------- */

/* Whether the payload of a message is no more than that. */
static bool is_sound(const tcp_frame *head)
{
    size_t all;

    return !__builtin_mul_overflow(head->count, tri_dtype_size((tri_dtype)head->dtype), &all) &&
           (head->bytes == all || (head->type == TCP_FRAME_RTS && head->bytes < all));
}

static tcp_verdict accept_message(tcp_conn *c)
{
    trii_op *op = NULL;

    if (!is_sound(&c->head))
        return TCP_MALFORMED;
    c->last_call = c->head;
    if (!find_recv(c, &c->head, &op))
        return TCP_PARKED;
    if (op == NULL)
        return tcp_unexpected_keep(c) ? TCP_ACCEPTED : TCP_PARKED;
    c->in_recv = op;
    c->in_to = op->call.dst;
    if (c->head.type == TCP_FRAME_RTS)
        request_rest(c, &c->head, op);
    return TCP_ACCEPTED;
}

static tcp_verdict accept_rest(tcp_conn *c)
{
    trii_tagged *one = trii_tags_find(&c->rest_expected, c->head.seq);
    trii_op *op = one != NULL ? trii_waiting_op(one) : NULL;

    if (op == NULL || c->head.bytes != op->bytes - transfer_of(op)->moved)
        return TCP_MALFORMED;
    trii_tags_remove(&c->rest_expected, one);
    c->in_recv = op;
    c->in_to = (char *)op->call.dst + transfer_of(op)->moved;
    return TCP_ACCEPTED;
}

static void take_cts(tcp_conn *c)
{
    trii_tagged *one = trii_tags_find(&c->rts_sent, c->head.seq);

    if (one != NULL) {
        trii_tags_remove(&c->rts_sent, one);
        send_rest(c, trii_waiting_op(one));
    } else if (c->out_op != NULL && c->out_owner == &tcp_p2p_owner &&
               c->out_op->call.seq == c->head.seq) {
        transfer_of(c->out_op)->cleared = 1;
    }
}

static tcp_verdict p2p_accept(tcp_conn *c)
{
    switch (c->head.type) {
    case TCP_FRAME_REST:
        return accept_rest(c);
    case TCP_FRAME_CTS:
        take_cts(c);
        return TCP_ACCEPTED;
    case TCP_FRAME_HOLD:
        c->peer_holds = c->head.root != 0;
        return TCP_ACCEPTED;
    case TCP_FRAME_LISTENS:
        c->last_call = c->head;
        return TCP_ACCEPTED;
    default:
        return accept_message(c);
    }
}

static void p2p_received(tcp_conn *c, size_t bytes)
{
    trii_op *op = c->in_recv;

    (void)bytes;
    if (c->in_left > 0)
        return;
    c->in_recv = NULL;
    c->in_unexpected = NULL; /* it is kept */
    if (op == NULL)
        return;
    if (c->head.type == TCP_FRAME_RTS)
        expect_rest(c, &c->head, op);
    else
        tcp_finish(c->group, op, TRI_OK, NULL);
}

/* --- ends ----------------------------------------------------------------- */

static const trii_op *first_of(const trii_tags *tags)
{
    const trii_tagged *one = trii_tags_walk(tags, NULL);

    return one != NULL ? trii_waiting_op(one) : NULL;
}

static const trii_op *p2p_needing(const tcp_conn *c)
{
    const trii_op *ops[] = {c->in_recv, first_of(&c->rest_expected),
                            c->sends,   first_of(&c->rts_sent),
                            c->cleared, first_of(&c->recvs)};

    for (size_t i = 0; i < TRII_COUNT_OF(ops); i++) {
        if (ops[i] != NULL)
            return ops[i];
    }
    return NULL;
}

static void p2p_peer_left(tcp_conn *c)
{
    const trii_op *op = no_sender_left(c->group);

    if (op != NULL)
        tcp_fail_left(c, op);
}

bool tcp_p2p_cancel(tcp_group *g, trii_op *op)
{
    bool found;

    if (trii_op_status(op) != TRI_INPROGRESS)
        return false;
    found = op->call.kind == TRII_KIND_SEND ? tcp_unexpected_cancel_send(&g->conns[g->rank], op)
                                            : trii_recv_cancel(&g->any_recvs, op);
    g->pending -= found;
    return found;
}

static void fail_tags(tcp_group *g, trii_tags *tags, tri_status status, const char *why)
{
    trii_op *op;

    while ((op = trii_waiting_pop(tags)) != NULL)
        tcp_finish(g, op, status, why);
}

static void fail_list(tcp_group *g, trii_op **list, tri_status status, const char *why)
{
    while (*list != NULL) {
        trii_op *op = *list;

        *list = op->next;
        tcp_finish(g, op, status, why);
    }
}

static void fail_conn(tcp_conn *c, tri_status status, const char *why)
{
    tcp_group *g = c->group;

    c->cts_due = NULL; /* they are among the receives */
    c->out_op = NULL;
    fail_list(g, &c->sends, status, why);
    fail_list(g, &c->cleared, status, why);
    fail_tags(g, &c->rts_sent, status, why);
    fail_tags(g, &c->recvs, status, why);
    fail_tags(g, &c->rest_expected, status, why);
    if (c->in_recv != NULL)
        tcp_finish(g, c->in_recv, status, why);
    c->in_recv = NULL;
    tcp_unexpected_fail_all(c, status, why);
}

static void p2p_fail_all(tcp_group *g, tri_status status, const char *why)
{
    for (int r = 0; r < g->size; r++) /* ourselves, too */
        fail_conn(&g->conns[r], status, why);
    fail_tags(g, &g->any_recvs, status, why);
}

void tcp_p2p_describe_wait(tcp_group *g, const trii_op *op, char *text, size_t size)
{
    bool send = op->call.kind == TRII_KIND_SEND;
    const tcp_conn *c = op->peer >= 0 ? &g->conns[op->peer] : NULL;
    size_t used;

    if (c == NULL || c->rank == g->rank)
        used = (size_t)snprintf(text, size, "%s", c == NULL ? "any rank" : "this rank itself");
    else
        used = tcp_peer_describe(c, text, 0, false, size);
    if (used < size)
        used += (size_t)snprintf(text + used, size - used, " to %s the message",
                                 send ? "take" : "send");
    if (c != NULL && !send && used < size)
        trii_kept_describe("this rank", c->unexpected_bytes, text + used, size - used);
}

const tcp_owner tcp_p2p_owner = {
    .kinds = TRII_KINDS_PAIR,
    .frames = TCP_FRAMES_P2P,
    .post = p2p_post,
    .accept = p2p_accept,
    .received = p2p_received,
    .next_request = p2p_next_request,
    .next_frame = p2p_next_frame,
    .sent = p2p_sent,
    .needing = p2p_needing,
    .peer_left = p2p_peer_left,
    .fail_all = p2p_fail_all,
};
