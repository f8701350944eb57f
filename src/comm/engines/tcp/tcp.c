/*
 * tcp.c - the tcp engine's table, and the life of a group: creating it, watching the peers,
 * leaving. What happens in between is in tcp_progress.c.
 */
#include "comm/engines/tcp/tcp.h"

#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "base/param.h"
#include "os/clock.h"
#include "os/descriptor.h"
#include "os/limits.h"
#include "os/socket.h"

#define PROCESSES 128     /* of peers that are watched, each with a descriptor */
#define LEAVE_MS 1000     /* for the goodbye to fit into a full socket, and to arrive */
#define DRAIN_MS 500      /* for peers to read our fault */
#define LATE_DATA_MS 2000 /* nothing comes of a process that has ended: nothing is on the way */
#define SPIN_US 50

static const tcp_owner *const owners[TCP_OWNERS] = {&tcp_coll_owner, &tcp_p2p_owner};

/* --- processes that end --------------------------------------------------- */

/* What the process had sent may wait here for its call, or be on the way: a slow network may
 * deliver it after we see the end of the process. */
static bool may_still_come(const tcp_conn *c)
{
    trii_socket_health health;

    return trii_socket_wait(c->fd, TRII_READABLE, 0) == TRI_OK ||
           (trii_socket_health_get(c->fd, &health) && health.last_data_ms < LATE_DATA_MS);
}

static void check_late_data(trii_timer *timer)
{
    tcp_conn *c = TRII_CONTAINER(timer, tcp_conn, late_data_timer);
    tcp_group *g = c->group;
    bool over, wait;

    trii_mutex_lock(&g->mutex);
    over = c->ended || g->failed;
    wait = !over && may_still_come(c);
    trii_mutex_unlock(&g->mutex);
    if (wait)
        trii_loop_timer(g->loop, timer, trii_deadline_ms(LATE_DATA_MS), check_late_data);
    if (over || wait)
        return;
    tcp_on_ready(&c->watch, TRII_HANGUP);
    trii_mutex_lock(&g->mutex);
    if (g->polling)
        trii_wakeup_signal(g->wake_fd);
    trii_mutex_unlock(&g->mutex);
}

/* Its connection ends too, after all that it sent, unless an unknown child of it has a copy. */
static void on_process_end(trii_watch *watch, unsigned events)
{
    tcp_conn *c = TRII_CONTAINER(watch, tcp_conn, process_watch);

    (void)events;
    trii_loop_mute(watch);
    trii_loop_timer(c->group->loop, &c->late_data_timer, trii_deadline_ms(LATE_DATA_MS),
                    check_late_data);
}

/* --- calls ---------------------------------------------------------------- */

static void tcp_describe_wait(void *self, trii_op *op, char *text, size_t size)
{
    tcp_group *g = self;

    trii_mutex_lock(&g->mutex);
    if (trii_kind_in(op->call.kind, TRII_KINDS_PAIR))
        tcp_p2p_describe_wait(g, op, text, size);
    else
        tcp_coll_describe_wait(g, op, text, size);
    trii_mutex_unlock(&g->mutex);
}

static void tcp_skip(void *self, const trii_collective *call)
{
    tcp_group *g = self;

    trii_mutex_lock(&g->mutex);
    tcp_coll_note(g, call);
    trii_mutex_unlock(&g->mutex);
}

static void tcp_announce_wait(void *self, const trii_op *op)
{
    tcp_group *g = self;
    const trii_collective *call = &op->call;
    bool message = trii_kind_in(call->kind, TRII_KINDS_PAIR);
    tcp_frame frame;

    if (call->kind == TRII_KIND_RECV_ANY) /* nobody in particular sends it */
        return;
    trii_mutex_lock(&g->mutex);
    if (!message && g->n_running > 0 && g->running[0]->op->call.seq < call->seq)
        call = &g->running[0]->op->call; /* what it waits for */
    tcp_frame_fill(&frame, message ? TCP_FRAME_LISTENS : TCP_FRAME_WAITS, call);
    frame.bytes = 0;
    if (message)
        frame.part = (uint32_t)call->tag;
    for (int r = 0; r < g->size && memcmp(&frame, &g->announced, sizeof(frame)) != 0; r++) {
        tcp_conn *c = &g->conns[r];

        if (r == g->rank || c->ended || c->has_left)
            continue;
        (void)tcp_coll_disagrees(c, &c->peer_wait); /* it came before our call */
        c->want_announce = c->want_out = true;
    }
    g->announced = frame;
    tcp_advance(g);
    trii_mutex_unlock(&g->mutex);
}

