/* records_test.c - progress, metrics, folders of runs. */
#include <math.h>

#include <trireme/records.h>

#include "base/alloc.h"
#include "train/records/metrics.h"
#include "testing/scratch.h"

static void progress_without_a_terminal_is_plain_lines(void **state)
{
    FILE *stream = tmpfile();
    char text[1024];
    tri_progress *p;
    size_t n;

    (void)state;
    assert_non_null(stream);
    CHECK_OK(
        tri_progress_create(1000, 200, "samples", &(tri_progress_options){.stream = stream}, &p));
    assert_false(tri_progress_is_due(p)); /* not before ten seconds */
    tri_progress_update(p, 600, "epoch %d/%d  loss %.2f", 1, 4, 0.5);
    tri_progress_text(p, "epoch %d/%d  evaluating", 1, 4);
    tri_progress_line(p, "epoch 1: done");
    assert_true(tri_progress_rate(p) > 0);
    tri_progress_destroy(p);
    rewind(stream);
    n = fread(text, 1, sizeof(text) - 1, stream);
    text[n] = '\0';
    assert_non_null(strstr(text, "epoch 1/4  loss 0.50   60 % of all  "));
    assert_non_null(strstr(text, " samples/s  0:0"));
    assert_non_null(strstr(text, " left\nepoch 1/4  evaluating\nepoch 1: done\n"));
    assert_null(strchr(text, '\r'));
    fclose(stream);
}

static void plain_lines_come_as_often_as_asked_for(void **state)
{
    FILE *stream = tmpfile();
    tri_progress_options often = {.stream = stream, .plain_seconds = TRI_SET(0)};
    tri_progress *p;

    (void)state;
    assert_non_null(stream);
    CHECK_OK(tri_progress_create(10, 0, "steps", &often, &p));
    assert_true(tri_progress_is_due(p));
    tri_progress_update(p, 1, "x");
    assert_true(tri_progress_is_due(p));
    tri_progress_destroy(p);
    often.plain_seconds = TRI_SET(-1);
    CHECK_FAILS(tri_progress_create(10, 0, "steps", &often, &p), TRI_ERR_INVALID_ARG,
                "a line every -1 s");
    fclose(stream);
}

static void update_with(tri_progress **p, FILE *stream, int64_t total, int64_t done)
{
    CHECK_OK(
        tri_progress_create(total, 0, "samples", &(tri_progress_options){.stream = stream}, p));
    tri_progress_pause(*p); /* the clock stands where the rate is computed from */
    tri_progress_update(*p, done, "x");
}

/* Whatever the rate is by this clock, its digits and the time left are those of the numbers that
 * the functions give. */
static void rates_and_times_are_written_in_full(void **state)
{
    static const int64_t done[] = {1, 1000, 100000, 10000000, 1000000000};

    (void)state;
    for (size_t i = 0; i < sizeof(done) / sizeof(done[0]); i++) {
        FILE *stream = tmpfile();
        char text[256], wanted[64];
        double rate, left;
        tri_progress *p;
        long long n, s;
        size_t got;

        assert_non_null(stream);
        update_with(&p, stream, 100000000 * done[i], done[i]);
        rate = tri_progress_rate(p);
        left = (double)(99999999 * done[i]) / rate;
        n = (long long)(rate + 0.5);
        s = (long long)(left + 0.5);
        tri_progress_destroy(p);
        rewind(stream);
        got = fread(text, 1, sizeof(text) - 1, stream);
        text[got] = '\0';
        fclose(stream);
        if (rate >= 1e15)
            continue;
        if (n >= 1000000)
            snprintf(wanted, sizeof(wanted), "  %lld,%03lld,%03lld samples/s", n / 1000000,
                     n / 1000 % 1000, n % 1000);
        else if (n >= 1000)
            snprintf(wanted, sizeof(wanted), "  %lld,%03lld samples/s", n / 1000, n % 1000);
        else
            snprintf(wanted, sizeof(wanted), " samples/s");
        if (strstr(text, wanted) == NULL)
            fail_msg("%g per second: \"%s\" is missing in %s", rate, wanted, text);
        if (s >= 3600)
            snprintf(wanted, sizeof(wanted), " %lld:%02lld:%02lld left", s / 3600, s / 60 % 60,
                     s % 60);
        else
            snprintf(wanted, sizeof(wanted), " %lld:%02lld left", s / 60, s % 60);
        if (strstr(text, wanted) == NULL)
            fail_msg("%g seconds left: \"%s\" is missing in %s", left, wanted, text);
    }
}

