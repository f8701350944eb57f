/*
 * store_memory_test.c - the bound of a store's table is one of memory, by the C library's count.
 */
/* ctest: threads=none tsan=no */
#include <malloc.h>
#include <string.h>

#include "store/kv.h"
#include "testing/check.h"

static size_t heap_bytes(void)
{
    struct mallinfo2 info = mallinfo2();

    return info.uordblks + info.hblkhd;
}

/* What a table may hold is what its values take now, not what they once were. */
static void a_small_value_does_not_keep_the_memory_of_a_large_one(void **state)
{
    enum { LARGE = 1 << 20, MANY = 16 };
    char *large = calloc(1, LARGE), name[8];
    trii_kv *kv = NULL;
    trii_slice value;
    size_t before;

    (void)state;
    assert_non_null(large);
    CHECK_OK(trii_kv_create(&kv));
    before = heap_bytes();
    for (int i = 0; i < MANY; i++) {
        const trii_slice key = {name, 2};

        snprintf(name, sizeof(name), "%02d", i);
        CHECK_OK(trii_kv_set(kv, key, (trii_slice){large, LARGE}));
        CHECK_OK(trii_kv_set(kv, key, (trii_slice){"", 0}));
        CHECK_OK(trii_kv_append(kv, key, (trii_slice){"small", 5}));
        assert_true(trii_kv_get(kv, key, &value));
        assert_int_equal(value.bytes, 5);
        assert_memory_equal(value.data, "small", 5);
    }
    assert_in_range(heap_bytes() - before, 0, LARGE);
    trii_kv_destroy(kv);
    free(large);
}

/* Values that grew by pieces count with the room that they have: the bound is one of memory. */
static void room_to_grow_counts(void **state)
{
    enum { PIECE = 1 << 20 };
    char *piece = calloc(1, PIECE), name[8];
    trii_kv *kv = NULL;
    size_t before, most = 0;
    tri_status status = TRI_OK;

    (void)state;
    assert_non_null(piece);
    CHECK_OK(trii_kv_create(&kv));
    before = heap_bytes();
    for (int i = 0; status == TRI_OK && i < 2048; i++) { /* 33 pieces each: room for 64 */
        snprintf(name, sizeof(name), "%02d", i / 33);
        status = trii_kv_append(kv, (trii_slice){name, 2}, (trii_slice){piece, PIECE});
        most = heap_bytes() - before;
    }
    assert_int_equal(status, TRI_ERR_NO_MEMORY);
    assert_in_range(most, 0, TRII_KV_MAX_BYTES + 16 * (size_t)PIECE);
    trii_kv_destroy(kv);
    free(piece);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_small_value_does_not_keep_the_memory_of_a_large_one),
    cmocka_unit_test(room_to_grow_counts),
};

TEST_MAIN(tests)
