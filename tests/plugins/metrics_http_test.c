/*
 * metrics_http_test.c - what `trirun --metrics :PORT` serves by HTTP is what Prometheus reads.
 */
#include <arpa/inet.h>
#include <signal.h>
#include <sys/socket.h>

#include "launch/report/job_metrics.h"
#include "os/clock.h"
#include "os/loop.h"
#include "os/socket.h"
#include "testing/launcher_job.h"
#include "testing/no_descriptors.h"
#include "testing/prometheus.h"

#define READY "echo ready $RANK; exec sleep 1000"

/* Asks 127.0.0.1 by HTTP, in two pieces. */
static void ask(int fd, const char *path)
{
    char line[128];

    snprintf(line, sizeof(line), "GET %s HTTP/1.1\r\n", path);
    assert_true(write(fd, line, strlen(line)) == (ssize_t)strlen(line));
    assert_true(write(fd, "Host: x\r\n\r\n", 11) == 11);
}

/* Until the connection ends. */
static void read_answer(int fd, char *reply, size_t bytes)
{
    size_t used = 0;
    ssize_t n;

    while (used + 1 < bytes && (n = read(fd, reply + used, bytes - 1 - used)) > 0)
        used += (size_t)n;
    reply[used] = '\0';
    close(fd);
}

static void fetch_path(int port, const char *path, char *reply, size_t bytes)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    ask(fd, path);
    read_answer(fd, reply, bytes);
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

/* The listener stays ready while nobody can be let in. */
static void without_descriptors_nobody_is_asked_without_end(void **state)
{
    trii_job_facts facts = {.run_id = "run", .run_dir = "/", .n_workers = 0};
    int64_t deadline;
    int port, fd, turns = 0;
    trii_metrics metrics;
    trii_loop *loop;
    char where[32], reply[16384];

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
    ask(fd, "/metrics");
    while (recv(fd, reply, sizeof(reply), MSG_PEEK | MSG_DONTWAIT) <= 0)
        trii_loop_run_once(loop, trii_deadline_ms(10));
    read_answer(fd, reply, sizeof(reply));
    assert_has(reply, "HTTP/1.0 200 OK\r\n");
    trii_metrics_close(&metrics);
    trii_loop_destroy(loop);
}

static void a_port_is_no_file_that_events_go_to(void **state)
{
    launcher_job j;

    (void)state;
    TRIRUN(&j, "--events=/dev/null", "--metrics=:0", "true");
    assert_int_equal(spawn_wait(&j.trirun), 0);
    trirun_end(&j, 0);
}

static void a_missing_plugin_is_named(void **state)
{
    char copy[300], folder[256];
    const char *const cp[] = {"cp", spawn_bin("trirun"), copy, NULL};
    const char *const argv[] = {copy, "--metrics=:0", "true", NULL};
    const char *const env[] = {"TRI_PLUGIN_PATH=/nowhere", NULL};
    spawn s;

    (void)state;
    spawn_make_folder(folder, sizeof(folder));
    snprintf(copy, sizeof(copy), "%s/trirun", folder);
    spawn_start(&s, cp, NULL);
    assert_int_equal(spawn_wait(&s), 0);
    spawn_free(&s);
    spawn_start(&s, argv, env);
    assert_int_equal(spawn_wait(&s), 1);
    assert_has(SPAWN_ERR(&s),
               "trirun: --metrics :0 needs the plug-in metrics-http.so, which is not in "
               "/nowhere ");
    assert_has(SPAWN_ERR(&s), "--metrics ./FILE needs none\n");
    spawn_expect_no_process(&s);
    spawn_free(&s);
    spawn_remove_folder(folder);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(figures_are_served_for_prometheus),
    cmocka_unit_test(other_paths_are_told_where_the_figures_are),
    cmocka_unit_test(a_port_that_the_system_chose_is_said),
    cmocka_unit_test(without_descriptors_nobody_is_asked_without_end),
    cmocka_unit_test(a_port_is_no_file_that_events_go_to),
    cmocka_unit_test(a_missing_plugin_is_named),
};

TEST_MAIN(tests)
