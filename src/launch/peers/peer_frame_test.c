/*
 * peer_frame_test.c - what agents send each other, in pieces of any size, and what is no frame.
 */
#include "launch/peers/peer_frame.h"

#include <string.h>

#include "testing/check.h"

static const char token[] = "0123456789abcdef";

static trii_peer_frame hello_of(const char *text, int rank, int64_t round)
{
    trii_peer_frame hello = {
        .magic = TRII_PEER_MAGIC, .kind = TRII_PEER_HELLO, .rank = rank, .value = round};

    memcpy(hello.token, text, sizeof(hello.token));
    return hello;
}

static tri_status feed(trii_peer_reader *reader, const void *data, size_t bytes, size_t *used_out)
{
    const trii_job_key none = {0};
    unsigned char answer[TRII_ANSWER_BYTES];
    size_t answer_bytes;
    tri_status status =
        trii_peer_reader_feed(reader, &none, data, bytes, used_out, answer, &answer_bytes);

    assert_int_equal(answer_bytes, 0);
    return status;
}

static void frames_are_understood_in_any_pieces(void **state)
{
    const trii_peer_frame sent[2] = {
        hello_of(token, INT32_MAX, INT64_MAX),
        {.magic = TRII_PEER_MAGIC, .kind = TRII_PEER_PREEMPTION, .number = 1, .value = -1}};

    (void)state;
    for (size_t piece = 1; piece <= sizeof(sent); piece++) {
        trii_peer_reader reader = {0};
        size_t at = 0, used;
        int n = 0;

        while (at < sizeof(sent)) {
            size_t bytes = sizeof(sent) - at < piece ? sizeof(sent) - at : piece;
            tri_status status = feed(&reader, (const char *)sent + at, bytes, &used);

            at += used;
            if (status == TRI_INPROGRESS)
                continue;
            CHECK_OK(status);
            assert_memory_equal(&reader.frame, &sent[n], sizeof(sent[n]));
            n++;
        }
        assert_int_equal(n, 2);
    }
}

static void the_text_of_news_is_understood_in_any_pieces(void **state)
{
    static const char why[] = "rank 3 on host node1 exited with code 1";
    const trii_peer_frame news = {.magic = TRII_PEER_MAGIC,
                                  .kind = TRII_PEER_NEWS,
                                  .rank = -1,
                                  .number = TRII_PEER_COUNTS,
                                  .value = sizeof(why) - 1};
    char sent[2 * (sizeof(news) + sizeof(why) - 1)];
    const size_t one = sizeof(sent) / 2;

    (void)state;
    for (size_t at = 0; at < sizeof(sent); at += one) {
        memcpy(sent + at, &news, sizeof(news));
        memcpy(sent + at + sizeof(news), why, one - sizeof(news));
    }
    for (size_t piece = 1; piece <= sizeof(sent); piece++) {
        trii_peer_reader reader = {0};
        size_t at = 0, used;
        int n = 0;

        while (at < sizeof(sent)) {
            size_t bytes = sizeof(sent) - at < piece ? sizeof(sent) - at : piece;
            tri_status status = feed(&reader, sent + at, bytes, &used);

            at += used;
            if (status == TRI_INPROGRESS)
                continue;
            CHECK_OK(status);
            assert_memory_equal(&reader.frame, &news, sizeof(news));
            assert_string_equal(reader.text, why);
            n++;
        }
        assert_int_equal(n, 2);
    }
}

static void what_is_no_frame_is_refused(void **state)
{
    const trii_peer_frame wrong[] = {
        {.magic = 0x31415254, .kind = TRII_PEER_HELLO},
        {.kind = TRII_PEER_HEARTBEAT},
        hello_of(token, -1, 0),
        hello_of(token, 0, -1),
        {.magic = TRII_PEER_MAGIC, .kind = TRII_PEER_HEARTBEAT, .value = -1},
        {.magic = TRII_PEER_MAGIC, .kind = TRII_PEER_HEARTBEAT, .number = -1},
        {.magic = TRII_PEER_MAGIC, .kind = TRII_PEER_NEWS, .rank = -2},
        {.magic = TRII_PEER_MAGIC, .kind = TRII_PEER_NEWS, .value = -1},
        {.magic = TRII_PEER_MAGIC, .kind = TRII_PEER_NEWS, .value = TRII_PEER_TEXT_BYTES},
        {.magic = TRII_PEER_MAGIC, .kind = TRII_PEER_PREEMPTION, .rank = -1, .number = 1},
        {.magic = TRII_PEER_MAGIC, .kind = TRII_PEER_PREEMPTION, .number = 0},
        {.magic = TRII_PEER_MAGIC, .kind = TRII_PEER_PREEMPTION, .number = 1, .value = -2},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        trii_peer_reader reader = {0};
        size_t used;

        if (feed(&reader, &wrong[i], sizeof(wrong[i]), &used) != TRI_ERR_FORMAT)
            fail_msg("frame %zu was understood", i);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(frames_are_understood_in_any_pieces),
    cmocka_unit_test(the_text_of_news_is_understood_in_any_pieces),
    cmocka_unit_test(what_is_no_frame_is_refused),
};

TEST_MAIN(tests)
