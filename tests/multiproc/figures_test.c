/*
 * figures_test.c - what `trirun --metrics` shows, by HTTP and in a file, is what Prometheus reads.
 */
#include <arpa/inet.h>
#include <signal.h>
#include <sys/socket.h>
#include <time.h>

#include "testing/launcher_job.h"
#include "testing/prometheus.h"

#define READY "echo ready $RANK; exec sleep 1000"

/* The answer to one HTTP request to 127.0.0.1. */
static void fetch_path(int port, const char *path, char *reply, size_t bytes)
{
    char line[128];
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    size_t used = 0;
    ssize_t n;

    inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    snprintf(line, sizeof(line), "GET %s HTTP/1.1\r\n", path);
    assert_true(write(fd, line, strlen(line)) == (ssize_t)strlen(line));
    assert_true(write(fd, "Host: x\r\n\r\n", 11) == 11);
    while (used + 1 < bytes && (n = read(fd, reply + used, bytes - 1 - used)) > 0)
        used += (size_t)n;
    reply[used] = '\0';
    close(fd);
}

static void fetch(int port, char *reply, size_t bytes)
{
    fetch_path(port, "/metrics", reply, bytes);
}

/* The figures of an answer. */
static const char *body(const char *reply)
{
    const char *at = strstr(reply, "\r\n\r\n");

    assert_non_null(at);
    return at + 4;
}

static void expect_ready(launcher_job *j)
{
    spawn_expect(&j->trirun, "ready 0");
    spawn_expect(&j->trirun, "ready 1");
}

static void figures_are_served_for_prometheus(void **state)
{
    char where[32], text[16384];
    launcher_job j;
    int port = spawn_free_port();

    (void)state;
    snprintf(where, sizeof(where), ":%d", port);
    TRIRUN(&j, "--nproc-per-node=2", "--rdzv-id", "a \"job\" of \\mine", "--metrics", where, "sh",
           "-c", READY);
    expect_ready(&j);
    do { /* a worker that is just becoming another program has no memory yet */
        fetch(port, text, sizeof(text));
        assert_has(text, "HTTP/1.0 200 OK\r\n");
    } while (prometheus_value(text, "trirun_worker_resident_bytes{rank=\"1\"}") <= 0);
    prometheus_check(body(text));
    assert_has(text, "\ntrirun_info{run_id=\"a \\\"job\\\" of \\\\mine\"} 1\n");
    CHECK_NEAR(prometheus_value(text, "trirun_workers"), 2, 0);
    CHECK_NEAR(prometheus_value(text, "trirun_worker_up{rank=\"1\"}"), 1, 0);
    CHECK_NEAR(prometheus_value(text, "trirun_worker_output_bytes_total{rank=\"1\","
                                      "stream=\"stdout\"}"),
               8, 0);
    spawn_signal(&j.trirun, SIGTERM);
    assert_int_equal(spawn_wait(&j.trirun), 1);
    trirun_end(&j, 0);
}

/* What a browser or a scraper with a wrong path asks for. */
static void other_paths_are_told_where_the_figures_are(void **state)
{
    static const char *const paths[] = {"/", "/metrics/", "/metric", "/metricsx", "metrics"};
    char where[32], text[16384];
    launcher_job j;
    int port = spawn_free_port();

    (void)state;
    snprintf(where, sizeof(where), "127.0.0.1:%d", port);
    TRIRUN(&j, "--nproc-per-node=2", "--metrics", where, "sh", "-c", READY);
    expect_ready(&j);
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        fetch_path(port, paths[i], text, sizeof(text));
        assert_has(text, "HTTP/1.0 404 Not Found\r\n");
        assert_has(body(text), "/metrics\n");
        assert_has_not(text, "trirun_info");
    }
    fetch_path(port, "/metrics?name[]=x", text, sizeof(text));
    assert_has(text, "HTTP/1.0 200 OK\r\n");
    prometheus_check(body(text));
    assert_has_not(SPAWN_ERR(&j.trirun), "--metrics"); /* who chose the port knows it */
    spawn_signal(&j.trirun, SIGTERM);
    assert_int_equal(spawn_wait(&j.trirun), 1);
    trirun_end(&j, 0);
}

/* Port 0 is any free one: it is said on stderr, and by `trireme ps`. */
static void a_port_that_the_system_chose_is_said(void **state)
{
    char home[300], text[16384], line[80];
    const char *const argv[] = {spawn_bin("trireme"), "ps", NULL};
    const char *const env[] = {home, NULL};
    const char *at;
    launcher_job j;
    spawn tool;
    int port;

    (void)state;
    TRIRUN(&j, "--nproc-per-node=2", "--metrics", ":0", "sh", "-c", READY);
    spawn_expect(&j.trirun, "/metrics\n");
    at = strstr(SPAWN_ERR(&j.trirun), "trirun: --metrics :0: the figures are at http://127.0.0.1:");
    assert_non_null(at);
    port = (int)strtol(strrchr(at, ':') + 1, NULL, 10);
    assert_in_range(port, 1, 65535);
    expect_ready(&j);
    fetch(port, text, sizeof(text));
    prometheus_check(body(text));
    snprintf(home, sizeof(home), "XDG_RUNTIME_DIR=%s", j.home);
    snprintf(line, sizeof(line), "\n  figures at http://127.0.0.1:%d/metrics\n", port);
    do { /* the job's file is written a moment after the workers have started */
        spawn_start(&tool, argv, env);
        assert_int_equal(spawn_wait(&tool), 0);
        snprintf(text, sizeof(text), "%s", SPAWN_OUT(&tool));
        spawn_free(&tool);
    } while (strstr(text, " starting") != NULL);
    assert_has(text, line);
    spawn_signal(&j.trirun, SIGTERM);
    assert_int_equal(spawn_wait(&j.trirun), 1);
    trirun_end(&j, 0);
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
    cmocka_unit_test(figures_are_served_for_prometheus),
    cmocka_unit_test(other_paths_are_told_where_the_figures_are),
    cmocka_unit_test(a_port_that_the_system_chose_is_said),
    cmocka_unit_test(a_file_has_the_workers_from_the_start),
    cmocka_unit_test(the_last_figures_keep_what_was_used),
};

TEST_MAIN(tests)
