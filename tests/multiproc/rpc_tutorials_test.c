/*
 * rpc_tutorials_test.c - those of examples/tutorials/ whose workers call each other: alone, under
 * trirun, and with a worker less.
 * ctest: start=first timeout=150
 */
#include <signal.h>
#include <stdlib.h>

#include "testing/check.h"
#include "testing/spawn.h"
#include "testing/trirun_job.h"

enum { DEADLINE_MS = 120000 };

/* The number after the text's last occurrence. */
static double last_number(const char *out, const char *text)
{
    const char *at = NULL;

    for (const char *next = out; (next = strstr(next, text)) != NULL; next++)
        at = next;
    if (at == NULL)
        fail_msg("no \"%s\" in:\n%s", text, out);
    return strtod(at + strlen(text), NULL);
}

/* However its three processes are started, and whichever observer asks first, the agent sees and
 * decides the same. */
static void an_agent_learns_from_observers(void **state)
{
    const char *const episodes = TEST_SANITIZED ? "--episodes=10" : "--episodes=60";
    char first[4096];
    trirun_job j;
    spawn s;

    (void)state;
    spawn_start(&s, (const char *const[]){spawn_bin("rpc_rl"), "--world-size=3", episodes, NULL},
                NULL);
    spawn_succeeds(&s, DEADLINE_MS);
    if (TEST_SANITIZED) { /* a sanitizer's run need not train to the end */
        assert_int_equal(trirun_count(SPAWN_OUT(&s), "\tLast reward: "), 1);
        trirun_has(SPAWN_OUT(&s), "Episode 10\t");
    } else {
        assert_int_equal(trirun_count(SPAWN_OUT(&s), "\tLast reward: "), 6);
        trirun_has(SPAWN_OUT(&s), "Episode 60\t");
        /* of the worse of two; a policy that learns nothing stays at 10 to 20 */
        assert_true(last_number(SPAWN_OUT(&s), "Average reward: ") > 30);
    }
    snprintf(first, sizeof(first), "%s", SPAWN_OUT(&s));
    spawn_free(&s);
    TRIRUN_START(&j, "--standalone", "--nproc_per_node=3", spawn_bin("rpc_rl"), episodes);
    spawn_succeeds(&j.run, DEADLINE_MS);
    assert_string_equal(SPAWN_OUT(&j.run), first);
    trirun_end(&j, 0);
}

/* Together or alone, the same decisions. */
static void an_agent_decides_for_two_observers_together(void **state)
{
    char half[1024];
    const char *second;
    spawn s;

    (void)state;
    spawn_start(&s, (const char *const[]){spawn_bin("rpc_batch_rl"), "3", "2", NULL}, NULL);
    spawn_succeeds(&s, DEADLINE_MS);
    second = strstr(SPAWN_OUT(&s) + 1, "Episode 0\tLast reward: ");
    assert_non_null(second);
    snprintf(half, sizeof(half), "%.*s", (int)(second - SPAWN_OUT(&s)), SPAWN_OUT(&s));
    assert_int_equal(strncmp(second, half, strlen(half)), 0);
    assert_int_equal(trirun_count(half, "Average reward: "), 2);
    assert_int_equal(strncmp(second + strlen(half), "3, ", 3), 0);
    spawn_free(&s);
}

static void a_server_updates_once_for_all_trainers(void **state)
{
    trirun_job j;
    const char *out;

    (void)state;
    TRIRUN_START(&j, "--standalone", "--nproc_per_node=3", spawn_bin("rpc_batch_ps"), "2", "3",
                 "4");
    spawn_succeeds(&j.run, DEADLINE_MS);
    out = SPAWN_OUT(&j.run);
    assert_int_equal(trirun_count(out, " PS got 0/2 updates\n"), 3);
    assert_int_equal(trirun_count(out, " PS got 1/2 updates\n"), 3);
    assert_int_equal(trirun_count(out, " PS updated model\n"), 3);
    assert_int_equal(trirun_count(out, " trainer1 processing one batch\n"), 3);
    assert_int_equal(trirun_count(out, " trainer2 reporting grads\n"), 3);
    assert_int_equal(trirun_count(out, " trainer2 got updated model\n"), 3);
    assert_int_equal(trirun_count(out, " Start training\n"), 1);
    assert_int_equal(trirun_count(out, " Finish training\n"), 1);
    assert_int_equal(trirun_count(out, "\n"), 9 * 3 + 2);
    trirun_end(&j, 0);
}

