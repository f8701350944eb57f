/*
 * rpc_accept.c - the other side of a connection (rpc_connect.c): strangers, until their hello has
 * come and is right. All of it runs in the control thread, which never waits for one of them.
 */
/* build: leaf */
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "os/socket.h"
#include "os/unix.h"
#include "comm/rpc/rpc_arena.h"
#include "comm/rpc/rpc_internal.h"
#include "comm/rpc/rpc_meeting.h"

#define MAX_PENDING 256
#define HELLO_MS 5000
#define ACCEPT_PAUSE_MS 250 /* without descriptors */

typedef struct rpc_pending {
    struct rpc_pending *next;
    tri_rpc *rpc;
    trii_watch watch;
    int fd, rings_fd;
    bool is_unix, proved;
    trii_handshake shake;
    rpc_hello hello;
    size_t got;
    int64_t deadline_ns;
} rpc_pending;

static void end_pending(rpc_pending *p, bool close_it)
{
    tri_rpc *rpc = p->rpc;
    rpc_pending **at = &rpc->pending;

    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    rpc->n_pending--;
    trii_loop_unwatch(&p->watch);
    if (close_it)
        trii_socket_close(p->fd);
    trii_unix_close(p->rings_fd);
    trii_free(p);
}

/* --- the hello ------------------------------------------------------------ */

static tri_status answer(const rpc_pending *p, int verdict)
{
    rpc_hello hello;
    trii_span span = {&hello, sizeof(hello)};
    size_t sent = 0;
    tri_status status;

    rpc_fill_hello(p->rpc, &hello);
    hello.to = p->hello.from;
    hello.verdict = verdict;
    status = trii_socket_send(p->fd, &span, 1, &sent);
    return status == TRI_OK && sent == sizeof(hello)
               ? TRI_OK
               : TRII_FAIL(TRI_ERR_PEER_LOST, "its connection takes no answer");
}

/* Locked. The peer that it is, UP; or NULL. */
static rpc_peer *admit(rpc_pending *p)
{
    tri_rpc *rpc = p->rpc;
    bool self = p->hello.from == rpc->incarnation;
    trii_shmem shm = {.fd = -1};
    rpc_peer *peer;

    peer = self ? rpc_peer_mirror(rpc) : rpc_peer_of(rpc, p->hello.name, p->hello.from);
    if (peer != NULL && peer->state == RPC_PEER_UP && (int32_t)(p->hello.ended - peer->ended) > 0) {
        rpc_peer_use(peer);
        rpc_peer_lose(peer, false, "it has connected again");
        rpc_peer_unuse(peer);
        peer = rpc_peer_of(rpc, p->hello.name, p->hello.from);
    }
    if (peer == NULL)
        return NULL;
    rpc_peer_use(peer);
    if (peer->state == RPC_PEER_UP ||
        (peer->state == RPC_PEER_CONNECTING && p->hello.from > rpc->incarnation)) {
        (void)answer(p, RPC_BUSY);
        rpc_peer_unuse(peer);
        return NULL;
    }
    if ((p->is_unix && trii_shmem_attach(p->rings_fd, 2 * sizeof(rpc_ring), &shm) != TRI_OK) ||
        answer(p, RPC_WELCOME) != TRI_OK)
        goto err_release;
    trii_loop_unwatch(&p->watch);
    rpc_peer_take(peer, p->fd, p->is_unix, &shm, false);
    if (!p->is_unix)
        trii_socket_keep_alive(p->fd);
    if (rpc_peer_watch(peer) != TRI_OK) {
        rpc_peer_give_back(peer);
        p->fd = -1;
        goto err_unuse;
    }
    rpc_peer_meet(peer, &p->hello);
    rpc_peer_is_early(peer);
    rpc_peer_up(peer);
    rpc_peer_unuse(peer);
    return peer;

err_release:
    TRII_LOG(TRII_LOG_WARN, "rpc", "refused %s: %s", p->hello.name, tri_last_error());
    trii_shmem_release(&shm);
err_unuse:
    rpc_peer_unuse(peer);
    return NULL;
}

static void take_hello(rpc_pending *p)
{
    tri_rpc *rpc = p->rpc;
    rpc_hello *h = &p->hello;
    bool right = h->magic == RPC_HELLO_MAGIC && h->to == rpc->incarnation && h->from != 0 &&
                 memcmp(h->token, rpc->token, sizeof(h->token)) == 0 && h->window_calls > 0 &&
                 (h->has_rings != 0) == p->is_unix && (p->rings_fd >= 0) == p->is_unix;
    bool admitted = false;

    h->name[RPC_NAME - 1] = h->host[sizeof(h->host) - 1] = '\0';
    rpc_lock(rpc);
    if (right && h->probes != 0)
        (void)answer(p, RPC_HERE);
    else if (right && rpc->state != RPC_STATE_OFF && rpc_check_name(h->name, "hello") == TRI_OK)
        admitted = admit(p) != NULL;
    end_pending(p, !admitted);
    rpc_unlock(rpc);
}

