/*
 * pipeline_random.c - see pipeline_random.h.
 */
#include "train/parallel/pipeline/pipeline_random.h"

#include "base/alloc.h"
#include "train/graph/step/recorder.h"

tri_status trii_pipeline_random_begin(trii_pipeline_random *r, const trii_pipeline *p,
                                      trii_step *step, trii_pipeline_call call)
{
    size_t n = (size_t)p->n_local * (size_t)p->shape.microbatches;

    *r = (trii_pipeline_random){.p = p,
                                .step = trii_recorder_of(step)->eager ? NULL : step,
                                .call = call,
                                .first_node = step->n_nodes,
                                .base = step->random_count,
                                .of_all = -1};
    r->drawn = trii_alloc(n, sizeof(*r->drawn), "micro-batches");
    r->before = trii_alloc((size_t)p->n_local, sizeof(*r->before), "micro-batches");
    r->features = trii_alloc((size_t)p->n_local, sizeof(*r->features), "micro-batches");
    return r->drawn != NULL && r->before != NULL && r->features != NULL ? TRI_OK
                                                                        : TRI_ERR_NO_MEMORY;
}

void trii_pipeline_random_end(trii_pipeline_random *r)
{
    trii_free(r->drawn);
    trii_free(r->before);
    trii_free(r->features);
}

static trii_drawn *drawn_by(const trii_pipeline_random *r, int local, int microbatch)
{
    return &r->drawn[(ptrdiff_t)local * r->p->shape.microbatches + microbatch];
}

void trii_pipeline_random_enter(trii_pipeline_random *r, int local, int microbatch,
                                trii_pipeline_drawn before)
{
    /* whatever this rank has recorded since the stage before */
    trii_cut_features_note(&before.features);
    if (r->step == NULL)
        return;
    if (microbatch == 0)
        r->before[local] = before.count;
    drawn_by(r, local, microbatch)->first = r->step->random_count;
}

/* Of the last stage: all ranks need the sum. */
static trii_pipeline_edge edge_to(const trii_pipeline *p, int rank)
{
    return (trii_pipeline_edge){.number = TRII_PIPELINE_MOST_STAGES + TRII_PIPELINE_MOST_HOPS,
                                .from = p->shape.stages - 1,
                                .to = trii_pipeline_stage_of(&p->shape, rank, 0)};
}

static tri_status tell_all(trii_pipeline_random *r, int local)
{
    const trii_pipeline *p = r->p;
    const trii_pipeline_note note = {.call = r->call,
                                     .drawn = trii_pipeline_random_until(r, local)};
    tri_status status = TRI_OK;

    r->of_all = note.drawn.count;
    for (int rank = 0; rank < p->shape.ranks && status == TRI_OK; rank++) {
        const trii_pipeline_edge edge = edge_to(p, rank);

        if (rank != p->rank)
            status = trii_pipeline_note_send(p, &edge, &note);
    }
    return status;
}

tri_status trii_pipeline_random_leave(trii_pipeline_random *r, int local, int microbatch)
{
    trii_drawn *drawn = drawn_by(r, local, microbatch);
    bool is_last =
        trii_pipeline_stage_of(&r->p->shape, r->p->rank, local) == r->p->shape.stages - 1;

    r->features[local] = trii_cut_features_now();
    if (r->step == NULL)
        return TRI_OK;
    drawn->n = r->step->random_count - drawn->first;
    return is_last && microbatch == 0 ? tell_all(r, local) : TRI_OK;
}

trii_pipeline_drawn trii_pipeline_random_until(const trii_pipeline_random *r, int local)
{
    return (trii_pipeline_drawn){.count = r->before[local] + drawn_by(r, local, 0)->n,
                                 .features = r->features[local]};
}

static tri_status hear(trii_pipeline_random *r)
{
    const trii_pipeline_edge edge = edge_to(r->p, r->p->rank);
    trii_pipeline_note note = {.rows = 0};
    tri_status status = TRI_OK;

    if (r->of_all >= 0)
        return TRI_OK;
    status = trii_pipeline_note_recv(r->p, &edge, r->call, &note);
    r->of_all = note.drawn.count;
    return status;
}

/* The numbers that they have in one process, of what this rank has counted from `base` on. */
static void number_all(const trii_pipeline_random *r, uint32_t *numbers, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++) /* of a backward: no other process has those */
        numbers[k] = r->base + k;
    for (int local = 0; local < r->p->n_local; local++)
        for (int i = 0; i < r->p->shape.microbatches; i++) {
            const trii_drawn *drawn = drawn_by(r, local, i);

            for (uint32_t k = 0; k < drawn->n; k++)
                numbers[drawn->first - r->base + k] =
                    r->base + (uint32_t)(i * r->of_all + r->before[local]) + k;
        }
}

tri_status trii_pipeline_random_set(trii_pipeline_random *r, int microbatches)
{
    trii_step *s = r->step;
    tri_status status = s != NULL ? hear(r) : TRI_OK;
    uint32_t *numbers, drawn;

    if (s == NULL || status != TRI_OK)
        return status;
    drawn = s->random_count - r->base;
    numbers = trii_alloc((size_t)drawn + 1, sizeof(*numbers), "micro-batches");
    if (numbers == NULL)
        return TRI_ERR_NO_MEMORY;
    number_all(r, numbers, drawn);
    for (int32_t n = r->first_node; n < s->n_nodes && drawn > 0; n++)
        /* what is computed again has the number of the first time, which may be before the pass */
        if (s->nodes[n].op->random && s->nodes[n].random_index >= r->base)
            s->nodes[n].random_index = numbers[s->nodes[n].random_index - r->base];
    s->random_count = r->base + (uint32_t)(microbatches * r->of_all);
    trii_free(numbers);
    return TRI_OK;
}
