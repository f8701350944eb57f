/*
 * why_test.c - `trireme why` names the cause: a rank that never calls, calls in another order, a
 * killed rank, a stopped one, receives that wait for each other. The tool is run by a rank of the
 * very job that it looks at.
 */
#include <dirent.h>
#include <sys/stat.h>

#include "group/watch/flight_recorder.h"
#include "testing/check.h"
#include "testing/ranks.h"
#include "testing/spawn.h"

#define TEXT_BYTES 8192
/* A case starts the tool again and again: on a machine that is busy each start takes long. */
#define PATIENCE_S 50

static char folder[256];

static int make_folder(void **state)
{
    (void)state;
    spawn_make_folder(folder, sizeof(folder));
    return setenv("TRI_RUN_DIR", folder, 1);
}

static int remove_folder(void **state)
{
    (void)state;
    unsetenv("TRI_RUN_DIR");
    spawn_remove_folder(folder);
    return 0;
}

/* What the tool prints of the job; "" if it failed. */
static void why(const char *option, char *text)
{
    const char *argv[] = {spawn_bin("trireme"), "why", folder, option, NULL};
    spawn s;

    spawn_start(&s, argv, NULL);
    snprintf(text, TEXT_BYTES, "%s", spawn_wait(&s) == 0 ? SPAWN_OUT(&s) : "");
    spawn_free(&s);
}

/* Asks again until the tool says this: the other ranks are on their way into their calls. The
 * watchdog of run_processes ends it. */
static void why_until(const char *part, char *text)
{
    do
        why(NULL, text);
    while (strstr(text, part) == NULL);
}

static int lines_of(const char *text)
{
    int n = 0;

    for (; *text != '\0'; text++)
        n += *text == '\n';
    return n;
}

#define RANK_SAYS(env, text, part)                                                                 \
    do {                                                                                           \
        if (strstr(text, part) == NULL)                                                            \
            return RANK_FAIL(env, "line %d: no \"%s\" in:\n%.800s", __LINE__, part, text);         \
    } while (0)

static tri_status form(rank_env *env, tri_group **group_out)
{
    return tri_group_create(env->store, env->rank, env->size, env->options, group_out);
}

/* --- a rank that never calls ---------------------------------------------- */

enum { CALL_LINE = __LINE__ + 4 }; /* of the one below */

static tri_status call_in_line(tri_group *group, float *x)
{
    return tri_all_reduce(group, x, x, 100, TRI_DTYPE_F32, TRI_REDOP_MAX, NULL);
}

static const char *rank_1_does_not_call(rank_env *env)
{
    char text[TEXT_BYTES];
    tri_group *group = NULL;
    float x[100] = {0};
    char line[40];

    RANK_TRY(env, form(env, &group));
    RANK_TRY(env, tri_barrier(group, NULL));
    if (env->rank == 1) {
        why_until(", for rank 1, which is in its own code", text); /* and no more in the barrier */
        RANK_SAYS(env, text, "ranks 0, 2 wait");
        RANK_SAYS(env, text, "3 ranks on ");
        RANK_SAYS(env, text, ": 3 running");
        RANK_SAYS(env, text, "in group hanging, all_reduce #2 of 100 f32, max (why_test.c:");
        snprintf(line, sizeof(line), "(why_test.c:%d)", CALL_LINE);
        RANK_SAYS(env, text, line);
        RANK_SAYS(env, text,
                  ", for rank 1, which is in its own code after barrier #1 (why_test.c:");
        snprintf(line, sizeof(line), " (rank 1: pid %d)\n", (int)getpid());
        RANK_SAYS(env, text, line);
        if (lines_of(text) != 2)
            return RANK_FAIL(env, "more than a head and a finding:\n%s", text);
        why("--json", text);
        RANK_SAYS(env, text, "\"kind\": \"missing\"");
        RANK_SAYS(env, text, "\"for\": [\n    1\n   ]");
        RANK_SAYS(env, text, "\"verdict\": \"ranks 0, 2 wait");
    }
    RANK_TRY(env, call_in_line(group, x));
    if (env->rank == 1) {
        why_until("no rank waits for another", text);
        RANK_TRY(env, tri_store_set(env->store, "seen", "", 0));
    }
    RANK_TRY(env, tri_store_wait(env->store, (const char *const[]){"seen"}, 1, 0));
    tri_group_unref(group);
    return NULL;
}

