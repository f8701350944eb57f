/*
 * rpc_process_test.c - workers under trirun and tri_spawn: names by rank, calls, what is logged,
 * what `trireme why` says while one waits, and a worker that is killed. This program is also the
 * worker: with an argument it runs that scene.
 */
#include <signal.h>
#include <unistd.h>

#include <trireme/comm.h>

#include "testing/trirun_job.h"

/* --- scenes: what a started program does ---------------------------------- */

static tri_status run_add(tri_rpc_request *request, void *object)
{
    const int *x = tri_rpc_request_message(request)->data;
    int sum = x[0] + x[1];

    (void)object;
    return tri_rpc_reply(request, &(tri_rpc_message){.data = &sum, .bytes = sizeof(sum)});
}
static const tri_rpc_function add = {.name = "add", .run = run_add};

/* Never answered; nobody burns a core for that. */
static tri_status run_hang(tri_rpc_request *request, void *object)
{
    (void)request;
    (void)object;
    return TRI_INPROGRESS;
}
static const tri_rpc_function hang = {.name = "ps.hang", .run = run_hang};

static tri_status run_die(tri_rpc_request *request, void *object)
{
    (void)request;
    (void)object;
    raise(SIGKILL);
    return TRI_OK;
}
static const tri_rpc_function die = {.name = "ps.die", .run = run_die};

static const tri_rpc_function *const functions[] = {&add, &hang, &die};
static const tri_rpc_options options = {
    .functions = functions, .n_functions = 3, .timeout_ms = 20000};

/* Each calls its neighbour, twice in its life. */
static tri_status ring(int unused, void *arg)
{
    (void)unused;
    (void)arg;
    for (int life = 0; life < 2; life++) {
        char name[32];
        tri_rpc_message reply;
        tri_rpc_ref *next = NULL;
        int x[2] = {0, life}, sum = 0;
        tri_status status = tri_rpc_init(NULL, &options);

        if (status != TRI_OK)
            return status;
        x[0] = 100 * tri_rank();
        if (tri_rpc_init("again", &options) != TRI_ERR_STATE)
            return tri_status_fail(TRI_ERR_INTERNAL, "a second worker in one process");
        snprintf(name, sizeof(name), "worker%d", (tri_rank() + 1) % tri_world_size());
        status = tri_rpc_find(NULL, name, &next);
        if (status == TRI_OK)
            status = tri_rpc_sync(next, &add, &(tri_rpc_message){.data = x, .bytes = sizeof(x)},
                                  NULL, &reply);
        if (status == TRI_OK) {
            memcpy(&sum, reply.data, sizeof(sum));
            tri_rpc_message_free(&reply);
            printf("%s has %d of %s\n", tri_rpc_name(NULL), sum, tri_rpc_ref_owner(next));
            fflush(stdout);
        }
        tri_rpc_ref_unref(next);
        if (status == TRI_OK)
            status = tri_rpc_join(NULL, 0);
        if (status != TRI_OK)
            return status;
        status = tri_rpc_fini();
        if (status != TRI_OK)
            return status;
    }
    return TRI_OK;
}

static tri_status server_and_trainer(const tri_rpc_function *function)
{
    bool is_server = getenv("RANK") != NULL && strcmp(getenv("RANK"), "0") == 0;
    tri_rpc_ref *ps = NULL;
    tri_status status = tri_rpc_init(is_server ? "ps" : "trainer", &options);

    if (status != TRI_OK || is_server)
        return status == TRI_OK ? tri_rpc_join(NULL, TRI_FOREVER) : status;
    status = tri_rpc_find(NULL, "ps", &ps);
    if (status == TRI_OK)
        status = tri_rpc_sync(ps, function, NULL, NULL, NULL);
    fprintf(stderr, "trainer: %s: %s\n", tri_status_name(status), tri_last_error());
    tri_rpc_ref_unref(ps);
    return status;
}

static int scene(const char *name)
{
    tri_status status = TRI_ERR_INVALID_ARG;

    if (strcmp(name, "ring") == 0)
        status = ring(0, NULL);
    else if (strcmp(name, "spawn") == 0)
        status = tri_spawn(ring, NULL, 3, NULL);
    else if (strcmp(name, "hang") == 0)
        status = server_and_trainer(&hang);
    else if (strcmp(name, "die") == 0)
        status = server_and_trainer(&die);
    if (status != TRI_OK)
        fprintf(stderr, "%s: %s: %s\n", name, tri_status_name(status), tri_last_error());
    return status == TRI_OK ? 0 : 1;
}

/* --- cases ---------------------------------------------------------------- */

#define SELF "/proc/self/exe"

static char self[4096];

static void find_self(void)
{
    ssize_t n = readlink(SELF, self, sizeof(self) - 1);

    assert_true(n > 0);
    self[n] = '\0';
}

static void expect_ring(const char *text)
{
    for (int life = 0; life < 2; life++) {
        for (int r = 0; r < 3; r++) {
            char line[80];

            snprintf(line, sizeof(line), "worker%d has %d of worker%d\n", r, 100 * r + life,
                     (r + 1) % 3);
            trirun_has(text, line);
        }
    }
}

