/*
 * remote_optimizer_test.c - steps whose parameters are at several workers, against one process.
 * Workers are threads; what fails is in remote_optimizer_failure_test.c.
 */
#include <math.h>

#include "testing/remote_owners.h"

static void a_step_has_the_bits_of_one_process(void **state)
{
    static const int pieces[] = {1, 2, 4};

    (void)state;
    for (rule r = SGD; r <= ADAM; r++) {
        for (size_t k = 0; k < TRII_COUNT_OF(pieces); k++) {
            remote_owners f;

            owners_begin_with_here(&f, r);
            for (int s = 0; s < 4; s++) {
                tri_backward(model_loss(f.part, f.x, f.y, pieces[k]));
                CHECK_OK(tri_remote_optimizer_step(f.opt));
                tri_step_end();
                model_step(&f.here, f.x, f.y, pieces[k], 1);
            }
            for (int i = 0; i < 3; i += 2) /* at the owners */
                assert_null(tri_grad(tri_module_state(f.m.part[i], 0).tensor));
            owners_end_equal(&f);
        }
    }
}

/* Gradients of several steps of the graph, and of several passes of one, add up. */
static void gradients_add_up_until_the_step(void **state)
{
    remote_owners f;

    (void)state;
    owners_begin_with_here(&f, MOMENTUM);
    for (int s = 0; s < 3; s++) {
        for (int p = 0; p < 3; p++) {
            tri_backward(model_loss(f.part, f.x, f.y, 2));
            if (p == 1)
                tri_step_end();
        }
        CHECK_OK(tri_remote_optimizer_step(f.opt));
        tri_step_end();
        model_step(&f.here, f.x, f.y, 2, 3);
    }
    owners_end_equal(&f);
}

/* torch.distributed.autograd with DistributedOptimizer: loss sum(x * w), x here, w there. */
static void two_steps_are_those_of_torch(void **state)
{
    const tri_sgd_options momentum = {.momentum = 0.9};
    const float one = 1;
    tri_tensor *x, *w;
    static const double expected[] = {0.9, 0.72};
    remote_workers r;
    tri_module *times, *remote;
    tri_optimizer *there, *here;
    tri_remote_optimizer *opt;

    (void)state;
    remote_begin(&r, 2, NULL);
    x = tri_tensor_from((int64_t[]){1, 1}, 2, TRI_DTYPE_F32, &one);
    tri_requires_grad(x, true);
    times = tri_nn_linear(1, 1, &(tri_nn_linear_options){.no_bias = true});
    w = tri_module_find(times, "weight");
    CHECK_OK(tri_tensor_copy_in(w, &one, sizeof(one)));
    there = tri_sgd(times, 0.1, &momentum);
    here = tri_sgd_of(&(tri_param_group){.params = &x, .n_params = 1}, 1, 0.1, &momentum);
    CHECK_OK(tri_remote_serve(r.w.rpc[1], "times", times, there, NULL));
    remote = tri_remote_module(r.w.rpc[0], "w1/times", NULL);
    opt = tri_remote_optimizer_of(here, &remote, 1, NULL);
    for (int s = 0; s < 2; s++) {
        tri_backward(tri_sum(tri_forward(remote, x), NULL, 0, false));
        CHECK_OK(tri_remote_optimizer_step(opt));
        tri_step_end();
        CHECK_NEAR(tri_item(x), expected[s], 1e-6);
        CHECK_NEAR(tri_item(w), expected[s], 1e-6);
        assert_null(tri_grad(w));
        tri_step_end();
    }
    tri_remote_optimizer_destroy(opt);
    tri_module_destroy(remote);
    CHECK_OK(tri_remote_withdraw(r.w.rpc[1], "times"));
    tri_optimizer_destroy(there);
    tri_optimizer_destroy(here);
    tri_module_destroy(times);
    tri_tensor_unref(x);
    remote_end(&r);
}

static void a_step_without_a_backward_changes_nothing(void **state)
{
    remote_owners f;
    uint64_t before;

    (void)state;
    owners_begin(&f, ADAM);
    before = model_hash(&f.m);
    for (int i = 0; i < 3; i++)
        CHECK_OK(tri_remote_optimizer_step(f.opt));
    tri_step_end();
    assert_true(model_hash(&f.m) == before);
    CHECK_OK(owners_step(&f));
    assert_true(model_hash(&f.m) != before);
    owners_end(&f);
}

