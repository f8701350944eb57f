/*
 * shm.c - the engine's table: the group calls its functions (comm/group/engine.h). Here operations
 * are queued, run and waited for; shm.h lists the files that do the rest.
 *
 * No thread of its own works for a group: a thread that posts or waits advances all of the rank's
 * operations as far as they can go now.
 *
 * Waiting. A rank that has nothing to do spins for about as long as a sleep would cost, then
 * sleeps on its own futex word. Where ranks outnumber cores, it yields its core meanwhile, as long
 * as that pays (spin.h); where they do not, a rank that finds a peer's last wait on its own core
 * sleeps at once, since the peer may need the core to do what we wait for. A publisher fences, then
 * checks for sleepers; a sleeper registers, then checks once more for what was published.
 * Sleeps are bounded, so that even a lost wake costs no more than milliseconds.
 */
/* build: hot */
#include "comm/engines/shm/shm.h"

#include "base/ranks_text.h"
#include "comm/engines/shm/arena.h"
#include "comm/engines/shm/call_text.h"
#include "comm/engines/shm/connect.h"
#include "comm/engines/shm/fault.h"
#include "comm/engines/shm/pair.h"
#include "comm/engines/shm/paths.h"
#include "comm/engines/shm/slot.h"
#include "os/clock.h"
#include "os/process.h"
#include "os/socket.h"

#define SLEEP_NS (50 * TRII_NS_PER_MS)
#define WATCHED 8 /* death marks that a sleeper waits for too; the control threads see all */
#define CHECK_NS (TRII_NS_PER_MS / 2) /* between two checks of all peers without a sleep */
#define SPINS_PER_LOOK 32             /* between two readings of the clock */

/* --- running -------------------------------------------------------------- */

/* A collective is over for this rank. Guard: lock. */
static void complete_op(shm_group *g, trii_op *op)
{
    g->completed_ahead |= 1u << (op->call.seq - g->completed - 1);
    while (g->completed_ahead & 1u) {
        g->completed_ahead >>= 1;
        g->completed++;
    }
    atomic_store_explicit(&g->block->head.completed.value, g->completed, memory_order_release);
    /* We write there next, and the peers' caches hold it: fetch it while the caller works. */
    TRII_PREFETCH_WRITE(&shm_slot_of(g, g->rank, g->completed + 1)->arrival);
    trii_op_finish(op, TRI_OK, NULL);
}

/* All have arrived. Guard: lock. */
static bool advance_on_path(shm_group *g, trii_op *op)
{
    switch (shm_step_of(op)->path) {
    case SHM_PATH_INLINE:
    case SHM_PATH_ONE_SHOT:
        shm_slot_take(g, op);
        return true;
    case SHM_PATH_DIRECT:
        return shm_direct_advance(g, op);
    case SHM_PATH_CMA:
        return shm_cma_advance(g, op);
    case SHM_PATH_CMA_SUM:
        return shm_cma_sum_advance(g, op);
    default:
        return shm_staged_advance(g, op);
    }
}

/* Does whatever can be done for the collectives. True if something was. Guard: lock. */
static bool advance_queue(shm_group *g)
{
    bool blocked = false; /* not all ranks have arrived: nor have they in any later operation */
    bool did = false;

    for (trii_op **at = &g->queue; *at != NULL;) {
        trii_op *op = *at;
        shm_step *step = shm_step_of(op);

        if (step->phase == SHM_QUEUED) {
            if (!shm_slot_is_free(g, op->call.seq))
                return did;
            shm_slot_arrive(g, op);
            did = true;
        }
        if (step->phase == SHM_ARRIVED && !blocked) {
            blocked = !shm_slot_all_arrived(g, op);
            if (!blocked) {
                shm_slot_choose_path(g, op);
                if (step->path == SHM_PATH_STAGED)
                    shm_staged_begin(g, op);
                if (step->path > SHM_PATH_ONE_SHOT)
                    shm_wake_peers(g); /* so that they work while we do, not after */
            }
        }
        if (step->phase >= SHM_RUNNING && step->phase < SHM_DONE)
            did |= advance_on_path(g, op);
        if (step->phase != SHM_DONE) {
            at = &op->next;
            continue;
        }
        *at = op->next;
        if (*at == NULL)
            g->queue_tail = at;
        complete_op(g, op);
        did = true;
    }
    return did;
}

