/*
 * cache.c - the executor of segments, trii_executor_plan: finds the plan of a segment by its key,
 * or has plan.c compile it, and runs it (run.c). Called by train/graph/run/segment.c through the
 * table that train/registry/train.c puts in place.
 *
 * Plans belong to the process. A run has its plan and an arena to itself: if the plan of a segment
 * is in use, a second one is compiled. Arenas go from run to run, since their pages are touched
 * only once: a program whose sequences grow used 300 arenas for 300 lengths before an arena that
 * must grow did so by a quarter, and 26 since. So a context may move from thread to thread, and
 * many contexts may run at once.
 */
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "os/forked.h"
#include "os/pages.h"
#include "os/thread.h"
#include "train/plan/plan.h"
#include "train/tensor/device_list.h"
#include "train/tensor/device_memory.h"

#define BUCKETS 256
/* plans that are kept; the one used longest ago goes first, which matters to programs whose every
 * step differs */
#define MAX_PLANS 1024
/* bytes of outputs that idle plans keep, beside those of the plan that ran last and of the plans
 * that take turns with it: 400 lengths of a sequence kept 1.3 GB without this limit, 0.4 GB with
 * it */
#define MAX_HELD_BYTES ((size_t)256 << 20)
#define TURNS 8

typedef struct arena {
    struct arena *next;
    tri_device device; /* the device whose memory it is; TRI_CPU(0) = the host's */
    void *data;
    size_t bytes;
} arena;

static struct {
    trii_mutex lock; /* guards everything below, and busy, used and next of plans */
    trii_plan *buckets[BUCKETS];
    trii_plan *last; /* the one returned last comes first: training repeats itself */
    arena *arenas;   /* idle arenas; the one returned last comes first */
    uint64_t clock;
    trii_plan_stats stats;
} cache = {.lock = TRII_MUTEX_INITIALIZER};

/* What a run has to itself. */
typedef struct lease {
    trii_plan *plan;
    arena *arena;
    /* arenas of queues whose devices have memory of their own, in the order of the queues */
    arena *own;
} lease;

/* --- under the lock ------------------------------------------------------- */

/* On a thread that has pinned the number of threads. */
static bool is_free_for(const trii_plan *plan, const trii_segment *segment, bool plain)
{
    return !plan->busy && plan->n_key == segment->n_key && plan->keeps_plain == plain &&
           plan->threads == trii_threads_asked() &&
           memcmp(plan->key, segment->key, segment->n_key * sizeof(uint64_t)) == 0;
}

static trii_plan *find(const trii_segment *segment, bool plain)
{
    trii_plan *plan = cache.last;
    uint64_t hash;

    if (plan != NULL && is_free_for(plan, segment, plain))
        return plan;
    hash = trii_plan_hash(segment);
    plan = cache.buckets[hash % BUCKETS];
    while (plan != NULL && (plan->hash != hash || !is_free_for(plan, segment, plain)))
        plan = plan->next;
    return plan;
}

static void unlink_plan(trii_plan *plan)
{
    trii_plan **at = &cache.buckets[plan->hash % BUCKETS];

    while (*at != plan)
        at = &(*at)->next;
    *at = plan->next;
    if (cache.last == plan)
        cache.last = NULL;
    cache.stats.n_plans--;
}

/* The idle plan whose outputs keep at least so many bytes and that was used longest ago; NULL =
 * there is none. */
static trii_plan *find_oldest(size_t held_bytes)
{
    trii_plan *oldest = NULL;

    for (int b = 0; b < BUCKETS; b++) {
        for (trii_plan *plan = cache.buckets[b]; plan != NULL; plan = plan->next) {
            if (!plan->busy && plan->held_bytes >= held_bytes &&
                (oldest == NULL || plan->used < oldest->used))
                oldest = plan;
        }
    }
    return oldest;
}

/* Takes it out of the list. */
static trii_plan *take_oldest(void)
{
    trii_plan *oldest = find_oldest(0);

    if (oldest != NULL)
        unlink_plan(oldest);
    return oldest;
}

/* An arena of the device's memory: the one that the plan's pointers point into already, or any
 * other. */
static arena *take_arena(tri_device device, const void *before)
{
    arena **any = NULL, **at = &cache.arenas, *taken;

    for (; *at != NULL && ((*at)->device != device || (*at)->data != before); at = &(*at)->next) {
        if (any == NULL && (*at)->device == device)
            any = at;
    }
    if (*at == NULL)
        at = any;
    if (at == NULL)
        return NULL;
    taken = *at;
    *at = taken->next;
    taken->next = NULL;
    return taken;
}

static void give_arenas(arena *list)
{
    while (list != NULL) {
        arena *next = list->next;

        list->next = cache.arenas;
        cache.arenas = list;
        list = next;
    }
}

