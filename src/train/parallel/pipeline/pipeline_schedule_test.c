/* pipeline_schedule_test.c - the lists of actions: those of torch.distributed.pipelining, with
 * their bubbles and peaks, and that ranks never wait for each other. */
#include "train/parallel/pipeline/pipeline_schedule.h"

#include <math.h>

#include <stdlib.h>

#include "train/parallel/pipeline/pipeline_times.h"
#include "testing/check.h"

#define MOST_RANKS 8

static trii_pipeline_action *actions_of(const trii_pipeline_shape *s, int rank)
{
    trii_pipeline_action *actions = calloc((size_t)trii_pipeline_action_count(s), sizeof(*actions));

    assert_non_null(actions);
    trii_pipeline_actions(s, rank, actions);
    return actions;
}

/* "0F0 0F1 1B0", or without the stages where a rank has one. */
static void expect(tri_pipeline_schedule schedule, int ranks, int each, int m, int rank,
                   const char *want)
{
    const trii_pipeline_shape s = {schedule, ranks, ranks * each, m};
    const int64_t n = trii_pipeline_action_count(&s);
    trii_pipeline_action *a;
    char got[1024] = "";
    size_t used = 0;

    CHECK_OK(trii_pipeline_shape_check(&s));
    a = actions_of(&s, rank);
    for (int64_t i = 0; i < n && used < sizeof(got); i++)
        used += (size_t)snprintf(got + used, sizeof(got) - used, "%s%d%c%d", i > 0 ? " " : "",
                                 a[i].stage, "FBIW"[a[i].kind], a[i].microbatch);
    free(a);
    assert_string_equal(got, want);
}

static void two_ranks_have_torch_s_lists(void **state)
{
    (void)state;
    expect(TRI_PIPELINE_GPIPE, 2, 1, 4, 0, "0F0 0F1 0F2 0F3 0B0 0B1 0B2 0B3");
    expect(TRI_PIPELINE_GPIPE, 2, 1, 4, 1, "1F0 1F1 1F2 1F3 1B0 1B1 1B2 1B3");
    expect(TRI_PIPELINE_1F1B, 2, 1, 4, 0, "0F0 0F1 0B0 0F2 0B1 0F3 0B2 0B3");
    expect(TRI_PIPELINE_1F1B, 2, 1, 4, 1, "1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3");
    /* ascending in the way back, which torch's is not */
    expect(TRI_PIPELINE_LOOPED_BFS, 2, 2, 4, 0,
           "0F0 0F1 0F2 0F3 2F0 2F1 2F2 2F3 2B0 2B1 2B2 2B3 0B0 0B1 0B2 0B3");
    expect(TRI_PIPELINE_LOOPED_BFS, 2, 2, 4, 1,
           "1F0 1F1 1F2 1F3 3F0 3F1 3F2 3F3 3B0 3B1 3B2 3B3 1B0 1B1 1B2 1B3");
    expect(TRI_PIPELINE_INTERLEAVED, 2, 2, 4, 0,
           "0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3");
    expect(TRI_PIPELINE_INTERLEAVED, 2, 2, 4, 1,
           "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3");
    expect(TRI_PIPELINE_ZERO_BUBBLE, 2, 1, 4, 0, "0F0 0F1 0I0 0W0 0F2 0I1 0W1 0F3 0I2 0W2 0I3 0W3");
    expect(TRI_PIPELINE_ZERO_BUBBLE, 2, 1, 4, 1, "1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1F3 1I3 1W2 1W3");
    expect(TRI_PIPELINE_ZERO_BUBBLE, 2, 2, 4, 0,
           "0F0 0F1 2F0 2F1 2I0 2W0 0F2 2I1 2W1 0F3 0I0 0W0 2F2 0I1 0W1 2F3 2I2 2W2 2I3 2W3 "
           "0I2 0W2 0I3 0W3");
    expect(TRI_PIPELINE_ZERO_BUBBLE, 2, 2, 4, 1,
           "1F0 1F1 3F0 3I0 3F1 3I1 3W0 1F2 1I0 3W1 1F3 1I1 1W0 3F2 3I2 1W1 3F3 3I3 3W2 1I2 "
           "3W3 1I3 1W2 1W3");
    expect(TRI_PIPELINE_ZBV, 2, 2, 4, 0,
           "0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0F3 0I0 0W0 3F2 3I2 3W2 0I1 0W1 3F3 3I3 3W3 "
           "0I2 0W2 0I3 0W3");
    expect(TRI_PIPELINE_ZBV, 2, 2, 4, 1,
           "1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1F3 1I1 1W1 2F3 2I2 2W2 1I2 2I3 "
           "1I3 1W2 2W3 1W3");
}