static tri_status prove_key(rpc_pending *p)
{
    unsigned char data[TRII_HELLO_BYTES], answer_bytes[TRII_ANSWER_BYTES];
    size_t want = (p->shake.answered ? TRII_PROOF_BYTES : TRII_HELLO_BYTES) - p->shake.got;
    size_t got = 0, used = 0, n = 0, sent = 0;
    tri_status status = trii_socket_recv(p->fd, data, want, &got);

    if (status != TRI_OK)
        return status;
    status =
        trii_handshake_feed(&p->shake, &p->rpc->job_key, "rpc", data, got, &used, answer_bytes, &n);
    if (n > 0 &&
        (trii_socket_send(p->fd, &(trii_span){answer_bytes, n}, 1, &sent) != TRI_OK || sent != n))
        return TRI_ERR_PEER_LOST;
    p->proved = status == TRI_OK;
    return status == TRI_INPROGRESS ? prove_key(p) : status; /* at most as often as it has parts */
}

static tri_status receive_hello(rpc_pending *p)
{
    unsigned char *to = (unsigned char *)&p->hello;
    tri_status status = TRI_OK;
    size_t got = 0;

    if (p->is_unix) {
        int there = trii_unix_peek(p->fd, to, sizeof(p->hello));

        if (there < 0)
            return TRI_END;
        if (there < (int)sizeof(p->hello))
            return TRI_INPROGRESS;
        return trii_unix_recv(p->fd, to, sizeof(p->hello), &p->rings_fd, trii_now_ns());
    }
    if (p->rpc->job_key.set && !p->proved)
        status = prove_key(p);
    while (status == TRI_OK && p->got < sizeof(p->hello)) {
        status = trii_socket_recv(p->fd, to + p->got, sizeof(p->hello) - p->got, &got);
        p->got += status == TRI_OK ? got : 0;
        if (p->got >= sizeof(p->hello.magic) && p->hello.magic != RPC_HELLO_MAGIC)
            return TRI_ERR_FORMAT;
    }
    return status;
}

static void pending_ready(trii_watch *watch, unsigned events)
{
    rpc_pending *p = TRII_CONTAINER(watch, rpc_pending, watch);
    tri_rpc *rpc = p->rpc;
    tri_status status = receive_hello(p);

    (void)events;
    if (status == TRI_OK) {
        take_hello(p);
    } else if (status != TRI_INPROGRESS) {
        rpc_lock(rpc);
        end_pending(p, true);
        rpc_unlock(rpc);
    }
}

/* --- listening ------------------------------------------------------------ */

static void add_pending(tri_rpc *rpc, int fd, bool is_unix)
{
    rpc_pending *p = trii_alloc(1, sizeof(*p), "connection");

    if (p == NULL || rpc->n_pending >= MAX_PENDING) {
        trii_free(p);
        trii_socket_close(fd);
        return;
    }
    p->rpc = rpc;
    p->fd = fd;
    p->rings_fd = -1;
    p->is_unix = is_unix;
    p->deadline_ns = trii_deadline_ms(HELLO_MS);
    rpc_lock(rpc);
    p->next = rpc->pending;
    rpc->pending = p;
    rpc->n_pending++;
    if (trii_loop_watch(rpc->loop, &p->watch, fd, TRII_READABLE, pending_ready) != TRI_OK)
        end_pending(p, true);
    rpc_unlock(rpc);
    rpc_arm(rpc, trii_deadline_ms(HELLO_MS));
}

static int64_t go_on_accepting(tri_rpc *rpc, int64_t now_ns)
{
    if (rpc->accepts_ns != 0 && now_ns >= rpc->accepts_ns) {
        rpc->accepts_ns = 0;
        trii_loop_change(&rpc->unix_watch, TRII_READABLE);
        trii_loop_change(&rpc->tcp_watch, TRII_READABLE);
    }
    return rpc->accepts_ns != 0 ? rpc->accepts_ns : TRII_NO_DEADLINE;
}

/* The loop would tell for ever of one that waits at the port and cannot be let in: the timer looks
 * there again. It warns once, until nobody waits. */
static void accept_all(tri_rpc *rpc, trii_watch *watch)
{
    bool is_unix = watch == &rpc->unix_watch, is_said;
    tri_status status;
    int fd;

    do {
        status = is_unix ? trii_unix_accept(rpc->unix_fd, trii_now_ns(), &fd)
                         : trii_socket_accept(rpc->tcp_fd, &fd);
        if (status == TRI_OK)
            add_pending(rpc, fd, is_unix);
    } while (status == TRI_OK);
    if (status != TRI_ERR_IO) {
        rpc->accept_why[0] = '\0';
        return;
    }
    is_said = strcmp(rpc->accept_why, tri_last_error()) == 0;
    snprintf(rpc->accept_why, sizeof(rpc->accept_why), "%s", tri_last_error());
    TRII_LOG(is_said ? TRII_LOG_DEBUG : TRII_LOG_WARN, "rpc", "%s", rpc->accept_why);
    trii_loop_change(watch, 0);
    rpc->accepts_ns = trii_deadline_ms(ACCEPT_PAUSE_MS);
    rpc_arm(rpc, rpc->accepts_ns);
}

