/* plot_test.c - `trireme plot` as users run it: pictures, and what it says when there is none. */
/* ctest: threads=none tsan=no */
#include "base/compiler.h"
#include "testing/plot_calls.h"
#include "testing/scratch.h"

#include "plot_names.c" /* NOLINT(bugprone-suspicious-include): tests do not link programs */

static void curves_become_pictures(void **state)
{
    static const char text[] = "{\"step\":1,\"epoch\":1,\"loss\":2.5,\"accuracy\":0.1}\n"
                               "{\"step\":2,\"epoch\":1,\"loss\":null,\"accuracy\":0.5}\n"
                               "{\"step\":3,\"epoch\":2,\"loss\":0.5,\"test_accuracy\":0.75}\n"
                               "{\"step\":4,\"los";
    const char *in, *svg, *png;
    char *bytes;
    size_t n;
    scratch s;

    (void)state;
    scratch_begin(&s);
    in = scratch_file(&s, "m.jsonl", text, sizeof(text) - 1);
    svg = scratch_path(&s, "m.svg");
    png = scratch_path(&s, "m.png");
    assert_int_equal(plot(in, in, "-o", svg, NULL), 0);
    assert_string_equal(said, "");
    bytes = scratch_read(svg, &n);
    assert_non_null(strstr(bytes, "<svg"));
    assert_non_null(strstr(bytes, "</svg>"));
    free(bytes);
    assert_int_equal(
        plot("-o", png, "--keys", "loss,accuracy+test_accuracy", "--x", "epoch", "--", in, NULL),
        0);
    bytes = scratch_read(png, &n);
    assert_memory_equal(bytes, "\x89PNG", 4);
    free(bytes);
    scratch_end(&s);
}

/* The height that a PNG's header gives, in points. */
static int height_of(const char *png)
{
    size_t n;
    char *bytes = scratch_read(png, &n);
    int height = (unsigned char)bytes[22] * 256 + (unsigned char)bytes[23];

    free(bytes);
    return height / 2;
}

static void many_names_get_lines_of_their_own(void **state)
{
    static const char text[] =
        "{\"step\":1,\"loss\":2,\"a_rather_long_name_of_a_loss\":1,\"another_name_of_a_loss\":3,"
        "\"yet_another_name_of_a_loss\":4,\"accuracy\":0.5}\n";
    const char *in, *png;
    int one_line;
    scratch s;

    (void)state;
    scratch_begin(&s);
    in = scratch_file(&s, "m.jsonl", text, sizeof(text) - 1);
    png = scratch_path(&s, "m.png");
    assert_int_equal(plot(in, "-o", png, "--keys", "loss", NULL), 0);
    one_line = height_of(png);
    assert_int_equal(plot(in, "-o", png, "--keys",
                          "loss+a_rather_long_name_of_a_loss+another_name_of_a_loss+"
                          "yet_another_name_of_a_loss",
                          NULL),
                     0);
    assert_int_equal(height_of(png), one_line + 2 * 18);
    scratch_end(&s);
}

static void mistakes_are_named(void **state)
{
    const char *bad, *out;
    scratch s;

    (void)state;
    scratch_begin(&s);
    bad = scratch_file(&s, "bad", "{\"step\":1,\"loss\":1}\nhello\n", 26);
    out = scratch_path(&s, "o.svg");
    assert_int_equal(plot(NULL), 2);
    assert_int_equal(plot("x", NULL), 2);
    assert_int_equal(plot("x", "-o", NULL), 2);
    assert_int_equal(plot("--wrong", NULL), 2);
    assert_int_equal(plot("--help", NULL), 0);
    assert_int_equal(plot("/no/such", "-o", out, NULL), 1);
    assert_non_null(strstr(said, "/no/such"));
    assert_int_equal(plot(bad, "-o", out, NULL), 1);
    assert_non_null(strstr(said, "bad, line 2"));
    bad = scratch_file(&s, "good", "{\"step\":1,\"loss\":1}\n", 20);
    assert_int_equal(plot(bad, "-o", "x.gif", NULL), 2);
    assert_non_null(strstr(said, "neither with .svg nor with .png"));
    assert_int_equal(plot(bad, "-o", out, "--x", "nothing", NULL), 1);
    assert_non_null(strstr(said, "nothing to draw"));
    assert_int_equal(plot(bad, bad, "-o", out, "--keys", "loss,nothing", NULL), 1);
    assert_string_equal(said, "trireme plot: no key nothing; there are loss\n");
    assert_int_equal(plot(bad, "-o", out, "--keys=nothing", NULL), 1);
    assert_string_equal(said, "trireme plot: no key nothing; there are loss\n");
    assert_int_equal(plot("--bars=1", bad, "-o", out, NULL), 2);
    assert_non_null(strstr(said, "unknown option --bars=1"));
    assert_int_equal(plot(bad, "-o", "/no/such/folder/x.png", NULL), 1);
    assert_non_null(strstr(said, "/no/such/folder/x.png"));
    scratch_end(&s);
}

