/* optim_test.c - SGD in all its variants and the schedules, against values of PyTorch. */
/* ctest: threads=none */
#include <math.h>

#include <trireme/trireme.h>

#include "base/compiler.h"
#include "testing/check.h"
#include "testing/nn_golden.h"
#include "testing/optim_problem.h"

/* --- SGD ------------------------------------------------------------------ */

static tri_sgd_options options_of(const struct golden_sgd *g)
{
    return (tri_sgd_options){.momentum = g->momentum,
                             .dampening = g->dampening,
                             .weight_decay = g->weight_decay,
                             .nesterov = g->nesterov,
                             .maximize = g->maximize};
}

static void sgd_is_that_of_torch_in_double(void **state)
{
    (void)state;
    for (size_t c = 0; c < TRII_COUNT_OF(golden_sgd); c++) {
        const struct golden_sgd *g = &golden_sgd[c];
        problem p = problem_create(TRI_DTYPE_F64);
        tri_sgd_options options = options_of(g);
        tri_optimizer *opt = tri_sgd(p.net, 0.1, &options);
        double losses[4], weight[6], bias[2];

        for (int step = 0; step < 4; step++) {
            tri_optimizer_set_lr(opt, 0.1 / (step + 1));
            losses[step] = one_step(&p, opt);
        }
        read_param(p.net, "weight", weight, 6);
        read_param(p.net, "bias", bias, 2);
        check_near(losses, g->losses, 4, 1e-14);
        check_near(weight, g->weight64, 6, 1e-14);
        check_near(bias, g->bias64, 2, 1e-14);
        tri_optimizer_destroy(opt);
        problem_destroy(&p);
    }
}

static void sgd_is_that_of_torch_in_single(void **state)
{
    (void)state;
    for (size_t c = 0; c < TRII_COUNT_OF(golden_sgd); c++) {
        const struct golden_sgd *g = &golden_sgd[c];
        problem p = problem_create(TRI_DTYPE_F32);
        tri_sgd_options options = options_of(g);
        tri_optimizer *opt = tri_sgd(p.net, 0.1, &options);
        double weight[6];

        for (int step = 0; step < 4; step++) {
            tri_optimizer_set_lr(opt, 0.1 / (step + 1));
            (void)one_step(&p, opt);
        }
        read_param(p.net, "weight", weight, 6);
        check_near(weight, g->weight32, 6, 1e-6);
        tri_optimizer_destroy(opt);
        problem_destroy(&p);
    }
}

static void a_restored_optimizer_goes_on_with_the_same_bits(void **state)
{
    const tri_sgd_options options = {.momentum = 0.7, .dampening = 0.2, .weight_decay = 0.01};
    problem p = problem_create(TRI_DTYPE_F32), q = problem_create(TRI_DTYPE_F32);
    tri_optimizer *a = tri_sgd(p.net, 0.1, &options), *b = tri_sgd(q.net, 0.1, &options);
    char bytes[256];

    (void)state;
    (void)one_step(&p, a);
    (void)one_step(&p, a);
    assert_int_equal(tri_optimizer_state_count(a), 3);
    assert_string_equal(tri_optimizer_state(a, 0).name, "weight.momentum_buffer");
    assert_string_equal(tri_optimizer_state(a, 2).name, "step");
    for (int i = 0; i < 5; i++) {
        tri_tensor *from =
            i < 3 ? tri_optimizer_state(a, i).tensor : tri_module_state(p.net, i - 3).tensor;
        tri_tensor *to =
            i < 3 ? tri_optimizer_state(b, i).tensor : tri_module_state(q.net, i - 3).tensor;
        size_t n = (size_t)tri_tensor_numel(from) * tri_dtype_size(tri_tensor_dtype(from));

        CHECK_OK(tri_tensor_copy_out(from, bytes, n));
        CHECK_OK(tri_tensor_copy_in(to, bytes, n));
    }
    for (int step = 0; step < 3; step++)
        assert_true(one_step(&p, a) == one_step(&q, b));
    tri_optimizer_destroy(a);
    tri_optimizer_destroy(b);
    problem_destroy(&p);
    problem_destroy(&q);
}

