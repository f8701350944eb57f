/* plot_timeline_test.c - `trireme plot --timeline`: which run is drawn, and what of it. */
#include "testing/check.h"

#include <math.h>

#include "base/compiler.h"
#include "testing/plot_calls.h"
#include "testing/scratch.h"

#define EVENT(name, ts, dur, tid, run)                                                             \
    ",{\"name\":\"x\",\"cat\":\"" name "\",\"ph\":\"X\",\"ts\":" #ts ",\"dur\":" #dur              \
    ",\"pid\":7,\"tid\":" #tid ",\"args\":{\"run\":" #run "}}\n"
#define HEAD                                                                                       \
    "[\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":7,\"tid\":0,\"args\":{\"name\":\"cpu:0\"}}" \
    "\n,{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":7,\"tid\":1,\"args\":{\"name\":\"cpu:1\"}}" \
    "\n"

/* Run 2 is the last of two on two devices; neither its first event nor its last is at its end. */
static const char trace[] = HEAD EVENT("forward", 100, 50, 0, 1) EVENT("forward", 110, 10, 1, 1)
    EVENT("backward", 300.5, 200, 1, 2) EVENT("forward", 200.5, 100, 0, 2)
        EVENT("odd", 400.5, 200, 0, 2) EVENT("forward", 350.5, 100, 0, 2)
            EVENT("update", 900, 10000, 0, 3) ",{\"name\":\"cut";

#define BOX "fill-rule:nonzero;fill:rgb("

/* Where the axis begins and how long it is, and where the rows begin. In points. */
#define LEFT 84
#define AXIS 854.0
#define TOP 64
#define ROW 56

/* The box of a colour in an SVG, after `after` others of it and its key. */
static void expect_box(const char *svg, const char *colour, int after, double begin, double end,
                       int row)
{
    double x0, x1, y;
    const char *at = svg;

    for (int i = -2; i < after; i++) {
        do {
            at = strstr(at + 1, BOX);
            assert_non_null(at);
        } while (strncmp(at + strlen(BOX), colour, strlen(colour)) != 0);
    }
    assert_int_equal(sscanf(strstr(at, "d=\"M"), "d=\"M %lf %lf L %lf", &x0, &y, &x1), 3);
    if (fabs(x0 - (LEFT + AXIS * begin)) > 0.1 || fabs(x1 - (LEFT + AXIS * end)) > 0.1 ||
        fabs(y - (TOP + ROW * row + 9)) > 0.1)
        fail_msg("%s %d: from %g to %g at %g", colour, after, x0, x1, y);
}

static void boxes_are_as_wide_as_their_time(void **state)
{
    static const char forward[] = "0%,44.7%,69.8%", backward[] = "83.5%,36.9%,0%";
    const char *in, *out;
    char *svg;
    size_t n;
    scratch s;

    (void)state;
    scratch_begin(&s);
    in = scratch_file(&s, "t.json", trace, sizeof(trace) - 1);
    out = scratch_path(&s, "t.svg");
    assert_int_equal(plot("--timeline", in, "-o", out, "--title", "A step \xff", NULL), 0);
    assert_memory_equal(said, "run 2 of 3 (training)\n", 22);
    assert_non_null(strstr(said, "t.json ends in the middle of an event"));
    svg = scratch_read(out, &n);
    expect_box(svg, forward, 0, 0, 0.25, 0);
    expect_box(svg, backward, 0, 0.25, 0.75, 1);
    expect_box(svg, "33.7%,70.6%,91.4%", 0, 0.5, 1, 0); /* of no name that is known */
    expect_box(svg, forward, 1, 0.375, 0.625, 0);
    assert_int_equal(characters_at(svg, 24), 8);                     /* the title */
    assert_int_equal(characters_at(svg, TOP - 14), 20);              /* three keys */
    assert_int_equal(characters_at(svg, TOP + ROW / 2 - 2), 5);      /* cpu:0 */
    assert_int_equal(characters_at(svg, TOP + ROW / 2 + 13), 10);    /* 100 % busy */
    assert_int_equal(characters_at(svg, TOP + ROW * 3 / 2 + 13), 9); /* 50 % busy */
    assert_int_equal(characters_at(svg, TOP + ROW * 2 + 36), 12);    /* microseconds */
    free(svg);
    assert_int_equal(plot("--timeline", in, "-o", out, "--run", "3", NULL), 0);
    svg = scratch_read(out, &n);                             /* one device, without a title */
    assert_int_equal(characters_at(svg, 40 + ROW + 16), 12); /* 0 to 10 */
    assert_int_equal(characters_at(svg, 40 + ROW + 36), 12); /* milliseconds */
    free(svg);
    scratch_end(&s);
}

