/* job_metrics_test.c - the figures' file on a disk that is full. */
#include "launch/report/job_metrics.h"
#include "os/clock.h"
#include "os/loop.h"
#include "testing/check.h"
#include "testing/scratch.h"

static void went_on(void *warning)
{
    (void)warning;
}

static void take_warning(void *warning, const char *text)
{
    snprintf(warning, 512, "%s", text);
}

/* The last complete figures stay, and nothing besides them. */
static void a_full_disk_leaves_no_half_file(void **state)
{
    trii_job_facts facts = {.run_id = "j", .run_dir = "/"};
    char warning[512] = "";
    trii_background *files;
    trii_metrics metrics;
    trii_loop *loop;
    scratch s;
    const char *path;
    char *before, *after;
    size_t bytes;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(trii_loop_create(&loop));
    CHECK_OK(trii_background_create(loop, went_on, take_warning, warning, &files));
    path = scratch_path(&s, "job.prom");
    CHECK_OK(trii_metrics_open(&metrics, loop, files, path, &facts));
    before = scratch_read(path, &bytes);
    assert_true(bytes > 64);
    scratch_limit_files(64);
    trii_metrics_close(&metrics); /* writes them a last time */
    while (warning[0] == '\0' || trii_background_left_in_all(files) > 0)
        trii_loop_run_once(loop, TRII_NO_DEADLINE);
    assert_non_null(strstr(warning, "job.prom is not up to date: write "));
    assert_int_equal(scratch_count(s.dir), 1);
    after = scratch_read(path, &bytes);
    assert_string_equal(after, before);
    CHECK_FAILS(TRI_ERR_IO, trii_metrics_open(&metrics, loop, files, path, &facts), "write");
    assert_int_equal(scratch_count(s.dir), 1);
    free(before);
    free(after);
    trii_background_destroy(files);
    trii_loop_destroy(loop);
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_full_disk_leaves_no_half_file),
};

TEST_MAIN(tests)
