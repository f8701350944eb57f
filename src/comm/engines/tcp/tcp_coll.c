/*
 * tcp_coll.c - collectives under way: starts them, says which bytes of which stream are sent next
 * and where those that come go, sums them, ends the call when all streams are done; and says who is
 * missing. tcp_progress.c calls this file through tcp_coll_owner; which streams a call has is in
 * tcp_plan.c.
 */
#include "comm/engines/tcp/tcp.h"

#include <string.h>

#include "base/alloc.h"
#include "base/ranks_text.h"
#include "comm/group/reduce/reduce.h"
#include "os/socket.h"

static void reduce_received(tcp_group *g, tcp_coll *coll);
static void end_if_done(tcp_group *g, tcp_coll *coll);

void tcp_coll_note(tcp_group *g, const trii_collective *call)
{
    g->past[call->seq % TCP_PAST] = *trii_collective_whole(call);
    g->past_seq[call->seq % TCP_PAST] = call->seq;
}

static void start_one(tcp_group *g, tcp_coll *coll, trii_op *op)
{
    size_t size = tri_dtype_size(op->call.dtype);

    g->started = op->call.seq;
    tcp_coll_note(g, &op->call);
    *coll = (tcp_coll){.op = op,
                       .peers = coll->peers,
                       .elem_bytes = size > 0 ? size : 1,
                       .scratch = coll->scratch,
                       .scratch_bytes = coll->scratch_bytes};
    memset(coll->peers, 0, (size_t)g->size * sizeof(*coll->peers));
    g->running[g->n_running++] = coll;
    if (tcp_plan(g, coll) != TRI_OK) {
        tcp_fail(g, TRI_ERR_NO_MEMORY, "rank %d: %s", tcp_name(g, g->rank), tri_last_error());
        return;
    }
    for (int r = 0; r < g->size; r++) {
        tcp_conn *c = &g->conns[r];

        if (r == g->rank)
            continue;
        c->want_out = true;
        c->want_in = c->want_in || c->parked || c->stash != NULL;
        if (c->has_left && tcp_coll_needing(c) == coll->op) {
            tcp_fail_left(c, coll->op);
            return;
        }
    }
    reduce_received(g, coll); /* a group of one has all of it now */
    end_if_done(g, coll);
}

/* --- life ----------------------------------------------------------------- */

static void coll_post(tcp_group *g, trii_op *op)
{
    op->next = NULL;
    *(g->queue != NULL ? &g->last_queued->next : &g->queue) = op;
    g->last_queued = op;
}

static tcp_coll *free_slot(tcp_group *g)
{
    for (int i = 0; i < TCP_SLOTS; i++) {
        if (g->slots[i].op == NULL)
            return &g->slots[i];
    }
    return NULL;
}

static void coll_start_queued(tcp_group *g)
{
    while (g->queue != NULL && !g->failed) {
        trii_op *op = g->queue;
        tcp_coll *coll = free_slot(g);

        if (coll == NULL)
            return;
        g->queue = op->next;
        if (g->queue == NULL)
            g->last_queued = NULL;
        start_one(g, coll, op);
    }
}

static void end_if_done(tcp_group *g, tcp_coll *coll)
{
    trii_op *op = coll->op;
    int i = 0;

    if (g->failed || coll->n_open > 0 || (coll->reduces && coll->ready < coll->own_bytes))
        return;
    while (g->running[i] != coll)
        i++;
    for (g->n_running--; i < g->n_running; i++)
        g->running[i] = g->running[i + 1];
    coll->op = NULL;
    tcp_finish(g, op, TRI_OK, NULL);
}

/* --- moving --------------------------------------------------------------- */

/* More of the own slice is ready: it can be sent on, and there is room in the rings. */
static void wake_conns(tcp_group *g, const tcp_coll *coll)
{
    for (int r = 0; r < g->size; r++) {
        tcp_conn *c = &g->conns[r];

        if (coll->peers[r].result_out.open)
            c->want_out = true;
        c->want_in = c->want_in || c->full || c->stash_coll == coll;
        c->full = false;
    }
}

static size_t stream_room(const tcp_coll *coll, const tcp_stream *stream, size_t bytes,
                          char **to_out)
{
    size_t at = stream->done, room = bytes;

    if (stream->ring > 0) {
        size_t left = stream->ring - (stream->done - coll->ready);

        at %= stream->ring;
        room = room < left ? room : left;
        room = room < stream->ring - at ? room : stream->ring - at;
    }
    *to_out = stream->at + at;
    return room;
}

