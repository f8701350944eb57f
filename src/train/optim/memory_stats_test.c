/*
 * memory_stats_test.c - tri_memory and its print: before and after steps, with averages and
 * without an optimizer, and what has no figures. What ranks divide is tests/models'.
 */
#include <string.h>

#include <trireme/memory_stats.h>

#include "base/err.h"
#include "testing/ddp_ranks.h"
#include "train/graph/step/step.h"

#define P (100 * 50 + 50 + 50 * 10 + 10) /* parameters of the network */
#define F ((size_t)4)

static tri_module *network(void)
{
    return tri_nn_sequential(tri_nn_linear(100, 50, NULL), tri_nn_tanh(),
                             tri_nn_linear(50, 10, NULL));
}

static void forward_and_backward(tri_module *model)
{
    tri_tensor *x = tri_tensor_create(TRI_SHAPE(4, 100), TRI_DTYPE_F32);

    tri_backward(tri_mean(tri_square(tri_forward(model, x)), NULL, 0, false));
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
}

static void figures_are_known_before_the_first_step(void **state)
{
    tri_module *net = network();
    tri_optimizer *opt = tri_adam(net, 0.1, NULL);
    tri_memory_stats before, after;

    (void)state;
    CHECK_OK(tri_memory(net, opt, NULL, &before));
    assert_int_equal(before.parameters, P * F);
    assert_int_equal(before.whole_parameters, P * F);
    assert_int_equal(before.gradients, P * F);
    assert_int_equal(before.states, 2 * P * F + 4 * sizeof(int64_t)); /* and counts of updates */
    assert_int_equal(before.with_ddp, before.parameters + before.gradients + before.states);
    assert_int_equal(before.averages + before.buffers + before.messages, 0);
    forward_and_backward(net);
    CHECK_OK(tri_optimizer_step(opt));
    CHECK_OK(tri_step_end_status());
    CHECK_OK(tri_memory(net, opt, NULL, &after));
    assert_true(after.values > before.values);
    assert_int_equal(after.total, after.with_ddp + after.values);
    after.values = before.values;
    after.total = before.total;
    assert_memory_equal(&after, &before, sizeof(before));
    tri_optimizer_destroy(opt);
    tri_module_destroy(net);
}

static void frozen_parameters_have_no_gradient(void **state)
{
    tri_module *net = network();
    tri_memory_stats s;

    (void)state;
    tri_requires_grad(tri_module_state(net, 0).tensor, false);
    CHECK_OK(tri_memory(net, NULL, NULL, &s));
    assert_int_equal(s.parameters, P * F);
    assert_int_equal(s.gradients, (P - 5000) * F);
    assert_int_equal(s.states, 0);
    assert_int_equal(s.with_ddp, (2 * P - 5000) * F);
    tri_module_destroy(net);
}

static void averages_and_buffers_are_counted(void **state)
{
    tri_module *net = tri_nn_sequential(network(), tri_nn_batch_norm1d(10, NULL));
    tri_optimizer *opt = tri_sgd(net, 0.1, NULL);
    tri_memory_stats s;
    tri_ema *ema;

    (void)state;
    CHECK_OK(tri_ema_create(net, 0.9, &ema));
    CHECK_OK(tri_memory(net, opt, ema, &s));
    assert_int_equal(s.parameters, (P + 20) * F);
    assert_int_equal(s.averages, (P + 20) * F + sizeof(int64_t));
    assert_int_equal(s.buffers, 2 * 10 * F + sizeof(int64_t));
    assert_int_equal(s.with_ddp, s.parameters + s.gradients + s.states + s.averages + s.buffers);
    tri_ema_destroy(ema);
    tri_optimizer_destroy(opt);
    tri_module_destroy(net);
}

static void shared_tensors_count_once(void **state)
{
    tri_module *first = tri_nn_linear(10, 10, NULL), *second = tri_nn_linear(10, 10, NULL);
    tri_tensor *weight = tri_module_state(first, 0).tensor;
    tri_module *net;
    tri_memory_stats s;

    (void)state;
    tri_module_add_parameter(second, "tied", tri_tensor_ref(weight));
    net = tri_nn_sequential(first, second);
    CHECK_OK(tri_module_status(net));
    CHECK_OK(tri_memory(net, NULL, NULL, &s));
    assert_int_equal(s.parameters, 2 * 110 * F);
    assert_int_equal(s.gradients, 2 * 110 * F);
    assert_int_equal(s.with_ddp, 2 * 2 * 110 * F);
    tri_module_destroy(net);
}

/* --- what ranks divide ---------------------------------------------------- */

