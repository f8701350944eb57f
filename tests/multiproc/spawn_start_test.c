/*
 * spawn_start_test.c - tri_spawn in programs that are not as usual: standard descriptors closed,
 * settings read from standard input first, the program's file gone, few descriptors, no /proc. This
 * program is also the worker: with arguments it runs a scene.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <trireme/comm.h>

#include "testing/launcher_job.h"

static tri_status sum(int rank, void *arg)
{
    float x = 1;
    tri_status status = tri_init(NULL);

    (void)rank;
    (void)arg;
    if (status == TRI_OK)
        status = tri_all_reduce(NULL, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL);
    tri_finalize();
    return status == TRI_OK && (int)x != 2 ? TRI_ERR_INTERNAL : status;
}

static tri_status joins(int rank, void *arg)
{
    (void)rank;
    (void)arg;
    return tri_init(NULL);
}

/* What TRI_TRY does to the rank with the fault, and to those that lose it. */
static tri_status second_fails_and_exits(int rank, void *arg)
{
    tri_store *store;
    float x = 1;

    (void)arg;
    TRI_TRY(tri_init(NULL));
    if (rank == 1)
        TRI_TRY(tri_store_tcp("127.0.0.1", 70000, NULL, &store));
    TRI_TRY(tri_all_reduce(NULL, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL));
    return TRI_OK;
}

/* Memory that only its descriptor holds: its end takes the process longer than its peers' takes. */
static void grow_old(void)
{
    static char page[1 << 20];
    int fd = memfd_create("slow to close", MFD_CLOEXEC);

    memset(page, 1, sizeof(page));
    for (int i = 0; fd >= 0 && i < 96; i++) {
        if (write(fd, page, sizeof(page)) < 0)
            return;
    }
}

static tri_status finds_no_input(int rank, void *arg)
{
    (void)rank;
    (void)arg;
    return getchar() == EOF ? TRI_OK : TRI_ERR_INTERNAL;
}

/* Without a word; the others lose it. */
static tri_status second_leaves_at_once(int rank, void *arg)
{
    float x = 1;

    (void)arg;
    TRI_TRY(tri_init(NULL));
    if (rank == 1) {
        grow_old();
        _exit(7);
    }
    TRI_TRY(tri_all_reduce(NULL, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL));
    return TRI_OK;
}

/* As programs do that close what they do not know: numbers are taken again, by the library too. */
static tri_status closes_all_and_sums(int rank, void *arg)
{
    for (int fd = 3; fd < 100; fd++)
        close(fd);
    return sum(rank, arg);
}

/* Lines in a pipe are in no buffer when the worker is killed. */
static tri_status prints_and_is_killed(int rank, void *arg)
{
    tri_status status = tri_init(NULL);

    (void)arg;
    printf("line of rank %d\n", rank);
    if (status == TRI_OK) /* else rank 0 might be ended, as rank 1's peer, before it has printed */
        status = tri_barrier(NULL, NULL);
    if (status == TRI_OK && rank == 1)
        (void)raise(SIGKILL);
    return status;
}

static tri_status second_exits(int rank, void *arg)
{
    (void)arg;
    if (rank == 1)
        exit(7);
    return tri_init(NULL);
}

static int show(tri_status status, const char *file)
{
    FILE *out = fopen(file, "w");

    if (out == NULL)
        return 9;
    fprintf(out, "%s: %s\n", tri_status_name(status), status == TRI_OK ? "" : tri_last_error());
    return fclose(out) != 0 || status != TRI_OK;
}

/* argv: NAME HOW FILE; the outcome goes to FILE, since standard output may be closed. */
static int scene(char **argv)
{
    const tri_spawn_options options = {.how = strcmp(argv[2], "anew") == 0   ? TRI_SPAWN_ANEW
                                              : strcmp(argv[2], "auto") == 0 ? TRI_SPAWN_AUTO
                                                                             : TRI_SPAWN_COPY};
    const struct rlimit few = {64, 64};
    char line[16] = "";

    if (strncmp(argv[1], "reads", 5) == 0 && fgets(line, sizeof(line), stdin) == NULL &&
        getenv("TRIREME_SPAWN") == NULL)
        return 8;
    if (strcmp(argv[1], "closes") == 0)
        close(0);
    if (strcmp(argv[1], "gone") == 0 && getenv("TRIREME_SPAWN") == NULL && unlink(argv[0]) != 0)
        return 8;
    if (strcmp(argv[1], "few") == 0 && setrlimit(RLIMIT_NOFILE, &few) != 0)
        return 8;
    if (strcmp(argv[1], "reads on") == 0)
        return show(tri_spawn(finds_no_input, NULL, 2, &options), argv[3]);
    if (strcmp(argv[1], "fails") == 0)
        return show(tri_spawn(second_fails_and_exits, NULL, 3, &options), argv[3]);
    if (strcmp(argv[1], "closes all") == 0)
        return show(tri_spawn(closes_all_and_sums, NULL, 2, &options), argv[3]);
    if (strcmp(argv[1], "killed") == 0)
        return show(tri_spawn(prints_and_is_killed, NULL, 2, &options), argv[3]);
    if (strcmp(argv[1], "leaves") == 0)
        return show(tri_spawn(second_leaves_at_once, NULL, 3, &options), argv[3]);
    if (strcmp(argv[1], "exits") == 0)
        return show(tri_spawn(second_exits, NULL, 3, &options), argv[3]);
    if (strcmp(argv[1], "few") == 0)
        return show(tri_spawn(joins, NULL, 20, &options), argv[3]);
    return show(tri_spawn(sum, NULL, 2, &options), argv[3]);
}

