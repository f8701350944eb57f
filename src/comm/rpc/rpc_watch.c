/*
 * rpc_watch.c - the thread in tri_rpc_join: it has nothing else to do, so it reads the rings of all
 * workers of its host, which costs their senders less than the control thread's socket, and itself
 * no hand-over.
 */
#include "os/cpu.h"
#include "os/futex.h"
#include "comm/rpc/rpc_internal.h"

#define WATCHED 64 /* peers whose rings are looked at; others wake the control thread */
#define COMING_NS 200000

typedef struct watched {
    rpc_peer *peers[WATCHED];
    int n;
    bool coming;   /* one of them has said so */
    bool one_core; /* this process has no other */
} watched;

static void collect(tri_rpc *rpc, watched *all)
{
    trii_cpu_set cores;

    all->n = 0;
    all->coming = false;
    trii_cpu_allowed(&cores);
    all->one_core = trii_cpu_set_count(&cores) == 1;
    for (rpc_peer *p = rpc->peers; p != NULL && all->n < WATCHED; p = p->next) {
        if (p->in == NULL || p->state != RPC_PEER_UP || p->hung)
            continue;
        rpc_peer_use(p);
        p->is_watched = true;
        if (!p->reading) {
            p->is_left = 0;
            rpc_ring_stay_awake(p->in);
        }
        all->peers[all->n++] = p;
    }
}

static void hand_over(watched *all)
{
    for (int k = 0; k < all->n; k++) {
        rpc_peer *p = all->peers[k];

        p->is_watched = false;
        if (!p->reading) {
            p->reading = true;
            rpc_stop_reading(p);
        }
        rpc_peer_unuse(p);
    }
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

static bool read_all(const watched *all)
{
    bool found = false;

    for (int k = 0; k < all->n; k++)
        found = read_if_active(all->peers[k]) || found;
    return found;
}

static bool shares_core(const watched *all)
{
    bool shares = false;

    for (int k = 0; k < all->n; k++)
        shares = rpc_ring_shares_core(all->peers[k]->in, all->peers[k]->out_ring) ||
                 shares; /* and each is told where we are */
    return shares;
}

/* Locked: a thread here that answers needs our core. */
static bool is_in_the_way(const tri_rpc *rpc, const watched *all)
{
    return all->one_core && rpc->n_requests + rpc->n_beyond > 0;
}

/* Not locked. */
static bool holds_up(tri_rpc *rpc, const watched *all)
{
    bool holds;

    if (!all->one_core)
        return false;
    rpc_lock(rpc);
    holds = is_in_the_way(rpc, all);
    rpc_unlock(rpc);
    return holds;
}

/* Not locked. Reads for as long as something comes; when the last of it did, or the look began. */
static int64_t look(tri_rpc *rpc, rpc_waiter *w, watched *all, int64_t deadline_ns)
{
    int64_t began = trii_now_ns(), until = 0;
    int32_t budget = rpc_spin_budget(&rpc->joiner_spin);

    for (int i = 1; atomic_load(&w->kicked) != 1; i++) {
        if (read_all(all)) {
            if (until != 0)
                rpc_spin_paid(&rpc->joiner_spin, 0);
            until = 0;
            i = 0;
            if (trii_coarse_ns() >= deadline_ns)
                break;
            continue;
        }
        TRII_PAUSE();
        if (until == 0) { /* it is over only now, perhaps after a handler of milliseconds */
            began = trii_now_ns();
            if (holds_up(rpc, all))
                break; /* and what is coming is still to come */
            until = began + (all->coming ? COMING_NS : shares_core(all) ? 0 : budget);
            all->coming = false;
        } else if (i % RPC_CLOCK_EVERY == 0 && trii_now_ns() >= until) {
            break;
        }
    }
    return began;
}

/* Locked, and unlocked meanwhile: until a writer or a kick. */
static void sleep_on_all(tri_rpc *rpc, rpc_waiter *w, watched *all, int64_t deadline_ns)
{
    atomic_int *words[WATCHED + 1] = {&w->kicked};
    int expected[WATCHED + 1] = {2}, awake = 0;
    bool active = false;

    if (!atomic_compare_exchange_strong(&w->kicked, &awake, 2))
        return;
    for (int k = 0; k < all->n; k++) {
        rpc_peer *p = all->peers[k];

        words[1 + k] = &p->in->bell;
        expected[1 + k] = atomic_load(&p->in->bell);
        if (p->reading)
            continue; /* that thread says how, afterwards */
        atomic_store(&p->in->sleep, RPC_BY_BELL);
        active = active || rpc_peer_is_active(p);
    }
    rpc->joiner_sleeps = true;
    rpc->joiner_yields = is_in_the_way(rpc, all);
    rpc_unlock(rpc);
    if (!active)
        trii_futex_wait_many(words, expected, 1 + all->n, deadline_ns);
    rpc_lock(rpc);
    rpc->joiner_sleeps = rpc->joiner_yields = false;
    awake = 2;
    (void)atomic_compare_exchange_strong(&w->kicked, &awake, 0);
    for (int k = 0; k < all->n; k++) {
        rpc_peer *p = all->peers[k];

        if (!p->reading)
            rpc_ring_stay_awake(p->in);
        all->coming = atomic_exchange(&p->in->coming, 0) != 0 || all->coming;
    }
}

void rpc_watch_all(tri_rpc *rpc, rpc_waiter *w, int64_t deadline_ns)
{
    bool can_sleep = trii_futex_has_wait_many();
    watched all;

    collect(rpc, &all);
    while (atomic_load(&w->kicked) != 1) {
        int64_t began;
        bool shares;

        rpc_unlock(rpc);
        began = look(rpc, w, &all, deadline_ns);
        shares = shares_core(&all);
        rpc_lock(rpc);
        if (!can_sleep || atomic_load(&w->kicked) == 1)
            break;
        sleep_on_all(rpc, w, &all, deadline_ns);
        if (trii_now_ns() >= deadline_ns)
            break;
        if (!shares)
            rpc_spin_slept(&rpc->joiner_spin, trii_now_ns() - began);
    }
    hand_over(&all);
    if (!can_sleep && atomic_load(&w->kicked) != 1) {
        rpc_unlock(rpc);
        rpc_sleep_on(w, deadline_ns);
        rpc_lock(rpc);
    }
    atomic_store(&w->kicked, 0);
}
