/* job_metrics_test.c - the figures' file on a disk that is full. */
#include "launch/report/job_metrics.h"
#include "os/clock.h"
#include "os/loop.h"
#include "os/socket.h"
#include "testing/check.h"
#include "testing/no_descriptors.h"
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
    const trii_metrics_facts facts = {.run_id = "j", .run_dir = "/"};
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
    while (warning[0] == '\0' || !trii_background_is_idle(files))
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

/* The listener stays ready while nobody can be let in. */
static void without_descriptors_nobody_is_asked_without_end(void **state)
{
    const trii_metrics_facts facts = {.run_id = "run", .run_dir = "/", .n_workers = 0};
    int64_t deadline;
    int port, fd, turns = 0;
    trii_metrics metrics;
    trii_loop *loop;
    char where[32];

    (void)state;
    CHECK_OK(trii_loop_create(&loop));
    CHECK_OK(trii_socket_listen("127.0.0.1", 0, &fd, &port));
    trii_socket_close(fd);
    snprintf(where, sizeof(where), "127.0.0.1:%d", port);
    CHECK_OK(trii_metrics_open(&metrics, loop, NULL, where, &facts));
    fd = descriptors_end_and_call(port);
    deadline = trii_deadline_ms(350);
    for (; trii_now_ns() < deadline; turns++)
        trii_loop_run_once(loop, deadline);
    assert_in_range(turns, 1, 20);
    descriptors_allow();
    while (metrics.clients[0].fd < 0)
        trii_loop_run_once(loop, TRII_NO_DEADLINE);
    trii_socket_close(fd);
    trii_metrics_close(&metrics);
    trii_loop_destroy(loop);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_full_disk_leaves_no_half_file),
    cmocka_unit_test(without_descriptors_nobody_is_asked_without_end),
};

TEST_MAIN(tests)