static void gradients_add_up_until_they_are_consumed(void **state)
{
    problem p = problem_create(TRI_DTYPE_F64), q = problem_create(TRI_DTYPE_F64);
    tri_optimizer *a = tri_sgd(p.net, 0.1, NULL), *b = tri_sgd(q.net, 0.2, NULL);
    double wa[6], wb[6];

    (void)state;
    for (int i = 0; i < 2; i++) /* twice the gradient at half the rate */
        tri_backward(tri_mse_loss(tri_forward(p.net, p.x), p.y, NULL));
    CHECK_OK(tri_optimizer_step(a));
    tri_step_end();
    (void)one_step(&q, b);
    CHECK_OK(tri_tensor_copy_out(tri_module_find(p.net, "weight"), wa, sizeof(wa)));
    CHECK_OK(tri_tensor_copy_out(tri_module_find(q.net, "weight"), wb, sizeof(wb)));
    check_near(wa, wb, 6, 1e-15);

    tri_backward(tri_mse_loss(tri_forward(p.net, p.x), p.y, NULL));
    tri_optimizer_zero_grad(a);
    CHECK_OK(tri_optimizer_step(a)); /* nothing to do */
    tri_step_end();
    CHECK_OK(tri_tensor_copy_out(tri_module_find(p.net, "weight"), wb, sizeof(wb)));
    check_near(wa, wb, 6, 0.0);
    tri_optimizer_destroy(a);
    tri_optimizer_destroy(b);
    problem_destroy(&p);
    problem_destroy(&q);
}

static void bad_options_come_out_of_the_step(void **state)
{
    problem p = problem_create(TRI_DTYPE_F32);
    tri_optimizer *opt = tri_sgd(p.net, -1.0, NULL);

    (void)state;
    CHECK_FAILS(tri_optimizer_step(opt), TRI_ERR_INVALID_ARG, "lr -1");
    tri_optimizer_destroy(opt);
    opt = tri_sgd(p.net, 0.1, &(tri_sgd_options){.nesterov = true});
    CHECK_FAILS(tri_optimizer_step(opt), TRI_ERR_INVALID_ARG, "nesterov");
    tri_optimizer_destroy(opt);
    opt = tri_sgd(p.net, 0.1, &(tri_sgd_options){.momentum = -0.5});
    CHECK_FAILS(tri_optimizer_step(opt), TRI_ERR_INVALID_ARG, "momentum -0.5");
    assert_int_equal(tri_optimizer_state_count(opt), 0);
    tri_optimizer_destroy(opt);
    opt = tri_sgd(p.net, 0.1, &(tri_sgd_options){.weight_decay = -0.5});
    CHECK_FAILS(tri_optimizer_step(opt), TRI_ERR_INVALID_ARG, "weight_decay -0.5");
    tri_optimizer_destroy(opt);
    opt = tri_sgd(p.net, 0.1, NULL);
    assert_null(tri_optimizer_state(opt, -1).name);
    assert_null(tri_optimizer_state(opt, tri_optimizer_state_count(opt)).name);
    tri_optimizer_destroy(opt);
    tri_optimizer_destroy(NULL);
    assert_int_equal(tri_optimizer_state_count(NULL), 0);
    problem_destroy(&p);
    p.net = tri_nn_linear(-1, 2, NULL);
    opt = tri_sgd(p.net, 0.1, NULL);
    CHECK_FAILS(tri_optimizer_step(opt), TRI_ERR_INVALID_ARG, "nn_linear(-1, 2)");
    tri_optimizer_destroy(opt);
    tri_module_destroy(p.net);
}

