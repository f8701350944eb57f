/*
 * tcp_io.c - frames in and out of sockets, and what it means when a connection ends.
 *
 * A connection that ends is read to its end at once: what the peer said last tells whether
 * it left in order (goodbye), reports a failure (fault), or died (neither). What came before
 * is still delivered.
 */
#include <stdarg.h>
#include <string.h>

#include "base/alloc.h"
#include "engines/tcp/tcp.h"
#include "os/clock.h"
#include "os/socket.h"

/* --- frames ------------------------------------------------------------------------------- */

void tcp_frame_fill(tcp_frame *frame, tcp_frame_type type, const trii_collective *piece)
{
    const trii_collective *call = trii_collective_whole(piece);
    const char *slash = call->site.file != NULL ? strrchr(call->site.file, '/') : NULL;
    const char *file = slash != NULL ? slash + 1 : call->site.file;

    *frame = (tcp_frame){.type = (uint8_t)type,
                         .kind = (uint8_t)call->kind,
                         .dtype = (uint8_t)call->dtype,
                         .op = (uint8_t)call->op,
                         .root = call->root,
                         .seq = piece->seq,
                         .count = call->count,
                         .bytes = piece->bytes,
                         .line = (uint32_t)call->site.line};
    if (file != NULL)
        strncpy(frame->file, file, sizeof(frame->file) - 1);
}

/* The call that a frame announces; its file is written into `file`. A message is sent to us. */
static trii_collective call_of(const tcp_frame *frame, int rank, char file[TCP_FILE_TEXT])
{
    trii_collective call = {
        .kind = (trii_kind)frame->kind,
        .dtype = (tri_dtype)frame->dtype,
        .op = (tri_redop)frame->op,
        .root =
            frame->type == TCP_FRAME_MESSAGE || frame->type == TCP_FRAME_OFFER ? rank : frame->root,
        .tag = (int)frame->part,
        .count = (size_t)frame->count,
        .seq = frame->seq};

    memcpy(file, frame->file, sizeof(frame->file));
    file[TCP_FILE_TEXT - 1] = '\0';
    if (file[0] != '\0')
        call.site = (trii_site){file, (int)frame->line};
    return call;
}

void tcp_frame_describe(const tcp_group *g, const tcp_frame *frame, char *text, size_t size)
{
    char file[TCP_FILE_TEXT];
    trii_collective call = call_of(frame, g->rank, file);

    trii_collective_describe(&call, text, size);
}

void tcp_fail_mismatch(tcp_group *g, const trii_collective *ours, int peer, const tcp_frame *theirs)
{
    char file[TCP_FILE_TEXT], text[TRII_ERR_BYTES];
    trii_collective call = call_of(theirs, g->rank, file);

    trii_collective_disagree(tcp_name(g, g->rank), ours, tcp_name(g, peer), &call, text,
                             sizeof(text));
    tcp_fail(g, TRI_ERR_MISMATCH, "%s", text);
}

void tcp_finish(tcp_group *g, trii_op *op, tri_status status, const char *why)
{
    g->pending--;
    trii_op_finish(op, status, why);
    /* whoever waits for it may be asleep in the poll or for its turn to poll */
    if (g->polling)
        trii_wakeup_signal(g->wake_fd);
    if (g->waiting > 0)
        trii_cond_broadcast(&g->turn);
}

/* --- failing -------------------------------------------------------------------------------- */

/* Tells the peer why, behind the current frame (its buffer is still ours), and closes our
 * side: it reads the end at once, whatever it is doing. If that does not fit into the socket
 * and a rank died, the peer is left to see that death itself: our close would look like one. */
