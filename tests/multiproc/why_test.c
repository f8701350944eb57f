/*
 * why_test.c - `trireme why` names the cause: a rank that never calls, calls in another order, a
 * killed rank, a stopped one, receives that wait for each other. The tool is run by a rank of the
 * very job that it looks at.
 */
#include "comm/group/watch/flight_recorder.h"
#include "testing/check.h"
#include "testing/ranks.h"
#include "testing/run_dir.h"
#include "testing/spawn.h"

#define TEXT_BYTES 8192
/* A case starts the tool again and again: on a machine that is busy each start takes long. */
#define PATIENCE_S 50

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
};

TEST_MAIN(tests)
