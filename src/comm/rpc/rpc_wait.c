/*
 * rpc_wait.c - threads that wait for calls: they read the ring, or the socket, of the worker that
 * they wait for, run what comes back in their own chain of calls, and lend their place of the
 * executor meanwhile. How long they look before they sleep: rpc_spin.h.
 */
/* build: hot */
#include "base/err.h"
#include "os/futex.h"
#include "os/socket.h"
#include "os/unix.h"
#include "comm/rpc/rpc_internal.h"

#define COMING_NS 200000 /* a sender copies at most so long after it has woken us */

static bool is_kicked(rpc_waiter *w)
{
    return atomic_load(&w->kicked) == 1;
}

bool rpc_spin_on(rpc_peer *peer, const atomic_int *called, int before, int64_t *began_out)
{
    int32_t budget = rpc_spin_budget(&peer->spin);
    int64_t began = 0, now = 0;
    bool shares = false;

    for (int i = 1; budget > 0 && !shares; i++) {
        if (rpc_peer_is_active(peer) || atomic_load(called) != before) {
            rpc_spin_paid(&peer->spin, now - began);
            return true;
        }
        TRII_PAUSE();
        if (i % RPC_CLOCK_EVERY != 0)
            continue;
        if (began == 0) {
            began = now = trii_now_ns();
            shares = rpc_ring_shares_core(peer->in, peer->out_ring);
            if (atomic_exchange(&peer->in->coming, 0) != 0)
                budget = COMING_NS;
        } else if ((now = trii_now_ns()) >= began + budget) {
            break;
        }
    }
    *began_out = shares ? 0 : began != 0 ? began : trii_now_ns();
    return false;
}

/* Not locked, as the one below: returns when there is something, a kick, or the deadline. */
static void look_at_ring(rpc_peer *peer, rpc_waiter *w, int64_t deadline_ns)
{
    int64_t began;

    if (rpc_spin_on(peer, &w->kicked, 0, &began))
        return;
    atomic_store(&peer->in->sleep, RPC_BY_FUTEX);
    if (!rpc_peer_is_active(peer) && !is_kicked(w))
        trii_futex_wait(&peer->in->sleep, RPC_BY_FUTEX, deadline_ns);
    rpc_ring_stay_awake(peer->in);
    if (began != 0)
        rpc_spin_slept(&peer->spin, trii_now_ns() - began);
}

RPC_COLD static void look_at_socket(rpc_peer *peer, rpc_waiter *w, int64_t deadline_ns)
{
    const int fds[2] = {peer->fd, peer->poke_fd};
    const unsigned events[2] = {TRII_READABLE, TRII_READABLE};
    unsigned ready[2];
    int32_t budget = rpc_spin_budget(&peer->spin);
    int64_t began = trii_now_ns();
    unsigned char byte;
    int awake = 0;

    while (budget > 0) {
        if (trii_unix_peek(fds[0], &byte, 1) != 0 || is_kicked(w)) {
            rpc_spin_paid(&peer->spin, 0);
            return;
        }
        if (trii_now_ns() >= began + budget)
            break;
    }
    if (atomic_compare_exchange_strong(&w->kicked, &awake, 3))
        (void)trii_socket_poll(fds, events, ready, 2, deadline_ns);
    rpc_spin_slept(&peer->spin, trii_now_ns() - began);
}

void rpc_sleep_on(rpc_waiter *w, int64_t deadline_ns)
{
    int awake = 0;

    if (atomic_compare_exchange_strong(&w->kicked, &awake, 2))
        trii_futex_wait(&w->kicked, 2, deadline_ns);
    atomic_store(&w->kicked, 0);
}

static void change(const rpc_run *run, bool waits)
{
    if (run->place != NULL && waits)
        rpc_executor_lend(run->rpc, run->place);
    else if (run->place != NULL)
        rpc_executor_return(run->rpc, run->place);
    rpc_request_waits(run->request, waits);
}

/* The handler that this thread runs waits, or does not any more. Its worker may be another one of
 * this process: then `rpc` is unlocked meanwhile. */
RPC_COLD static void change_place(tri_rpc *rpc, bool waits)
{
    const rpc_run *run = rpc_running;

    if (run->request == NULL || (run->place == NULL && !run->request->in_object))
        return;
    if (run->rpc == rpc) {
        change(run, waits);
        return;
    }
    rpc_unlock(rpc);
    rpc_lock(run->rpc);
    change(run, waits);
    rpc_unlock(run->rpc);
    rpc_lock(rpc);
}

