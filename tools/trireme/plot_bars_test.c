/* plot_bars_test.c - `trireme plot --bars`: what the bars and their lines are as high as. */
#include "testing/check.h"

#include <math.h>

#include "base/compiler.h"
#include "testing/plot_calls.h"
#include "testing/scratch.h"

#define BAR "fill-rule:nonzero;fill:rgb("
#define LINE "stroke-width:1.5;"

/* A bar of an SVG: from where to where, and its line with its two ends. In points, y downwards. */
typedef struct drawn {
    double top, bottom, low, high, ends[2];
    char colour[32];
} drawn;

/* The height of the line that begins here, of which both ends are as high. */
static double height_of(const char *line)
{
    double y[2];

    assert_non_null(line);
    assert_int_equal(sscanf(strstr(line, "d=\"M"), "d=\"M %*f %lf L %*f %lf", &y[0], &y[1]), 2);
    assert_true(fabs(y[0] - y[1]) <= 0.01);
    return y[0];
}

static int find_bars(const char *svg, drawn *bars, int room)
{
    int n = 0;

    for (const char *at = strstr(svg, BAR); at != NULL; at = strstr(at + 1, BAR)) {
        const char *path = strstr(at, "d=\"M"), *line = strstr(at, LINE), *next;
        drawn *b = &bars[n];

        if (strncmp(at + strlen(BAR), "100%", 4) == 0)
            continue; /* the paper */
        assert_true(n++ < room);
        next = strstr(at + 1, BAR);
        *b = (drawn){.low = NAN, .high = NAN};
        assert_int_equal(sscanf(path, "d=\"M %*f %lf L %*f %*f L %*f %lf", &b->top, &b->bottom), 2);
        snprintf(b->colour, sizeof(b->colour), "%.*s", (int)strcspn(at + strlen(BAR), ")"),
                 at + strlen(BAR));
        if (line == NULL || (next != NULL && line > next))
            continue;
        assert_int_equal(
            sscanf(strstr(line, "d=\"M"), "d=\"M %*f %lf L %*f %lf", &b->low, &b->high), 2);
        for (int i = 0; i < 2; i++) {
            line = strstr(line + 1, LINE);
            b->ends[i] = height_of(line);
        }
    }
    return n;
}

static void bars_are_means_and_lines_standard_deviations(void **state)
{
    static const char text[] = "{\"step\":1,\"piped\":1,\"plain\":2,\"other\":9}\n"
                               "{\"step\":2,\"piped\":1,\"plain\":4}\n{\"piped\":100}\n"
                               "{\"step\":3,\"piped\":1,\"plain\":6}\n";
    const char *in;
    drawn b[3];
    double one;
    char *svg;
    size_t n;
    scratch s;

    (void)state;
    scratch_begin(&s);
    in = scratch_file(&s, "m.jsonl", text, sizeof(text) - 1);
    assert_int_equal(plot("--bars", in, "-o", scratch_path(&s, "m.svg"), "--keys", "plain+piped",
                          "--title", "Times", "--y-label", "seconds", NULL),
                     0);
    assert_string_equal(said, "");
    svg = scratch_read(scratch_path(&s, "m.svg"), &n);
    assert_int_equal(find_bars(svg, b, 3), 2); /* in the order of --keys */
    one = (b[0].bottom - b[0].top) / 4;
    assert_true(one > 10);
    assert_true(fabs(b[1].bottom - b[1].top - one) <= 0.01);
    assert_true(fabs(b[0].bottom - b[0].low - (2 * one)) <= 0.01);
    assert_true(fabs(b[0].bottom - b[0].high - (6 * one)) <= 0.01);
    assert_true(fabs(b[1].low - b[1].high) <= 0.01);
    for (int i = 0; i < 2; i++) {
        assert_true(fabs(b[i].ends[0] - b[i].low) <= 0.01);
        assert_true(fabs(b[i].ends[1] - b[i].high) <= 0.01);
        assert_int_equal(characters_at(svg, b[i].high - 6), 4); /* 4.00, 1.00 */
    }
    assert_string_not_equal(b[0].colour, b[1].colour);
    assert_int_equal(characters_at(svg, 24), 5);                /* the title */
    assert_int_equal(characters_at(svg, b[0].bottom + 16), 10); /* plain, piped */
    assert_int_equal(characters_at(svg, 330), 45);              /* of 3 measurements */
    free(svg);

    assert_int_equal(plot("--bars", in, "-o", scratch_path(&s, "m.svg"), NULL), 0);
    svg = scratch_read(scratch_path(&s, "m.svg"), &n);
    assert_int_equal(find_bars(svg, b, 3), 3);
    assert_true(isnan(b[2].low));                  /* one number has no deviation */
    assert_int_equal(characters_at(svg, 306), 27); /* they are not of as many */
    free(svg);
    scratch_end(&s);
}

