/*
 * any_order.h - runs plans over several cpu devices on one thread, in an order of their entries
 * that their queues could come to if some were quick and others slow. What the plan forgets to wait
 * for then gives wrong results every time, whatever the machine does. Tests only.
 */
#ifndef TEST_ANY_ORDER_H
#define TEST_ANY_ORDER_H

#include <string.h>

#include "base/alloc.h"
#include "train/plan/plan.h"
#include "testing/check.h"

/* Which order: queues by their rank in a permutation, each as far as it can go before the next one,
 * and communication as early as it can be (even numbers) or as late; from ANY_ORDER_RANDOM on at
 * random. */
static int any_order_number;
#define ANY_ORDER_RANDOM 12
#define ANY_ORDERS 24
/* Of the plans with several queues that have run. */
static int any_order_runs;

typedef struct any_order {
    trii_plan *plan;
    int32_t at[TRII_PLAN_QUEUES]; /* the next entry of the queue */
    int32_t *order, n;
    bool *placed; /* [entry] */
    uint32_t seed;
} any_order;

/* Whether what the entry waits for in other queues is complete, as far as they are. */
static inline bool any_order_passed(const any_order *o, int32_t e)
{
    const trii_plan *plan = o->plan;

    for (int32_t w = plan->first_wait[e]; w < plan->first_wait[e + 1]; w++) {
        if (o->at[plan->waits[w].queue] < plan->waits[w].count)
            return false;
    }
    return true;
}

static inline void any_order_place(any_order *o, int32_t e)
{
    o->placed[e] = true;
    o->order[o->n++] = e;
}

/* Whether all communication that it needs has been started. */
static inline bool any_order_has_needs(const any_order *o, const trii_plan_host *host)
{
    for (int32_t k = 0; k < host->n_needs; k++) {
        if (!o->placed[o->plan->hosts[host->needs[k]].start])
            return false;
    }
    return true;
}

/* Communication that a queue has gone past without starting it, since it lacks something. */
static inline bool any_order_start(any_order *o)
{
    bool any = false;

    for (int32_t h = 0; h < o->plan->n_hosts; h++) {
        int32_t e = o->plan->hosts[h].start;

        /* its queue is the first one */
        for (int32_t i = 0; i < o->at[0] && !o->placed[e]; i++) {
            if (o->plan->queues[0].entries[i] == e && any_order_passed(o, e) &&
                any_order_has_needs(o, &o->plan->hosts[h])) {
                any_order_place(o, e);
                any = true;
            }
        }
    }
    return any;
}

/* One entry of the queue, if it may run. */
static inline bool any_order_step(any_order *o, int32_t l)
{
    const trii_plan_queue *queue = &o->plan->queues[l];
    const trii_entry *entry;
    int32_t e;

    if (l >= o->plan->n_queues || o->at[l] == queue->n_entries)
        return false;
    e = queue->entries[o->at[l]];
    entry = &o->plan->entries[e];
    if (entry->kind == TRII_ENTRY_START) {
        o->at[l]++; /* which holds up nobody */
        return true;
    }
    if (!any_order_passed(o, e) ||
        (entry->kind == TRII_ENTRY_WAIT && !o->placed[o->plan->hosts[entry->host].start]))
        return false;
    any_order_place(o, e);
    o->at[l]++;
    return true;
}

