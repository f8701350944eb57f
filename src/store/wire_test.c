/* wire_test.c - the request parser: exact bytes, any segmentation, damage, limits. */
/* ctest: threads=none */
#include "base/alloc.h"
#include "store/wire.h"
#include "testing/check.h"

/* Host byte order, as on the wire: these are what a little-endian PyTorch client sends. */
#define U64(n) n, 0, 0, 0, 0, 0, 0, 0
static const unsigned char session[] = {
    0,  0xCE,   0xF7,   0x85,   0x3C,                      /* VALIDATE */
    13, 0x39,   0x30,   0,      0,                         /* PING 12345 */
    1,  U64(2), '/',    'k',    U64(3), 'v',    '1',  '2', /* SET */
    2,  U64(2), '/',    'c',    U64(0), U64(1), 'd',       /* COMPARE_SET */
    4,  U64(2), '/',    'n',    0xFD,   0xFF,   0xFF, 0xFF,   0xFF, 0xFF, 0xFF, 0xFF, /* ADD -3 */
    6,  U64(2), U64(2), '/',    'a',    U64(0),                    /* WAIT "/a" "" */
    7,                                                             /* GETNUMKEYS */
    11, U64(2), U64(1), 'x',    U64(0), U64(1), 'y',  U64(1), 'z', /* MULTI_SET */
    10, U64(0),                                                    /* MULTI_GET */
    18, U64(1), 'b',    U64(4),                                    /* BARRIER 4 */
    12,                                                            /* CANCEL_WAIT */
};
#define N_REQUESTS 11

/* What was parsed, as text: "1 word number [part][part]" lines. */
static void describe(char *text, size_t size, const trii_wire_request *r)
{
    size_t used = strlen(text);

    used += (size_t)snprintf(text + used, size - used, "%s %u %lld ", trii_wire_op_name(r->op),
                             r->word, (long long)r->number);
    for (size_t i = 0; i < r->n_parts; i++)
        used += (size_t)snprintf(text + used, size - used, "[%.*s]", (int)r->parts[i].bytes,
                                 r->parts[i].data);
    snprintf(text + used, size - used, "\n");
}

static const char session_text[] = "VALIDATE 1015412686 0 \n"
                                   "PING 12345 0 \n"
                                   "SET 0 0 [/k][v12]\n"
                                   "COMPARE_SET 0 0 [/c][][d]\n"
                                   "ADD 0 -3 [/n]\n"
                                   "WAIT 0 0 [/a][]\n"
                                   "GETNUMKEYS 0 0 \n"
                                   "MULTI_SET 0 0 [x][][y][z]\n"
                                   "MULTI_GET 0 0 \n"
                                   "BARRIER 0 4 [b]\n"
                                   "CANCEL_WAIT 0 0 \n";

/* Feeds the bytes in pieces of at most `step`; returns how many requests came, -1 after a
 * failure. */
static int parse(const unsigned char *data, size_t bytes, size_t step, char *text, size_t size)
{
    trii_wire_parser parser;
    trii_wire_request request;
    size_t done = 0, used = 0;
    tri_status status = TRI_OK;
    int n = 0;

    text[0] = '\0';
    trii_wire_parser_init(&parser);
    while (done < bytes && status >= 0) {
        /* a copy of exactly this size, so that a sanitizer sees every overrun */
        size_t piece = bytes - done < step ? bytes - done : step;
        char *copy = malloc(piece > 0 ? piece : 1);

        memcpy(copy, data + done, piece);
        status = trii_wire_feed(&parser, copy, piece, &used, &request);
        free(copy);
        if (status == TRI_OK) {
            describe(text, size, &request);
            n++;
        }
        done += status >= 0 ? used : 0;
    }
    trii_wire_parser_fini(&parser);
    return status < 0 ? -1 : n;
}

