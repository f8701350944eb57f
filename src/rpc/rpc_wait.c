/*
 * rpc_wait.c - threads that wait: they read the ring of the worker that they wait for, run what
 * comes back in their own chain of calls, and lend their place of the executor meanwhile.
 *
 * How long a waiter looks at a ring before it sleeps is learnt for each peer: a look that was in
 * vain halves it, one that paid doubles it, and now and then the whole of TRI_SPIN_US is tried. So
 * two workers that share a core sleep, and two that have one each do not.
 */
/* build: hot */
#include "base/err.h"
#include "base/param.h"
#include "os/futex.h"
#include "rpc/rpc_internal.h"

#define SPIN_US 50
#define SPIN_START_NS 20000
#define SPIN_LEAST_NS 3000 /* a reply of somebody who looks, too, comes sooner */
#define TRY_EVERY 16       /* waits, of which one looks as long as it may */
#define CLOCK_EVERY 16     /* looks between two of the clock */

static trii_once spin_once = TRII_ONCE_INITIALIZER;
static int32_t spin_max_ns;

static void find_spin(void)
{
    int64_t us = SPIN_US;

    if (trii_param_i64(TRII_PARAM_SPIN_US, us, &us) != TRI_OK)
        us = SPIN_US;
    spin_max_ns = (int32_t)(us < 1000000 ? us : 1000000) * 1000;
}

static int32_t spin_budget(rpc_spin *spin)
{
    unsigned n = atomic_fetch_add_explicit(&spin->waits, 1, memory_order_relaxed);
    int32_t ns = atomic_load_explicit(&spin->ns, memory_order_relaxed);

    if (n == 0) {
        trii_once_run(&spin_once, find_spin);
        ns = SPIN_START_NS;
        atomic_store_explicit(&spin->ns, ns, memory_order_relaxed);
    }
    if (n % TRY_EVERY == TRY_EVERY - 1)
        ns = spin_max_ns;
    return ns < spin_max_ns ? ns : spin_max_ns;
}

static void spin_learn(rpc_spin *spin, bool paid)
{
    int32_t ns = atomic_load_explicit(&spin->ns, memory_order_relaxed);

    ns = paid ? 2 * ns : ns / 2;
    ns = ns > SPIN_LEAST_NS ? ns : SPIN_LEAST_NS;
    atomic_store_explicit(&spin->ns, ns < spin_max_ns ? ns : spin_max_ns, memory_order_relaxed);
}

/* Not locked: returns when there is something in the ring, a kick, or the deadline. */
static void look(rpc_peer *peer, rpc_waiter *w, int64_t deadline_ns)
{
    int32_t budget = spin_budget(&peer->spin);
    int64_t until = 0;

    for (int i = 0; budget > 0; i++) {
        if (rpc_peer_is_active(peer) || atomic_load(&w->kicked) == 1) {
            spin_learn(&peer->spin, true);
            return;
        }
        TRII_PAUSE();
        if (i % CLOCK_EVERY != CLOCK_EVERY - 1)
            continue;
        if (until == 0)
            until = trii_now_ns() + budget;
        else if (trii_now_ns() >= until)
            break;
    }
    spin_learn(&peer->spin, false);
    atomic_store(&peer->in->sleep, RPC_BY_FUTEX);
    if (!rpc_peer_is_active(peer) && atomic_load(&w->kicked) != 1)
        trii_futex_wait(&peer->in->sleep, RPC_BY_FUTEX, deadline_ns);
    atomic_store(&peer->in->sleep, RPC_LOOKS);
}

static void sleep_on(rpc_waiter *w, int64_t deadline_ns)
{
    int awake = 0;

    if (atomic_compare_exchange_strong(&w->kicked, &awake, 2))
        trii_futex_wait(&w->kicked, 2, deadline_ns);
    atomic_store(&w->kicked, 0);
}

static void enter(tri_rpc *rpc, rpc_waiter *w)
{
    w->chain = rpc_running != NULL && rpc_running->request != NULL ? rpc_running->request->chain
                                                                   : w->chain;
    w->next = rpc->waiters;
    rpc->waiters = w;
    if (rpc_running != NULL && rpc_running->occupies)
        rpc_executor_lend(rpc);
}

static void leave(tri_rpc *rpc, rpc_waiter *w)
{
    rpc_waiter **at = &rpc->waiters;

    while (*at != w)
        at = &(*at)->next;
    *at = w->next;
    while (w->inbox != NULL) { /* came too late for us */
        tri_rpc_request *request = w->inbox;

        w->inbox = request->next;
        request->next = NULL;
        rpc_execute(request);
    }
    if (rpc_running != NULL && rpc_running->occupies)
        rpc_executor_return(rpc);
}

