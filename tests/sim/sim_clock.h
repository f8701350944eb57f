/*
 * sim_clock.h - virtual time for hundreds of threads in one process: one of them runs, all others
 * wait for a moment or a notification, and when the one that runs begins to wait, time jumps to the
 * next moment at which anybody has something to do. So a run is decided by its seed alone, whatever
 * the scheduler of the machine does. raft's fixture is the model.
 *
 * A test calls sim_begin, starts what it wants with sim_time in the place of the real one, lets
 * time pass with sim_sleep_ms and ends with sim_end once all threads are joined.
 */
#ifndef TRII_SIM_CLOCK_H
#define TRII_SIM_CLOCK_H

#include <stdlib.h>
#include <string.h>

#include "launch/rendezvous/rdzv_time.h"
#include "testing/check.h"

typedef struct sim_task {
    int64_t wake_ns;
    uint64_t order; /* among equal moments */
    int heap_at;    /* -1: it waits without a deadline, or runs */
    const void *channels[2];
    bool notified, ended;
    trii_cond turn;
    const trii_thread *thread; /* by which it is joined; NULL: the test's own */
    void (*run)(void *arg);
    void *arg;
} sim_task;

enum { SIM_MAX_TASKS = 4096 };

static struct {
    trii_mutex mutex;
    int64_t now_ns;
    uint64_t orders, seed, random, switches;
    sim_task *current, *tasks[SIM_MAX_TASKS], *heap[SIM_MAX_TASKS];
    int n_tasks, n_heap;
} sim;

/* --- the seed decides ----------------------------------------------------- */

static inline uint64_t sim_random(uint64_t below)
{
    sim.random ^= sim.random << 13;
    sim.random ^= sim.random >> 7;
    sim.random ^= sim.random << 17;
    return sim.random % below;
}

/* --- which task is next: a heap by moment and order ----------------------- */

static inline bool sim_is_before(const sim_task *a, const sim_task *b)
{
    return a->wake_ns != b->wake_ns ? a->wake_ns < b->wake_ns : a->order < b->order;
}

static inline void sim_heap_put(int at, sim_task *task)
{
    sim.heap[at] = task;
    task->heap_at = at;
}

static inline void sim_heap_fix(int at)
{
    sim_task *task = sim.heap[at];

    for (; at > 0 && sim_is_before(task, sim.heap[(at - 1) / 2]); at = (at - 1) / 2)
        sim_heap_put(at, sim.heap[(at - 1) / 2]);
    for (;;) {
        int child = 2 * at + 1;

        if (child + 1 < sim.n_heap && sim_is_before(sim.heap[child + 1], sim.heap[child]))
            child++;
        if (child >= sim.n_heap || !sim_is_before(sim.heap[child], task))
            break;
        sim_heap_put(at, sim.heap[child]);
        at = child;
    }
    sim_heap_put(at, task);
}

/* The task continues at that moment. */
static inline void sim_schedule(sim_task *task, int64_t wake_ns)
{
    task->wake_ns = wake_ns;
    task->order = sim.orders++;
    if (task->heap_at < 0)
        sim_heap_put(sim.n_heap++, task);
    sim_heap_fix(task->heap_at);
}

static inline sim_task *sim_take_next(void)
{
    sim_task *next = sim.heap[0], *last;

    if (sim.n_heap == 0) {
        fprintf(stderr, "sim: seed %llu: everybody waits for ever\n", (unsigned long long)sim.seed);
        abort();
    }
    last = sim.heap[--sim.n_heap];
    if (last != next) {
        sim_heap_put(0, last);
        sim_heap_fix(0);
    }
    next->heap_at = -1;
    if (next->wake_ns > sim.now_ns)
        sim.now_ns = next->wake_ns;
    return next;
}

/* --- waiting -------------------------------------------------------------- */

/* Held: sim.mutex. Returns when it is the task's turn. */
static inline void sim_pass_turn(sim_task *task)
{
    sim_task *next = sim_take_next();

    sim.current = next;
    if (next == task)
        return;
    sim.switches++;
    trii_cond_signal(&next->turn);
    while (!task->ended && sim.current != task)
        trii_cond_wait(&task->turn, &sim.mutex);
}

