/* checked_run_test.c - a run under TRI_CHECK=nan is the run that is being debugged: the same plan,
 * layouts and bits. */
#include <trireme/trireme.h>

#include "train/graph/step/step.h"
#include "train/plan/plan.h"
#include "train/tensor/persistent.h"
#include "testing/check.h"

#define STEPS 3
#define WEIGHTS 3

/* What plans are made from, run after run: the segment, and where its inputs lie. */
static uint64_t seen[16];
static int n_seen;

static tri_status look_and_run(trii_step *step, const trii_segment *segment)
{
    uint64_t hash = trii_plan_hash(segment);

    for (int32_t i = 0; i < segment->n_inputs; i++) {
        const trii_value *value = &step->values[segment->inputs[i]];

        hash = hash * 31 + (trii_value_tensor(value) != NULL);
        hash = hash * 31 + (uint64_t)(uintptr_t)trii_value_layout(value);
    }
    if (n_seen < 16)
        seen[n_seen++] = hash;
    return trii_executor_plan.run(step, segment);
}

static const trii_executor spy = {.name = "spy", .run = look_and_run};

typedef struct training {
    double losses[STEPS];
    uint64_t seen[16];
    int n_seen;
    const trii_layout *layouts[WEIGHTS];
    uint64_t hash;
} training;

static training train(bool checked)
{
    static const char *const weights[WEIGHTS] = {"0.weight", "3.weight", "6.weight"};
    static float images[4 * 16 * 12 * 12];
    const int64_t labels[4] = {0, 1, 2, 3};
    training t = {.hash = 0};
    tri_tensor *x, *y;
    tri_module *net;
    tri_optimizer *opt;

    trii_step_release();
    trii_executor_set(&spy);
    n_seen = 0;
    if (checked)
        setenv("TRI_CHECK", "nan", 1);
    for (size_t i = 0; i < sizeof(images) / sizeof(images[0]); i++)
        images[i] = (float)(i * 7919 % 1009) / 1009.0f - 0.5f;
    x = tri_tensor_from((int64_t[]){4, 16, 12, 12}, 4, TRI_DTYPE_F32, images);
    y = tri_tensor_from((int64_t[]){4}, 1, TRI_DTYPE_I64, labels);
    tri_manual_seed(3);
    net = tri_nn_sequential(tri_nn_conv2d(16, 32, 3, &(tri_nn_conv2d_options){.padding = 1}),
                            tri_nn_batch_norm2d(32, NULL), tri_nn_relu(),
                            tri_nn_conv2d(32, 32, 3, &(tri_nn_conv2d_options){.padding = 1}),
                            tri_nn_adaptive_avg_pool2d(1, 1), tri_nn_flatten(1),
                            tri_nn_linear(32, 4, NULL));
    opt = tri_sgd(net, 0.1, &(tri_sgd_options){.momentum = 0.9});
    for (int i = 0; i < STEPS; i++) {
        tri_tensor *loss = tri_cross_entropy(tri_forward(net, x), y, NULL);

        tri_backward(loss);
        CHECK_OK(tri_optimizer_step(opt));
        t.losses[i] = tri_item(loss);
        CHECK_OK(tri_step_end_status());
    }
    for (int i = 0; i < WEIGHTS; i++)
        t.layouts[i] = tri_module_find(net, weights[i])->layout;
    CHECK_OK(tri_module_hash(net, &t.hash));
    t.n_seen = n_seen;
    memcpy(t.seen, seen, sizeof(seen));
    trii_executor_set(NULL);
    tri_optimizer_destroy(opt);
    tri_module_destroy(net);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    trii_step_release();
    unsetenv("TRI_CHECK");
    return t;
}

static void a_checked_run_is_the_run_that_it_checks(void **state)
{
    training unchecked = train(false), checked = train(true);

    (void)state;
    for (int i = 0; i < WEIGHTS; i++)
        assert_ptr_equal(checked.layouts[i], unchecked.layouts[i]);
    assert_in_range(unchecked.n_seen, STEPS, 16);
    assert_int_equal(checked.n_seen, unchecked.n_seen);
    assert_memory_equal(checked.seen, unchecked.seen, sizeof(checked.seen));
    assert_memory_equal(checked.losses, unchecked.losses, sizeof(checked.losses));
    assert_true(checked.hash == unchecked.hash);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_checked_run_is_the_run_that_it_checks),
};

TEST_MAIN(tests)
