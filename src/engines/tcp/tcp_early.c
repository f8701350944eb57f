/*
 * tcp_early.c - what comes before the call that it is for. A message without a recv is kept, up to
 * TCP_EARLY bytes; beyond that it waits in the connection, and what is behind it too; the peer was
 * told to hold its messages long before. A collective of which the peer has begun more than we have
 * is put aside likewise, when a recv waits for a message behind it, and so is what its ring has no
 * room for while another rank keeps it from being summed. Of calls that the peer cannot end without
 * us there are at most TCP_SLOTS: these are put aside whatever they take.
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

static bool is_message(const tcp_frame *head)
{
    return head->type == TCP_FRAME_MESSAGE || head->type == TCP_FRAME_OFFER;
}

trii_message tcp_message_of(const tcp_frame *head)
{
    trii_message message = {.dtype = (tri_dtype)head->dtype,
                            .count = (size_t)head->count,
                            .bytes = (size_t)head->bytes};

    if (head->type == TCP_FRAME_OFFER &&
        __builtin_mul_overflow(message.count, tri_dtype_size(message.dtype), &message.bytes))
        message.bytes = SIZE_MAX; /* there is no room for that */
    return message;
}

/* One without a payload may tell of any number of elements: src/composites/checked.c sends those.
 */
bool tcp_message_is_sound(const tcp_frame *head)
{
    size_t all;

    return !__builtin_mul_overflow(head->count, tri_dtype_size((tri_dtype)head->dtype), &all) &&
           (head->bytes == 0 || head->bytes == all ||
            (head->type == TCP_FRAME_OFFER && head->bytes < all));
}

/* What a frame that is kept takes; also without a payload, so that there is a limit to those. */
static size_t early_size(const tcp_frame *head)
{
    return sizeof(tcp_early) + (size_t)head->bytes;
}

/* What of that counts against TCP_EARLY. */
static size_t counted_size(const tcp_frame *head)
{
    bool bounded = !is_message(head) && head->kind < TRII_KIND_COUNT &&
                   trii_kind_in((trii_kind)head->kind, NEED_ALL);

    return bounded ? 0 : early_size(head);
}

/* The peer hears whether we keep much: not at every message. */
static void count(tcp_conn *c, size_t bytes)
{
    bool hold = bytes >= TRII_KEPT_EAGER || (c->held && bytes >= TRII_KEPT_EAGER / 2);

    c->early_bytes = bytes;
    if (hold != c->held && c->rank != c->group->rank)
        c->want_hold = c->want_out = true;
    c->held = hold;
}

/* A message to oneself that was not copied waits in its sender's buffer. */
static size_t counted_of(const tcp_early *early)
{
    return early->send != NULL ? sizeof(*early) : counted_size(&early->head);
}

static void free_early(tcp_conn *c, tcp_early *early)
{
    count(c, c->early_bytes - counted_of(early));
    trii_free(early);
    c->want_in = c->want_in || c->parked; /* there is room again */
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
    if (is_message(&c->head))
        room = counted <= TCP_EARLY && c->early_bytes <= TCP_EARLY - counted;
    else
        room = counted == 0 || c->early_bytes < TCP_EARLY; /* one may be larger than that */
    if (room)
        early = trii_alloc(1, early_size(&c->head), "early message");
    if (early == NULL)
        return NULL;
    early->head = c->head;
    count(c, c->early_bytes + counted);
    c->in_early = early;
    c->in_to = early->data;
    return early;
}

/* --- messages --------------------------------------------------------------------------------- */

bool tcp_early_keep(tcp_conn *c)
{
    tcp_early *early = begin_early(c);

    if (early == NULL)
        return false;
    early->tagged.tag = early->head.part;
    trii_tags_add(&c->early, &early->tagged);
    return true;
}

/* A message that is in no table any more, and all that came of it is there. */
static void deliver(tcp_conn *c, tcp_early *early, trii_op *op)
{
    trii_op *send = early->send;
    const tcp_frame head = early->head;

    if (head.bytes > 0)
        memcpy(op->call.dst, send != NULL ? send->call.src : early->data, (size_t)head.bytes);
    free_early(c, early);
    if (send != NULL)
        tcp_finish(c->group, send, TRI_OK, NULL);
    tcp_p2p_got(c, &head, op);
}

