/* failed_update_test.c - what a step that failed leaves of parameters, running statistics and
 * counters: what they were, or the word that it is lost. */
#include <math.h>

#include <trireme/optim.h>

#include "base/alloc.h"
#include "base/err.h"
#include "train/graph/step/step.h"
#include "testing/check.h"

#define ROWS 8
#define CLASSES 3

/* Statistics and products before the loss, which looks at the targets. */
typedef struct problem {
    tri_module *net;
    tri_optimizer *opt;
    tri_tensor *x, *target;
} problem;

static problem problem_create(int64_t channels)
{
    int64_t shape[4] = {ROWS, channels, 2, 2}, rows = ROWS;
    problem p = {.x = tri_tensor_create(shape, 4, TRI_DTYPE_F32),
                 .target = tri_tensor_create(&rows, 1, TRI_DTYPE_I64)};

    tri_manual_seed(7);
    p.net = tri_nn_sequential(tri_nn_batch_norm2d(channels, NULL), tri_nn_flatten(1),
                              tri_nn_linear(4 * channels, CLASSES, NULL));
    p.opt = tri_sgd(p.net, 0.1, &(tri_sgd_options){.momentum = 0.9});
    CHECK_OK(tri_optimizer_status(p.opt));
    CHECK_OK(tri_init_normal(p.x, 1, 2));
    return p;
}

static void problem_destroy(problem *p)
{
    tri_optimizer_destroy(p->opt);
    tri_module_destroy(p->net);
    tri_tensor_unref(p->x);
    tri_tensor_unref(p->target);
}

static void set_target(problem *p, int64_t target)
{
    int64_t targets[ROWS] = {0, 1, 2, 0, 1, 2, 0, target};

    CHECK_OK(tri_tensor_copy_in(p->target, targets, sizeof(targets)));
}

static tri_tensor *loss_of(problem *p)
{
    return tri_cross_entropy(tri_forward(p->net, p->x), p->target, NULL);
}

static tri_status train(problem *p)
{
    tri_status status;

    tri_backward(loss_of(p));
    status = tri_optimizer_step(p->opt);
    tri_step_end();
    return status;
}

static int64_t batches(problem *p)
{
    int64_t n = -1;

    CHECK_OK(tri_tensor_copy_out(tri_module_find(p->net, "0.num_batches_tracked"), &n, sizeof(n)));
    return n;
}

static uint64_t hash_of(problem *p)
{
    uint64_t hash = 0, mine = 0;

    CHECK_OK(tri_module_hash(p->net, &hash));
    for (int64_t i = 0; i < tri_optimizer_state_count(p->opt); i++) {
        tri_tensor *t = tri_optimizer_state(p->opt, i).tensor;
        float data[64];

        if (tri_tensor_dtype(t) != TRI_DTYPE_F32)
            continue;
        assert_true(tri_tensor_numel(t) <= 64);
        CHECK_OK(tri_tensor_copy_out(t, data, (size_t)tri_tensor_numel(t) * sizeof(float)));
        for (int64_t k = 0; k < tri_tensor_numel(t); k++)
            mine = mine * 31 + (uint64_t)llrint((double)data[k] * 1e6);
    }
    return hash ^ mine;
}

static void a_step_that_fails_changes_nothing_of_the_model(void **state)
{
    problem p = problem_create(2);
    uint64_t before;

    (void)state;
    set_target(&p, 1);
    CHECK_OK(train(&p));
    CHECK_OK(train(&p));
    assert_int_equal(batches(&p), 2);
    before = hash_of(&p);
    set_target(&p, CLASSES);
    for (int round = 0; round < 3; round++)
        CHECK_FAILS(train(&p), TRI_ERR_INVALID_ARG, "of row 7");
    assert_int_equal(batches(&p), 2);
    assert_true(hash_of(&p) == before);
    assert_true(isnan(tri_item(loss_of(&p)))); /* forward alone */
    tri_step_end();
    assert_int_equal(batches(&p), 2);
    assert_true(hash_of(&p) == before);
    set_target(&p, 1);
    CHECK_OK(train(&p));
    assert_int_equal(batches(&p), 3);
    assert_true(hash_of(&p) != before);
    problem_destroy(&p);
}