/* Panels of their own, and a deviation that reaches to the other side of zero. */
static void bars_stand_and_hang_on_zero(void **state)
{
    static const char text[] = "{\"step\":1,\"up\":2,\"down\":-2,\"wide\":-1}\n"
                               "{\"step\":2,\"up\":2,\"down\":-2,\"wide\":3}\n";
    const char *in, *out;
    drawn b[3];
    char *svg;
    size_t n;
    scratch s;

    (void)state;
    scratch_begin(&s);
    in = scratch_file(&s, "m.jsonl", text, sizeof(text) - 1);
    out = scratch_path(&s, "m.svg");
    assert_int_equal(plot("--bars", in, "-o", out, "--keys", "up+down,wide", NULL), 0);
    svg = scratch_read(out, &n);
    assert_int_equal(find_bars(svg, b, 3), 3);
    assert_true(b[0].top > 26 && b[1].bottom < 252); /* the panel */
    assert_true(fabs(b[0].bottom - b[1].top) <= 0.01);
    assert_true(fabs((b[0].bottom - b[0].top) - (b[1].bottom - b[1].top)) <= 0.01);
    assert_int_equal(characters_at(svg, b[1].low + 14), 5); /* -2.00 */
    assert_true(b[2].top > 326 && b[2].high > 326 && b[2].low < 552 && b[2].low > b[2].bottom);
    free(svg);
    scratch_end(&s);
}

static void numbers_of_any_size_are_bars(void **state)
{
    static const double pairs[][2] = {{0, 0}, {1e300, -1e300}, {-3, -5}, {1e17, 1e17 + 16}};
    scratch s;

    (void)state;
    scratch_begin(&s);
    for (size_t i = 0; i < TRII_COUNT_OF(pairs); i++) {
        char text[256];
        const char *in;

        snprintf(text, sizeof(text),
                 "{\"step\":1,\"a_long_name\":%g,\"b\":1}\n{\"step\":2,\"b\":%g}\n", pairs[i][0],
                 pairs[i][1]);
        in = scratch_file(&s, "m.jsonl", text, strlen(text));
        if (plot("--bars", in, in, "-o", scratch_path(&s, "m.svg"), "--keys", "a_long_name+b,b",
                 NULL) != 0)
            fail_msg("%g, %g: %s", pairs[i][0], pairs[i][1], said);
        assert_string_equal(said, "");
    }
    scratch_end(&s);
}

/* Every character of an SVG stands between its sides. */
static void expect_characters_inside(const char *svg, int bars)
{
    double width, x, last = -1;
    int n = 0;

    assert_int_equal(sscanf(strstr(svg, " width=\"") + 8, "%lf", &width), 1);
    for (const char *at = strstr(svg, "<use "); at != NULL; at = strstr(at + 1, "<use ")) {
        assert_int_equal(sscanf(strstr(at, " x=\"") + 4, "%lf", &x), 1);
        if (x < 0 || x > width - 2)
            fail_msg("a character at %g of %g", x, width);
        last = x > last ? x : last;
        n++;
    }
    assert_true(n > 40 && last > width / 2 && width > 64 * bars);
}

