/*
 * tcp_fault.c - how a group fails: the first cause ends whatever is pending and goes to all peers
 * as the final frame of each connection. All other files of the engine come here when a call or a
 * peer is at fault.
 */
#include <stdarg.h>
#include <string.h>

#include "base/alloc.h"
#include "comm/engines/tcp/tcp.h"
#include "os/clock.h"
#include "os/socket.h"

#define FILE_TEXT (sizeof(((tcp_frame *)NULL)->file) + 1)

/* Moves past what was sent of them. */
static void pass(trii_span *spans, int n, size_t sent)
{
    for (int i = 0; i < n; i++) {
        size_t part = sent < spans[i].bytes ? sent : spans[i].bytes;

        spans[i].data = (const char *)spans[i].data + part;
        spans[i].bytes -= part;
        sent -= part;
    }
}

/* A copy of what did not fit into the socket, since the buffers of the frame that was begun are
 * given back: the control thread sends it as room comes. Without the memory the connection ends
 * amid the frame. */
static bool keep_rest(tcp_conn *c, const trii_span *spans, int n)
{
    size_t bytes = 0;

    for (int i = 0; i < n; i++)
        bytes += spans[i].bytes;
    if (c->group->loop == NULL || bytes > TCP_TAIL)
        return false;
    c->rest = trii_alloc(bytes, 1, "last bytes of a tcp connection");
    if (c->rest == NULL)
        return false;
    c->rest_from = c->rest;
    for (int i = 0; i < n; i++) {
        memcpy(c->rest + c->rest_left, spans[i].data, spans[i].bytes);
        c->rest_left += spans[i].bytes;
    }
    c->armed = TRII_HANGUP | TRII_WRITABLE;
    trii_loop_change(&c->watch, c->armed);
    return true;
}

bool tcp_send_rest(tcp_conn *c)
{
    while (c->rest_left > 0) {
        trii_span span = {c->rest_from, c->rest_left};
        size_t sent = 0;
        tri_status status = trii_socket_send(c->fd, &span, 1, &sent);

        if (status == TRI_INPROGRESS)
            return false;
        sent = status == TRI_OK ? sent : c->rest_left; /* the peer has gone, too */
        c->rest_from += sent;
        c->rest_left -= sent;
    }
    if (c->rest != NULL)
        trii_socket_shutdown(c->fd);
    trii_free(c->rest);
    c->rest = NULL;
    return true;
}

/* Sends the fault after the current frame, whose buffer is still ours, and closes our side: the
 * peer reads the end at once, whatever it is doing. What does not fit into the socket follows when
 * there is room. Where it cannot follow and a rank died, the connection stays open: the peer would
 * take our close for another death, and it sees the first one by itself. */
static void send_fault(tcp_conn *c, tri_status cause, const char *text)
{
    int lost = atomic_load(&c->group->fault->lost_rank);
    const tcp_frame frame = {.type = TCP_FRAME_FAULT,
                             .root = (int32_t)cause,
                             .part = (uint32_t)lost,
                             .bytes = strlen(text)};
    size_t head = c->out_head_left, payload = c->out_left, sent = 0;
    tri_status status = TRI_OK;

    if (c->fd < 0 || c->ended)
        return;
    if (head == sizeof(c->out)) /* not begun: it may stay unsent */
        head = payload = 0;
    trii_span spans[] = {{(const char *)&c->out + sizeof(c->out) - head, head},
                         {c->out_from, payload},
                         {(const char *)&frame, sizeof(frame)},
                         {text, strlen(text)}};

    while (status == TRI_OK && spans[3].bytes > 0) { /* a piece, then the next */
        status = trii_socket_send(c->fd, spans, 4, &sent);
        if (status == TRI_OK)
            pass(spans, 4, sent);
    }
    if (status == TRI_INPROGRESS && (keep_rest(c, spans, 4) || cause == TRI_ERR_PEER_LOST))
        return;
    trii_socket_shutdown(c->fd);
}

