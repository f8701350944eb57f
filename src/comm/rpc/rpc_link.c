/*
 * rpc_link.c - the connection with another worker: once it has been made, as the loop tells of it,
 * and what all others hear of its end.
 */
#include "base/log.h"
#include "os/futex.h"
#include "os/socket.h"
#include "comm/rpc/rpc_internal.h"

void rpc_peer_take(rpc_peer *peer, int fd, bool is_unix, const trii_shmem *shm, bool connects)
{
    rpc_ring *rings = shm->base;

    peer->fd = fd;
    peer->is_unix = is_unix;
    peer->shm = *shm;
    if (is_unix) { /* the first is written by the connector */
        peer->out_ring = connects ? rings : rings + 1;
        peer->in = connects ? rings + 1 : rings;
    }
    peer->closed = false;
    peer->events = TRII_READABLE;
    rpc_peer_use(peer); /* until it is closed */
}

/* Nobody else has closed it, even if the peer was lost meanwhile: only the loop would, and does not
 * know it. No credits are used: a call takes them when it is sent, to a peer that is up. */
void rpc_peer_give_back(rpc_peer *peer)
{
    trii_shmem_release(&peer->shm);
    peer->in = peer->out_ring = NULL;
    trii_socket_close(peer->fd);
    peer->fd = -1;
    peer->closed = true;
    rpc_peer_unuse(peer);
}

void rpc_peer_up(rpc_peer *peer)
{
    tri_rpc *rpc = peer->rpc;
    char text[RPC_NAME + 160];

    peer->state = RPC_PEER_UP;
    trii_unforked_hold(&peer->unforked, peer->fd);
    snprintf(text, sizeof(text), "%s%s is connected by %s", peer->name, peer->where,
             peer->in != NULL ? "shared memory" : "tcp");
    TRII_LOG(TRII_LOG_DEBUG, "rpc", "%s", text);
    if (!peer->mirror && peer->incarnation != rpc->incarnation)
        rpc_tell(rpc, TRI_RPC_CAME, peer->name, text);
    rpc_flush(peer);
    if (rpc->joined) /* while it was being connected, it may be */
        rpc_send_kind(peer, RPC_JOINED, 0, 0, 0);
    if (peer->in != NULL) {
        peer->reading = true;
        rpc_stop_reading(peer);
    }
    rpc->up->pump(peer);
    rpc_peers_changed(rpc);
}

void rpc_peer_close(rpc_peer *peer)
{
    trii_loop_unwatch(&peer->watch);
    trii_unforked_drop(&peer->unforked);
    trii_socket_close(peer->fd);
    peer->fd = -1;
    peer->closed = true;
}

void rpc_say_gone(rpc_peer *lost)
{
    for (rpc_peer *p = lost->rpc->peers; p != NULL; p = p->next) {
        if (p != lost && p->state == RPC_PEER_UP)
            rpc_send_kind(p, RPC_GONE, 0, lost->incarnation, 0);
    }
}

void rpc_peer_ready(trii_watch *watch, unsigned events)
{
    rpc_peer *peer = TRII_CONTAINER(watch, rpc_peer, watch);
    tri_rpc *rpc = peer->rpc;

    rpc_use(rpc);
    rpc_lock(rpc);
    rpc_peer_use(peer);
    if (peer->is_unix) {
        if (rpc->joiner != NULL && !trii_futex_has_wait_many())
            rpc_kick(rpc->joiner);                            /* it has no bells to sleep on */
        (void)rpc_ring_shares_core(peer->in, peer->out_ring); /* tells where we are */
        if (peer->state == RPC_PEER_UP && !peer->reading) {   /* what it was woken for, first */
            peer->reading = true;
            rpc_read(peer);
            peer->reading = false;
        }
        rpc_take_records(peer);
        if ((events & TRII_HANGUP) != 0 && !peer->hung) {
            peer->hung = true; /* the thread that reads gives it up */
            rpc_kick_readers(peer);
        }
        rpc_flush(peer);
    } else if ((events & TRII_WRITABLE) != 0) {
        rpc_flush(peer);
    }
    if (peer->state == RPC_PEER_UP && !peer->reading) {
        peer->reading = true;
        do
            rpc_read(peer);
        while (peer->hung && peer->state == RPC_PEER_UP && rpc_ring_has(peer->in));
        if (peer->hung)
            rpc_peer_lose(peer, false, "its process has ended, or it gave this connection up");
        rpc_stop_reading(peer);
    }
    if (peer->state == RPC_PEER_LOST && !peer->closed) {
        rpc_peer_close(peer);
        rpc_peer_unuse(peer);
        rpc_changed(rpc);
    }
    rpc_peer_unuse(peer);
    rpc_unlock(rpc);
    rpc_unuse(rpc);
}
