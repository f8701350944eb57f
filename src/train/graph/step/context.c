/*
 * context.c - the context in which a thread records: its own, or one that it has entered. What is
 * made for a context, and what is freed with it.
 */
#include <trireme/context.h>

#include "base/alloc.h"
#include "base/param.h"
#include "train/graph/step/function_guard.h"
#include "train/graph/step/recorder.h"

static _Thread_local trii_recorder *own; /* of the thread; NULL until it records */
static atomic_uint_fast64_t last_generation;
static atomic_int last_id;

/* tri_context.use */
enum { FREE, ENTERED, DOOMED }; /* DOOMED: entered, and destroyed since */

/* --- life ----------------------------------------------------------------- */

static void recorder_free(trii_recorder *r)
{
    if (r == NULL)
        return;
    trii_grads_revert(r, NULL);
    for (int32_t v = 0; v < r->step.n_values; v++)
        trii_value_release(&r->step.values[v]);
    trii_hosts_release(r);
    trii_witnesses_ended(r);
    trii_failures_clear(r);
    trii_names_clear(r);
    trii_live_forget(r);
    trii_free(r->step.values);
    trii_free(r->step.nodes);
    trii_free(r->step.in_ids);
    trii_free(r->step.seeded);
    trii_free(r->pending.key);
    trii_free(r->names.list);
    trii_free(r->pending.inputs);
    trii_free(r->pending.outputs);
    trii_free(r->regions.first);
    trii_free(r->known.at);
    trii_free(r->held.list);
    for (int32_t b = 0; b < r->blocks.made; b++)
        trii_free(r->blocks.list[b].data);
    trii_free(r->blocks.list);
    trii_free(r->changes.list);
    for (int f = 0; f < TRII_FLOORS; f++) {
        if (r->floors[f].state != NULL)
            r->floors[f].release(r->floors[f].state);
        trii_free(r->floors[f].state);
    }
    trii_free(r->failures.list);
    trii_free(r->failures.line);
    trii_free(r->failures.carried_line);
    trii_free(r);
}

static trii_recorder *recorder_create(void)
{
    trii_recorder *r = trii_alloc(1, sizeof(*r), "context");
    int64_t eager = 0, breaks = 0;
    uint64_t seeds;
    int check = -1;

    if (r == NULL)
        return NULL;
    r->table_slot = -1;
    r->pending.number = 1;
    r->max_values = (int32_t)TRII_INDEX_MASK;
    r->step.recorder = r;
    r->step.random.seed = trii_seed(&seeds);
    if (trii_param_choice(TRII_PARAM_CHECK, &check) != TRI_OK ||
        trii_param_i64(TRII_PARAM_EAGER, 0, &eager) != TRI_OK ||
        trii_param_i64(TRII_PARAM_BREAK, 0, &breaks) != TRI_OK)
        trii_step_fail(&r->step, TRI_ERR_INVALID_ARG);
    r->check = check == 0; /* the first of its choices */
    r->check_order = check == 1;
    r->eager = eager == 1;
    r->breaks = breaks == 1;
    if (trii_step_reserve(&r->step, TRII_RESERVE_NODES) != TRI_OK) {
        recorder_free(r);
        return NULL;
    }
    return r;
}

/* This thread gives up the context: frees it if it was destroyed meanwhile. */
static void give_up(trii_recorder *r)
{
    int expected = ENTERED;

    if (!atomic_compare_exchange_strong(&r->use, &expected, FREE))
        recorder_free(r);
}

/* The device modes of the current context. */
static void use_devices(void)
{
    trii_device_modes_use(
        trii_recorder_now != own && trii_recorder_now != NULL ? &trii_recorder_now->devices : NULL);
}

/* Also leaves the contexts that the thread has entered and not left. */
static void thread_ends(void *unused)
{
    (void)unused;
    while (trii_recorder_now != own) {
        trii_recorder *r = trii_recorder_now;

        trii_recorder_now = r->outer;
        use_devices();
        give_up(r);
    }
    recorder_free(own);
    own = trii_recorder_now = NULL;
}

void trii_step_release(void)
{
    trii_step_at_thread_exit(NULL, NULL);
    thread_ends(NULL);
    if (trii_executor_default->release != NULL)
        trii_executor_default->release();
}

/* The first operation of a step. */
static void step_begin(trii_recorder *r)
{
    r->active = true;
    r->known.n = 0;
    r->step.generation = atomic_fetch_add_explicit(&last_generation, 1, memory_order_relaxed) + 1;
    trii_live_announce(r);
}

trii_recorder *trii_recorder_current(void)
{
    if (trii_recorder_now == NULL) {
        own = trii_recorder_now = recorder_create();
        if (trii_recorder_now != NULL) {
            trii_recorder_now->here = trii_site_here();
            trii_step_at_thread_exit(thread_ends, &own);
        }
    }
    return trii_recorder_now;
}

static TRII_NOINLINE trii_step *step_first(void)
{
    trii_recorder *r = trii_recorder_current();

    if (r == NULL || trii_function_outside("tensors were used") != TRI_OK)
        return NULL;
    step_begin(r);
    return &r->step;
}

trii_step *trii_step_current(void)
{
    trii_recorder *r = trii_recorder_now;

    if (TRII_LIKELY(r != NULL && r->active))
        return &r->step;
    return step_first();
}

/* --- contexts of the user's ----------------------------------------------- */

tri_status tri_context_create(tri_context **context_out)
{
    trii_recorder *r;

    if (context_out == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "tri_context_create: context_out is NULL");
    r = recorder_create();
    if (r == NULL)
        return TRI_ERR_NO_MEMORY;
    r->id = atomic_fetch_add(&last_id, 1) + 1;
    r->devices.device = tri_current_device();
    *context_out = r;
    return TRI_OK;
}

tri_status tri_context_enter(tri_context *context)
{
    int expected = FREE;

    if (context == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "tri_context_enter: the context is NULL");
    if (!atomic_compare_exchange_strong(&context->use, &expected, ENTERED))
        return TRII_FAIL(TRI_ERR_STATE,
                         "tri_context_enter: context %d is entered already, by thread %lld: one "
                         "thread at a time, after the other's tri_context_leave",
                         context->id, (long long)atomic_load(&context->thread));
    atomic_store(&context->thread, trii_step_thread_id());
    trii_live_moves(context);
    context->outer = trii_recorder_now;
    context->here = trii_site_here();
    trii_recorder_now = context;
    trii_device_modes_use(&context->devices);
    trii_step_at_thread_exit(thread_ends, &own);
    return TRI_OK;
}

tri_status tri_context_leave(void)
{
    trii_recorder *r = trii_recorder_now;

    if (r == own)
        return TRII_FAIL(TRI_ERR_STATE, "tri_context_leave without tri_context_enter");
    trii_recorder_now = r->outer;
    use_devices();
    give_up(r);
    return TRI_OK;
}

void tri_context_destroy(tri_context *context)
{
    int expected = ENTERED;

    if (context == NULL)
        return;
    if (atomic_compare_exchange_strong(&context->use, &expected, DOOMED))
        return; /* the thread that has entered it frees it */
    if (expected == FREE)
        recorder_free(context);
}
