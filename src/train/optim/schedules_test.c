/* schedules_test.c - learning rates as functions of the step, against values of PyTorch. */
#include <math.h>

#include <trireme/trireme.h>

#include "base/compiler.h"
#include "testing/check.h"
#include "testing/optim_golden.h"

static void near(double got, double wanted)
{
    if (!(fabs(got - wanted) <= 1e-14))
        fail_msg("%.17g instead of %.17g", got, wanted);
}

static void steps_and_powers(void **state)
{
    const int64_t milestones[] = {5, 2, 9, 5};

    (void)state;
    for (int64_t s = 0; s < 12; s++) {
        near(tri_schedule_step(0.4, 3, 0.5, s), golden_lr_step[s]);
        near(tri_schedule_multi_step(0.4, milestones, 4, 0.3, s), golden_lr_multi_step[s]);
        near(tri_schedule_exponential(0.4, 0.9, s), golden_lr_exponential[s]);
    }
    near(tri_schedule_step(0.4, 0, 0.5, 2), 0.1); /* 0 counts as 1 */
    near(tri_schedule_multi_step(0.4, NULL, 3, 0.5, 2), 0.4);
}

static void lines(void **state)
{
    (void)state;
    for (int64_t s = 0; s < 12; s++)
        near(tri_schedule_linear(0.4, 0.25, 0.75, 6, s), golden_lr_linear[s]);
    for (int64_t s = 0; s < 8; s++)
        near(tri_schedule_linear(0.4, 1.0 / 3.0, 1.0, 5, s), golden_lr_linear_default[s]);
    near(tri_schedule_linear(0.4, 0.25, 0.75, 0, 0), 0.3);
    near(tri_schedule_linear(0.4, 0.25, 0.75, 6, -3), 0.1);
}

static void cosines_that_begin_again(void **state)
{
    (void)state;
    for (int64_t s = 0; s < (int64_t)TRII_COUNT_OF(golden_lr_restarts); s++)
        near(tri_schedule_cosine_restarts(0.4, 0.05, 4, 1, s), golden_lr_restarts[s]);
    for (int64_t s = 0; s < (int64_t)TRII_COUNT_OF(golden_lr_restarts_2); s++)
        near(tri_schedule_cosine_restarts(0.4, 0.01, 3, 2, s), golden_lr_restarts_2[s]);
    near(tri_schedule_cosine_restarts(0.4, 0.01, 0, 0, 7), 0.4);
    assert_true(isfinite(tri_schedule_cosine_restarts(0.4, 0.01, 1, 2, INT64_MAX)));
}

static void warm_up_and_cosine(void **state)
{
    (void)state;
    near(tri_schedule_warmup_cosine(0.4, 0.04, 4, 20, 0), 0.08);
    near(tri_schedule_warmup_cosine(0.4, 0.04, 4, 20, 3), 0.32);
    near(tri_schedule_warmup_cosine(0.4, 0.04, 4, 20, 4), 0.4);
    near(tri_schedule_warmup_cosine(0.4, 0.04, 4, 20, 12), 0.22); /* half way */
    near(tri_schedule_warmup_cosine(0.4, 0.04, 4, 20, 20), 0.04);
    near(tri_schedule_warmup_cosine(0.4, 0.04, 4, 20, 99), 0.04);
    near(tri_schedule_warmup_cosine(0.4, 0.04, 0, 20, 0), 0.4);
    near(tri_schedule_warmup_cosine(0.4, 0.04, 30, 20, 25),
         0.4 * 26 / 31); /* ends during warm-up */
    near(tri_schedule_warmup_cosine(0.4, 0.04, 4, 20, -1), 0.08);
}

static double line(double lr, int64_t step, void *arg)
{
    const double *from = arg;

    return tri_schedule_linear(lr, *from, 1.0, 4, step);
}

static double cosine(double lr, int64_t step, void *arg)
{
    (void)arg;
    return tri_schedule_cosine(lr, 0.02, 8, step);
}

static double lowest_cosine(double lr, int64_t step, void *arg)
{
    (void)arg;
    return tri_schedule_cosine(lr, 5e-5, 8, step);
}