/* The same for messages too. Guard: lock. */
static bool advance_all(shm_group *g)
{
    bool did = advance_queue(g);

    if (TRII_UNLIKELY(g->n_pair_ops > 0))
        did |= shm_pair_advance(g);
    return did;
}

/* The group has failed: every operation ends with that, except those in which all ranks have done
 * their part already, since a peer may fail right after them. Guard: lock. */
static void fail_all_ops(shm_group *g)
{
    tri_status status = trii_fault_status(g->fault);
    trii_op *op;

    while (advance_all(g))
        ;
    /* Before our callers get their buffers back: so a peer that reads one sees it afterwards. */
    shm_abort(g);
    op = g->queue;
    g->queue = NULL;
    g->queue_tail = &g->queue;
    while (op != NULL) {
        trii_op *next = op->next;

        trii_op_finish(op, status, g->fault->text);
        op = next;
    }
    shm_pair_fail_all(g, status, g->fault->text);
}

static bool peer_has_left(const shm_group *g, int rank)
{
    return atomic_load_explicit(&g->peers[rank].block->head.state, memory_order_acquire) ==
           SHM_LEFT;
}

/* A receive from any rank, if no rank is left to send to it. */
static trii_op *any_recv_without_sender(shm_group *g)
{
    trii_tagged *one;

    for (int r = 0; r < g->size && g->any_recvs.count > 0; r++) {
        if (r != g->rank && !peer_has_left(g, r))
            return NULL;
    }
    shm_pair_fail_no_sender(g);
    one = trii_tags_walk(&g->any_recvs, NULL);
    return one != NULL ? trii_waiting_op(one) : NULL;
}

/* A rank that left will never arrive: if an operation needs it, the group fails. Guard: lock. */
static void check_left_peers(shm_group *g)
{
    for (int r = 0; r < g->size; r++) {
        trii_op *needs;
        char what[200];

        if (!peer_has_left(g, r))
            continue;
        needs = shm_pair_needing(&g->peers[r]);
        /* All that it did, it published before it left: check once more. */
        if (advance_all(g))
            return;
        for (trii_op *op = g->queue; op != NULL; op = op->next) {
            if (shm_step_of(op)->phase == SHM_ARRIVED &&
                atomic_load(&shm_slot_of(g, r, op->call.seq)->arrival.seq) < op->call.seq) {
                needs = op;
                break;
            }
        }
        if (needs == NULL)
            needs = any_recv_without_sender(g);
        if (needs == NULL)
            continue;
        trii_op_describe(needs, what, sizeof(what));
        shm_fail(g, TRI_ERR_PEER_LOST, "rank %d left the group; rank %d still waits for it in %s",
                 shm_name(g, r), shm_name(g, g->rank), what);
        return;
    }
}

/* --- waiting -------------------------------------------------------------- */

/* Sleeps until another rank wakes us or a peer's process ends. */
static void wait_for_peers(shm_group *g, int seen, int64_t until_ns)
{
    atomic_int *words[1 + WATCHED] = {&g->block->head.wake};
    int expected[1 + WATCHED] = {seen}, n = 1;

    /* The next ranks in the ring, so that every rank of many is watched by some. */
    for (int i = 1; i < g->size && n <= WATCHED; i++) {
        shm_head *head = &g->peers[(g->rank + i) % g->size].block->head;
        int value = atomic_load(&head->death_mark.word);

        if (trii_robust_futex_owner_died(value)) {
            if (atomic_load(&head->state) == SHM_ACTIVE)
                return;
            continue;
        }
        words[n] = &head->death_mark.word;
        expected[n++] = value;
    }
    trii_futex_wait_many(words, expected, n, until_ns);
}