static void four_ranks_have_torch_s_lists(void **state)
{
    (void)state;
    expect(TRI_PIPELINE_1F1B, 4, 1, 4, 0, "0F0 0F1 0F2 0F3 0B0 0B1 0B2 0B3");
    expect(TRI_PIPELINE_1F1B, 4, 1, 4, 1, "1F0 1F1 1F2 1B0 1F3 1B1 1B2 1B3");
    expect(TRI_PIPELINE_1F1B, 4, 1, 4, 2, "2F0 2F1 2B0 2F2 2B1 2F3 2B2 2B3");
    expect(TRI_PIPELINE_1F1B, 4, 1, 4, 3, "3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3");
    expect(TRI_PIPELINE_1F1B, 4, 1, 8, 0,
           "0F0 0F1 0F2 0F3 0B0 0F4 0B1 0F5 0B2 0F6 0B3 0F7 0B4 0B5 0B6 0B7");
    expect(TRI_PIPELINE_1F1B, 4, 1, 2, 0, "0F0 0F1 0B0 0B1"); /* which torch refuses */
    expect(TRI_PIPELINE_ZERO_BUBBLE, 4, 1, 4, 0, "0F0 0F1 0F2 0F3 0I0 0W0 0I1 0W1 0I2 0W2 0I3 0W3");
    expect(TRI_PIPELINE_ZERO_BUBBLE, 4, 1, 4, 3, "3F0 3I0 3F1 3I1 3F2 3I2 3F3 3I3 3W0 3W1 3W2 3W3");
    expect(TRI_PIPELINE_1F1B, 1, 1, 2, 0, "0F0 0B0 0F1 0B1");
}

/* --- as if it ran --------------------------------------------------------- */

/* Gradients add up in the order of the micro-batches, each stage's for itself. */
static void check_order(const trii_pipeline_action *list, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = i + 1; k < n; k++)
            if (list[k].kind == list[i].kind && list[k].stage == list[i].stage &&
                list[k].microbatch < list[i].microbatch)
                fail_msg("stage %d: micro-batch %d comes before the one before it", list[i].stage,
                         list[i].microbatch);
}

/* Micro-batches of a stage that are under way at once. */
static int peak_of(const trii_pipeline_action *list, int64_t n)
{
    int live = 0, peak = 0;

    for (int64_t i = 0; i < n; i++) {
        live += list[i].kind == TRII_PIPELINE_FORWARD;
        peak = live > peak ? live : peak;
        live -= list[i].kind == TRII_PIPELINE_BACKWARD || list[i].kind == TRII_PIPELINE_WEIGHT;
    }
    assert_int_equal(live, 0);
    return peak;
}

/* makespan and peaks as of a rank's whole part, so divided by its stages. */
static void expect_times(tri_pipeline_schedule schedule, int ranks, int each, int m,
                         double makespan, const double *peaks)
{
    const trii_pipeline_shape shape = {schedule, ranks, ranks * each, m};
    trii_pipeline_times times;

    CHECK_OK(trii_pipeline_shape_check(&shape));
    CHECK_OK(trii_pipeline_times_find(&shape, &times));
    if ((double)times.units != makespan * each)
        fail_msg("%s, %d ranks, %d micro-batches: %g, not %g",
                 trii_pipeline_schedule_name(schedule), ranks, m, (double)times.units / each,
                 makespan);
    for (int r = 0; r < ranks; r++) {
        double peak = (double)peak_of(times.actions + r * times.n, times.n) / each;

        assert_true(fabs(trii_pipeline_idle(&times, r) - (1 - 3 * m / makespan)) < 1e-12);
        if (peak != peaks[r])
            fail_msg("%s, %d ranks, %d micro-batches: rank %d keeps %g, not %g",
                     trii_pipeline_schedule_name(schedule), ranks, m, r, peak, peaks[r]);
    }
    trii_pipeline_times_fini(&times);
}

