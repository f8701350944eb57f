/* job_metrics_test.c - the figures' file on a disk that is full. */
#include "launch/job_metrics.h"
#include "os/loop.h"
#include "testing/check.h"
#include "testing/scratch.h"

/* The last complete figures stay, and nothing besides them. */
static void a_full_disk_leaves_no_half_file(void **state)
{
    const trii_metrics_facts facts = {.run_id = "j", .run_dir = "/"};
    trii_metrics metrics;
    trii_loop *loop;
    scratch s;
    const char *path;
    char *before, *after;
    size_t bytes;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(trii_loop_create(&loop));
    path = scratch_path(&s, "job.prom");
    CHECK_OK(trii_metrics_open(&metrics, loop, path, &facts));
    before = scratch_read(path, &bytes);
    assert_true(bytes > 64);
    scratch_limit_files(64);
    trii_metrics_close(&metrics); /* writes them a last time */
    assert_int_equal(scratch_count(s.dir), 1);
    after = scratch_read(path, &bytes);
    assert_string_equal(after, before);
    CHECK_FAILS(TRI_ERR_IO, trii_metrics_open(&metrics, loop, path, &facts), "write");
    assert_int_equal(scratch_count(s.dir), 1);
    free(before);
    free(after);
    trii_loop_destroy(loop);
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_full_disk_leaves_no_half_file),
};

TEST_MAIN(tests)