/* Sleeps until another rank publishes something, at most until until_ns. Guard: lock, which is
 * released meanwhile. */
static void sleep_until_woken(shm_group *g, int64_t until_ns)
{
    shm_head *head = &g->block->head;
    atomic_int *sleepers = &g->peers[0].block->head.sleepers;
    int64_t bound = trii_now_ns() + SLEEP_NS;
    int seen;

    atomic_fetch_add(&head->sleeping, 1);
    atomic_fetch_add(sleepers, 1);
    seen = atomic_load(&head->wake);
    atomic_thread_fence(memory_order_seq_cst);
    if (!advance_all(g) && !shm_pair_poll_all(g) && trii_fault_status(g->fault) == TRI_OK &&
        !shm_check_peers(g)) {
        check_left_peers(g);
        if (trii_fault_status(g->fault) == TRI_OK && !g->must_wake) {
            trii_lock_drop(&g->lock);
            wait_for_peers(g, seen, until_ns < bound ? until_ns : bound);
            trii_lock_take(&g->lock);
            shm_check_peers(g);
        }
    }
    atomic_fetch_sub(sleepers, 1);
    atomic_fetch_sub(&head->sleeping, 1);
}

/* Whether a peer last waited, or woke somebody, on the core that we are on: there they can only
 * take turns, until the system moves one of them. */
static bool shares_core(shm_group *g)
{
    int core = shm_say_core(g);

    for (int r = 0; r < g->size && core >= 0; r++) {
        if (r != g->rank &&
            atomic_load_explicit(&g->peers[r].block->head.core, memory_order_relaxed) == core)
            return true;
    }
    return false;
}

/* Looks until something was done (true) or the time is used up. Guard: lock. */
static bool spin_once(shm_group *g)
{
    int64_t end_ns = 0;

    for (int n = 1;; n++) {
        if (advance_all(g))
            return true;
        if (n % SPINS_PER_LOOK == 0) {
            int64_t now;

            shm_wake_peers(g);
            if (trii_fault_status(g->fault) != TRI_OK)
                return false;
            now = trii_now_ns();
            end_ns = end_ns == 0 ? now + g->spin.max_ns : end_ns;
            if (now >= end_ns || shares_core(g))
                return false;
        }
        if (n > SPINS_PER_LOOK)
            TRII_PAUSE();
    }
}

/* The same where ranks outnumber cores: the core goes to the next that can run after each look.
 * budget_ns becomes 0 if somebody else had it. Guard: lock. */
static bool yield_once(shm_group *g, int64_t *budget_ns)
{
    int64_t now, end_ns;

    if (advance_all(g))
        return true;
    if (*budget_ns == 0)
        return false;
    now = trii_now_ns();
    end_ns = now + *budget_ns;
    do {
        int64_t left_ns = now;

        shm_wake_peers(g);
        if (trii_fault_status(g->fault) != TRI_OK)
            return false;
        trii_thread_yield();
        now = trii_now_ns();
        if (shm_spin_lost_core(&g->spin, now - left_ns))
            *budget_ns = 0;
        if (advance_all(g))
            return true;
    } while (*budget_ns != 0 && now < end_ns);
    return false;
}

/* Looks until op is finished or looking no longer pays. Guard: lock. */
static void spin_on_op(shm_group *g, trii_op *op)
{
    int64_t budget_ns = g->crowded ? shm_spin_budget(&g->spin) : 0;

    while (trii_op_status(op) == TRI_INPROGRESS && trii_fault_status(g->fault) == TRI_OK) {
        bool came = g->crowded ? yield_once(g, &budget_ns) : spin_once(g);

        if (budget_ns != 0)
            shm_spin_learn(&g->spin, came);
        if (!came)
            break;
    }
}