static void a_rank_that_never_calls_is_named(void **state)
{
    for (int shm = 0; shm < 2; shm++) {
        tri_group_options options = {
            .engine = shm ? "shm" : "tcp", .timeout_ms = PATIENCE_S * 1000, .name = "hanging"};

        (void)state;
        run_processes(3, &options, rank_1_does_not_call, NULL, NULL, PATIENCE_S);
    }
}

/* --- calls in another order ----------------------------------------------- */

static const char *order_differs(rank_env *env)
{
    char text[TEXT_BYTES];
    tri_group *group = NULL;
    float x[5] = {0};

    RANK_TRY(env, form(env, &group));
    if (env->rank == 0)
        RANK_FAILS(env, tri_all_reduce(group, x, x, 5, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL),
                   TRI_ERR_MISMATCH, "");
    else
        RANK_FAILS(env, tri_broadcast(group, x, 3, TRI_DTYPE_F32, 1, NULL), TRI_ERR_MISMATCH, "");
    if (env->rank == 0) {
        why_until("rank 1 made", text);
        RANK_SAYS(env, text,
                  "group world: call #1 differs: rank 0 made all_reduce #1 of 5 f32, sum "
                  "(why_test.c:");
        RANK_SAYS(env, text, ", rank 1 made broadcast #1 of 3 f32 from rank 1 (why_test.c:");
        RANK_TRY(env, tri_store_set(env->store, "seen", "", 0));
    }
    RANK_TRY(env, tri_store_wait(env->store, (const char *const[]){"seen"}, 1, 0));
    tri_group_unref(group);
    return NULL;
}

static void both_calls_of_a_mismatch_are_shown(void **state)
{
    tri_group_options options = {.engine = "shm", .timeout_ms = PATIENCE_S * 1000, .name = "world"};

    (void)state;
    run_processes(2, &options, order_differs, NULL, NULL, PATIENCE_S);
}

/* --- a killed rank -------------------------------------------------------- */

static const char *rank_2_is_killed(rank_env *env)
{
    char text[TEXT_BYTES];
    tri_group *group = NULL;
    float x[5] = {0};

    RANK_TRY(env, form(env, &group));
    RANK_TRY(env, tri_all_reduce(group, x, x, 5, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL));
    RANK_TRY(env, ranks_meet(env, "through", -1));
    if (env->rank == 2)
        (void)raise(SIGKILL);
    RANK_FAILS(env, tri_barrier(group, NULL), TRI_ERR_PEER_LOST, "rank 2");
    if (env->rank == 0) {
        why_until("is dead", text);
        RANK_SAYS(env, text, ": 2 running, 1 dead");
        RANK_SAYS(env, text, "rank 2 (pid ");
        RANK_SAYS(env, text,
                  ") is dead: it was killed, crashed or exited in its own code after all_reduce #1 "
                  "of 5 f32, sum (why_test.c:");
        RANK_SAYS(env, text, "failed: PEER_LOST: ");
        if (strstr(text, "rank 2 (pid") > strstr(text, "PEER_LOST"))
            return RANK_FAIL(env, "the cause is not the first line:\n%s", text);
        RANK_TRY(env, tri_store_set(env->store, "seen", "", 0));
    }
    RANK_TRY(env, tri_store_wait(env->store, (const char *const[]){"seen"}, 1, 0));
    tri_group_unref(group);
    return NULL;
}