static void unix_ready(trii_watch *watch, unsigned events)
{
    (void)events;
    accept_all(TRII_CONTAINER(watch, tri_rpc, unix_watch), watch);
}

static void tcp_ready(trii_watch *watch, unsigned events)
{
    (void)events;
    accept_all(TRII_CONTAINER(watch, tri_rpc, tcp_watch), watch);
}

static void timer_fired(trii_timer *timer);

/* In the loop. */
static void set_timer(tri_rpc *rpc, int64_t at_ns)
{
    trii_loop_timer(rpc->loop, &rpc->timer, at_ns, timer_fired);
}

static int64_t earlier(int64_t a_ns, int64_t b_ns)
{
    return a_ns < b_ns ? a_ns : b_ns;
}

static void timer_fired(trii_timer *timer)
{
    tri_rpc *rpc = TRII_CONTAINER(timer, tri_rpc, timer);
    int64_t next, there, now = trii_now_ns();

    rpc_use(rpc);
    rpc_lock(rpc);
    atomic_store(&rpc->timer_ns, TRII_NO_DEADLINE);
    next = rpc_arenas_trim(rpc, now); /* these two unlock: others may arm the timer meanwhile */
    next = earlier(next, rpc_executor_look(rpc, now));
    next = earlier(next, rpc_calls_expire(rpc));
    next = earlier(next, rpc_heartbeat(rpc, now));
    next = earlier(next, go_on_accepting(rpc, now));
    if (rpc_take_over_left(rpc) && now + RPC_LEFT_NS < next)
        next = now + RPC_LEFT_NS;
    for (rpc_pending *p = rpc->pending, *after; p != NULL; p = after) {
        after = p->next;
        if (now >= p->deadline_ns)
            end_pending(p, true);
        else
            next = earlier(next, p->deadline_ns);
    }
    there = atomic_load(&rpc->timer_ns);
    while (next < there && !atomic_compare_exchange_weak(&rpc->timer_ns, &there, next))
        ;
    set_timer(rpc, atomic_load(&rpc->timer_ns));
    rpc_unlock(rpc);
    rpc_unuse(rpc);
}

/* Something for the control thread: another deadline, or a ring that nobody reads. */
static void kicked(trii_watch *watch, unsigned events)
{
    tri_rpc *rpc = TRII_CONTAINER(watch, tri_rpc, kick_watch);
    rpc_peer *p;

    (void)events;
    trii_wakeup_clear(rpc->kick_fd);
    set_timer(rpc, atomic_load(&rpc->timer_ns));
    rpc_use(rpc);
    rpc_lock(rpc);
    do {
        p = rpc->peers;
        while (p != NULL && (!p->unread || p->reading || p->state != RPC_PEER_UP))
            p = p->next;
        if (p != NULL) {
            rpc_peer_use(p);
            p->reading = true;
            rpc_read(p);
            rpc_stop_reading(p);
            rpc_peer_unuse(p);
        }
    } while (p != NULL);
    rpc_unlock(rpc);
    rpc_unuse(rpc);
}

tri_status rpc_listen(tri_rpc *rpc)
{
    tri_status status =
        trii_loop_watch(rpc->loop, &rpc->unix_watch, rpc->unix_fd, TRII_READABLE, unix_ready);

    if (status == TRI_OK)
        status = trii_loop_watch(rpc->loop, &rpc->tcp_watch, rpc->tcp_fd, TRII_READABLE, tcp_ready);
    if (status == TRI_OK)
        status = trii_loop_watch(rpc->loop, &rpc->kick_watch, rpc->kick_fd, TRII_READABLE, kicked);
    return status;
}

void rpc_unlisten(tri_rpc *rpc)
{
    trii_loop_unwatch(&rpc->unix_watch);
    trii_loop_unwatch(&rpc->tcp_watch);
    trii_loop_unwatch(&rpc->kick_watch);
    trii_loop_timer_stop(rpc->loop, &rpc->timer);
    trii_loop_lock(rpc->loop);
    rpc_lock(rpc);
    while (rpc->pending != NULL)
        end_pending(rpc->pending, true);
    rpc_unlock(rpc);
    trii_loop_unlock(rpc->loop);
    trii_unix_close(rpc->unix_fd);
    trii_socket_close(rpc->tcp_fd);
    rpc->unix_fd = rpc->tcp_fd = -1;
}