/* By hand, as a launcher may end all of them. Their records lie in the folder; NULL = nowhere. */
static void start_ranks(spawn *s, int world, const char *const *argv, const char *folder)
{
    char port[32], size[32], run_dir[300];

    snprintf(port, sizeof(port), "MASTER_PORT=%d", spawn_free_port());
    snprintf(size, sizeof(size), "WORLD_SIZE=%d", world);
    snprintf(run_dir, sizeof(run_dir), "TRI_RUN_DIR%s%s", folder != NULL ? "=" : "",
             folder != NULL ? folder : "");
    for (int r = 0; r < world; r++) {
        char rank[16];
        const char *const env[] = {rank,
                                   size,
                                   "MASTER_ADDR=127.0.0.1",
                                   port,
                                   "TRI_NUM_THREADS=1",
                                   run_dir,
                                   "TRI_LOG=rpc:debug",
                                   NULL};

        snprintf(rank, sizeof(rank), "RANK=%d", r);
        spawn_start(&s[r], argv, env);
    }
}

/* The server, s[0], and the trainers. */
static void start_server(spawn *s, int world)
{
    start_ranks(s, world, (const char *const[]){spawn_bin("rpc_batch_ps"), "3", "4096", "1", NULL},
                NULL);
}

static void server_ends(spawn *s, int world, const char *lost)
{
    if (spawn_wait(&s[0]) != 0)
        fail_msg("status %d\n%s%s", s[0].status, SPAWN_OUT(&s[0]), SPAWN_ERR(&s[0]));
    trirun_has(SPAWN_OUT(&s[0]), " Finish training\n");
    trirun_has(SPAWN_OUT(&s[0]), lost);
    for (int r = 0; r < world; r++)
        spawn_free(&s[r]);
}

/* Trainers are killed one after the other, and the server waits for those that are left. */
static void a_server_goes_on_without_its_trainers(void **state)
{
    spawn s[4];

    (void)state;
    start_server(s, 4);
    spawn_expect(&s[2], "trainer2 got updated model\n");
    spawn_signal(&s[2], SIGKILL);
    spawn_expect(&s[0], " trainer2 (host ");
    spawn_expect(&s[0], " PS got 1/2 updates\n");
    spawn_signal(&s[1], SIGKILL);
    spawn_expect(&s[0], " PS got 0/1 updates\n");
    spawn_signal(&s[3], SIGKILL);
    server_ends(s, 4, " 3 of 3 trainers were lost\n");
}

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);

    return n >= m && strcmp(text + n - m, end) == 0;
}

/* A trainer whose gradients wait for those of another one is killed, then that one is. */
static void a_server_ends_when_it_keeps_gradients_of_lost_trainers(void **state)
{
    spawn s[3];

    (void)state;
    start_server(s, 3);
    spawn_expect(&s[0], "PS updated model\n");
    spawn_signal(&s[1], SIGSTOP);
    while (!ends_with(SPAWN_OUT(&s[2]), "trainer2 reporting grads\n") ||
           !ends_with(SPAWN_OUT(&s[0]), "PS got 0/2 updates\n")) {
        spawn_poll(&s[2], 20);
        spawn_poll(&s[0], 20);
    }
    spawn_signal(&s[2], SIGKILL);
    spawn_expect(&s[0], " trainer2 (host ");
    spawn_signal(&s[1], SIGKILL);
    server_ends(s, 3, " 2 of 2 trainers were lost\n");
}

