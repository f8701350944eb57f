/*
 * rpc_peer.c - another worker: frames to it and from it, and its end.
 *
 * Within a host the socket carries records of 16 bytes beside the rings: a wake-up, or the file of
 * an arena. A record of an arena is sent before the frame that names it, so a thread that reads
 * the frame finds it in the socket.
 */
/* build: hot */
#include <stdarg.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "os/futex.h"
#include "os/socket.h"
#include "os/unix.h"
#include "rpc/rpc_arena.h"
#include "rpc/rpc_internal.h"

enum { RECORD_WAKE = 1, RECORD_ARENA };

typedef struct record {
    uint32_t kind, arena;
    uint64_t bytes;
} record;

#define FRAMES_AT_ONCE 256 /* then the thread that reads looks up */
#define SOCKET_MS 10000    /* for a record: its socket has room for hundreds */

/* --- life ----------------------------------------------------------------- */

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
    peer->starved_end = &peer->starved;
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

/* The first of a list: the peer reads the parts of that reply no more. */
static void drop_kept(rpc_peer *peer, rpc_kept **at)
{
    rpc_kept *kept = *at;

    *at = kept->next;
    peer->n_kept--;
    peer->kept_bytes -= kept->bytes;
    for (int i = 0; i < kept->n; i++)
        rpc_block_unuse(peer->rpc, kept->blocks[i]);
    trii_free(kept->blocks);
    trii_free(kept);
}

static void take_freed(rpc_peer *peer, uint64_t call)
{
    rpc_kept **at = &peer->kept;

    while (*at != NULL && (*at)->call != call)
        at = &(*at)->next;
    if (*at != NULL)
        drop_kept(peer, at);
}

static void append_out(rpc_peer *peer, const void *frame, size_t bytes, size_t sent,
                       uint64_t request)
{
    if (rpc_unsent_add(peer, frame, bytes, sent, request) != TRI_OK)
        rpc_peer_lose(peer, false, "%s", tri_last_error());
}

/* --- out ------------------------------------------------------------------ */

/* A reader that slept so does not any more. */
static void wake_reader(rpc_peer *peer, int how)
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

/* Its reader, if that sleeps. */
static void wake(rpc_peer *peer)
{
    if (atomic_load(&peer->out_ring->sleep) != RPC_LOOKS)
        wake_reader(peer, atomic_exchange(&peer->out_ring->sleep, RPC_LOOKS));
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
        wake_reader(peer, how);
}

static void flush_ring(rpc_peer *peer)
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
                rpc_peer_lose(peer, false, "%s", tri_last_error());
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
        rpc_peer_lose(peer, false, "%s", tri_last_error());
    peer->arenas_sent[arena / 64] |= bit;
}

/* --- in ------------------------------------------------------------------- */

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
            rpc_peer_lose(peer, false, "%s", tri_last_error());
        }
    }
    trii_unix_close(fd);
    return true;
}

void rpc_take_records(rpc_peer *peer)
{
    while (peer->state == RPC_PEER_UP && take_record(peer))
        ;
}

static void take_frame(rpc_peer *peer, const rpc_header *h, rpc_source *source,
                       tri_rpc_request **run_out)
{
    static const rpc_limits any = {SIZE_MAX, SIZE_MAX, SIZE_MAX};
    const rpc_upcalls *up = peer->rpc->up;

    if (rpc_frame_check(h, &any) != TRI_OK) {
        rpc_peer_lose(peer, false, "%s", tri_last_error());
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
        peer->rpc->up->run(run, true, false);
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
            rpc_peer_lose(peer, false, "%s", tri_last_error());
            break;
        }
        take_frame(peer, &h, &source, &run);
        rpc_ring_pass(peer->in, &h);
        if (atomic_load(&peer->in->starved) != 0 && rpc_ring_has_room(peer->in, RPC_MAX_FRAME) &&
            atomic_exchange(&peer->in->starved, 0) != 0)
            wake(peer);
        if (run != NULL)
            peer->rpc->up->run(run, true, false);
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
            rpc_kick(rpc, w);
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

bool rpc_take_over_left(tri_rpc *rpc)
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

/* --- the connection ------------------------------------------------------- */

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

void rpc_peer_give_back(rpc_peer *peer)
{
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
    snprintf(text, sizeof(text), "%s (%s) is connected by %s", peer->name, peer->where,
             peer->in != NULL ? "shared memory" : "tcp");
    TRII_LOG(TRII_LOG_DEBUG, "rpc", "%s", text);
    rpc->has_met = rpc->has_met || peer->incarnation != rpc->incarnation;
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

static void say_gone(rpc_peer *lost)
{
    for (rpc_peer *p = lost->rpc->peers; p != NULL; p = p->next) {
        if (p != lost && p->state == RPC_PEER_UP)
            rpc_send_kind(p, RPC_GONE, 0, lost->incarnation, 0);
    }
}

void rpc_peer_lose(rpc_peer *peer, bool left, const char *format, ...)
{
    tri_rpc *rpc = peer->rpc;
    char what[RPC_TEXT], text[RPC_TEXT + RPC_NAME + 128];
    bool was_up = peer->state == RPC_PEER_UP;
    va_list args;

    if (peer->state == RPC_PEER_LOST)
        return;
    va_start(args, format);
    vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    snprintf(text, sizeof(text), "%s%s%s%s: %s", peer->name, peer->where[0] != '\0' ? " (" : "",
             peer->where, peer->where[0] != '\0' ? ")" : "", what);
    snprintf(peer->why, sizeof(peer->why), "%s", text);
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
        drop_kept(peer, &peer->kept);
    if ((!left || peer->is_introduced) && rpc->state != RPC_STATE_OFF && !peer->mirror)
        say_gone(peer);
    if (was_up && !peer->mirror) {
        TRII_LOG(left ? TRII_LOG_DEBUG : TRII_LOG_INFO, "rpc", "%s", text);
        if (peer->incarnation != rpc->incarnation)
            rpc_tell(rpc, left ? TRI_RPC_LEFT : TRI_RPC_LOST, peer->name, text);
    }
    for (rpc_waiter *w = rpc->waiters; w != NULL; w = w->next) {
        if (w->peer == peer)
            rpc_kick(rpc, w);
    }
    rpc_peers_changed(rpc);
    rpc_peer_unuse(peer);
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
            rpc_kick(rpc, rpc->joiner);                       /* it has no bells to sleep on */
        (void)rpc_ring_shares_core(peer->in, peer->out_ring); /* tells where we are */
        if (peer->state == RPC_PEER_UP && !peer->reading) {   /* what it was woken for, first */
            peer->reading = true;
            rpc_read(peer);
            peer->reading = false;
        }
        rpc_take_records(peer);
        if ((events & TRII_HANGUP) != 0 && !peer->hung) {
            peer->hung = true; /* the thread that reads gives it up */
            for (rpc_waiter *w = rpc->waiters; w != NULL; w = w->next) {
                if (w->peer == peer)
                    rpc_kick(rpc, w);
            }
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
