/* plans_test.c - plans belong to the process: contexts and threads find each other's, and what was
 * used last stays.
 * ctest: start=first
 */
#include <trireme/context.h>
#include <trireme/nn.h>
#include <trireme/ops.h>
#include <trireme/optim.h>

#include "base/alloc.h"
#include "train/graph/step/step.h"
#include "os/thread.h"
#include "train/plan/plan.h"
#include "testing/check.h"

/* --- a context goes from thread to thread --------------------------------- */

typedef struct trainer {
    trii_thread thread;
    tri_context *context;
    tri_module *net;
    tri_optimizer *opt;
    tri_tensor *x;
    tri_status status;
    double loss;
} trainer;

static void train(void *arg)
{
    trainer *t = arg;

    t->status = tri_context_enter(t->context);
    for (int step = 0; step < 3 && t->status == TRI_OK; step++) {
        tri_tensor *loss = tri_mean(tri_square(tri_forward(t->net, t->x)), NULL, 0, false);

        tri_backward(loss);
        t->status = tri_optimizer_step(t->opt);
        if (t->status == TRI_OK)
            t->status = tri_item_status(loss, &t->loss);
        if (t->status == TRI_OK)
            t->status = tri_step_end_status();
    }
    if (t->status == TRI_OK)
        t->status = tri_context_leave();
}

static void on_a_thread(trainer *t)
{
    CHECK_OK(trii_thread_start(&t->thread, "trainer", train, t));
    trii_thread_join(&t->thread);
    CHECK_OK(t->status);
}

static void nothing_is_compiled_again_on_another_thread(void **state)
{
    float values[8 * 16];
    trainer t = {.context = NULL};
    uint64_t misses;
    double before;

    (void)state;
    for (int i = 0; i < 8 * 16; i++)
        values[i] = (float)(i % 7) - 3;
    tri_manual_seed(1);
    t.net =
        tri_nn_sequential(tri_nn_linear(16, 32, NULL), tri_nn_relu(), tri_nn_linear(32, 4, NULL));
    t.opt = tri_sgd(t.net, 0.05, NULL);
    t.x = tri_tensor_from(TRI_SHAPE(8, 16), TRI_DTYPE_F32, values);
    CHECK_OK(tri_context_create(&t.context));
    on_a_thread(&t);
    before = t.loss;
    misses = trii_plan_stats_get().misses;
    assert_true(misses > 0);
    for (int k = 0; k < 4; k++)
        on_a_thread(&t);
    assert_int_equal(trii_plan_stats_get().misses, misses);
    assert_true(t.loss < before);
    tri_context_destroy(t.context);
    tri_optimizer_destroy(t.opt);
    tri_module_destroy(t.net);
    tri_tensor_unref(t.x);
}

/* --- one model, many threads ---------------------------------------------- */

#define READERS 8
#define TURNS 6
#define OUT (2 * 5)

static tri_module *shared;
static tri_tensor *images;
static atomic_int waiting;

typedef struct evaluator {
    trii_thread thread;
    tri_status status;
    bool differs;
    char line[400];
    float y[OUT];
} evaluator;

static void evaluate(void *arg)
{
    evaluator *e = arg;

    atomic_fetch_add(&waiting, 1);
    while (atomic_load(&waiting) < READERS)
        trii_thread_yield();
    for (int k = 0; k < TURNS && e->status == TRI_OK; k++) {
        float y[OUT];

        TRI_NO_GRAD_HERE;
        e->status = tri_tensor_copy_out(tri_keep(tri_forward(shared, images)), y, sizeof(y));
        snprintf(e->line, sizeof(e->line), "%s", tri_last_error());
        tri_step_end();
        e->differs |= k > 0 && memcmp(y, e->y, sizeof(y)) != 0;
        memcpy(e->y, y, sizeof(y));
    }
}

/* From the first moment on, when weights want another order than they are in. */
static void eight_threads_evaluate_one_model_at_once(void **state)
{
    static evaluator all[READERS], alone;
    static float values[2 * 16 * 8 * 8];

    (void)state;
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
        values[i] = (float)(i * 37 % 101) / 50 - 1;
    tri_manual_seed(2);
    images = tri_tensor_from(TRI_SHAPE(2, 16, 8, 8), TRI_DTYPE_F32, values);
    shared = tri_nn_sequential(tri_nn_conv2d(16, 32, 3, &(tri_nn_conv2d_options){.padding = 1}),
                               tri_nn_relu(), tri_nn_conv2d(32, 16, 3, NULL), tri_nn_flatten(1),
                               tri_nn_linear(16 * 36, 5, NULL));
    CHECK_OK(tri_module_status(shared));
    for (int t = 0; t < READERS; t++)
        CHECK_OK(trii_thread_start(&all[t].thread, "evaluator", evaluate, &all[t]));
    for (int t = 0; t < READERS; t++)
        trii_thread_join(&all[t].thread);
    evaluate(&alone);
    for (int t = 0; t < READERS; t++) {
        if (all[t].status != TRI_OK)
            fail_msg("%s", all[t].line);
        assert_false(all[t].differs);
        assert_memory_equal(all[t].y, alone.y, sizeof(alone.y));
    }
    tri_module_destroy(shared);
    tri_tensor_unref(images);
}

/* --- what stays ----------------------------------------------------------- */

static void length(int64_t n)
{
    tri_tensor *x = tri_tensor_create(TRI_SHAPE(n), TRI_DTYPE_F32);

    CHECK_NEAR(tri_item(tri_sum(tri_exp(x), NULL, 0, false)), (double)n, 0);
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
}