/* Wakes the peers for what we published; ends everything if the group failed. Guard: lock. */
static void publish_progress(shm_group *g)
{
    shm_wake_peers(g);
    if (TRII_UNLIKELY(trii_fault_status(g->fault) != TRI_OK))
        fail_all_ops(g);
    /* Threads of this rank may be asleep for operations that are finished now. */
    if (TRII_UNLIKELY(atomic_load(&g->block->head.sleeping) > 0))
        shm_wake_rank(g, g->rank);
}

/* --- the engine's functions ----------------------------------------------- */

static void enqueue_op(shm_group *g, trii_op *op)
{
    if (trii_kind_in(op->call.kind, TRII_KINDS_PAIR)) {
        shm_pair_submit(g, op);
        return;
    }
    *g->queue_tail = op;
    g->queue_tail = &op->next;
}

static tri_status shm_submit(void *self, trii_op *op, bool waits)
{
    shm_group *g = self;

    trii_lock_take(&g->lock);
    enqueue_op(g, op);
    if (waits)
        spin_on_op(g, op);
    else if (trii_fault_status(g->fault) == TRI_OK)
        advance_all(g);
    publish_progress(g);
    trii_lock_drop(&g->lock);
    return TRI_OK;
}

/* Whether peers have died or left. Guard: lock. */
static void check_now_and_then(shm_group *g)
{
    if (trii_now_ns() - g->checked_ns < CHECK_NS)
        return;
    if (!shm_check_peers(g))
        check_left_peers(g);
    g->checked_ns = trii_now_ns();
}

static void shm_progress(void *self, trii_op *op, int64_t until_ns)
{
    shm_group *g = self;

    trii_lock_take(&g->lock);
    if (until_ns == 0) {
        if (trii_fault_status(g->fault) == TRI_OK && !advance_all(g))
            (void)shm_pair_poll_all(g);
        if (trii_op_status(op) == TRI_INPROGRESS)
            check_now_and_then(g);
    }
    while (until_ns != 0 && trii_op_status(op) == TRI_INPROGRESS &&
           trii_fault_status(g->fault) == TRI_OK) {
        spin_on_op(g, op);
        shm_wake_peers(g);
        if (trii_op_status(op) != TRI_INPROGRESS || trii_fault_status(g->fault) != TRI_OK)
            break;
        if (trii_now_ns() >= until_ns) {
            check_now_and_then(g); /* the caller may come back for ever, and never sleep here */
            break;
        }
        sleep_until_woken(g, until_ns);
    }
    publish_progress(g);
    trii_lock_drop(&g->lock);
}

/* Ranks that have not arrived in the call or, if `arrived`, that have but are not through it. */
static int find_missing_ranks(const shm_group *g, const trii_op *op, bool arrived, int *ranks)
{
    uint64_t seq = op->call.seq;
    int n = 0;

    for (int r = 0; r < g->size; r++) {
        bool there = atomic_load(&shm_slot_of(g, r, seq)->arrival.seq) >= seq;

        if (r != g->rank && there == arrived &&
            atomic_load(&g->peers[r].block->head.completed.value) < seq)
            ranks[n++] = r;
    }
    return n;
}