/* Each bar has the width of a word for its labels. */
static void long_labels_and_many_bars_have_room(void **state)
{
    char text[4096], title[300];
    const char *in, *out;
    size_t n = 0, bytes;
    char *svg;
    scratch s;

    (void)state;
    scratch_begin(&s);
    out = scratch_path(&s, "m.svg");
    memset(title, 'T', sizeof(title));
    title[150] = '\xff';
    title[sizeof(title) - 1] = '\0';
    for (int bars = 3; bars <= 16; bars += 13) {
        n = (size_t)snprintf(text, sizeof(text), "{\"step\":1");
        for (int i = 0; i < bars; i++)
            n += (size_t)snprintf(text + n, sizeof(text) - n,
                                  ",\"%d_%.90s_\xe6\xbc\xa2\xe6\xbc\xa2\xe6\xbc\xa2\":%d", i, title,
                                  i);
        n += (size_t)snprintf(text + n, sizeof(text) - n, "}\n");
        in = scratch_file(&s, "m.jsonl", text, n);
        assert_int_equal(plot("--bars", in, "-o", out, "--title", title, "--y-label", title, NULL),
                         0);
        assert_string_equal(said, "");
        svg = scratch_read(out, &bytes);
        expect_characters_inside(svg, bars);
        free(svg);
    }
    scratch_end(&s);
}

/* Why, and what was there before stays. */
static void a_picture_that_cannot_be_written(void **state)
{
    static const char *const kinds[] = {"m.svg", "m.png"};
    char command[2200];
    const char *in;
    char *text;
    size_t n;
    scratch s;

    (void)state;
    scratch_begin(&s);
    in = scratch_file(&s, "m.jsonl", "{\"step\":1,\"a\":1}\n", 17);
    for (int i = 0; i < 2; i++) {
        const char *out = scratch_file(&s, kinds[i], "before", 6);
        spawn run;

        assert_int_equal(
            plot("--bars", in, "-o", i == 0 ? "/no/folder/m.svg" : "/no/folder/m.png", NULL), 1);
        assert_non_null(strstr(said, "/no/folder/m."));
        assert_non_null(strstr(said, "No such file or directory"));
        snprintf(command, sizeof(command),
                 "ulimit -f 1; trap '' XFSZ; exec '%s' plot --bars '%s' -o '%s'",
                 spawn_bin("trireme"), in, out);
        spawn_start(&run, (const char *const[]){"sh", "-c", command, NULL}, NULL);
        assert_int_equal(spawn_wait(&run), 1);
        assert_non_null(strstr(SPAWN_ERR(&run), out));
        assert_non_null(strstr(SPAWN_ERR(&run), "File too large"));
        spawn_free(&run);
        text = scratch_read(out, &n);
        assert_string_equal(text, "before");
        free(text);
    }
    scratch_end(&s);
}

static void mistakes_with_bars_are_named(void **state)
{
    const char *in;
    scratch s;

    (void)state;
    scratch_begin(&s);
    in = scratch_file(&s, "m.jsonl", "{\"step\":1,\"a\":1}\n", 17);
    assert_int_equal(plot(in, "-o", "x.png", "--title", "T", NULL), 2);
    assert_non_null(strstr(said, "--title is for --bars"));
    assert_int_equal(plot("--bars", in, "-o", "x.gif", NULL), 2);
    assert_non_null(strstr(said, "neither with .svg nor with .png"));
    assert_int_equal(plot("--bars", in, "-o", "x.png", "--keys", "b", NULL), 1);
    assert_string_equal(said, "trireme plot: no key b; there are a\n");
    assert_int_equal(plot("--bras", in, "-o", "x.png", NULL), 2);
    assert_non_null(strstr(said, "--bars"));
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(bars_are_means_and_lines_standard_deviations),
    cmocka_unit_test(bars_stand_and_hang_on_zero),
    cmocka_unit_test(numbers_of_any_size_are_bars),
    cmocka_unit_test(long_labels_and_many_bars_have_room),
    cmocka_unit_test(a_picture_that_cannot_be_written),
    cmocka_unit_test(mistakes_with_bars_are_named),
};
TEST_MAIN(tests)