/* "x_key": 0, 1, 2, ...; "y_key": a and b in turns; "accuracy". */
static void write_points(scratch *s, int n, const char *x_key, const char *y_key, double a,
                         double b)
{
    FILE *file = fopen(scratch_path(s, "m.jsonl"), "w");

    assert_non_null(file);
    for (int i = 0; i < n; i++)
        fprintf(file, "{\"%s\":%d,\"%s\":%.17g,\"accuracy\":1}\n", x_key, i, y_key,
                i % 2 == 0 ? a : b);
    assert_int_equal(fclose(file), 0);
}

/* In time that grows with them: the test's deadline is far below their square. */
static void very_many_points_are_drawn(void **state)
{
    enum { MANY = TEST_SANITIZED ? 40000 : 400000 };
    scratch s;
    char *bytes;
    size_t n;

    (void)state;
    scratch_begin(&s);
    write_points(&s, MANY, "step", "loss", 1, 2);
    assert_int_equal(plot(scratch_path(&s, "m.jsonl"), "-o", scratch_path(&s, "m.svg"), NULL), 0);
    bytes = scratch_read(scratch_path(&s, "m.svg"), &n);
    assert_true(n < 400000);
    free(bytes);
    scratch_end(&s);
}

static void numbers_of_any_size_are_drawn(void **state)
{
    static const double pairs[][2] = {
        {0, 5e-324},       {1.7e308, -1.7e308}, {1e300, -1e300},   {1e-300, 2e-300},
        {1e17, 1e17 + 16}, {1, 1 + 2.3e-16},    {-1e300, 1e-300},  {0, 0},
        {1e-310, 1e-320},  {9.99e299, 1e300},   {-5e-324, 5e-324}, {1e308, 1e308}};
    scratch s;

    (void)state;
    scratch_begin(&s);
    for (size_t i = 0; i < TRII_COUNT_OF(pairs); i++) {
        int status;

        for (int points = 2; points <= (TEST_SANITIZED ? 2 : 200); points += 198) {
            write_points(&s, points, "step", "loss", pairs[i][0], pairs[i][1]);
            status = plot(scratch_path(&s, "m.jsonl"), "-o", scratch_path(&s, "m.png"), NULL);
            if (status != 0)
                fail_msg("%g, %g: %s", pairs[i][0], pairs[i][1], said);
        }
        write_points(&s, 2, "other", "step", pairs[i][0], pairs[i][1]);
        status = plot(scratch_path(&s, "m.jsonl"), "-o", scratch_path(&s, "m.png"), NULL);
        assert_true(status == 0 || strstr(said, "nothing to draw") != NULL);
    }
    scratch_end(&s);
}

/* What Python's json writes, and what editors leave. */
static void blank_lines_and_nan_are_left_out(void **state)
{
    static const char text[] =
        "\n{\"step\":1,\"loss\":2.5}\n  \r\n"
        "{\"step\":2,\"loss\":NaN,\"accuracy\":Infinity,\"note\":\"\\\"NaN\"}\n"
        "{\"step\":3,\"loss\":-Infinity}\n{\"step\":NaN,\"loss\":1}\n"
        "{\"step\":4,\"loss\":0.5}\n\n";
    static const char wrong[] = "{\"step\":1,\"loss\":NaN}\n{\"step\":2,\"loss\":Nan}\n";
    const char *in;
    scratch s;

    (void)state;
    scratch_begin(&s);
    in = scratch_file(&s, "m.jsonl", text, sizeof(text) - 1);
    assert_int_equal(plot(in, "-o", scratch_path(&s, "m.svg"), NULL), 0);
    assert_string_equal(said, "");
    in = scratch_file(&s, "m.jsonl", wrong, sizeof(wrong) - 1);
    assert_int_equal(plot(in, "-o", scratch_path(&s, "m.svg"), NULL), 1);
    assert_non_null(strstr(said, "m.jsonl, line 2"));
    scratch_end(&s);
}

