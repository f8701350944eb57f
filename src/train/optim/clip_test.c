/* clip_test.c - clipping of gradients as a part of the step: what may stand around it, and what may
 * not. optimizers_test.c compares values with PyTorch. */
#include <trireme/trireme.h>

#include "base/compiler.h"
#include "train/graph/step/step.h"
#include "testing/check.h"
#include "testing/optim_problem.h"

static void backward(problem *p)
{
    tri_backward(tri_mse_loss(tri_forward(p->net, p->x), p->y, NULL));
}

static void weights(problem *p, double out[6])
{
    read_param(p->net, "weight", out, 6);
}

/* The norm of what has added up is asked for, and that is scaled. */
static void accumulated_gradients_are_clipped_as_one(void **state)
{
    problem p = problem_create(TRI_DTYPE_F64), q = problem_create(TRI_DTYPE_F64);
    tri_optimizer *a = tri_sgd(p.net, 0.1, NULL), *b = tri_sgd(q.net, 0.1, NULL);
    double once, twice, wa[6], wb[6];
    tri_tensor *norm;

    (void)state;
    backward(&p);
    backward(&p);
    norm = tri_clip_grad_norm(a, 0.5);
    CHECK_OK(tri_optimizer_step(a));
    twice = tri_item(norm);
    tri_step_end();
    backward(&q);
    norm = tri_clip_grad_norm(b, 0.5);
    CHECK_OK(tri_optimizer_step(b));
    once = tri_item(norm);
    tri_step_end();
    check_near(&twice, &(double){2 * once}, 1, 1e-14);
    weights(&p, wa);
    weights(&q, wb);
    check_near(wa, wb, 6, 1e-6); /* the same direction, and one length but for 1e-6 */
    tri_optimizer_destroy(a);
    tri_optimizer_destroy(b);
    problem_destroy(&p);
    problem_destroy(&q);
}

/* A program that logs the norm before it updates runs the step in two parts. */
static void the_norm_may_be_read_before_the_update(void **state)
{
    problem p = problem_create(TRI_DTYPE_F64), q = problem_create(TRI_DTYPE_F64);
    tri_optimizer *a = tri_adam(p.net, 0.1, NULL), *b = tri_adam(q.net, 0.1, NULL);
    double wa[6], wb[6];

    (void)state;
    for (int step = 0; step < 3; step++) {
        tri_tensor *norm;

        backward(&p);
        norm = tri_clip_grad_norm(a, 0.5);
        assert_true(tri_item(norm) > 0.5);
        CHECK_OK(tri_optimizer_step(a));
        tri_step_end();
        backward(&q);
        (void)tri_clip_grad_norm(b, 0.5);
        CHECK_OK(tri_optimizer_step(b));
        tri_step_end();
    }
    weights(&p, wa);
    weights(&q, wb);
    check_near(wa, wb, 6, 0.0);
    tri_optimizer_destroy(a);
    tri_optimizer_destroy(b);
    problem_destroy(&p);
    problem_destroy(&q);
}

static void without_gradients_the_norm_is_zero(void **state)
{
    problem p = problem_create(TRI_DTYPE_F64);
    tri_optimizer *opt = tri_sgd(p.net, 0.1, NULL);
    tri_tensor *norm = tri_clip_grad_norm(opt, 1.0);
    double before[6], after[6];

    (void)state;
    weights(&p, before);
    assert_true(tri_item(norm) == 0.0);
    CHECK_OK(tri_optimizer_step(opt));
    assert_true(tri_item(tri_clip_grad_norm_of(NULL, 0, 1.0)) == 0.0);
    tri_clip_grad_value(opt, 1.0);
    tri_optimizer_zero_grad(opt); /* the clip goes with the gradients */
    tri_step_end();
    (void)one_step(&p, opt);
    weights(&p, after);
    assert_true(before[0] != after[0]);
    tri_optimizer_destroy(opt);
    problem_destroy(&p);
}

/* A gradient that is not a number is not hidden: PyTorch multiplies by NaN, too. */
static void what_is_not_finite_is_told(void **state)
{
    problem p = problem_create(TRI_DTYPE_F64);
    tri_optimizer *opt = tri_sgd(p.net, 0.1, NULL);
    tri_tensor *norm;
    double w[6];

    (void)state;
    tri_backward(tri_mul_scalar(tri_mse_loss(tri_forward(p.net, p.x), p.y, NULL), (double)NAN));
    norm = tri_clip_grad_norm(opt, 1.0);
    CHECK_OK(tri_optimizer_step(opt));
    assert_true(isnan(tri_item(norm)));
    tri_step_end();
    weights(&p, w);
    assert_true(isnan(w[0]));
    tri_optimizer_destroy(opt);
    problem_destroy(&p);
}