static void workers_of_trirun_are_called_by_their_ranks(void **state)
{
    const char *const argv[] = {"--nproc-per-node", "3", self, "scene", "ring", NULL};
    trirun_job j;

    (void)state;
    find_self();
    trirun_start_behind(&j, NULL, argv, "TRI_LOG=rpc:debug");
    assert_int_equal(spawn_wait(&j.run), 0);
    expect_ring(SPAWN_OUT(&j.run));
    trirun_has(SPAWN_ERR(&j.run), "is connected by shared memory");
    trirun_end(&j, 0);
}

static void workers_of_tri_spawn_are_called_by_their_ranks(void **state)
{
    const char *const argv[] = {self, "scene", "spawn", NULL};
    spawn s;

    (void)state;
    find_self();
    spawn_start(&s, argv, NULL);
    if (spawn_wait(&s) != 0)
        fail_msg("%s", SPAWN_ERR(&s));
    expect_ring(SPAWN_OUT(&s));
    spawn_expect_no_process(&s);
    spawn_free(&s);
}

static void why_names_who_waits_for_which_call_of_whom(void **state)
{
    const char *const args[] = {"--nproc-per-node", "2", self, "scene", "hang", NULL};
    const char *const why[] = {spawn_bin("trireme"), "why", NULL};
    char home[300];
    const char *const env[] = {home, NULL};
    bool told = false;
    trirun_job j;

    (void)state;
    find_self();
    trirun_start(&j, args);
    snprintf(home, sizeof(home), "XDG_RUNTIME_DIR=%s", j.home);
    for (int tries = 0; tries < 200 && !told; tries++) {
        spawn s;

        spawn_poll(&j.run, 50);
        spawn_start(&s, why, env);
        (void)spawn_wait(&s);
        told = strstr(SPAWN_OUT(&s), "worker trainer (pid ") != NULL &&
               strstr(SPAWN_OUT(&s), "waits for ps.hang of ps for ") != NULL &&
               strstr(SPAWN_OUT(&s), "called at rpc_process_test.c:") != NULL;
        if (tries == 199)
            fail_msg("%s%s", SPAWN_OUT(&s), SPAWN_ERR(&s));
        spawn_free(&s);
    }
    spawn_signal(&j.run, SIGTERM);
    (void)spawn_wait(&j.run);
    trirun_end(&j, 1); /* of a job that was stopped */
}

/* Its ranks have made no call of a group. */
static void why_tells_a_dead_worker_from_one_that_never_called(void **state)
{
    const char *const args[] = {"--nproc-per-node", "2", self, "scene", "die", NULL};
    const char *const why[] = {spawn_bin("trireme"), "why", NULL};
    char home[300];
    const char *const env[] = {home, NULL};
    trirun_job j;
    spawn s;

    (void)state;
    find_self();
    trirun_start(&j, args);
    snprintf(home, sizeof(home), "XDG_RUNTIME_DIR=%s", j.home);
    assert_int_equal(spawn_wait(&j.run), 1);
    spawn_start(&s, why, env);
    (void)spawn_wait(&s);
    trirun_has(SPAWN_OUT(&s), "in its own code, as worker ps of RPC");
    spawn_free(&s);
    trirun_end(&j, 1);
}

/* Started by hand: trirun would end the other one before it has said what it knows. */
static void a_worker_that_is_killed_is_named_to_its_callers(void **state)
{
    const char *const argv[] = {self, "scene", "die", NULL};
    char port[32];
    spawn s[2];

    (void)state;
    find_self();
    snprintf(port, sizeof(port), "MASTER_PORT=%d", spawn_free_port());
    for (int r = 1; r >= 0; r--) {
        const char *const env[] = {r == 0 ? "RANK=0" : "RANK=1",
                                   port,
                                   "WORLD_SIZE=2",
                                   "MASTER_ADDR=127.0.0.1",
                                   "LOCAL_RANK",
                                   "LOCAL_WORLD_SIZE",
                                   NULL};

        spawn_start(&s[r], argv, env);
    }
    assert_int_equal(spawn_wait(&s[1]), 1);
    trirun_has(SPAWN_ERR(&s[1]), "trainer: PEER_LOST: ps.die on ps (host ");
    assert_int_equal(spawn_wait(&s[0]), -SIGKILL);
    for (int r = 0; r < 2; r++)
        spawn_free(&s[r]);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(workers_of_trirun_are_called_by_their_ranks),
    cmocka_unit_test(workers_of_tri_spawn_are_called_by_their_ranks),
    cmocka_unit_test(why_names_who_waits_for_which_call_of_whom),
    cmocka_unit_test(why_tells_a_dead_worker_from_one_that_never_called),
    cmocka_unit_test(a_worker_that_is_killed_is_named_to_its_callers),
};

int main(int argc, char **argv);
int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "scene") == 0)
        return scene(argv[2]);
    return test_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