static void every_segmentation_gives_the_same_requests(void **state)
{
    long live = trii_alloc_live();
    char text[4096];

    (void)state;
    for (size_t step = 1; step <= sizeof(session); step++) {
        assert_int_equal(parse(session, sizeof(session), step, text, sizeof(text)), N_REQUESTS);
        assert_string_equal(text, session_text);
    }
    assert_int_equal(trii_alloc_live(), live);
}

static void a_truncated_session_gives_a_prefix(void **state)
{
    char text[4096];

    (void)state;
    for (size_t bytes = 0; bytes < sizeof(session); bytes++) {
        int n = parse(session, bytes, 7, text, sizeof(text));

        assert_in_range(n, 0, N_REQUESTS - 1);
        assert_memory_equal(text, session_text, strlen(text));
    }
}

static void damaged_bytes_never_overrun_or_leak(void **state)
{
    long live = trii_alloc_live();
    uint64_t random = 12345;
    char text[65536];
    int failed = 0;

    (void)state;
    for (int round = 0; round < 20000; round++) {
        unsigned char bytes[sizeof(session)];
        int changes;

        memcpy(bytes, session, sizeof(session));
        random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
        changes = 1 + (int)(random >> 60) % 4;
        for (int i = 0; i < changes; i++) {
            random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
            bytes[(random >> 33) % sizeof(bytes)] ^= (unsigned char)(random >> 56);
        }
        failed += parse(bytes, sizeof(bytes), 1 + (size_t)round % 40, text, sizeof(text)) < 0;
    }
    assert_in_range(failed, 1000, 19999); /* it does refuse, and not everything */
    assert_int_equal(trii_alloc_live(), live);
}

static tri_status feed_once(const unsigned char *data, size_t bytes)
{
    trii_wire_parser parser;
    trii_wire_request request;
    size_t used = 0;
    tri_status status;

    trii_wire_parser_init(&parser);
    status = trii_wire_feed(&parser, data, bytes, &used, &request);
    trii_wire_parser_fini(&parser);
    return status;
}

static void limits_are_inclusive_and_cost_nothing_before_the_bytes_come(void **state)
{
    const unsigned char key_max[] = {3, 0x00, 0x20, 0, 0, 0, 0, 0, 0};
    const unsigned char key_over[] = {3, 0x01, 0x20, 0, 0, 0, 0, 0, 0};
    const unsigned char value_max[] = {1, U64(0), 0, 0, 0, 4, 0, 0, 0, 0};
    const unsigned char value_over[] = {1, U64(0), 1, 0, 0, 4, 0, 0, 0, 0};
    const unsigned char keys_max[] = {5, 0, 0, 2, 0, 0, 0, 0, 0};
    const unsigned char keys_over[] = {5, 1, 0, 2, 0, 0, 0, 0, 0};
    const unsigned char huge[] = {3, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF};
    const unsigned char unknown[] = {19};

    (void)state;
    assert_int_equal(feed_once(key_max, sizeof(key_max)), TRI_INPROGRESS);
    CHECK_FAILS(feed_once(key_over, sizeof(key_over)), TRI_ERR_FORMAT, "length 8193 is above 8192");
    assert_int_equal(feed_once(value_max, sizeof(value_max)), TRI_INPROGRESS);
    CHECK_FAILS(feed_once(value_over, sizeof(value_over)), TRI_ERR_FORMAT, "67108865");
    assert_int_equal(feed_once(keys_max, sizeof(keys_max)), TRI_INPROGRESS);
    CHECK_FAILS(feed_once(keys_over, sizeof(keys_over)), TRI_ERR_FORMAT, "131073 keys");
    CHECK_FAILS(feed_once(huge, sizeof(huge)), TRI_ERR_FORMAT, "GET");
    CHECK_FAILS(feed_once(unknown, sizeof(unknown)), TRI_ERR_FORMAT, "unknown op 19");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_segmentation_gives_the_same_requests),
    cmocka_unit_test(a_truncated_session_gives_a_prefix),
    cmocka_unit_test(damaged_bytes_never_overrun_or_leak),
    cmocka_unit_test(limits_are_inclusive_and_cost_nothing_before_the_bytes_come),
};

TEST_MAIN(tests)