#define TIMES(schedule, ranks, each, m, makespan, ...)                                             \
    expect_times(TRI_PIPELINE_##schedule, ranks, each, m, makespan, (const double[]){__VA_ARGS__})

static void bubbles_and_peaks_are_those_of_the_formulas(void **state)
{
    (void)state;
    TIMES(GPIPE, 2, 1, 4, 15, 4, 4);
    TIMES(GPIPE, 2, 1, 8, 27, 8, 8);
    TIMES(GPIPE, 4, 1, 4, 21, 4, 4, 4, 4);
    TIMES(GPIPE, 4, 1, 8, 33, 8, 8, 8, 8);
    TIMES(1F1B, 2, 1, 4, 15, 2, 1);
    TIMES(1F1B, 2, 1, 8, 27, 2, 1);
    TIMES(1F1B, 4, 1, 4, 21, 4, 3, 2, 1);
    TIMES(1F1B, 4, 1, 8, 33, 4, 3, 2, 1);
    TIMES(INTERLEAVED, 2, 2, 4, 13.5, 2.5, 1.5);
    TIMES(INTERLEAVED, 2, 2, 8, 25.5, 2.5, 1.5);
    TIMES(INTERLEAVED, 4, 2, 4, 16.5, 4, 4, 3.5, 2.5);
    TIMES(INTERLEAVED, 4, 2, 8, 28.5, 5.5, 4.5, 3.5, 2.5);
    TIMES(LOOPED_BFS, 2, 2, 4, 13.5, 4, 4);
    TIMES(LOOPED_BFS, 2, 2, 8, 25.5, 8, 8);
    TIMES(LOOPED_BFS, 4, 2, 4, 16.5, 4, 4, 4, 4);
    TIMES(LOOPED_BFS, 4, 2, 8, 28.5, 8, 8, 8, 8);
    TIMES(ZERO_BUBBLE, 2, 1, 4, 13, 2, 2);
    TIMES(ZERO_BUBBLE, 2, 1, 8, 25, 2, 2);
    TIMES(ZERO_BUBBLE, 4, 1, 4, 15, 4, 4, 4, 4);
    TIMES(ZERO_BUBBLE, 4, 1, 8, 27, 4, 4, 4, 4);
    TIMES(ZERO_BUBBLE, 2, 2, 4, 12.5, 2, 2);
    TIMES(ZERO_BUBBLE, 2, 2, 8, 24.5, 2, 2);
    TIMES(ZERO_BUBBLE, 4, 2, 4, 13.5, 4, 4, 4, 4);
    TIMES(ZERO_BUBBLE, 4, 2, 8, 25.5, 4, 4, 4, 4);
    TIMES(ZBV, 2, 2, 4, 12.5, 2, 2);
    TIMES(ZBV, 2, 2, 8, 24.5, 2, 2);
    TIMES(ZBV, 4, 2, 4, 15, 2.5, 3, 3.5, 4);
    TIMES(ZBV, 4, 2, 8, 25.5, 4, 4, 4, 4);
}

static void ranks_never_wait_for_each_other(void **state)
{
    (void)state;
    for (int schedule = TRI_PIPELINE_1F1B; schedule <= TRI_PIPELINE_ZBV; schedule++)
        for (int ranks = 1; ranks <= MOST_RANKS; ranks++)
            for (int each = 1; each <= 4; each++)
                for (int m = 1; m <= 3 * ranks + 1; m++) {
                    const trii_pipeline_shape s = {(tri_pipeline_schedule)schedule, ranks,
                                                   ranks * each, m};

                    trii_pipeline_times times;

                    if (trii_pipeline_shape_check(&s) != TRI_OK)
                        continue;
                    CHECK_OK(trii_pipeline_times_find(&s, &times)); /* else they wait */
                    for (int r = 0; r < ranks; r++)
                        check_order(times.actions + r * times.n, times.n);
                    trii_pipeline_times_fini(&times);
                }
}

/* --- what is refused ------------------------------------------------------ */

static void refuse(tri_pipeline_schedule schedule, int ranks, int stages, int m, const char *part)
{
    const trii_pipeline_shape s = {schedule, ranks, stages, m};

    CHECK_FAILS(trii_pipeline_shape_check(&s), TRI_ERR_INVALID_ARG, part);
}

static void numbers_that_do_not_fit_are_refused_with_some_that_do(void **state)
{
    (void)state;
    refuse(TRI_PIPELINE_1F1B, 2, 0, 4, "0 stages: 1 to 1024 are allowed");
    refuse(TRI_PIPELINE_1F1B, 2, 2, 0, "0 micro-batches: 1 to 65536 are allowed");
    refuse(TRI_PIPELINE_1F1B, 2, 2, -1, "-1 micro-batches");
    refuse(TRI_PIPELINE_1F1B, 4, 2, 4,
           "2 stages over 4 ranks: all ranks have equally many, such "
           "as 4");
    refuse(TRI_PIPELINE_INTERLEAVED, 4, 9, 4,
           "9 stages over 4 ranks: all ranks have equally many, "
           "such as 8");
    refuse(TRI_PIPELINE_1F1B, 2, 4, 4,
           "4 stages over 2 ranks: schedule 1f1b has one a rank; interleaved takes several");
    refuse(TRI_PIPELINE_GPIPE, 2, 4, 4, "schedule gpipe has one a rank; looped_bfs takes several");
    refuse(TRI_PIPELINE_ZBV, 2, 2, 4, "schedule zbv has two a rank, 4 in all");
    refuse(TRI_PIPELINE_INTERLEAVED, 2, 4, 5,
           "5 micro-batches are 2 rounds over 2 ranks, which must be equal under schedule "
           "interleaved with several stages a rank: 4 or 6 would fit");
    refuse(TRI_PIPELINE_ZERO_BUBBLE, 4, 8, 9, "8 or 10 would fit");
    refuse((tri_pipeline_schedule)17, 2, 2, 4, "schedule 17 does not exist");
    refuse((tri_pipeline_schedule)-1, 2, 2, 4, "schedule -1 does not exist");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(two_ranks_have_torch_s_lists),
    cmocka_unit_test(four_ranks_have_torch_s_lists),
    cmocka_unit_test(bubbles_and_peaks_are_those_of_the_formulas),
    cmocka_unit_test(ranks_never_wait_for_each_other),
    cmocka_unit_test(numbers_that_do_not_fit_are_refused_with_some_that_do),
};

TEST_MAIN(tests)
