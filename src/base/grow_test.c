/* grow_test.c - arrays that grow by one element at a time. */
#include "base/alloc.h"
#include "base/grow.h"
#include "testing/check.h"

static void elements_stay_while_the_room_doubles(void **state)
{
    int *numbers = NULL, room = 0;

    (void)state;
    for (int n = 0; n < 100; n++) {
        CHECK_OK(trii_array_grow(&numbers, &room, n, 3, sizeof(*numbers), "numbers"));
        numbers[n] = n;
    }
    assert_int_equal(room, 192);
    for (int n = 0; n < 100; n++)
        assert_int_equal(numbers[n], n);
    trii_free(numbers);
}

static void without_memory_nothing_changes(void **state)
{
    int *numbers = NULL, *before, room = 0;

    (void)state;
    CHECK_OK(trii_array_grow(&numbers, &room, 0, 1, sizeof(*numbers), "numbers"));
    before = numbers;
    trii_alloc_fail_at(1);
    CHECK_FAILS(TRI_ERR_NO_MEMORY,
                trii_array_grow(&numbers, &room, 1, 1, sizeof(*numbers), "numbers"), "numbers");
    trii_alloc_fail_at(0);
    assert_ptr_equal(numbers, before);
    assert_int_equal(room, 1);
    trii_free(numbers);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(elements_stay_while_the_room_doubles),
    cmocka_unit_test(without_memory_nothing_changes),
};

TEST_MAIN(tests)
