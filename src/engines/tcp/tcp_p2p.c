/*
 * tcp_p2p.c - send and recv. Messages of a pair travel in order; each goes to the oldest recv
 * with its tag. A message that comes first is kept, up to TCP_EARLY bytes; beyond that it
 * waits in the connection, and what is behind it too. A collective of which the peer has begun
 * more than we have is put aside likewise, when a recv waits for a message behind it, and so is
 * what its ring has no room for while another rank keeps it from being summed. Of calls that the
 * peer cannot end without us there are at most TCP_SLOTS: these are put aside whatever they take.
 */
#include <string.h>

#include "base/alloc.h"
#include "engines/tcp/tcp.h"

/* Calls that end on no rank before all have given their share. */
#define NEED_ALL                                                                                   \
    (1u << TRII_KIND_ALL_REDUCE | 1u << TRII_KIND_ALL_GATHER | 1u << TRII_KIND_ALL_GATHER_V |      \
     1u << TRII_KIND_REDUCE_SCATTER | 1u << TRII_KIND_REDUCE_SCATTER_V |                           \
     1u << TRII_KIND_ALL_TO_ALL | 1u << TRII_KIND_ALL_TO_ALL_V | 1u << TRII_KIND_BARRIER)

#define EARLY_MOST (SIZE_MAX / 2) /* a frame: more can only be nonsense */

/* Order of posting, of a receive. */
static uint64_t posted(const trii_op *recv)
{
    return recv->scratch[0];
}

static bool matches(const tcp_frame *head, const trii_op *recv)
{
    return head->part == (uint32_t)recv->call.tag;
}

/* The message is the recv's by its tag: they must agree about what it is. */
static bool check_match(tcp_conn *c, const tcp_frame *head, const trii_op *recv)
{
    if (head->dtype == (uint8_t)recv->call.dtype && head->count == recv->call.count &&
        head->bytes == recv->call.bytes)
        return true;
    tcp_fail_mismatch(c->group, &recv->call, c->rank, head);
    return false;
}

/* What a frame that is kept takes; also without a payload, so that there is a limit to those. */
static size_t early_size(const tcp_frame *head)
{
    return sizeof(tcp_early) + (size_t)head->bytes;
}

/* What of that counts against TCP_EARLY. */
static size_t counted_size(const tcp_frame *head)
{
    bool bounded = head->type != TCP_FRAME_MESSAGE && head->kind < TRII_KIND_COUNT &&
                   trii_kind_in((trii_kind)head->kind, NEED_ALL);

    return bounded ? 0 : early_size(head);
}

static void drop_early(tcp_conn *c, tcp_early *early)
{
    tcp_early **link = &c->early, *before = NULL;

    while (*link != early) {
        before = *link;
        link = &before->next;
    }
    *link = early->next;
    if (c->last_early == early)
        c->last_early = before;
    c->early_bytes -= counted_size(&early->head);
    trii_free(early);
    c->want_in = c->want_in || c->parked; /* there is room again */
}

/* An early message is whole and its recv is there. */
static void deliver(tcp_conn *c, tcp_early *early)
{
    trii_op *op = early->op;
    size_t bytes = (size_t)early->head.bytes;

    if (bytes > 0)
        memcpy(op->call.dst, early->data, bytes);
    drop_early(c, early);
    tcp_finish(c->group, op, TRI_OK, NULL);
}

static tcp_early *find_early(const tcp_conn *c, const trii_op *op)
{
    tcp_early *early = c->early;

    while (early != NULL && (early->op != NULL || !matches(&early->head, op)))
        early = early->next;
    return early;
}

static void take_early(tcp_conn *c, tcp_early *early, trii_op *op)
{
    early->op = op;
    if (check_match(c, &early->head, op) && early->done == early->head.bytes)
        deliver(c, early);
}

static void post_recv(tcp_conn *c, trii_op *op)
{
    tcp_early *early = find_early(c, op);

    if (early != NULL) {
        take_early(c, early, op);
        return;
    }
    *(c->recvs != NULL ? &c->last_recv->next : &c->recvs) = op;
    c->last_recv = op;
    c->want_in = c->want_in || c->parked || c->full;
    if (c->gone)
        tcp_fail_gone(c, op);
}