/* Of which each has counted its own runs. */
static void files_of_two_processes_may_be_one(void **state)
{
    static const char two[] = "[\n" EVENT(
        "forward", 100, 50, 0, 1) "[\n"
                                  ",{\"name\":\"x\",\"cat\":\"copy\",\"ph\":\"X\",\"ts\":120,"
                                  "\"dur\":60,\"pid\":8,\"tid\":0,\"args\":{\"run\":1}}\n";
    const char *in, *out;
    char *svg;
    size_t n;
    scratch s;

    (void)state;
    scratch_begin(&s);
    in = scratch_file(&s, "t.json", two, sizeof(two) - 1);
    out = scratch_path(&s, "t.svg");
    assert_int_equal(plot("--timeline", in, "-o", out, NULL), 0);
    svg = scratch_read(out, &n);
    assert_int_equal(characters_at(svg, 40 - 14), 4);              /* copy: of the second */
    assert_int_equal(characters_at(svg, 40 + ROW / 2 - 2), 8);     /* thread 0 */
    assert_int_equal(characters_at(svg, 40 + ROW * 3 / 2 - 2), 0); /* and no other */
    free(svg);
    scratch_end(&s);
}

#define CALL(name, ts, tid, node)                                                                  \
    ",{\"name\":\"x\",\"cat\":\"" name "\",\"ph\":\"X\",\"ts\":" #ts                               \
    ",\"dur\":100,\"pid\":7,\"tid\":" #tid ",\"args\":{\"run\":1,\"node\":" #node "}}\n"

/* Two pieces pass through two devices; between their operations lie those of the other device. */
static void pieces_of_a_batch_are_numbered(void **state)
{
    static const char pieces[] = HEAD CALL("forward", 0, 0, 0) CALL("forward", 100, 0, 1)
        CALL("forward", 200, 0, 4) CALL("forward", 200, 1, 2) CALL("forward", 300, 1, 3)
            CALL("forward", 400, 1, 6) CALL("backward", 500, 1, 7) CALL("backward", 600, 1, 9)
                CALL("backward", 600, 0, 8) CALL("update", 700, 0, 10);
    const char *in, *out;
    char *svg;
    size_t n;
    scratch s;

    (void)state;
    scratch_begin(&s);
    in = scratch_file(&s, "t.json", pieces, sizeof(pieces) - 1);
    out = scratch_path(&s, "t.svg");
    assert_int_equal(plot("--timeline", in, "-o", out, NULL), 0);
    svg = scratch_read(out, &n);
    assert_int_equal(characters_at(svg, 40 - 14), 21 + 28);             /* keys, what numbers are */
    assert_int_equal(characters_at(svg, 40 + 9 + 38 / 2 + 4), 2);       /* 1, 2: forward */
    assert_int_equal(characters_at(svg, 40 + ROW + 9 + 38 / 2 + 4), 4); /* and backward */
    free(svg);
    scratch_end(&s);
}

#define PART(name, cat, ts, dur, pid, part)                                                        \
    ",{\"name\":\"" name "\",\"cat\":\"" cat "\",\"ph\":\"X\",\"ts\":" #ts ",\"dur\":" #dur        \
    ",\"pid\":" #pid ",\"tid\":0,\"args\":{\"run\":1,\"node\":1,\"part\":\"" part "\"}}\n"

