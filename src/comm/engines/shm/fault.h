/*
 * fault.h - waking the peers, and failing together.
 */
#ifndef TRII_SHM_FAULT_H
#define TRII_SHM_FAULT_H

#include "comm/engines/shm/shm_group.h"
#include "os/cpu.h"

void shm_wake_rank(shm_group *g, int rank);
/* Wakes the threads that sleep. */
void shm_wake_all(shm_group *g);
/* Tells the peers on which core we are, and returns it; -1: unknown. Guard: lock. */
static inline int shm_say_core(shm_group *g)
{
    atomic_int *said = &g->block->head.core;
    int core = trii_cpu_current();

    if (atomic_load_explicit(said, memory_order_relaxed) != core)
        atomic_store_explicit(said, core, memory_order_relaxed);
    return core;
}

/* Makes sleepers see what we published since the last time. Guard: lock. */
static inline void shm_wake_peers(shm_group *g)
{
    if (!g->must_wake)
        return;
    g->must_wake = false;
    atomic_thread_fence(memory_order_seq_cst);
    if (TRII_UNLIKELY(
            atomic_load_explicit(&g->peers[0].block->head.sleepers, memory_order_relaxed) != 0)) {
        (void)shm_say_core(g); /* so that nobody sleeps again for where we were before */
        shm_wake_all(g);
    }
}

/* Fails the group with a cause that we found, unless it has failed before. The thread that holds
 * the lock publishes it (shm_abort). */
void shm_fail(shm_group *g, tri_status status, const char *format, ...) TRII_PRINTF(3, 4);
/* False: the peer has failed or ended, and so have we now, with its reason. Any thread. */
bool shm_peer_is_well(shm_group *g, int rank);
/* Whether a peer has failed or ended: then so have we, with its reason. Any thread. */
static inline bool shm_check_peers(shm_group *g)
{
    /* Callers have read memory that a failed peer may write to again: those reads come first. */
    atomic_thread_fence(memory_order_acquire);
    for (int r = 0; r < g->size; r++) {
        const shm_head *head = &g->peers[r].block->head;
        bool ended = trii_robust_futex_owner_died(atomic_load(&head->death_mark.word));
        bool failed = atomic_load_explicit(&head->state, memory_order_acquire) == SHM_FAILED;

        if (TRII_UNLIKELY(ended || failed) && r != g->rank && !shm_peer_is_well(g, r))
            return true;
    }
    return false;
}
/* The group has failed: publishes that and ends local waits. Any thread. */
void shm_abort(void *self);
/* A peer's process has ended: unless it left or failed before, the group fails, with what the
 * peer did last. False: it had left or failed. Any thread. */
bool shm_peer_ended(shm_group *g, int rank, const char *how);

#endif
