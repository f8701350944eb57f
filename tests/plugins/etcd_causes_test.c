/*
 * etcd_causes_test.c - the cause that is told when no server does what is asked: what the last one
 * said, not that our own time was over while we asked once more.
 */
#include <netinet/in.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#include "os/thread.h"
#include "testing/check.h"
#include "testing/etcd_calls.h"
#include "testing/scratch.h"

/* Answers the first call and leaves all others without a word. */
typedef struct gateway {
    int listen_fd, port;
    const char *answer;
    atomic_bool stop;
    trii_thread thread;
} gateway;

static void serve(void *arg)
{
    gateway *g = arg;
    int fds[64], n = 0;
    char request[4096];

    while (!atomic_load(&g->stop) && n < 64) {
        struct pollfd ready = {.fd = g->listen_fd, .events = POLLIN};

        if (poll(&ready, 1, 10) != 1 || (fds[n] = accept(g->listen_fd, NULL, NULL)) < 0)
            continue;
        if (n++ == 0 && read(fds[0], request, sizeof(request)) > 0)
            (void)!write(fds[0], g->answer, strlen(g->answer));
        if (n == 1)
            (void)shutdown(fds[0], SHUT_WR);
    }
    while (n > 0)
        close(fds[--n]);
}

static void gateway_start(gateway *g, const char *answer)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof(address);

    *g = (gateway){.answer = answer, .listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    assert_true(g->listen_fd >= 0);
    assert_int_equal(bind(g->listen_fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(g->listen_fd, 64), 0);
    assert_int_equal(getsockname(g->listen_fd, (struct sockaddr *)&address, &length), 0);
    g->port = ntohs(address.sin_port);
    CHECK_OK(trii_thread_start(&g->thread, "gateway", serve, g));
}

static void gateway_stop(gateway *g)
{
    atomic_store(&g->stop, true);
    trii_thread_join(&g->thread);
    close(g->listen_fd);
}

/* In which one answer comes, on a busy machine with a sanitizer too. */
#define ANSWER_MS 3000

/* Whom a client trusts that speaks https. A system without the package ca-certificates has nobody
 * of its own, and then no https would be spoken at all. */
static const char AUTHORITY[] = "-----BEGIN CERTIFICATE-----\n"
                                "MIIBfzCCASWgAwIBAgIUdgDOGizWxiFHiGBSmBuca4zy6bUwCgYIKoZIzj0EAwIw\n"
                                "FDESMBAGA1UEAwwJYXV0aG9yaXR5MCAXDTI2MTEyMzA0MjcyNloYDzIxMjYxMDMw\n"
                                "MDQyNzI2WjAUMRIwEAYDVQQDDAlhdXRob3JpdHkwWTATBgcqhkjOPQIBBggqhkjO\n"
                                "PQMBBwNCAAQ7xJ/3jhQECVPYzFnH8b1nksMPmtxNgwv5AwdurMEGOl8zHwBC0PyT\n"
                                "52P/B6H5dh4R4a98KqWRfucjEduW/jXXo1MwUTAdBgNVHQ4EFgQUVGjZTlMWkiFM\n"
                                "Nr/RPo/edivigjcwHwYDVR0jBBgwFoAUVGjZTlMWkiFMNr/RPo/edivigjcwDwYD\n"
                                "VR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNIADBFAiAFA2PtYSpBH6/49uyqYY/H\n"
                                "+2xH8ZMcznog9oMwcPkl3AIhAKHQQKVfFMiUjR3idtDdLgbx+zyS09KdcFLmLZty\n"
                                "kSEx\n"
                                "-----END CERTIFICATE-----\n";

typedef struct attempt {
    const char *scheme;
    int port, timeout_ms;
    const char *ca_cert;
    tri_status status;
} attempt;

/* The error of a client that cannot begin in this time. */
static const char *failure(const attempt *a)
{
    etcd_cluster none = {0};
    trii_etcd_settings settings;
    trii_rdzv_backend *backend = NULL;

    snprintf(none.endpoints, sizeof(none.endpoints), "%s127.0.0.1:%d", a->scheme, a->port);
    settings = etcd_settings(&none, "job");
    settings.open_timeout_ms = settings.timeout_ms = a->timeout_ms;
    settings.ca_cert = a->ca_cert;
    assert_int_equal(trii_etcd_create(&settings, &backend), a->status);
    return tri_last_error();
}

static void what_a_gateway_said_is_told(void **state)
{
    gateway g;
    const char *told;

    (void)state;
    gateway_start(&g, "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 19\r\n"
                      "Connection: close\r\n\r\nno healthy upstream");
    told = failure(&(attempt){"", g.port, ANSWER_MS, NULL, TRI_ERR_TIMEOUT});
    assert_non_null(strstr(told, "HTTP status 503 and \"no healthy upstream\""));
    assert_non_null(strstr(told, "that http is what is spoken there (by protocol of --rdzv-conf)"));
    assert_null(strstr(told, "timed out"));
    gateway_stop(&g);
}

static void another_protocol_is_told(void **state)
{
    gateway g;
    scratch files;
    const char *told, *ca;

    (void)state;
    scratch_begin(&files);
    ca = scratch_file(&files, "ca.pem", AUTHORITY, sizeof(AUTHORITY) - 1);
    gateway_start(&g, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    told = failure(&(attempt){"https://", g.port, ANSWER_MS, ca, TRI_ERR_TIMEOUT});
    assert_non_null(strstr(told, "wrong version number"));
    assert_non_null(strstr(told, "that https is what is spoken there (as --rdzv-endpoint says)"));
    assert_null(strstr(told, "protocol=http"));
    gateway_stop(&g);
    scratch_end(&files);
}

/* As on a system without the package ca-certificates, whose file the library asks for. */
static void a_missing_authority_is_told_with_the_remedy(void **state)
{
    gateway g;
    const char *told;

    (void)state;
    gateway_start(&g, "");
    told = failure(&(attempt){"https://", g.port, ANSWER_MS, "/nowhere/ca.pem", //
                              TRI_ERR_INVALID_ARG});
    assert_non_null(strstr(told, "/nowhere/ca.pem"));
    assert_non_null(strstr(told, "see ca_cert, ssl_cert and ssl_cert_key of --rdzv-conf"));
    assert_non_null(strstr(told, "package ca-certificates"));
    gateway_stop(&g);
}

/* One that never says a word: the only thing to tell. A busy machine gets more time to hear it. */
static void silence_is_told(void **state)
{
    const char *line = "";
    char told[64] = "-";
    gateway g;

    (void)state;
    gateway_start(&g, "");
    for (int ms = 700; strstr(line, told) == NULL && ms < 6000; ms *= 2) {
        snprintf(told, sizeof(told), "within %.1f s; the last one, http://127.0.0.1:", ms * 1e-3);
        line = failure(&(attempt){"", g.port, ms, NULL, TRI_ERR_TIMEOUT});
    }
    if (strstr(line, told) == NULL)
        fail_msg("%s", line);
    gateway_stop(&g);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(what_a_gateway_said_is_told),
    cmocka_unit_test(another_protocol_is_told),
    cmocka_unit_test(a_missing_authority_is_told_with_the_remedy),
    cmocka_unit_test(silence_is_told),
};

TEST_MAIN(tests)
