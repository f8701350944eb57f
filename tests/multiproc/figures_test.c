/*
 * figures_test.c - what `trirun --metrics` writes to a file is what Prometheus reads.
 */
#include <signal.h>
#include <time.h>

#include "testing/launcher_job.h"
#include "testing/prometheus.h"

#define READY "echo ready $RANK; exec sleep 1000"

static void expect_ready(launcher_job *j)
{
    spawn_expect(&j->trirun, "ready 0");
    spawn_expect(&j->trirun, "ready 1");
}

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* They come with the workers, not when the file is next due. */
static void a_file_has_the_workers_from_the_start(void **state)
{
    char home[256], path[300], text[16384] = "";
    launcher_job j;
    double started;

    (void)state;
    spawn_make_folder(home, sizeof(home));
    snprintf(path, sizeof(path), "%s/job.prom", home);
    TRIRUN(&j, "--nproc-per-node=2", "--metrics", path, "sh", "-c", READY);
    expect_ready(&j);
    started = now_s();
    do {
        assert_true(slurp(path, text, sizeof(text)));
        prometheus_check(text); /* at any time */
    } while (strstr(text, "trirun_worker_up{rank=\"1\"} 1\n") == NULL && now_s() < started + 4);
    CHECK_NEAR(prometheus_value(text, "trirun_workers"), 2, 0);
    CHECK_NEAR(prometheus_value(text, "trirun_worker_up{rank=\"1\"}"), 1, 0);
    spawn_signal(&j.trirun, SIGTERM);
    assert_int_equal(spawn_wait(&j.trirun), 1);
    trirun_end(&j, 0);
    spawn_remove_folder(home);
}

/* A counter that falls has been set back, to Prometheus. */
static void the_last_figures_keep_what_was_used(void **state)
{
    char home[256], path[300], text[16384];
    launcher_job j;

    (void)state;
    spawn_make_folder(home, sizeof(home));
    snprintf(path, sizeof(path), "%s/job.prom", home);
    TRIRUN(&j, "--nproc-per-node=2", "--metrics", path, "sh", "-c",
           "i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done; echo $i");
    assert_int_equal(spawn_wait(&j.trirun), 0);
    assert_true(slurp(path, text, sizeof(text)));
    prometheus_check(text);
    CHECK_NEAR(prometheus_value(text, "trirun_workers"), 0, 0);
    CHECK_NEAR(prometheus_value(text, "trirun_worker_up{rank=\"0\"}"), 0, 0);
    assert_true(prometheus_value(text, "trirun_worker_cpu_seconds_total{rank=\"0\"}") > 0.001);
    assert_true(prometheus_value(text, "trirun_worker_cpu_seconds_total{rank=\"1\"}") > 0.001);
    CHECK_NEAR(prometheus_value(text, "trirun_worker_output_bytes_total{rank=\"1\","
                                      "stream=\"stdout\"}"),
               7, 0);
    assert_int_equal(spawn_count_entries(home), 1);
    trirun_end(&j, 0);
    spawn_remove_folder(home);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_file_has_the_workers_from_the_start),
    cmocka_unit_test(the_last_figures_keep_what_was_used),
};

TEST_MAIN(tests)
