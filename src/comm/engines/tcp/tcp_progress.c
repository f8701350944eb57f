/*
 * tcp_progress.c - what moves the bytes: operations are posted and end here, and frames go in and
 * out of sockets. What a frame means its owner knows (tcp_owner.h).
 *
 * Waiting threads move the bytes: one of them polls for all, the others sleep until
 * it leaves. Operations that nobody waits for are moved by the process's control thread, which
 * otherwise only watches for connections that end.
 */
#include <string.h>

#include "comm/engines/tcp/tcp.h"
#include "os/clock.h"
#include "os/socket.h"

#define POLLED 15 /* of an operation's scratch: posting it tried all connections just now */
#define SPIN_LEAST_NS 1000 /* below this we sleep at once */
#define SPIN_TRY 64        /* in so many polls spinning is tried once, whether or not it has paid */

/* --- in ------------------------------------------------------------------- */

/* Some bytes, from those that were read ahead or from the socket. INPROGRESS: none now, or
 * the connection ended and that was dealt with. */
static tri_status read_some(tcp_conn *c, char *to, size_t bytes, size_t *got_out)
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

static void goodbye_received(tcp_conn *c)
{
    tcp_group *g = c->group;

    c->has_left = true;
    for (int i = 0; i < TCP_OWNERS && !g->failed; i++) {
        const trii_op *op = g->owners[i]->needing(c);

        if (op != NULL)
            tcp_fail_left(c, op);
        else if (g->owners[i]->peer_left != NULL)
            g->owners[i]->peer_left(c);
    }
}

/* A frame without an owner: it concerns the connection itself. */
static tcp_verdict accept_conn_frame(tcp_conn *c)
{
    switch (c->head.type) {
    case TCP_FRAME_HEARTBEAT:
        return TCP_ACCEPTED;
    case TCP_FRAME_GOODBYE:
        goodbye_received(c);
        return TCP_PARKED; /* nothing comes after it */
    case TCP_FRAME_FAULT:
        tcp_hang_up(c); /* the end follows: the sender closed after it */
        return TCP_PARKED;
    default:
        return TCP_MALFORMED;
    }
}

static bool is_of(const tcp_frame *head, uint32_t types)
{
    return head->type < 32 && (types >> head->type & 1u) != 0;
}

static const tcp_owner *owner_of(const tcp_group *g, const tcp_frame *head)
{
    for (int i = 0; i < TCP_OWNERS; i++) {
        if (is_of(head, g->owners[i]->frames))
            return g->owners[i];
    }
    return NULL;
}

static void payload_received(tcp_conn *c, size_t bytes)
{
    if (c->in_left == 0)
        c->head_done = 0;
    if (c->in_owner != NULL)
        c->in_owner->received(c, bytes);
}

/* A header is whole: asks its owner where the payload goes. False: not now. */
static bool accept_frame(tcp_conn *c)
{
    const tcp_frame *head = &c->head;
    tcp_verdict verdict = TCP_MALFORMED;

    if (c->remote && !c->parked)
        c->heard_ns = trii_now_ns();
    c->in_owner = owner_of(c->group, head);
    if (head->bytes == 0 || !is_of(head, TCP_FRAMES_NO_PAYLOAD))
        verdict = c->in_owner != NULL ? c->in_owner->accept(c) : accept_conn_frame(c);
    c->parked = c->in_owner != NULL && verdict == TCP_PARKED;
    if (verdict == TCP_MALFORMED)
        tcp_hang_up_malformed(c);
    if (verdict != TCP_ACCEPTED || c->group->failed)
        return false;
    c->in_left = (size_t)head->bytes;
    if (c->in_left == 0)
        payload_received(c, 0);
    return true;
}

static void pump_out(tcp_conn *c);

static bool resume_unexpected(tcp_conn *c)
{
    const tcp_group *g = c->group;

    for (int i = 0; i < TCP_OWNERS; i++) {
        if (g->owners[i]->resume != NULL && g->owners[i]->resume(c))
            return true;
    }
    return false;
}

static void pump_in(tcp_conn *c)
{
    tcp_group *g = c->group;

    while (!g->failed && !c->has_left) {
        size_t got = 0;

        if (c->stash != NULL && resume_unexpected(c))
            continue;
        if (g->failed)
            return;
        if (c->in_left > 0) {
            size_t room = c->in_owner->room != NULL ? c->in_owner->room(c) : c->in_left;

            c->full = room == 0;
            if (c->full || read_some(c, c->in_to, room, &got) != TRI_OK)
                return;
            c->in_to += got;
            c->in_left -= got;
            payload_received(c, got);
        } else if (c->head_done < sizeof(c->head)) {
            if (read_some(c, (char *)&c->head + c->head_done, sizeof(c->head) - c->head_done,
                          &got) != TRI_OK)
                return;
            c->head_done += got;
            if (c->head_done == sizeof(c->head) && !accept_frame(c))
                return;
            if (c->want_request && !c->out_stuck)
                pump_out(c);
        } else if (!accept_frame(c)) {
            return; /* parked still */
        }
    }
}

/* --- out ------------------------------------------------------------------ */

