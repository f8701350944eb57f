/*
 * hold.c - see hold.h. run/segment.c takes and releases the locks of a run, the files of
 * values/ those of one tensor.
 *
 * Usually one context runs alone: `lone` names it, which costs two atomic operations a run and none
 * a tensor. The second context that comes takes the lock and marks in the tensors what the first
 * one holds; from then on all contexts do so, until none runs.
 */
#include "train/graph/step/hold.h"

#include "train/graph/step/overlaps.h"
#include "train/tensor/packed.h"
#include "train/tensor/sharing.h"

/* Value of `lone`: several contexts run, so each takes the lock when it begins and ends. */
#define SEVERAL ((uintptr_t)1)
/* In an entry of r->held.list: held for writing. */
#define WRITES ((uintptr_t)1)

static atomic_uintptr_t lone; /* a recorder, perhaps with SEVERAL; 0 = nobody runs */
/* Guarded by the lock, as are `readers` and `writer` of tensors. */
static trii_recorder *running;

static tri_tensor *tensor_of(uintptr_t hold)
{
    return (tri_tensor *)(hold & ~WRITES); // NOLINT: the bit was added to an address here
}

/* --- several at once, under the lock -------------------------------------- */

static void enlist(trii_recorder *r)
{
    r->next_running = running;
    running = r;
    for (int32_t i = 0; i < r->held.n; i++) {
        tri_tensor *tensor = tensor_of(r->held.list[i]);

        if ((r->held.list[i] & WRITES) != 0)
            tensor->writer = r;
        else
            tensor->readers++;
    }
}

static void strike_off(trii_recorder *r)
{
    trii_recorder **at = &running;

    while (*at != r)
        at = &(*at)->next_running;
    *at = r->next_running;
    for (int32_t i = 0; i < r->held.n; i++) {
        tri_tensor *tensor = tensor_of(r->held.list[i]);

        if ((r->held.list[i] & WRITES) != 0)
            tensor->writer = NULL;
        else
            tensor->readers--;
    }
}

static const trii_recorder *reader_of(const tri_tensor *tensor)
{
    for (const trii_recorder *r = running; r != NULL; r = r->next_running) {
        for (int32_t i = 0; i < r->held.n; i++) {
            if (r->held.list[i] == (uintptr_t)tensor)
                return r;
        }
    }
    return NULL;
}

static bool excludes(const tri_tensor *tensor, bool writes)
{
    return tensor->writer != NULL || (writes && tensor->readers > 0);
}

static tri_status check_other(const tri_tensor *tensor, bool writes)
{
    if (!excludes(tensor, writes))
        return TRI_OK;
    if (tensor->writer != NULL)
        return trii_refuse_run(tensor, writes, true, tensor->writer->step.generation);
    return trii_refuse_run(tensor, true, false, reader_of(tensor)->step.generation);
}

/* What excludes a run, of the tensors with which one of its own shares memory. */
typedef struct rival {
    bool writes;
    const tri_tensor *tensor; /* a run holds it */
} rival;

static void see_rival(void *arg, tri_tensor *other)
{
    rival *r = arg;

    if (r->tensor == NULL && excludes(other, r->writes))
        r->tensor = other;
}

static tri_status check_sharers(const tri_tensor *tensor, bool writes)
{
    rival r = {.writes = writes, .tensor = NULL};

    trii_overlaps_visit(tensor, see_rival, &r);
    return r.tensor != NULL ? check_other(r.tensor, writes) : TRI_OK;
}

/* Fails if another run keeps this one from beginning. */
static tri_status check_others(const trii_recorder *r)
{
    tri_status status = TRI_OK;

    for (int32_t i = 0; i < r->held.n && status == TRI_OK; i++) {
        const tri_tensor *tensor = tensor_of(r->held.list[i]);
        bool writes = (r->held.list[i] & WRITES) != 0;

        status = check_other(tensor, writes);
        if (status == TRI_OK && TRII_UNLIKELY(tensor->shares))
            status = check_sharers(tensor, writes);
    }
    return status;
}

static TRII_NOINLINE tri_status begin_among_others(trii_recorder *r)
{
    uintptr_t now = 0;
    tri_status status = TRI_OK;

    trii_step_lock();
    while (!atomic_compare_exchange_weak(&lone, &now, now == 0 ? (uintptr_t)r : now | SEVERAL)) {
    }
    if (now != 0) {
        if ((now & SEVERAL) == 0)
            enlist((trii_recorder *)now); // NOLINT: it was made from a pointer
        status = check_others(r);
        if (status == TRI_OK)
            enlist(r);
    }
    trii_step_unlock();
    return status;
}