static void tell(tcp_conn *c, tri_status status, const char *text)
{
    int lost = atomic_load(&c->group->fault->lost_rank);
    const tcp_frame frame = {.type = TCP_FRAME_FAULT,
                             .root = (int32_t)status,
                             .part = (uint32_t)lost,
                             .bytes = strlen(text)};
    size_t skip = sizeof(c->out) - c->out_head_left, head = c->out_head_left;
    size_t payload = c->out_left, sent = 0;
    tri_status st = TRI_OK;

    if (c->fd < 0 || c->ended)
        return;
    if (head == sizeof(c->out)) /* not begun: it may stay unsent */
        head = payload = 0;
    trii_span spans[] = {{(const char *)&c->out + skip, head},
                         {c->out_from, payload},
                         {(const char *)&frame, sizeof(frame)},
                         {text, strlen(text)}};

    while (st == TRI_OK && spans[3].bytes > 0) { /* a piece, then the next */
        size_t left;

        st = trii_socket_send(c->fd, spans, 4, &left);
        left = st == TRI_OK ? left : 0;
        sent += left;
        for (int i = 0; i < 4; i++) {
            size_t n = left < spans[i].bytes ? left : spans[i].bytes;

            spans[i].data = (const char *)spans[i].data + n;
            spans[i].bytes -= n;
            left -= n;
        }
    }
    if (sent >= head + payload + sizeof(frame) || status != TRI_ERR_PEER_LOST)
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
    status = trii_fault_settled(g->fault); /* ours, or an earlier one */
    for (int r = 0; r < g->size; r++) {
        if (r != g->rank)
            tell(&g->conns[r], status, g->fault->text);
    }
    for (int i = 0; i < g->n_running; i++) {
        tcp_finish(g, g->running[i]->op, status, g->fault->text);
        g->running[i]->op = NULL;
    }
    g->n_running = 0;
    while (g->queue != NULL) {
        trii_op *op = g->queue;

        g->queue = op->next;
        tcp_finish(g, op, status, g->fault->text);
    }
    for (int r = 0; r < g->size; r++) /* ourselves, too */
        tcp_p2p_fail_all(&g->conns[r], status, g->fault->text);
    tcp_p2p_fail_any(g, status, g->fault->text);
}

void tcp_fail_gone(tcp_conn *c, const trii_op *op)
{
    char call[192];

    trii_collective_describe(trii_collective_whole(&op->call), call, sizeof(call));
    tcp_fail(c->group, TRI_ERR_PEER_LOST, "rank %d left the group, but %s needs it",
             tcp_name(c->group, c->rank), call);
}

static void doom_lost(tcp_conn *c, const char *how)
{
    c->doom = TRI_ERR_PEER_LOST;
    c->is_lost = true;
    atomic_store(&c->group->fault->lost_rank, tcp_name(c->group, c->rank) + 1);
    snprintf(c->doom_text, sizeof(c->doom_text), "rank %d is lost: its connection from %s %s",
             tcp_name(c->group, c->rank), c->peer, how);
}

/* --- the end of a connection ------------------------------------------------------------------ */

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

/* Walks over what is left to the peer's last words; false if there are none. The frame is a
 * fault or a goodbye; *text_out, *bytes_out: its payload. */