static bool owners_frame(tcp_conn *c)
{
    const tcp_group *g = c->group;

    c->out_op = NULL;
    for (int i = 0; c->want_request && i < TCP_OWNERS; i++) {
        c->out_owner = g->owners[i];
        if (c->out_owner->next_request != NULL && c->out_owner->next_request(c))
            return true;
    }
    c->want_request = false;
    for (int i = 0; i < TCP_OWNERS; i++) {
        c->out_owner = g->owners[i];
        if (c->out_owner->next_frame(c))
            return true;
    }
    return false;
}

/* The next frame: requests, then payloads, a collective's before a message, then what the
 * connection has to say itself. False if there is none now. */
static bool next_frame(tcp_conn *c)
{
    if (!owners_frame(c)) {
        if (!c->want_announce && !c->heartbeat_due)
            return false;
        c->out = c->want_announce ? c->group->announced : (tcp_frame){.type = TCP_FRAME_HEARTBEAT};
        c->want_announce = false;
    }
    c->heartbeat_due = false;
    c->out_head_left = sizeof(c->out);
    c->out_left = (size_t)c->out.bytes;
    return true;
}

static void frame_sent(tcp_conn *c, size_t sent)
{
    size_t head = sent < c->out_head_left ? sent : c->out_head_left;
    size_t payload = sent - head;
    trii_op *op = c->out_op;

    c->out_head_left -= head;
    c->out_from += payload;
    c->out_left -= payload;
    if (c->out_head_left > 0 || c->out_left > 0 || op == NULL)
        return;
    c->out_op = NULL;
    c->out_owner->sent(c, op);
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
        if (status == TRI_OK) {
            frame_sent(c, sent);
            continue;
        }
        c->out_stuck = status == TRI_INPROGRESS;
        if (c->out_stuck) {
            g->frame_stuck = true;
            return;
        }
        tcp_hang_up(c); /* the peer closed, and said why, or died */
        if (c->pending_failure == TRI_OK && c->out_op != NULL)
            tcp_fail_left(c, c->out_op);
        return;
    }
}

