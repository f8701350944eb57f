/*
 * rpc_peer.c - frames to another worker and from it, and who reads them. What a peer is, and its
 * end: rpc_peer_life.c.
 */
/* build: hot */
#include "base/alloc.h"
#include "os/futex.h"
#include "os/socket.h"
#include "comm/rpc/rpc_internal.h"

#define FRAMES_AT_ONCE 256 /* then the thread that reads looks up */

static void take_freed(rpc_peer *peer, uint64_t call)
{
    rpc_kept **at = &peer->kept;

    while (*at != NULL && (*at)->call != call)
        at = &(*at)->next;
    if (*at != NULL)
        rpc_kept_drop(peer, at);
}

static void append_out(rpc_peer *peer, const void *frame, size_t bytes, size_t sent,
                       uint64_t request)
{
    if (rpc_unsent_add(peer, frame, bytes, sent, request) != TRI_OK)
        rpc_peer_lose_by_error(peer);
}

/* --- out ------------------------------------------------------------------ */

/* Its reader, if that sleeps. */
static void wake(rpc_peer *peer)
{
    if (atomic_load(&peer->out_ring->sleep) != RPC_LOOKS)
        rpc_wake_by(peer, atomic_exchange(&peer->out_ring->sleep, RPC_LOOKS));
}

void rpc_wake_early(rpc_peer *peer)
{
    rpc_ring *ring = peer->out_ring;
    int how = ring != NULL && peer->state == RPC_PEER_UP ? atomic_load(&ring->sleep) : RPC_LOOKS;

    if ((how != RPC_BY_FUTEX && how != RPC_BY_BELL) ||
        rpc_ring_shares_core(peer->in, peer->out_ring))
        return;
    atomic_store(&ring->coming, 1);
    if (atomic_compare_exchange_strong(&ring->sleep, &how, RPC_LOOKS))
        rpc_wake_by(peer, how);
}

RPC_COLD static void flush_ring(rpc_peer *peer)
{
    bool wrote = false;

    for (int tries = 0; peer->out_first != NULL && tries < 2; tries++) {
        while (peer->out_first != NULL &&
               rpc_ring_write(peer->out_ring, &peer->tail_seen, peer->out_first->data,
                              peer->out_first->bytes)) {
            wrote = true;
            rpc_unsent_drop(peer);
        }
        if (peer->out_first != NULL)
            atomic_store(&peer->out_ring->starved, 1);
    }
    if (wrote)
        wake(peer);
}

void rpc_flush(rpc_peer *peer)
{
    if (peer->out_first == NULL || peer->state != RPC_PEER_UP)
        return;
    if (peer->out_ring != NULL)
        flush_ring(peer);
    else
        peer->rpc->up->stream_flush(peer);
    if (peer->out_first == NULL && peer->rpc->n_changed_waiters > 0)
        rpc_changed(peer->rpc);
}

void rpc_send(rpc_peer *peer, const void *frame, size_t bytes, uint64_t request)
{
    size_t sent = 0;
    tri_status status;

    if (peer->state == RPC_PEER_LOST)
        return;
    if (peer->state == RPC_PEER_UP && peer->out_first == NULL) {
        if (peer->out_ring != NULL &&
            rpc_ring_write(peer->out_ring, &peer->tail_seen, frame, bytes)) {
            wake(peer);
            return;
        }
        if (peer->out_ring == NULL) {
            status = trii_socket_send(peer->fd, &(trii_span){frame, bytes}, 1, &sent);
            if (status == TRI_OK && sent == bytes)
                return;
            if (status != TRI_OK && status != TRI_INPROGRESS) {
                append_out(peer, frame, bytes, sent, request); /* so that it counts as unsent */
                rpc_peer_lose_by_error(peer);
                return;
            }
        }
    }
    append_out(peer, frame, bytes, sent, request);
    if (peer->state == RPC_PEER_UP)
        rpc_flush(peer);
    else if (peer->state == RPC_PEER_KNOWN)
        peer->rpc->up->connect_later(peer);
}

void rpc_send_kind(rpc_peer *peer, int kind, uint64_t call, uint64_t object, uint64_t chain)
{
    const rpc_header h = {
        .magic = RPC_MAGIC, .kind = (uint8_t)kind, .call = call, .object = object, .chain = chain};

    rpc_send(peer, &h, sizeof(h), 0);
}

/* --- in ------------------------------------------------------------------- */