static void post_recv_any(tcp_group *g, trii_op *op)
{
    trii_op **at = &g->any_recvs;

    for (int i = 1; i < g->size; i++) {
        tcp_conn *c = &g->conns[(g->rank + i) % g->size];
        tcp_early *early = find_early(c, op);

        if (early != NULL && trii_op_claim(op)) {
            op->call.root = c->rank;
            take_early(c, early, op);
            return;
        }
        c->want_in = c->want_in || c->parked || c->full;
    }
    while (*at != NULL)
        at = &(*at)->next;
    *at = op;
    if (tcp_any_recv_in_vain(g) != NULL)
        tcp_fail_gone(&g->conns[g->rank == 0 ? 1 : 0], op);
}

void tcp_p2p_post(tcp_group *g, trii_op *op)
{
    tcp_conn *c;

    op->next = NULL;
    op->scratch[0] = ++g->n_recvs;
    if (op->call.kind == TRII_KIND_RECV_ANY) {
        post_recv_any(g, op);
        return;
    }
    c = &g->conns[op->call.root];
    if (op->call.kind == TRII_KIND_RECV) {
        post_recv(c, op);
        return;
    }
    *(c->sends != NULL ? &c->last_send->next : &c->sends) = op;
    c->last_send = op;
    c->want_out = true;
    if (c->gone)
        tcp_fail_gone(c, op);
}

bool tcp_p2p_next_frame(tcp_conn *c)
{
    trii_op *op = c->sends;

    if (op == NULL)
        return false;
    tcp_frame_fill(&c->out, TCP_FRAME_MESSAGE, &op->call);
    c->out.root = c->rank;
    c->out.part = (uint32_t)op->call.tag;
    c->out_from = op->call.src;
    c->out_send = op;
    return true;
}

void tcp_p2p_sent(tcp_conn *c)
{
    trii_op *op = c->sends;

    c->sends = op->next;
    c->out_send = NULL;
    tcp_finish(c->group, op, TRI_OK, NULL);
}

/* Room for the frame whose header has come; NULL: there is none, and it can wait. */
static tcp_early *begin_early(tcp_conn *c)
{
    tcp_early *early = NULL;
    size_t counted;
    bool room;

    if (c->head.bytes > EARLY_MOST)
        return NULL;
    counted = counted_size(&c->head);
    if (c->head.type == TCP_FRAME_MESSAGE)
        room = counted <= TCP_EARLY && c->early_bytes <= TCP_EARLY - counted;
    else
        room = counted == 0 || c->early_bytes < TCP_EARLY; /* one may be larger than that */
    if (room)
        early = trii_alloc(1, early_size(&c->head), "early message");
    if (early == NULL)
        return NULL;
    early->head = c->head;
    c->early_bytes += counted;
    c->in_early = early;
    c->in_to = early->data;
    return early;
}

/* The receive from any rank that takes the message in c->head before `other` does, out of its
 * list; or NULL. */
static trii_op *take_any_recv(tcp_conn *c, const trii_op *other)
{
    trii_op **link = &c->group->any_recvs;
    trii_op *op;

    for (; *link != NULL; link = &(*link)->next) {
        if (!matches(&c->head, *link) || trii_op_is_claimed(*link))
            continue;
        if (other != NULL && posted(other) < posted(*link))
            return NULL;
        if (trii_op_claim(*link))
            break;
    }
    op = *link;
    if (op == NULL)
        return NULL;
    *link = op->next;
    op->call.root = c->rank;
    return op;
}

bool tcp_p2p_accept(tcp_conn *c)
{
    trii_op **link = &c->recvs, *last = NULL;
    tcp_early *early;

    while (*link != NULL && !matches(&c->head, *link)) {
        last = *link;
        link = &(*link)->next;
    }
    c->in_recv = take_any_recv(c, *link);
    if (c->in_recv == NULL && *link != NULL) {
        c->in_recv = *link;
        *link = c->in_recv->next;
        if (c->last_recv == c->in_recv)
            c->last_recv = last;
    }
    if (c->in_recv != NULL) {
        c->in_to = c->in_recv->call.dst;
        return check_match(c, &c->head, c->in_recv);
    }
    early = begin_early(c);
    if (early == NULL)
        return false;
    *(c->early != NULL ? &c->last_early->next : &c->early) = early;
    c->last_early = early;
    return true;
}

bool tcp_stash_rest(tcp_conn *c)
{
    tcp_coll *coll = c->in_coll;

    c->head.bytes = c->in_left; /* what was taken is no longer of it */
    if (!tcp_stash_accept(c))
        return false;
    c->stash_coll = coll;
    c->stash_stream = c->in_stream;
    c->in_coll = NULL;
    c->full = false;
    return true;
}