/* A file of each worker, the later stage's first; then a run without a pipeline. */
static void a_pipeline_is_drawn_of_the_files_of_its_workers(void **state)
{
    static const char last[] = "[\n" PART("wait for recv", "communication", 100, 100, 8, "1F0")
        PART("linear", "forward", 200, 100, 8, "1F0") PART("linear", "backward", 300, 50, 8, "1I0")
            PART("linear", "backward", 350, 150, 8, "1W0");
    static const char first[] = "[\n" PART("linear", "forward", 100, 100, 7, "0F0")
        PART("wait for recv", "communication", 200, 150, 7, "0W0")
            PART("linear", "backward", 350, 50, 7, "0W0") EVENT("update", 900, 10000, 0, 2);
    const char *a, *b, *out;
    char *svg;
    size_t n;
    scratch s;

    (void)state;
    scratch_begin(&s);
    a = scratch_file(&s, "a.json", last, sizeof(last) - 1);
    b = scratch_file(&s, "b.json", first, sizeof(first) - 1);
    out = scratch_path(&s, "t.svg");
    assert_int_equal(plot("--timeline", a, b, "-o", out, "--title", "p", NULL), 0);
    assert_non_null(strstr(said, "stage 0: idle 62.5 % of 0.400 ms\n"));
    assert_non_null(strstr(said, "stage 1: idle 25.0 % of 0.400 ms\n"));
    svg = scratch_read(out, &n);
    expect_box(svg, "0%,44.7%,69.8%", 0, 0, 0.25, 0);        /* 0F0 */
    expect_box(svg, "0%,44.7%,69.8%", 1, 0.25, 0.5, 1);      /* 1F0 */
    expect_box(svg, "53.3%,13.3%,33.3%", 0, 0.5, 0.625, 1);  /* 1I0 */
    expect_box(svg, "33.7%,70.6%,91.4%", 0, 0.625, 0.75, 0); /* 0W0 */
    expect_box(svg, "33.7%,70.6%,91.4%", 1, 0.625, 1, 1);    /* 1W0 */
    free(svg);
    scratch_end(&s);
}

#define RANK(rank, size, pid)                                                                      \
    "[\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":" #pid ",\"args\":{\"name\":\"rank " #rank \
    " of " #size "\"}}\n"
#define LATER(ts, pid, run, part)                                                                  \
    ",{\"name\":\"linear\",\"cat\":\"forward\",\"ph\":\"X\",\"ts\":" #ts                           \
    ",\"dur\":50,\"pid\":" #pid ",\"tid\":0,\"args\":{\"run\":" #run                               \
    ",\"node\":1,\"part\":\"" part "\"}}\n"

/* Both ranks have the same stage, as on a mesh, and evaluate after they have trained. */
static void a_step_that_trains_is_drawn_before_an_evaluation(void **state)
{
    static const char zero[] = RANK(0, 2, 9) PART("linear", "forward", 100, 100, 9, "0F0")
        PART("linear", "backward", 200, 300, 9, "0B0") LATER(900, 9, 2, "0F0");
    static const char one[] = RANK(1, 2, 8) PART("linear", "forward", 100, 100, 8, "0F0")
        PART("linear", "backward", 200, 100, 8, "0B0") LATER(900, 8, 2, "0F0");
    const char *a, *b, *out;
    char *svg;
    size_t n;
    scratch s;

    (void)state;
    scratch_begin(&s);
    a = scratch_file(&s, "a.json", zero, sizeof(zero) - 1);
    b = scratch_file(&s, "b.json", one, sizeof(one) - 1);
    out = scratch_path(&s, "t.svg");
    assert_int_equal(plot("--timeline", b, a, "-o", out, NULL), 0);
    assert_string_equal(said, "run 1 of 2 (training)\n"
                              "rank 0, stage 0: idle 0.0 % of 0.400 ms\n"
                              "rank 1, stage 0: idle 50.0 % of 0.400 ms\n");
    svg = scratch_read(out, &n);
    assert_int_equal(characters_at(svg, 40 + ROW / 2 - 2), 15); /* rank 0, stage 0 */
    free(svg);
    assert_int_equal(plot("--timeline", a, b, "-o", out, "--run", "2", NULL), 0);
    assert_non_null(strstr(said, "run 2 of 2\nrank 0, stage 0: idle 0.0 %"));
    scratch_end(&s);
}