/* Reduces as much of the own slice as all peers have sent. */
static void reduce_received(tcp_group *g, tcp_coll *coll)
{
    const trii_collective *call = &coll->op->call;
    size_t came = coll->own_bytes, before = coll->ready;

    if (!coll->reduces || g->failed ||
        (coll->one_phase && call->src == call->dst && coll->n_part_out > 0))
        return;
    for (int r = 0; r < g->size; r++) {
        if (r != g->rank && coll->peers[r].part_in.done < came)
            came = coll->peers[r].part_in.done;
    }
    if (came < coll->own_bytes)
        came -= came % TCP_CHUNK;
    while (coll->ready < came) {
        size_t bytes = came - coll->ready < TCP_CHUNK ? came - coll->ready : TCP_CHUNK;

        size_t at = coll->ring > 0 ? coll->ready % coll->ring : coll->ready;

        for (int r = 0; r < g->size; r++)
            g->sources[r] =
                r == g->rank ? coll->own_src + coll->ready : coll->peers[r].part_in.at + at;
        trii_reduce(g->sources, g->size, coll->own_dst + coll->ready, bytes / coll->elem_bytes,
                    call->dtype, call->op);
        coll->ready += bytes;
    }
    if (coll->ready > before)
        wake_conns(g, coll);
}

static void close_if_done(tcp_coll *coll, tcp_stream *stream)
{
    if (stream->open && stream->done == stream->total) {
        stream->open = false;
        coll->n_open--;
    }
}

static void stream_received(tcp_conn *c, tcp_coll *coll, tcp_stream *stream, size_t bytes)
{
    tcp_group *g = c->group;

    stream->done += bytes;
    close_if_done(coll, stream);
    if (coll->forwards && stream == &coll->peers[c->rank].part_in) {
        coll->ready = stream->done;
        wake_conns(g, coll);
    } else {
        reduce_received(g, coll);
    }
    end_if_done(g, coll);
}

static void coll_received(tcp_conn *c, size_t bytes)
{
    tcp_coll *coll = c->in_coll;
    bool whole = c->in_left == 0;

    if (whole)
        c->in_coll = NULL;
    if (coll != NULL)
        stream_received(c, coll, c->in_stream, bytes);
    else if (whole)
        c->in_unexpected = NULL; /* it is put aside */
}

static void coll_sent(tcp_conn *c, trii_op *op)
{
    tcp_coll *coll = c->out_coll;
    tcp_stream *stream = c->out_stream;

    (void)op;
    stream->done += (size_t)c->out.bytes;
    if (stream->done < stream->total)
        return;
    close_if_done(coll, stream);
    if (stream == &coll->peers[c->rank].part_out) {
        coll->n_part_out--;
        reduce_received(c->group, coll);
    }
    end_if_done(c->group, coll);
}

static void frame_stream(tcp_conn *c, tcp_coll *coll, tcp_stream *stream, tcp_frame_type type,
                         size_t bytes)
{
    tcp_frame_fill(&c->out, type, &coll->op->call);
    c->out.bytes = bytes;
    c->out_from = stream->at + stream->framed;
    c->out_op = coll->op;
    c->out_coll = coll;
    c->out_stream = stream;
    stream->framed += bytes;
}

/* Calls are served in order, so that a peer never has to wait for a frame after one that it
 * cannot take yet. */
static bool coll_next_frame(tcp_conn *c)
{
    const tcp_group *g = c->group;

    for (int i = 0; i < g->n_running; i++) {
        tcp_coll *coll = g->running[i];
        tcp_streams *s = &coll->peers[c->rank];

        if (s->part_out.open) {
            frame_stream(c, coll, &s->part_out, TCP_FRAME_PART, s->part_out.total);
            return true;
        }
        if (s->result_out.open) {
            size_t ready = coll->ready < s->result_out.total ? coll->ready : s->result_out.total;

            if (ready == s->result_out.framed && s->result_out.total > 0)
                return false;
            frame_stream(c, coll, &s->result_out, TCP_FRAME_RESULT, ready - s->result_out.framed);
            return true;
        }
    }
    return false;
}

