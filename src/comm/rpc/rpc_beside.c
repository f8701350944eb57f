/*
 * rpc_beside.c - what the socket of a connection carries within a host, beside the rings: records
 * of 16 bytes, each a wake-up or the file of an arena. A record of an arena is sent before the
 * frame that names it, so a thread that reads the frame finds it in the socket.
 */
/* build: leaf */
#include "os/futex.h"
#include "os/socket.h"
#include "os/unix.h"
#include "comm/rpc/rpc_arena.h"
#include "comm/rpc/rpc_internal.h"

enum { RECORD_WAKE = 1, RECORD_ARENA };

typedef struct record {
    uint32_t kind, arena;
    uint64_t bytes;
} record;

/* For room in the socket of a peer, where there is some always: 278 records with a file by Linux's
 * default (wmem_default), and 255 files and a wake-up are all that a worker ever sends. */
#define SOCKET_MS 10000

void rpc_wake_by(rpc_peer *peer, int how)
{
    const record r = {.kind = RECORD_WAKE};
    const trii_span span = {&r, sizeof(r)};
    size_t sent;

    if (how == RPC_BY_FUTEX) {
        trii_futex_wake_all(&peer->out_ring->sleep);
    } else if (how == RPC_BY_BELL) {
        atomic_fetch_add(&peer->out_ring->bell, 1);
        trii_futex_wake_all(&peer->out_ring->bell);
    } else if (how == RPC_BY_SOCKET && trii_socket_send(peer->fd, &span, 1, &sent) != TRI_OK) {
        return; /* full of what wakes it as well, or broken */
    }
}

void rpc_send_arena(rpc_peer *peer, uint32_t arena)
{
    const uint64_t bit = UINT64_C(1) << (arena % 64);
    record r = {.kind = RECORD_ARENA, .arena = arena};
    size_t bytes = 0;
    int fd;

    if (peer->state != RPC_PEER_UP || (peer->arenas_sent[arena / 64] & bit) != 0)
        return;
    fd = rpc_arena_fd(peer->rpc, arena, &bytes);
    r.bytes = bytes;
    if (trii_unix_send(peer->fd, &r, sizeof(r), fd, trii_deadline_ms(SOCKET_MS)) != TRI_OK)
        rpc_peer_lose_by_error(peer);
    peer->arenas_sent[arena / 64] |= bit;
}

static bool take_record(rpc_peer *peer)
{
    record r;
    int fd = -1;
    const void *base = NULL;

    if (trii_unix_peek(peer->fd, &r, sizeof(r)) < (int)sizeof(r) ||
        trii_unix_recv(peer->fd, &r, sizeof(r), &fd, trii_now_ns()) != TRI_OK)
        return false;
    if (r.kind == RECORD_ARENA && r.arena > 0 && r.arena < RPC_MAX_ARENAS && fd >= 0 &&
        peer->views[r.arena].base == NULL) {
        if (trii_shmem_view(fd, r.bytes, &base) == TRI_OK) {
            peer->views[r.arena].base = base;
            peer->views[r.arena].bytes = r.bytes;
        } else {
            rpc_peer_lose_by_error(peer);
        }
    }
    if (r.kind == RECORD_ARENA && fd < 0) /* the system has dropped it */
        rpc_peer_lose(peer, false,
                      "no descriptor is left for its memory: raise the limit (ulimit -n)");
    trii_unix_close(fd);
    return true;
}

void rpc_take_records(rpc_peer *peer)
{
    while (peer->state == RPC_PEER_UP && take_record(peer))
        ;
}
