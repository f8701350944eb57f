/* pipeline_test.c - pipelines against one process that accumulates the same micro-batches. */
/* ctest: also=TRI_CHECK=order */
#include "testing/pipeline_ranks.h"

static void compare_schedules(int ranks, int m, int rows)
{
    static const tri_pipeline_schedule schedules[] = {TRI_PIPELINE_GPIPE, TRI_PIPELINE_1F1B,
                                                      TRI_PIPELINE_ZERO_BUBBLE};

    pipeline_compare(schedules, 3, ranks, ranks, m, rows);
}

static void one_rank_is_the_plain_network(void **state)
{
    (void)state;
    compare_schedules(1, 1, 8);
    compare_schedules(1, 4, 8);
}

static void two_ranks(void **state)
{
    (void)state;
    compare_schedules(2, 2, 8);
    compare_schedules(2, 4, 8);
    compare_schedules(2, 5, 10);
    compare_schedules(2, 1, 8);
}

static void four_ranks(void **state)
{
    (void)state;
    compare_schedules(4, 4, 8);
    compare_schedules(4, 8, 16);
    compare_schedules(4, 9, 18);
    compare_schedules(4, 2, 8); /* fewer micro-batches than ranks */
}

static void rows_that_do_not_divide(void **state)
{
    (void)state;
    compare_schedules(2, 4, 11); /* 3, 3, 3, 2 */
    compare_schedules(4, 4, 13); /* 4, 3, 3, 3 */
    compare_schedules(2, 8, 6);  /* six micro-batches of one row */
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(one_rank_is_the_plain_network),
    cmocka_unit_test(two_ranks),
    cmocka_unit_test(four_ranks),
    cmocka_unit_test(rows_that_do_not_divide),
};

TEST_MAIN(tests)
