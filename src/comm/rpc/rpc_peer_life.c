/*
 * rpc_peer_life.c - what another worker is to this one: made when somebody tells of it, lost,
 * freed. Its connection: rpc_link.c.
 */
#include <stdarg.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "os/socket.h"
#include "os/unix.h"
#include "comm/rpc/rpc_arena.h"
#include "comm/rpc/rpc_internal.h"

/* --- made and freed ------------------------------------------------------- */

static rpc_peer *add_peer(tri_rpc *rpc, const char *name, uint64_t incarnation)
{
    rpc_peer *peer = trii_alloc(1, sizeof(*peer), "worker");

    if (peer == NULL)
        return NULL;
    snprintf(peer->name, sizeof(peer->name), "%s", name);
    peer->rpc = rpc;
    peer->incarnation = incarnation;
    peer->fd = peer->poke_fd = -1;
    peer->closed = true;
    peer->shm.fd = -1;
    peer->out_end = &peer->out_first;
    peer->window_calls = rpc->options.window_calls;
    peer->window_bytes = rpc->options.window_bytes;
    peer->starved.end = &peer->starved.first;
    peer->next = rpc->peers;
    rpc->peers = peer;
    return peer;
}

rpc_peer *rpc_peer_mirror(tri_rpc *rpc)
{
    rpc_peer *peer = add_peer(rpc, rpc->name, rpc->incarnation);

    if (peer != NULL)
        peer->mirror = true;
    return peer;
}

rpc_peer *rpc_peer_of(tri_rpc *rpc, const char *name, uint64_t incarnation)
{
    rpc_peer *peer;

    for (peer = rpc->peers; peer != NULL; peer = peer->next) {
        if (peer->incarnation == incarnation && !peer->mirror && peer->state != RPC_PEER_LOST)
            return peer;
    }
    return add_peer(rpc, name, incarnation);
}

tri_status rpc_peer_told(rpc_peer *from, const rpc_wire_ref *wire, rpc_peer **peer_out)
{
    tri_rpc *rpc = from->rpc;
    rpc_peer *peer = from;
    int n = 0;

    if (wire->incarnation != from->incarnation) {
        for (peer = rpc->peers; peer != NULL; peer = peer->next) {
            if (peer->incarnation == wire->incarnation && peer->state != RPC_PEER_LOST)
                break;
            n += peer->state == RPC_PEER_KNOWN ? 1 : 0;
        }
    }
    if (peer == NULL && rpc_check_name(wire->name, "a reference") != TRI_OK)
        return TRII_FAIL(TRI_ERR_FORMAT, "it tells of a worker that has no name");
    if (peer == NULL && n >= RPC_MAX_INTRODUCED + rpc->size)
        return TRII_FAIL(TRI_ERR_FORMAT, "it tells of one more worker, and %d have not come", n);
    *peer_out = peer != NULL ? peer : add_peer(rpc, wire->name, wire->incarnation);
    return *peer_out != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
}

rpc_peer *rpc_peer_named(tri_rpc *rpc, const char *name)
{
    rpc_peer *peer = rpc->peers;

    while (peer != NULL && (peer->mirror || peer->state == RPC_PEER_LOST || peer->left ||
                            strcmp(peer->name, name) != 0))
        peer = peer->next;
    return peer;
}

void rpc_peer_use(rpc_peer *peer)
{
    peer->users++;
}

void rpc_peer_unuse(rpc_peer *peer)
{
    rpc_peer **at = &peer->rpc->peers;

    if (--peer->users > 0)
        return;
    while (*at != peer)
        at = &(*at)->next;
    *at = peer->next;
    while (peer->out_first != NULL)
        rpc_unsent_drop(peer);
    trii_shmem_release(&peer->shm);
    for (int i = 0; i < RPC_MAX_ARENAS; i++)
        trii_shmem_unview(peer->views[i].base, peer->views[i].bytes);
    for (int i = 0; i < peer->n_known; i++)
        trii_free(peer->known_names[i]);
    trii_free(peer->known_names);
    trii_free(peer->known);
    trii_socket_close(peer->poke_fd);
    trii_free(peer->large_body);
    trii_free(peer->buffer);
    trii_free(peer);
}

/* --- lost ----------------------------------------------------------------- */

void rpc_kept_drop(rpc_peer *peer, rpc_kept **at)
{
    rpc_kept *kept = *at;

    *at = kept->next;
    for (int i = 0; i < kept->n; i++)
        rpc_block_unuse(peer->rpc, kept->blocks[i]);
    trii_free(kept->blocks);
    trii_free(kept);
}

void rpc_peer_lose(rpc_peer *peer, bool left, const char *format, ...)
{
    tri_rpc *rpc = peer->rpc;
    char what[RPC_TEXT];
    bool was_up = peer->state == RPC_PEER_UP;
    va_list args;

    if (peer->state == RPC_PEER_LOST)
        return;
    va_start(args, format);
    vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    snprintf(peer->why, sizeof(peer->why), "%s%s: %s", peer->name, peer->where, what);
    peer->state = RPC_PEER_LOST;
    (void)atomic_fetch_add(&rpc->n_ended, was_up ? 1u : 0u);
    left = left || peer->said_bye;
    peer->left = left;
    rpc_peer_use(peer);
    if (peer->fd >= 0)
        trii_unix_shutdown(peer->fd); /* its hang-up is what the loop closes it for */
    rpc->up->lose_calls(peer);
    while (peer->out_first != NULL)
        rpc_unsent_drop(peer);
    rpc->up->lose_requests(peer);
    rpc->up->lose_refs(peer);
    while (peer->kept != NULL)
        rpc_kept_drop(peer, &peer->kept);
    if ((!left || peer->is_introduced) && rpc->state != RPC_STATE_OFF && !peer->mirror)
        rpc->up->say_gone(peer);
    if (was_up && !peer->mirror) {
        TRII_LOG(left ? TRII_LOG_DEBUG : TRII_LOG_INFO, "rpc", "%s", peer->why);
        if (peer->incarnation != rpc->incarnation) {
            rpc->has_parted = true;
            rpc_tell(rpc, left ? TRI_RPC_LEFT : TRI_RPC_LOST, peer->name, peer->why);
        }
    }
    rpc_kick_readers(peer);
    rpc_peers_changed(rpc);
    rpc_peer_unuse(peer);
}

void rpc_peer_lose_by_error(rpc_peer *peer)
{
    rpc_peer_lose(peer, false, "%s", tri_last_error());
}
