/*
 * fault.c - waking the peers and failing together. The first cause of a failure is kept in the
 * group's trii_fault; a rank that fails publishes its cause in its block and wakes everybody, and
 * a rank that sees it there fails with the same text.
 *
 * Three witnesses see the end of a peer's process: its death mark (a thread that waits, here), its
 * socket and its pidfd (the control thread, connect.c).
 */
#include "comm/engines/shm/fault.h"

#include <stdarg.h>
#include <string.h>

#include "comm/engines/shm/call_text.h"
#include "os/unix.h"

void shm_wake_rank(shm_group *g, int rank)
{
    shm_head *head = &g->peers[rank].block->head;

    if (atomic_load(&head->sleeping) > 0) {
        atomic_fetch_add(&head->wake, 1);
        trii_futex_wake_all(&head->wake);
    }
}

void shm_wake_all(shm_group *g)
{
    for (int r = 0; r < g->size; r++)
        shm_wake_rank(g, r);
}

void shm_fail(shm_group *g, tri_status status, const char *format, ...)
{
    char text[TRII_ERR_BYTES];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    trii_fault_raise(g->fault, status, "%s", text);
}

bool shm_peer_is_well(shm_group *g, int rank)
{
    const shm_head *head = &g->peers[rank].block->head;
    tri_status status;

    if (trii_robust_futex_owner_died(atomic_load(&head->death_mark.word)) &&
        shm_peer_ended(g, rank, "has ended"))
        return false;
    if (atomic_load_explicit(&head->state, memory_order_acquire) != SHM_FAILED)
        return true;
    /* A peer's timeout may be due to our lateness: for us the group was given up. */
    status = head->status == TRI_ERR_GROUP_TIMEOUT ? TRI_ERR_ABORTED : (tri_status)head->status;
    if (head->lost_rank != 0)
        atomic_store(&g->fault->lost_rank, head->lost_rank);
    shm_fail(g, status, "%s%.*s", head->status == TRI_ERR_GROUP_TIMEOUT ? "given up: " : "",
             (int)sizeof(head->text), head->text);
    shm_abort(g);
    return false;
}

void shm_abort(void *self)
{
    shm_group *g = self;
    shm_head *head = &g->block->head;

    if (trii_fault_status(g->fault) == TRI_OK)
        return; /* another thread is just writing it, and will come here */
    if (atomic_exchange(&g->end_published, 1) == 0) {
        head->status = trii_fault_status(g->fault);
        head->lost_rank = atomic_load(&g->fault->lost_rank);
        memcpy(head->text, g->fault->text, sizeof(head->text));
        atomic_store_explicit(&head->state, SHM_FAILED, memory_order_release);
        for (int r = 0; r < g->size; r++)
            trii_unix_shutdown(g->peers[r].socket); /* wakes the peers' control threads */
    } else {
        /* Another thread is publishing: no caller gets its buffers back before the peers can see
         * why. */
        while (atomic_load_explicit(&head->state, memory_order_acquire) == SHM_ACTIVE)
            trii_thread_yield();
    }
    atomic_thread_fence(memory_order_seq_cst);
    shm_wake_all(g);
}

bool shm_peer_ended(shm_group *g, int rank, const char *how)
{
    const shm_head *head = &g->peers[rank].block->head;
    char last[240];

    if (atomic_load_explicit(&head->state, memory_order_acquire) != SHM_ACTIVE)
        return false;
    shm_describe_last(g, rank, last, sizeof(last));
    atomic_store(&g->fault->lost_rank, shm_name(g, rank) + 1);
    shm_fail(g, TRI_ERR_PEER_LOST, "rank %d (process %d) %s; its last collective: %s",
             shm_name(g, rank), (int)head->pid, how, last);
    shm_abort(g);
    return true;
}
