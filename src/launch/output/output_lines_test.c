/*
 * output_lines_test.c - when the bars of several workers take their turns. What they look like is
 * launcher_output_test.c.
 */
#include "launch/output/output_internal.h"
#include "testing/check.h"

enum { STREAMS = 8 };

static void bars_share_their_time_with_bars_only(void **state)
{
    trii_stream streams[STREAMS] = {{.fd = 0}};
    trii_sink sink = {.fd = -1};
    int64_t one_ns;

    (void)state;
    for (int i = 0; i < STREAMS; i++) {
        streams[i].sink = &sink;
        streams[i].next = sink.streams;
        streams[i].options.label = "label";
        sink.streams = &streams[i];
    }
    assert_int_equal(trii_stream_draw_ns(&streams[0]), 0);
    streams[0].redraw = true;
    streams[0].drawn_ns = 1000;
    one_ns = trii_stream_draw_ns(&streams[0]) - 1000;
    assert_int_equal(one_ns, 500000000);
    streams[3].redraw = streams[7].redraw = true;
    assert_int_equal(trii_stream_draw_ns(&streams[0]), 1000 + 3 * one_ns);
    streams[3].redraw = false;
    assert_int_equal(trii_stream_draw_ns(&streams[0]), 1000 + 2 * one_ns);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(bars_share_their_time_with_bars_only),
};

TEST_MAIN(tests)