static void tcp_abort(void *self)
{
    tcp_group *g = self;

    trii_mutex_lock(&g->mutex);
    tcp_fail(g, TRI_ERR_ABORTED, "the group was aborted"); /* the raised fault goes first */
    if (g->polling)
        trii_wakeup_signal(g->wake_fd);
    trii_mutex_unlock(&g->mutex);
}

/* --- life ----------------------------------------------------------------- */

static void free_group(tcp_group *g)
{
    for (int i = 0; i < TCP_SLOTS; i++)
        trii_free(g->slots[i].scratch);
    trii_free(g->slots[0].peers); /* of all slots */
    for (int r = 0; g->conns != NULL && r < g->size; r++) {
        trii_unforked_drop(&g->conns[r].unforked);
        trii_socket_close(g->conns[r].fd);
        trii_fd_close(g->conns[r].process_fd);
        trii_free(g->conns[r].in);
        trii_free(g->conns[r].rest);
    }
    trii_tags_clear(&g->any_recvs);
    trii_free(g->conns);
    trii_free(g->sources);
    trii_free(g->poll_fds);
    trii_free(g->poll_events);
    trii_socket_close(g->wake_fd);
    trii_cond_fini(&g->turn);
    trii_mutex_fini(&g->mutex);
    trii_free(g);
}

/* All memory that does not depend on the calls: later only a reduction that is larger than any
 * before allocates. */
static tri_status allocate(tcp_group *g)
{
    size_t n = (size_t)g->size;
    tcp_streams *streams = trii_alloc(n * TCP_SLOTS, sizeof(*streams), "tcp streams");

    for (size_t i = 0; i < TCP_SLOTS && streams != NULL; i++)
        g->slots[i].peers = streams + i * n;
    g->conns = trii_alloc(n, sizeof(*g->conns), "tcp connections");
    g->sources = trii_alloc(n, sizeof(*g->sources), "tcp group");
    g->poll_fds = trii_alloc(n + 1, sizeof(*g->poll_fds), "tcp group");
    g->poll_events = trii_alloc(2 * (n + 1), sizeof(*g->poll_events), "tcp group");
    for (int r = 0; g->conns != NULL && r < g->size; r++)
        g->conns[r].fd = g->conns[r].process_fd = -1;
    if (streams == NULL || g->conns == NULL || g->sources == NULL || g->poll_fds == NULL ||
        g->poll_events == NULL)
        return TRI_ERR_NO_MEMORY;
    g->poll_ready = g->poll_events + n + 1;
    for (int r = 0; r < g->size; r++) {
        tcp_conn *c = &g->conns[r];

        c->group = g;
        c->rank = r;
        c->in_room = TCP_READ;
        c->in = trii_alloc(TCP_READ, 1, "tcp input");
        if (c->in == NULL)
            return TRI_ERR_NO_MEMORY;
    }
    return trii_wakeup_create(&g->wake_fd);
}

/* From here on the control thread watches. */
static tri_status watch_all(tcp_group *g)
{
    int n_watched = 0;
    tri_status status;

    assert(g != NULL);
    status = trii_control_take(&g->loop);
    if (status != TRI_OK)
        return status;
    trii_loop_lock(g->loop); /* what the first connection tells makes it look at all of them */
    for (int r = 0; r < g->size && status == TRI_OK; r++) {
        if (r == g->rank)
            continue;
        g->conns[r].armed = TRII_HANGUP;
        trii_socket_peer_text(g->conns[r].fd, g->conns[r].peer);
        status =
            trii_loop_watch(g->loop, &g->conns[r].watch, g->conns[r].fd, TRII_HANGUP, tcp_on_ready);
        if (n_watched++ < PROCESSES)
            g->conns[r].process_fd = trii_proc_open(&g->conns[r].process);
        if (status == TRI_OK && g->conns[r].process_fd >= 0)
            status = trii_loop_watch(g->loop, &g->conns[r].process_watch, g->conns[r].process_fd,
                                     TRII_READABLE, on_process_end);
    }
    if (status == TRI_OK)
        status = tcp_heartbeat_start(g);
    trii_loop_unlock(g->loop);
    return status;
}