static void a_killed_rank_is_the_first_line(void **state)
{
    tri_group_options options = {.engine = "shm", .timeout_ms = PATIENCE_S * 1000};
    rank_end ends[] = {{0}, {0}, {.signal = SIGKILL}};

    (void)state;
    run_processes(3, &options, rank_2_is_killed, NULL, ends, PATIENCE_S);
}

/* --- a stopped rank ------------------------------------------------------- */

static const char *rank_1_is_stopped(rank_env *env)
{
    char text[TEXT_BYTES];
    tri_group *group = NULL;
    float x[5] = {0};

    RANK_TRY(env, form(env, &group));
    if (env->rank == 1) {
        snprintf(text, sizeof(text), "%d", (int)getpid());
        RANK_TRY(env, tri_store_set(env->store, "pid", text, strlen(text)));
        (void)raise(SIGSTOP);
    }
    if (env->rank == 2) {
        char *pid = NULL;

        RANK_TRY(env, tri_store_get(env->store, "pid", 0, (void **)&pid, NULL));
        why_until("rank 0 waits", text);
        why_until("1 stopped", text);
        RANK_SAYS(env, text, "is stopped (a signal or a debugger) before its first call");
        RANK_SAYS(env, text, ", all_reduce #1 of 5 f32, sum (why_test.c:");
        RANK_SAYS(env, text, "for ranks 1, 2 (stopped)");
        kill((pid_t)strtol(pid, NULL, 10), SIGCONT);
        tri_store_free(pid);
    }
    RANK_TRY(env, tri_all_reduce(group, x, x, 5, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL));
    tri_group_unref(group);
    return NULL;
}

static void a_stopped_rank_is_told_from_a_dead_one(void **state)
{
    tri_group_options options = {.engine = "shm", .timeout_ms = PATIENCE_S * 1000};

    (void)state;
    run_processes(3, &options, rank_1_is_stopped, NULL, NULL, PATIENCE_S);
}

/* --- receives that wait for each other ------------------------------------ */

static const char *both_receive(rank_env *env)
{
    char text[TEXT_BYTES];
    tri_group *group = NULL;
    tri_work *work = NULL;
    double x[2] = {0};
    int peer = 1 - env->rank;

    RANK_TRY(env, form(env, &group));
    RANK_TRY(env, tri_recv(group, x, 2, TRI_DTYPE_F64, peer, 77, &work));
    if (env->rank == 0) {
        why_until("rank 1 waits", text);
        RANK_SAYS(env, text, "rank 0 waits");
        RANK_SAYS(env, text, "recv #1 of 2 f64 from rank 1, tag 77 (why_test.c:");
        RANK_SAYS(env, text, "for rank 1, which is in recv #1 of 2 f64 from rank 0, tag 77");
    }
    if (env->rank == 0)
        RANK_TRY(env, tri_store_set(env->store, "seen", "", 0));
    RANK_TRY(env, tri_store_wait(env->store, (const char *const[]){"seen"}, 1, 0));
    RANK_TRY(env, tri_send(group, (const double[]){1, 2}, 2, TRI_DTYPE_F64, peer, 77, NULL));
    RANK_TRY(env, tri_work_wait(work, 0));
    tri_work_destroy(work);
    tri_group_unref(group);
    return NULL;
}

static void receives_that_wait_for_each_other_are_shown(void **state)
{
    tri_group_options options = {.engine = "shm", .timeout_ms = PATIENCE_S * 1000};

    (void)state;
    run_processes(2, &options, both_receive, NULL, NULL, PATIENCE_S);
}

/* --- the others form the group -------------------------------------------- */

static const char *rank_1_is_late(rank_env *env)
{
    char text[TEXT_BYTES];
    tri_group *group = NULL;

    if (env->rank == 1) {
        why_until("rank 0 forms group late of 2: not there yet: rank 1", text);
        RANK_SAYS(env, text, ": 1 running, 1 without a record");
    }
    RANK_TRY(env, form(env, &group));
    tri_group_unref(group);
    return NULL;
}

