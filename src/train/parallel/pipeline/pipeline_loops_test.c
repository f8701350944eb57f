/* pipeline_loops_test.c - several stages on each rank, and messages that are larger than what a
 * sender may leave behind. */
/* ctest: also=TRI_EAGER=1 */
#include "testing/pipeline_ranks.h"

static void several_stages_a_rank(void **state)
{
    (void)state;
    pipeline_compare_loops(1, 3, 4, 8);
    pipeline_compare_loops(2, 2, 2, 8);
    pipeline_compare_loops(2, 2, 4, 11);
    pipeline_compare_loops(2, 2, 5, 10);
    pipeline_compare_loops(2, 3, 1, 8);
    pipeline_compare_loops(2, 3, 6, 6);
}

/* Messages that wait at the sender for a receive. */
static void large_messages(void **state)
{
    static const tri_pipeline_schedule schedules[] = {TRI_PIPELINE_GPIPE, TRI_PIPELINE_1F1B,
                                                      TRI_PIPELINE_ZERO_BUBBLE};

    (void)state;
    pipeline_compare(schedules, 3, 2, 2, 4, PIPELINE_MOST_ROWS);
    pipeline_compare_loops(2, 2, 4, PIPELINE_MOST_ROWS);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(several_stages_a_rank),
    cmocka_unit_test(large_messages),
};

TEST_MAIN(tests)
