/* samples_test.c - how many samples tri_backward finds under a loss. */
/* ctest: threads=none */
#include <trireme/nn.h>
#include <trireme/ops.h>

#include "base/alloc.h"
#include "testing/check.h"
#include "testing/scratch.h" /* redirecting stderr */
#include "train/dist/unit.h"

#define N 5

/* Of one rank: it only counts. */
static trii_unit unit;

/* N rows of data through a parameter [3, 3]. */
static tri_tensor *w, *x, *target, *logits;

static int set_up(void **state)
{
    float values[N * 3] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    const int64_t labels[N] = {0};

    (void)state;
    w = tri_tensor_from((int64_t[]){3, 3}, 2, TRI_DTYPE_F32, values);
    x = tri_tensor_from((int64_t[]){N, 3}, 2, TRI_DTYPE_F32, values);
    target = tri_tensor_from((int64_t[]){N}, 1, TRI_DTYPE_I64, labels);
    tri_requires_grad(w, true);
    CHECK_OK(trii_unit_room(&unit, 1));
    trii_unit_add(&unit, "w", w);
    CHECK_OK(trii_unit_list(&unit));
    trii_unit_place(&unit);
    logits = tri_linear(x, w, NULL);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    CHECK_OK(tri_step_end_status());
    trii_unit_free(&unit);
    unit = (trii_unit){0};
    tri_tensor_unref(w);
    tri_tensor_unref(x);
    tri_tensor_unref(target);
    return 0;
}

static int64_t samples_of(tri_tensor *loss)
{
    unit.tally.sample_count = -1;
    tri_backward(loss);
    return unit.tally.sample_count;
}

static tri_tensor *sum(tri_tensor *t)
{
    return tri_sum(t, NULL, 0, false);
}

static tri_tensor *mean(tri_tensor *t)
{
    return tri_mean(t, NULL, 0, false);
}

static tri_tensor *cross_entropy(void)
{
    return tri_cross_entropy(logits, target, NULL);
}

static void a_loss_has_the_rows_of_its_operand(void **state)
{
    (void)state;
    assert_int_equal(samples_of(cross_entropy()), N);
    assert_int_equal(samples_of(tri_mse_loss(logits, x, NULL)), N);
    assert_int_equal(samples_of(tri_l1_loss(logits, x, NULL)), N);
    assert_int_equal(samples_of(tri_smooth_l1_loss(logits, x, NULL)), N);
    assert_int_equal(samples_of(tri_bce_with_logits_loss(logits, x, NULL)), N);
    assert_int_equal(samples_of(tri_kl_div(logits, x, NULL)), N);
}

static void a_sum_over_pairs_counts_ranks_equally_and_its_mean_the_samples(void **state)
{
    const tri_pair_loss_options added = {.reduction = TRI_REDUCTION_SUM},
                                each = {.reduction = TRI_REDUCTION_NONE};

    (void)state;
    assert_int_equal(samples_of(tri_mse_loss(logits, x, &added)), 1);
    assert_int_equal(samples_of(tri_l1_loss(logits, x, &added)), 1);
    assert_int_equal(samples_of(tri_kl_div(logits, x, &added)), 1);
    assert_int_equal(samples_of(mean(tri_mse_loss(logits, x, &each))), N);
    assert_int_equal(samples_of(sum(tri_l1_loss(logits, x, &each))), 1);
}

static void a_loss_is_found_wherever_it_stands(void **state)
{
    tri_tensor *penalty = tri_mul_scalar(sum(tri_square(w)), 0.01);

    (void)state;
    assert_int_equal(samples_of(tri_add(penalty, cross_entropy())), N);
    assert_int_equal(samples_of(tri_add(tri_mul_scalar(cross_entropy(), 0.5), penalty)), N);
    assert_int_equal(
        samples_of(tri_add(tri_add(penalty, penalty), tri_sqrt(tri_mse_loss(logits, x, NULL)))), N);
    /* a mean of parameters is a penalty as well, and means inside the network are its own */
    assert_int_equal(samples_of(tri_add(mean(tri_square(w)), cross_entropy())), N);
    logits = tri_sub(logits, tri_mean(w, TRI_SHAPE(0), true));
    assert_int_equal(samples_of(cross_entropy()), N);
}