/* Runs `"$0" NAME HOW FILE`, $0 being this program, with what the shell adds: its status, and what
 * is in the file. */
static int run_scene(const char *name, const char *how, const char *prepared, char *said,
                     size_t bytes)
{
    char folder[200], command[600], self[4096] = "";
    const char *argv[] = {"/bin/sh", "-c", command, self, folder, NULL};
    const char *env[] = {"RANK", "WORLD_SIZE", "TRI_RUN_DIR", NULL};
    FILE *file;
    spawn s;
    int status;

    spawn_make_folder(folder, sizeof(folder));
    assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
    snprintf(command, sizeof(command), "%s %s %s \"$1/said\" %s", name[0] == '+' ? "" : "\"$0\"",
             name + (name[0] == '+'), how, prepared);
    spawn_start(&s, argv, env);
    status = spawn_wait(&s);
    snprintf(command, sizeof(command), "%s/said", folder);
    file = fopen(command, "r");
    said[0] = '\0';
    if (file != NULL) {
        said[fread(said, 1, bytes - 1, file)] = '\0';
        fclose(file);
    }
    spawn_expect_no_process(&s);
    spawn_free(&s);
    spawn_remove_folder(folder);
    return status;
}

static void closed_standard_descriptors_do_no_harm(void **state)
{
    static const char *const closed[] = {"",     "<&-",      ">&-",      "<&- >&-",
                                         "2>&-", "<&- 2>&-", ">&- 2>&-", "<&- >&- 2>&-"};
    static const char *const hows[] = {"copy", "anew"};
    char said[700];

    (void)state;
    for (int i = 0; i < 16; i++) {
        assert_int_equal(run_scene("sums", hows[i % 2], closed[i / 2], said, sizeof(said)), 0);
        assert_string_equal(said, "OK: \n");
    }
}

static void the_standard_input_of_workers_is_empty_from_their_start_on(void **state)
{
    static const char *const hows[] = {"copy", "anew"};
    char said[700];

    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(run_scene("+echo 12 | \"$0\" reads", hows[i], "", said, sizeof(said)), 0);
        assert_string_equal(said, "OK: \n");
        /* the program has read more than it has used */
        assert_int_equal(run_scene("+printf '12\\n34\\n' | \"$0\" \"reads on\"", hows[i], "", said,
                                   sizeof(said)),
                         0);
        assert_string_equal(said, "OK: \n");
        assert_int_equal(run_scene("closes", hows[i], "", said, sizeof(said)), 0);
        assert_string_equal(said, "OK: \n");
    }
}

static void workers_start_anew_when_the_programs_file_is_gone(void **state)
{
    char said[700];

    (void)state;
    assert_int_equal(run_scene("+cp \"$0\" \"$1/spawn_start_test\"; \"$1/spawn_start_test\" gone",
                               "anew", "", said, sizeof(said)),
                     0);
    assert_string_equal(said, "OK: \n");
}

/* The store would close the connections of some, which would wait for the time-out. */
static void too_few_descriptors_are_an_error_before_workers_start(void **state)
{
    char said[700];

    (void)state;
    assert_int_equal(run_scene("few", "copy", "", said, sizeof(said)), 1);
    assert_has(said, "STATE: tri_spawn with 20 workers needs ");
    assert_has(said, "ulimit -n");
}

static void a_cause_that_calls_exit_is_told_with_its_line(void **state)
{
    char said[700];

    (void)state;
    for (int i = 0; i < 5; i++) {
        assert_int_equal(
            run_scene("fails", i % 2 ? "anew" : "copy", "2>/dev/null", said, sizeof(said)), 1);
        assert_has(said, "PEER_LOST: rank 1 exited with code 1; its last error: store_tcp: host "
                         "127.0.0.1 port 70000");
    }
    for (int i = 0; i < 5; i++) {
        assert_int_equal(run_scene("leaves", "copy", "2>/dev/null", said, sizeof(said)), 1);
        assert_string_equal(said, "PEER_LOST: rank 1 exited with code 7\n");
    }
    assert_int_equal(run_scene("exits", "copy", "", said, sizeof(said)), 1);
    assert_string_equal(said, "PEER_LOST: rank 1 exited with code 7\n");
}

static void a_worker_may_close_what_it_does_not_know(void **state)
{
    char said[700];

    (void)state;
    assert_int_equal(run_scene("\"closes all\"", "copy", "", said, sizeof(said)), 0);
    assert_string_equal(said, "OK: \n");
}

static void lines_of_a_worker_that_is_killed_are_not_lost(void **state)
{
    char said[700];

    (void)state;
    assert_int_equal(run_scene("killed", "copy",
                               "| grep -c line >\"$1/n\"; test \"$(cat \"$1/n\")\" = 2", said,
                               sizeof(said)),
                     0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_worker_may_close_what_it_does_not_know),
    cmocka_unit_test(lines_of_a_worker_that_is_killed_are_not_lost),
    cmocka_unit_test(closed_standard_descriptors_do_no_harm),
    cmocka_unit_test(the_standard_input_of_workers_is_empty_from_their_start_on),
    cmocka_unit_test(workers_start_anew_when_the_programs_file_is_gone),
    cmocka_unit_test(too_few_descriptors_are_an_error_before_workers_start),
    cmocka_unit_test(a_cause_that_calls_exit_is_told_with_its_line),
};

int main(int argc, char **argv)
{
    if (argc == 4)
        return scene(argv);
    return test_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
