/* pipeline_many_test.c - every schedule on four and eight ranks, with as many micro-batches, twice
 * as many, and one more. */
#include "testing/pipeline_ranks.h"

static void eight_ranks_of_one_stage(void **state)
{
    static const tri_pipeline_schedule schedules[] = {TRI_PIPELINE_GPIPE, TRI_PIPELINE_1F1B,
                                                      TRI_PIPELINE_ZERO_BUBBLE};

    (void)state;
    pipeline_compare(schedules, 3, 8, 8, 8, 8);
    pipeline_compare(schedules, 3, 8, 8, 16, 16);
    pipeline_compare(schedules, 3, 8, 8, 17, 17);
}

static void four_ranks_of_two_stages(void **state)
{
    (void)state;
    pipeline_compare_loops(4, 2, 4, 8);
    pipeline_compare_loops(4, 2, 8, 16);
    pipeline_compare_loops(4, 2, 9, 9);
}

static void eight_ranks_of_two_stages(void **state)
{
    (void)state;
    pipeline_compare_loops(8, 2, 8, 8);
    pipeline_compare_loops(8, 2, 16, 16);
}

static void eight_ranks_and_an_odd_number(void **state)
{
    (void)state;
    pipeline_compare_loops(8, 2, 17, 17);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(eight_ranks_of_one_stage),
    cmocka_unit_test(four_ranks_of_two_stages),
    cmocka_unit_test(eight_ranks_of_two_stages),
    cmocka_unit_test(eight_ranks_and_an_odd_number),
};

TEST_MAIN(tests)