static bool same_call(const trii_collective *ours, const tcp_frame *theirs)
{
    return theirs->kind == (uint8_t)ours->kind && theirs->dtype == (uint8_t)ours->dtype &&
           theirs->op == (uint8_t)ours->op && theirs->root == ours->root &&
           theirs->count == ours->count && theirs->part == (uint32_t)ours->seq;
}

bool tcp_coll_disagrees(tcp_conn *c, const tcp_frame *frame)
{
    const trii_collective *ours = &c->group->past[frame->seq % TCP_PAST];

    if (c->group->past_seq[frame->seq % TCP_PAST] != frame->seq || same_call(ours, frame))
        return false;
    tcp_fail_mismatch(c->group, ours, c->rank, frame);
    return true;
}

/* The collective of this frame, or NULL if it is not under way yet or the group failed, as a wrong
 * frame makes it do. *stream_out: where the payload goes. */
static tcp_coll *find_stream(tcp_conn *c, const tcp_frame *frame, tcp_stream **stream_out)
{
    tcp_group *g = c->group;
    tcp_coll *coll = NULL;
    tcp_stream *stream;
    char text[192];

    /* also where it is over here, as for the root of a broadcast */
    if (tcp_coll_disagrees(c, frame) || frame->seq > g->started)
        return NULL;
    for (int i = 0; i < g->n_running; i++) {
        if (g->running[i]->op->call.seq == frame->seq)
            coll = g->running[i];
    }
    if (coll != NULL) {
        stream = frame->type == TCP_FRAME_PART ? &coll->peers[c->rank].part_in
                                               : &coll->peers[c->rank].result_in;
        if (coll->op->call.kind == TRII_KIND_ALL_TO_ALL_V && frame->bytes != stream->total) {
            tcp_frame_describe(g, frame, text, sizeof(text));
            tcp_fail(
                g, TRI_ERR_MISMATCH,
                "the ranks disagree: rank %d sends %zu bytes to rank %d, which expects %zu: %s",
                tcp_name(g, c->rank), (size_t)frame->bytes, tcp_name(g, g->rank), stream->total,
                text);
            return NULL;
        }
        if (stream->open && frame->bytes <= stream->total - stream->framed &&
            (frame->bytes > 0 || stream->total == 0)) {
            stream->framed += frame->bytes;
            *stream_out = stream;
            return coll;
        }
    }
    tcp_frame_describe(g, frame, text, sizeof(text));
    tcp_fail(g, TRI_ERR_MISMATCH, "rank %d got bytes that it does not expect from rank %d: %s",
             tcp_name(g, g->rank), tcp_name(g, c->rank), text);
    return NULL;
}

static tcp_verdict coll_accept(tcp_conn *c)
{
    c->last_call = c->head;
    if (c->head.type == TCP_FRAME_WAITS) {
        c->peer_wait = c->head;
        (void)tcp_coll_disagrees(c, &c->head);
        return TCP_ACCEPTED;
    }
    /* not past what was put aside: it may be of the same stream */
    c->in_coll = c->stash == NULL ? find_stream(c, &c->head, &c->in_stream) : NULL;
    if (c->in_coll == NULL && (c->group->failed || !tcp_stash_put(c)))
        return TCP_PARKED;
    return TCP_ACCEPTED;
}

/* --- frames that were put aside ------------------------------------------- */

/* The ring is full: what is left of the frame is put aside, if that helps. */
static bool stash_rest(tcp_conn *c)
{
    c->head.bytes = c->in_left; /* what was taken is no longer of it */
    if (!tcp_stash_put(c))
        return false;
    c->stash_coll = c->in_coll;
    c->stash_stream = c->in_stream;
    c->in_coll = NULL;
    return true;
}

static size_t coll_room(tcp_conn *c)
{
    size_t room = c->in_left;

    if (c->in_coll != NULL)
        room = stream_room(c->in_coll, c->in_stream, room, &c->in_to);
    return room == 0 && stash_rest(c) ? c->in_left : room;
}