/* Until a worker waits for a call of the function, by its record. */
static void wait_until_recorded(const char *folder, const char *function)
{
    for (int tries = 0;; tries++) {
        spawn why;
        bool is;

        spawn_start(&why, (const char *const[]){spawn_bin("trireme"), "why", folder, NULL}, NULL);
        (void)spawn_wait(&why);
        is = strstr(SPAWN_OUT(&why), function) != NULL;
        if (!is && tries == 500)
            fail_msg("no \"%s\" in: %s%s", function, SPAWN_OUT(&why), SPAWN_ERR(&why));
        spawn_read(&why, is ? 0 : 20);
        spawn_free(&why);
        if (is)
            return;
    }
}

/* The first one waits for a decision then, which is not made without the state of the second. */
static void an_agent_ends_when_it_loses_an_observer(void **state)
{
    char folder[256];
    spawn s[3];

    (void)state;
    spawn_make_folder(folder, sizeof(folder));
    start_ranks(s, 3, (const char *const[]){spawn_bin("rpc_batch_rl"), "3", "100000", NULL},
                folder);
    spawn_expect(&s[0], "observer2 (host "); /* it is connected */
    spawn_signal(&s[2], SIGSTOP);
    wait_until_recorded(folder, " waits for Observer.run_episode of observer1 ");
    spawn_signal(&s[2], SIGKILL);
    assert_int_equal(spawn_wait(&s[0]), 1);
    trirun_has(SPAWN_ERR(&s[0]), "PEER_LOST: Observer.run_episode on observer2 (host ");
    for (int r = 0; r < 3; r++)
        spawn_free(&s[r]);
    spawn_remove_folder(folder);
}

/* The help, and what is not understood. */
static void rpc_tutorials_say_how_they_are_called(void **state)
{
    static const char *const programs[] = {"rpc_rl", "rpc_batch_ps", "rpc_batch_rl"};
    static const char *const cases[][5] = {
        {"rpc_rl", "--world-size=1"},   {"rpc_rl", "--episodes"}, {"rpc_rl", "fast"},
        {"rpc_batch_ps", "both"},       {"rpc_batch_ps", "0"},    {"rpc_batch_rl", "2x"},
        {"rpc_batch_rl", "2", "1", "1"}};

    (void)state;
    for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++) {
        spawn s;

        spawn_start(&s, (const char *const[]){spawn_bin(programs[i]), "--help", NULL}, NULL);
        assert_int_equal(spawn_wait(&s), 0);
        assert_string_equal(SPAWN_ERR(&s), "");
        trirun_has(SPAWN_OUT(&s), "usage: ");
        spawn_free(&s);
    }
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *program = spawn_bin(cases[i][0]);
        spawn s;

        spawn_start(&s, (const char *const[]){program, cases[i][1], cases[i][2], cases[i][3], NULL},
                    NULL);
        if (spawn_wait(&s) != 2)
            fail_msg("%s %s: %d: %s", program, cases[i][1], s.status, SPAWN_ERR(&s));
        assert_string_equal(SPAWN_OUT(&s), "");
        trirun_has(SPAWN_ERR(&s), " (--help lists the options)\n");
        spawn_free(&s);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(an_agent_learns_from_observers),
    cmocka_unit_test(an_agent_decides_for_two_observers_together),
    cmocka_unit_test(an_agent_ends_when_it_loses_an_observer),
    cmocka_unit_test(a_server_updates_once_for_all_trainers),
    cmocka_unit_test(a_server_goes_on_without_its_trainers),
    cmocka_unit_test(a_server_ends_when_it_keeps_gradients_of_lost_trainers),
    cmocka_unit_test(rpc_tutorials_say_how_they_are_called),
};

TEST_MAIN(tests)