static inline void any_order_find(any_order *o)
{
    static const int32_t permutations[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                               {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};

    while (o->n < o->plan->n_entries) {
        bool any = any_order_number % 2 == 0 && any_order_start(o);

        for (int k = 0; k < 3 && !any && any_order_number < ANY_ORDER_RANDOM; k++)
            any = any_order_step(o, permutations[any_order_number / 2][k]);
        if (!any && any_order_number >= ANY_ORDER_RANDOM) {
            o->seed = o->seed * 1664525u + 1013904223u;
            any = any_order_step(o, (int32_t)(o->seed >> 16) % o->plan->n_queues);
        }
        for (int32_t l = 0; l < o->plan->n_queues && !any; l++)
            any = any_order_step(o, l);
        if (!any)
            any = any_order_start(o);
        if (!any)
            fail_msg("queues that wait for each other");
    }
}

/* Kernels are made for the threads of their device. */
typedef struct any_order_kernel {
    trii_kernel base; /* first */
    const trii_kernel *inner;
    const trii_plan_queue *queue;
} any_order_kernel;

static inline tri_status any_order_kernel_run(const trii_kernel *kernel, void *const *args,
                                              const trii_run *run)
{
    const any_order_kernel *own = (const any_order_kernel *)(const void *)kernel;

    CHECK_OK(own->queue->ops->begin(own->queue->queue));
    return own->inner->run(own->inner, args, run);
}

/* The plan becomes one of one queue. */
static inline void any_order_rewrite(any_order *o)
{
    trii_plan *plan = o->plan;
    size_t n = (size_t)plan->n_entries;
    trii_entry *entries = trii_pool_alloc(&plan->pool, n, sizeof(*entries));
    any_order_kernel *kernels = trii_pool_alloc(&plan->pool, n, sizeof(*kernels));
    int32_t *place = trii_pool_alloc(&plan->pool, n, sizeof(*place));

    assert_true(entries != NULL && kernels != NULL && place != NULL);
    for (int32_t l = 0; l < plan->n_queues; l++) {
        for (int32_t i = 0; i < plan->queues[l].n_entries; i++) {
            any_order_kernel *kernel = &kernels[plan->queues[l].entries[i]];
            trii_entry *entry = &plan->entries[plan->queues[l].entries[i]];

            if (entry->kernel == NULL)
                continue;
            *kernel = (any_order_kernel){*entry->kernel, entry->kernel, &plan->queues[l]};
            kernel->base.run = any_order_kernel_run;
            entry->kernel = &kernel->base;
        }
    }
    for (int32_t k = 0; k < plan->n_entries; k++) {
        place[o->order[k]] = k;
        entries[k] = plan->entries[o->order[k]];
    }
    for (int32_t h = 0; h < plan->n_hosts; h++) {
        plan->hosts[h].start = place[plan->hosts[h].start];
        plan->hosts[h].at_once = false;
    }
    for (int32_t i = 0; i < plan->outputs.n; i++) {
        if (plan->output[i].first < plan->n_entries)
            plan->output[i].first = place[plan->output[i].first];
        plan->output[i].queue = 0;
    }
    plan->entries = entries;
    plan->n_queues = 1;
}

static inline tri_status any_order_run(trii_step *step, const trii_segment *segment)
{
    any_order o = {.seed = (uint32_t)any_order_number * 7919};
    void *arena;
    tri_status status = trii_plan_create(step, segment, &trii_plan_device, true, &o.plan);

    if (status != TRI_OK)
        return status;
    if (o.plan->n_queues == 1) {
        trii_plan_destroy(o.plan);
        return trii_executor_plan.run(step, segment);
    }
    assert_in_range(o.plan->n_queues, 2, 3);
    any_order_runs++;
    o.order = trii_pool_alloc(&o.plan->pool, (size_t)o.plan->n_entries, sizeof(*o.order));
    o.placed = trii_pool_alloc(&o.plan->pool, (size_t)o.plan->n_entries, sizeof(*o.placed));
    assert_true(o.order != NULL && o.placed != NULL);
    any_order_find(&o);
    any_order_rewrite(&o);
    arena = trii_alloc_aligned(64, o.plan->arena_bytes, "arena");
    assert_non_null(arena);
    memset(arena, 0x7b, o.plan->arena_bytes);
    trii_plan_bind_arena(o.plan, -1, arena);
    status = trii_plan_run(o.plan, step, segment);
    trii_plan_destroy(o.plan);
    trii_free(arena);
    return status;
}

static const trii_executor any_order_executor = {.name = "any order", .run = any_order_run};

#endif
