/*
 * rpc_unsent.c - frames for which a peer has no room yet, and how much may wait so for one that
 * does not read. Requests have its window. Answers count as calls that are unanswered, of which it
 * may have as many as this worker's window (rpc_on_request). All others are small, and count
 * together.
 */
/* build: leaf */
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "comm/rpc/rpc_internal.h"

#define CONTROL_BYTES ((size_t)1 << 20) /* are always allowed */

static size_t max_control(const rpc_peer *peer)
{
    size_t window = peer->rpc->options.window_bytes;

    return window > CONTROL_BYTES ? window : CONTROL_BYTES;
}

tri_status rpc_unsent_add(rpc_peer *peer, const void *frame, size_t bytes, size_t sent,
                          uint64_t request)
{
    rpc_unsent *out = trii_alloc(1, sizeof(*out) + bytes, "frame");
    rpc_header h;

    if (out == NULL)
        return TRII_FAIL(TRI_ERR_NO_MEMORY, "no memory for what it should get");
    memcpy(&h, frame, sizeof(h));
    memcpy(out->data, frame, bytes);
    out->bytes = bytes;
    out->sent = sent;
    out->call = request;
    out->kind = h.kind;
    *peer->out_end = out;
    peer->out_end = &out->next;
    atomic_store(&peer->backlog, true);
    if (out->kind == RPC_REPLY)
        peer->n_unread++;
    else if (out->kind > RPC_REPLY)
        peer->unread_bytes += bytes;
    if (peer->unread_bytes > max_control(peer))
        return TRII_FAIL(TRI_ERR_PEER_LOST, "it does not read: %zu bytes wait for that",
                         peer->unread_bytes);
    return TRI_OK;
}

void rpc_unsent_drop(rpc_peer *peer)
{
    rpc_unsent *out = peer->out_first;

    peer->out_first = out->next;
    if (out->kind == RPC_REPLY)
        peer->n_unread--;
    else if (out->kind > RPC_REPLY)
        peer->unread_bytes -= out->bytes;
    trii_free(out);
    if (peer->out_first != NULL)
        return;
    peer->out_end = &peer->out_first;
    atomic_store(&peer->backlog, false);
}
