/*
 * cut_strategies_test.c - a network that is cut trains as one process does: stages of pipelines,
 * parts of layers, replicas and ZeRO, every two levels of every two factors together, on 1 to 8
 * ranks (threads).
 */
/* ctest: start=first timeout=120 */
#include "cut_training.h"
#include "every_pair.h"

/* What a level stands for. */
static const int sizes[] = {0, 1, 2, 4};
static const int micro[] = {1, 4, 5};
static const struct {
    tri_pipeline_schedule schedule;
    int stages_per_rank;
} schedules[] = {{TRI_PIPELINE_1F1B, 1},        {TRI_PIPELINE_GPIPE, 1},
                 {TRI_PIPELINE_INTERLEAVED, 2}, {TRI_PIPELINE_LOOPED_BFS, 2},
                 {TRI_PIPELINE_ZERO_BUBBLE, 1}, {TRI_PIPELINE_ZBV, 2}};

enum { DATA, TENSOR, PIPELINE, SCHEDULE, MICRO, ZERO, ADAMW, CLIP, RECOMPUTE, SEQUENCE, FACTORS };

static way way_of(const int *level)
{
    return (way){.data = sizes[level[DATA]],
                 .tensor = sizes[level[TENSOR]],
                 .pipeline = sizes[level[PIPELINE]],
                 .stages_per_rank = schedules[level[SCHEDULE]].stages_per_rank,
                 .schedule = schedules[level[SCHEDULE]].schedule,
                 .microbatches = micro[level[MICRO]],
                 .zero = level[ZERO],
                 .adamw = level[ADAMW],
                 .clip = level[CLIP],
                 .recompute = level[RECOMPUTE],
                 .sequence = level[SEQUENCE]};
}

/* What is refused, what has no meaning, and what is not worth so many ranks. */
static bool goes(const int *level)
{
    way w = way_of(level);
    int rounds = w.pipeline > 0 && w.microbatches > w.pipeline ? w.microbatches / w.pipeline : 1;
    int ranks = at_least_1(w.data) * at_least_1(w.tensor) * at_least_1(w.pipeline);

    if (ranks > (TEST_SANITIZED ? 4 : 8) || (w.zero > 0 && w.data == 0) ||
        (w.sequence && w.tensor == 0))
        return false;
    if (w.pipeline == 0 && (level[SCHEDULE] > 0 || level[MICRO] > 0))
        return false;
    if (w.stages_per_rank == 2 && w.pipeline == 4) /* more stages than modules */
        return false;
    return w.stages_per_rank == 1 || w.schedule == TRI_PIPELINE_LOOPED_BFS ||
           w.microbatches % rounds == 0;
}

static void every_two_ways_train_as_one_process(void **state)
{
    static pairs p = {.n_factors = FACTORS,
                      .levels = {4, 3, 4, (int)TRII_COUNT_OF(schedules), (int)TRII_COUNT_OF(micro),
                                 4, 2, 2, 2, 2},
                      .goes = goes};
    int level[PAIRS_FACTORS], n = 0;

    (void)state;
    while (pairs_next(&p, 0, level)) {
        /* A stage does not know of how many tokens it gets a part: parts have to be equal. */
        const way w = way_of(level);
        const int tokens = w.sequence && w.pipeline > 1 ? 2 : 3;

        train((training){
            .w = w, .steps = TEST_SANITIZED ? 1 : 3, .shape = {{10, tokens}, {8, 4}, {9, tokens}}});
        n++;
    }
    assert_in_range(n, 20, 60);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_two_ways_train_as_one_process),
};

TEST_MAIN(tests)
