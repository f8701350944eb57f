/*
 * pipeline_answers.c - see pipeline_answers.h.
 */
#include "train/parallel/pipeline/pipeline_answers.h"

#include "base/alloc.h"

static int64_t *place(const trii_pipeline_answers *a, int stage, int microbatch)
{
    int64_t local = trii_pipeline_local_of(a->shape, stage);

    return &a->places[2 * (local * a->shape->microbatches + microbatch)];
}

/* In the list of the rank that has the stage before. */
static void find_places(const trii_pipeline_answers *a, int stage, const trii_pipeline_action *list)
{
    for (int64_t i = 0; i < trii_pipeline_action_count(a->shape); i++) {
        if (list[i].stage != stage - 1 || list[i].kind == TRII_PIPELINE_INPUT)
            continue;
        place(a, stage, list[i].microbatch)[list[i].kind != TRII_PIPELINE_FORWARD] = i;
    }
}

tri_status trii_pipeline_answers_init(trii_pipeline_answers *a, const trii_pipeline_shape *shape,
                                      int rank)
{
    size_t each = (size_t)(shape->stages / shape->ranks);
    size_t n = each * (size_t)shape->microbatches;
    trii_pipeline_action *list =
        trii_alloc((size_t)trii_pipeline_action_count(shape), sizeof(*list), "schedule");

    *a = (trii_pipeline_answers){.shape = shape};
    a->places = trii_alloc(2 * n, sizeof(*a->places), "schedule");
    a->list = trii_alloc(n, sizeof(*a->list), "schedule");
    for (int k = 0; k < (int)each && list != NULL && a->places != NULL; k++) {
        int stage = trii_pipeline_stage_of(shape, rank, k);
        int peer = stage > 0 ? trii_pipeline_rank_of(shape, stage - 1) : rank;

        if (peer == rank)
            continue;
        trii_pipeline_actions(shape, peer, list);
        find_places(a, stage, list);
    }
    trii_free(list);
    return list != NULL && a->places != NULL && a->list != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
}

void trii_pipeline_answers_fini(trii_pipeline_answers *a)
{
    trii_free(a->places);
    trii_free(a->list);
}

void trii_pipeline_answers_add(trii_pipeline_answers *a, int stage, int microbatch, trii_vid token)
{
    a->list[a->n++] = (trii_pipeline_answer){.token = token,
                                             .peer = trii_pipeline_rank_of(a->shape, stage - 1),
                                             .place = place(a, stage, microbatch)[1]};
}

int trii_pipeline_answers_take(trii_pipeline_answers *a, int stage, int microbatch,
                               trii_vid tokens_out[TRII_PIPELINE_ANSWERS_TAKEN])
{
    int peer = trii_pipeline_rank_of(a->shape, stage - 1), kept = 0, taken = 0;
    int64_t sent = place(a, stage, microbatch)[0];

    for (int i = 0; i < a->n; i++) {
        if (a->list[i].peer == peer && a->list[i].place < sent &&
            taken < TRII_PIPELINE_ANSWERS_TAKEN)
            tokens_out[taken++] = a->list[i].token;
        else
            a->list[kept++] = a->list[i];
    }
    a->n = kept;
    return taken;
}
