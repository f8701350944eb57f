/*
 * option_test.c - numbers that are given or left to their default, and reserved words.
 * ctest: threads=none
 */
#include "base/option.h"

#include <math.h>

#include "testing/check.h"

typedef struct growing {
    tri_opt rate;
    TRI_RESERVED(3);
} growing;

static const growing in_static_storage = {.rate = {"0.5", 0.5}};

static double rate_of(const growing *given)
{
    return trii_option(given->rate, 7);
}

static void a_number_that_is_not_given_is_the_default(void **state)
{
    growing o = {0};

    (void)state;
    assert_true(rate_of(&o) == 7);
    assert_true(trii_option(TRI_DEFAULT, 7) == 7);
    o.rate = TRI_SET(3);
    o.rate = TRI_DEFAULT;
    assert_true(rate_of(&o) == 7);
}

static void a_computed_zero_is_a_zero(void **state)
{
    double decay = 0.25;
    int whole = 4;

    (void)state;
    assert_true(rate_of(&(growing){.rate = TRI_SET(decay - 0.25)}) == 0);
    assert_true(rate_of(&(growing){.rate = TRI_SET(whole - 4)}) == 0);
    assert_true(rate_of(&(growing){.rate = TRI_SET(0)}) == 0);
    assert_true(isnan(rate_of(&(growing){.rate = TRI_SET((double)NAN)})));
}

static void a_number_is_set_in_every_kind_of_place(void **state)
{
    growing o = {.rate = TRI_SET(1.5)}, list[2] = {{.rate = TRI_SET(2)}};

    (void)state;
    assert_true(rate_of(&o) == 1.5);
    assert_string_equal(o.rate.given, "1.5");
    o.rate = TRI_SET(o.rate.value + 1);
    assert_true(rate_of(&o) == 2.5);
    assert_string_equal(o.rate.given, "o.rate.value + 1");
    assert_true(rate_of(&list[0]) == 2 && rate_of(&list[1]) == 7);
    assert_true(rate_of(&in_static_storage) == 0.5);
}

static void a_whole_number_is_taken_exactly_or_refused(void **state)
{
    const tri_opt wrong[] = {TRI_SET(0.5), TRI_SET((double)NAN), TRI_SET((double)INFINITY),
                             TRI_SET(-1e19), TRI_SET(1e300)};
    int64_t n = 0;

    (void)state;
    CHECK_OK(trii_option_whole(TRI_DEFAULT, "x", -100, &n));
    assert_int_equal(n, -100);
    CHECK_OK(trii_option_whole(TRI_SET(0), "x", -100, &n));
    assert_int_equal(n, 0);
    CHECK_OK(trii_option_whole(TRI_SET(-(INT64_C(1) << 53)), "x", 0, &n));
    assert_int_equal(n, -(INT64_C(1) << 53));
    for (size_t i = 0; i < TRII_COUNT_OF(wrong); i++)
        CHECK_FAILS(trii_option_whole(wrong[i], "ignore_index", 0, &n), TRI_ERR_INVALID_ARG,
                    "ignore_index is ");
}

static void every_reserved_word_must_be_zero(void **state)
{
    growing o = {.rate = TRI_SET(1)};

    (void)state;
    CHECK_OK(TRII_CHECK_RESERVED(growing, &o));
    CHECK_OK(TRII_CHECK_RESERVED(growing, (const growing *)NULL));
    for (int i = 0; i < 3; i++) {
        char line[60];

        o.reserved[i] = UINT64_C(1) << (20 * i);
        snprintf(line, sizeof(line), "growing: reserved[%d] is not 0: zero the struct", i);
        CHECK_FAILS(TRII_CHECK_RESERVED(growing, &o), TRI_ERR_INVALID_ARG, line);
        o.reserved[i] = 0;
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_number_that_is_not_given_is_the_default),
    cmocka_unit_test(a_computed_zero_is_a_zero),
    cmocka_unit_test(a_number_is_set_in_every_kind_of_place),
    cmocka_unit_test(a_whole_number_is_taken_exactly_or_refused),
    cmocka_unit_test(every_reserved_word_must_be_zero),
};

TEST_MAIN(tests)