static void owners_that_the_loss_does_not_reach_stay_as_they_are(void **state)
{
    uint64_t before[3], after;
    tri_tensor *wide;
    remote_owners f;

    (void)state;
    owners_begin(&f, MOMENTUM);
    wide = remote_tensor((int64_t[]){ROWS, 8}, 2, TRI_DTYPE_F32, 3);
    for (int s = 0; s < 3; s++) {
        for (int i = 0; i < 3; i++)
            CHECK_OK(tri_module_hash(f.m.part[i], &before[i]));
        if (s == 0) { /* the first owner alone: nothing of the last result is used */
            tri_tensor *h = tri_forward(f.part[0], f.x);

            (void)tri_forward(f.part[2], tri_forward(f.part[1], h));
            tri_backward(tri_mean(h, NULL, 0, false));
        } else if (s == 1) { /* no owner */
            tri_backward(tri_mean(tri_forward(f.part[1], wide), NULL, 0, false));
        }
        CHECK_OK(tri_remote_optimizer_step(f.opt));
        tri_step_end();
        for (int i = 0; i < 3; i++) {
            CHECK_OK(tri_module_hash(f.m.part[i], &after));
            assert_int_equal(after != before[i], (s == 0 && i == 0) || (s == 1 && i == 1));
        }
    }
    tri_tensor_unref(wide);
    owners_end(&f);
}

static void a_worker_may_own_what_it_trains(void **state)
{
    remote_workers r;
    model m, here;
    tri_module *remote;
    tri_remote_optimizer *opt;
    tri_tensor *x;

    (void)state;
    remote_begin(&r, 1, NULL);
    model_begin(&m, ADAM);
    model_begin(&here, ADAM);
    x = remote_tensor((int64_t[]){ROWS, 6}, 2, TRI_DTYPE_F32, 1);
    CHECK_OK(tri_remote_serve(r.w.rpc[0], "first", m.part[0], m.opt[0], NULL));
    remote = tri_remote_module(r.w.rpc[0], "w0/first", NULL);
    opt = tri_remote_optimizer_of(NULL, &remote, 1, NULL);
    for (int s = 0; s < 3; s++) {
        tri_backward(remote_loss(tri_forward(remote, x)));
        CHECK_OK(tri_remote_optimizer_step(opt));
        tri_step_end();
        tri_backward(remote_loss(tri_forward(here.part[0], x)));
        CHECK_OK(tri_optimizer_step(here.opt[0]));
        tri_step_end();
    }
    remote_expect_equal_state(m.part[0], here.part[0]);
    tri_step_end();
    tri_remote_optimizer_destroy(opt);
    tri_module_destroy(remote);
    CHECK_OK(tri_remote_withdraw(r.w.rpc[0], "first"));
    tri_tensor_unref(x);
    model_end(&m);
    model_end(&here);
    remote_end(&r);
}

/* --- settings ------------------------------------------------------------- */

static void the_learning_rate_reaches_all(void **state)
{
    remote_owners f;

    (void)state;
    owners_begin_with_here(&f, MOMENTUM);
    assert_true(tri_remote_optimizer_lr(f.opt) == 0.1);
    for (int s = 0; s < 3; s++) {
        double lr = 0.2 / (s + 1);

        tri_remote_optimizer_set_lr(f.opt, lr);
        assert_true(tri_remote_optimizer_lr(f.opt) == lr);
        for (int i = 0; i < 3; i++)
            tri_optimizer_set_lr(f.here.opt[i], lr);
        owners_step_both(&f);
    }
    tri_remote_optimizer_set_lr(f.opt, -1);
    CHECK_FAILS(owners_step(&f), TRI_ERR_INVALID_ARG, "a learning rate of -1");
    owners_end_equal(&f);
}

static void dropped_gradients_are_of_no_use(void **state)
{
    remote_owners f;

    (void)state;
    owners_begin_with_here(&f, MOMENTUM);
    for (int s = 0; s < 3; s++) {
        tri_backward(model_loss(f.part, f.x, f.y, 2));
        if (s == 1)
            CHECK_OK(tri_run());
        tri_remote_optimizer_zero_grad(f.opt);
        if (s == 2)
            tri_step_end();
        owners_step_both(&f);
    }
    owners_end_equal(&f);
}