/* Of all plans; what a run adds counts when the run has ended. */
static size_t held_bytes(void)
{
    size_t held = 0;

    for (int b = 0; b < BUCKETS; b++) {
        for (const trii_plan *plan = cache.buckets[b]; plan != NULL; plan = plan->next)
            held += plan->busy ? 0 : plan->held_bytes;
    }
    return held;
}

/* The plan has made new storages for its outputs. If every run had another length, each plan would
 * keep some that nobody will ever use again. */
static TRII_NOINLINE void bound_held(trii_plan *newest)
{
    size_t held = held_bytes();
    trii_plan *oldest = NULL;

    newest->holds_more = false;
    while (held > MAX_HELD_BYTES + newest->held_bytes && (oldest = find_oldest(1)) != NULL &&
           oldest->used + TURNS <= cache.clock) {
        held -= oldest->held_bytes;
        trii_plan_forget_outputs(oldest);
    }
}

/* --- runs ----------------------------------------------------------------- */

static void give_back(lease *l)
{
    trii_mutex_lock(&cache.lock);
    l->plan->busy = false;
    l->plan->used = ++cache.clock;
    cache.last = l->plan;
    cache.stats.copied_bytes = l->plan->copied_bytes - l->plan->spared_bytes;
    give_arenas(l->own);
    give_arenas(l->arena);
    if (TRII_UNLIKELY(l->plan->holds_more))
        bound_held(l->plan);
    trii_mutex_unlock(&cache.lock);
}

static tri_status arena_alloc(tri_device device, size_t bytes, void **data_out)
{
    if (trii_is_host(device))
        return trii_pages_alloc(bytes, data_out);
    return trii_memory_of(device)->alloc(trii_device_index_of(device), bytes, data_out);
}

static void arena_free(const arena *a)
{
    if (trii_is_host(a->device))
        trii_pages_free(a->data, a->bytes);
    else
        trii_memory_of(a->device)->free(trii_device_index_of(a->device), a->data, a->bytes);
}

/* Makes *a if it is NULL, and large enough. One that must grow grows by a quarter at least: a
 * program whose sequences become longer and longer would otherwise touch every page again at each
 * length, and pages that nobody touches cost nothing. */
static tri_status fit_arena(arena **a, tri_device device, size_t bytes)
{
    void *data;
    tri_status status;

    if (*a == NULL) {
        *a = trii_alloc(1, sizeof(**a), "arena");
        if (*a == NULL)
            return TRI_ERR_NO_MEMORY;
        (*a)->device = device;
    }
    if (TRII_LIKELY(bytes <= (*a)->bytes))
        return TRI_OK;
    if (trii_is_host(device) && bytes < (*a)->bytes + (*a)->bytes / 4)
        bytes = (*a)->bytes + (*a)->bytes / 4;
    status = arena_alloc(device, bytes, &data);
    if (status != TRI_OK)
        return status;
    arena_free(*a);
    trii_mutex_lock(&cache.lock);
    cache.stats.arena_bytes += bytes - (*a)->bytes;
    cache.stats.arenas_made++;
    trii_mutex_unlock(&cache.lock);
    (*a)->data = data;
    (*a)->bytes = bytes;
    return TRI_OK;
}

/* The arenas of queues whose devices have memory of their own. */
static TRII_NOINLINE tri_status fit_own_arenas(lease *l)
{
    arena **at = &l->own;
    tri_status status = TRI_OK;

    for (int32_t i = 0; i < l->plan->n_queues && status == TRI_OK; i++) {
        trii_plan_queue *queue = &l->plan->queues[i];

        if (queue->arena_bytes == 0)
            continue;
        trii_mutex_lock(&cache.lock);
        *at = take_arena(queue->device, queue->arena);
        trii_mutex_unlock(&cache.lock);
        status = fit_arena(at, queue->device, queue->arena_bytes);
        if (status == TRI_OK && queue->arena != (*at)->data)
            trii_plan_bind_arena(l->plan, i, (*at)->data);
        if (*at != NULL)
            at = &(*at)->next;
    }
    return status;
}

static tri_status fit_arenas(lease *l)
{
    tri_status status = fit_arena(&l->arena, TRI_CPU(0), l->plan->arena_bytes);

    if (TRII_UNLIKELY(status == TRI_OK && l->plan->arena != l->arena->data))
        trii_plan_bind_arena(l->plan, -1, l->arena->data);
    if (TRII_UNLIKELY(status == TRI_OK && l->plan->own_arenas))
        status = fit_own_arenas(l);
    return status;
}

