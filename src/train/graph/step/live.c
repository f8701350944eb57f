/*
 * live.c - which contexts are recording, and the errors of contexts that conflict with each other,
 * which name both (their threads and where their steps began).
 */
#include "train/graph/step/recorder.h"

#define LIVE_STEPS 256
#define BETWEEN UINT64_MAX

/* The steps that are being recorded. Each written by the thread that records it. */
static struct {
    atomic_uint_fast64_t generation; /* 0 = none; BETWEEN: the next step is not begun */
    atomic_int_fast64_t thread;
    _Atomic(const char *) file; /* of the step's first call; NULL = unknown */
    atomic_int line;
    atomic_int context; /* 0 = the thread's own */
} live[LIVE_STEPS];

void trii_live_announce(trii_recorder *r)
{
    trii_site site = trii_site_last();

    for (int i = 0; i < LIVE_STEPS && r->table_slot < 0; i++) {
        uint_fast64_t expected = 0;

        if (atomic_compare_exchange_strong(&live[i].generation, &expected, BETWEEN)) {
            r->table_slot = i;
            atomic_store_explicit(&live[i].context, r->id, memory_order_relaxed);
            atomic_store_explicit(&live[i].thread, trii_step_thread_id(), memory_order_relaxed);
        }
    }
    if (r->table_slot < 0)
        return;
    if (r->id != 0)
        trii_live_moves(r);
    atomic_store_explicit(&live[r->table_slot].file, site.file, memory_order_relaxed);
    atomic_store_explicit(&live[r->table_slot].line, site.line, memory_order_relaxed);
    atomic_store_explicit(&live[r->table_slot].generation, r->step.generation,
                          memory_order_relaxed);
}

void trii_live_moves(trii_recorder *r)
{
    if (r->table_slot >= 0)
        atomic_store_explicit(&live[r->table_slot].thread,
                              atomic_load_explicit(&r->thread, memory_order_relaxed),
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

/* --- words ---------------------------------------------------------------- */

#define WHO_BYTES (TRII_ERR_BYTES / 4)

static int add_site(char *text, size_t size, const char *before, const char *file, int line)
{
    return file != NULL ? snprintf(text, size, "%s%s:%d", before, file, line) : 0;
}

/* "the step of thread 7, begun at f.c:3"; `before` such as "the step of ". */
static void other_text(char text[WHO_BYTES], uint64_t generation)
{
    int i = find(generation), context;
    size_t used;

    if (i < 0) {
        snprintf(text, WHO_BYTES, "a step that has ended");
        return;
    }
    context = atomic_load_explicit(&live[i].context, memory_order_relaxed);
    used = context > 0 ? (size_t)snprintf(text, WHO_BYTES, "the step of context %d (thread %lld)",
                                          context, (long long)atomic_load(&live[i].thread))
                       : (size_t)snprintf(text, WHO_BYTES, "the step of thread %lld",
                                          (long long)atomic_load(&live[i].thread));
    add_site(text + used, WHO_BYTES - used, ", begun at ",
             atomic_load_explicit(&live[i].file, memory_order_relaxed),
             atomic_load_explicit(&live[i].line, memory_order_relaxed));
}

/* "thread 5 at a.c:9" */
static void own_text(char text[WHO_BYTES])
{
    const trii_recorder *r = trii_recorder_mine();
    trii_site site = trii_site_last();
    size_t used;

    used = r != NULL && r->id != 0
               ? (size_t)snprintf(text, WHO_BYTES, "context %d (thread %lld)", r->id,
                                  (long long)trii_step_thread_id())
               : (size_t)snprintf(text, WHO_BYTES, "thread %lld", (long long)trii_step_thread_id());
    add_site(text + used, WHO_BYTES - used, " at ", site.file, site.line);
}

/* "a tensor f32 [2, 3] "fc.weight"" */
static void tensor_text(char text[WHO_BYTES], const tri_tensor *tensor)
{
    trii_type type = {.dtype = tensor->dtype, .ndim = tensor->ndim};
    char shape[TRII_TYPE_TEXT];

    memcpy(type.shape, tensor->shape, sizeof(type.shape));
    snprintf(text, WHO_BYTES, "a tensor %s%s%s%s", trii_type_text(&type, shape),
             tensor->name != NULL ? " \"" : "", tensor->name != NULL ? tensor->name : "",
             tensor->name != NULL ? "\"" : "");
}

tri_status trii_refuse_run(const tri_tensor *tensor, bool writes, bool other_writes,
                           uint64_t generation)
{
    char own[WHO_BYTES], other[WHO_BYTES], what[WHO_BYTES];

    own_text(own);
    other_text(other, generation);
    tensor_text(what, tensor);
    return TRII_FAIL(
        TRI_ERR_STATE, "%s %s %s that %s is %s: run one after the other, or give each a copy", own,
        writes ? "writes" : "reads", what, other, other_writes ? "writing" : "reading");
}

tri_status trii_refuse_stale(const tri_tensor *tensor)
{
    char own[WHO_BYTES], other[WHO_BYTES], what[WHO_BYTES];

    own_text(own);
    other_text(other, tensor->written_by);
    tensor_text(what, tensor);
    return TRII_FAIL(TRI_ERR_STATE,
                     "%s uses %s that %s has overwritten since this step read it: end this step "
                     "before the other writes, or give each a copy",
                     own, what, other);
}

tri_status trii_refuse_gradient(const tri_tensor *tensor, uint64_t generation)
{
    char own[WHO_BYTES], other[WHO_BYTES], what[WHO_BYTES];

    own_text(own);
    other_text(other, generation);
    tensor_text(what, tensor);
    return TRII_FAIL(TRI_ERR_STATE,
                     "%s needs the gradient of %s, which %s will write when it runs: one backward "
                     "pass after the other, or a copy for each",
                     own, what, other);
}

tri_status trii_refuse_handle(uint64_t generation)
{
    char other[WHO_BYTES];

    if (find(generation) < 0)
        return TRII_FAIL(TRI_ERR_STATE, "this step tensor's step has ended (tri_tensor_clone keeps "
                                        "a value longer)");
    other_text(other, generation);
    return TRII_FAIL(TRI_ERR_STATE, "this step tensor belongs to %s", other);
}