static bool last_words(const tcp_conn *c, tcp_frame *frame_out, const char **text_out,
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

/* What another rank's failure is here. */
static tri_status fault_status(int32_t number)
{
    switch (number) {
    case TRI_ERR_PEER_LOST:
    case TRI_ERR_MISMATCH:
        return (tri_status)number;
    default:
        return TRI_ERR_ABORTED; /* a timeout or lack of memory there is none here */
    }
}

static void note_doom(tcp_conn *c)
{
    if (c->doom == TRI_OK || c->group->doomed_by != NULL)
        return;
    c->group->doomed_by = c;
    c->group->doom_ns = trii_deadline_ms(TCP_GRACE_MS);
}

/* The peer writes its last words at once and closes; they may still come in two pieces. Waits for
 * the second a moment: a cause that breaks off in the middle helps nobody. True: the end came. */
static bool hear_out(tcp_conn *c)
{
    const int64_t deadline = trii_deadline_ms(TCP_GRACE_MS);
    tcp_frame frame;
    const char *text;
    size_t bytes;

    for (;;) {
        if (read_to_end(c))
            return true;
        if (!last_words(c, &frame, &text, &bytes) || bytes == frame.bytes ||
            trii_socket_wait(c->fd, TRII_READABLE, deadline) != TRI_OK)
            return false;
    }
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
    whole = hear_out(c);
    c->ended = true;
    if (!last_words(c, &frame, &text, &bytes)) {
        doom_lost(c, whole                              ? "closed without a goodbye"
                     : trii_proc_has_ended(&c->process) ? "is a child's now, its process has ended"
                                                        : "broke");
    } else if (frame.type == TCP_FRAME_FAULT) {
        c->doom = fault_status(frame.root);
        if (frame.part > 0 &&
            frame.part <= (c->group->names != NULL ? INT32_MAX : (uint32_t)c->group->size))
            atomic_store(&c->group->fault->lost_rank, (int)frame.part);
        snprintf(c->doom_text, sizeof(c->doom_text), "%.*s",
                 (int)(bytes < TRII_ERR_BYTES ? bytes : TRII_ERR_BYTES), text);
        if (strstr(c->doom_text, "(told by ") == NULL) { /* by the first who told it */
            size_t used = strlen(c->doom_text);

            snprintf(c->doom_text + used, sizeof(c->doom_text) - used, " (told by rank %d)",
                     tcp_name(c->group, c->rank));
        }
    }
    note_doom(c);
    /* What the failing rank took part in may be whole here too: all that came is taken first. */
    for (int r = 0; r < c->group->size; r++) {
        tcp_conn *other = &c->group->conns[r];

        if (r != c->group->rank)
            other->want_in = other->want_in || !other->parked;
    }
}

trii_loss tcp_loss(tcp_conn *c)
{
    trii_socket_health health;
    const char *text;
    tcp_frame frame;
    size_t bytes;

    if (c->gone || trii_proc_has_ended(&c->process))
        return TRII_LOSS_ENDED;
    if (c->group->failed && !c->ended && read_to_end(c)) {
        c->ended = true;
        if (!last_words(c, &frame, &text, &bytes))
            c->is_lost = true;
        else if (frame.type == TCP_FRAME_GOODBYE)
            c->gone = true;
    }
    if (c->gone || c->is_lost)
        return c->gone ? TRII_LOSS_ENDED : TRII_LOSS_CUT;
    return !c->ended && c->remote && trii_socket_health_get(c->fd, &health) &&
                   tcp_beat_is_silent(&health, trii_now_ns(), c->group->silence_ns, &c->owed_ns)
               ? TRII_LOSS_CUT
               : TRII_LOSS_NONE;
}

/* --- in --------------------------------------------------------------------------------------- */

/* Some bytes, from those that were read ahead or from the socket. INPROGRESS: none now, or
 * the connection ended and that was dealt with. */
static tri_status take_some(tcp_conn *c, char *to, size_t bytes, size_t *got_out)
{
    tri_status status = TRI_OK;
    size_t got = 0;

    if (c->in_done == c->in_used && !c->ended) {
        c->in_done = c->in_used = 0;
        if (bytes >= TCP_READ) {
            status = trii_socket_recv(c->fd, to, bytes, got_out);
            if (status == TRI_OK || status == TRI_INPROGRESS)
                return status;
        } else {
            status = trii_socket_recv(c->fd, c->in, c->in_room, &got);
            c->in_used = got;
        }
        if (status != TRI_OK && status != TRI_INPROGRESS)
            tcp_hang_up(c);
    }
    if (c->in_done == c->in_used || c->group->failed)
        return TRI_INPROGRESS;
    got = c->in_used - c->in_done < bytes ? c->in_used - c->in_done : bytes;
    memcpy(to, c->in + c->in_done, got);
    c->in_done += got;
    *got_out = got;
    return TRI_OK;
}

/* Bytes of the payload came (or none were to come). */
static void payload_came(tcp_conn *c)
{
    bool whole = c->in_left == 0;

    if (whole)
        c->head_done = 0;
    if (c->in_coll != NULL) {
        tcp_coll *coll = c->in_coll;

        if (whole)
            c->in_coll = NULL;
        tcp_coll_came(c, coll, c->in_stream);
    } else if (whole) {
        tcp_p2p_came(c);
    }
}

static void goodbye_came(tcp_conn *c)
{
    const trii_op *op = tcp_coll_needing(c->group, c->rank);

    c->gone = true;
    op = op != NULL ? op : tcp_p2p_needing(c);
    op = op != NULL ? op : tcp_any_recv_in_vain(c->group);
    if (op != NULL)
        tcp_fail_gone(c, op);
}

/* Always false. */
static bool speaks_nonsense(tcp_conn *c)
{
    tcp_hang_up(c);
    doom_lost(c, "carries something that is not a frame");
    note_doom(c);
    return false;
}

/* A header is whole: finds out where the payload goes. False: not now. */
static bool head_came(tcp_conn *c)
{
    const tcp_frame *head = &c->head;

    if (c->remote && !c->parked)
        c->heard_ns = trii_now_ns();
    switch (head->type) {
    case TCP_FRAME_PART:
    case TCP_FRAME_RESULT:
        c->last = *head;
        /* not past what was put aside: it may be of the same stream */
        c->in_coll = c->stash == NULL ? tcp_coll_accept(c, head, &c->in_stream) : NULL;
        c->parked = c->in_coll == NULL && (c->group->failed || !tcp_stash_accept(c));
        break;
    case TCP_FRAME_MESSAGE:
    case TCP_FRAME_OFFER:
        if (!tcp_message_is_sound(head))
            return speaks_nonsense(c);
        c->last = *head;
        c->parked = !tcp_p2p_accept(c);
        break;
    case TCP_FRAME_REST:
        if (!tcp_p2p_accept_rest(c))
            return speaks_nonsense(c);
        break;
    case TCP_FRAME_WANT:
        tcp_p2p_wanted(c);
        c->head_done = 0;
        return true;
    case TCP_FRAME_HOLD:
        c->holds = head->root != 0;
        c->head_done = 0;
        return true;
    case TCP_FRAME_WAITS:
        c->said = *head;
        (void)tcp_coll_disagrees(c, head);
        /* fall through */
    case TCP_FRAME_LISTENS:
        c->last = *head;
        /* fall through */
    case TCP_FRAME_BEAT:
        c->head_done = 0;
        return true;
    case TCP_FRAME_GOODBYE:
        goodbye_came(c);
        return false;
    case TCP_FRAME_FAULT:
        tcp_hang_up(c); /* the end follows: the sender closed behind it */
        return false;
    default:
        return speaks_nonsense(c);
    }
    if (c->parked || c->group->failed)
        return false;
    c->in_left = (size_t)head->bytes;
    if (c->in_left == 0)
        payload_came(c);
    return true;
}

static void pump_out(tcp_conn *c);

static void pump_in(tcp_conn *c)
{
    tcp_group *g = c->group;

    while (!g->failed && !c->gone) {
        size_t got = 0;

        if (tcp_stash_replay(c))
            continue;
        if (g->failed)
            return;
        if (c->in_left > 0) {
            size_t room = c->in_left;

            if (c->in_coll != NULL)
                room = tcp_coll_room(c->in_coll, c->in_stream, room, &c->in_to);
            c->full = room == 0;
            if (c->full && tcp_stash_rest(c))
                continue;
            if (c->full || take_some(c, c->in_to, room, &got) != TRI_OK)
                return;
            c->in_to += got;
            c->in_left -= got;
            if (c->in_coll != NULL)
                c->in_stream->done += got;
            payload_came(c);
        } else if (c->head_done < sizeof(c->head)) {
            if (take_some(c, (char *)&c->head + c->head_done, sizeof(c->head) - c->head_done,
                          &got) != TRI_OK)
                return;
            c->head_done += got;
            if (c->head_done == sizeof(c->head) && !head_came(c))
                return;
            if (c->wants != NULL && !c->out_stuck)
                pump_out(c); /* a word that the sender waits for, before a long read */
        } else if (!head_came(c)) {
            return; /* parked still */
        }
    }
}

/* --- out -------------------------------------------------------------------------------------- */

/* The next frame, a collective's before a message; false if there is none now. */
static bool next_frame(tcp_conn *c)
{
    c->out_coll = NULL;
    c->out_send = NULL;
    if (!tcp_p2p_next_note(c) && !tcp_coll_next_frame(c) && !tcp_p2p_next_frame(c)) {
        if (!c->want_say && !c->want_beat)
            return false;
        c->out = c->want_say ? c->group->say : (tcp_frame){.type = TCP_FRAME_BEAT};
        c->want_say = false;
    }
    c->want_beat = false;
    c->out_head_left = sizeof(c->out);
    c->out_left = (size_t)c->out.bytes;
    return true;
}

static void frame_moved(tcp_conn *c, size_t sent)
{
    size_t head = sent < c->out_head_left ? sent : c->out_head_left;
    size_t payload = sent - head;

    c->out_head_left -= head;
    c->out_from += payload;
    c->out_left -= payload;
    if (c->out_coll != NULL)
        c->out_stream->done += payload;
    if (c->out_head_left > 0 || c->out_left > 0)
        return;
    if (c->out_coll != NULL)
        tcp_coll_sent(c, c->out_coll, c->out_stream);
    else if (c->out_send != NULL)
        tcp_p2p_sent(c);
}

/* The socket refuses bytes: the peer closed, and said why, or died. */
static void out_broke(tcp_conn *c)
{
    tcp_group *g = c->group;

    tcp_hang_up(c);
    if (g->failed || c->doom != TRI_OK)
        return;
    if (c->out_coll != NULL)
        tcp_fail_gone(c, c->out_coll->op);
    else if (c->out_send != NULL)
        tcp_fail_gone(c, c->out_send);
}

static void pump_out(tcp_conn *c)
{
    tcp_group *g = c->group;

    c->out_stuck = false;
    while (!g->failed) {
        size_t skip = sizeof(c->out) - c->out_head_left, sent = 0;
        tri_status status;

        if (c->out_head_left == 0 && c->out_left == 0) {
            if (!next_frame(c))
                return;
            skip = 0;
        }
        status = trii_socket_send(c->fd,
                                  (trii_span[]){{(const char *)&c->out + skip, c->out_head_left},
                                                {c->out_from, c->out_left}},
                                  2, &sent);
        if (status == TRI_INPROGRESS) {
            c->out_stuck = true;
            return;
        }
        if (status != TRI_OK) {
            out_broke(c);
            return;
        }
        frame_moved(c, sent);
    }
}

/* An operation for which a rank that ended had given all it had to give may still become
 * whole from the others, as it did on that rank: it gets a moment for that. */
static bool doom_is_due(const tcp_group *g)
{
    if (g->pending == 0 || g->queue != NULL || trii_now_ns() >= g->doom_ns)
        return true;
    for (int r = 0; r < g->size; r++) {
        const tcp_conn *c = &g->conns[r];

        if (r != g->rank && c->doom != TRI_OK &&
            (tcp_coll_needing(g, r) != NULL || tcp_p2p_needing(c) != NULL))
            return true;
    }
    return false;
}

void tcp_advance(tcp_group *g)
{
    bool again = true;

    while (again && !g->failed) {
        again = false;
        tcp_coll_start_queued(g);
        for (int r = 0; r < g->size && !g->failed; r++) {
            tcp_conn *c = &g->conns[r];

            if (c->want_out) {
                c->want_out = false;
                again = true;
                pump_out(c);
            }
        }
        for (int r = 0; r < g->size && !g->failed; r++) {
            tcp_conn *c = &g->conns[r];

            if (c->want_in) {
                c->want_in = false;
                again = true;
                pump_in(c);
            }
        }
    }
    if (g->doomed_by != NULL && !g->failed && doom_is_due(g))
        tcp_fail(g, g->doomed_by->doom, "%s", g->doomed_by->doom_text);
}
