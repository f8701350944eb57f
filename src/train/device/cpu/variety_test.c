/*
 * variety_test.c - the first sizes of a kind stay known, however many come.
 */
#include "train/device/cpu/variety.h"

#include "testing/check.h"

static void the_first_sizes_are_worth_it_for_good(void **state)
{
    uint64_t kind = trii_kind_add(trii_kind_add(0, 17), -3), other = trii_kind_add(kind, 1);

    (void)state;
    for (int round = 0; round < 2; round++) {
        for (int64_t size = 1; size <= 9; size++)
            assert_int_equal(trii_kind_varies(kind, size * size, 3), size > 3);
    }
    assert_false(trii_kind_varies(other, 81, 3));
    assert_true(trii_kind_add(0, 0) != trii_kind_add(0, 1));
    assert_true(trii_kind_add(trii_kind_add(0, 1), 2) != trii_kind_add(trii_kind_add(0, 2), 1));
}

static void kinds_beyond_the_most_are_worth_everything(void **state)
{
    (void)state;
    for (int64_t k = 0; k < 10000; k++)
        assert_false(trii_kind_varies(trii_kind_add(5, k), 1, 1));
    assert_true(trii_kind_varies(trii_kind_add(5, 0), 2, 1));
    assert_false(trii_kind_varies(trii_kind_add(5, 9999), 2, 1));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_first_sizes_are_worth_it_for_good),
    cmocka_unit_test(kinds_beyond_the_most_are_worth_everything),
};

TEST_MAIN(tests)