void tcp_fail(tcp_group *g, tri_status status, const char *format, ...)
{
    char text[TRII_ERR_BYTES];
    va_list args;

    if (g->failed)
        return;
    g->failed = true;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    trii_fault_raise(g->fault, status, "%s", text);
    status = trii_fault_cause(g->fault); /* ours, or an earlier one */
    for (int r = 0; r < g->size; r++) {
        if (r != g->rank)
            send_fault(&g->conns[r], status, g->fault->text);
    }
    for (int i = 0; i < TCP_OWNERS; i++)
        g->owners[i]->fail_all(g, status, g->fault->text);
}

/* The call that a frame announces to `rank`; the name of its file is written into `file`. */
static trii_collective frame_call(const tcp_frame *frame, int rank, char file[FILE_TEXT])
{
    bool message = frame->type == TCP_FRAME_MESSAGE || frame->type == TCP_FRAME_RTS;
    trii_collective call = {.kind = (trii_kind)frame->kind,
                            .dtype = (tri_dtype)frame->dtype,
                            .op = (tri_redop)frame->op,
                            .root = message ? rank : frame->root,
                            .tag = (int)frame->part,
                            .count = (size_t)frame->count,
                            .seq = frame->seq};

    if (frame->kind < TRII_KIND_COUNT && trii_kind_in(call.kind, TRII_KINDS_COLLECTIVE))
        call.seq = (frame->seq & ~(uint64_t)UINT32_MAX) | frame->part;
    memcpy(file, frame->file, sizeof(frame->file));
    file[FILE_TEXT - 1] = '\0';
    if (file[0] != '\0')
        call.site = (trii_site){file, (int)frame->line};
    return call;
}

void tcp_fail_mismatch(tcp_group *g, const trii_collective *ours, int peer, const tcp_frame *theirs)
{
    char file[FILE_TEXT], text[TRII_ERR_BYTES];
    trii_collective call = frame_call(theirs, g->rank, file);

    trii_collective_disagree(tcp_name(g, g->rank), ours, tcp_name(g, peer), &call, text,
                             sizeof(text));
    tcp_fail(g, TRI_ERR_MISMATCH, "%s", text);
}

void tcp_fail_left(tcp_conn *c, const trii_op *op)
{
    char call[192];

    trii_op_describe(op, call, sizeof(call));
    tcp_fail(c->group, TRI_ERR_PEER_LOST, "rank %d left the group, but %s needs it",
             tcp_name(c->group, c->rank), call);
}

/* --- in words ------------------------------------------------------------- */

void tcp_frame_describe(const tcp_group *g, const tcp_frame *frame, char *text, size_t size)
{
    char file[FILE_TEXT];
    trii_collective call = frame_call(frame, g->rank, file);

    trii_collective_describe(&call, text, size);
}

size_t tcp_peer_describe(const tcp_conn *c, char *text, size_t used, bool more, size_t size)
{
    int64_t quiet_ns = trii_now_ns() - c->heard_ns, silence_ns = c->group->silence_ns;
    bool heard = c->last_call.type != TCP_FRAME_NONE;
    char last[160] = "";

    if (heard)
        tcp_frame_describe(c->group, &c->last_call, last, sizeof(last));
    if (used < size)
        used += (size_t)snprintf(text + used, size - used, "%srank %d (%s%s)", more ? ", " : "",
                                 tcp_name(c->group, c->rank),
                                 heard ? "last call heard from it: " : "no call heard from it yet",
                                 last);
    if (c->remote && silence_ns != 0 && quiet_ns >= silence_ns && used < size)
        used += (size_t)snprintf(text + used, size - used, " (not heard of for %.1f s%s)",
                                 (double)quiet_ns / (double)TRII_NS_PER_S,
                                 c->unacked_since_ns == 0 ? ", but its host answers: is it stopped?"
                                                          : "");
    return used;
}