static void unwatch_all(tcp_group *g)
{
    for (int r = 0; g->conns != NULL && r < g->size; r++) {
        trii_loop_unwatch(&g->conns[r].watch);
        trii_loop_unwatch(&g->conns[r].process_watch);
        if (g->loop != NULL) /* after the watch that starts it */
            trii_loop_timer_stop(g->loop, &g->conns[r].late_data_timer);
    }
    if (g->loop != NULL) {
        trii_loop_timer_stop(g->loop, &g->failure_timer);
        trii_loop_timer_stop(g->loop, &g->heartbeat_timer);
        trii_control_release(g->loop);
    }
    g->loop = NULL;
}

static tri_status tcp_create(const trii_group_args *args, void **self_out)
{
    int64_t spin_us = SPIN_US;
    char what[64];
    tcp_group *g;
    bool agreed;
    tri_status status, enough;

    if (args->size + 1 > TRII_POLL_MAX)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                         "engine tcp: a group of %d ranks is too large (at most %d)", args->size,
                         TRII_POLL_MAX - 1);
    snprintf(what, sizeof(what), "a group of %d ranks over tcp", args->size);
    enough = trii_descriptors_want(args->size, what);
    g = trii_alloc(1, sizeof(*g), "tcp group");
    if (g != NULL) {
        g->rank = args->rank;
        g->size = args->size;
        g->fault = args->fault;
        g->names = args->names;
        g->owners = owners;
        g->wake_fd = -1;
        trii_proc_id_own(&g->process);
        trii_mutex_init(&g->mutex);
        trii_cond_init(&g->turn);
    }
    status = g != NULL ? allocate(g) : TRI_ERR_NO_MEMORY;
    if (status == TRI_OK)
        status = enough;
    if (status == TRI_OK)
        status = trii_param_i64(TRII_PARAM_SPIN_US, SPIN_US, &spin_us);
    if (g != NULL)
        g->spin_ns = g->spin_max_ns = spin_us * 1000;
    status = tcp_connect_all(status == TRI_OK ? g : NULL, args, status, &agreed);
    if (status == TRI_OK && g != NULL)
        status = watch_all(g);
    if (status == TRI_OK || !agreed)
        status = trii_group_agree(args, "ready", status);
    if (status != TRI_OK && g != NULL) {
        unwatch_all(g);
        free_group(g);
    }
    if (status == TRI_OK)
        *self_out = g;
    return status;
}

/* The peer learns that this is not a failure. */
static void say_goodbye(tcp_conn *c, int64_t deadline_ns)
{
    const tcp_frame frame = {.type = TCP_FRAME_GOODBYE};
    char rest[TCP_READ];
    size_t got = 0;

    /* a frame without an operation, as a CTS is, may still be here, or half of it; a peer that is
     * gone, or that takes nothing for a second, needs no goodbye */
    if (trii_socket_send_all(c->fd, (const char *)&c->out + sizeof(c->out) - c->out_head_left,
                             c->out_head_left, deadline_ns) != TRI_OK ||
        trii_socket_send_all(c->fd, &frame, sizeof(frame), deadline_ns) != TRI_OK)
        return;
    trii_socket_shutdown(c->fd);
    /* closing with unread bytes would reset the connection, and overtake the goodbye */
    while (trii_socket_recv(c->fd, rest, sizeof(rest), &got) == TRI_OK)
        ;
}

/* After a failure: our fault may still be in our socket, or on its way there, and closing with
 * unread bytes would drop it; peers that it could not be sent to must see the cause before they see
 * us leave. So what they send is thrown away until they have closed too, for a moment. */
static void drain_until_closed(tcp_group *g)
{
    int64_t deadline = trii_deadline_ms(DRAIN_MS);
    char rest[TCP_READ];
    bool open = true;

    while (open) {
        open = false;
        for (int r = 0; r < g->size; r++) {
            tcp_conn *c = &g->conns[r];
            tri_status status = TRI_OK;
            size_t got = 0;

            g->poll_fds[r] = r != g->rank && !c->ended ? c->fd : -1;
            g->poll_events[r] = TRII_READABLE;
            if (g->poll_fds[r] >= 0 && !tcp_send_rest(c))
                g->poll_events[r] |= TRII_WRITABLE;
            while (g->poll_fds[r] >= 0 && status == TRI_OK)
                status = trii_socket_recv(c->fd, rest, sizeof(rest), &got);
            c->ended = c->ended || (status != TRI_OK && status != TRI_INPROGRESS);
            open = open || (r != g->rank && !c->ended);
        }
        if (open &&
            trii_socket_poll(g->poll_fds, g->poll_events, g->poll_ready, g->size, deadline) == 0)
            return;
    }
}