static void ranks_that_are_not_there_yet_are_named(void **state)
{
    tri_group_options options = {.engine = "shm", .timeout_ms = PATIENCE_S * 1000, .name = "late"};

    (void)state;
    run_processes(2, &options, rank_1_is_late, NULL, NULL, PATIENCE_S);
}

static tri_status join_world(rank_env *env)
{
    const tri_group_options options = {.timeout_ms = PATIENCE_S * 1000};
    char url[400];

    snprintf(url, sizeof(url), "file://%s/world?rank=%d&world_size=%d", folder, env->rank,
             env->size);
    return tri_init(&(tri_init_options){.url = url, .group = options});
}

static const char *rank_1_is_late_for_the_world(rank_env *env)
{
    char text[TEXT_BYTES];

    if (env->rank == 1) {
        why_until("ranks 0, 2 form group world of 3 (in tri_init): not there yet: rank 1 ", text);
        RANK_SAYS(env, text, ": 2 running, 1 without a record");
    }
    RANK_TRY(env, join_world(env));
    RANK_TRY(env, ranks_meet(env, "joined", -1));
    if (env->rank == 1)
        why_until("no rank waits for another", text);
    RANK_TRY(env, ranks_meet(env, "seen", -1));
    tri_finalize();
    return NULL;
}

static void ranks_that_wait_in_tri_init_are_shown(void **state)
{
    (void)state;
    run_processes(3, NULL, rank_1_is_late_for_the_world, NULL, NULL, PATIENCE_S);
}

/* --- groups --------------------------------------------------------------- */

/* Groups of neighbours, which only their members make: rank 1 has g01 and g12, rank 2 g12 and
 * g23, so the second group of the one is the first of the other. */
static const char *neighbours_wait_in_a_row(rank_env *env)
{
    char text[TEXT_BYTES], name[8];
    tri_group *groups[3] = {NULL};
    tri_work *work = NULL;
    float x[4] = {0};

    RANK_TRY(env, join_world(env));
    for (int i = 0; i < 3; i++) {
        const tri_group_options options = {.name = name};

        snprintf(name, sizeof(name), "g%d%d", i, i + 1);
        if (env->rank == i || env->rank == i + 1)
            RANK_TRY(env, tri_group_new(NULL, (const int[]){i, i + 1}, 2, &options, &groups[i]));
    }
    if (env->rank == 1 || env->rank == 2)
        RANK_TRY(env,
                 tri_all_reduce(groups[env->rank], x, x, 4, TRI_DTYPE_F32, TRI_REDOP_SUM, &work));
    if (env->rank == 0) {
        why_until("rank 2 waits", text);
        RANK_SAYS(env, text, "rank 1 waits");
        RANK_SAYS(env, text, "for rank 2, which is in all_reduce #1 of 4 f32, sum (why_test.c:");
        RANK_SAYS(env, text, ") of group g23 (rank 2: pid ");
    }
    RANK_TRY(env, ranks_meet(env, "seen", -1));
    for (int i = 1; i < 3; i++) { /* the last member makes the call that is awaited */
        if (env->rank == i + 1)
            RANK_TRY(env, tri_all_reduce(groups[i], x, x, 4, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL));
    }
    if (work != NULL)
        RANK_TRY(env, tri_work_wait(work, 0));
    tri_work_destroy(work);
    for (int i = 0; i < 3; i++)
        tri_group_unref(groups[i]);
    tri_finalize();
    return NULL;
}

static void the_group_of_an_awaited_rank_is_its_own(void **state)
{
    (void)state;
    run_processes(4, NULL, neighbours_wait_in_a_row, NULL, NULL, PATIENCE_S);
}

