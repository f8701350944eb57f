/*
 * tcp_early.c - what comes before the call that it is for (MPI: unexpected messages). A message
 * without a recv is kept, up to TCP_EARLY bytes; beyond that it stays in the connection, and so
 * does all that is behind it. Long before, the peer was asked to hold its messages.
 *
 * A collective's frame that cannot be taken yet is put aside here if a recv waits for a message
 * behind it; so is the rest of a frame for which the ring has no room because another rank is late
 * with its part. A peer has at most TCP_SLOTS calls under way that it cannot end without us: their
 * frames are put aside however large they are. tcp_p2p.c and tcp_coll.c take their frames from
 * here.
 */
#include <string.h>

#include "base/alloc.h"
#include "engines/tcp/tcp.h"

/* Calls that end on no rank before all have given their share. */
#define NEED_ALL (TRII_KINDS_COLLECTIVE & ~TRII_KINDS_ROOTED)

#define EARLY_MOST (SIZE_MAX / 2) /* a frame: more can only be nonsense */

static bool is_message(const tcp_frame *head)
{
    return head->type == TCP_FRAME_MESSAGE || head->type == TCP_FRAME_RTS;
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
    bool hold = bytes >= TRII_KEPT_EAGER || (c->we_hold && bytes >= TRII_KEPT_EAGER / 2);

    c->early_bytes = bytes;
    if (hold != c->we_hold && c->rank != c->group->rank)
        c->hold_due = c->want_out = c->want_request = true;
    c->we_hold = hold;
}

/* A message to oneself that was not copied waits in its sender's buffer. */
static size_t counted_of(const tcp_early *early)
{
    return early->send != NULL ? sizeof(*early) : counted_size(&early->head);
}

void tcp_early_free(tcp_conn *c, tcp_early *early)
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

/* --- messages ------------------------------------------------------------- */

bool tcp_early_keep(tcp_conn *c)
{
    tcp_early *early = begin_early(c);

    if (early == NULL)
        return false;
    early->tagged.tag = early->head.part;
    trii_tags_add(&c->early, &early->tagged);
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

bool tcp_early_cancel_send(tcp_conn *self, const trii_op *send)
{
    trii_tagged *one = trii_tags_find(&self->early, trii_tag_of(&send->call));

    while (one != NULL && ((tcp_early *)one)->send != send)
        one = trii_tags_next(one);
    if (one == NULL)
        return false;
    trii_tags_remove(&self->early, one);
    tcp_early_free(self, (tcp_early *)one);
    return true;
}

void tcp_stash_drop(tcp_conn *c)
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
        tcp_early_free(c, early);
    }
    trii_tags_clear(&c->early);
    while (c->stash != NULL)
        tcp_stash_drop(c);
    c->stash_coll = NULL;
}

/* --- collectives ---------------------------------------------------------- */

bool tcp_stash_put(tcp_conn *c)
{
    bool waited_for = c->recvs.count > 0 || c->rest_expected.count > 0 || c->rts_sent.count > 0 ||
                      c->group->any_recvs.count > 0;
    tcp_early *early = waited_for ? begin_early(c) : NULL;

    if (early == NULL)
        return false;
    *(c->stash != NULL ? &c->last_stash->next : &c->stash) = early;
    c->last_stash = early;
    return true;
}