/* Refused while it was recorded: nothing ran. */
static void a_refused_operation_counts_no_batch(void **state)
{
    problem p = problem_create(2);

    (void)state;
    (void)tri_forward(p.net, p.x);
    tri_backward(tri_add(p.x, p.target));
    CHECK_FAILS(tri_step_end_status(), TRI_ERR_INVALID_ARG, "dtypes f32 and i64 differ");
    assert_int_equal(batches(&p), 0);
    set_target(&p, 1);
    CHECK_OK(train(&p));
    assert_int_equal(batches(&p), 1);
    problem_destroy(&p);
}

/* Forward passes count in the order in which they are recorded, and what is set by hand stays. */
static void batches_are_counted_where_they_are_recorded(void **state)
{
    problem p = problem_create(2);
    tri_tensor *counter = tri_module_find(p.net, "0.num_batches_tracked");
    int64_t forty = 40;

    (void)state;
    (void)tri_forward(p.net, p.x);
    (void)tri_forward(p.net, p.x);
    assert_int_equal(batches(&p), 2);
    (void)tri_forward(p.net, p.x);
    CHECK_OK(tri_tensor_copy_in(counter, &forty, sizeof(forty)));
    CHECK_OK(tri_step_end_status());
    assert_int_equal(batches(&p), 40);
    tri_module_train(p.net, false);
    (void)tri_forward(p.net, p.x);
    CHECK_OK(tri_step_end_status());
    assert_int_equal(batches(&p), 40);
    problem_destroy(&p);
}

/* NaN is found when everything is written: it is put back. */
static void a_nan_that_is_found_changes_nothing_of_the_model(void **state)
{
    problem p = problem_create(2);
    float x[ROWS * 8] = {0};
    uint64_t before;

    (void)state;
    trii_step_release();
    setenv("TRI_CHECK", "nan", 1);
    set_target(&p, 1);
    CHECK_OK(train(&p));
    before = hash_of(&p);
    for (int i = 0; i < ROWS * 8; i++)
        x[i] = i % 3 == 0 ? 3e38f : -3e38f; /* their variance is infinite, the rest NaN */
    CHECK_OK(tri_tensor_copy_in(p.x, x, sizeof(x)));
    CHECK_FAILS(train(&p), TRI_ERR_NAN, "NaN made by");
    assert_int_equal(batches(&p), 1);
    assert_true(hash_of(&p) == before);
    CHECK_OK(tri_init_normal(p.x, 1, 2));
    CHECK_OK(train(&p));
    assert_int_equal(batches(&p), 2);
    problem_destroy(&p);
    trii_step_release();
    unsetenv("TRI_CHECK");
}

/* "w = 2 w", and after it a loss whose target does not exist. */
static tri_tensor *double_then_fail(tri_tensor *w)
{
    const float zeros[2] = {0};
    tri_tensor *logits = tri_tensor_from((int64_t[]){1, 2}, 2, TRI_DTYPE_F32, zeros);
    tri_tensor *target = tri_tensor_from((int64_t[]){1}, 1, TRI_DTYPE_I64, &(int64_t){5});
    trii_step *step = trii_step_current();
    trii_vid value = TRII_NO_VALUE;
    tri_tensor *loss;

    CHECK_OK(trii_resolve(step, tri_mul_scalar(w, 2), &value));
    CHECK_OK(trii_bind(step, value, w));
    loss = tri_keep(tri_cross_entropy(logits, target, NULL));
    tri_tensor_unref(logits);
    tri_tensor_unref(target);
    return loss;
}

static tri_tensor *ones(int64_t n)
{
    tri_tensor *w = tri_tensor_create(&n, 1, TRI_DTYPE_F32);

    CHECK_OK(tri_init_constant(w, 1));
    return w;
}

static void a_small_update_waits_for_what_may_still_fail(void **state)
{
    tri_tensor *w = ones(5);
    float out[5];

    (void)state;
    for (int round = 0; round < 2; round++) { /* compiled, and again */
        (void)double_then_fail(w);
        CHECK_FAILS(tri_run(), TRI_ERR_INVALID_ARG, "target 5 of row 0");
        tri_step_end();
        CHECK_OK(tri_tensor_copy_out(w, out, sizeof(out)));
        assert_true(out[0] == 1 && out[4] == 1);
    }
    tri_tensor_unref(w);
}

