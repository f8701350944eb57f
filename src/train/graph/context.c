/*
 * context.c - which context records: the thread's own, or one that the thread has entered. Also its
 * random state, and what is freed with it.
 */
#include <trireme/context.h>

#include "base/alloc.h"
#include "base/param.h"
#include "train/graph/ops/function_guard.h"
#include "train/graph/recorder.h"

static _Thread_local trii_recorder *own;  /* of the thread; NULL until it records */
static _Thread_local trii_recorder *mine; /* the current one: entered last, else `own` */
static atomic_uint_fast64_t last_generation;
static atomic_uint_fast64_t seed_now, seed_count; /* for contexts made from now on */
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
    trii_failures_clear(r);
    trii_names_clear(r);
    trii_live_forget(r);
    trii_free(r->step.values);
    trii_free(r->step.nodes);
    trii_free(r->step.in_ids);
    trii_free(r->step.seeded);
    trii_free(r->key);
    trii_free(r->names);
    trii_free(r->inputs);
    trii_free(r->outputs);
    trii_free(r->scratch);
    trii_free(r->roots);
    trii_free(r->regions);
    trii_free(r->known);
    trii_free(r->held);
    trii_free(r->copies);
    for (int32_t b = 0; b < r->made_blocks; b++)
        trii_free(r->blocks[b].data);
    trii_free(r->blocks);
    trii_free(r->found);
    trii_free(r->found_grads);
    trii_free(r->changes);
    trii_free(r->aside);
    trii_free(r->failures);
    trii_free(r->failed_line);
    trii_free(r->carried_line);
    trii_free(r);
}

static trii_recorder *recorder_create(void)
{
    trii_recorder *r = trii_alloc(1, sizeof(*r), "context");
    int64_t eager = 0, breaks = 0;
    int check = -1;

    if (r == NULL)
        return NULL;
    r->table_slot = -1;
    r->segment = 1;
    r->max_values = (int32_t)TRII_INDEX_MASK;
    r->step.recorder = r;
    r->step.random.seed = atomic_load_explicit(&seed_now, memory_order_relaxed);
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
    trii_device_modes_use(mine != own && mine != NULL ? &mine->devices : NULL);
}

/* Also leaves the contexts that the thread has entered and not left. */
static void thread_ends(void *unused)
{
    (void)unused;
    while (mine != own) {
        trii_recorder *r = mine;

        mine = r->outer;
        use_devices();
        give_up(r);
    }
    recorder_free(own);
    own = mine = NULL;
}

void trii_step_release(void)
{
    trii_step_at_thread_exit(NULL, NULL);
    thread_ends(NULL);
    if (trii_executor_default->release != NULL)
        trii_executor_default->release();
}

/* --- the current one ------------------------------------------------------ */

/* The first operation of a step. */
static void step_begin(trii_recorder *r)
{
    r->active = true;
    r->n_known = 0;
    r->step.generation = atomic_fetch_add_explicit(&last_generation, 1, memory_order_relaxed) + 1;
    trii_live_announce(r);
}

/* Makes the thread's own context if there is no other; NULL when memory is out. */
static trii_recorder *current(void)
{
    if (mine == NULL) {
        own = mine = recorder_create();
        if (mine != NULL) {
            mine->here = trii_site_here();
            trii_step_at_thread_exit(thread_ends, &own);
        }
    }
    return mine;
}

static TRII_NOINLINE trii_step *step_first(void)
{
    trii_recorder *r = current();

    if (r == NULL || trii_function_outside("tensors were used") != TRI_OK)
        return NULL;
    step_begin(r);
    return &r->step;
}

trii_recorder *trii_recorder_mine(void)
{
    return mine;
}

trii_step *trii_step_current(void)
{
    trii_recorder *r = mine;

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
    context->outer = mine;
    context->here = trii_site_here();
    mine = context;
    trii_device_modes_use(&context->devices);
    trii_step_at_thread_exit(thread_ends, &own);
    return TRI_OK;
}

tri_status tri_context_leave(void)
{
    trii_recorder *r = mine;

    if (r == own)
        return TRII_FAIL(TRI_ERR_STATE, "tri_context_leave without tri_context_enter");
    mine = r->outer;
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

/* --- random numbers ------------------------------------------------------- */

/* Nodes recorded before keep the old state: they may not have run yet, or may run again for
 * backward. */
static tri_status put_aside(trii_step *step)
{
    void *array = step->seeded;
    tri_status status = trii_grow(&array, &step->cap_seeded, step->n_seeded + 1,
                                  sizeof(*step->seeded), "seeds of a step");

    step->seeded = array;
    if (status == TRI_OK)
        step->seeded[step->n_seeded++] = step->random;
    return status;
}

void tri_manual_seed(uint64_t seed)
{
    trii_step *step = mine != NULL ? &mine->step : NULL;

    atomic_store(&seed_now, seed);
    atomic_fetch_add(&seed_count, 1);
    if (step == NULL)
        return;
    if (step->random_count > 0 && put_aside(step) != TRI_OK)
        trii_step_fail(step, TRI_ERR_NO_MEMORY);
    step->random.seed = seed;
    step->random.step = 0;
    step->random_count = 0;
}

uint64_t trii_seed(uint64_t *count_out)
{
    *count_out = atomic_load(&seed_count);
    return atomic_load(&seed_now);
}

tri_rng tri_rng_state(void)
{
    uint64_t count;

    return mine != NULL ? mine->step.random : (tri_rng){.seed = trii_seed(&count)};
}

void tri_rng_state_set(const tri_rng *state)
{
    trii_recorder *r = current();

    if (r == NULL)
        return;
    if (state != NULL)
        r->step.random = *state;
    else
        trii_step_fail(trii_step_current(),
                       TRII_FAIL(TRI_ERR_INVALID_ARG, "tri_rng_state_set: the state is NULL"));
}

trii_random_place trii_random_take(trii_step *step, uint32_t n)
{
    const trii_random_place place = {.first = step->random_count, .seeded = step->n_seeded};

    step->random_count += n;
    return place;
}

tri_rng trii_random_from(const trii_step *step, const trii_random_place *place)
{
    return place->seeded < step->n_seeded ? step->seeded[place->seeded] : step->random;
}

void trii_random_continue(trii_step *step, const tri_rng *state, uint32_t first)
{
    step->random = *state;
    step->random_count = first;
}

trii_modes trii_step_modes(const trii_step *step)
{
    const trii_recorder *r = step->recorder;

    return (trii_modes){.no_grad = r->no_grad > 0, .autocast = trii_autocast_to(&r->autocast)};
}

/* The counter has room for 16 bits of the stream; the rest goes into the key. */
trii_random trii_step_random(const trii_step *step, const trii_node *node)
{
    const tri_rng *state =
        node->random_seeded < step->n_seeded ? &step->seeded[node->random_seeded] : &step->random;
    uint64_t high = state->stream >> 16;

    high = (high ^ high >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    high = (high ^ high >> 27) * UINT64_C(0x94d049bb133111eb);
    return (trii_random){.seed = state->seed ^ high ^ high >> 31,
                         .step = (uint64_t)state->step,
                         .stream = (uint32_t)(state->stream & 0xffff),
                         .index = node->random_index};
}

void trii_random_stream_set(uint64_t stream)
{
    trii_recorder *r = current();

    if (r != NULL)
        r->step.random.stream = stream;
}