/* Stage 2: averages of pieces; and between no_sync_begin and _end whole gradients. */
static tri_status keep_whole_gradients(rank *r)
{
    tri_module *layers[10], *net, *model;
    tri_memory_stats pieces, added, with_average;
    size_t whole;
    tri_tensor *x;
    tri_ema *ema = NULL;

    trii_mutex_lock(&drawing);
    for (int i = 0; i < 10; i++)
        layers[i] = tri_nn_linear(100, 100, NULL);
    net = tri_nn_sequential_of(10, layers);
    trii_mutex_unlock(&drawing);
    /* Of many buckets: with few, stage 2 keeps gradients as stage 1 does. */
    model = tri_zero(net, &(tri_zero_options){.group = r->group,
                                              .stage = 2,
                                              .bucket_cap_bytes = 256,
                                              .first_bucket_bytes = 256});
    TRY(tri_module_status(model));
    TRY(tri_memory(model, NULL, NULL, &pieces));
    x = tri_tensor_create(TRI_SHAPE(4, 100), TRI_DTYPE_F32);
    tri_ddp_no_sync_begin(model);
    tri_backward(tri_mean(tri_square(tri_forward(model, x)), NULL, 0, false));
    tri_ddp_no_sync_end(model);
    TRY(tri_step_end_status());
    TRY(tri_memory(model, NULL, NULL, &added));
    TRY(tri_ema_create(model, 0.9, &ema));
    TRY(tri_memory(model, NULL, ema, &with_average));
    whole = pieces.whole_parameters;
    if (added.gradients != pieces.gradients + whole || pieces.gradients >= whole ||
        with_average.averages >= whole ||
        with_average.with_ddp != added.with_ddp + whole + sizeof(int64_t))
        return TRII_FAIL(TRI_ERR_INTERNAL, "gradients of %zu and %zu bytes, averages of %zu",
                         pieces.gradients, added.gradients, with_average.averages);
    tri_ema_destroy(ema);
    tri_tensor_unref(x);
    tri_module_destroy(model);
    return TRI_OK;
}

static void gradients_that_add_up_locally_are_whole(void **state)
{
    static rank ranks[2];

    (void)state;
    ranks_succeed(ranks, 2, keep_whole_gradients, NULL);
}

/* --- mistakes, and the print ---------------------------------------------- */

static void what_has_no_figures_is_refused(void **state)
{
    tri_module *net = network(), *failed = tri_nn_linear(-1, 2, NULL);
    tri_optimizer *bad = tri_adam(NULL, 0.1, NULL);
    tri_memory_stats s;

    (void)state;
    CHECK_FAILS(tri_memory(NULL, NULL, NULL, &s), TRI_ERR_INVALID_ARG, "memory: model is NULL");
    CHECK_FAILS(tri_memory(net, NULL, NULL, NULL), TRI_ERR_INVALID_ARG, "stats_out is NULL");
    CHECK_FAILS(tri_memory(failed, NULL, NULL, &s), tri_module_status(failed), "linear");
    CHECK_FAILS(tri_memory(net, bad, NULL, &s), TRI_ERR_INVALID_ARG, "the model is NULL");
    tri_optimizer_destroy(bad);
    tri_module_destroy(failed);
    tri_module_destroy(net);
}

static void expect_print(tri_module *model, const tri_optimizer *opt, const tri_ema *ema,
                         const char *expected)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);

    assert_non_null(file);
    tri_memory_print(model, opt, ema, file);
    assert_int_equal(fclose(file), 0);
    assert_string_equal(text, expected);
    free(text);
}

static void a_small_network_is_printed_in_kib(void **state)
{
    tri_module *net = network();

    (void)state;
    expect_print(net, NULL, NULL,
                 "KiB here: parameters 21.7 of 21.7, gradients 21.7, states 0.0, averages 0.0, "
                 "buffers 0.0, messages 0.0\n"
                 "in all 43.4 (under tri_ddp 43.4), and 0.0 for the values of steps\n");
    tri_module_destroy(net);
}

static void the_print_has_every_figure(void **state)
{
    tri_module *net =
        tri_nn_sequential(tri_nn_linear(512, 512, NULL), tri_nn_batch_norm1d(50000, NULL));
    tri_optimizer *opt = tri_adam(net, 0.1, NULL);
    tri_ema *ema;

    (void)state;
    CHECK_OK(tri_ema_create(net, 0.9, &ema));
    expect_print(net, opt, ema,
                 "MiB here: parameters 1.4 of 1.4, gradients 1.4, states 2.8, averages 1.4, "
                 "buffers 0.4, messages 0.0\n"
                 "in all 7.3 (under tri_ddp 7.3), and 0.0 for the values of steps\n");
    expect_print(NULL, opt, ema, "memory: model is NULL\n");
    tri_ema_destroy(ema);
    tri_optimizer_destroy(opt);
    tri_module_destroy(net);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(figures_are_known_before_the_first_step),
    cmocka_unit_test(frozen_parameters_have_no_gradient),
    cmocka_unit_test(averages_and_buffers_are_counted),
    cmocka_unit_test(shared_tensors_count_once),
    cmocka_unit_test(gradients_that_add_up_locally_are_whole),
    cmocka_unit_test(what_has_no_figures_is_refused),
    cmocka_unit_test(a_small_network_is_printed_in_kib),
    cmocka_unit_test(the_print_has_every_figure),
};

TEST_MAIN(tests)