static const char *a_call_is_posted_long_ago(rank_env *env)
{
    enum { MESSAGES = 1200 };
    char text[TEXT_BYTES];
    tri_group *group = NULL;
    tri_work *work = NULL;
    float x[4] = {0};

    RANK_TRY(env, form(env, &group));
    if (env->rank == 0)
        RANK_TRY(env, tri_all_reduce(group, x, x, 4, TRI_DTYPE_F32, TRI_REDOP_SUM, &work));
    for (int i = 0; i < MESSAGES; i++) {
        if (env->rank == 0)
            RANK_TRY(env, tri_send(group, "", 1, TRI_DTYPE_U8, 1, 0, NULL));
        else
            RANK_TRY(env, tri_recv(group, text, 1, TRI_DTYPE_U8, 0, 0, NULL));
    }
    if (env->rank == 1) {
        why_until("rank 0 waits", text);
        RANK_SAYS(env, text, "all_reduce #1 of 4 f32, sum (why_test.c:");
        RANK_SAYS(env, text, "for rank 1, which is in its own code after recv #1200 of 1 u8 ");
        RANK_TRY(env, tri_all_reduce(group, x, x, 4, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL));
    } else {
        RANK_TRY(env, tri_work_wait(work, 0));
    }
    tri_work_destroy(work);
    tri_group_unref(group);
    return NULL;
}

static void a_call_that_was_posted_long_ago_is_found(void **state)
{
    tri_group_options options = {.engine = "shm", .timeout_ms = PATIENCE_S * 1000};

    (void)state;
    run_processes(2, &options, a_call_is_posted_long_ago, NULL, NULL, PATIENCE_S);
}

static const char *a_rank_has_many_groups(rank_env *env)
{
    char text[TEXT_BYTES];
    tri_group *group = NULL, *alone[TRII_RECORD_GROUPS] = {NULL};
    tri_work *work = NULL;
    float x[4] = {0};

    for (int i = 0; i < TRII_RECORD_GROUPS && env->rank == 0; i++)
        RANK_TRY(env, tri_group_create(NULL, 0, 1, NULL, &alone[i]));
    RANK_TRY(env, form(env, &group));
    if (env->rank == 0) {
        RANK_TRY(env, tri_recv(group, x, 4, TRI_DTYPE_F32, 1, 0, &work));
        why_until("rank 0 waits", text);
        RANK_SAYS(env, text, "in recv #1 of 4 f32 from rank 1, tag 0 (why_test.c:");
        RANK_SAYS(env, text,
                  "of a group that its record does not list (more than 64 at once): "
                  "for whom, cannot be told");
    }
    RANK_TRY(env, ranks_meet(env, "seen", -1));
    if (env->rank == 1)
        RANK_TRY(env, tri_send(group, x, 4, TRI_DTYPE_F32, 0, 0, NULL));
    else
        RANK_TRY(env, tri_work_wait(work, 0));
    tri_work_destroy(work);
    tri_group_unref(group);
    for (int i = 0; i < TRII_RECORD_GROUPS; i++)
        tri_group_unref(alone[i]);
    return NULL;
}

static void a_wait_in_a_group_that_no_record_lists_is_not_denied(void **state)
{
    tri_group_options options = {.engine = "shm", .timeout_ms = PATIENCE_S * 1000};

    (void)state;
    run_processes(2, &options, a_rank_has_many_groups, NULL, NULL, PATIENCE_S);
}

/* --- what is no record ---------------------------------------------------- */

static void run_tool(spawn *s, const char *job, int status)
{
    spawn_start(s, (const char *const[]){spawn_bin("trireme"), "why", job, NULL}, NULL);
    if (spawn_wait(s) != status)
        fail_msg("status %d instead of %d: %s%s", s->status, status, SPAWN_OUT(s), SPAWN_ERR(s));
}