/* Each length needs a little more memory than the one before, whose pages have been touched. */
static void growing_lengths_get_few_new_arenas(void **state)
{
    uint64_t made;

    (void)state;
    trii_step_release();
    made = trii_plan_stats_get().arenas_made;
    for (int64_t n = 1; n <= 300; n++)
        length(64 * n);
    made = trii_plan_stats_get().arenas_made - made;
    assert_in_range(made, 1, 32); /* a quarter more each time: 300 = 1.25^26 */
}

static void three_hundred_lengths_are_compiled_once(void **state)
{
    uint64_t misses;

    (void)state;
    trii_step_release();
    misses = trii_plan_stats_get().misses;
    for (int round = 0; round < 3; round++) {
        for (int64_t n = 1; n <= 300; n++)
            length(n);
    }
    assert_int_equal(trii_plan_stats_get().misses, misses + 300);
    assert_int_equal(trii_plan_stats_get().n_plans, 300);
}

static void what_was_used_last_stays(void **state)
{
    uint64_t misses;

    (void)state;
    trii_step_release();
    misses = trii_plan_stats_get().misses;
    for (int64_t n = 2; n <= 1400; n++) {
        length(1); /* over and over */
        length(n);
    }
    assert_int_equal(trii_plan_stats_get().misses, misses + 1400);
    assert_int_equal(trii_plan_stats_get().n_plans, 1024);
    length(1400);
    assert_int_equal(trii_plan_stats_get().misses, misses + 1400);
    length(2); /* the one that is gone */
    assert_int_equal(trii_plan_stats_get().misses, misses + 1401);
    assert_int_equal(trii_plan_stats_get().n_plans, 1024);
    trii_step_release();
    assert_int_equal(trii_plan_stats_get().n_plans, 0);
    assert_int_equal(trii_plan_stats_get().arena_bytes, 0);
}

/* Results that are kept, each of another size. What a step has read or may read stays. */
static void outputs_of_lengths_that_are_gone_are_freed(void **state)
{
    enum { LENGTHS = 16 };
    const int64_t elements = 6 << 20; /* 24 MiB */
    tri_tensor *kept[LENGTHS];
    size_t held;
    float last;

    (void)state;
    trii_step_release();
    for (int n = 0; n < LENGTHS; n++) {
        CHECK_OK(tri_tensor_status(tri_keep(tri_ones(TRI_SHAPE(elements + n), TRI_DTYPE_F32))));
        CHECK_OK(tri_step_end_status());
    }
    held = trii_plan_stats_get().held_bytes;
    for (int n = 0; n < LENGTHS; n++) {
        kept[n] = tri_keep(tri_ones(TRI_SHAPE(elements + n), TRI_DTYPE_F32));
        CHECK_OK(tri_run());
        assert_true(trii_plan_stats_get().held_bytes < (size_t)300 << 20);
    }
    for (int n = 0; n < LENGTHS; n++) {
        CHECK_OK(
            tri_tensor_copy_out(tri_narrow(kept[n], 0, elements + n - 1, 1), &last, sizeof(last)));
        assert_true(last == 1);
    }
    CHECK_OK(tri_step_end_status());
    assert_true(held < (size_t)300 << 20);
    trii_step_release();
    assert_int_equal(trii_plan_stats_get().held_bytes, 0);
}

/* What takes turns keeps its storages, however large they are. */
static void outputs_that_take_turns_stay(void **state)
{
    enum { LENGTHS = 4 };
    const int64_t elements = 25 << 20; /* 100 MiB */

    (void)state;
    trii_step_release();
    for (int n = 0; n < 2 * LENGTHS; n++) {
        (void)tri_keep(tri_ones(TRI_SHAPE(elements + n % LENGTHS), TRI_DTYPE_F32));
        CHECK_OK(tri_run());
        CHECK_OK(tri_step_end_status());
    }
    assert_true(trii_plan_stats_get().held_bytes >= (size_t)LENGTHS * 100 << 20);
    trii_step_release();
}

/* Results of several runs that are held at the same time. */
static void hold_runs(int n, int64_t elements)
{
    for (int i = 0; i < n; i++) {
        (void)tri_keep(tri_ones(TRI_SHAPE(elements), TRI_DTYPE_F32));
        CHECK_OK(tri_run());
    }
    CHECK_OK(tri_step_end_status());
}

static void outputs_that_are_held_together_stay_if_they_are_small(void **state)
{
    const int64_t small = 1 << 20, large = 50 << 20; /* 4 MiB, 200 MiB */
    long calls;

    (void)state;
    trii_step_release();
    hold_runs(4, small);
    assert_int_equal(trii_plan_stats_get().held_bytes, 4 * small * sizeof(float));
    calls = trii_alloc_calls();
    hold_runs(4, small);
    assert_int_equal(trii_alloc_calls(), calls);
    hold_runs(20, small);
    assert_int_equal(trii_plan_stats_get().held_bytes, 8 * small * sizeof(float));
    trii_step_release();
    hold_runs(3, large);
    assert_int_equal(trii_plan_stats_get().held_bytes, 2 * large * sizeof(float));
    trii_step_release();
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(nothing_is_compiled_again_on_another_thread),
    cmocka_unit_test(eight_threads_evaluate_one_model_at_once),
    cmocka_unit_test(three_hundred_lengths_are_compiled_once),
    cmocka_unit_test(growing_lengths_get_few_new_arenas),
    cmocka_unit_test(what_was_used_last_stays),
    cmocka_unit_test(outputs_of_lengths_that_are_gone_are_freed),
    cmocka_unit_test(outputs_that_take_turns_stay),
    cmocka_unit_test(outputs_that_are_held_together_stay_if_they_are_small),
};

TEST_MAIN(tests)
