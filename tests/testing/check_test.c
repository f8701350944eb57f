/*
 * check_test.c - the comparison of numbers that tests rely on.
 */
#include <math.h>

#include "testing/check.h"

static void numbers_are_near_within_epsilon(void **state)
{
    (void)state;
    assert_true(check_is_near(1, 1.25, 0.25));
    assert_true(check_is_near(1.25, 1, 0.25));
    assert_false(check_is_near(1, 1.25, 0.24));
    assert_true(check_is_near(0.0, -0.0, 0));
    assert_false(check_is_near(1, 1 + 1e-15, 0)); /* equal as floats */
}

static void a_nan_is_near_nothing(void **state)
{
    const double nan = (double)NAN;

    (void)state;
    assert_false(check_is_near(nan, 1, 1));
    assert_false(check_is_near(1, nan, 1));
    assert_false(check_is_near(nan, nan, (double)INFINITY));
    assert_false(check_is_near(1, 1.5, nan));
}

static void infinities_are_near_only_themselves(void **state)
{
    const double inf = (double)INFINITY;

    (void)state;
    assert_true(check_is_near(inf, inf, 0));
    assert_false(check_is_near(inf, -inf, 1e300));
    assert_false(check_is_near(inf, 1e300, 1e300));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(numbers_are_near_within_epsilon),
    cmocka_unit_test(a_nan_is_near_nothing),
    cmocka_unit_test(infinities_are_near_only_themselves),
};

TEST_MAIN(tests)