/* A process of two stages, all of whose keys need more than a line. */
static void keys_and_names_have_the_room_they_need(void **state)
{
    static const char all[] = RANK(10, 16, 7) PART("linear", "forward", 0, 50, 7, "0F0")
        PART("linear", "forward", 50, 50, 7, "31F0") PART("x", "communication", 100, 50, 7, "31F0")
            PART("linear", "backward", 150, 50, 7, "31I0")
                PART("linear", "backward", 200, 50, 7, "31W0")
                    PART("linear", "backward", 250, 50, 7, "0B0") EVENT("copy", 300, 50, 0, 1)
                        EVENT("update", 350, 50, 0, 1);
    const char *in, *out;
    char *svg;
    size_t n;
    scratch s;

    (void)state;
    scratch_begin(&s);
    in = scratch_file(&s, "t.json", all, sizeof(all) - 1);
    out = scratch_path(&s, "t.svg");
    assert_int_equal(plot("--timeline", in, "-o", out, NULL), 0);
    assert_non_null(strstr(said, "rank 10, stages 0, 31: idle 0.0 % of 0.400 ms\n"));
    assert_non_null(strstr(said, "trireme plot: warning: no file of rank 0, 1, 2, 3, 4, 5, 6, 7 "
                                 "and 7 others of 16: give the files of all ranks\n"));
    svg = scratch_read(out, &n);
    assert_int_equal(characters_at(svg, 40 - 14), 77);      /* keys */
    assert_int_equal(characters_at(svg, 40 - 14 + 18), 42); /* what numbers are: the next line */
    for (const char *at = strstr(svg, "<use "); at != NULL; at = strstr(at + 1, "<use "))
        assert_in_range(strtod(strstr(at, " x=\"") + 4, NULL), 0, 960); /* nothing is cut off */
    free(svg);
    scratch_end(&s);
}

static void files_of_two_jobs_are_refused(void **state)
{
    static const char first[] = RANK(0, 2, 7) EVENT("forward", 0, 10, 0, 1);
    static const char again[] = RANK(0, 2, 8) PART("linear", "forward", 0, 10, 8, "0F0");
    static const char large[] = RANK(1, 4, 9) PART("linear", "forward", 0, 10, 9, "0F0");
    const char *a, *b, *c, *out;
    scratch s;

    (void)state;
    scratch_begin(&s);
    a = scratch_file(&s, "a.json", first, sizeof(first) - 1);
    b = scratch_file(&s, "b.json", again, sizeof(again) - 1);
    c = scratch_file(&s, "c.json", large, sizeof(large) - 1);
    out = scratch_path(&s, "t.svg");
    assert_int_equal(plot("--timeline", a, b, "-o", out, NULL), 1);
    assert_non_null(strstr(said, "a.json and "));
    assert_non_null(strstr(said, "b.json are both of rank 0: give one file of each rank of a job"));
    assert_int_equal(plot("--timeline", a, c, "-o", out, NULL), 1);
    assert_non_null(strstr(said, "a.json is of a job of 2 ranks, "));
    assert_non_null(strstr(said, "c.json of one of 4: give the files of one job"));
    scratch_end(&s);
}

/* As of two containers: they have equal process ids. */
static void ranks_of_equal_process_ids_have_a_row_each(void **state)
{
    static const char zero[] = RANK(0, 2, 7) PART("linear", "forward", 100, 100, 7, "0F0")
        PART("linear", "backward", 300, 100, 7, "0B0");
    static const char one[] = RANK(1, 2, 7) PART("linear", "forward", 200, 50, 7, "1F0")
        PART("linear", "backward", 250, 50, 7, "1B0");
    const char *a, *b, *out;
    scratch s;

    (void)state;
    scratch_begin(&s);
    a = scratch_file(&s, "a.json", zero, sizeof(zero) - 1);
    b = scratch_file(&s, "b.json", one, sizeof(one) - 1);
    out = scratch_path(&s, "t.svg");
    assert_int_equal(plot("--timeline", b, a, "-o", out, NULL), 0);
    assert_string_equal(said, "run 1 of 1 (training)\n"
                              "rank 0, stage 0: idle 33.3 % of 0.300 ms\n"
                              "rank 1, stage 1: idle 66.7 % of 0.300 ms\n");
    scratch_end(&s);
}

#define RANK_ON(rank, host, epoch)                                                                 \
    "[\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":7,\"args\":{\"name\":\"rank " #rank        \
    " of 3\",\"host\":\"" host "\",\"epoch\":" #epoch "}}\n"

/* Each host counts from a moment of its own. What two ranks of one host say of that moment differs
 * if the wall clock was set in between. */
