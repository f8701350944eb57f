/* pipeline_loops_test.c - several stages on each rank, and messages that are larger than what a
 * sender may leave behind. */
/* ctest: also=TRI_EAGER=1 */
#include "testing/pipeline_ranks.h"

static void compare_interleaved(int ranks, int each, int m, int rows)
{
    static const tri_pipeline_schedule schedules[] = {TRI_PIPELINE_LOOPED_BFS,
                                                      TRI_PIPELINE_INTERLEAVED,
                                                      TRI_PIPELINE_ZERO_BUBBLE, TRI_PIPELINE_ZBV};

    pipeline_compare(schedules, each == 2 ? 4 : 3, ranks, each * ranks, m, rows);
}

static void several_stages_a_rank(void **state)
{
    (void)state;
    compare_interleaved(1, 3, 4, 8);
    compare_interleaved(2, 2, 2, 8);
    compare_interleaved(2, 2, 4, 11);
    compare_interleaved(2, 3, 1, 8);
    compare_interleaved(2, 3, 6, 6);
    compare_interleaved(4, 2, 4, 8);
    compare_interleaved(4, 2, 8, 16);
}

/* Messages that wait at the sender for a receive. */
static void large_messages(void **state)
{
    static const tri_pipeline_schedule schedules[] = {TRI_PIPELINE_GPIPE, TRI_PIPELINE_1F1B,
                                                      TRI_PIPELINE_ZERO_BUBBLE};

    (void)state;
    pipeline_compare(schedules, 3, 2, 2, 4, PIPELINE_MOST_ROWS);
    compare_interleaved(2, 2, 4, PIPELINE_MOST_ROWS);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(several_stages_a_rank),
    cmocka_unit_test(large_messages),
};

TEST_MAIN(tests)
