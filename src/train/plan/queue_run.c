/*
 * queue_run.c - see queue_run.h. Called by run.c.
 *
 * The threads of devices belong to the process: they are made when they are first needed, sleep
 * while they have nothing to do, and stay. A run has its threads to itself: ranks that are threads
 * of one process wait for each other in the middle of their runs, so a shared thread would be a
 * deadlock.
 */
#include "train/plan/queue_run.h"

#include <limits.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "os/clock.h"
#include "os/futex.h"
#include "os/process.h"
#include "os/thread.h"
#include "train/plan/queue_progress.h"
#include "train/plan/run_entry.h"
#include "train/tensor/device_list.h"

#define POLL_NS 50000 /* progresses communication that is under way */

typedef struct queue_run queue_run;

struct queue_run {
    trii_plan *plan;
    const trii_step *step;
    const trii_segment *segment;
    atomic_int failed_at; /* the first entry that has failed; later ones need not run */
    atomic_int n_busy;    /* queues of other threads */
    trii_queue_state *states;
};

/* --- one queue ------------------------------------------------------------ */

static void fail(trii_queue_state *own, int32_t e, tri_status status)
{
    int first = atomic_load(&own->run->failed_at);

    own->failed = e;
    own->status = status;
    snprintf(own->line, sizeof(own->line), "%s", tri_last_error());
    while (e < first && !atomic_compare_exchange_weak(&own->run->failed_at, &first, e))
        ;
}

static void announce(trii_queue_state *own, int done)
{
    atomic_store_explicit(&own->done, done, memory_order_release);
    trii_futex_wake_all(&own->done);
}

/* Waits until the thread of the other queue has come that far, or has ended; progresses
 * communication meanwhile. */
static tri_status wait_for(const queue_run *r, const trii_queue_wait *wait, int32_t *n_running)
{
    atomic_int *done = &r->states[wait->queue].done;
    tri_status status = TRI_OK;
    int now;

    while ((now = atomic_load_explicit(done, memory_order_acquire)) < wait->count &&
           status == TRI_OK) {
        if (*n_running > 0)
            status = trii_hosts_poll(r->plan, r->step, r->segment, n_running);
        trii_futex_wait(done, now, *n_running > 0 ? trii_now_ns() + POLL_NS : TRII_NO_DEADLINE);
    }
    return status;
}

/* The events that entry e waits for: their queues have come that far. */
static tri_status wait_for_events(const trii_plan *plan, const trii_plan_queue *queue, int32_t e)
{
    tri_status status = TRI_OK;

    for (int32_t w = plan->first_wait[e]; w < plan->first_wait[e + 1] && status == TRI_OK; w++) {
        const trii_queue_wait *wait = &plan->waits[w];

        if (wait->event >= 0)
            status = queue->ops->wait(queue->queue, plan->queues[wait->queue].queue, wait->event);
    }
    return status;
}

/* Lets others go on that wait for entry e, the n-th of this queue. */
static tri_status announce_entry(trii_queue_state *own, const trii_plan_queue *queue, int32_t e,
                                 int n)
{
    const trii_plan *plan = own->run->plan;
    tri_status status = TRI_OK;

    if (!plan->signals[e])
        return TRI_OK;
    if (plan->events[e] >= 0)
        status = queue->ops->record(queue->queue, plan->events[e]);
    if (plan->completes[e] && queue->ops->synchronise != NULL)
        status = trii_queue_synchronise(queue, status);
    if (status == TRI_OK)
        announce(own, n);
    return status;
}

static void walk(trii_queue_state *own)
{
    queue_run *r = own->run;
    trii_plan *plan = r->plan;
    trii_plan_queue *queue = &plan->queues[own->queue];
    trii_run run = {plan->f, plan->random, queue->queue};
    int32_t n_running = 0;
    tri_status status = trii_queue_begin(queue);

    queue->reached = -1;
    if (status != TRI_OK)
        fail(own, -1, status);
    for (int32_t i = 0; i < queue->n_entries && status == TRI_OK; i++) {
        int32_t e = queue->entries[i];

        for (int32_t w = plan->first_wait[e];
             w < plan->first_wait[e + 1] && plan->entries[e].kind != TRII_ENTRY_START &&
             status == TRI_OK;
             w++)
            status = wait_for(r, &plan->waits[w], &n_running);
        if (atomic_load_explicit(&r->failed_at, memory_order_acquire) < e)
            break;
        queue->reached = e;
        if (status == TRI_OK && queue->ops->wait != NULL)
            status = wait_for_events(plan, queue, e);
        if (status == TRI_OK)
            status = trii_run_entry(plan, e, r->step, r->segment, &run, &n_running);
        if (status == TRI_OK)
            status = announce_entry(own, queue, e, i + 1);
        if (status != TRI_OK)
            fail(own, e, status);
    }
    if (queue->ops->synchronise != NULL) {
        tri_status end = trii_queue_synchronise(queue, status);

        if (status == TRI_OK && end != TRI_OK)
            fail(own, queue->reached, end);
    }
    announce(own, INT_MAX);
}

