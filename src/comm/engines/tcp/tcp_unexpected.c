/*
 * tcp_unexpected.c - what comes before the call that it is for. A message without a recv is kept,
 * up to TCP_UNEXPECTED bytes per connection; beyond that it stays in the connection, and so does
 * all that comes after it. Long before that, this rank asks the peer to hold its messages.
 *
 * A collective's frame that cannot be taken yet is put aside here if a recv waits for a message
 * after it; so is the rest of a frame for which the ring has no room because another rank is late
 * with its part. A peer has at most TCP_SLOTS calls under way that it cannot end without us: their
 * frames are put aside however large they are. tcp_p2p.c and tcp_coll.c take their frames from
 * here.
 */
#include <string.h>

#include "base/alloc.h"
#include "comm/engines/tcp/tcp.h"

/* Calls that end on no rank before all have given their share. */
#define NEED_ALL (TRII_KINDS_COLLECTIVE & ~TRII_KINDS_ROOTED)

#define UNEXPECTED_MOST (SIZE_MAX / 2) /* a frame: more can only be nonsense */

static bool is_message(const tcp_frame *head)
{
    return head->type == TCP_FRAME_MESSAGE || head->type == TCP_FRAME_RTS;
}

/* The memory of a frame that is kept; not 0 without a payload, so that those are limited, too. */
static size_t unexpected_size(const tcp_frame *head)
{
    return sizeof(tcp_unexpected) + (size_t)head->bytes;
}

/* What of that counts against TCP_UNEXPECTED. */
static size_t counted_size(const tcp_frame *head)
{
    bool bounded = !is_message(head) && head->kind < TRII_KIND_COUNT &&
                   trii_kind_in((trii_kind)head->kind, NEED_ALL);

    return bounded ? 0 : unexpected_size(head);
}

/* Notes whether to tell the peer to hold its messages, which changes rarely. */
static void count(tcp_conn *c, size_t bytes)
{
    bool hold = bytes >= TRII_KEPT_EAGER || (c->we_hold && bytes >= TRII_KEPT_EAGER / 2);

    c->unexpected_bytes = bytes;
    if (hold != c->we_hold && c->rank != c->group->rank)
        c->hold_due = c->want_out = c->want_request = true;
    c->we_hold = hold;
}

/* A message to oneself that was not copied waits in its sender's buffer. */
static size_t counted_of(const tcp_unexpected *kept)
{
    return kept->send != NULL ? sizeof(*kept) : counted_size(&kept->head);
}

void tcp_unexpected_free(tcp_conn *c, tcp_unexpected *kept)
{
    count(c, c->unexpected_bytes - counted_of(kept));
    trii_free(kept);
    c->want_in = c->want_in || c->parked; /* there is room again */
}

/* Room for the frame whose header has come; NULL: there is none, and it can wait. */
static tcp_unexpected *begin_unexpected(tcp_conn *c)
{
    tcp_unexpected *kept = NULL;
    size_t counted;
    bool room;

    if (c->head.bytes > UNEXPECTED_MOST)
        return NULL;
    counted = counted_size(&c->head);
    if (is_message(&c->head))
        room = counted <= TCP_UNEXPECTED && c->unexpected_bytes <= TCP_UNEXPECTED - counted;
    else
        room =
            counted == 0 || c->unexpected_bytes < TCP_UNEXPECTED; /* one may be larger than that */
    if (room)
        kept = trii_alloc(1, unexpected_size(&c->head), "unexpected message");
    if (kept == NULL)
        return NULL;
    kept->head = c->head;
    count(c, c->unexpected_bytes + counted);
    c->in_unexpected = kept;
    c->in_to = kept->data;
    return kept;
}

/* --- messages ------------------------------------------------------------- */

bool tcp_unexpected_keep(tcp_conn *c)
{
    tcp_unexpected *kept = begin_unexpected(c);

    if (kept == NULL)
        return false;
    kept->tagged.tag = kept->head.part;
    trii_tags_add(&c->unexpected, &kept->tagged);
    return true;
}

void tcp_unexpected_send(tcp_conn *self, trii_op *op)
{
    tcp_group *g = self->group;
    bool copied = trii_is_copied(op->call.bytes, self->unexpected_bytes);
    tcp_unexpected *kept =
        trii_alloc(1, sizeof(*kept) + (copied ? op->call.bytes : 0), "message to oneself");

    if (kept == NULL) {
        tcp_finish(g, op, TRI_ERR_NO_MEMORY, tri_last_error());
        return;
    }
    tcp_frame_fill(&kept->head, TCP_FRAME_MESSAGE, &op->call);
    kept->head.part = (uint32_t)op->call.tag;
    kept->tagged.tag = kept->head.part;
    kept->send = copied ? NULL : op;
    count(self, self->unexpected_bytes + counted_of(kept));
    trii_tags_add(&self->unexpected, &kept->tagged);
    if (!copied)
        return;
    if (op->call.bytes > 0)
        memcpy(kept->data, op->call.src, op->call.bytes);
    tcp_finish(g, op, TRI_OK, NULL);
}

bool tcp_unexpected_cancel_send(tcp_conn *self, const trii_op *send)
{
    trii_tagged *one = trii_tags_find(&self->unexpected, trii_tag_of(&send->call));

    while (one != NULL && ((tcp_unexpected *)one)->send != send)
        one = trii_tags_next(one);
    if (one == NULL)
        return false;
    trii_tags_remove(&self->unexpected, one);
    tcp_unexpected_free(self, (tcp_unexpected *)one);
    return true;
}

void tcp_stash_drop(tcp_conn *c)
{
    tcp_unexpected *kept = c->stash;

    c->stash = kept->next;
    count(c, c->unexpected_bytes - counted_size(&kept->head));
    trii_free(kept);
}

void tcp_unexpected_fail_all(tcp_conn *c, tri_status status, const char *why)
{
    trii_tagged *one;

    c->in_unexpected = NULL; /* it is among the following */
    while ((one = trii_tags_walk(&c->unexpected, NULL)) != NULL) {
        tcp_unexpected *kept = (tcp_unexpected *)one;

        trii_tags_remove(&c->unexpected, one);
        if (kept->send != NULL)
            tcp_finish(c->group, kept->send, status, why);
        tcp_unexpected_free(c, kept);
    }
    trii_tags_clear(&c->unexpected);
    while (c->stash != NULL)
        tcp_stash_drop(c);
    c->stash_coll = NULL;
}

/* --- collectives ---------------------------------------------------------- */

bool tcp_stash_put(tcp_conn *c)
{
    bool waited_for = c->recvs.count > 0 || c->rest_expected.count > 0 || c->rts_sent.count > 0 ||
                      c->group->any_recvs.count > 0;
    tcp_unexpected *kept = waited_for ? begin_unexpected(c) : NULL;

    if (kept == NULL)
        return false;
    *(c->stash != NULL ? &c->last_stash->next : &c->stash) = kept;
    c->last_stash = kept;
    return true;
}
