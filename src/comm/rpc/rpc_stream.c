/*
 * rpc_stream.c - frames over tcp. Small ones are taken out of a buffer, the body of a large one is
 * received where it will stay, after its limits have been looked at. A thread that waits polls the
 * socket itself; meanwhile the loop is not told of what comes, or each reply would wake both.
 */
#include <string.h>

#include "base/alloc.h"
#include "os/socket.h"
#include "comm/rpc/rpc_internal.h"

#define BUFFER_BYTES ((size_t)64 << 10)
#define LARGE_BYTES ((size_t)16 << 10) /* bodies that are not buffered */
#define AT_ONCE 64                     /* receives; then other connections have their turn */

static void tell_loop(rpc_peer *peer)
{
    unsigned events =
        (peer->is_polled ? 0u : TRII_READABLE) | (peer->out_first != NULL ? TRII_WRITABLE : 0u);

    if (peer->events == events)
        return;
    peer->events = events;
    trii_loop_change(&peer->watch, events);
}

bool rpc_stream_claim(rpc_peer *peer)
{
    if (peer->poke_fd < 0 && trii_wakeup_create(&peer->poke_fd) != TRI_OK)
        return false;
    peer->is_polled = true;
    tell_loop(peer);
    return true;
}

void rpc_stream_release(rpc_peer *peer)
{
    peer->is_polled = false;
    tell_loop(peer);
}

void rpc_stream_flush(rpc_peer *peer)
{
    tri_status status = TRI_OK;

    while (peer->out_first != NULL && status == TRI_OK) {
        rpc_unsent *out = peer->out_first;
        size_t sent = 0;

        status = trii_socket_send(
            peer->fd, &(trii_span){out->data + out->sent, out->bytes - out->sent}, 1, &sent);
        out->sent += status == TRI_OK ? sent : 0;
        if (out->sent == out->bytes)
            rpc_unsent_drop(peer);
    }
    if (status != TRI_OK && status != TRI_INPROGRESS) {
        rpc_peer_lose_by_error(peer);
        return;
    }
    tell_loop(peer);
}

static tri_status begin_large(rpc_peer *peer, const rpc_header *h)
{
    size_t there = peer->buffered - sizeof(*h);
    size_t kept = h->n_refs * sizeof(rpc_wire_ref); /* which somebody holds until they are read */

    if (peer->rpc->up->is_wanted(peer, h))
        kept = (size_t)h->bytes;
    peer->large = *h;
    peer->large_body = NULL;
    peer->large_kept = kept;
    if (kept > 0) {
        peer->large_body = trii_alloc_aligned(64, kept, "message");
        if (peer->large_body == NULL)
            return TRI_ERR_NO_MEMORY;
        memcpy(peer->large_body, peer->buffer + sizeof(*h), there < kept ? there : kept);
    }
    peer->large_got = there;
    peer->buffered = 0;
    peer->in_large = true;
    return TRI_OK;
}

static void end_large(rpc_peer *peer)
{
    rpc_source source = {.owned = peer->large_body, .is_cut = peer->large_kept < peer->large.bytes};

    peer->large_body = NULL;
    peer->in_large = false;
    rpc_take_frame(peer, &peer->large, &source);
}

/* Frames that the buffer has whole. */
static tri_status take_buffered(rpc_peer *peer)
{
    static const rpc_limits any = {SIZE_MAX, SIZE_MAX, SIZE_MAX, false};
    size_t at = 0;
    tri_status status = TRI_OK;

    while (peer->state == RPC_PEER_UP && peer->buffered - at >= sizeof(rpc_header)) {
        rpc_header h;
        rpc_source source = {.first = peer->buffer + at + sizeof(h), .n_first = SIZE_MAX};

        memcpy(&h, peer->buffer + at, sizeof(h));
        status = rpc_frame_check(&h, &any);
        if (status != TRI_OK)
            return status;
        if (h.bytes > LARGE_BYTES) {
            memmove(peer->buffer, peer->buffer + at, peer->buffered - at);
            peer->buffered -= at;
            at = 0;
            if (peer->buffered < sizeof(h) + h.bytes)
                return begin_large(peer, &h);
            source.first = peer->buffer + sizeof(h);
        }
        if (peer->buffered - at < sizeof(h) + h.bytes)
            break;
        at += sizeof(h) + h.bytes;
        rpc_take_frame(peer, &h, &source);
    }
    memmove(peer->buffer, peer->buffer + at, peer->buffered - at);
    peer->buffered -= at;
    return TRI_OK;
}

static tri_status receive_some(rpc_peer *peer)
{
    size_t got = 0, left;
    tri_status status;

    if (!peer->in_large) {
        left = BUFFER_BYTES - peer->buffered;
        status = trii_socket_recv(peer->fd, peer->buffer + peer->buffered, left, &got);
        peer->buffered += got;
        if (status == TRI_OK)
            status = take_buffered(peer);
        return status == TRI_OK && got < left && !peer->in_large ? TRI_INPROGRESS : status;
    }
    left = (size_t)peer->large.bytes - peer->large_got;
    if (peer->large_got < peer->large_kept)
        status = trii_socket_recv(peer->fd, peer->large_body + peer->large_got,
                                  peer->large_kept - peer->large_got, &got);
    else
        status = trii_socket_recv(peer->fd, peer->buffer, left < BUFFER_BYTES ? left : BUFFER_BYTES,
                                  &got);
    peer->large_got += got;
    if (status == TRI_OK && peer->large_got == peer->large.bytes)
        end_large(peer);
    return status;
}

void rpc_stream_read(rpc_peer *peer)
{
    tri_status status = TRI_OK;

    if (peer->buffer == NULL) {
        peer->buffer = trii_alloc(1, BUFFER_BYTES, "worker");
        if (peer->buffer == NULL) {
            rpc_peer_lose(peer, false, "no memory for what it sends");
            return;
        }
    }
    for (int i = 0; i < AT_ONCE && status == TRI_OK && peer->state == RPC_PEER_UP; i++)
        status = receive_some(peer);
    if (peer->state != RPC_PEER_UP || status == TRI_OK || status == TRI_INPROGRESS)
        return;
    if (status == TRI_END)
        rpc_peer_lose(peer, false, "it closed the connection without leaving");
    else
        rpc_peer_lose_by_error(peer);
}
