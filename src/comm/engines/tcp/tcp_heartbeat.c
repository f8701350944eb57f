/*
 * tcp_heartbeat.c - peers on other hosts that die without closing: a cut link, a host without
 * power.
 *
 * A connection to another host carries a heartbeat now and then when it has nothing else to carry.
 * If it is not acknowledged for TRI_HEARTBEAT_MS, the host is lost (os/silence.c). A process that
 * is stopped, or computes, is not lost: its host answers. That no frames come from it any more is
 * in the line of the call that waits for it.
 *
 * The same timer reads what peers have announced (TCP_FRAME_WAITS) to a rank that makes no call: it
 * may be the one that made another call than they wait in.
 */
#include "comm/engines/tcp/tcp.h"

#include "base/param.h"
#include "os/clock.h"
#include "os/socket.h"

#define TICKS 8 /* in a silence: checks and heartbeats */

/* No longer than by default, for those who wait for a rank that makes no call. */
static int64_t next_look(const tcp_group *g)
{
    const int64_t longest = TRII_SILENCE_MS * TRII_NS_PER_MS;
    bool often = g->silence_ns > 0 && g->silence_ns < longest;

    return trii_now_ns() + (often ? g->silence_ns : longest) / TICKS;
}

static void look_at_peers(tcp_group *g)
{
    int64_t now = trii_now_ns();
    bool idle = g->pending == 0 && !g->polling;

    for (int r = 0; r < g->size && !g->failed; r++) {
        tcp_conn *c = &g->conns[r];
        trii_socket_health health;

        if (r == g->rank || c->ended || c->has_left)
            continue;
        c->want_in = c->want_in || idle;
        if (!c->remote || !trii_socket_health_get(c->fd, &health))
            continue;
        c->heartbeat_due = g->silence_ns > 0 && !health.owed;
        c->want_out = c->want_out || c->heartbeat_due;
        if (!trii_socket_is_silent(&health, now, g->silence_ns, &c->unacked_since_ns))
            continue;
        atomic_store(&g->fault->lost_rank, tcp_name(g, r) + 1);
        tcp_fail(g, TRI_ERR_PEER_LOST,
                 "rank %d is lost: its host, %s, has not answered for %lld ms", tcp_name(g, r),
                 c->peer, (long long)((now - c->unacked_since_ns) / TRII_NS_PER_MS));
    }
    if (!g->failed)
        tcp_advance(g);
}

static void on_heartbeat(trii_timer *timer)
{
    tcp_group *g = TRII_CONTAINER(timer, tcp_group, heartbeat_timer);

    trii_mutex_lock(&g->mutex);
    look_at_peers(g);
    if (!g->failed)
        trii_loop_timer(g->loop, timer, next_look(g), on_heartbeat);
    trii_mutex_unlock(&g->mutex);
}

tri_status tcp_heartbeat_start(tcp_group *g)
{
    int64_t ms = TRII_SILENCE_MS;
    tri_status status = trii_param_i64(TRII_PARAM_HEARTBEAT_MS, TRII_SILENCE_MS, &ms);

    if (status != TRI_OK)
        return status;
    g->silence_ns = ms * TRII_NS_PER_MS;
    for (int r = 0; r < g->size; r++) {
        tcp_conn *c = &g->conns[r];

        if (r == g->rank)
            continue;
        c->remote = !trii_socket_is_local(c->fd);
        c->heard_ns = trii_now_ns();
    }
    if (g->size > 1)
        trii_loop_timer(g->loop, &g->heartbeat_timer, next_look(g), on_heartbeat);
    return TRI_OK;
}

trii_loss tcp_heartbeat_loss(tcp_conn *c)
{
    trii_socket_health health;

    if (c->has_left || trii_proc_has_ended(&c->process))
        return TRII_LOSS_ENDED;
    tcp_read_after_fault(c);
    if (c->has_left || c->is_lost)
        return c->has_left ? TRII_LOSS_ENDED : TRII_LOSS_CUT;
    return !c->ended && c->remote && trii_socket_health_get(c->fd, &health) &&
                   trii_socket_is_silent(&health, trii_now_ns(), c->group->silence_ns,
                                         &c->unacked_since_ns)
               ? TRII_LOSS_CUT
               : TRII_LOSS_NONE;
}
