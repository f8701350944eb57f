/*
 * tcp_hangup.c - what it means when a connection ends. It is read to its end at once: the final
 * frame tells whether the peer left the group (goodbye), reports a failure (fault), or died
 * (neither). What came before is still delivered: until then the failure is pending. tcp_progress.c
 * comes here when a socket is closed, broken, or carried bytes that are not a frame.
 */
#include <string.h>

#include "base/alloc.h"
#include "comm/engines/tcp/tcp.h"
#include "os/clock.h"
#include "os/socket.h"

/* Reads all that is left into `in`; false if that is not all (no end, too much, no memory). */
static bool read_to_end(tcp_conn *c)
{
    for (;;) {
        tri_status status;
        size_t got = 0;

        if (c->in_used == c->in_room) {
            size_t room = c->in_room * 2;
            char *grown = room <= TCP_TAIL ? trii_realloc(c->in, room, 1, "tcp input") : NULL;

            if (grown == NULL)
                return false;
            c->in = grown;
            c->in_room = room;
        }
        status = trii_socket_recv(c->fd, c->in + c->in_used, c->in_room - c->in_used, &got);
        if (status != TRI_OK)
            return status == TRI_END || status == TRI_ERR_PEER_LOST;
        c->in_used += got;
    }
}

/* Walks over what is left to the final frame, a fault or a goodbye; false if there is none.
 * *text_out, *bytes_out: its payload, as far as it has come. */
static bool final_frame(const tcp_conn *c, tcp_frame *frame_out, const char **text_out,
                        size_t *bytes_out)
{
    const char *p = c->in + c->in_done;
    size_t left = c->in_used - c->in_done;
    size_t skip = c->parked ? c->head.bytes : c->in_left;
    size_t head_done = c->parked || c->in_left > 0 ? 0 : c->head_done;

    for (;;) {
        tcp_frame frame;

        if (skip > left)
            return false;
        p += skip;
        left -= skip;
        if (left < sizeof(frame) - head_done)
            return false;
        memcpy(&frame, &c->head, head_done); /* a header that came in part before */
        memcpy((char *)&frame + head_done, p, sizeof(frame) - head_done);
        p += sizeof(frame) - head_done;
        left -= sizeof(frame) - head_done;
        head_done = 0;
        if (frame.type == TCP_FRAME_GOODBYE || frame.type == TCP_FRAME_FAULT) {
            *frame_out = frame;
            *text_out = p;
            *bytes_out = left < frame.bytes ? left : (size_t)frame.bytes;
            return true;
        }
        skip = frame.bytes;
    }
}

/* The peer writes its final frame at once and closes; that may still come in two pieces. Waits a
 * moment for the second: half an error line is of no use. True: the end came. */
static bool read_final_frame(tcp_conn *c)
{
    const int64_t deadline = trii_deadline_ms(TCP_GRACE_MS);
    tcp_frame frame;
    const char *text;
    size_t bytes;

    for (;;) {
        if (read_to_end(c))
            return true;
        if (!final_frame(c, &frame, &text, &bytes) || bytes == frame.bytes ||
            trii_socket_wait(c->fd, TRII_READABLE, deadline) != TRI_OK)
            return false;
    }
}

static void set_lost(tcp_conn *c, const char *how)
{
    c->pending_failure = TRI_ERR_PEER_LOST;
    c->is_lost = true;
    atomic_store(&c->group->fault->lost_rank, tcp_name(c->group, c->rank) + 1);
    snprintf(c->pending_text, sizeof(c->pending_text), "rank %d is lost: its connection from %s %s",
             tcp_name(c->group, c->rank), c->peer, how);
}

/* The status here of another rank's failure. */
static tri_status fault_status(int32_t number)
{
    switch (number) {
    case TRI_ERR_PEER_LOST:
    case TRI_ERR_MISMATCH:
        return (tri_status)number;
    default:
        return TRI_ERR_ABORTED; /* the timeout or lack of memory was the other rank's */
    }
}

static void set_fault(tcp_conn *c, const tcp_frame *frame, const char *text, size_t bytes)
{
    const tcp_group *g = c->group;
    size_t used;

    c->pending_failure = fault_status(frame->root);
    if (frame->part > 0 && frame->part <= (g->names != NULL ? INT32_MAX : (uint32_t)g->size))
        atomic_store(&g->fault->lost_rank, (int)frame->part);
    used = (size_t)snprintf(c->pending_text, sizeof(c->pending_text), "%.*s",
                            (int)(bytes < TRII_ERR_BYTES ? bytes : TRII_ERR_BYTES), text);
    if (strstr(c->pending_text, "(reported by ") == NULL && used < sizeof(c->pending_text))
        snprintf(c->pending_text + used, sizeof(c->pending_text) - used, " (reported by rank %d)",
                 tcp_name(g, c->rank)); /* the first that we hear it from */
}

static void note_failure(tcp_conn *c)
{
    if (c->pending_failure == TRI_OK || c->group->failure_from != NULL)
        return;
    c->group->failure_from = c;
    c->group->failure_due_ns = trii_deadline_ms(TCP_GRACE_MS);
}

void tcp_hang_up(tcp_conn *c)
{
    tcp_frame frame;
    const char *text = NULL;
    size_t bytes = 0;
    bool whole;

    if (c->ended || c->fd < 0 || c->group->failed)
        return;
    trii_loop_mute(&c->watch);
    whole = read_final_frame(c);
    c->ended = true;
    if (!final_frame(c, &frame, &text, &bytes))
        set_lost(c, whole ? "closed without a goodbye"
                    : trii_proc_has_ended(&c->process)
                        ? "is held open by a forked child; the process itself has ended"
                        : "broke");
    else if (frame.type == TCP_FRAME_FAULT)
        set_fault(c, &frame, text, bytes);
    note_failure(c);
    /* Calls that the failing rank had done its part of may still complete: take all that has come
     * first. */
    for (int r = 0; r < c->group->size; r++) {
        tcp_conn *other = &c->group->conns[r];

        if (r != c->group->rank)
            other->want_in = other->want_in || !other->parked;
    }
}

void tcp_hang_up_malformed(tcp_conn *c)
{
    tcp_hang_up(c);
    set_lost(c, "carried bytes that are not a Trireme frame");
    note_failure(c);
}

void tcp_read_after_fault(tcp_conn *c)
{
    const char *text;
    tcp_frame frame;
    size_t bytes;

    if (!c->group->failed || c->ended || !read_to_end(c))
        return;
    c->ended = true;
    if (!final_frame(c, &frame, &text, &bytes))
        c->is_lost = true;
    else if (frame.type == TCP_FRAME_GOODBYE)
        c->has_left = true;
}

/* An operation to which a rank that ended had given all its bytes may still become whole by those
 * of the others, as it did on that rank: it gets a moment for that. */
static bool is_due(const tcp_group *g)
{
    if (g->pending == 0 || g->queue != NULL || trii_now_ns() >= g->failure_due_ns)
        return true;
    for (int r = 0; r < g->size; r++) {
        const tcp_conn *c = &g->conns[r];

        for (int i = 0; r != g->rank && c->pending_failure != TRI_OK && i < TCP_OWNERS; i++) {
            if (g->owners[i]->needing(c) != NULL)
                return true;
        }
    }
    return false;
}

void tcp_fail_if_due(tcp_group *g)
{
    if (!g->failed && is_due(g))
        tcp_fail(g, g->failure_from->pending_failure, "%s", g->failure_from->pending_text);
}