static void quiet_progress_still_counts(void **state)
{
    tri_progress *p;
    double before;

    (void)state;
    CHECK_OK(tri_progress_create(10, 0, "steps", &(tri_progress_options){.quiet = true}, &p));
    assert_false(tri_progress_is_due(p));
    tri_progress_update(p, 4, "x");
    tri_progress_line(p, "y");
    tri_progress_pause(p);
    before = tri_progress_seconds(p);
    assert_true(tri_progress_seconds(p) == before); /* the clock stands */
    assert_true(tri_progress_rate(p) > 0);
    tri_progress_resume(p);
    while (tri_progress_seconds(p) == before)
        ;
    tri_progress_destroy(p);
    CHECK_FAILS(tri_progress_create(0, 0, "steps", NULL, &p), TRI_ERR_INVALID_ARG, "0 of 0");
    CHECK_FAILS(tri_progress_create(5, 6, "steps", NULL, &p), TRI_ERR_INVALID_ARG,
                "6 of 5 done, a line every 10 s; needs 0 <= done <= total");
}

static void check_file(const char *path, const char *want)
{
    size_t n;
    char *have = scratch_read(path, &n);

    assert_string_equal(have, want);
    free(have);
}

static void metrics_are_json_lines(void **state)
{
    long live = trii_alloc_live();
    const char *path;
    tri_metrics *m;
    scratch s;

    (void)state;
    scratch_begin(&s);
    path = scratch_path(&s, "m.jsonl");
    CHECK_OK(tri_metrics_open(path, -1, &m));
    CHECK_OK(tri_metrics_log(m, {"step", 1}, {"loss", 0.5}, {"lr", 1e-5}, {"time", -3}));
    CHECK_OK(tri_metrics_log(m, {"step", 2}, {"loss", (double)NAN}, {"big", 1e20}));
    CHECK_FAILS(tri_metrics_log(m, {"a\"b", 1}), TRI_ERR_INVALID_ARG, "a\"b");
    tri_metrics_close(m);
    check_file(path, "{\"step\":1,\"loss\":0.5,\"lr\":1e-05,\"time\":-3}\n"
                     "{\"step\":2,\"loss\":null,\"big\":1e+20}\n");
    CHECK_OK(tri_metrics_open(scratch_path(&s, "a/b/m"), -1, &m)); /* folders are made */
    tri_metrics_close(m);
    CHECK_FAILS(tri_metrics_open(scratch_path(&s, "m.jsonl/m"), -1, &m), TRI_ERR_IO, "m.jsonl");
    assert_int_equal(trii_alloc_live(), live);
    scratch_end(&s);
}

static void a_resumed_run_keeps_what_lies_before_it(void **state)
{
    static const char text[] = "{\"step\":1,\"loss\":3}\n{\"step\":2,\"loss\":2}\n"
                               "nonsense\n{\"step\":3,\"loss\":1}\n{\"step\":2,\"lo";
    const char *path;
    tri_metrics *m;
    scratch s;

    (void)state;
    scratch_begin(&s);
    path = scratch_file(&s, "m", text, sizeof(text) - 1);
    CHECK_OK(tri_metrics_open(path, 2, &m));
    CHECK_OK(tri_metrics_log(m, {"step", 3}));
    tri_metrics_close(m);
    check_file(path, "{\"step\":1,\"loss\":3}\n{\"step\":2,\"loss\":2}\n{\"step\":3}\n");
    CHECK_OK(tri_metrics_open(scratch_path(&s, "new"), 7, &m)); /* nothing there: begins empty */
    tri_metrics_close(m);
    path = scratch_file(&s, "zero", "{\"step\":0,\"a\":1}\n{\"step\":1,\"a\":2}\n", 32);
    CHECK_OK(tri_metrics_open(path, 0, &m)); /* up to step 0 */
    tri_metrics_close(m);
    check_file(path, "{\"step\":0,\"a\":1}\n");
    CHECK_OK(tri_metrics_open(path, -1, &m));
    tri_metrics_close(m);
    check_file(path, "");
    scratch_end(&s);
}

static void a_full_disk_is_an_error(void **state)
{
    tri_status status = TRI_OK;
    tri_metrics *m;
    scratch s;
    size_t n;
    char *have;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(tri_metrics_open(scratch_path(&s, "m"), -1, &m));
    scratch_limit_files(4096);
    for (int i = 0; i < 1000 && status == TRI_OK; i++)
        status = tri_metrics_log(m, {"step", i}, {"loss", 0.125});
    CHECK_FAILS(status, TRI_ERR_IO, "File too large");
    assert_non_null(strstr(tri_last_error(), scratch_path(&s, "m")));
    tri_metrics_close(m);
    have = scratch_read(scratch_path(&s, "m"), &n);
    assert_true(n > 4000 && have[n - 1] == '\n'); /* nothing of a record that does not fit */
    free(have);
    scratch_end(&s);
}

