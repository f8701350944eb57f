/* hash_test.c - FNV-1a against the values that its authors publish. */
#include "base/hash.h"
#include "testing/check.h"

static void texts_have_the_published_hashes(void **state)
{
    (void)state;
    assert_true(trii_hash_text(TRII_HASH_SEED, "") == UINT64_C(0xcbf29ce484222325));
    assert_true(trii_hash_text(TRII_HASH_SEED, "a") == UINT64_C(0xaf63dc4c8601ec8c));
    assert_true(trii_hash_text(TRII_HASH_SEED, "foobar") == UINT64_C(0x85944171f73967e8));
    assert_int_equal(trii_hash32(""), 0x811c9dc5u);
    assert_int_equal(trii_hash32("a"), 0xe40c292cu);
    assert_int_equal(trii_hash32("foobar"), 0xbf9cf968u);
}

static void pieces_hash_as_their_whole(void **state)
{
    uint64_t hash = trii_hash(TRII_HASH_SEED, "foo", 3);

    (void)state;
    assert_true(trii_hash(hash, "bar", 3) == trii_hash_text(TRII_HASH_SEED, "foobar"));
    assert_true(trii_hash(hash, NULL, 0) == hash);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(texts_have_the_published_hashes),
    cmocka_unit_test(pieces_hash_as_their_whole),
};

TEST_MAIN(tests)
