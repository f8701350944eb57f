/*
 * store_tool_test.c - `trireme store` from outside: a server and clients as processes, and files.
 */
#include <signal.h>

#include "testing/check.h"
#include "testing/scratch.h"
#include "testing/spawn.h"

static const char *where[2]; /* the option in front of each command, and its value */

/* Runs `trireme store WHERE args...`, checks its status, and returns what it printed (until the
 * next call). */
static const char *run(int status, const char *const *args)
{
    static char out[4096];
    const char *argv[20] = {spawn_bin("trireme"), "store", where[0], where[1], "--timeout", "5"};
    const char *err;
    int n = 6;
    spawn s;

    while (*args != NULL)
        argv[n++] = *args++;
    spawn_start(&s, argv, NULL);
    if (spawn_wait(&s) != status)
        fail_msg("%s: status %d instead of %d: %s", argv[6], s.status, status, SPAWN_ERR(&s));
    err = SPAWN_ERR(&s);
    if (strncmp(err, "trireme warn store: ", 20) == 0) /* it had to wait for the server */
        err += strcspn(err, "\n") + 1;
    snprintf(out, sizeof(out), "%s%s", SPAWN_OUT(&s), err);
    spawn_free(&s);
    return out;
}
#define RUN(status, ...) run(status, (const char *const[]){__VA_ARGS__, NULL})

static void use_all_but_queues(void)
{
    assert_string_equal(RUN(0, "set", "k", "value"), "");
    assert_string_equal(RUN(0, "get", "k"), "value\n");
    assert_string_equal(RUN(0, "append", "k", " and more"), "");
    assert_string_equal(RUN(0, "--raw", "get", "k", "k"), "value and morevalue and more");
    assert_string_equal(RUN(0, "add", "n"), "1\n");
    assert_string_equal(RUN(0, "add", "n", "-5"), "-4\n");
    assert_non_null(strstr(RUN(2, "add", "n", "x"), "add: N=x is not an integer"));
    assert_string_equal(RUN(0, "--prefix", "p", "set", "inside", "x"), "");
    assert_string_equal(RUN(0, "keys"), "k\nn\np/inside\n");
    assert_string_equal(RUN(0, "--prefix=p", "keys"), "inside\n");
    assert_string_equal(RUN(0, "num-keys"), "3\n");
    assert_string_equal(RUN(0, "wait", "k", "n"), "");
    assert_string_equal(RUN(0, "check", "k", "n"), "");
    assert_string_equal(RUN(1, "check", "k", "none"), "");
    assert_string_equal(RUN(0, "compare-set", "c", "", "one"), "one\n");
    assert_string_equal(RUN(1, "compare-set", "c", "two", "three"), "one\n");
    assert_string_equal(RUN(0, "delete", "c"), "");
    assert_string_equal(RUN(1, "delete", "c"), "");
    assert_non_null(strstr(RUN(1, "--timeout=0.5", "wait", "none"), "1 of 1 keys still missing"));
    assert_string_equal(RUN(0, "set", "--dashes", "-1"), "");
    assert_string_equal(RUN(0, "get", "--dashes"), "-1\n");
    assert_string_equal(RUN(0, "get", "--raw", "--dashes", "--timeout", "3"), "-1");
    assert_string_equal(RUN(0, "set", "--", "--raw", "--file=x"), "");
    assert_string_equal(RUN(0, "get", "--", "--raw"), "--file=x\n");
    assert_string_equal(RUN(0, "delete", "--", "--raw"), "");
}

static void start_server(spawn *server, char endpoint[64])
{
    const char *const argv[] = {spawn_bin("trireme"), "store",       "serve",
                                "--endpoint",         "127.0.0.1:0", NULL};
    int port = 0;

    spawn_start(server, argv, NULL);
    spawn_expect(server, "serving at 127.0.0.1 port ");
    spawn_expect(server, "\n");
    assert_int_equal(sscanf(SPAWN_OUT(server), "serving at 127.0.0.1 port %d", &port), 1);
    snprintf(endpoint, 64, "127.0.0.1:%d", port);
    where[0] = "--endpoint";
    where[1] = endpoint;
}