static bool coll_resume(tcp_conn *c)
{
    tcp_unexpected *kept = c->stash;
    tcp_stream *stream;
    tcp_coll *coll;
    size_t bytes;
    char *to;

    if (kept == NULL || kept == c->in_unexpected)
        return false;
    if (c->stash_coll == NULL)
        c->stash_coll = find_stream(c, &kept->head, &c->stash_stream);
    coll = c->stash_coll;
    stream = c->stash_stream;
    if (coll == NULL)
        return false;
    bytes = stream_room(coll, stream, (size_t)kept->head.bytes - kept->delivered, &to);
    if (bytes > 0)
        memcpy(to, kept->data + kept->delivered, bytes);
    else if (kept->delivered < kept->head.bytes)
        return false; /* the ring is full */
    kept->delivered += bytes;
    if (kept->delivered == kept->head.bytes) {
        tcp_stash_drop(c);
        c->stash_coll = NULL;
    }
    stream_received(c, coll, stream, bytes);
    return true;
}

/* --- ends ----------------------------------------------------------------- */

const trii_op *tcp_coll_needing(const tcp_conn *c)
{
    const tcp_group *g = c->group;

    for (int i = 0; i < g->n_running; i++) {
        const tcp_streams *s = &g->running[i]->peers[c->rank];

        if (s->part_out.open || s->part_in.open || s->result_out.open || s->result_in.open)
            return g->running[i]->op;
    }
    return NULL;
}

static void coll_fail_all(tcp_group *g, tri_status status, const char *why)
{
    for (int i = 0; i < g->n_running; i++) {
        tcp_finish(g, g->running[i]->op, status, why);
        g->running[i]->op = NULL;
    }
    g->n_running = 0;
    while (g->queue != NULL) {
        trii_op *op = g->queue;

        g->queue = op->next;
        tcp_finish(g, op, status, why);
    }
}

/* --- who is missing ------------------------------------------------------- */

/* In a broadcast only the root is waited for: the others wait as we do. */
static bool not_arrived(const tcp_coll *coll, int peer)
{
    const tcp_streams *s = &coll->peers[peer];

    if (coll->op->call.kind == TRII_KIND_BROADCAST && coll->op->call.root != peer)
        return false;
    return (s->part_in.open && s->part_in.framed == 0) ||
           (s->result_in.open && s->result_in.framed == 0 && s->part_in.framed == 0 &&
            !trii_kind_in(coll->op->call.kind, TRII_KINDS_REDUCING));
}

/* First those that did not arrive: the others wait for them as we do. */
static void describe_coll(tcp_group *g, const tcp_coll *coll, char *text, size_t size)
{
    int ranks[TRII_POLL_MAX], n = 0;
    size_t used = 0;

    for (int r = 0; r < g->size; r++) {
        if (r != g->rank && not_arrived(coll, r))
            ranks[n++] = r;
    }
    for (int r = 0; r < g->size && used == 0 && n == 0; r++) {
        if (r != g->rank && tcp_coll_needing(&g->conns[r]) == coll->op)
            ranks[n++] = r;
    }
    text[0] = '\0';
    if (n > 1) { /* all of them, as what follows may not fit */
        int names[TRII_POLL_MAX];

        for (int i = 0; i < n; i++)
            names[i] = tcp_name(g, ranks[i]);
        used = trii_ranks_text(names, n, text, size);
        used += (size_t)snprintf(text + used, size - used, ": ");
    }
    for (int i = 0; i < n && used < size; i++)
        used = tcp_peer_describe(&g->conns[ranks[i]], text, used, i > 0, size);
}

void tcp_coll_describe_wait(tcp_group *g, const trii_op *op, char *text, size_t size)
{
    const tcp_coll *coll = g->n_running > 0 ? g->running[0] : NULL;
    char call[192], whom[192];

    for (int i = 0; i < g->n_running; i++) {
        if (g->running[i]->op == op) {
            describe_coll(g, g->running[i], text, size);
            return;
        }
    }
    if (coll == NULL) {
        snprintf(text, size, "nobody");
        return;
    }
    trii_op_describe(coll->op, call, sizeof(call));
    describe_coll(g, coll, whom, sizeof(whom));
    snprintf(text, size, "an earlier call, %s, which waits for %s", call, whom);
}

const tcp_owner tcp_coll_owner = {
    .kinds = TRII_KINDS_COLLECTIVE,
    .frames = TCP_FRAMES_COLL,
    .post = coll_post,
    .start_queued = coll_start_queued,
    .accept = coll_accept,
    .room = coll_room,
    .received = coll_received,
    .resume = coll_resume,
    .next_frame = coll_next_frame,
    .sent = coll_sent,
    .needing = tcp_coll_needing,
    .fail_all = coll_fail_all,
};
