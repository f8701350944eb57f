/*
 * pipeline_times.c - see pipeline_times.h.
 */
#include "train/parallel/pipeline/pipeline_times.h"

#include "base/alloc.h"
#include "base/err.h"

/* When forwards and first parts of backwards end; 0: not yet. */
typedef struct ends {
    const trii_pipeline_shape *shape;
    int64_t *forward, *back; /* [stages][microbatches] */
} ends;

static int64_t *end_of(const ends *e, int64_t *of, int stage, int microbatch)
{
    return &of[(int64_t)stage * e->shape->microbatches + microbatch];
}

/* When all that the action needs is there; -1: not yet known. */
static int64_t ready_at(const ends *e, const trii_pipeline_action *a)
{
    int64_t own, other;

    if (a->kind == TRII_PIPELINE_FORWARD) {
        own = a->stage > 0 ? *end_of(e, e->forward, a->stage - 1, a->microbatch) : 0;
        return a->stage > 0 && own == 0 ? -1 : own;
    }
    if (a->kind == TRII_PIPELINE_WEIGHT) {
        own = *end_of(e, e->back, a->stage, a->microbatch);
        return own == 0 ? -1 : own;
    }
    own = *end_of(e, e->forward, a->stage, a->microbatch);
    other =
        a->stage + 1 < e->shape->stages ? *end_of(e, e->back, a->stage + 1, a->microbatch) : own;
    return own == 0 || other == 0 ? -1 : own > other ? own : other;
}

/* As far as the rank comes; at: its next action. Whether it came any further. */
static bool advance(trii_pipeline_times *t, const ends *e, int rank, int64_t *at, int64_t *clock)
{
    int64_t begin = *at;

    for (; *at < t->n; (*at)++) {
        int64_t i = rank * t->n + *at, ready = ready_at(e, &t->actions[i]);
        const trii_pipeline_action *a = &t->actions[i];

        if (ready < 0)
            break;
        t->begin[i] = ready > *clock ? ready : *clock;
        *clock = t->begin[i] + trii_pipeline_units(a);
        if (a->kind == TRII_PIPELINE_FORWARD)
            *end_of(e, e->forward, a->stage, a->microbatch) = *clock;
        else if (a->kind != TRII_PIPELINE_WEIGHT)
            *end_of(e, e->back, a->stage, a->microbatch) = *clock;
    }
    return *at > begin;
}

static tri_status run(trii_pipeline_times *t, const ends *e, int64_t *at, int64_t *clock)
{
    const int ranks = e->shape->ranks;
    bool any = true;

    while (any) {
        any = false;
        for (int r = 0; r < ranks; r++)
            any = advance(t, e, r, &at[r], &clock[r]) || any;
    }
    for (int r = 0; r < ranks; r++) {
        if (at[r] < t->n)
            return TRII_FAIL(TRI_ERR_INTERNAL, "schedule %s: rank %d waits in action %d of %d",
                             trii_pipeline_schedule_name(e->shape->schedule), r, (int)at[r],
                             (int)t->n);
        t->units = clock[r] > t->units ? clock[r] : t->units;
    }
    return TRI_OK;
}

tri_status trii_pipeline_times_find(const trii_pipeline_shape *shape, trii_pipeline_times *t)
{
    size_t n = (size_t)trii_pipeline_action_count(shape), ranks = (size_t)shape->ranks;
    size_t pieces = (size_t)shape->stages * (size_t)shape->microbatches;
    ends e = {.shape = shape};
    int64_t *memory = trii_alloc(2 * pieces + 2 * ranks, sizeof(*memory), "schedule");
    tri_status status = TRI_ERR_NO_MEMORY;

    *t = (trii_pipeline_times){.n = (int64_t)n};
    t->actions = trii_alloc(ranks * n, sizeof(*t->actions), "schedule");
    t->begin = trii_alloc(ranks * n, sizeof(*t->begin), "schedule");
    if (memory != NULL && t->actions != NULL && t->begin != NULL) {
        e.forward = memory;
        e.back = memory + pieces;
        for (int r = 0; r < shape->ranks; r++)
            trii_pipeline_actions(shape, r, t->actions + (size_t)r * n);
        status = run(t, &e, memory + 2 * pieces, memory + 2 * pieces + ranks);
    }
    trii_free(memory);
    return status;
}

void trii_pipeline_times_fini(trii_pipeline_times *t)
{
    trii_free(t->actions);
    trii_free(t->begin);
    *t = (trii_pipeline_times){0};
}

double trii_pipeline_idle(const trii_pipeline_times *t, int rank)
{
    int64_t busy = 0;

    for (int64_t i = 0; i < t->n; i++)
        busy += trii_pipeline_units(&t->actions[rank * t->n + i]);
    return 1 - (double)busy / (double)t->units;
}