static TRII_NOINLINE void end_among_others(trii_recorder *r)
{
    trii_step_lock();
    strike_off(r);
    atomic_store(&lone, running != NULL ? SEVERAL : 0);
    trii_step_unlock();
}

/* --- all ------------------------------------------------------------------ */

static tri_status begin(trii_recorder *r)
{
    uintptr_t nobody = 0;
    tri_status status = TRI_OK;

    if (TRII_UNLIKELY(!atomic_compare_exchange_strong(&lone, &nobody, (uintptr_t)r)))
        status = begin_among_others(r);
    if (TRII_UNLIKELY(status != TRI_OK))
        r->held.n = 0;
    return status;
}

void trii_hold_end(trii_recorder *r)
{
    uintptr_t mine = (uintptr_t)r;

    if (TRII_UNLIKELY(!atomic_compare_exchange_strong(&lone, &mine, 0)))
        end_among_others(r);
    r->held.n = 0;
}

tri_status trii_hold_one(trii_recorder *r, tri_tensor *tensor, bool writes)
{
    void *array = r->held.list;
    tri_status status =
        trii_grow(&array, &r->held.cap, 1, sizeof(*r->held.list), "tensors of a run");

    r->held.list = array;
    if (status != TRI_OK)
        return status;
    r->held.list[0] = (uintptr_t)tensor | (writes ? WRITES : 0);
    r->held.n = 1;
    return begin(r);
}

/* Collects what is read and written, without values that have storage of their own. */
static void list(trii_recorder *r)
{
    const trii_step *s = &r->step;
    uintptr_t *held = r->held.list;

    for (int32_t i = 0; i < r->pending.n_inputs; i++) {
        const tri_tensor *tensor = trii_value_tensor(&s->values[r->pending.inputs[i]]);

        if (tensor != NULL)
            *held++ = (uintptr_t)tensor;
    }
    for (int32_t o = 0; o < r->pending.n_outputs; o++) {
        const tri_tensor *tensor = s->values[r->pending.outputs[o]].bound;

        if (tensor != NULL)
            *held++ = (uintptr_t)tensor | WRITES;
    }
    r->held.n = (int32_t)(held - r->held.list);
}

tri_status trii_hold_run(trii_recorder *r)
{
    int32_t room = r->pending.n_inputs + r->pending.n_outputs;

    if (TRII_UNLIKELY(room > r->held.cap)) {
        void *array = r->held.list;
        tri_status status =
            trii_grow(&array, &r->held.cap, room, sizeof(*r->held.list), "tensors of a run");

        r->held.list = array;
        if (status != TRI_OK)
            return status;
    }
    list(r);
    return begin(r);
}

/* Steps that keep older contents may use the copies meanwhile: they hold nothing. */
static TRII_NOINLINE void drop_packed(tri_tensor *tensor)
{
    trii_packed_dropped dropped;

    trii_step_lock();
    dropped = trii_packed_written(tensor);
    trii_step_unlock();
    trii_packed_release(&dropped);
}

static inline void next_version(const trii_recorder *r, tri_tensor *tensor)
{
    tensor->version = (tensor->version + 1) & INT32_MAX;
    tensor->written_by = r->step.generation;
}

static void see_written(void *arg, tri_tensor *other)
{
    next_version(arg, other);
}

/* No other run holds what overlaps with a tensor that is held for writing. */
static TRII_NOINLINE void sharers_written(trii_recorder *r, const tri_tensor *tensor)
{
    trii_overlaps_visit(tensor, see_written, r);
    trii_overlaps_drop(tensor, false);
}

void trii_hold_written(trii_recorder *r, tri_tensor *tensor)
{
    next_version(r, tensor);
    if (TRII_UNLIKELY(atomic_load_explicit(&tensor->packed, memory_order_relaxed) != NULL))
        drop_packed(tensor);
    if (TRII_UNLIKELY(tensor->shares))
        sharers_written(r, tensor);
}

bool trii_step_holds_alone(trii_step *step, const tri_tensor *tensor)
{
    const trii_recorder *r = trii_recorder_of(step);
    uint32_t mine = 0;

    if (atomic_load(&lone) == (uintptr_t)r)
        return true; /* and every other run has to take the lock */
    for (int32_t i = 0; i < r->held.n; i++)
        mine += r->held.list[i] == (uintptr_t)tensor;
    return tensor->readers == mine && (tensor->writer == NULL || tensor->writer == r);
}