/* What we sent last may still be on its way, the goodbye after it: closing while a peer sends
 * (heartbeats) would reset the connection and drop both. So we wait until all is acknowledged. */
static void wait_for_acks(tcp_group *g, int64_t deadline_ns)
{
    char rest[TCP_READ];
    bool owed = true;

    while (owed && trii_now_ns() < deadline_ns) {
        owed = false;
        for (int r = 0; r < g->size; r++) {
            tcp_conn *c = &g->conns[r];
            trii_socket_health health;
            tri_status status = TRI_OK;
            size_t got = 0;

            if (r == g->rank || c->ended)
                continue;
            while (status == TRI_OK)
                status = trii_socket_recv(c->fd, rest, sizeof(rest), &got);
            c->ended = status != TRI_INPROGRESS;
            owed = owed || (!c->ended && trii_socket_health_get(c->fd, &health) && health.owed);
        }
        if (owed) /* nothing tells that an acknowledgement has come */
            trii_sleep_until(trii_now_ns() + TRII_NS_PER_MS / 5);
    }
}

static void tcp_leave(void *self)
{
    tcp_group *g = self;
    int64_t deadline = trii_deadline_ms(LEAVE_MS);

    if (g->left)
        return;
    g->left = true;
    trii_mutex_lock(&g->mutex);
    if (g->pending > 0)
        tcp_fail(g, TRI_ERR_ABORTED, "rank %d left the group during a call", tcp_name(g, g->rank));
    trii_mutex_unlock(&g->mutex);
    unwatch_all(g);
    for (int r = 0; r < g->size && !g->failed; r++) {
        if (r != g->rank)
            say_goodbye(&g->conns[r], deadline);
    }
    for (int i = 0; i < TCP_OWNERS && !g->failed; i++) /* messages that no receive came for */
        g->owners[i]->fail_all(g, TRI_ERR_ABORTED, "");
    if (g->failed)
        drain_until_closed(g);
    else
        wait_for_acks(g, deadline);
    g->failed = true; /* nothing can be sent any more */
    for (int r = 0; r < g->size; r++) {
        tcp_conn *c = &g->conns[r];

        trii_unforked_drop(&c->unforked);
        trii_socket_close(c->fd);
        trii_fd_close(c->process_fd);
        c->fd = c->process_fd = -1;
        c->ended = true;
    }
}

static void tcp_destroy(void *self)
{
    tcp_leave(self);
    free_group(self);
}

static void tcp_disconnect(void *self, uint32_t draw, bool half)
{
    tcp_group *g = self;
    int r;

    if (g->size < 2)
        return;
    r = (g->rank + 1 + (int)(draw % (uint32_t)(g->size - 1))) % g->size;
    trii_socket_sever(g->conns[r].fd, half);
}

static trii_loss tcp_loss_of(void *self, int rank)
{
    tcp_group *g = self;
    trii_loss loss;

    trii_mutex_lock(&g->mutex);
    loss = tcp_heartbeat_loss(&g->conns[rank]);
    trii_mutex_unlock(&g->mutex);
    return loss;
}

static bool tcp_cancel_recv(void *self, trii_op *op)
{
    tcp_group *g = self;
    bool found;

    trii_mutex_lock(&g->mutex);
    found = tcp_p2p_cancel(g, op);
    trii_mutex_unlock(&g->mutex);
    return found;
}

const trii_engine trii_engine_tcp = {
    .abi = TRII_ENGINE_ABI,
    .size = sizeof(trii_engine),
    .name = "tcp",
    .kinds = TRII_KINDS_COLLECTIVE | TRII_KINDS_PAIR,
    .to_self = true,
    .create = tcp_create,
    .submit = tcp_submit,
    .progress = tcp_progress,
    .describe_wait = tcp_describe_wait,
    .abort = tcp_abort,
    .destroy = tcp_destroy,
    .leave = tcp_leave,
    .disconnect = tcp_disconnect,
    .loss = tcp_loss_of,
    .cancel_recv = tcp_cancel_recv,
    .skip = tcp_skip,
    .announce_wait = tcp_announce_wait,
};