static void enter(tri_rpc *rpc, rpc_waiter *w)
{
    if (rpc_running != NULL && rpc_running->request != NULL && rpc_running->rpc == rpc)
        w->chain = rpc_running->request->chain;
    w->next = rpc->waiters;
    rpc->waiters = w;
    if (rpc_running != NULL)
        change_place(rpc, true);
}

static void leave(tri_rpc *rpc, rpc_waiter *w)
{
    rpc_waiter **at = &rpc->waiters;

    while (*at != w)
        at = &(*at)->next;
    *at = w->next;
    if (rpc_running != NULL)
        change_place(rpc, false);
    while (w->inbox != NULL) { /* came too late for us */
        tri_rpc_request *request = w->inbox;

        w->inbox = request->next;
        request->next = NULL;
        rpc_request_hand_back(request);
    }
}

RPC_COLD static void run_inbox(rpc_waiter *w)
{
    w->busy = true;
    while (w->inbox != NULL) {
        tri_rpc_request *request = w->inbox;
        const tri_rpc *rpc = request->rpc;
        int place = rpc_record_handler(request, w);

        w->inbox = request->next;
        request->next = NULL;
        rpc->up->run(request, false, NULL);
        rpc_record_end(rpc, place);
    }
    w->busy = false;
}

/* Locked, and unlocked meanwhile. */
static void look(rpc_peer *peer, rpc_waiter *w, int64_t deadline_ns)
{
    tri_rpc *rpc = peer->rpc;

    if (peer->in != NULL) {
        rpc_ring_stay_awake(peer->in);
        if (rpc_peer_is_active(peer))
            return;
        rpc_unlock(rpc);
        look_at_ring(peer, w, deadline_ns);
        rpc_lock(rpc);
    } else {
        rpc_unlock(rpc);
        look_at_socket(peer, w, deadline_ns);
        rpc_lock(rpc);
        if (atomic_exchange(&w->kicked, 0) == 1) /* what it was kicked for is looked at below */
            trii_wakeup_clear(peer->poke_fd);
    }
}

bool rpc_may_read(rpc_peer *peer)
{
    if (peer == NULL || peer->state != RPC_PEER_UP || peer->reading || peer->hung)
        return false;
    peer->reading = true;
    if (peer->in != NULL || rpc_stream_claim(peer))
        return true;
    peer->reading = false;
    return false;
}

/* Locked, and unlocked meanwhile: waits for something of the peer, and takes it in. */
static void read_one(rpc_peer *peer, rpc_waiter *w, bool (*is_over)(void *arg), void *arg,
                     int64_t deadline_ns)
{
    look(peer, w, deadline_ns);
    rpc_read(peer);
    w->reads = true; /* so that it does not hand over to us */
    if (is_over(arg))
        rpc_leave_ring(peer);
    else if (w->inbox != NULL)
        rpc_stop_reading(peer);
    else
        peer->reading = false;
    w->reads = false;
}

bool rpc_wait(tri_rpc *rpc, rpc_peer *peer, bool (*is_over)(void *arg), void *arg, rpc_waiter *w,
              int64_t deadline_ns)
{
    bool over = is_over(arg);
    int rounds = 0;

    if (over)
        return true;
    w->peer = peer;
    if (peer != NULL)
        rpc_peer_use(peer);
    enter(rpc, w);
    over = is_over(arg); /* it may have unlocked */
    while (!over) {
        atomic_store(&w->kicked, 0);
        if (w->inbox != NULL) {
            run_inbox(w);
        } else {
            if (rounds++ > 0 && trii_now_ns() >= deadline_ns)
                break;
            if (rpc_may_read(peer)) {
                read_one(peer, w, is_over, arg, deadline_ns);
            } else {
                rpc_unlock(rpc);
                rpc_sleep_on(w, deadline_ns);
                rpc_lock(rpc);
            }
        }
        over = is_over(arg);
    }
    leave(rpc, w);
    if (peer != NULL) {
        if (!peer->reading && peer->is_left == 0) {
            peer->reading = true;
            rpc_stop_reading(peer);
        }
        rpc_peer_unuse(peer);
    }
    return over;
}

tri_status rpc_may_block(const char *call)
{
    if (rpc_running == NULL || !rpc_running->inlined)
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_STATE,
                     "%s: an inline handler, a `done` or an event must not wait: it would hold up "
                     "the thread that receives",
                     call);
}