/* What a schedule or a slip gives later is held to the same. */
static void a_bad_rate_later_comes_out_of_the_step(void **state)
{
    const double bad[] = {-1.0, (double)NAN, (double)INFINITY};

    (void)state;
    for (size_t i = 0; i < 2 * TRII_COUNT_OF(bad); i++) {
        problem p = problem_create(TRI_DTYPE_F32);
        tri_optimizer *opt = tri_sgd(p.net, 0.1, &(tri_sgd_options){.momentum = 0.9});
        uint64_t before, after;

        CHECK_OK(tri_module_hash(p.net, &before));
        if (i % 2 == 0)
            tri_optimizer_set_lr(opt, bad[i / 2]);
        else
            tri_optimizer_set_hyper(opt, 0, TRI_HYPER_MOMENTUM, bad[i / 2]);
        tri_backward(tri_mse_loss(tri_forward(p.net, p.x), p.y, NULL));
        CHECK_FAILS(tri_optimizer_step(opt), TRI_ERR_INVALID_ARG,
                    i % 2 == 0 ? "sgd: lr " : "sgd: momentum ");
        tri_step_end();
        CHECK_OK(tri_module_hash(p.net, &after));
        assert_true(before == after);
        tri_optimizer_destroy(opt);
        problem_destroy(&p);
    }
}

static void errors_of_the_step_come_out_of_the_optimizer(void **state)
{
    problem p = problem_create(TRI_DTYPE_F32);
    tri_optimizer *opt = tri_sgd(p.net, 0.1, NULL);

    (void)state;
    tri_backward(tri_mse_loss(tri_forward(p.net, p.y), p.y, NULL));
    CHECK_FAILS(tri_optimizer_step(opt), TRI_ERR_INVALID_ARG, "optim_test.c:");
    assert_int_equal(tri_step_end_status(), TRI_ERR_INVALID_ARG);
    assert_true(isfinite(one_step(&p, opt))); /* the next step is a new one */
    tri_optimizer_destroy(opt);
    problem_destroy(&p);
}

/* A run that fails changes no weight and no state: the update after it is still the first one. */
static void a_failed_step_is_no_update(void **state)
{
    const int64_t labels[4] = {0, 1, 77, 1};
    problem p = problem_create(TRI_DTYPE_F64);
    tri_optimizer *opt = tri_sgd(p.net, 0.1, &(tri_sgd_options){.momentum = 0.9});
    tri_tensor *t = tri_tensor_from((int64_t[]){4}, 1, TRI_DTYPE_I64, labels), *steps = NULL;
    int64_t counts[2];

    (void)state;
    for (int i = 0; i < tri_optimizer_state_count(opt); i++)
        if (strcmp(tri_optimizer_state(opt, i).name, "step") == 0)
            steps = tri_optimizer_state(opt, i).tensor;
    assert_non_null(steps);
    tri_backward(tri_cross_entropy(tri_forward(p.net, p.x), t, NULL));
    CHECK_FAILS(tri_optimizer_step(opt), TRI_ERR_INVALID_ARG, "77");
    tri_step_end();
    CHECK_OK(tri_tensor_copy_out(steps, counts, sizeof(counts)));
    assert_int_equal(counts[0], 0);
    assert_int_equal(counts[1], 0);
    (void)one_step(&p, opt);
    CHECK_OK(tri_tensor_copy_out(steps, counts, sizeof(counts)));
    assert_int_equal(counts[0], 1);
    assert_int_equal(counts[1], 1);
    tri_optimizer_destroy(opt);
    tri_tensor_unref(t);
    problem_destroy(&p);
}

/* --- schedules ------------------------------------------------------------ */

static void cosine_is_that_of_torch(void **state)
{
    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(golden_cosine); i++) {
        double lr = tri_schedule_cosine(0.4, 0.05, 12, (int64_t)i);

        check_near(&lr, &golden_cosine[i], 1, 1e-14);
    }
    assert_true(tri_schedule_constant(0.3, 77) == 0.3);
}

static void check_cycle(const tri_schedule_one_cycle_options *opt, const double *lr,
                        const double *momentum, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        tri_one_cycle_point p = tri_schedule_one_cycle(0.4, 21, (int64_t)i, opt);

        check_near(&p.lr, &lr[i], 1, 1e-14);
        check_near(&p.momentum, &momentum[i], 1, 1e-14);
    }
}