/* Names those that have not arrived, if there are any: the others wait for them as we do. */
static void shm_describe_wait(void *self, trii_op *op, char *text, size_t size)
{
    shm_group *g = self;
    int ranks[TRII_HOST_MAX_RANKS];
    bool arrived = false;
    size_t used = 0;
    int n;

    if (trii_kind_in(op->call.kind, TRII_KINDS_PAIR)) {
        shm_pair_describe(g, op, text, size);
        return;
    }
    n = find_missing_ranks(g, op, false, ranks);
    if (n == 0) {
        arrived = true;
        n = find_missing_ranks(g, op, true, ranks);
    }
    if (n == 0) {
        snprintf(text, size, "no rank: every rank has finished");
        return;
    }
    if (n > 1) { /* the numbers of all, as what follows may not fit */
        int names[TRII_HOST_MAX_RANKS];

        for (int i = 0; i < n; i++)
            names[i] = shm_name(g, ranks[i]);
        used = trii_ranks_text(names, n, text, size);
        used += (size_t)snprintf(text + used, size - used, ": ");
    }
    for (int i = 0; i < n && used < size; i++) {
        char last[240];
        int name = shm_name(g, ranks[i]);
        bool stopped = trii_process_is_stopped(g->peers[ranks[i]].block->head.pid);

        shm_describe_last(g, ranks[i], last, sizeof(last));
        used +=
            (size_t)snprintf(text + used, size - used, "%srank %d (%s%s: %s)", i > 0 ? ", " : "",
                             name, stopped ? "stopped; " : "",
                             arrived ? "in the call, not through" : "its last collective", last);
    }
}

/* The extents only grow, and each is the same on all ranks. */
static void shm_share_arena(void *self, const void *other)
{
    ((shm_group *)self)->arena = other;
}

static trii_loss shm_loss(void *self, int rank)
{
    const shm_group *g = self;
    const shm_peer *peer = &g->peers[rank];
    const shm_head *head = &peer->block->head;

    return trii_robust_futex_owner_died(atomic_load(&head->death_mark.word)) ||
                   atomic_load_explicit(&head->state, memory_order_acquire) == SHM_LEFT ||
                   (peer->pidfd >= 0 && trii_socket_wait(peer->pidfd, TRII_READABLE, 0) == TRI_OK)
               ? TRII_LOSS_ENDED
               : TRII_LOSS_NONE;
}

static bool shm_cancel_recv(void *self, trii_op *op)
{
    shm_group *g = self;
    bool found;

    trii_lock_take(&g->lock);
    found = shm_pair_cancel(g, op);
    trii_lock_drop(&g->lock);
    return found;
}

static void shm_leave(void *self)
{
    shm_group *g = self;
    bool unfinished;

    trii_lock_take(&g->lock);
    unfinished = g->queue != NULL || g->n_pair_ops > 0;
    if (!unfinished && atomic_exchange(&g->end_published, 1) == 0)
        atomic_store_explicit(&g->block->head.state, SHM_LEFT, memory_order_release);
    shm_fail(g, TRI_ERR_ABORTED, "rank %d left the group", shm_name(g, g->rank));
    fail_all_ops(g); /* publishes a failure if there was work left */
    trii_lock_drop(&g->lock);
}

static void shm_destroy(void *self)
{
    shm_leave(self);
    shm_release(self);
}

/* A closed socket looks like the end of the peer; its data do not go through it. */
static void shm_disconnect(void *self, uint32_t draw, bool half)
{
    shm_group *g = self;
    int r;

    if (g->size < 2)
        return;
    r = (g->rank + 1 + (int)(draw % (uint32_t)(g->size - 1))) % g->size;
    trii_socket_sever(g->peers[r].socket, half);
}

const trii_engine trii_engine_shm = {
    .abi = TRII_ENGINE_ABI,
    .size = sizeof(trii_engine),
    .name = "shm",
    .kinds = TRII_KINDS_COLLECTIVE | TRII_KINDS_PAIR,
    .to_self = true,
    .create = shm_create,
    .alloc = shm_arena_alloc,
    .free = shm_arena_free,
    .submit = shm_submit,
    .progress = shm_progress,
    .describe_wait = shm_describe_wait,
    .abort = shm_abort,
    .destroy = shm_destroy,
    .leave = shm_leave,
    .disconnect = shm_disconnect,
    .share_arena = shm_share_arena,
    .loss = shm_loss,
    .cancel_recv = shm_cancel_recv,
};