static void what_is_no_record_is_refused(void **state)
{
    static const size_t cuts[] = {0, 1, 8, 639, 5000};
    char path[300], *whole = malloc(1 << 20);
    tri_group *group = NULL;
    size_t bytes;
    uint64_t random = 7;
    FILE *file;
    spawn s;

    (void)state;
    run_tool(&s, folder, 1);
    assert_non_null(strstr(SPAWN_ERR(&s), "there are no flight records"));
    spawn_free(&s);
    CHECK_OK(tri_group_create(NULL, 0, 1, NULL, &group));
    for (int i = 0; i < 1100; i++)
        CHECK_OK(tri_barrier(group, NULL));
    tri_group_unref(group);
    run_tool(&s, folder, 0);
    assert_non_null(strstr(SPAWN_OUT(&s), "1 rank on "));
    assert_non_null(strstr(SPAWN_OUT(&s), ": 1 left"));
    spawn_free(&s);

    /* listed, and gone when it is opened: trirun takes records away when it starts again */
    snprintf(path, sizeof(path), "%s/rank-1.rec", folder);
    assert_int_equal(symlink("gone", path), 0);
    run_tool(&s, folder, 0);
    assert_non_null(strstr(SPAWN_OUT(&s), ": 1 left"));
    spawn_free(&s);
    assert_int_equal(unlink(path), 0);

    snprintf(path, sizeof(path), "%s/cause", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    run_tool(&s, folder, 0);
    assert_non_null(strstr(SPAWN_OUT(&s), ": 1 left"));
    spawn_free(&s);
    assert_int_equal(unlink(path), 0);

    snprintf(path, sizeof(path), "%s/rank-0.rec", folder);
    file = fopen(path, "rb");
    assert_non_null(file);
    bytes = fread(whole, 1, 1 << 20, file);
    fclose(file);
    for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
        file = fopen(path, "wb");
        assert_int_equal(fwrite(whole, 1, cuts[i], file), cuts[i]);
        fclose(file);
        run_tool(&s, folder, 1);
        assert_non_null(strstr(SPAWN_ERR(&s), "not a flight record of this version"));
        spawn_free(&s);
    }
    /* Bytes that lie: whatever it says, it says it and ends. */
    for (int round = 0; round < 40; round++) {
        char *damaged = malloc(bytes);

        memcpy(damaged, whole, bytes);
        for (int i = 0; i < 3000; i++) {
            random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
            damaged[24 + (random >> 20) % (bytes - 24)] = (char)(random >> 56);
        }
        file = fopen(path, "wb");
        assert_int_equal(fwrite(damaged, 1, bytes, file), bytes);
        fclose(file);
        free(damaged);
        run_tool(&s, folder, 0);
        assert_true(lines_of(SPAWN_OUT(&s)) <= 10);
        spawn_free(&s);
    }
    free(whole);
}

/* --- which job ------------------------------------------------------------ */

static void assert_says(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("no \"%s\" in:\n%s", part, text);
}

/* A record of the test's folder, of a program with that command line. */
static void record_program(const char line[64])
{
    char path[300];
    tri_group *group = NULL;
    FILE *file;

    CHECK_OK(tri_group_create(NULL, 0, 1, NULL, &group));
    tri_group_unref(group);
    snprintf(path, sizeof(path), "%s/rank-0.rec", folder);
    file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, offsetof(trii_record_file, program), SEEK_SET), 0);
    assert_int_equal(fwrite(line, 1, 64, file), 64);
    assert_int_equal(fclose(file), 0);
}

/* Records have 63 bytes of it. */
static void a_command_line_that_was_cut_says_so(void **state)
{
    char line[64] = "train ", shown[80];

    (void)state;
    memset(line + 6, 'a', sizeof(line) - 7);
    for (int cut = 1; cut >= 0; cut--) {
        spawn s;

        line[62] = cut ? 'a' : '\0';
        record_program(line);
        run_tool(&s, folder, 0);
        snprintf(shown, sizeof(shown), ", %.*s%s, started ", cut ? 60 : 62, line, cut ? "..." : "");
        assert_says(SPAWN_OUT(&s), shown);
        spawn_free(&s);
    }
}

