/*
 * kv_test.c - the table of a store as nobody outside can steer it; what stores promise is in
 * store_test.c.
 */
#include "store/kv.h"

#include <string.h>

#include "testing/check.h"

#define KEYS 64

static bool note_key(void *arg, trii_slice key)
{
    char *order = arg;

    strncat(order, key.data, key.bytes);
    return true;
}

/* A client that could foresee where keys lie could put them all into one chain. */
static void no_two_tables_have_the_same_order(void **state)
{
    char orders[2][4 * KEYS + 1] = {"", ""};

    (void)state;
    for (int t = 0; t < 2; t++) {
        trii_kv *kv = NULL;

        CHECK_OK(trii_kv_create(&kv));
        for (int i = 0; i < KEYS; i++) {
            char name[8];

            snprintf(name, sizeof(name), "k%02d,", i);
            CHECK_OK(trii_kv_set(kv, (trii_slice){name, strlen(name)}, (trii_slice){"v", 1}));
        }
        trii_kv_each(kv, note_key, orders[t]);
        trii_kv_destroy(kv);
    }
    assert_int_equal(strlen(orders[0]), 4 * KEYS);
    assert_int_equal(strlen(orders[1]), 4 * KEYS);
    assert_string_not_equal(orders[0], orders[1]);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(no_two_tables_have_the_same_order),
};

TEST_MAIN(tests)