/* A large one does not: copies of all weights would cost every step. */
static void a_large_update_that_had_begun_is_reported_as_lost(void **state)
{
    const int64_t n = INT64_C(1) << 20;
    size_t bytes = (size_t)n * sizeof(float);
    tri_tensor *w = ones(n);
    float *data = calloc((size_t)n, sizeof(float));

    (void)state;
    assert_non_null(data);
    (void)double_then_fail(w);
    CHECK_FAILS(tri_run(), TRI_ERR_INVALID_ARG, "target 5 of row 0");
    tri_step_end();
    CHECK_FAILS(tri_tensor_status(w), TRI_ERR_STATE,
                "the contents are lost, since a step that was overwriting them failed (");
    CHECK_FAILS(tri_tensor_copy_out(w, data, bytes), TRI_ERR_STATE,
                "set them again (tri_tensor_copy_in");
    CHECK_FAILS(tri_tensor_status(tri_relu(w)), TRI_ERR_STATE, "the contents are lost");
    tri_step_end();
    assert_int_equal(tri_tensor_size(w, 0), n); /* what it is, one may still ask */
    CHECK_OK(tri_tensor_copy_in(w, data, bytes));
    CHECK_OK(tri_tensor_status(w));
    assert_true(tri_item(tri_sum(w, NULL, 0, false)) == 0);
    CHECK_OK(tri_step_end_status());
    free(data);
    tri_tensor_unref(w);
}

/* Also the words that say so take memory. */
static void without_memory_a_loss_is_reported_all_the_same(void **state)
{
    const int64_t n = INT64_C(1) << 17;
    float *data = calloc((size_t)n, sizeof(float));
    bool lost_once = false;
    long calls = 0;
    int round = 0; /* 0: compiled, 1: again */

    (void)state;
    assert_non_null(data);
    for (long nth = 1; round < 2; nth = calls >= nth - 1 ? nth + 1 : 1) {
        tri_tensor *w = ones(n);
        tri_status status;

        (void)double_then_fail(w);
        calls = trii_alloc_calls();
        trii_alloc_fail_at(nth);
        status = tri_run();
        trii_alloc_fail_at(0);
        calls = trii_alloc_calls() - calls;
        round += calls < nth - 1; /* none failed */
        assert_int_not_equal(status, TRI_OK);
        tri_step_end();
        status = tri_tensor_status(w);
        if (status == TRI_OK) { /* nothing had been written */
            CHECK_OK(tri_tensor_copy_out(w, data, (size_t)n * sizeof(float)));
            assert_true(data[0] == 1 && data[n - 1] == 1);
        } else {
            assert_int_equal(status, TRI_ERR_STATE);
            assert_non_null(strstr(tri_last_error(), "the contents are lost"));
            CHECK_FAILS(tri_tensor_copy_out(w, data, (size_t)n * sizeof(float)), TRI_ERR_STATE,
                        "the contents are lost");
            CHECK_FAILS(tri_tensor_status(tri_relu(w)), TRI_ERR_STATE, "the contents are lost");
            assert_non_null(strstr(tri_tensor_debug(w), "failed: the contents are lost"));
            lost_once = true;
            tri_step_end();
        }
        tri_tensor_unref(w);
    }
    assert_true(lost_once);
    free(data);
}

static void a_lost_parameter_is_mended_by_loading(void **state)
{
    const int64_t n = INT64_C(1) << 16;
    tri_module *net = tri_nn_linear(n, 1, &(tri_nn_linear_options){.no_bias = true});
    tri_tensor *w = tri_module_find(net, "weight");
    float *data = calloc((size_t)n, sizeof(float));
    tri_state_source source = {
        .name = "weight", .dtype = TRI_DTYPE_F32, .ndim = 2, .shape = {1, n}, .data = data};

    (void)state;
    (void)double_then_fail(w);
    CHECK_FAILS(tri_run(), TRI_ERR_INVALID_ARG, "target 5 of row 0");
    tri_step_end();
    CHECK_FAILS(tri_tensor_status(w), TRI_ERR_STATE, "the contents are lost");
    CHECK_OK(tri_module_load(net, &source, 1, NULL));
    CHECK_OK(tri_tensor_status(w));
    assert_true(tri_item(tri_sum(w, NULL, 0, false)) == 0);
    tri_step_end();
    free(data);
    tri_module_destroy(net);
}

