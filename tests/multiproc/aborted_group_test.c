/*
 * aborted_group_test.c - who is named when a rank aborts a group and the others end because of
 * that, before it: it waits for their end, and only then goes itself.
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>

#include <trireme/comm.h>

#include "testing/trirun_job.h"

/* --- workers -------------------------------------------------------------- */

static void await_end(int64_t pid)
{
    while (kill((pid_t)pid, 0) == 0)
        sched_yield();
}

/* As torchelastic's @record does. */
static void write_error(const char *message, int timestamp)
{
    const char *path = getenv("TORCHELASTIC_ERROR_FILE");
    FILE *file = path != NULL ? fopen(path, "w") : NULL;

    if (file == NULL)
        exit(9);
    fprintf(file, "{\"message\": {\"message\": \"%s\", \"extraInfo\": {\"timestamp\": \"%d\"}}}",
            message, timestamp);
    fclose(file);
}

/* Ends of what somebody else did. */
static int be_victim(tri_group *group, const char *how)
{
    float x = 1;
    tri_status status = TRI_OK;

    while (status == TRI_OK)
        status = tri_all_reduce(group, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL);
    if (strcmp(how, "silent") != 0)
        fprintf(stderr, "victim: %s\n", tri_last_error());
    if (strcmp(how, "files") == 0)
        write_error("an echo", 5);
    if (strcmp(how, "abort") == 0)
        abort();
    return 3;
}

static void leave(int signal_number)
{
    (void)signal_number;
    _exit(0);
}

/* Rank 1 of two does it. */
static int abort_world(const char *how)
{
    int64_t pids[8] = {0}, pid = getpid();

    if (strcmp(how, "unrecorded") == 0 && strcmp(getenv("RANK"), "1") == 0)
        unsetenv("TRI_RUN_DIR");
    if (strcmp(how, "norecords") == 0)
        unsetenv("TRI_RUN_DIR");
    if (tri_init(NULL) != TRI_OK ||
        tri_all_gather(NULL, &pid, pids, 1, TRI_DTYPE_I64, NULL) != TRI_OK)
        return 9;
    if (tri_rank() == 0)
        return be_victim(NULL, how);
    if (strcmp(how, "files") == 0)
        write_error("the cause", 6);
    if (strcmp(how, "stays") == 0)
        signal(SIGTERM, leave);
    tri_group_abort(NULL, "what it found");
    while (strcmp(how, "stays") == 0)
        pause();
    await_end(pids[0]);
    _exit(4);
}

/* Rank 0 aborts its group with rank 1, which then aborts the one with rank 2; they end in the
 * opposite order. */
static int abort_in_chain(void)
{
    int64_t pids[3] = {0}, pid = getpid();
    tri_group *left = NULL, *right = NULL;
    float x = 1;
    tri_status status = TRI_OK;

    if (tri_init(NULL) != TRI_OK ||
        tri_all_gather(NULL, &pid, pids, 1, TRI_DTYPE_I64, NULL) != TRI_OK ||
        tri_group_split(NULL, tri_rank() < 2 ? 0 : -1, 0, NULL, &left) < 0 ||
        tri_group_split(NULL, tri_rank() > 0 ? 0 : -1, 0, NULL, &right) < 0)
        return 9;
    if (tri_rank() == 2)
        return be_victim(right, "");
    if (tri_rank() == 0) {
        tri_group_abort(left, "what it found");
        await_end(pids[1]);
        _exit(4);
    }
    while (status == TRI_OK)
        status = tri_all_reduce(left, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL);
    tri_group_abort(right, "its other group failed");
    await_end(pids[2]);
    _exit(5);
}

/* --- tests ---------------------------------------------------------------- */

static const char *own_path(void)
{
    static char self[4096];

    if (self[0] == '\0')
        assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
    return self;
}

/* What `trireme why` says of the last job. */
static void why_has(const trirun_job *j, const char *part)
{
    char home[300];
    const char *const argv[] = {spawn_bin("trireme"), "why", NULL};
    const char *const env[] = {home, "TRI_RUN_DIR", NULL};
    spawn s;

    snprintf(home, sizeof(home), "XDG_RUNTIME_DIR=%s", j->home);
    spawn_start(&s, argv, env);
    assert_int_equal(spawn_wait(&s), 0);
    trirun_has(SPAWN_OUT(&s), part);
    spawn_free(&s);
}

static void event_has(const trirun_job *j, const char *part)
{
    const char *event = strstr(SPAWN_OUT(&j->run), "\"event\": \"failure\"");

    assert_non_null(event);
    trirun_has(event, part);
}

static void run(trirun_job *j, const char *how, const char *n, const char *extra)
{
    const char *const args[] = {"--events=/dev/stdout", n, own_path(), "--worker", how, NULL};

    trirun_start_behind(j, NULL, args, extra);
    assert_int_equal(spawn_wait(&j->run), 1);
}