/* Numbers as printf writes them where the decimal mark is not a point, also of several bytes. */
static void metrics_are_json_in_every_locale(void **state)
{
    static const char *const cases[][2] = {{"0,5", "0.5"},
                                           {"-1,25e-30", "-1.25e-30"},
                                           {"1\xd9\xab"
                                            "5e+300",
                                            "1.5e+300"},
                                           {"1e+300", "1e+300"},
                                           {"0.5", "0.5"},
                                           {"-3", "-3"}};

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(cases); i++) {
        char text[32];

        snprintf(text, sizeof(text), "%s", cases[i][0]);
        assert_int_equal(trii_decimal_point(text, (int)strlen(text)), strlen(cases[i][1]));
        assert_string_equal(text, cases[i][1]);
    }
}

/* As many as tri_fit writes at most, with names as long as it takes them. */
static void a_record_may_have_many_long_keys(void **state)
{
    enum { MANY = 64 + 4, LONG = 63 };
    char keys[MANY][LONG + 1];
    tri_metric values[MANY];
    tri_metrics *m;
    char *text;
    size_t n;
    scratch s;

    (void)state;
    scratch_begin(&s);
    for (int i = 0; i < MANY; i++) {
        snprintf(keys[i], sizeof(keys[i]), "%063d", i);
        values[i] = (tri_metric){keys[i], -1.23456789e-300};
    }
    CHECK_OK(tri_metrics_open(scratch_path(&s, "m"), -1, &m));
    CHECK_OK(tri_metrics_write(m, values, MANY));
    tri_metrics_close(m);
    text = scratch_read(scratch_path(&s, "m"), &n);
    assert_int_equal(n, MANY * (LONG + strlen("\"\":-1.23456789e-300,")) + 2);
    free(text);
    scratch_end(&s);
}

static void keys_of_metrics_are_checked(void **state)
{
    static const char *const bad[] = {"", "a\"b", "a\\b", "a\nb", "a\x01z", "\xff", "step", NULL};
    tri_metrics *m;
    char *text;
    size_t n;
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(tri_metrics_open(scratch_path(&s, "m"), -1, &m));
    for (size_t i = 0; i < TRII_COUNT_OF(bad); i++)
        CHECK_FAILS(tri_metrics_log(m, {"step", 1}, {bad[i], 0.5}), TRI_ERR_INVALID_ARG,
                    "metric 2 of 2 has key");
    CHECK_FAILS(tri_metrics_write(m, NULL, 1), TRI_ERR_INVALID_ARG, "values is NULL");
    CHECK_FAILS(tri_metrics_write(m, NULL, 0), TRI_ERR_INVALID_ARG, "without metrics");
    CHECK_OK(tri_metrics_log(m, {"Verlust \xc3\xbc", 1}));
    tri_metrics_close(m);
    text = scratch_read(scratch_path(&s, "m"), &n);
    assert_string_equal(text, "{\"Verlust \xc3\xbc\":1}\n");
    free(text);
    scratch_end(&s);
}

/* Started by a daemon with its outputs closed: what somebody prints must not land in our files. */
static void closed_outputs_spoil_no_metrics(void **state)
{
    tri_metrics *m;
    char *text;
    size_t n;
    int kept[3];
    scratch s;

    (void)state;
    scratch_begin(&s);
    for (int fd = 1; fd < 3; fd++)
        kept[fd] = dup(fd);
    close(1);
    close(2);
    if (tri_metrics_open(scratch_path(&s, "m"), -1, &m) == TRI_OK) {
        ssize_t lost = write(1, "hello\n", 6) + write(2, "warning\n", 8);

        (void)lost;
        if (tri_metrics_log(m, {"step", 1}) != TRI_OK)
            (void)unlink(scratch_path(&s, "m"));
        tri_metrics_close(m);
    }
    for (int fd = 1; fd < 3; fd++) {
        (void)dup2(kept[fd], fd);
        close(kept[fd]);
    }
    text = scratch_read(scratch_path(&s, "m"), &n);
    assert_string_equal(text, "{\"step\":1}\n");
    free(text);
    scratch_end(&s);
}