/* What tri_step_end could not return comes out of the next update, which then does nothing. */
static void an_error_of_the_step_before_stops_the_update(void **state)
{
    problem p = problem_create(2);
    uint64_t before;

    (void)state;
    set_target(&p, 1);
    CHECK_OK(train(&p));
    before = hash_of(&p);
    tri_backward(tri_add(p.x, p.target));
    tri_step_end();
    CHECK_FAILS(train(&p), TRI_ERR_INVALID_ARG, "dtypes f32 and i64 differ");
    assert_int_equal(batches(&p), 1);
    assert_true(hash_of(&p) == before);
    CHECK_OK(train(&p));
    assert_int_equal(batches(&p), 2);
    problem_destroy(&p);
}

/* Nor those before the one that could not be recorded. */
static void an_update_that_fails_for_one_parameter_changes_none(void **state)
{
    problem p = problem_create(2);
    float zeros[CLASSES] = {0};
    int64_t updates[4] = {0};
    tri_tensor *counts = tri_optimizer_state(p.opt, tri_optimizer_state_count(p.opt) - 1).tensor;
    uint64_t before;

    (void)state;
    set_target(&p, 1);
    tri_backward(loss_of(&p));
    (void)tri_clip_grad_norm(p.opt, 1);
    CHECK_OK(tri_run());
    before = hash_of(&p);
    CHECK_OK(tri_tensor_copy_in(tri_grad(tri_module_find(p.net, "2.bias")), zeros, sizeof(zeros)));
    CHECK_FAILS(tri_optimizer_step(p.opt), TRI_ERR_STATE, "changed since it was clipped");
    tri_step_end();
    assert_true(hash_of(&p) == before);
    CHECK_OK(tri_tensor_copy_out(counts, updates, sizeof(updates)));
    assert_true(updates[0] == 0 && updates[3] == 0);
    problem_destroy(&p);
}

static void averages_change_places_with_all_parameters_or_none(void **state)
{
    problem p = problem_create(2);
    tri_tensor *last = tri_module_find(p.net, "2.bias");
    float zeros[CLASSES] = {0};
    tri_ema *ema;
    uint64_t before;

    (void)state;
    set_target(&p, 1);
    CHECK_OK(train(&p));
    CHECK_OK(tri_tensor_copy_in(last, zeros, sizeof(zeros)));
    before = hash_of(&p);
    CHECK_OK(tri_ema_create(p.net, 0.5, &ema)); /* of zeros, so far */
    (void)TRII_FAIL(TRI_ERR_STATE, "it is lost");
    trii_tensor_lose(last, tri_last_error());
    CHECK_FAILS(tri_ema_swap(ema), TRI_ERR_STATE, "it is lost");
    CHECK_FAILS(tri_step_end_status(), TRI_ERR_STATE, "it is lost");
    CHECK_OK(tri_tensor_copy_in(last, zeros, sizeof(zeros)));
    assert_true(hash_of(&p) == before);
    tri_ema_destroy(ema);
    problem_destroy(&p);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_step_that_fails_changes_nothing_of_the_model),
    cmocka_unit_test(a_refused_operation_counts_no_batch),
    cmocka_unit_test(batches_are_counted_where_they_are_recorded),
    cmocka_unit_test(a_nan_that_is_found_changes_nothing_of_the_model),
    cmocka_unit_test(a_small_update_waits_for_what_may_still_fail),
    cmocka_unit_test(a_large_update_that_had_begun_is_reported_as_lost),
    cmocka_unit_test(without_memory_a_loss_is_reported_all_the_same),
    cmocka_unit_test(a_lost_parameter_is_mended_by_loading),
    cmocka_unit_test(an_error_of_the_step_before_stops_the_update),
    cmocka_unit_test(an_update_that_fails_for_one_parameter_changes_none),
    cmocka_unit_test(averages_change_places_with_all_parameters_or_none),
};

TEST_MAIN(tests)