static void names_tell_files_apart(void **state)
{
    static const struct {
        const char *files[2], *names[2];
    } cases[] = {
        {{"runs/a/metrics.jsonl", "runs/b/metrics.jsonl"}, {"a", "b"}},
        {{"runs/a/train.jsonl", "runs/a/test.jsonl"}, {"train.jsonl", "test.jsonl"}},
        {{"/x/run/m", "/y/run/m"}, {"x", "y"}},
        {{"a/m", "b/c/m"}, {"a", "b/c"}},
        {{"a/m", "a/m"}, {"m", "m"}},
        {{"a.jsonl", "b.jsonl"}, {"a.jsonl", "b.jsonl"}},
        {{"m", "a/m"}, {"m", "a"}},
        {{"aa/xm", "ba/m"}, {"aa/xm", "ba/m"}},
        {{"\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4", "b\xff\x01"},
         {"\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4", "b??"}},
    };

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(cases); i++) {
        for (int k = 0; k < 2; k++) {
            char name[16];

            plot_name_file(cases[i].files, 2, k, name, sizeof(name));
            if (strcmp(name, cases[i].names[k]) != 0)
                fail_msg("%s is called %s, not %s", cases[i].files[k], name, cases[i].names[k]);
        }
    }
}

static void names_in_every_script_are_drawn(void **state)
{
    char text[512], keys[256] = "x";
    const char *a, *b;
    scratch s;

    (void)state;
    scratch_begin(&s);
    for (size_t i = 0; i < 60; i++) /* too long for a label, and cut inside a character */
        memcpy(keys + 1 + 3 * i, "\xe6\xbc\xa2", 4);
    snprintf(text, sizeof(text), "{\"step\":1,\"%s\":1}\n{\"step\":2,\"%s\":2}\n", keys, keys);
    a = scratch_file(&s, "verlust-\xc3\xa4\xff.jsonl", text, strlen(text));
    b = scratch_file(&s, "b.jsonl", text, strlen(text));
    assert_int_equal(plot(a, b, "-o", scratch_path(&s, "m.svg"), "--keys", keys, NULL), 0);
    assert_string_equal(said, "");
    scratch_end(&s);
}

/* The heights between which lines of this width go. */
static double span_of_lines(const char *svg, const char *width)
{
    double low = 1e9, high = -1e9;

    for (const char *at = strstr(svg, width); at != NULL; at = strstr(at + 1, width)) {
        const char *d = strstr(at, " d=\"M"), *end = d != NULL ? strchr(d + 4, '"') : NULL;
        double x, y;

        for (const char *p = d; p != NULL && p < end; p++) {
            if ((*p == 'M' || *p == 'L') && sscanf(p + 1, "%lf %lf", &x, &y) == 2) {
                low = y < low ? y : low;
                high = y > high ? y : high;
            }
        }
    }
    return high - low;
}

#define AREA 196 /* the height of a panel without what is above and below it */
#define FOOT_LINE 278

static void smoothed_lines_are_explained_and_end_at_the_number(void **state)
{
    const char *out;
    char *svg;
    size_t n;
    scratch s;

    (void)state;
    scratch_begin(&s);
    write_points(&s, 100, "step", "loss", -3, 1);
    out = scratch_path(&s, "m.svg");
    assert_int_equal(plot(scratch_path(&s, "m.jsonl"), "-o", out, "--keys", "loss", NULL), 0);
    svg = scratch_read(out, &n);
    assert_int_equal(characters_at(svg, 30), 4 + 12); /* loss, loss -0.3333: not the last, 1 */
    assert_int_equal(characters_at(svg, FOOT_LINE), 4 + 44); /* step, what is pale and bold */
    free(svg);
    write_points(&s, 50, "step", "loss", -3, 1);
    assert_int_equal(plot(scratch_path(&s, "m.jsonl"), "-o", out, "--keys", "loss", NULL), 0);
    svg = scratch_read(out, &n);
    assert_int_equal(characters_at(svg, 30), 4 + 10); /* loss 1.000 */
    assert_int_equal(characters_at(svg, FOOT_LINE), 4);
    free(svg);
    scratch_end(&s);
}

