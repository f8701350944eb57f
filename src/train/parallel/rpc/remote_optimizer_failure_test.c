/*
 * remote_optimizer_failure_test.c - steps of several workers that fail, and what is left of them.
 * Workers are threads; those that die are in remote_optimizer_death_test.c.
 */
#include "testing/logged.h"
#include "testing/remote_owners.h"

/* A forward, a backward or an owner that fails: nobody has updated, and the step may be repeated.
 */
static void a_step_that_fails_changes_nothing_and_may_be_repeated(void **state)
{
    remote_owners f;
    uint64_t before;
    char line[TRII_ERR_BYTES];

    (void)state;
    owners_begin_with_here(&f, MOMENTUM);
    owners_step_both(&f);
    before = model_hash(&f.m);
    for (int round = 0; round < 3; round++) {
        trii_remote *last = trii_remote_of(f.part[2]);

        tri_backward(model_loss(f.part, f.x, f.y, 1));
        if (round == 0) { /* an owner misses a backward */
            CHECK_OK(tri_run());
            last->seq++;
            CHECK_FAILS(tri_remote_optimizer_step(f.opt), TRI_ERR_STATE,
                        "w2/last: remote.prepare on w2");
            snprintf(line, sizeof(line), "%s", tri_last_error());
            assert_non_null(strstr(line, "gradients of 1 of 2 backwards of w0"));
            assert_non_null(strstr(line, "tri_remote_optimizer_step at"));
        } else if (round == 1) { /* the recorded step */
            trii_step_fail(trii_step_current(), tri_status_fail(TRI_ERR_NAN, "no number"));
            CHECK_FAILS(tri_remote_optimizer_step(f.opt), TRI_ERR_NAN, "no number");
        } else { /* the own optimizer, after all owners have agreed */
            tri_clip_grad_norm(f.m.opt[1], 1);
            tri_backward(model_loss(f.part, f.x, f.y, 1)); /* after clipping */
            CHECK_FAILS(tri_remote_optimizer_step(f.opt), TRI_ERR_STATE, "clip after the last");
        }
        tri_step_end();
        assert_true(model_hash(&f.m) == before);
    }
    for (int s = 0; s < 2; s++)
        owners_step_both(&f);
    owners_end_equal(&f);
}

static tri_status same_shape(const tri_function_call *call, tri_function_array *out)
{
    out[0] = call->in[0];
    out[0].data = NULL;
    return TRI_OK;
}

static void record_nothing(const void *data, tri_tensor *const *in, int n_in, tri_tensor **out,
                           int n_out, void *object)
{
    (void)data;
    (void)in;
    (void)n_in;
    (void)out;
    (void)n_out;
    (void)object;
}

static const tri_remote_function fails = {
    .name = "fails", .shape = same_shape, .record = record_nothing};

/* Its backwards are missing, unless the trainer says that it knows. */
static void a_run_that_fails_fails_the_next_step(void **state)
{
    remote_owners f;
    uint64_t before;

    (void)state;
    owners_begin_with_here(&f, MOMENTUM);
    CHECK_OK(tri_remote_serve_function(f.r.w.rpc[2], &fails, NULL, NULL));
    owners_step_both(&f);
    before = model_hash(&f.m);
    for (int clears = 0; clears < 3; clears++) {
        tri_tensor *in = f.x, *out;
        char site[32];

        tri_remote_apply(f.r.w.rpc[0], "w2", &fails, NULL, &in, 1, &out, 1);
        tri_backward(model_loss(f.part, out, f.y, 1));
        if (clears == 2) { /* in the step, whose line is named */
            snprintf(site, sizeof(site), "_failure_test.c:%d: ", __LINE__ + 1);
            CHECK_FAILS(tri_remote_optimizer_step(f.opt), TRI_ERR_INVALID_ARG, site);
            tri_step_end();
            break;
        }
        CHECK_FAILS(tri_run(), TRI_ERR_INVALID_ARG, "fails has not set result 0");
        tri_step_end();
        if (clears != 0)
            tri_remote_optimizer_zero_grad(f.opt);
        tri_backward(model_loss(f.part, f.x, f.y, 1));
        if (clears == 0) {
            CHECK_FAILS(tri_remote_optimizer_step(f.opt), TRI_ERR_STATE, "gradients of 0 of 2");
            tri_step_end();
            assert_true(model_hash(&f.m) == before);
        } else {
            CHECK_OK(tri_remote_optimizer_step(f.opt));
            tri_step_end();
        }
    }
    owners_here_step(&f);
    CHECK_OK(tri_remote_withdraw(f.r.w.rpc[2], "fails"));
    owners_end_equal(&f);
}

