/* plot_test.c - `trireme plot` as users run it: pictures, and what it says when there is none. */
#include "testing/scratch.h"
#include "testing/spawn.h"

/* `trireme plot` with these arguments (up to a NULL); what it said stays in `said`. */
static char said[2048];

static int plot(const char *first, ...)
{
    const char *argv[16] = {spawn_bin("trireme"), "plot", first};
    int n = first == NULL ? 2 : 3, status;
    va_list args;
    spawn s;

    va_start(args, first);
    while (n > 2 && n < 15 && (argv[n] = va_arg(args, const char *)) != NULL)
        n++;
    va_end(args);
    spawn_start(&s, argv, NULL);
    status = spawn_wait(&s);
    snprintf(said, sizeof(said), "%s%s", SPAWN_OUT(&s), SPAWN_ERR(&s));
    spawn_free(&s);
    return status;
}

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
    assert_int_equal(plot(bad, "-o", "x.gif", NULL), 1);
    assert_non_null(strstr(said, "neither with .svg nor with .png"));
    assert_int_equal(plot(bad, "-o", out, "--x", "nothing", NULL), 1);
    assert_non_null(strstr(said, "nothing to draw"));
    assert_int_equal(plot(bad, bad, "-o", out, "--keys", "loss,nothing", NULL), 1);
    assert_string_equal(said, "trireme plot: no key nothing; there are loss\n");
    assert_int_equal(plot(bad, "-o", "/no/such/folder/x.png", NULL), 1);
    assert_non_null(strstr(said, "/no/such/folder/x.png"));
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(curves_become_pictures),
    cmocka_unit_test(many_names_get_lines_of_their_own),
    cmocka_unit_test(mistakes_are_named),
};
TEST_MAIN(tests)