static void take_frame(rpc_peer *peer, const rpc_header *h, rpc_source *source,
                       tri_rpc_request **run_out)
{
    static const rpc_limits any = {SIZE_MAX, SIZE_MAX, SIZE_MAX, false};
    const rpc_upcalls *up = peer->rpc->up;

    if (rpc_frame_check(h, &any) != TRI_OK) {
        rpc_peer_lose_by_error(peer);
        return;
    }
    switch (h->kind) {
    case RPC_REQUEST:
        up->request(peer, h, source, run_out);
        break;
    case RPC_REPLY:
        up->reply(peer, h, source);
        break;
    case RPC_CANCEL:
        up->cancel(peer, h->call);
        break;
    case RPC_WHERE:
        up->where(peer, h);
        break;
    case RPC_FREED:
        if (h->chain == 1)
            up->promise_freed(peer, h->call);
        else
            take_freed(peer, h->call);
        break;
    case RPC_DEFINE:
        up->define(peer, h, source);
        break;
    case RPC_HOLD:
        up->hold(peer, h, source);
        break;
    case RPC_HELD:
        up->held(peer, h);
        break;
    case RPC_DROP:
        up->drop(peer, h);
        break;
    case RPC_GONE:
        up->gone(peer, h);
        break;
    case RPC_LEAVING:
        peer->leaving = peer->incarnation != peer->rpc->incarnation; /* it may call itself */
        break;
    case RPC_JOINED:
        peer->joined = true;
        rpc_peers_changed(peer->rpc);
        break;
    case RPC_ALIVE:
        break;
    default:
        rpc_peer_lose(peer, true, "it has left");
    }
}

void rpc_take_frame(rpc_peer *peer, const rpc_header *h, rpc_source *source)
{
    tri_rpc_request *run = NULL;

    take_frame(peer, h, source, &run);
    trii_free(source->owned);
    source->owned = NULL;
    if (run != NULL)
        peer->rpc->up->run(run, true, NULL);
}

void rpc_read(rpc_peer *peer)
{
    peer->unread = false;
    if (peer->in == NULL) {
        peer->rpc->up->stream_read(peer);
        return;
    }
    for (int i = 0; i < FRAMES_AT_ONCE && peer->state == RPC_PEER_UP; i++) {
        tri_rpc_request *run = NULL;
        rpc_header h;
        rpc_source source;
        tri_status status = rpc_ring_look(peer->in, &peer->head_seen, &h, &source);

        if (status == TRI_INPROGRESS)
            break;
        if (status != TRI_OK) {
            rpc_peer_lose_by_error(peer);
            break;
        }
        take_frame(peer, &h, &source, &run);
        rpc_ring_pass(peer->in, &h);
        if (atomic_load(&peer->in->starved) != 0 && rpc_ring_has_room(peer->in, RPC_MAX_FRAME) &&
            atomic_exchange(&peer->in->starved, 0) != 0)
            wake(peer);
        if (run != NULL)
            peer->rpc->up->run(run, true, NULL);
    }
    rpc_flush(peer);
}

bool rpc_peer_is_active(rpc_peer *peer)
{
    return rpc_ring_has(peer->in) ||
           (atomic_load(&peer->backlog) && rpc_ring_has_room(peer->out_ring, RPC_MAX_FRAME));
}

/* Whether somebody else reads it from now on, or nobody has to. */
static bool is_taken_over(rpc_peer *peer)
{
    tri_rpc *rpc = peer->rpc;

    peer->reading = false;
    if (peer->state != RPC_PEER_UP || peer->hung)
        return true;
    for (rpc_waiter *w = rpc->waiters; w != NULL; w = w->next) {
        if (w->peer == peer && !w->busy && !w->reads) {
            rpc_kick(w);
            return true;
        }
    }
    if (!peer->is_watched)
        return false;
    if (rpc->joiner_sleeps) {
        atomic_store(&peer->in->sleep, RPC_BY_BELL);
        if (rpc_peer_is_active(peer) && atomic_exchange(&peer->in->sleep, RPC_LOOKS) != RPC_LOOKS) {
            atomic_fetch_add(&peer->in->bell, 1);
            trii_futex_wake_all(&peer->in->bell);
        }
    }
    return true;
}

void rpc_leave_ring(rpc_peer *peer)
{
    if (peer->used_calls == 0) {
        rpc_stop_reading(peer);
    } else if (!is_taken_over(peer)) {
        peer->is_left = 2;
        rpc_arm(peer->rpc, trii_coarse_ns() + RPC_LEFT_NS);
    }
}

RPC_COLD bool rpc_take_over_left(tri_rpc *rpc)
{
    bool again = false;

    for (rpc_peer *p = rpc->peers, *next; p != NULL; p = next) {
        rpc_peer_use(p);
        if (p->is_left > 0 && !p->reading && p->state == RPC_PEER_UP) {
            p->is_left--;
            p->reading = true;
            rpc_read(p);
            if (p->is_left == 0)
                rpc_stop_reading(p);
            else if (!is_taken_over(p))
                again = true;
        } else if (p->is_left > 0) {
            again = true;
        }
        next = p->next;
        rpc_peer_unuse(p);
    }
    return again;
}

void rpc_stop_reading(rpc_peer *peer)
{
    tri_rpc *rpc = peer->rpc;

    if (is_taken_over(peer))
        return;
    peer->is_left = 0;
    if (peer->in == NULL) {
        rpc->up->stream_release(peer);
        return;
    }
    atomic_store(&peer->in->sleep, RPC_BY_SOCKET);
    if (!rpc_peer_is_active(peer) || atomic_exchange(&peer->in->sleep, RPC_LOOKS) == RPC_LOOKS)
        return;
    peer->unread = true; /* something came meanwhile: the control thread reads it */
    trii_wakeup_signal(rpc->kick_fd);
}
