/*
 * queue_progress.c - see queue_progress.h. Written by the threads of queue_run.c, read by
 * host_run.c.
 */
#include "train/plan/queue_progress.h"

#include "os/clock.h"
#include "os/futex.h"

bool trii_queues_passed(const trii_plan *plan, int32_t e)
{
    const trii_queue_state *states = plan->queue_states;
    bool passed = true;

    for (int32_t w = plan->first_wait[e]; w < plan->first_wait[e + 1]; w++)
        passed = passed && atomic_load_explicit(&states[plan->waits[w].queue].done,
                                                memory_order_acquire) >= plan->waits[w].count;
    return passed && atomic_load_explicit(states->failed_at, memory_order_acquire) > e;
}

/* ABORTED if a queue has failed at an entry before e. */
static tri_status check_before(const trii_plan *plan, int32_t e)
{
    const trii_queue_state *states = plan->queue_states;

    if (atomic_load_explicit(states->failed_at, memory_order_acquire) <= e)
        return TRII_FAIL(TRI_ERR_ABORTED, "plan: another device's part of the step has failed");
    return TRI_OK;
}

tri_status trii_queues_check(const trii_plan *plan)
{
    return check_before(plan, plan->queues[0].reached);
}

tri_status trii_queues_wait(const trii_plan *plan, int32_t e)
{
    trii_queue_state *states = plan->queue_states;
    int now;

    for (int32_t w = plan->first_wait[e]; w < plan->first_wait[e + 1]; w++) {
        const trii_queue_wait *wait = &plan->waits[w];
        atomic_int *done = &states[wait->queue].done;

        while ((now = atomic_load_explicit(done, memory_order_acquire)) < wait->count)
            trii_futex_wait(done, now, TRII_NO_DEADLINE);
    }
    return check_before(plan, e);
}