/* Jansson takes no byte that is none. */
static void a_command_line_that_is_no_utf8_is_told_in_json(void **state)
{
    char line[64] = "caf\xe9", shown[80];

    (void)state;
    for (int cut = 0; cut < 2; cut++) {
        spawn s;

        for (int i = 0; i < 31 && cut; i++) /* "x", and 31 characters of two bytes */
            memcpy(line + 1 + 2 * i, "\xc3\xa9", 2);
        line[0] = cut ? 'x' : 'c';
        record_program(line);
        spawn_start(&s, (const char *const[]){spawn_bin("trireme"), "why", "--json", folder, NULL},
                    NULL);
        assert_int_equal(spawn_wait(&s), 0);
        snprintf(shown, sizeof(shown), "\"program\": \"%.*s%s\"", cut ? 59 : 3, line,
                 cut ? "..." : "?");
        assert_says(SPAWN_OUT(&s), shown);
        spawn_free(&s);
    }
}

/* What `trireme why ARGUMENT` prints of the jobs below `home`. */
static void why_at(const char *home, const char *argument, char *text)
{
    const char *argv[] = {spawn_bin("trireme"), "why", argument, NULL};
    const char *const env[] = {home, "TRI_RUN_DIR", NULL};
    spawn s;

    spawn_start(&s, argv, env);
    assert_int_equal(spawn_wait(&s), 0);
    snprintf(text, TEXT_BYTES, "%s", SPAWN_OUT(&s));
    spawn_free(&s);
}

static void jobs_are_told_apart(void **state)
{
    char home[256], variable[300], text[TEXT_BYTES], size[8], head[32];
    const char *const argv[] = {spawn_bin("trirun"), "--nproc-per-node", size,
                                spawn_bin("plain_mlp"), NULL};
    const char *const env[] = {variable, "TRI_CHAOS=kill=1,rank=1", "TRI_RUN_DIR", NULL};

    (void)state;
    spawn_make_folder(home, sizeof(home));
    snprintf(variable, sizeof(variable), "XDG_RUNTIME_DIR=%s", home);
    for (int n = 1; n <= 2; n++) {
        spawn s;

        snprintf(size, sizeof(size), "%d", 1 + n);
        snprintf(head, sizeof(head), "%s ranks on ", size);
        spawn_start(&s, argv, env);
        assert_int_equal(spawn_wait(&s), 1);
        spawn_free(&s);
        why_at(variable, NULL, text);
        assert_says(text, head);
        assert_says(text, ", plain_mlp, started ");
        assert_says(text, " s ago: ");
        assert_says(text, "rank 1 (pid ");
        if (n == 1)
            assert_null(strstr(text, "this is the newest"));
    }
    assert_says(text, "this is the newest of 2 jobs; `trireme why --jobs` lists them");
    why_at(variable, "--jobs", text);
    assert_int_equal(lines_of(text), 2);
    assert_says(strchr(text, '\n'), ", plain_mlp, started ");
    spawn_remove_folder(home);
}

static void ps_shows_a_rank_that_waits_in_tri_init(void **state)
{
    char home[256], variable[300];
    const char *const argv[] = {
        spawn_bin("trirun"),
        "--nproc-per-node",
        "2",
        "sh",
        "-c",
        "[ $RANK = 0 ] || until \"$1\" ps | grep 'in tri_init'; do :; done; exec \"$0\"",
        spawn_bin("plain_mlp"),
        spawn_bin("trireme"),
        NULL};
    spawn s;

    (void)state;
    spawn_make_folder(home, sizeof(home));
    snprintf(variable, sizeof(variable), "XDG_RUNTIME_DIR=%s", home);
    spawn_start(&s, argv, (const char *const[]){variable, "TRI_RUN_DIR", NULL});
    assert_int_equal(spawn_wait(&s), 0);
    assert_says(SPAWN_OUT(&s), "-  in tri_init\n");
    spawn_free(&s);
    spawn_remove_folder(home);
}