static double power(double lr, int64_t step, void *arg)
{
    const double *gamma = arg;

    return tri_schedule_exponential(lr, *gamma, step);
}

static void schedules_are_put_together(void **state)
{
    double tenth = 0.1, half = 0.5, most = 0.9;
    const tri_schedule_part one_by_one[] = {{.fn = line, .arg = &tenth, .steps = 4},
                                            {.fn = cosine, .arg = NULL, .steps = 6},
                                            {.fn = power, .arg = &half, .steps = 0}};
    const tri_schedule_part at_once[] = {{.fn = line, .arg = &half, .steps = 0},
                                         {.fn = power, .arg = &most, .steps = 0}};

    (void)state;
    for (int64_t s = 0; s < (int64_t)TRII_COUNT_OF(golden_lr_sequential); s++)
        near(tri_schedule_sequential(0.4, one_by_one, 3, s), golden_lr_sequential[s]);
    for (int64_t s = 0; s < (int64_t)TRII_COUNT_OF(golden_lr_chained); s++)
        near(tri_schedule_chained(0.4, at_once, 2, s), golden_lr_chained[s]);
    near(tri_schedule_sequential(0.4, NULL, 2, 3), 0.4);
    near(tri_schedule_sequential(0.4, one_by_one, 0, 3), 0.4);
    near(tri_schedule_chained(0.4, NULL, 2, 3), 0.4);
    near(tri_schedule_sequential(0.4, &(tri_schedule_part){0}, 1, 3), 0.4);
}

static double warmed_cosine(double lr, int64_t step, void *arg)
{
    double tenth = 0.1;
    const tri_schedule_part parts[] = {{.fn = line, .arg = &tenth, .steps = 4},
                                       {.fn = lowest_cosine, .arg = NULL, .steps = 0}};

    assert_null(arg);
    return tri_schedule_sequential(lr, parts, 2, step);
}

static void each_group_has_the_schedule_of_its_own_rate(void **state)
{
    tri_tensor *a = tri_tensor_create(TRI_SHAPE(1), TRI_DTYPE_F32);
    tri_tensor *b = tri_tensor_create(TRI_SHAPE(1), TRI_DTYPE_F32);
    tri_optimizer *opt =
        tri_sgd_of((tri_param_group[]){{.params = &a, .n_params = 1, .lr = TRI_SET(1e-4)},
                                       {.params = &b, .n_params = 1}},
                   2, 1e-2, NULL);
    double down = -1.0;

    (void)state;
    for (int64_t s = 0; s < 12; s++) {
        tri_optimizer_schedule(opt, s, warmed_cosine, NULL);
        for (int g = 0; g < 2; g++)
            near(tri_optimizer_hyper(opt, g, TRI_HYPER_LR), golden_lr_groups[g][s]);
    }
    tri_optimizer_set_lr(opt, 0.3); /* sets all groups; initial rates are kept */
    near(tri_optimizer_hyper(opt, 0, TRI_HYPER_LR), 0.3);
    tri_optimizer_schedule(opt, 3, NULL, NULL);
    near(tri_optimizer_hyper(opt, 0, TRI_HYPER_LR), 1e-4);
    near(tri_optimizer_hyper(opt, 1, TRI_HYPER_LR), 1e-2);
    tri_optimizer_schedule(opt, 1, power, &down);
    CHECK_FAILS(tri_optimizer_status(opt), TRI_ERR_INVALID_ARG, "lr -0.0001");
    tri_optimizer_schedule(opt, 1, NULL, NULL);
    tri_optimizer_schedule(NULL, 1, power, &down);
    tri_optimizer_destroy(opt);
    tri_tensor_unref(a);
    tri_tensor_unref(b);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_and_powers),
        cmocka_unit_test(lines),
        cmocka_unit_test(cosines_that_begin_again),
        cmocka_unit_test(warm_up_and_cosine),
        cmocka_unit_test(schedules_are_put_together),
        cmocka_unit_test(each_group_has_the_schedule_of_its_own_rate),
    };

    return test_main(argc, argv, tests, TRII_COUNT_OF(tests));
}
