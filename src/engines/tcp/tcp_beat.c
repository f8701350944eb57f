/*
 * tcp_beat.c - peers on other hosts that die without a word: a cut link, a host without power.
 *
 * Every connection to another host carries a frame now and then when it has nothing else to carry.
 * The peer's system acknowledges it, whatever the peer's process does: if it does not for
 * TRI_HEARTBEAT_MS, the host is lost. A process that is stopped, or computes, is no loss: its host
 * answers. That no frames come from it any more is said when somebody waits for it.
 *
 * Networks mend themselves: a switch or a bond that fails over, and a virtual machine that is
 * moved, swallow everything for seconds. Then the system sends again after pauses that double, so
 * that the first word after an outage comes when it has lasted twice as long. Only silence is
 * waited out like that: a connection that the other host resets is over at once.
 */
#include "engines/tcp/tcp.h"

#include "base/param.h"
#include "os/clock.h"
#include "os/socket.h"

#define TICKS 8          /* in a silence: looks and beats */
#define PROBES_IN_VAIN 2 /* of a full peer: after 0.2 and 0.4 s more */

bool tcp_beat_is_silent(const trii_socket_health *health, int64_t now, int64_t silence_ns,
                        int64_t *owed_ns)
{
    int64_t acked_ns = now - health->last_ack_ms * TRII_NS_PER_MS;

    if (!health->owed) {
        *owed_ns = 0;
        return false;
    }
    if (*owed_ns == 0)
        *owed_ns = now;
    if (*owed_ns < acked_ns)
        *owed_ns = acked_ns;
    /* The questions whether a full peer has room again are ever further apart: their age says
     * nothing, but each is answered at once. */
    if (health->full && health->unanswered_probes < PROBES_IN_VAIN)
        return false;
    return now - *owed_ns >= silence_ns;
}

static void look(tcp_group *g)
{
    int64_t now = trii_now_ns();

    for (int r = 0; r < g->size && !g->failed; r++) {
        tcp_conn *c = &g->conns[r];
        trii_socket_health health;

        if (r == g->rank || !c->remote || c->ended || c->gone ||
            !trii_socket_health_get(c->fd, &health))
            continue;
        c->want_beat = !health.owed;
        c->want_out = c->want_out || c->want_beat;
        if (!tcp_beat_is_silent(&health, now, g->silence_ns, &c->owed_ns))
            continue;
        atomic_store(&g->fault->lost_rank, tcp_name(g, r) + 1);
        tcp_fail(g, TRI_ERR_PEER_LOST,
                 "rank %d is lost: its host, %s, has not answered for %lld ms", tcp_name(g, r),
                 c->peer, (long long)((now - c->owed_ns) / TRII_NS_PER_MS));
    }
    if (!g->failed)
        tcp_advance(g);
}

static void on_beat(trii_timer *timer)
{
    tcp_group *g = (tcp_group *)((char *)timer - offsetof(tcp_group, beat_timer));

    trii_mutex_lock(&g->mutex);
    look(g);
    if (!g->failed)
        trii_loop_timer(g->loop, timer, trii_now_ns() + g->silence_ns / TICKS, on_beat);
    trii_mutex_unlock(&g->mutex);
}

tri_status tcp_beat_start(tcp_group *g)
{
    int64_t ms = TCP_SILENCE_MS;
    bool remote = false;
    tri_status status = trii_param_i64(TRII_PARAM_HEARTBEAT_MS, TCP_SILENCE_MS, &ms);

    if (status != TRI_OK)
        return status;
    g->silence_ns = ms * TRII_NS_PER_MS;
    for (int r = 0; r < g->size; r++) {
        tcp_conn *c = &g->conns[r];

        if (r == g->rank)
            continue;
        c->remote = !trii_socket_is_local(c->fd);
        c->heard_ns = trii_now_ns();
        remote = remote || c->remote;
    }
    if (remote && ms > 0)
        trii_loop_timer(g->loop, &g->beat_timer, trii_now_ns() + g->silence_ns / TICKS, on_beat);
    return TRI_OK;
}

size_t tcp_beat_describe(const tcp_conn *c, char *text, size_t used, size_t size)
{
    int64_t quiet_ns = trii_now_ns() - c->heard_ns;

    if (!c->remote || c->group->silence_ns == 0 || quiet_ns < c->group->silence_ns || used >= size)
        return used;
    return used + (size_t)snprintf(text + used, size - used, " (not heard of for %.1f s%s)",
                                   (double)quiet_ns / (double)TRII_NS_PER_S,
                                   c->owed_ns == 0 ? ", but its host answers: is it stopped?" : "");
}
