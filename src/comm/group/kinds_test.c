/* kinds_test.c - the list of calls: what its properties make of each, and each in words. */
/* ctest: threads=none */
#include "testing/check.h"

#include <string.h>

#include "comm/group/engine.h"

static void check_words(trii_kind kind, const char *expected)
{
    const trii_collective call = {.kind = kind,
                                  .dtype = TRI_DTYPE_F32,
                                  .op = TRI_REDOP_MAX,
                                  .root = 3,
                                  .tag = 9,
                                  .count = 100,
                                  .seq = 7};
    char text[256];

    trii_collective_describe(&call, text, sizeof(text));
    assert_string_equal(text, expected);
}

static void every_call_has_its_words(void **state)
{
    (void)state;
    check_words(TRII_KIND_NONE, "no call #7");
    check_words(TRII_KIND_ALL_REDUCE, "all_reduce #7 of 100 f32, max");
    check_words(TRII_KIND_BROADCAST, "broadcast #7 of 100 f32 from rank 3");
    check_words(TRII_KIND_ALL_GATHER, "all_gather #7 of 100 f32");
    check_words(TRII_KIND_REDUCE_SCATTER, "reduce_scatter #7 of 100 f32, max");
    check_words(TRII_KIND_BARRIER, "barrier #7");
    check_words(TRII_KIND_SEND, "send #7 of 100 f32 to rank 3, tag 9");
    check_words(TRII_KIND_RECV, "recv #7 of 100 f32 from rank 3, tag 9");
    check_words(TRII_KIND_REDUCE, "reduce #7 of 100 f32, max, to rank 3");
    check_words(TRII_KIND_GATHER, "gather #7 of 100 f32 to rank 3");
    check_words(TRII_KIND_SCATTER, "scatter #7 of 100 f32 from rank 3");
    check_words(TRII_KIND_ALL_TO_ALL, "all_to_all #7 of 100 f32");
    check_words(TRII_KIND_ALL_GATHER_V, "all_gather_v #7 of 100 f32");
    check_words(TRII_KIND_REDUCE_SCATTER_V, "reduce_scatter_v #7 of 100 f32, max");
    check_words(TRII_KIND_ALL_TO_ALL_V, "all_to_all_v #7 of f32");
    check_words(TRII_KIND_RECV_ANY, "recv_any #7 of 100 f32, tag 9");
    check_words(TRII_KIND_COUNT, "unknown call #7");
}

/* They are on the wire and in flight records. */
static void the_numbers_of_calls_stay(void **state)
{
    (void)state;
    assert_int_equal(TRII_KIND_ALL_REDUCE, 1);
    assert_int_equal(TRII_KIND_BARRIER, 5);
    assert_int_equal(TRII_KIND_ALL_TO_ALL, 11);
    assert_int_equal(TRII_KIND_RECV_ANY, 15);
    assert_int_equal(TRII_KIND_COUNT, 16);
}

static void a_call_is_a_collective_or_a_message(void **state)
{
    const uint32_t messages =
        1u << TRII_KIND_SEND | 1u << TRII_KIND_RECV | 1u << TRII_KIND_RECV_ANY;

    (void)state;
    assert_int_equal(TRII_KINDS_PAIR, messages);
    assert_int_equal(TRII_KINDS_COLLECTIVE, 0xfffe & ~messages);
    assert_int_equal(TRII_KINDS_REDUCING, 1u << TRII_KIND_ALL_REDUCE | 1u << TRII_KIND_REDUCE |
                                              1u << TRII_KIND_REDUCE_SCATTER |
                                              1u << TRII_KIND_REDUCE_SCATTER_V);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_call_has_its_words),
    cmocka_unit_test(the_numbers_of_calls_stay),
    cmocka_unit_test(a_call_is_a_collective_or_a_message),
};

TEST_MAIN(tests)
