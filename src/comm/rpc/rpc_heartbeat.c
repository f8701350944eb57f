/*
 * rpc_heartbeat.c - workers on other hosts that are gone without a word: a cut link, a host without
 * power. As in groups (comm/engines/tcp/tcp_heartbeat.c): what has nothing to say says that, and
 * the system there acknowledges it, whatever the worker does.
 */
/* build: leaf */
#include "base/param.h"
#include "os/socket.h"
#include "comm/rpc/rpc_internal.h"

#define TICKS 8 /* in a silence: looks, and heartbeats */

tri_status rpc_heartbeat_init(tri_rpc *rpc)
{
    int64_t ms = TRII_SILENCE_MS;
    tri_status status = trii_param_i64(TRII_PARAM_HEARTBEAT_MS, TRII_SILENCE_MS, &ms);

    rpc->silence_ns = ms * TRII_NS_PER_MS;
    return status;
}

void rpc_heartbeat_begin(rpc_peer *peer)
{
    peer->is_remote = !peer->is_unix && !trii_socket_is_local(peer->fd);
    if (peer->is_remote && peer->rpc->silence_ns > 0)
        rpc_arm(peer->rpc, trii_now_ns() + peer->rpc->silence_ns / TICKS);
}

static void look_at(rpc_peer *peer, int64_t now_ns)
{
    tri_rpc *rpc = peer->rpc;
    trii_socket_health health;

    if (!trii_socket_health_get(peer->fd, &health))
        return;
    if (!health.owed && peer->out_first == NULL)
        rpc_send_kind(peer, RPC_ALIVE, 0, 0, 0);
    if (trii_socket_is_silent(&health, now_ns, rpc->silence_ns, &peer->unacked_since_ns))
        rpc_peer_lose(peer, false, "its host has not answered for %lld ms",
                      (long long)((now_ns - peer->unacked_since_ns) / TRII_NS_PER_MS));
}

int64_t rpc_heartbeat(tri_rpc *rpc, int64_t now_ns)
{
    int64_t next = TRII_NO_DEADLINE;

    for (rpc_peer *p = rpc->peers, *after; p != NULL && rpc->silence_ns > 0; p = after) {
        rpc_peer_use(p);
        if (p->is_remote && p->state == RPC_PEER_UP) {
            look_at(p, now_ns);
            next = now_ns + rpc->silence_ns / TICKS;
        }
        after = p->next;
        rpc_peer_unuse(p);
    }
    return next;
}