/* An owner goes between the backwards and the step: nobody has updated. */
static void fail_without(remote_owners *f, void (*go)(remote_owners *f), tri_status expected,
                         const char *text)
{
    uint64_t before;

    owners_begin(f, MOMENTUM);
    CHECK_OK(owners_step(f));
    before = model_hash(&f->m);
    tri_backward(model_loss(f->part, f->x, f->y, 1));
    CHECK_OK(tri_run());
    go(f);
    CHECK_FAILS(tri_remote_optimizer_step(f->opt), expected, text);
    tri_step_end();
    assert_true(model_hash(&f->m) == before);
}

static void withdraw_last(remote_owners *f)
{
    CHECK_OK(tri_remote_withdraw(f->r.w.rpc[2], "last"));
}

static void a_module_that_is_withdrawn_fails_the_step(void **state)
{
    remote_owners f;

    (void)state;
    fail_without(&f, withdraw_last, TRI_ERR_NOT_FOUND, "w2/last");
    owners_end(&f);
}

static void abort_first(remote_owners *f)
{
    tri_rpc_abort(f->r.w.rpc[1], "a test");
}

static void an_owner_that_leaves_is_named(void **state)
{
    remote_owners f;

    (void)state;
    fail_without(&f, abort_first, TRI_ERR_PEER_LOST, "w1/first");
    owners_release(&f);
    remote_end_without_leaving(&f.r);
}

static void copy_model(model *from, model *to)
{
    for (int i = 0; i < 3; i++) {
        remote_copy_state(from->part[i], to->part[i]);
        for (int64_t k = 0; k < tri_optimizer_state_count(from->opt[i]); k++) {
            size_t bytes;
            char *data = remote_bytes(tri_optimizer_state(from->opt[i], k).tensor, &bytes);

            CHECK_OK(tri_tensor_copy_in(tri_optimizer_state(to->opt[i], k).tensor, data, bytes));
            free(data);
        }
    }
    tri_step_end();
}

/* Wherever memory is out, here or at an owner: nobody has updated, or the line says that some
 * have, and in the end all have done so once. */
static void without_memory_a_step_is_whole_or_repeated(void **state)
{
    remote_owners f;
    bool failed = true;
    int failures = 0;

    (void)state;
    owners_begin_with_here(&f, MOMENTUM);
    for (long n = 1; failed || n < 300; n += TEST_SANITIZED ? 7 : 1) {
        int64_t updates;
        tri_status status;
        bool partly;

        if (n % 10 < 2)
            trii_step_release(); /* plans are made again */
        tri_backward(model_loss(f.part, f.x, f.y, 1));
        trii_alloc_fail_at(n);
        status = tri_remote_optimizer_step(f.opt);
        trii_alloc_fail_at(0);
        failed = status != TRI_OK;
        failures += failed;
        partly = failed && strstr(tri_last_error(), "all owners had agreed") != NULL;
        tri_step_end();
        if (failed && !partly)
            model_expect_equal(&f.m, &f.here);
        while (status != TRI_OK)
            status = owners_step(&f);
        owners_here_step(&f);
        for (int i = 0; i < 3; i++) { /* how often the first parameter has been updated */
            tri_optimizer *there = f.m.opt[i];
            int64_t last = tri_optimizer_state_count(there) - 1;
            int64_t counts[2][4];

            updates = tri_tensor_numel(tri_optimizer_state(there, last).tensor);
            CHECK_OK(tri_tensor_copy_out(tri_optimizer_state(there, last).tensor, counts[0],
                                         (size_t)updates * sizeof(int64_t)));
            CHECK_OK(tri_tensor_copy_out(tri_optimizer_state(f.here.opt[i], last).tensor, counts[1],
                                         (size_t)updates * sizeof(int64_t)));
            assert_memory_equal(counts[0], counts[1], (size_t)updates * sizeof(int64_t));
        }
        tri_step_end();
        if (partly)
            copy_model(&f.m, &f.here);
        model_expect_equal(&f.m, &f.here);
    }
    assert_true(failures > (TEST_SANITIZED ? 3 : 20));
    owners_end_equal(&f);
}

