/*
 * cache.c - the executor: finds the plan of a segment, or makes it.
 *
 * Plans and the arena belong to a thread: no locks. All plans of a thread share one arena, since
 * only one runs at a time; it grows to the largest and its pages are touched once.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "os/pages.h"
#include "plan/plan.h"
#include "tensor/device_list.h"

#define BUCKETS 64
/* A program whose every step differs must not collect plans for ever: the cache starts again. */
#define MAX_PLANS 256

typedef struct plan_cache {
    trii_plan *buckets[BUCKETS];
    trii_plan *last; /* of the previous run: training repeats itself */
    void *arena;
    size_t arena_bytes;
    trii_plan_stats stats;
} plan_cache;

static _Thread_local plan_cache *mine;

static void clear(plan_cache *cache)
{
    for (int b = 0; b < BUCKETS; b++) {
        while (cache->buckets[b] != NULL) {
            trii_plan *plan = cache->buckets[b];

            cache->buckets[b] = plan->next;
            trii_plan_destroy(plan);
        }
    }
    cache->last = NULL;
    cache->stats.n_plans = 0;
}

static void cache_free(plan_cache *cache)
{
    if (cache == NULL)
        return;
    clear(cache);
    trii_pages_free(cache->arena, cache->arena_bytes);
    trii_free(cache);
}

void trii_plan_release(void)
{
    plan_cache *cache = mine;

    mine = NULL;
    cache_free(cache);
}

trii_plan_stats trii_plan_stats_get(void)
{
    trii_plan_stats stats = {0};

    if (mine != NULL) {
        stats = mine->stats;
        stats.arena_bytes = mine->arena_bytes;
    }
    return stats;
}

static bool matches(const trii_plan *plan, const trii_segment *segment)
{
    return plan->hash == segment->hash && plan->n_words == segment->n_words &&
           memcmp(plan->words, segment->words, segment->n_words * sizeof(uint64_t)) == 0;
}

static trii_plan *find(plan_cache *cache, const trii_segment *segment)
{
    trii_plan *plan;

    /* A loop of several segments comes around in a fixed order, but one is the common case. */
    if (cache->last != NULL && matches(cache->last, segment))
        return cache->last;
    for (plan = cache->buckets[segment->hash % BUCKETS]; plan != NULL; plan = plan->next) {
        if (matches(plan, segment))
            break;
    }
    return plan;
}

static tri_status grow_arena(plan_cache *cache, size_t bytes)
{
    void *arena;
    tri_status status;

    if (bytes <= cache->arena_bytes)
        return TRI_OK;
    status = trii_pages_alloc(bytes, &arena);
    if (status != TRI_OK)
        return status;
    trii_pages_free(cache->arena, cache->arena_bytes);
    cache->arena = arena;
    cache->arena_bytes = bytes;
    return TRI_OK;
}

static tri_status make(plan_cache *cache, const trii_step *step, const trii_segment *segment,
                       trii_plan **plan_out)
{
    trii_plan *plan, **bucket = &cache->buckets[segment->hash % BUCKETS];
    tri_status status;

    if (cache->stats.n_plans >= MAX_PLANS) {
        TRII_LOG(TRII_LOG_INFO, "plan", "%d plans in the cache: starting again", MAX_PLANS);
        clear(cache);
    }
    status = trii_plan_create(step, segment, trii_plan_device, &plan);
    if (status != TRI_OK)
        return status;
    cache->stats.misses++;
    status = grow_arena(cache, plan->arena_bytes);
    if (status != TRI_OK) {
        trii_plan_destroy(plan);
        return status;
    }
    plan->next = *bucket;
    *bucket = plan;
    cache->stats.n_plans++;
    *plan_out = plan;
    return TRI_OK;
}

static tri_status cache_run(trii_step *step, const trii_segment *segment)
{
    plan_cache *cache = mine;
    trii_plan *plan;
    tri_status status;

    if (TRII_UNLIKELY(cache == NULL)) {
        cache = trii_alloc(1, sizeof(*cache), "plan cache");
        if (cache == NULL)
            return TRI_ERR_NO_MEMORY;
        mine = cache;
    }
    plan = find(cache, segment);
    if (TRII_LIKELY(plan != NULL)) {
        cache->stats.hits++;
    } else {
        status = make(cache, step, segment, &plan);
        if (status != TRI_OK)
            return status;
    }
    cache->last = plan;
    trii_plan_device->enter(trii_device_index_of(plan->lanes[0].device));
    return trii_plan_run(plan, step, segment, cache->arena);
}

const trii_executor trii_executor_plan = {
    .name = "plan", .run = cache_run, .release = trii_plan_release};