bool tcp_stash_accept(tcp_conn *c)
{
    bool waited_for = c->recvs != NULL || c->group->any_recvs != NULL;
    tcp_early *early = waited_for ? begin_early(c) : NULL;

    if (early == NULL)
        return false;
    *(c->stash != NULL ? &c->last_stash->next : &c->stash) = early;
    c->last_stash = early;
    return true;
}

static void drop_stash(tcp_conn *c)
{
    tcp_early *early = c->stash;

    c->stash = early->next;
    c->early_bytes -= counted_size(&early->head);
    trii_free(early);
}

bool tcp_stash_replay(tcp_conn *c)
{
    tcp_early *early = c->stash;
    tcp_stream *stream;
    tcp_coll *coll;
    size_t bytes;
    char *to;

    if (early == NULL || early == c->in_early)
        return false;
    if (c->stash_coll == NULL)
        c->stash_coll = tcp_coll_accept(c, &early->head, &c->stash_stream);
    coll = c->stash_coll;
    stream = c->stash_stream;
    if (coll == NULL)
        return false;
    bytes = tcp_coll_room(coll, stream, (size_t)early->head.bytes - early->replayed, &to);
    if (bytes > 0)
        memcpy(to, early->data + early->replayed, bytes);
    else if (early->replayed < early->head.bytes)
        return false; /* the ring is full */
    stream->done += bytes;
    early->replayed += bytes;
    if (early->replayed == early->head.bytes) {
        drop_stash(c);
        c->stash_coll = NULL;
    }
    tcp_coll_came(c, coll, stream);
    return true;
}

void tcp_p2p_came(tcp_conn *c)
{
    if (c->in_recv != NULL) {
        trii_op *op = c->in_recv;

        c->in_recv = NULL;
        tcp_finish(c->group, op, TRI_OK, NULL);
    } else {
        tcp_early *early = c->in_early;

        c->in_early = NULL;
        early->done = (size_t)early->head.bytes;
        if (early->op != NULL)
            deliver(c, early);
    }
}

const trii_op *tcp_p2p_needing(const tcp_conn *c)
{
    for (const tcp_early *e = c->early; e != NULL; e = e->next) {
        if (e->op != NULL)
            return e->op;
    }
    return c->sends != NULL ? c->sends : c->recvs;
}

const trii_op *tcp_any_recv_in_vain(tcp_group *g)
{
    trii_op **link = &g->any_recvs;

    for (int r = 0; r < g->size && g->any_recvs != NULL; r++) {
        if (r != g->rank && !g->conns[r].gone)
            return NULL;
    }
    while (*link != NULL) {
        trii_op *op = *link;

        if (op->call.claim == NULL)
            return op;
        *link = op->next;
        tcp_finish(g, op, TRI_ERR_PEER_LOST, "every rank left the group");
    }
    return NULL;
}

bool tcp_p2p_withdraw(tcp_group *g, const trii_op *op)
{
    trii_op **link = &g->any_recvs;

    while (*link != NULL && *link != op)
        link = &(*link)->next;
    if (*link == NULL)
        return false;
    *link = op->next;
    g->pending--;
    return true;
}

void tcp_p2p_fail_any(tcp_group *g, tri_status status, const char *why)
{
    while (g->any_recvs != NULL) {
        trii_op *op = g->any_recvs;

        g->any_recvs = op->next;
        tcp_finish(g, op, status, why);
    }
}

void tcp_p2p_fail_all(tcp_conn *c, tri_status status, const char *why)
{
    tcp_group *g = c->group;

    while (c->sends != NULL) {
        trii_op *op = c->sends;

        c->sends = op->next;
        tcp_finish(g, op, status, why);
    }
    while (c->recvs != NULL) {
        trii_op *op = c->recvs;

        c->recvs = op->next;
        tcp_finish(g, op, status, why);
    }
    if (c->in_recv != NULL)
        tcp_finish(g, c->in_recv, status, why);
    c->in_recv = NULL;
    while (c->early != NULL) {
        if (c->early->op != NULL)
            tcp_finish(g, c->early->op, status, why);
        drop_early(c, c->early);
    }
    while (c->stash != NULL)
        drop_stash(c);
    c->stash_coll = NULL;
    c->in_early = NULL;
}
