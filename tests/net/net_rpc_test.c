/*
 * net_rpc_test.c - workers on two hosts, in network namespaces, and the wire between them is cut:
 * nobody closes a connection, and both sides know of it in time all the same. Where a system gives
 * us no namespaces, a worker is killed.
 */
#include <sched.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <trireme/comm.h>

#include "testing/check.h"
#include "testing/hosts.h"
#include "testing/spawn.h"

/* A cut is known within HEARTBEAT_MS and a little more; a machine that is busy gets longer. */
enum { HEARTBEAT_MS = 800, KNOWN_MS = TEST_SANITIZED ? 8000 : 4000 };

static const char *own_path; /* of this program */

static double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* --- what this program does as a worker ----------------------------------- */

static tri_status run_hang(tri_rpc_request *request, void *object)
{
    (void)object;
    while (!tri_rpc_request_is_cancelled(request))
        sched_yield();
    printf("cancelled at %.3f\n", now_ms());
    fflush(stdout);
    return TRI_OK;
}
static const tri_rpc_function hang = {.name = "hang", .run = run_hang};

static void on_event(tri_rpc *rpc, const tri_rpc_event *event, void *arg)
{
    (void)rpc;
    (void)arg;
    if (event->kind == TRI_RPC_LOST) {
        printf("lost: %s\n", event->text);
        fflush(stdout);
    }
}

static int worker(void)
{
    static const tri_rpc_function *const functions[] = {&hang};
    const tri_rpc_call_options forever = {.timeout_ms = TRI_FOREVER};
    tri_rpc_ref *other;
    tri_status status;

    TRI_TRY(tri_rpc_init(
        NULL, &(tri_rpc_options){
                  .functions = functions, .n_functions = 1, .event = on_event, .tcp_only = true}));
    if (tri_rank() == 0) {
        tri_rpc_call *call;

        TRI_TRY(tri_rpc_find(NULL, "worker1", &other));
        TRI_TRY(tri_rpc_async(other, &hang, NULL, &forever, &call));
        puts("calls");
        fflush(stdout);
        status = tri_rpc_call_wait(call, 0);
        printf("at %.3f %s: %s\n", now_ms(), tri_status_name(status), tri_last_error());
        tri_rpc_call_destroy(call);
        tri_rpc_ref_unref(other);
    } else {
        puts("serves");
        fflush(stdout);
    }
    status = tri_rpc_join(NULL, 20000);
    printf("joined at %.3f: %s\n", now_ms(), tri_status_name(status));
    fflush(stdout);
    pause();
    return 0;
}

/* --- the test ------------------------------------------------------------- */

static void start_rank(spawn *s, int host, int rank, int port)
{
    const char *const argv[] = {own_path, "--worker", NULL};
    char text[4][64];
    const char *const env[] = {text[0],
                               text[1],
                               text[2],
                               text[3],
                               "WORLD_SIZE=2",
                               "LOCAL_RANK",
                               "LOCAL_WORLD_SIZE",
                               "TRI_ENGINE=tcp",
                               NULL};

    snprintf(text[0], sizeof(text[0]), "RANK=%d", rank);
    snprintf(text[1], sizeof(text[1]), "MASTER_ADDR=%s", host < 0 ? "127.0.0.1" : "10.77.0.1");
    snprintf(text[2], sizeof(text[2]), "MASTER_PORT=%d", port);
    snprintf(text[3], sizeof(text[3]), "TRI_HEARTBEAT_MS=%d", HEARTBEAT_MS);
    if (host < 0)
        spawn_start(s, argv, env);
    else
        hosts_spawn(host, s, argv, env);
}

/* The number after a word that the worker has said, since the cut. */
static double known_ms(spawn *s, const char *word, double cut_ms)
{
    const char *at;

    spawn_expect(s, word);
    spawn_expect(s, "joined at");
    at = strstr(SPAWN_OUT(s), word);
    assert_non_null(at);
    return strtod(at + strlen(word), NULL) - cut_ms;
}

static void a_cut_wire_is_known_on_both_sides(void **state)
{
    bool spread = hosts_begin(2);
    int port = spread ? 29500 : spawn_free_port();
    double cut_ms, caller_ms, callee_ms;
    spawn s[2];

    (void)state;
    for (int host = 1; spread && host <= 2; host++) {
        hosts_plug(host);
        hosts_ip(host, "addr add 10.77.0.%d/24 dev eth0", host);
    }
    for (int rank = 0; rank < 2; rank++)
        start_rank(&s[rank], spread ? 1 + rank : -1, rank, port);
    spawn_expect(&s[0], "calls");
    spawn_expect(&s[1], "serves");
    cut_ms = now_ms();
    if (spread)
        hosts_cut(2);
    else
        spawn_signal(&s[1], SIGKILL);
    caller_ms = known_ms(&s[0], "at ", cut_ms);
    if (strstr(SPAWN_OUT(&s[0]), "PEER_LOST: hang on worker1") == NULL ||
        strstr(SPAWN_OUT(&s[0]), "perhaps executed") == NULL ||
        strstr(SPAWN_OUT(&s[0]), spread ? "its host has not answered for" : "lost: worker1") ==
            NULL)
        fail_msg("%s", SPAWN_OUT(&s[0]));
    assert_in_range((int)caller_ms, 0, KNOWN_MS);
    if (spread) {
        callee_ms = known_ms(&s[1], "cancelled at ", cut_ms);
        printf("known after %.0f ms, and %.0f ms\n", caller_ms, callee_ms);
        assert_in_range((int)callee_ms, 0, KNOWN_MS);
        assert_non_null(strstr(SPAWN_OUT(&s[1]), "lost: worker0"));
    }
    for (int rank = 0; rank < 2; rank++)
        spawn_free(&s[rank]);
    if (spread)
        hosts_end();
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_cut_wire_is_known_on_both_sides),
};

int main(int argc, char **argv)
{
    own_path = argv[0];
    if (argc > 1 && strcmp(argv[1], "--worker") == 0)
        return worker();
    return test_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