/* A mean that is nearer to tri_backward, but not what the network is trained for. */
static void the_mean_of_a_loss_of_pairs_goes_before_others(void **state)
{
    const tri_pair_loss_options by_batch = {.reduction = TRI_REDUCTION_BATCHMEAN};

    (void)state;
    for (int k = 0; k < 7; k++) {
        tri_tensor *loss = k == 0   ? tri_mse_loss(logits, x, NULL)
                           : k == 1 ? tri_l1_loss(logits, x, NULL)
                           : k == 2 ? tri_smooth_l1_loss(logits, x, NULL)
                           : k == 3 ? tri_bce_loss(tri_sigmoid(logits), x, NULL)
                           : k == 4 ? tri_bce_with_logits_loss(logits, x, NULL)
                           : k == 5 ? tri_kl_div(logits, x, NULL)
                                    : tri_kl_div(logits, x, &by_batch);
        tri_tensor *other = mean(tri_square(tri_transpose(logits, 0, 1))); /* three rows */
        int64_t count = samples_of(tri_add(loss, other));

        if (count != N)
            fail_msg("loss %d: %lld samples", k, (long long)count);
    }
}

static void a_mean_over_dimension_0_of_data_counts(void **state)
{
    (void)state;
    assert_int_equal(samples_of(mean(tri_square(logits))), N);
    assert_int_equal(samples_of(sum(tri_mean(logits, TRI_SHAPE(0), false))), N);
    assert_int_equal(samples_of(mean(tri_mean(logits, TRI_SHAPE(1), false))), N);
    assert_int_equal(samples_of(tri_add(mean(tri_square(w)), mean(tri_square(logits)))), N);
}

/* For a gradient penalty or an adversarial example, say. */
static void an_input_that_requires_a_gradient_is_data(void **state)
{
    (void)state;
    tri_step_end();
    tri_requires_grad(x, true);
    logits = tri_linear(x, w, NULL);
    assert_int_equal(samples_of(mean(tri_square(logits))), N);
    assert_int_equal(samples_of(tri_add(mean(tri_square(w)), mean(logits))), N);
    assert_int_equal(samples_of(mean(tri_square(w))), 1);
}

static void noise_that_a_step_draws_is_data(void **state)
{
    (void)state;
    logits = tri_linear(tri_randn((int64_t[]){N, 3}, 2, TRI_DTYPE_F32), w, NULL);
    assert_int_equal(samples_of(mean(tri_square(logits))), N);
}

static void parameters_of_modules_are_no_data(void **state)
{
    tri_module *other = tri_nn_linear(3, 7, NULL);
    tri_tensor *rows = tri_module_find(other, "weight"); /* 7 */

    (void)state;
    assert_int_equal(samples_of(mean(tri_square(tri_linear(rows, w, NULL)))), 1);
    assert_int_equal(samples_of(tri_add(mean(tri_square(tri_linear(rows, w, NULL))), mean(logits))),
                     N);
    tri_step_end();
    tri_module_destroy(other);
}

static void without_a_mean_of_data_ranks_count_equally(void **state)
{
    (void)state;
    assert_int_equal(samples_of(sum(logits)), 1);
    assert_int_equal(samples_of(mean(tri_square(w))), 1);
    assert_int_equal(samples_of(sum(tri_mean(logits, TRI_SHAPE(1), false))), 1);
    assert_int_equal(samples_of(sum(w)), 1);
}

static void backward_of_count(int64_t count)
{
    tri_tensor *loss = cross_entropy();

    tri_backward_of(&loss, 1, &(tri_backward_options){.count = &count});
}

static void a_count_overrides(void **state)
{
    (void)state;
    backward_of_count(17);
    assert_int_equal(unit.tally.sample_count, 17);
    backward_of_count(0);
    assert_int_equal(unit.tally.sample_count, 0);
    backward_of_count(INT64_C(1) << 40);
    assert_int_equal(unit.tally.sample_count, INT64_C(1) << 40);
}

/* Two ranks' 2^62 add up to a negative number, and all gradients were multiplied by 0. */
static void a_count_that_could_overflow_is_refused(void **state)
{
    (void)state;
    unit.tally.sample_count = -1;
    backward_of_count(INT64_C(1) << 62);
    CHECK_FAILS(tri_step_end_status(), TRI_ERR_INVALID_ARG, "0 to 2^40 samples");
    assert_int_equal(unit.tally.sample_count, -1);
}

