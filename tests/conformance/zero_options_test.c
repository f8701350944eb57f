/*
 * zero_options_test.c - a 0 that a program computes is a 0, in options whose default is another
 * number and in arguments; and what must be a whole number is one.
 */
/* ctest: threads=none */
#include <math.h>

#include <trireme/trireme.h>

#include "testing/check.h"

static double zero(void)
{
    volatile double half = 0.5;

    return half - 0.5;
}

static void check_hypers(tri_optimizer *opt, const tri_hyper *hypers, int n)
{
    CHECK_OK(tri_optimizer_status(opt));
    for (int i = 0; i < n; i++)
        assert_true(tri_optimizer_hyper(opt, 0, hypers[i]) == 0);
    tri_optimizer_destroy(opt);
}

static void settings_of_optimizers_can_be_0(void **state)
{
    const tri_hyper adam[] = {TRI_HYPER_WEIGHT_DECAY, TRI_HYPER_BETA1, TRI_HYPER_BETA2,
                              TRI_HYPER_EPS};
    const tri_hyper rmsprop[] = {TRI_HYPER_ALPHA, TRI_HYPER_EPS}, eps = TRI_HYPER_EPS;
    const tri_hyper groups[] = {TRI_HYPER_LR, TRI_HYPER_WEIGHT_DECAY};
    const tri_adam_options none = {.beta1 = TRI_SET(zero()),
                                   .beta2 = TRI_SET(zero()),
                                   .eps = TRI_SET(zero()),
                                   .weight_decay = TRI_SET(zero())};
    tri_module *net = tri_nn_linear(2, 1, NULL);
    tri_param_group group = {.model = net, .lr = TRI_SET(zero()), .weight_decay = TRI_SET(zero())};

    (void)state;
    check_hypers(tri_adamw(net, 0.1, &none), adam, 4);
    check_hypers(tri_adam(net, 0.1, &none), adam, 4);
    check_hypers(
        tri_rmsprop(net, 0.1,
                    &(tri_rmsprop_options){.alpha = TRI_SET(zero()), .eps = TRI_SET(zero())}),
        rmsprop, 2);
    check_hypers(tri_adagrad(net, 0.1, &(tri_adagrad_options){.eps = TRI_SET(zero())}), &eps, 1);
    check_hypers(tri_adamw_of(&group, 1, 0.1, NULL), groups, 2);
    tri_module_destroy(net);
}

static tri_tensor *row(float a, float b, float c)
{
    const float values[3] = {a, b, c};

    return tri_tensor_from(TRI_SHAPE(1, 3), TRI_DTYPE_F32, values);
}

static void check_row(tri_tensor *x, double a, double b, double c)
{
    float got[3];

    CHECK_OK(tri_tensor_copy_out(tri_keep(x), got, sizeof(got)));
    CHECK_NEAR(got[0], a, 1e-6);
    CHECK_NEAR(got[1], b, 1e-6);
    CHECK_NEAR(got[2], c, 1e-6);
}

static void numbers_that_are_arguments_can_be_0(void **state)
{
    tri_tensor *x = row(-1, 0, 2);
    const double variance = 14.0 / 9;

    (void)state;
    check_row(tri_elu(x, zero()), 0, 0, 2);
    check_row(tri_softplus(x, 1, zero()), log1p(exp(-1)), log(2), 2);
    check_row(tri_layer_norm(x, 1, NULL, NULL, zero()), -4 / 3.0 / sqrt(variance),
              -1 / 3.0 / sqrt(variance), 5 / 3.0 / sqrt(variance));
    check_row(tri_rms_norm(x, 1, NULL, TRI_SET(zero())), -1 / sqrt(5 / 3.0), 0, 2 / sqrt(5 / 3.0));
    CHECK_FAILS(tri_tensor_status(tri_softplus(x, zero(), 20)), TRI_ERR_INVALID_ARG,
                "beta is 0: must be another number");
    CHECK_FAILS(tri_tensor_status(tri_norm(x, zero(), NULL, 0, false)), TRI_ERR_INVALID_ARG,
                "p is 0: must be a number other than 0");
    tri_step_end();
    tri_tensor_unref(x);
}

/* Scores times 0: each query sees the mean of the values. */
static void the_scale_of_attention_can_be_0(void **state)
{
    const float q[2] = {9, -9}, v[2] = {1, 5};
    tri_tensor *query = tri_tensor_from(TRI_SHAPE(1, 1, 2, 1), TRI_DTYPE_F32, q);
    tri_tensor *value = tri_tensor_from(TRI_SHAPE(1, 1, 2, 1), TRI_DTYPE_F32, v);
    float got[2];

    (void)state;
    CHECK_OK(tri_tensor_copy_out(
        tri_keep(
            tri_attention(query, query, value, &(tri_attention_options){.scale = TRI_SET(zero())})),
        got, sizeof(got)));
    CHECK_NEAR(got[0], 3, 1e-6);
    CHECK_NEAR(got[1], 3, 1e-6);
    tri_step_end();
    tri_tensor_unref(query);
    tri_tensor_unref(value);
}

static void class_0_can_be_ignored_and_row_0_be_padding(void **state)
{
    const int64_t classes[2] = {0, 1};
    const float logits[4] = {5, 0, 1, 1};
    tri_tensor *x = tri_tensor_from(TRI_SHAPE(2, 2), TRI_DTYPE_F32, logits);
    tri_tensor *y = tri_tensor_from(TRI_SHAPE(2), TRI_DTYPE_I64, classes);
    const tri_cross_entropy_options ignore = {.ignore_index = TRI_SET(zero())};
    tri_module *table =
        tri_nn_embedding(3, 2, &(tri_embedding_options){.padding_idx = TRI_SET(zero())});
    tri_module *refused =
        tri_nn_embedding(3, 2, &(tri_embedding_options){.padding_idx = TRI_SET((double)NAN)});
    float rows[6];

    (void)state;
    CHECK_NEAR((float)tri_item(tri_cross_entropy(x, y, &ignore)), (float)log(2), 1e-6);
    CHECK_OK(tri_tensor_copy_out(tri_module_find(table, "weight"), rows, sizeof(rows)));
    assert_true(rows[0] == 0 && rows[1] == 0 && rows[2] != 0);
    CHECK_FAILS(tri_tensor_status(tri_cross_entropy(
                    x, y, &(tri_cross_entropy_options){.ignore_index = TRI_SET(0.5)})),
                TRI_ERR_INVALID_ARG, "ignore_index is 0.5: must be a whole number");
    CHECK_FAILS(tri_module_status(refused), TRI_ERR_INVALID_ARG,
                "padding_idx is nan: must be a whole number");
    tri_module_destroy(refused);
    tri_step_end();
    tri_module_destroy(table);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(settings_of_optimizers_can_be_0),
    cmocka_unit_test(numbers_that_are_arguments_can_be_0),
    cmocka_unit_test(the_scale_of_attention_can_be_0),
    cmocka_unit_test(class_0_can_be_ignored_and_row_0_be_padding),
};

TEST_MAIN(tests)