/* A module of the same name that goes does not take the gradients along. */
static void gradients_stay_while_another_module_of_the_name_goes(void **state)
{
    tri_module *other;
    remote_owners f;

    (void)state;
    owners_begin_with_here(&f, MOMENTUM);
    for (int s = 0; s < 3; s++) {
        other = tri_remote_module(f.r.w.rpc[0], "w1/first", NULL);
        tri_backward(model_loss(f.part, f.x, f.y, 1));
        (void)tri_keep(tri_forward(other, f.x));
        CHECK_OK(tri_run());
        tri_step_end();
        tri_module_destroy(other);
        served_await(served_as(&f.r, 1, "first"), served_sessions, 1);
        CHECK_OK(tri_remote_optimizer_step(f.opt));
        tri_step_end();
        owners_here_step(&f);
    }
    owners_end_equal(&f);
}

/* It has refused the step: that it refuses to drop it, too, is no news. */
static void an_owner_without_an_optimizer_is_told_of_once(void **state)
{
    tri_module *frozen, *remote;
    tri_remote_optimizer *opt;
    remote_owners f;
    static logged log;

    (void)state;
    logged_begin(&log);
    owners_begin(&f, SGD);
    frozen = tri_nn_linear(6, 2, NULL);
    CHECK_OK(tri_remote_serve(f.r.w.rpc[1], "frozen", frozen, NULL, NULL));
    remote = tri_remote_module(f.r.w.rpc[0], "w1/frozen", NULL);
    opt = tri_remote_optimizer_of(NULL, &remote, 1, NULL);
    (void)tri_keep(tri_forward(remote, f.x));
    CHECK_FAILS(tri_remote_optimizer_step(opt), TRI_ERR_STATE, "served without an optimizer");
    tri_step_end();
    tri_remote_optimizer_destroy(opt);
    tri_module_destroy(remote);
    CHECK_OK(tri_remote_withdraw(f.r.w.rpc[1], "frozen"));
    tri_module_destroy(frozen);
    owners_end(&f);
    logged_expect_nothing(&log);
}

/* Without a step, gradients do not outlive their optimizer. */
static void gradients_go_with_their_optimizer(void **state)
{
    const trii_account *account;
    remote_owners f;

    (void)state;
    owners_begin(&f, MOMENTUM);
    tri_backward(model_loss(f.part, f.x, f.y, 1));
    CHECK_OK(tri_run());
    tri_step_end();
    account = served_as(&f.r, 1, "first")->accounts->first; /* its thread waits */
    assert_non_null(account->pass);
    tri_remote_optimizer_destroy(f.opt);
    f.opt = tri_remote_optimizer_of(f.m.opt[1], (tri_module *[]){f.part[0], f.part[2]}, 2, NULL);
    CHECK_OK(owners_step(&f)); /* after which it has done what came before */
    assert_null(account->pass);
    owners_end(&f);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_step_that_fails_changes_nothing_and_may_be_repeated),
    cmocka_unit_test(a_run_that_fails_fails_the_next_step),
    cmocka_unit_test(a_module_that_is_withdrawn_fails_the_step),
    cmocka_unit_test(an_owner_that_leaves_is_named),
    cmocka_unit_test(without_memory_a_step_is_whole_or_repeated),
    cmocka_unit_test(gradients_stay_while_another_module_of_the_name_goes),
    cmocka_unit_test(an_owner_without_an_optimizer_is_told_of_once),
    cmocka_unit_test(gradients_go_with_their_optimizer),
};

TEST_MAIN(tests)
