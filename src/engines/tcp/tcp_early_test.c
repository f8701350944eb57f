/*
 * tcp_early_test.c - frames that come before their call: how many are kept, and that none
 * overtakes another. The connections have no sockets: what comes lies in their buffers.
 */
#include "testing/check.h"

#include "base/alloc.h"
#include "engines/tcp/tcp.h"

/* A message without a payload takes memory as well. */
static void there_is_a_limit_to_empty_messages(void **state)
{
    static trii_fault fault;
    const size_t before = TCP_EARLY - 3 * sizeof(tcp_early);
    tcp_group g = {.size = 2, .fault = &fault};
    tcp_conn c = {.group = &g, .rank = 1, .fd = -1, .early_bytes = before};
    long live = trii_alloc_live();
    int kept = 0;

    (void)state;
    c.head = (tcp_frame){.type = TCP_FRAME_MESSAGE};
    while (kept < 5 && tcp_p2p_accept(&c)) {
        tcp_p2p_came(&c);
        kept++;
    }
    assert_int_equal(kept, 3);
    tcp_p2p_fail_all(&c, TRI_ERR_ABORTED, "the end");
    assert_int_equal(c.early_bytes, before);
    assert_int_equal(trii_alloc_live(), live);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(there_is_a_limit_to_empty_messages),
};

TEST_MAIN(tests)