static TRII_NOINLINE tri_status make(const trii_step *step, const trii_segment *segment, bool plain,
                                     lease *l)
{
    trii_plan **bucket, *old = NULL;
    tri_status status = trii_plan_create(step, segment, &trii_plan_device, plain, &l->plan);

    if (status != TRI_OK)
        return status;
    bucket = &cache.buckets[l->plan->hash % BUCKETS];
    l->plan->busy = true;
    l->plan->threads = trii_threads_asked();
    trii_forked_watch();
    trii_mutex_lock(&cache.lock);
    if (cache.stats.n_plans >= MAX_PLANS)
        old = take_oldest();
    l->plan->next = *bucket;
    *bucket = l->plan;
    cache.stats.n_plans++;
    cache.stats.misses++;
    l->arena = take_arena(TRI_CPU(0), l->plan->arena);
    trii_mutex_unlock(&cache.lock);
    trii_plan_destroy(old);
    return TRI_OK;
}

static tri_status take(const trii_step *step, const trii_segment *segment, bool plain, lease *l)
{
    tri_status status = TRI_OK;

    *l = (lease){NULL, NULL, NULL};
    trii_mutex_lock(&cache.lock);
    l->plan = find(segment, plain);
    if (TRII_LIKELY(l->plan != NULL)) {
        l->plan->busy = true;
        cache.stats.hits++;
        l->arena = take_arena(TRI_CPU(0), l->plan->arena);
    }
    trii_mutex_unlock(&cache.lock);
    if (TRII_UNLIKELY(l->plan == NULL))
        status = make(step, segment, plain, l);
    if (status != TRI_OK)
        return status;
    status = fit_arenas(l);
    if (TRII_UNLIKELY(status != TRI_OK))
        give_back(l);
    return status;
}

/* Another context is reading the weights, so their layout cannot change now: compile a plan that
 * leaves it alone. */
static TRII_NOINLINE tri_status adopt(trii_step *step, const trii_segment *segment, lease *l)
{
    bool done = false;
    tri_status status = trii_plan_adopt(l->plan, step, segment, &done);

    if (status == TRI_OK && done)
        return TRI_OK;
    give_back(l);
    return status == TRI_OK ? take(step, segment, true, l) : status;
}

/* The threads that compute stayed with the parent, and so did the owners of our locks. */
static TRII_NOINLINE tri_status refuse_forked(void)
{
    return TRII_FAIL(
        TRI_ERR_STATE,
        "this process is a child of fork() and lacks the threads with which its parent "
        "computes: start processes that compute with tri_spawn, without "
        "TRI_SPAWN_COPY");
}

static tri_status run(trii_step *step, const trii_segment *segment)
{
    lease l;
    tri_status status = take(step, segment, false, &l);

    if (status == TRI_OK && TRII_UNLIKELY(l.plan->n_adoptions > 0))
        status = adopt(step, segment, &l);
    if (status != TRI_OK)
        return status;
    status = trii_plan_run(l.plan, step, segment);
    give_back(&l);
    return status;
}

static tri_status cache_run(trii_step *step, const trii_segment *segment)
{
    int before;
    tri_status status;

    if (TRII_UNLIKELY(atomic_load_explicit(&trii_forked, memory_order_relaxed)))
        return refuse_forked();
    before = trii_threads_pin(trii_threads_asked());
    status = run(step, segment);
    trii_threads_pin(before);
    return status;
}

/* --- the whole ------------------------------------------------------------ */

void trii_plan_release(void)
{
    trii_plan *plan;
    arena *arenas;

    trii_mutex_lock(&cache.lock);
    arenas = cache.arenas;
    cache.arenas = NULL;
    for (arena *a = arenas; a != NULL; a = a->next)
        cache.stats.arena_bytes -= a->bytes;
    trii_mutex_unlock(&cache.lock);
    while (arenas != NULL) {
        arena *next = arenas->next;

        arena_free(arenas);
        trii_free(arenas);
        arenas = next;
    }
    do {
        trii_mutex_lock(&cache.lock);
        plan = take_oldest();
        trii_mutex_unlock(&cache.lock);
        trii_plan_destroy(plan);
    } while (plan != NULL);
}

trii_plan_stats trii_plan_stats_get(void)
{
    trii_plan_stats stats;

    trii_mutex_lock(&cache.lock);
    stats = cache.stats;
    stats.held_bytes = held_bytes();
    trii_mutex_unlock(&cache.lock);
    stats.packed_bytes = trii_packed_bytes();
    stats.compiled = trii_compiled_all();
    return stats;
}

static size_t cache_bytes(void)
{
    const trii_plan_stats stats = trii_plan_stats_get();

    return stats.arena_bytes + stats.held_bytes + stats.packed_bytes;
}

const trii_executor trii_executor_plan = {
    .name = "plan", .run = cache_run, .release = trii_plan_release, .bytes = cache_bytes};