bool tcp_early_take(tcp_conn *c, trii_op *op)
{
    tcp_early *early = (tcp_early *)trii_tags_find(&c->early, trii_tag_of(&op->call));
    trii_message message;
    char why[TRII_ERR_BYTES];

    if (early == NULL || (op->call.kind == TRII_KIND_RECV_ANY && !trii_op_claim(op)))
        return false;
    op->call.root = c->rank;
    message = tcp_message_of(&early->head);
    if (message.dtype != op->call.dtype) {
        trii_recv_wait(&c->recvs, op, 0); /* ends with the group */
        tcp_fail_mismatch(c->group, &op->call, c->rank, &early->head);
        return true;
    }
    if (!trii_recv_fits(op, &message, why)) {
        tcp_finish(c->group, op, TRI_ERR_INVALID_ARG, why);
        return true;
    }
    trii_tags_remove(&c->early, &early->tagged);
    if (early != c->in_early) {
        deliver(c, early, op);
        return true;
    }
    c->in_early = NULL; /* what is still to come goes where it belongs */
    tcp_p2p_take_over(c, op, early->data);
    free_early(c, early);
    return true;
}

void tcp_early_send(tcp_conn *self, trii_op *op)
{
    tcp_group *g = self->group;
    bool copied = trii_is_copied(op->call.bytes, self->early_bytes);
    tcp_early *early =
        trii_alloc(1, sizeof(*early) + (copied ? op->call.bytes : 0), "message to oneself");

    if (early == NULL) {
        tcp_finish(g, op, TRI_ERR_NO_MEMORY, tri_last_error());
        return;
    }
    tcp_frame_fill(&early->head, TCP_FRAME_MESSAGE, &op->call);
    early->head.part = (uint32_t)op->call.tag;
    early->tagged.tag = early->head.part;
    early->send = copied ? NULL : op;
    count(self, self->early_bytes + counted_of(early));
    trii_tags_add(&self->early, &early->tagged);
    if (!copied)
        return;
    if (op->call.bytes > 0)
        memcpy(early->data, op->call.src, op->call.bytes);
    tcp_finish(g, op, TRI_OK, NULL);
}

bool tcp_early_take_back(tcp_conn *self, const trii_op *send)
{
    trii_tagged *one = trii_tags_find(&self->early, trii_tag_of(&send->call));

    while (one != NULL && ((tcp_early *)one)->send != send)
        one = trii_tags_next(one);
    if (one == NULL)
        return false;
    trii_tags_remove(&self->early, one);
    free_early(self, (tcp_early *)one);
    return true;
}

static void drop_stash(tcp_conn *c)
{
    tcp_early *early = c->stash;

    c->stash = early->next;
    count(c, c->early_bytes - counted_size(&early->head));
    trii_free(early);
}

void tcp_early_fail_all(tcp_conn *c, tri_status status, const char *why)
{
    trii_tagged *one;

    c->in_early = NULL; /* it is among the following */
    while ((one = trii_tags_walk(&c->early, NULL)) != NULL) {
        tcp_early *early = (tcp_early *)one;

        trii_tags_remove(&c->early, one);
        if (early->send != NULL)
            tcp_finish(c->group, early->send, status, why);
        free_early(c, early);
    }
    trii_tags_clear(&c->early);
    while (c->stash != NULL)
        drop_stash(c);
    c->stash_coll = NULL;
}

/* --- collectives ------------------------------------------------------------------------------ */

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
    bool waited_for = c->recvs.count > 0 || c->resting.count > 0 || c->offered.count > 0 ||
                      c->group->any_recvs.count > 0;
    tcp_early *early = waited_for ? begin_early(c) : NULL;

    if (early == NULL)
        return false;
    *(c->stash != NULL ? &c->last_stash->next : &c->stash) = early;
    c->last_stash = early;
    return true;
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