static void run_inbox(rpc_waiter *w)
{
    w->busy = true;
    while (w->inbox != NULL) {
        tri_rpc_request *request = w->inbox;

        w->inbox = request->next;
        request->next = NULL;
        request->rpc->up->run(request, false, false);
    }
    w->busy = false;
}

bool rpc_wait(tri_rpc *rpc, rpc_peer *peer, bool (*is_over)(void *arg), void *arg, rpc_waiter *w,
              int64_t deadline_ns)
{
    bool over = is_over(arg), reads;
    int rounds = 0;

    if (over)
        return true;
    if (peer != NULL && peer->in == NULL)
        peer = NULL;
    w->peer = peer;
    if (peer != NULL)
        rpc_peer_use(peer);
    enter(rpc, w);
    while (!over) {
        atomic_store(&w->kicked, 0);
        if (w->inbox != NULL) {
            run_inbox(w);
        } else {
            if (rounds++ > 0 && trii_now_ns() >= deadline_ns)
                break;
            reads = peer != NULL && peer->state == RPC_PEER_UP && !peer->reading && !peer->hung;
            if (reads) {
                peer->reading = true;
                atomic_store(&peer->in->sleep, RPC_LOOKS);
            }
            if (reads && !rpc_peer_is_active(peer)) {
                rpc_unlock(rpc);
                look(peer, w, deadline_ns);
                rpc_lock(rpc);
            } else if (!reads) {
                rpc_unlock(rpc);
                sleep_on(w, deadline_ns);
                rpc_lock(rpc);
            }
            if (reads) {
                rpc_read(peer);
                over = is_over(arg);
                w->reads = true; /* so that it does not hand over to us */
                if (over)
                    rpc_leave_ring(peer);
                else if (w->inbox != NULL)
                    rpc_stop_reading(peer);
                else
                    peer->reading = false;
                w->reads = false;
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

/* --- join ----------------------------------------------------------------- */

#define WATCHED 64 /* peers whose rings are looked at; others wake the control thread */

static int collect(tri_rpc *rpc, rpc_peer **peers)
{
    int n = 0;

    for (rpc_peer *p = rpc->peers; p != NULL && n < WATCHED; p = p->next) {
        if (p->in == NULL || p->state != RPC_PEER_UP || p->hung)
            continue;
        rpc_peer_use(p);
        p->is_watched = true;
        if (!p->reading)
            atomic_store(&p->in->sleep, RPC_LOOKS);
        peers[n++] = p;
    }
    return n;
}

static bool read_if_active(rpc_peer *p)
{
    bool paid = false;

    if (!rpc_peer_is_active(p))
        return false;
    rpc_lock(p->rpc);
    if (!p->reading && p->state == RPC_PEER_UP && !p->hung) {
        p->reading = true;
        rpc_read(p);
        p->reading = false;
        paid = true;
    }
    rpc_unlock(p->rpc);
    return paid;
}

/* Looks at all rings for as long as something comes. */
static void look_at_all(tri_rpc *rpc, rpc_waiter *w)
{
    static rpc_spin spin;
    rpc_peer *peers[WATCHED];
    int32_t budget = spin_budget(&spin);
    int64_t until = trii_now_ns() + budget;
    bool paid = false;
    int n = budget > 0 ? collect(rpc, peers) : 0;

    if (n == 0)
        return;
    rpc_unlock(rpc);
    for (int i = 1; atomic_load(&w->kicked) != 1; i++) {
        bool found = false;

        for (int k = 0; k < n; k++)
            found = read_if_active(peers[k]) || found;
        if (found) {
            paid = true;
            until = trii_now_ns() + budget;
        } else if (i % CLOCK_EVERY == 0 && trii_now_ns() >= until) {
            break;
        }
        TRII_PAUSE();
    }
    spin_learn(&spin, paid);
    rpc_lock(rpc);
    for (int k = 0; k < n; k++) {
        rpc_peer *p = peers[k];

        p->is_watched = false;
        if (!p->reading) {
            p->reading = true;
            rpc_stop_reading(p);
        }
        rpc_peer_unuse(p);
    }
    rpc->last_wake_ns = 0;
}

void rpc_watch_all(tri_rpc *rpc, rpc_waiter *w, int64_t deadline_ns)
{
    if (rpc->last_wake_ns != 0)
        look_at_all(rpc, w);
    if (atomic_exchange(&w->kicked, 0) == 1)
        return;
    rpc_unlock(rpc);
    sleep_on(w, deadline_ns);
    rpc_lock(rpc);
}