static void the_norm_is_over_all_workers(void **state)
{
    static const double bounds[] = {0.05, 1000, INFINITY};

    (void)state;
    for (size_t b = 0; b < TRII_COUNT_OF(bounds); b++) {
        remote_owners f;
        model here;

        owners_begin_with(&f, MOMENTUM, NULL,
                          &(tri_remote_optimizer_options){.max_norm = bounds[b]});
        model_begin(&here, MOMENTUM);
        assert_true(isnan(tri_remote_optimizer_norm(f.opt)));
        for (int s = 0; s < 3; s++) {
            tri_tensor *params[16], *norm;
            double expected;
            int n = 0;

            CHECK_OK(owners_step(&f));
            tri_backward(model_loss(here.part, f.x, f.y, 1));
            for (int i = 0; i < 3; i++) {
                for (int64_t k = 0; k < tri_module_state_count(here.part[i]); k++)
                    params[n++] = tri_module_state(here.part[i], k).tensor;
            }
            norm = tri_clip_grad_norm_of(params, n, bounds[b]);
            for (int i = 0; i < 3; i++)
                CHECK_OK(tri_optimizer_step(here.opt[i]));
            expected = tri_item(norm);
            tri_step_end();
            CHECK_NEAR(tri_remote_optimizer_norm(f.opt), expected, 1e-6 * expected);
        }
        for (int i = 0; i < 3; i++) {
            float a[64], c[64];
            tri_tensor *t = tri_module_state(f.m.part[i], 0).tensor;
            size_t n = (size_t)tri_tensor_numel(t);

            CHECK_OK(tri_tensor_copy_out(t, a, n * sizeof(float)));
            CHECK_OK(tri_tensor_copy_out(tri_module_state(here.part[i], 0).tensor, c,
                                         n * sizeof(float)));
            for (size_t k = 0; k < n; k++)
                CHECK_NEAR(a[k], c[k], 1e-6);
        }
        tri_step_end();
        model_end(&here);
        owners_end(&f);
    }
}

static void bad_arguments_come_out_of_the_step(void **state)
{
    tri_module *twice[2], *plain[1];
    remote_owners f;
    struct {
        tri_module **remotes;
        int n;
        tri_remote_optimizer_options options;
        const char *text;
    } const bad[] = {
        {twice, 0, {0}, "0 remote modules"},
        {NULL, 1, {0}, "at NULL"},
        {twice, 2, {0}, "remotes[1] is w1/first, as remotes[0]"},
        {plain, 1, {0}, "is not a remote module"},
        {f.part, 1, {0}, "w1/first is in another remote optimizer"},
        {twice, 1, {.max_norm = -1}, "max_norm -1"},
    };

    (void)state;
    owners_begin(&f, SGD);
    twice[0] = tri_remote_module(f.r.w.rpc[0], "w1/first", NULL);
    twice[1] = tri_remote_module(f.r.w.rpc[0], "w1/first", NULL);
    plain[0] = f.m.part[1];
    for (size_t i = 0; i < TRII_COUNT_OF(bad); i++) {
        tri_remote_optimizer *opt =
            tri_remote_optimizer_of(NULL, bad[i].remotes, bad[i].n, &bad[i].options);

        CHECK_FAILS(tri_remote_optimizer_step(opt), TRI_ERR_INVALID_ARG, bad[i].text);
        tri_remote_optimizer_zero_grad(opt);
        tri_remote_optimizer_set_lr(opt, 1);
        assert_true(isnan(tri_remote_optimizer_lr(opt)));
        tri_remote_optimizer_destroy(opt);
    }
    CHECK_FAILS(tri_remote_optimizer_step(NULL), TRI_ERR_INVALID_ARG, "is NULL");
    tri_remote_optimizer_destroy(NULL);
    CHECK_OK(owners_step(&f));
    tri_remote_optimizer_destroy(f.opt);
    f.opt = tri_remote_optimizer_of(f.m.opt[1], (tri_module *[]){f.part[2], f.part[0]}, 2, NULL);
    CHECK_OK(owners_step(&f)); /* modules that are free again */
    tri_module_destroy(twice[0]);
    tri_module_destroy(twice[1]);
    owners_end(&f);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_step_has_the_bits_of_one_process),
    cmocka_unit_test(gradients_add_up_until_the_step),
    cmocka_unit_test(two_steps_are_those_of_torch),
    cmocka_unit_test(a_step_without_a_backward_changes_nothing),
    cmocka_unit_test(owners_that_the_loss_does_not_reach_stay_as_they_are),
    cmocka_unit_test(a_worker_may_own_what_it_trains),
    cmocka_unit_test(the_learning_rate_reaches_all),
    cmocka_unit_test(dropped_gradients_are_of_no_use),
    cmocka_unit_test(the_norm_is_over_all_workers),
    cmocka_unit_test(bad_arguments_come_out_of_the_step),
};

TEST_MAIN(tests)