void tcp_advance(tcp_group *g)
{
    bool again = true;

    while (again && !g->failed) {
        again = false;
        for (int i = 0; i < TCP_OWNERS; i++) {
            if (g->owners[i]->start_queued != NULL)
                g->owners[i]->start_queued(g);
        }
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
    if (g->failure_from != NULL)
        tcp_fail_if_due(g);
}

/* --- the control thread's share ------------------------------------------- */

/* What it watches: the ends of connections always, bytes only while operations are under way
 * that no thread waits for. And while the rest of a frame waits for room in its socket: the CTS
 * that ended our last operation is what the peer waits for. */
static void arm(tcp_group *g)
{
    bool alone = !g->polling && !g->failed, move = alone && g->pending > 0;

    g->frame_stuck = false;
    for (int r = 0; r < g->size; r++) {
        tcp_conn *c = &g->conns[r];
        bool begun = c->out_stuck && c->out_head_left > 0;
        unsigned events = TRII_HANGUP | (move && !c->parked && !c->full ? TRII_READABLE : 0u) |
                          (alone && (begun || (move && c->out_stuck)) ? TRII_WRITABLE : 0u) |
                          (c->rest != NULL ? TRII_WRITABLE : 0u);

        g->frame_stuck = g->frame_stuck || begun;
        if (r == g->rank || c->ended || events == c->armed)
            continue;
        c->armed = events;
        trii_loop_change(&c->watch, events);
    }
}

static void on_failure_due(trii_timer *timer)
{
    tcp_group *g = TRII_CONTAINER(timer, tcp_group, failure_timer);

    trii_mutex_lock(&g->mutex);
    tcp_advance(g);
    trii_mutex_unlock(&g->mutex);
}

void tcp_on_ready(trii_watch *watch, unsigned events)
{
    tcp_conn *c = (tcp_conn *)watch;
    tcp_group *g = c->group;

    trii_mutex_lock(&g->mutex);
    if (g->failed && ((events & TRII_HANGUP) || tcp_send_rest(c)))
        trii_loop_mute(watch); /* nothing more to learn */
    if ((events & TRII_HANGUP) && !g->failed)
        tcp_hang_up(c);
    if (!g->polling || (events & TRII_HANGUP)) {
        c->want_in = true;
        c->want_out = c->want_out || (events & TRII_WRITABLE);
        tcp_advance(g);
    }
    if (g->failure_from != NULL && !g->failed)
        trii_loop_timer(g->loop, &g->failure_timer, g->failure_due_ns, on_failure_due);
    arm(g);
    trii_mutex_unlock(&g->mutex);
}

/* --- operations ----------------------------------------------------------- */

void tcp_finish(tcp_group *g, trii_op *op, tri_status status, const char *why)
{
    g->pending--;
    trii_op_finish(op, status, why);
    /* the thread that waits for it may be asleep in the poll or for its turn to poll */
    if (g->polling)
        trii_wakeup_signal(g->wake_fd);
    if (g->waiting > 0)
        trii_cond_broadcast(&g->turn);
}

static void try_all_conns(tcp_group *g)
{
    for (int r = 0; r < g->size; r++) {
        tcp_conn *c = &g->conns[r];

        if (r != g->rank)
            c->want_in = c->want_in || !c->parked;
    }
}

tri_status tcp_submit(void *self, trii_op *op, bool waits)
{
    tcp_group *g = self;
    tri_status status;
    int i = 0;

    trii_mutex_lock(&g->mutex);
    if (g->failed) {
        status = trii_fault_status(g->fault);
        trii_mutex_unlock(&g->mutex);
        return TRII_FAIL(status, "%s", g->fault->text);
    }
    while (!trii_kind_in(op->call.kind, g->owners[i]->kinds))
        i++; /* .kinds of the engine has no other kinds than its owners' */
    g->pending++;
    g->owners[i]->post(g, op);
    if (waits && !g->polling) {
        try_all_conns(g); /* the last one to come finds everything there */
        op->scratch[POLLED] = 1;
    }
    tcp_advance(g);
    if (g->polling)
        trii_wakeup_signal(g->wake_fd); /* there may be more to poll for */
    else if (!waits || (g->frame_stuck && g->pending == 0))
        arm(g);
    trii_mutex_unlock(&g->mutex);
    return TRI_OK;
}

/* Polls again and again for as long as that has paid lately: asleep, the answer of a peer on
 * another core costs several times as much. Where it does not pay, since the peer computes or needs
 * this core, it is only tried now and then. Returns as the poll. */
static int spin(tcp_group *g, int64_t until_ns)
{
    bool try_it = ++g->n_polls % SPIN_TRY == 0;
    int64_t end = trii_now_ns() + (try_it ? g->spin_max_ns : g->spin_ns);
    int n;

    if (!try_it && g->spin_ns == 0)
        return 0;
    n = trii_socket_poll(g->poll_fds, g->poll_events, g->poll_ready, g->size + 1, 0);
    if (n > 0)
        return n; /* it was there already: this says nothing */
    end = end < until_ns ? end : until_ns;
    while (n == 0 && trii_now_ns() < end)
        n = trii_socket_poll(g->poll_fds, g->poll_events, g->poll_ready, g->size + 1, 0);
    if (n > 0)
        g->spin_ns = g->spin_max_ns;
    else
        g->spin_ns = g->spin_ns / 2 < SPIN_LEAST_NS ? 0 : g->spin_ns / 2;
    return n;
}

/* Sleeps in poll, without the mutex, and notes what is ready. */
static void poll_once(tcp_group *g, int64_t until_ns)
{
    g->polling = true;
    for (int r = 0; r < g->size; r++) {
        const tcp_conn *c = &g->conns[r];

        g->poll_fds[r] = r != g->rank && !c->ended ? c->fd : -1;
        g->poll_events[r] = TRII_HANGUP | (c->parked || c->full ? 0u : TRII_READABLE) |
                            (c->out_stuck ? TRII_WRITABLE : 0u);
    }
    g->poll_fds[g->size] = g->wake_fd;
    g->poll_events[g->size] = TRII_READABLE;
    trii_mutex_unlock(&g->mutex);
    if (spin(g, until_ns) == 0)
        (void)trii_socket_poll(g->poll_fds, g->poll_events, g->poll_ready, g->size + 1, until_ns);
    trii_mutex_lock(&g->mutex);
    g->polling = false;
    if (g->poll_ready[g->size])
        trii_wakeup_clear(g->wake_fd);
    for (int r = 0; r < g->size; r++) {
        tcp_conn *c = &g->conns[r];

        if (g->poll_fds[r] < 0)
            continue;
        c->want_in = c->want_in || (g->poll_ready[r] & (TRII_READABLE | TRII_HANGUP));
        c->want_out = c->want_out || (g->poll_ready[r] & TRII_WRITABLE);
        if (g->poll_ready[r] & TRII_HANGUP)
            tcp_hang_up(c);
    }
}

void tcp_progress(void *self, trii_op *op, int64_t until_ns)
{
    tcp_group *g = self;
    bool tried;

    trii_mutex_lock(&g->mutex);
    tried = trii_op_status(op) == TRI_INPROGRESS && op->scratch[POLLED] != 0;
    while (trii_op_status(op) == TRI_INPROGRESS) {
        if (!g->polling) {
            if (!tried)
                try_all_conns(g);
            tcp_advance(g);
        }
        if (trii_op_status(op) != TRI_INPROGRESS || (tried && trii_now_ns() >= until_ns) ||
            until_ns == 0)
            break;
        tried = true;
        op->scratch[POLLED] = 0;
        if (g->polling) {
            g->waiting++;
            (void)trii_cond_wait_until(&g->turn, &g->mutex, until_ns);
            g->waiting--;
        } else {
            bool failing = g->failure_from != NULL && g->failure_due_ns < until_ns;

            poll_once(g, failing ? g->failure_due_ns : until_ns);
        }
    }
    if (!g->polling && g->waiting > 0)
        trii_cond_broadcast(&g->turn); /* somebody else's turn to poll */
    else if (!g->polling && (g->pending > 0 || g->frame_stuck))
        arm(g);
    trii_mutex_unlock(&g->mutex);
}