/* --- the threads of devices ----------------------------------------------- */

typedef struct executor {
    tri_device device;
    trii_thread thread;
    trii_cond asked;
    trii_queue_state *job; /* NULL: it is free */
    struct executor *next;
} executor;

static trii_mutex mutex = TRII_MUTEX_INITIALIZER; /* guards the list and all jobs */
static executor *executors;
static atomic_int made_in; /* the process whose threads they are; 0 = there are none */

static void execute(void *arg)
{
    executor *own = arg;

    for (;;) {
        trii_queue_state *job;
        queue_run *run;

        trii_mutex_lock(&mutex);
        while (own->job == NULL)
            trii_cond_wait(&own->asked, &mutex);
        job = own->job;
        trii_mutex_unlock(&mutex);
        run = job->run;
        trii_threads_pin(run->plan->threads);
        walk(job);
        trii_mutex_lock(&mutex);
        own->job = NULL;
        trii_mutex_unlock(&mutex);
        atomic_fetch_sub_explicit(&run->n_busy, 1, memory_order_acq_rel);
        trii_futex_wake_all(&run->n_busy); /* the run may be freed from here on */
    }
}

/* A free thread. The mutex is held. */
static tri_status find_executor(tri_device device, executor **executor_out)
{
    executor *it = executors;
    char name[16];
    tri_status status;

    while (it != NULL && (it->device != device || it->job != NULL))
        it = it->next;
    if (it == NULL) {
        it = trii_alloc(1, sizeof(*it), "thread of a device");
        if (it == NULL)
            return TRI_ERR_NO_MEMORY;
        it->device = device;
        trii_cond_init(&it->asked);
        snprintf(name, sizeof(name), "tri %s", tri_device_text(device));
        status = trii_thread_start(&it->thread, name, execute, it);
        if (status != TRI_OK) {
            trii_cond_fini(&it->asked);
            trii_free(it);
            return status;
        }
        trii_thread_detach(&it->thread);
        it->next = executors;
        executors = it;
    }
    *executor_out = it;
    return TRI_OK;
}

/* Gives each queue but the first a thread, or none of them. */
static tri_status hand_out(queue_run *r)
{
    executor *of[TRII_PLAN_QUEUES];
    tri_status status = TRI_OK;

    int here = trii_process_id(), made = atomic_load(&made_in);

    if (made != 0 && made != here)
        return TRII_FAIL(TRI_ERR_STATE,
                         "this process is a child of fork() and lacks the threads of %s and other "
                         "devices: start processes that compute with tri_spawn, without "
                         "TRI_SPAWN_COPY",
                         tri_device_text(r->plan->queues[1].device));
    trii_mutex_lock(&mutex);
    atomic_store(&made_in, here);
    for (int32_t l = 1; l < r->plan->n_queues && status == TRI_OK; l++)
        status = find_executor(r->plan->queues[l].device, &of[l]);
    for (int32_t l = 1; l < r->plan->n_queues && status == TRI_OK; l++) {
        of[l]->job = &r->states[l];
        trii_cond_signal(&of[l]->asked);
    }
    trii_mutex_unlock(&mutex);
    return status;
}

tri_status trii_queues_run(trii_plan *plan, const trii_step *step, const trii_segment *segment)
{
    size_t n = (size_t)plan->n_queues;
    queue_run r = {.plan = plan, .step = step, .segment = segment};
    trii_queue_state *states = plan->queue_states;
    const trii_queue_state *first = NULL;
    tri_status status;
    int busy;

    r.states = states;
    atomic_init(&r.failed_at, INT_MAX);
    atomic_init(&r.n_busy, plan->n_queues - 1);
    for (int32_t l = 0; l < plan->n_queues; l++) {
        states[l].failed = INT32_MAX;
        states[l].run = &r;
        states[l].failed_at = &r.failed_at;
        states[l].queue = l;
        atomic_store_explicit(&states[l].done, 0, memory_order_relaxed);
        plan->queues[l].reached = -1;
    }
    status = hand_out(&r);
    if (status == TRI_OK) {
        walk(&states[0]);
        while ((busy = atomic_load_explicit(&r.n_busy, memory_order_acquire)) > 0)
            trii_futex_wait(&r.n_busy, busy, TRII_NO_DEADLINE);
        for (size_t l = 0; l < n; l++) {
            if (states[l].failed < INT32_MAX && (first == NULL || states[l].failed < first->failed))
                first = &states[l];
        }
        if (first != NULL) {
            status = first->status;
            trii_err_set("%s", first->line);
        }
    }
    return status;
}