static void a_gradient_must_not_change_after_clipping(void **state)
{
    problem p = problem_create(TRI_DTYPE_F64);
    tri_optimizer *opt = tri_sgd(p.net, 0.1, NULL);
    double before[6], after[6];

    (void)state;
    weights(&p, before);
    backward(&p);
    (void)tri_clip_grad_norm(opt, 1.0);
    backward(&p);
    CHECK_FAILS(tri_optimizer_step(opt), TRI_ERR_STATE, "weight: its gradient has changed");
    tri_step_end();
    tri_optimizer_zero_grad(opt);

    backward(&p);
    tri_clip_grad_value(opt, 1.0);
    tri_step_end();
    CHECK_FAILS(tri_optimizer_step(opt), TRI_ERR_STATE, "clipped in a step that has ended");
    tri_step_end();
    weights(&p, after);
    check_near(after, before, 6, 0.0);
    tri_optimizer_zero_grad(opt);
    (void)one_step(&p, opt); /* and all is well again */
    tri_optimizer_destroy(opt);
    problem_destroy(&p);
}

static void bad_bounds_come_out_of_the_step(void **state)
{
    static const double bad[] = {-1.0, (double)NAN};
    problem p = problem_create(TRI_DTYPE_F64);
    tri_optimizer *opt = tri_sgd(p.net, 0.1, NULL);
    tri_tensor *weight = tri_module_find(p.net, "weight"), *null = NULL;

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(bad); i++) {
        backward(&p);
        CHECK_FAILS(tri_tensor_status(tri_clip_grad_norm(opt, bad[i])), TRI_ERR_INVALID_ARG,
                    "tri_clip_grad_norm at");
        CHECK_FAILS(tri_optimizer_step(opt), TRI_ERR_INVALID_ARG, "max_norm");
        tri_step_end();
        tri_optimizer_zero_grad(opt);
        tri_clip_grad_value(opt, bad[i]);
        CHECK_FAILS(tri_optimizer_step(opt), TRI_ERR_INVALID_ARG, "limit");
        tri_step_end();
    }
    (void)tri_clip_grad_norm_of(&weight, -1, 1.0);
    CHECK_FAILS(tri_step_end_status(), TRI_ERR_INVALID_ARG, "a list of -1");
    (void)tri_clip_grad_norm_of(&null, 1, 1.0);
    CHECK_FAILS(tri_step_end_status(), TRI_ERR_INVALID_ARG, "element 0 of the list is NULL");
    (void)tri_clip_grad_norm(NULL, 1.0);
    CHECK_FAILS(tri_step_end_status(), TRI_ERR_INVALID_ARG, "optimizer is NULL");
    for (int i = 0; i < 5; i++)
        tri_clip_grad_value(opt, 1.0);
    CHECK_FAILS(tri_optimizer_step(opt), TRI_ERR_INVALID_ARG, "more than 4 clips");
    tri_step_end();
    tri_optimizer_destroy(opt);
    problem_destroy(&p);
}

/* The plan adds in the order of the reference kernel, over blocks, tensors and nodes. */
static void plans_and_reference_kernels_give_one_norm(void **state)
{
    enum { N = 150 }; /* more than one node takes */
    tri_tensor *params[N];
    double norms[2], exact = 0;
    float *values = malloc((size_t)70001 * sizeof(float));

    (void)state;
    for (int i = 0; i < N; i++) {
        int64_t n = i == 0 ? 0 : i == 1 ? 1 : i == 2 ? 70001 : (i < 30 ? 4096 : 64) * (i % 3) + i;

        for (int64_t k = 0; k < n; k++) {
            values[k] = (float)((k * 7919 + i) % 1013) / 517.0f;
            exact += (double)values[k] * (double)values[k];
        }
        params[i] = tri_tensor_from(&n, 1, TRI_DTYPE_F32, values);
        tri_requires_grad(params[i], true);
    }
    for (int run = 0; run < 2; run++) {
        tri_tensor *loss = NULL, *norm;

        trii_executor_set(run == 1 ? &trii_executor_reference : NULL);
        for (int i = 0; i < N; i++) {
            tri_tensor *half = tri_mul_scalar(tri_sum(tri_square(params[i]), NULL, 0, false), 0.5);

            loss = loss != NULL ? tri_add(loss, half) : half;
        }
        tri_backward(loss);
        norm = tri_clip_grad_norm_of(params, N, INFINITY);
        norms[run] = tri_item(norm);
        tri_step_end();
        for (int i = 0; i < N; i++)
            trii_grad_clear(params[i]);
    }
    trii_executor_set(NULL);
    assert_true(norms[0] == norms[1]);
    assert_true(fabs(norms[0] - sqrt(exact)) <= 1e-6 * sqrt(exact));
    for (int i = 0; i < N; i++)
        tri_tensor_unref(params[i]);
    free(values);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accumulated_gradients_are_clipped_as_one),
        cmocka_unit_test(the_norm_may_be_read_before_the_update),
        cmocka_unit_test(without_gradients_the_norm_is_zero),
        cmocka_unit_test(what_is_not_finite_is_told),
        cmocka_unit_test(a_gradient_must_not_change_after_clipping),
        cmocka_unit_test(bad_bounds_come_out_of_the_step),
        cmocka_unit_test(plans_and_reference_kernels_give_one_norm),
    };

    return test_main(argc, argv, tests, TRII_COUNT_OF(tests));
}