/* Jobs that are over are not all that is told while another one runs and has no records yet. */
static void a_job_that_runs_without_records_comes_before_the_dead(void **state)
{
    char home[256], variable[300];
    const char *const dead[] = {spawn_bin("trirun"), "--nproc-per-node", "2",
                                spawn_bin("plain_mlp"), NULL};
    const char *const live[] = {spawn_bin("trirun"),
                                "sh",
                                "-c",
                                "job=$${TRI_RUN_DIR##*/}; unset TRI_RUN_DIR; echo job $$job; "
                                "\"$$0\" why; \"$$0\" why $$job",
                                spawn_bin("trireme"),
                                NULL};
    const char *const env[] = {variable, "TRI_CHAOS=kill=1,rank=1", "TRI_RUN_DIR", NULL};
    char job[64], line[128];
    const char *at;
    spawn s;

    (void)state;
    spawn_make_folder(home, sizeof(home));
    snprintf(variable, sizeof(variable), "XDG_RUNTIME_DIR=%s", home);
    spawn_start(&s, dead, env);
    assert_int_equal(spawn_wait(&s), 1);
    spawn_free(&s);
    spawn_start(&s, live, env);
    assert_int_equal(spawn_wait(&s), 1);
    assert_int_equal(sscanf(SPAWN_OUT(&s), "job %63s", job), 1);
    snprintf(line, sizeof(line), "trireme why: job %s runs, and has no flight records: ", job);
    assert_says(SPAWN_ERR(&s), line);
    at = strstr(SPAWN_ERR(&s), line);
    assert_says(at + 1, line); /* and of the second command */
    assert_says(SPAWN_OUT(&s), "2 ranks on ");
    spawn_free(&s);
    spawn_remove_folder(home);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(a_rank_that_never_calls_is_named, make_folder, remove_folder),
    cmocka_unit_test_setup_teardown(both_calls_of_a_mismatch_are_shown, make_folder, remove_folder),
    cmocka_unit_test_setup_teardown(a_killed_rank_is_the_first_line, make_folder, remove_folder),
    cmocka_unit_test_setup_teardown(a_stopped_rank_is_told_from_a_dead_one, make_folder,
                                    remove_folder),
    cmocka_unit_test_setup_teardown(receives_that_wait_for_each_other_are_shown, make_folder,
                                    remove_folder),
    cmocka_unit_test_setup_teardown(ranks_that_are_not_there_yet_are_named, make_folder,
                                    remove_folder),
    cmocka_unit_test_setup_teardown(ranks_that_wait_in_tri_init_are_shown, make_folder,
                                    remove_folder),
    cmocka_unit_test_setup_teardown(the_group_of_an_awaited_rank_is_its_own, make_folder,
                                    remove_folder),
    cmocka_unit_test_setup_teardown(a_call_that_was_posted_long_ago_is_found, make_folder,
                                    remove_folder),
    cmocka_unit_test_setup_teardown(a_wait_in_a_group_that_no_record_lists_is_not_denied,
                                    make_folder, remove_folder),
    cmocka_unit_test_setup_teardown(a_command_line_that_was_cut_says_so, make_folder,
                                    remove_folder),
    cmocka_unit_test_setup_teardown(a_command_line_that_is_no_utf8_is_told_in_json, make_folder,
                                    remove_folder),
    cmocka_unit_test_setup_teardown(what_is_no_record_is_refused, make_folder, remove_folder),
    cmocka_unit_test(jobs_are_told_apart),
    cmocka_unit_test(ps_shows_a_rank_that_waits_in_tri_init),
    cmocka_unit_test(a_job_that_runs_without_records_comes_before_the_dead),
};

TEST_MAIN(tests)