static void clocks_of_hosts_are_made_one(void **state)
{
    static const char zero[] =
        RANK_ON(0, "a", 1700000000000000) PART("linear", "forward", 1000, 100, 7, "0F0");
    static const char one[] =
        RANK_ON(1, "b", 1699999999990000) PART("linear", "forward", 11200, 100, 7, "1F0");
    static const char two[] =
        RANK_ON(2, "a", 1700000000000050) PART("linear", "forward", 1250, 50, 7, "2F0");
    const char *a, *b, *c, *out;
    scratch s;

    (void)state;
    scratch_begin(&s);
    a = scratch_file(&s, "a.json", zero, sizeof(zero) - 1);
    b = scratch_file(&s, "b.json", one, sizeof(one) - 1);
    c = scratch_file(&s, "c.json", two, sizeof(two) - 1);
    out = scratch_path(&s, "t.svg");
    assert_int_equal(plot("--timeline", a, b, c, "-o", out, "--run", "1", NULL), 0);
    assert_non_null(strstr(said, "rank 1, stage 1: idle 66.7 % of 0.300 ms\n"));
    scratch_end(&s);
}

/* As where a job was killed: rank 1 has written its third step, rank 0 has not. In the pause
 * between steps 2 and 3 rank 1 is ahead, so its third began before the second of rank 0 ended. */
static void rows_are_of_one_step_where_a_file_ends_earlier(void **state)
{
    static const char zero[] = RANK(0, 2, 9) PART("linear", "backward", 100, 100, 9, "0B0")
        LATER(200, 9, 2, "0F0") LATER(250, 9, 2, "0B0");
    static const char one[] = RANK(1, 2, 8) PART("linear", "backward", 100, 80, 8, "1B0")
        LATER(210, 8, 2, "1B0") LATER(290, 8, 3, "1B0");
    static const char other[] = RANK(1, 2, 8) LATER(900, 8, 2, "1B0");
    const char *a, *b, *c, *out;
    scratch s;

    (void)state;
    scratch_begin(&s);
    a = scratch_file(&s, "a.json", zero, sizeof(zero) - 1);
    b = scratch_file(&s, "b.json", one, sizeof(one) - 1);
    c = scratch_file(&s, "c.json", other, sizeof(other) - 1);
    out = scratch_path(&s, "t.svg");
    for (int order = 0; order < 2; order++) {
        assert_int_equal(plot("--timeline", order ? a : b, order ? b : a, "-o", out, NULL), 0);
        assert_non_null(strstr(said, "rank 0, stage 0: idle 0.0 % of 0.100 ms\n"
                                     "rank 1, stage 1: idle 50.0 % of 0.100 ms\n"));
    }
    assert_int_equal(plot("--timeline", a, c, "-o", out, NULL), 1);
    assert_non_null(
        strstr(said, "c.json have no step at the same time: give the files of one job"));
    assert_int_equal(plot("--timeline", a, c, "-o", out, "--run", "2", NULL), 0);
    scratch_end(&s);
}

/* As on a disk that was full. */
static void a_run_that_is_cut_is_drawn_if_no_other_is(void **state)
{
    static const char whole[] = HEAD EVENT("forward", 0, 10, 0, 1);
    static const char cut[] =
        EVENT("forward", 100, 10, 0, 2) EVENT("backward", 110, 10, 0, 2) ",{\"name\":\"cut";
    const char *in, *out;
    char both[2 * sizeof(whole) + sizeof(cut)];
    scratch s;

    (void)state;
    scratch_begin(&s);
    out = scratch_path(&s, "t.svg");
    for (int runs = 1; runs <= 2; runs++) {
        int n = snprintf(both, sizeof(both), "%s%s", runs == 2 ? whole : HEAD, cut);

        in = scratch_file(&s, "t.json", both, (size_t)n);
        assert_int_equal(plot("--timeline", in, "-o", out, NULL), 0);
        assert_ptr_equal(strstr(said, runs == 2 ? "run 1 of 2\n" : "run 2 of 2 (training)\n"),
                         said);
        assert_non_null(strstr(said, "t.json ends in the middle of an event"));
    }
    scratch_end(&s);
}