/* A last report of an epoch stands for 4 steps, the others for 20. */
static void a_point_counts_for_the_steps_that_it_stands_for(void **state)
{
    FILE *file;
    const char *out;
    char *svg;
    size_t n;
    scratch s;

    (void)state;
    scratch_begin(&s);
    file = fopen(scratch_path(&s, "m.jsonl"), "w");
    assert_non_null(file);
    for (int i = 0; i < 100; i++)
        fprintf(file, "{\"step\":%d,\"loss\":1}\n%s", 20 * i,
                i == 50 ? "{\"step\":1004,\"loss\":101}\n" : "");
    assert_int_equal(fclose(file), 0);
    out = scratch_path(&s, "m.svg");
    assert_int_equal(plot(scratch_path(&s, "m.jsonl"), "-o", out, NULL), 0);
    svg = scratch_read(out, &n);
    assert_in_range((int)span_of_lines(svg, "stroke-width:2;"), 2, 12);
    free(svg);
    scratch_end(&s);
}

static void a_start_that_is_high_is_drawn_or_told(void **state)
{
    const double starts[] = {2.5, 100};
    const char *out;
    scratch s;

    (void)state;
    scratch_begin(&s);
    out = scratch_path(&s, "m.svg");
    for (int i = 0; i < 2; i++) {
        FILE *file = fopen(scratch_path(&s, "m.jsonl"), "w");
        char *svg;
        size_t n;

        assert_non_null(file);
        for (int k = 0; k < 200; k++)
            fprintf(file, "{\"step\":%d,\"loss\":%g}\n", k, k < 3 ? starts[i] : 1 - k / 400.0);
        assert_int_equal(fclose(file), 0);
        assert_int_equal(plot(scratch_path(&s, "m.jsonl"), "-o", out, NULL), 0);
        svg = scratch_read(out, &n);
        assert_int_equal(span_of_lines(svg, "stroke-opacity:0.22;") < AREA, i == 0);
        assert_int_equal(characters_at(svg, 44 + 10), i == 0 ? 0 : 31); /* .. reach up to 100 */
        free(svg);
    }
    scratch_end(&s);
}

static void steps_are_counted_in_whole_numbers(void **state)
{
    static const char *const records[] = {"{\"step\":15,\"loss\":2}\n",
                                          "{\"step\":1,\"loss\":2}\n{\"step\":2,\"loss\":1}\n",
                                          "{\"step\":1.5,\"loss\":2}\n{\"step\":2,\"loss\":1}\n"};
    static const int characters[] = {2, 2, 44}; /* 15; 1 2; 1.50, 1.55 to 2.00 */
    const char *in, *out;
    scratch s;

    (void)state;
    scratch_begin(&s);
    out = scratch_path(&s, "m.svg");
    for (int i = 0; i < 3; i++) {
        char *svg;
        size_t n;

        in = scratch_file(&s, "m.jsonl", records[i], strlen(records[i]));
        assert_int_equal(plot(in, "-o", out, NULL), 0);
        svg = scratch_read(out, &n);
        assert_int_equal(characters_at(svg, 44 + 196 + 16), characters[i]);
        free(svg);
    }
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(smoothed_lines_are_explained_and_end_at_the_number),
    cmocka_unit_test(a_point_counts_for_the_steps_that_it_stands_for),
    cmocka_unit_test(a_start_that_is_high_is_drawn_or_told),
    cmocka_unit_test(curves_become_pictures),
    cmocka_unit_test(steps_are_counted_in_whole_numbers),
    cmocka_unit_test(many_names_get_lines_of_their_own),
    cmocka_unit_test(mistakes_are_named),
    cmocka_unit_test(very_many_points_are_drawn),
    cmocka_unit_test(numbers_of_any_size_are_drawn),
    cmocka_unit_test(blank_lines_and_nan_are_left_out),
    cmocka_unit_test(names_tell_files_apart),
    cmocka_unit_test(names_in_every_script_are_drawn),
};
TEST_MAIN(tests)
