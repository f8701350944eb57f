/*
 * claim.c - a persistent tensor is part of one step at a time: its mark says of which, and which of
 * the step's values it holds now. Another thread's step that uses it meanwhile is refused, since
 * neither would see what the other writes. Also who is recording what, for the words of errors.
 */
#include "graph/recorder.h"

#define LIVE_STEPS 256
#define BETWEEN UINT64_MAX

/* The steps that threads are recording. Written by their threads. */
static struct {
    atomic_uint_fast64_t generation; /* 0 = none; BETWEEN: the next step is not begun */
    atomic_int_fast64_t thread;
    _Atomic(const char *) file; /* of the step's first call; NULL = unknown */
    atomic_int line;
} live[LIVE_STEPS];

void trii_live_announce(trii_recorder *r)
{
    trii_site site = trii_site_last();

    for (int i = 0; i < LIVE_STEPS && r->table_slot < 0; i++) {
        uint_fast64_t expected = 0;

        if (atomic_compare_exchange_strong(&live[i].generation, &expected, r->step.generation)) {
            r->table_slot = i;
            atomic_store_explicit(&live[i].thread, trii_step_thread_id(), memory_order_relaxed);
        }
    }
    if (r->table_slot < 0)
        return;
    atomic_store_explicit(&live[r->table_slot].file, site.file, memory_order_relaxed);
    atomic_store_explicit(&live[r->table_slot].line, site.line, memory_order_relaxed);
    atomic_store_explicit(&live[r->table_slot].generation, r->step.generation,
                          memory_order_relaxed);
}

void trii_live_end(trii_recorder *r)
{
    if (r->table_slot >= 0)
        atomic_store_explicit(&live[r->table_slot].generation, BETWEEN, memory_order_relaxed);
}

void trii_live_forget(trii_recorder *r)
{
    if (r->table_slot >= 0)
        atomic_store(&live[r->table_slot].generation, 0);
    r->table_slot = -1;
}

static int find(uint64_t generation)
{
    for (int i = 0; i < LIVE_STEPS; i++) {
        if (atomic_load_explicit(&live[i].generation, memory_order_relaxed) == generation)
            return i;
    }
    return -1;
}

bool trii_live_is(uint64_t generation)
{
    return find(generation) >= 0;
}

static void place(char *text, size_t size, const char *file, int line)
{
    if (file != NULL)
        snprintf(text, size, " at %s:%d", file, line);
    else
        text[0] = '\0';
}

tri_status trii_claim_refuse(uint64_t generation)
{
    int i = find(generation);
    trii_site site = trii_site_last();
    char here[TRII_ERR_BYTES / 4], there[TRII_ERR_BYTES / 4];
    long long other = 0;

    place(here, sizeof(here), site.file, site.line);
    there[0] = '\0';
    if (i >= 0) {
        other = (long long)atomic_load_explicit(&live[i].thread, memory_order_relaxed);
        place(there, sizeof(there), atomic_load_explicit(&live[i].file, memory_order_relaxed),
              atomic_load_explicit(&live[i].line, memory_order_relaxed));
    }
    return TRII_FAIL(
        TRI_ERR_STATE,
        "thread %lld%s uses a tensor that is part of the step of thread %lld, begun%s: "
        "one thread at a time, after the other's tri_step_end, or a copy for each",
        (long long)trii_step_thread_id(), here, other, there);
}

tri_status trii_claim(trii_step *step, tri_tensor *tensor, trii_vid id)
{
    uint64_t now = step->generation << TRII_INDEX_BITS | (uint64_t)id;
    uint_fast64_t mark = 0;

    /* Acquire: what the step before wrote is seen by this one. */
    if (TRII_LIKELY(atomic_compare_exchange_strong_explicit(
            &tensor->mark, &mark, now, memory_order_acquire, memory_order_relaxed)))
        return TRI_OK;
    return trii_claim_refuse(mark >> TRII_INDEX_BITS);
}

void trii_unclaim(const trii_step *step, tri_tensor *tensor)
{
    if (trii_is_known(step, tensor))
        atomic_store_explicit(&tensor->mark, 0, memory_order_release);
}

tri_status trii_known_value(const trii_step *step, tri_tensor *tensor, trii_vid *value_out)
{
    uint64_t mark = atomic_load_explicit(&tensor->mark, memory_order_acquire);

    *value_out = TRII_NO_VALUE;
    if (mark == 0)
        return TRI_OK;
    if (mark >> TRII_INDEX_BITS != step->generation)
        return trii_claim_refuse(mark >> TRII_INDEX_BITS);
    *value_out = (trii_vid)(mark & TRII_INDEX_MASK);
    return TRI_OK;
}