static void one_cycle_gives_no_number_for_shares_and_factors_that_cannot_be(void **state)
{
    static const double none[] = {-0.1, 1.1, NAN, INFINITY};
    static const double factors[] = {0, -1, NAN};

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(none); i++)
        assert_true(
            isnan(tri_schedule_one_cycle(
                      0.4, 21, 9, &(tri_schedule_one_cycle_options){.pct_start = TRI_SET(none[i])})
                      .lr));
    for (size_t i = 0; i < TRII_COUNT_OF(factors); i++) {
        const tri_opt factor = TRI_SET(factors[i]);

        assert_true(isnan(tri_schedule_one_cycle(
                              0.4, 21, 9, &(tri_schedule_one_cycle_options){.div_factor = factor})
                              .lr));
        assert_true(
            isnan(tri_schedule_one_cycle(
                      0.4, 21, 9, &(tri_schedule_one_cycle_options){.final_div_factor = factor})
                      .lr));
    }
    for (int i = 0; i < 2; i++) /* no rise, and no fall */
        assert_true(tri_schedule_one_cycle(
                        0.4, 21, 9, &(tri_schedule_one_cycle_options){.pct_start = TRI_SET(i)})
                        .lr > 0);
    assert_true(
        tri_schedule_one_cycle(
            0.4, 21, 20, &(tri_schedule_one_cycle_options){.final_div_factor = TRI_SET(INFINITY)})
            .lr == 0);
}

static void one_cycle_is_that_of_torch(void **state)
{
    (void)state;
    check_cycle(NULL, golden_cycle_plain_lr, golden_cycle_plain_momentum,
                TRII_COUNT_OF(golden_cycle_plain_lr));
    check_cycle(&(tri_schedule_one_cycle_options){.linear = true, .pct_start = TRI_SET(0.25)},
                golden_cycle_linear_lr, golden_cycle_linear_momentum,
                TRII_COUNT_OF(golden_cycle_linear_lr));
    check_cycle(&(tri_schedule_one_cycle_options){.three_phase = true,
                                                  .div_factor = TRI_SET(10),
                                                  .final_div_factor = TRI_SET(100),
                                                  .momentum_base = TRI_SET(0.8),
                                                  .momentum_max = TRI_SET(0.9)},
                golden_cycle_three_lr, golden_cycle_three_momentum,
                TRII_COUNT_OF(golden_cycle_three_lr));
    /* before the first step and after the last it does not change */
    for (int64_t step = 0; step < 5; step++) { /* a rise of 0.2 * 5 = 1 step */
        tri_one_cycle_point p = tri_schedule_one_cycle(
            0.4, 5, step,
            &(tri_schedule_one_cycle_options){.pct_start = TRI_SET(0.2), .linear = true});

        assert_true(step == 0 ? p.lr == 0.4 : p.lr > 0.0 && p.lr < 0.4);
    }
    assert_true(tri_schedule_one_cycle(
                    0.4, 21, 0, &(tri_schedule_one_cycle_options){.momentum_max = TRI_SET(0)})
                    .momentum == 0);
    assert_true(tri_schedule_one_cycle(0.4, 21, -3, NULL).lr ==
                tri_schedule_one_cycle(0.4, 21, 0, NULL).lr);
    assert_true(tri_schedule_one_cycle(0.4, 21, 99, NULL).lr ==
                tri_schedule_one_cycle(0.4, 21, 20, NULL).lr);
    assert_true(tri_schedule_one_cycle(0.4, 21, 99, NULL).momentum ==
                tri_schedule_one_cycle(0.4, 21, 20, NULL).momentum);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sgd_is_that_of_torch_in_double),
        cmocka_unit_test(sgd_is_that_of_torch_in_single),
        cmocka_unit_test(a_restored_optimizer_goes_on_with_the_same_bits),
        cmocka_unit_test(gradients_add_up_until_they_are_consumed),
        cmocka_unit_test(bad_options_come_out_of_the_step),
        cmocka_unit_test(a_bad_rate_later_comes_out_of_the_step),
        cmocka_unit_test(errors_of_the_step_come_out_of_the_optimizer),
        cmocka_unit_test(a_failed_step_is_no_update),
        cmocka_unit_test(cosine_is_that_of_torch),
        cmocka_unit_test(one_cycle_is_that_of_torch),
        cmocka_unit_test(one_cycle_gives_no_number_for_shares_and_factors_that_cannot_be),
    };

    return test_main(argc, argv, tests, TRII_COUNT_OF(tests));
}