/* Each calls operations 1 and 2 on its only device. */
static void ranks_of_one_device_have_no_pieces(void **state)
{
    static const char zero[] = RANK(0, 2, 7) CALL("forward", 0, 0, 1) CALL("forward", 100, 0, 2);
    static const char one[] = RANK(1, 2, 7) CALL("forward", 0, 0, 1) CALL("forward", 100, 0, 2);
    const char *a, *b, *out;
    char *svg;
    size_t n;
    scratch s;

    (void)state;
    scratch_begin(&s);
    a = scratch_file(&s, "a.json", zero, sizeof(zero) - 1);
    b = scratch_file(&s, "b.json", one, sizeof(one) - 1);
    out = scratch_path(&s, "t.svg");
    assert_int_equal(plot("--timeline", a, b, "-o", out, NULL), 0);
    svg = scratch_read(out, &n);
    assert_int_equal(characters_at(svg, 40 - 14), 7); /* forward, and nothing of pieces */
    free(svg);
    scratch_end(&s);
}

static void mistakes_with_timelines_are_named(void **state)
{
    /* Nothing to scale an axis by. */
    static const char *const still[] = {"[\n" EVENT("copy", 5, 0, 0, 4),
                                        "[\n" EVENT("copy", 1e15, 1e-300, 0, 4),
                                        "[\n" EVENT("copy", 0, 5e-324, 0, 4)};
    const char *in, *bad, *out;
    scratch s;

    (void)state;
    scratch_begin(&s);
    in = scratch_file(&s, "t.json", trace, sizeof(trace) - 1);
    out = scratch_path(&s, "t.svg");
    assert_int_equal(plot("--timeline", in, "-o", out, "--run", "9", NULL), 1);
    assert_non_null(strstr(said, "no run 9; the last is 3"));
    assert_int_equal(plot("--timeline", in, "-o", out, "--run", "x", NULL), 2);
    assert_non_null(strstr(said, "--run=x is not an integer"));
    assert_int_equal(plot("--timeline", in, "-o", out, "--run", "0", NULL), 2);
    assert_non_null(strstr(said, "--run=0: runs count from 1"));
    assert_int_equal(plot(in, "-o", out, "--run", "1", NULL), 2);
    assert_non_null(strstr(said, "--run is for --timeline"));
    assert_int_equal(plot("--timeline", "--bars", in, "-o", out, NULL), 2);
    assert_non_null(strstr(said, "exclude each other"));
    assert_int_equal(plot("--timeline", in, "-o", out, in, "--run", "9", NULL), 1);
    bad = scratch_file(&s, "bad.json", "[\n{\"step\":1}\n", 13);
    assert_int_equal(plot("--timeline", bad, "-o", out, NULL), 1);
    assert_non_null(strstr(said, "bad.json, line 2: not an event of a trace"));
    bad = scratch_file(&s, "empty.json", "[\n", 2);
    assert_int_equal(plot("--timeline", bad, "-o", out, NULL), 1);
    assert_non_null(strstr(said, "nothing has run"));
    for (size_t i = 0; i < TRII_COUNT_OF(still); i++) {
        bad = scratch_file(&s, "still.json", still[i], strlen(still[i]));
        assert_int_equal(plot("--timeline", bad, "-o", out, NULL), 1);
        assert_non_null(strstr(said, "still.json: run 4 took no time"));
    }
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(boxes_are_as_wide_as_their_time),
    cmocka_unit_test(files_of_two_processes_may_be_one),
    cmocka_unit_test(pieces_of_a_batch_are_numbered),
    cmocka_unit_test(a_pipeline_is_drawn_of_the_files_of_its_workers),
    cmocka_unit_test(a_step_that_trains_is_drawn_before_an_evaluation),
    cmocka_unit_test(keys_and_names_have_the_room_they_need),
    cmocka_unit_test(files_of_two_jobs_are_refused),
    cmocka_unit_test(ranks_of_equal_process_ids_have_a_row_each),
    cmocka_unit_test(clocks_of_hosts_are_made_one),
    cmocka_unit_test(rows_are_of_one_step_where_a_file_ends_earlier),
    cmocka_unit_test(ranks_of_one_device_have_no_pieces),
    cmocka_unit_test(a_run_that_is_cut_is_drawn_if_no_other_is),
    cmocka_unit_test(mistakes_with_timelines_are_named),
};
TEST_MAIN(tests)