static void every_run_gets_a_folder_of_its_own(void **state)
{
    int64_t n = 0;
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(tri_run_folder_create(scratch_path(&s, "runs/try-"), &n));
    assert_int_equal(n, 1);
    scratch_file(&s, "runs/try-2", "", 0); /* not ours */
    CHECK_OK(tri_run_folder_create(scratch_path(&s, "runs/try-"), &n));
    assert_int_equal(n, 3);
    assert_int_equal(scratch_count(scratch_path(&s, "runs")), 3);
    CHECK_FAILS(tri_run_folder_create(scratch_path(&s, "runs/try-2/x-"), &n), TRI_ERR_IO,
                "a file of that name exists");
    CHECK_FAILS(tri_run_folder_create(NULL, &n), TRI_ERR_INVALID_ARG, "prefix is NULL");
    CHECK_FAILS(tri_run_folder_create("x", NULL), TRI_ERR_INVALID_ARG, "number_out is NULL");
    scratch_end(&s);
}

static void a_link_to_metrics_stays_one(void **state)
{
    tri_metrics *m;
    struct stat info;
    char *text;
    size_t n;
    scratch s;

    (void)state;
    scratch_begin(&s);
    scratch_file(&s, "real", "{\"step\":1}\n{\"step\":9}\n", 22);
    assert_int_equal(symlink("real", scratch_path(&s, "m")), 0);
    CHECK_OK(tri_metrics_open(scratch_path(&s, "m"), 1, &m));
    CHECK_OK(tri_metrics_log(m, {"step", 2}));
    tri_metrics_close(m);
    assert_int_equal(lstat(scratch_path(&s, "m"), &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    text = scratch_read(scratch_path(&s, "real"), &n);
    assert_string_equal(text, "{\"step\":1}\n{\"step\":2}\n");
    free(text);
    CHECK_OK(tri_metrics_open("/dev/null", -1, &m)); /* only written to */
    CHECK_OK(tri_metrics_log(m, {"step", 2}));
    tri_metrics_close(m);
    CHECK_OK(tri_metrics_open("/dev/full", -1, &m));
    CHECK_FAILS(tri_metrics_log(m, {"step", 2}), TRI_ERR_IO, "/dev/full");
    tri_metrics_close(m);
    scratch_end(&s);
}

static void arguments_that_cannot_be_are_named(void **state)
{
    tri_progress *p = NULL;
    tri_metrics *m = NULL;
    FILE *stream = tmpfile();

    (void)state;
    assert_non_null(stream);
    CHECK_OK(tri_progress_create(10, 0, NULL, &(tri_progress_options){.stream = stream}, &p));
    tri_progress_update(p, -5, "%s", "x");
    tri_progress_update(p, 5, NULL);
    tri_progress_line(p, NULL);
    tri_progress_destroy(p);
    fclose(stream);
    CHECK_FAILS(tri_progress_create(10, 0, "x", NULL, NULL), TRI_ERR_INVALID_ARG, "progress_out");
    CHECK_FAILS(tri_progress_create(0, 0, "x", NULL, &p), TRI_ERR_INVALID_ARG, "0 of 0");
    assert_false(tri_progress_is_due(NULL));
    tri_progress_update(NULL, 1, "%s", "x");
    tri_progress_line(NULL, "%s", "x");
    tri_progress_pause(NULL);
    tri_progress_resume(NULL);
    assert_true(tri_progress_seconds(NULL) == 0 && tri_progress_rate(NULL) == 0);
    CHECK_FAILS(tri_metrics_open(NULL, -1, &m), TRI_ERR_INVALID_ARG, "path is NULL");
    CHECK_FAILS(tri_metrics_open("", -1, &m), TRI_ERR_INVALID_ARG, "path is empty");
    CHECK_FAILS(tri_metrics_open("/tmp", -1, NULL), TRI_ERR_INVALID_ARG, "metrics_out is NULL");
    CHECK_FAILS(tri_metrics_log(NULL, {"step", 1}), TRI_ERR_INVALID_ARG, "metrics is NULL");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(progress_without_a_terminal_is_plain_lines),
    cmocka_unit_test(plain_lines_come_as_often_as_asked_for),
    cmocka_unit_test(rates_and_times_are_written_in_full),
    cmocka_unit_test(quiet_progress_still_counts),
    cmocka_unit_test(metrics_are_json_lines),
    cmocka_unit_test(a_resumed_run_keeps_what_lies_before_it),
    cmocka_unit_test(a_full_disk_is_an_error),
    cmocka_unit_test(metrics_are_json_in_every_locale),
    cmocka_unit_test(a_record_may_have_many_long_keys),
    cmocka_unit_test(keys_of_metrics_are_checked),
    cmocka_unit_test(closed_outputs_spoil_no_metrics),
    cmocka_unit_test(every_run_gets_a_folder_of_its_own),
    cmocka_unit_test(a_link_to_metrics_stays_one),
    cmocka_unit_test(arguments_that_cannot_be_are_named),
};
TEST_MAIN(tests)