static void a_server_and_its_clients(void **state)
{
    const char *again[] = {spawn_bin("trireme"), "store", "--endpoint", NULL, "serve", NULL};
    char endpoint[64];
    spawn server, second;

    (void)state;
    start_server(&server, endpoint);
    use_all_but_queues();
    assert_string_equal(RUN(0, "push", "q", "a"), "");
    assert_string_equal(RUN(0, "push", "q", "b"), "");
    assert_string_equal(RUN(0, "queue-length", "q"), "2\n");
    assert_string_equal(RUN(0, "pop", "q"), "a\n");
    assert_string_equal(RUN(0, "pop", "q"), "b\n");
    assert_non_null(strstr(RUN(1, "--timeout=0.5", "pop", "q"), "queue q is still empty"));
    again[3] = endpoint;
    spawn_start(&second, again, NULL);
    assert_int_equal(spawn_wait(&second), 1);
    assert_non_null(strstr(SPAWN_ERR(&second), "in use"));
    spawn_free(&second);
    spawn_signal(&server, SIGTERM);
    assert_int_equal(spawn_wait(&server), 0);
    spawn_expect_no_process(&server);
    spawn_free(&server);
    assert_non_null(strstr(RUN(1, "--timeout=0.5", "get", "k"), "refused"));
}

static void a_file_needs_no_server(void **state)
{
    scratch s;

    (void)state;
    scratch_begin(&s);
    where[0] = "--file";
    where[1] = scratch_path(&s, "store");
    use_all_but_queues();
    assert_non_null(strstr(RUN(1, "push", "q", "a"), "a file store has no queues"));
    scratch_end(&s);
}

/* The caller wants to know soon. */
static void a_port_where_nobody_serves_is_told_within_seconds(void **state)
{
    const char *argv[] = {spawn_bin("trireme"), "store", "--endpoint", NULL, "wait", "k", NULL};
    char endpoint[64], says[64];
    int port = spawn_free_port();
    spawn s;

    (void)state;
    snprintf(endpoint, sizeof(endpoint), "127.0.0.1:%d", port);
    snprintf(says, sizeof(says), "trireme store: store at 127.0.0.1 port %d: ", port);
    argv[3] = endpoint;
    spawn_start(&s, argv, NULL);
    s.deadline_ms = 15000;
    assert_int_equal(spawn_wait(&s), 1);
    assert_non_null(strstr(SPAWN_ERR(&s), says));
    assert_non_null(strstr(SPAWN_ERR(&s), "nothing serves there"));
    assert_non_null(strstr(SPAWN_ERR(&s), "\n--timeout SECONDS says how long it is tried.\n"));
    spawn_free(&s);
}

/* With its arguments, as it is told to who gives it too few or too many of them. */
static void the_help_has_every_action(void **state)
{
    static const char *const actions[] = {
        "set",   "get",    "add",  "append",   "compare-set", "wait", "barrier",
        "check", "delete", "keys", "num-keys", "push",        "pop",  "queue-length"};
    static const char usage[] = "usage: trireme store [OPTIONS] ";
    spawn help;

    (void)state;
    spawn_start(&help, (const char *const[]){spawn_bin("trireme"), "store", "--help", NULL}, NULL);
    assert_int_equal(spawn_wait(&help), 0);
    where[0] = "--file";
    where[1] = "/nowhere/store";
    for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++) {
        bool takes_none = strstr(actions[i], "keys") != NULL;
        const char *line = strstr(RUN(2, actions[i], takes_none ? "x" : NULL), usage);
        char row[80];

        assert_non_null(line);
        line += sizeof(usage) - 1;
        snprintf(row, sizeof(row), "%.*s", (int)strcspn(line, "\n"), line);
        if (strchr(row, '[') != NULL)
            *strchr(row, '[') = '\0';
        if (strstr(SPAWN_OUT(&help), row) == NULL)
            fail_msg("no \"%s\" in:\n%s", row, SPAWN_OUT(&help));
    }
    spawn_free(&help);
}

static void wrong_usage_is_explained(void **state)
{
    static const char *const rows[][2] = {
        {"nothing", "no action named nothing"},
        {"get", "usage: trireme store [OPTIONS] get KEY"},
        {"serve", "--file needs no server"},
        {"--timeout=x", "not a number of seconds"},
        {"--prefix", "its value is missing"},
        {"--what", "unknown option"},
        {"--raw", "which action?"},
    };

    (void)state;
    where[0] = "--file";
    where[1] = "/nowhere/store";
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *text = RUN(2, rows[i][0]);

        if (strstr(text, rows[i][1]) == NULL)
            fail_msg("%s: %s", rows[i][0], text);
    }
    assert_non_null(strstr(RUN(2, "get", "k", "--timeout"), "--timeout: its value is missing"));
    assert_non_null(strstr(RUN(1, "keys"), "No such file or directory"));
    where[0] = "--endpoint";
    where[1] = "host:99999";
    assert_non_null(strstr(RUN(2, "keys"), "port of --endpoint=99999"));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_server_and_its_clients),
    cmocka_unit_test(a_file_needs_no_server),
    cmocka_unit_test(a_port_where_nobody_serves_is_told_within_seconds),
    cmocka_unit_test(the_help_has_every_action),
    cmocka_unit_test(wrong_usage_is_explained),
};

TEST_MAIN(tests)
