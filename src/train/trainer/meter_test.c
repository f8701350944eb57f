/* meter_test.c - means over steps. */
#include <math.h>

#include <trireme/ops.h>
#include <trireme/trainer.h>

#include "testing/check.h"

/* Batches with a bad label are skipped, and the mean is that of the others. */
static void a_failed_step_counts_nothing(void **state)
{
    tri_tensor *logits = tri_tensor_create((int64_t[]){2, 3}, 2, TRI_DTYPE_F32);
    tri_tensor *target = tri_tensor_create((int64_t[]){2}, 1, TRI_DTYPE_I64);
    tri_meter *meter;

    (void)state;
    CHECK_OK(tri_meter_create(&meter));
    for (int step = 0; step < 6; step++) {
        const int64_t labels[2] = {0, step % 2 == 1 ? 3 : 2};
        tri_tensor *loss;

        CHECK_OK(tri_tensor_copy_in(target, labels, sizeof(labels)));
        loss = tri_cross_entropy(logits, target, NULL);
        CHECK_OK(tri_meter_add_mean(meter, loss, 2));
        assert_int_equal(tri_step_end_status(), step % 2 == 1 ? TRI_ERR_INVALID_ARG : TRI_OK);
    }
    assert_int_equal(tri_meter_weight(meter), 6);
    assert_true(fabs(tri_meter_value(meter) - log(3)) < 1e-6);
    CHECK_FAILS(tri_meter_add_mean(meter, tri_add(logits, target), 1), TRI_ERR_INVALID_ARG,
                "meter");
    CHECK_FAILS(tri_meter_add_mean(meter, NULL, 1), TRI_ERR_INVALID_ARG, "the tensor is NULL");
    assert_int_equal(tri_meter_weight(meter), 6);
    tri_step_end();
    tri_meter_destroy(meter);
    tri_tensor_unref(logits);
    tri_tensor_unref(target);
}

/* In f32 the sum would stand still at 2^24. */
static void a_long_sum_keeps_its_last_digits(void **state)
{
    tri_tensor *big = tri_tensor_from(NULL, 0, TRI_DTYPE_F32, &(float){16777216});
    tri_tensor *third = tri_tensor_from(NULL, 0, TRI_DTYPE_F32, &(float){1.0f / 3});
    tri_tensor *many = tri_tensor_from(NULL, 0, TRI_DTYPE_I64, &(int64_t){(INT64_C(1) << 40) + 1});
    tri_meter *meter;

    (void)state;
    CHECK_OK(tri_meter_create(&meter));
    CHECK_OK(tri_meter_add_count(meter, big, 1));
    for (int i = 0; i < 3; i++)
        CHECK_OK(tri_meter_add_mean(meter, third, 1));
    CHECK_OK(tri_step_end_status());
    assert_true(fabs(tri_meter_sum(meter) - 16777217) < 1e-6);
    CHECK_OK(tri_meter_reset(meter));
    assert_true(tri_meter_sum(meter) == 0);
    CHECK_OK(tri_meter_add_count(meter, many, 1));
    CHECK_OK(tri_step_end_status());
    assert_true(tri_meter_sum(meter) == 0x1p40 + 1);
    tri_meter_destroy(meter);
    tri_tensor_unref(big);
    tri_tensor_unref(third);
    tri_tensor_unref(many);
}

static void meters_average_over_steps(void **state)
{
    tri_tensor *x = tri_tensor_create((const int64_t[]){4}, 1, TRI_DTYPE_F32);
    tri_meter *loss, *count;

    (void)state;
    CHECK_OK(tri_meter_create(&loss));
    CHECK_OK(tri_meter_create(&count));
    assert_true(isnan(tri_meter_value(loss)));
    for (int round = 0; round < 2; round++) {
        for (int step = 1; step <= 3; step++) {
            float v[4] = {(float)step, 1, 2, 3};

            CHECK_OK(tri_tensor_copy_in(x, v, sizeof(v)));
            CHECK_OK(tri_meter_add_mean(loss, tri_mean(x, NULL, 0, false), 4));
            CHECK_OK(tri_meter_add_count(count, tri_argmax(x, 0, false), 1));
            tri_step_end();
        }
        assert_true(fabs(tri_meter_value(loss) - (6 + 3 * 6) / 12.0) < 1e-6);
        assert_int_equal(tri_meter_weight(loss), 12);
        assert_true(tri_meter_sum(count) == 3 + 3 + 0); /* argmax; the first of equals */
        CHECK_OK(tri_meter_reset(loss));
        CHECK_OK(tri_meter_reset(count));
    }
    CHECK_FAILS(tri_meter_add_mean(loss, x, 1), TRI_ERR_INVALID_ARG, "a tensor of 4 elements");
    CHECK_FAILS(tri_meter_add_mean(loss, tri_reshape(x, (int64_t[]){3}, 1), 1), TRI_ERR_INVALID_ARG,
                "tri_reshape");
    assert_int_equal(tri_meter_weight(loss), 0);
    tri_meter_destroy(NULL);
    tri_step_end();
    tri_meter_destroy(loss);
    tri_meter_destroy(count);
    tri_tensor_unref(x);
}

static void a_meter_without_a_meter_is_an_error(void **state)
{
    (void)state;
    CHECK_FAILS(tri_meter_create(NULL), TRI_ERR_INVALID_ARG, "meter_out is NULL");
    CHECK_FAILS(tri_meter_add_mean(NULL, NULL, 1), TRI_ERR_INVALID_ARG, "is NULL");
    CHECK_FAILS(tri_meter_add_count(NULL, NULL, 1), TRI_ERR_INVALID_ARG, "is NULL");
    CHECK_FAILS(tri_meter_reset(NULL), TRI_ERR_INVALID_ARG, "is NULL");
    assert_true(isnan(tri_meter_value(NULL)) && isnan(tri_meter_sum(NULL)));
    assert_int_equal(tri_meter_weight(NULL), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_failed_step_counts_nothing),
    cmocka_unit_test(a_long_sum_keeps_its_last_digits),
    cmocka_unit_test(meters_average_over_steps),
    cmocka_unit_test(a_meter_without_a_meter_is_an_error),
};
TEST_MAIN(tests)