/* What is written to stderr while both losses are differentiated, twice. */
static void take_stderr(char *text, size_t size)
{
    FILE *log = tmpfile();
    int before = dup(STDERR_FILENO);
    size_t n;

    assert_non_null(log);
    assert_true(before >= 0 && dup2(fileno(log), STDERR_FILENO) >= 0);
    for (int i = 0; i < 2; i++) {
        tri_tensor *two = tri_mse_loss(tri_linear(w, w, NULL), w, NULL);

        unit.tally.sample_count = -1;
        tri_backward(tri_add(two, cross_entropy()));
        tri_backward(tri_add(cross_entropy(), tri_mul_scalar(cross_entropy(), 2)));
    }
    fflush(stderr);
    assert_true(dup2(before, STDERR_FILENO) >= 0);
    close(before);
    rewind(log);
    n = fread(text, 1, size - 1, log);
    text[n] = '\0';
    fclose(log);
}

static void losses_that_disagree_are_warned_about_once(void **state)
{
    char text[2048];

    (void)state;
    take_stderr(text, sizeof(text));
    assert_non_null(strstr(text, "means over different numbers of samples: tri_cross_entropy at "));
    assert_non_null(strstr(text, " over 5, tri_mse_loss at "));
    assert_non_null(strstr(text, " over 3; replicas are weighted by the first"));
    assert_non_null(strstr(text, "samples_test.c:"));
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
    assert_int_equal(unit.tally.sample_count, N);
}

static void gradients_that_go_on_without_being_counted_fail(void **state)
{
    const trii_under nothing = {.last_node = -1};
    trii_step *step = trii_step_current();

    (void)state;
    trii_alloc_fail_at(1);
    CHECK_FAILS(trii_samples_go_elsewhere(step, &nothing, 3), TRI_ERR_NO_MEMORY, "context");
    assert_int_equal(trii_samples_take(step), 0);
    CHECK_OK(trii_samples_go_elsewhere(step, &nothing, 3));
    assert_int_equal(trii_samples_take(step), 3);
}

/* A step may have many, each with more values than the one before. */
static void the_passes_of_a_step_share_their_memory(void **state)
{
    long live = 0;

    (void)state;
    for (int i = 0; i < 20; i++) {
        tri_backward(cross_entropy());
        if (i == 0)
            live = trii_alloc_live();
    }
    assert_int_equal(trii_alloc_live(), live);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(a_loss_has_the_rows_of_its_operand, set_up, tear_down),
    cmocka_unit_test_setup_teardown(a_sum_over_pairs_counts_ranks_equally_and_its_mean_the_samples,
                                    set_up, tear_down),
    cmocka_unit_test_setup_teardown(a_loss_is_found_wherever_it_stands, set_up, tear_down),
    cmocka_unit_test_setup_teardown(the_mean_of_a_loss_of_pairs_goes_before_others, set_up,
                                    tear_down),
    cmocka_unit_test_setup_teardown(a_mean_over_dimension_0_of_data_counts, set_up, tear_down),
    cmocka_unit_test_setup_teardown(an_input_that_requires_a_gradient_is_data, set_up, tear_down),
    cmocka_unit_test_setup_teardown(noise_that_a_step_draws_is_data, set_up, tear_down),
    cmocka_unit_test_setup_teardown(parameters_of_modules_are_no_data, set_up, tear_down),
    cmocka_unit_test_setup_teardown(without_a_mean_of_data_ranks_count_equally, set_up, tear_down),
    cmocka_unit_test_setup_teardown(a_count_overrides, set_up, tear_down),
    cmocka_unit_test_setup_teardown(a_count_that_could_overflow_is_refused, set_up, tear_down),
    cmocka_unit_test_setup_teardown(losses_that_disagree_are_warned_about_once, set_up, tear_down),
    cmocka_unit_test_setup_teardown(gradients_that_go_on_without_being_counted_fail, set_up,
                                    tear_down),
    cmocka_unit_test_setup_teardown(the_passes_of_a_step_share_their_memory, set_up, tear_down),
};

TEST_MAIN(tests)