/* Until the deadline, then false, or somebody notifies one of the channels. */
static inline bool sim_wait(const void *channel, const void *other, int64_t deadline_ns)
{
    sim_task *task;
    bool notified;

    trii_mutex_lock(&sim.mutex);
    task = sim.current;
    task->channels[0] = channel;
    task->channels[1] = other;
    task->notified = false;
    if (deadline_ns != TRII_NO_DEADLINE)
        sim_schedule(task, deadline_ns > sim.now_ns ? deadline_ns : sim.now_ns);
    sim_pass_turn(task);
    task->channels[0] = task->channels[1] = NULL;
    notified = task->notified;
    trii_mutex_unlock(&sim.mutex);
    return notified;
}

static inline void sim_notify(const void *channel)
{
    trii_mutex_lock(&sim.mutex);
    for (int i = 0; i < sim.n_tasks; i++) {
        sim_task *task = sim.tasks[i];

        if (task->notified || (task->channels[0] != channel && task->channels[1] != channel))
            continue;
        task->notified = true;
        sim_schedule(task, sim.now_ns);
    }
    trii_mutex_unlock(&sim.mutex);
}

/* --- in the place of clocks and threads ----------------------------------- */

static inline int64_t sim_now(void)
{
    return sim.now_ns; /* only the task that runs asks, and only waiting lets it pass */
}

static inline void sim_sleep_ms(int64_t ms)
{
    sim_wait(NULL, NULL, sim.now_ns + ms * TRII_NS_PER_MS);
}

static inline bool sim_wait_until(trii_cond *cond, trii_mutex *mutex, int64_t deadline_ns)
{
    bool notified;

    trii_mutex_unlock(mutex);
    notified = sim_wait(cond, NULL, deadline_ns);
    trii_mutex_lock(mutex);
    return notified;
}

static inline void sim_notify_cond(trii_cond *cond)
{
    sim_notify(cond);
}

static inline void sim_task_main(void *arg)
{
    sim_task *task = arg;

    trii_mutex_lock(&sim.mutex);
    while (sim.current != task)
        trii_cond_wait(&task->turn, &sim.mutex);
    trii_mutex_unlock(&sim.mutex);
    task->run(task->arg);
    sim_notify(task);
    trii_mutex_lock(&sim.mutex);
    task->ended = true;
    sim_pass_turn(task);
    trii_mutex_unlock(&sim.mutex);
}

static inline sim_task *sim_task_create(const trii_thread *thread, void (*run)(void *), void *arg)
{
    sim_task *task = calloc(1, sizeof(*task));

    if (task == NULL || sim.n_tasks == SIM_MAX_TASKS)
        abort();
    trii_cond_init(&task->turn);
    task->thread = thread;
    task->run = run;
    task->arg = arg;
    task->heap_at = -1;
    sim.tasks[sim.n_tasks++] = task;
    return task;
}

static inline tri_status sim_start(trii_thread *thread, const char *name, void (*run)(void *),
                                   void *arg)
{
    sim_task *task;

    trii_mutex_lock(&sim.mutex);
    task = sim_task_create(thread, run, arg);
    sim_schedule(task, sim.now_ns);
    trii_mutex_unlock(&sim.mutex);
    return trii_thread_start(thread, name, sim_task_main, task);
}

static inline void sim_join(trii_thread *thread)
{
    int at = 0;
    sim_task *task;

    while (sim.tasks[at]->thread != thread)
        at++;
    task = sim.tasks[at];
    while (!task->ended)
        sim_wait(task, NULL, sim.now_ns + TRII_NS_PER_MS);
    trii_thread_join(thread);
    trii_mutex_lock(&sim.mutex);
    memmove(&sim.tasks[at], &sim.tasks[at + 1], (size_t)(--sim.n_tasks - at) * sizeof(*sim.tasks));
    trii_mutex_unlock(&sim.mutex);
    trii_cond_fini(&task->turn);
    free(task);
}

static const trii_rdzv_time sim_time = {.now_ns = sim_now,
                                        .wall_ns = sim_now,
                                        .wait_until = sim_wait_until,
                                        .notify = sim_notify_cond,
                                        .start = sim_start,
                                        .join = sim_join};

static inline void sim_begin(uint64_t seed)
{
    memset(&sim, 0, sizeof(sim));
    trii_mutex_init(&sim.mutex);
    sim.seed = seed;
    sim.random = seed * 0x9E3779B97F4A7C15u + 1;
    sim.now_ns = TRII_NS_PER_S;
    sim.current = sim_task_create(NULL, NULL, NULL);
}

static inline void sim_end(void)
{
    assert_int_equal(sim.n_tasks, 1);
    trii_cond_fini(&sim.tasks[0]->turn);
    free(sim.tasks[0]);
    trii_mutex_fini(&sim.mutex);
}

#endif