static void the_rank_that_aborted_the_group_is_the_cause(void **state)
{
    static const char *const engines[] = {"TRI_ENGINE=shm", "TRI_ENGINE=tcp"};
    static const char *const how[] = {"plain", "silent", "abort", "stays", "unrecorded"};
    trirun_job j;

    (void)state;
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 5; k++) {
            run(&j, how[k], "--nproc-per-node=2", engines[i]);
            if (strstr(SPAWN_ERR(&j.run), "failed: rank 1 ") == NULL ||
                strstr(SPAWN_ERR(&j.run), "rank     : 1 (local_rank: 1)") == NULL)
                fail_msg("%s, %s: %s", engines[i], how[k], SPAWN_ERR(&j.run));
            trirun_has(SPAWN_ERR(&j.run), "  reason   : rank 1 aborted the group: what it found");
            if (strcmp(how[k], "stays") == 0) { /* others may have ended when trirun looks */
                trirun_has(SPAWN_ERR(&j.run),
                           " after rank 1 aborted the group; stopping the other");
                trirun_has(SPAWN_ERR(&j.run), "failed: rank 1 aborted the group\n");
            }
            event_has(&j, "\"rank\": 1,");
            why_has(&j, "\nrank 1 (pid ");
            why_has(&j, ": the first failure; it was");
            trirun_end(&j, 1);
        }
    }
}

static void without_any_record_what_ranks_print_tells_it(void **state)
{
    trirun_job j;

    (void)state;
    run(&j, "norecords", "--nproc-per-node=2", NULL);
    trirun_has(SPAWN_ERR(&j.run), "failed: rank 1 ");
    trirun_end(&j, 1);
}

static void the_rank_that_aborted_the_first_of_several_groups_is_the_cause(void **state)
{
    trirun_job j;

    (void)state;
    run(&j, "chain", "--nproc-per-node=3", NULL);
    trirun_has(SPAWN_ERR(&j.run), "failed: rank 0 ");
    trirun_has(SPAWN_ERR(&j.run), "  reason   : rank 0 aborted the group: what it found");
    event_has(&j, "\"rank\": 0,");
    why_has(&j, "\nrank 0 (pid ");
    why_has(&j, ": the first failure; it was");
    trirun_end(&j, 1);
}

/* The victim wrote its own first. */
static void the_error_file_of_who_aborted_the_group_is_handed_on(void **state)
{
    char folder[256], variable[320], path[300], text[512] = "";
    trirun_job j;
    FILE *file;

    (void)state;
    spawn_make_folder(folder, sizeof(folder));
    snprintf(path, sizeof(path), "%s/error.json", folder);
    snprintf(variable, sizeof(variable), "TORCHELASTIC_ERROR_FILE=%s", path);
    run(&j, "files", "--nproc-per-node=2", variable);
    trirun_has(SPAWN_ERR(&j.run), "failed: rank 1 ");
    trirun_has(SPAWN_ERR(&j.run), "  message  : the cause\n");
    file = fopen(path, "r");
    assert_non_null(file);
    assert_true(fread(text, 1, sizeof(text) - 1, file) > 0);
    fclose(file);
    trirun_has(text, "the cause");
    trirun_end(&j, 1);
    spawn_remove_folder(folder);
}

/* Both agents name it: that of its victim, which is the first to see an end, and its own. */
static void the_rank_that_aborted_the_group_on_another_host_is_named(void **state)
{
    char port[40], rank[40];
    trirun_job j[2];

    (void)state;
    snprintf(port, sizeof(port), "--master-port=%d", spawn_free_port());
    for (int i = 0; i < 2; i++) {
        const char *const args[] = {"--nnodes=2",
                                    rank,
                                    port,
                                    "--master-addr=127.0.0.1",
                                    "--rdzv-conf=timeout=20",
                                    own_path(),
                                    "--worker",
                                    "two",
                                    NULL};

        snprintf(rank, sizeof(rank), "--node-rank=%d", i);
        trirun_start(&j[i], args);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(spawn_wait(&j[i].run), 1);
        trirun_has(SPAWN_ERR(&j[i].run), "rank 1 ");
        if (strstr(SPAWN_ERR(&j[i].run), "failed: rank 1 ") == NULL &&
            strstr(SPAWN_ERR(&j[i].run), "rank 1 on host ") == NULL &&
            strstr(SPAWN_ERR(&j[i].run), " after rank 1 aborted the group\n") == NULL)
            fail_msg("agent %d: %s", i, SPAWN_ERR(&j[i].run));
        spawn_expect_no_process(&j[i].run);
    }
    for (int i = 0; i < 2; i++) {
        spawn_free(&j[i].run);
        spawn_remove_folder(j[i].home);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_rank_that_aborted_the_group_is_the_cause),
    cmocka_unit_test(without_any_record_what_ranks_print_tells_it),
    cmocka_unit_test(the_rank_that_aborted_the_first_of_several_groups_is_the_cause),
    cmocka_unit_test(the_error_file_of_who_aborted_the_group_is_handed_on),
    cmocka_unit_test(the_rank_that_aborted_the_group_on_another_host_is_named),
};

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "--worker") == 0)
        return strcmp(argv[2], "chain") == 0 ? abort_in_chain() : abort_world(argv[2]);
    return test_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
