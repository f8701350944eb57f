/*
 * faults_test.c - what happens when ranks die, leave, disagree or do not come: never a hang,
 * never a wrong result, and the first cause is named. Real processes where one dies, threads
 * where none does.
 */
#include <sys/syscall.h>
#include <time.h>

#include "testing/check.h"
#include "testing/ranks.h"
#include "testing/spawn.h"

#include "base/alloc.h"
#include "os/clock.h"

#define JOIN(env, group)                                                                           \
    RANK_TRY(env,                                                                                  \
             tri_group_create((env)->store, (env)->rank, (env)->size, (env)->options, &(group)))

static const tri_group_options shm_options = {.engine = "shm", .timeout_ms = 20000};
static const tri_group_options tcp_options = {.engine = "tcp", .timeout_ms = 20000};

static const char *reduce_once(rank_env *env, tri_group *group)
{
    float x = 1.0f;

    RANK_TRY(env, tri_all_reduce(group, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL));
    return x == (float)env->size ? NULL : RANK_FAIL(env, "sum %g", (double)x);
}

/* --- death ---------------------------------------------------------------- */

/* Rank 1 tells the moment and dies by the signal `arg`; the others wait for it. */
static const char *rank_1_dies(rank_env *env)
{
    const int *signal_number = env->arg;
    tri_group *group = NULL;
    const char *failure;
    double ms;
    float x = 0;

    JOIN(env, group);
    failure = reduce_once(env, group);
    if (failure != NULL)
        return failure;
    RANK_TRY(env, ranks_meet(env, "reduced", -1));
    if (env->rank == 1) {
        int64_t now = trii_now_ns();

        RANK_TRY(env, tri_store_set(env->store, "died", &now, sizeof(now)));
        if (*signal_number == 0)
            _exit(3);
        (void)raise(*signal_number);
    }
    RANK_FAILS(env, tri_all_reduce(group, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL),
               TRI_ERR_PEER_LOST, "rank 1");
    void *died;
    int64_t at;
    RANK_TRY(env, tri_store_get(env->store, "died", 0, &died, NULL));
    memcpy(&at, died, sizeof(at));
    ms = (double)(trii_now_ns() - at) / 1e6;
    tri_store_free(died);
    printf("rank %d: told %.2f ms after the death: %s\n", env->rank, ms, tri_last_error());
    if (strstr(tri_last_error(), "made fewer calls") != NULL)
        return RANK_FAIL(env, "rank %d: takes a death for an end: %s", env->rank, tri_last_error());
    /* Later calls fail at once, with the same cause. */
    RANK_FAILS(env, tri_barrier(group, NULL), TRI_ERR_PEER_LOST, "rank 1");
    tri_group_unref(group);
    return NULL;
}

static void a_killed_rank_is_named(void **state)
{
    int number = SIGKILL;
    rank_end ends[] = {{0}, {.signal = SIGKILL}};

    (void)state;
    run_processes(2, &shm_options, rank_1_dies, &number, ends, 30);
}

static void tcp_names_a_killed_rank(void **state)
{
    int number = SIGKILL;
    rank_end ends[] = {{0}, {.signal = SIGKILL}};

    (void)state;
    run_processes(2, &tcp_options, rank_1_dies, &number, ends, 30);
}

static void a_crashed_rank_is_named_to_all(void **state)
{
    int number = SIGABRT;
    rank_end ends[] = {{0}, {.signal = SIGABRT}, {0}, {0}};

    (void)state;
    run_processes(4, &shm_options, rank_1_dies, &number, ends, 30);
}

static void tcp_names_a_crashed_rank_to_all(void **state)
{
    int number = SIGABRT;
    rank_end ends[] = {{0}, {.signal = SIGABRT}, {0}, {0}};

    (void)state;
    run_processes(4, &tcp_options, rank_1_dies, &number, ends, 30);
}

static void a_rank_that_exits_without_leaving_is_lost(void **state)
{
    int number = 0;
    rank_end ends[] = {{0}, {.exit_code = 3}, {0}};

    (void)state;
    run_processes(3, &shm_options, rank_1_dies, &number, ends, 30);
}

static void tcp_loses_a_rank_that_exits_without_leaving(void **state)
{
    int number = 0;
    rank_end ends[] = {{0}, {.exit_code = 3}, {0}};

    (void)state;
    run_processes(3, &tcp_options, rank_1_dies, &number, ends, 30);
}

/* Without what fork() does for those that asked for it: as runtimes and sandboxes do. */
static pid_t bare_fork(void)
{
    return (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
}

/* A child of rank 1 holds its sockets open; the death must be seen all the same. arg: how it is
 * made, NULL = by fork. */
static const char *rank_1_dies_and_leaves_a_child(rank_env *env)
{
    static const int number = SIGKILL;
    bool bare = env->arg != NULL;
    int gate[2] = {-1, -1};
    pid_t child = -1;

    (void)child;
    if (env->rank == 1) {
        tri_group *group = NULL;
        const char *failure;
        int64_t now;
        char byte;

        if (pipe(gate) != 0)
            return RANK_FAIL(env, "pipe");
        JOIN(env, group);
        failure = reduce_once(env, group);
        if (failure != NULL)
            return failure;
        RANK_TRY(env, ranks_meet(env, "reduced", -1)); /* as in rank_1_dies */
        child = bare ? bare_fork() : fork();
        if (child == 0) { /* ends when rank 0 has seen the death, or by the alarm */
            alarm(28);    /* longer than the group's patience: only the death itself can be seen */
            close(gate[1]);
            (void)!read(gate[0], &byte, 1);
            pause();
            _exit(0);
        }
        now = trii_now_ns();
        RANK_TRY(env, tri_store_set(env->store, "died", &now, sizeof(now)));
        RANK_TRY(env, tri_store_set(env->store, "child", &child, sizeof(child)));
        (void)raise(number);
    }
    env->arg = (void *)(uintptr_t)&number;
    {
        const char *failure = rank_1_dies(env);
        void *value;

        RANK_TRY(env, tri_store_get(env->store, "child", 0, &value, NULL));
        memcpy(&child, value, sizeof(child));
        tri_store_free(value);
        kill(child, SIGKILL);
        return failure;
    }
}

static void a_forked_child_does_not_hide_a_death(void **state)
{
    rank_end ends[] = {{0}, {.signal = SIGKILL}};

    (void)state;
    run_processes(2, &shm_options, rank_1_dies_and_leaves_a_child, NULL, ends, 30);
}

static void tcp_sees_a_death_that_a_forked_child_outlives(void **state)
{
    rank_end ends[] = {{0}, {.signal = SIGKILL}};

    (void)state;
    run_processes(2, &tcp_options, rank_1_dies_and_leaves_a_child, NULL, ends, 30);
}

static void tcp_sees_a_death_that_a_cloned_child_outlives(void **state)
{
    rank_end ends[] = {{0}, {.signal = SIGKILL}};
    char bare = 1;

    (void)state;
    run_processes(2, &tcp_options, rank_1_dies_and_leaves_a_child, &bare, ends, 30);
}

/* Rank 1 is killed at a random moment of a stream of large reductions. */
static const char *rank_1_dies_in_the_middle(rank_env *env)
{
    enum { N = 1 << 20 };
    tri_group *group = NULL;
    tri_status st = TRI_OK;
    float *x;

    JOIN(env, group);
    x = tri_group_alloc(group, N * sizeof(float));
    if (x == NULL)
        return RANK_FAIL(env, "%s", tri_last_error());
    RANK_TRY(env, ranks_meet(env, "begin", -1));
    if (env->rank == 1) /* the kernel kills us while we reduce */
        (void)signal(SIGALRM, SIG_DFL), (void)ualarm(30000, 0);
    for (int i = 0; st == TRI_OK; i++) {
        for (int k = 0; k < N; k += 1024)
            x[k] = (float)i;
        st = tri_all_reduce(group, x, x, N, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL);
        for (int k = 0; k < N && st == TRI_OK; k += 1024) {
            if (x[k] != (float)(env->size * i))
                return RANK_FAIL(env, "rank %d, round %d: a wrong sum %g", env->rank, i,
                                 (double)x[k]);
        }
    }
    if (st != TRI_ERR_PEER_LOST || strstr(tri_last_error(), "rank 1") == NULL)
        return RANK_FAIL(env, "%s: %s", tri_status_name(st), tri_last_error());
    /* amid a large frame a rank cannot tell why it leaves, and one that is slow sees only that */
    RANK_TRY(env, ranks_meet(env, "told", 1));
    tri_group_unref(group);
    return NULL;
}

static void a_death_in_the_middle_gives_no_wrong_sum(void **state)
{
    rank_end ends[] = {{0}, {.signal = SIGALRM}, {0}};

    (void)state;
    run_processes(3, &shm_options, rank_1_dies_in_the_middle, NULL, ends, 30);
}

static void tcp_gives_no_wrong_sum_after_a_death_in_the_middle(void **state)
{
    rank_end ends[] = {{0}, {.signal = SIGALRM}, {0}};

    (void)state;
    run_processes(3, &tcp_options, rank_1_dies_in_the_middle, NULL, ends, 30);
}

/* --- leaving, giving up --------------------------------------------------- */

static const char *rank_1_leaves(rank_env *env)
{
    tri_group *group = NULL;
    const char *failure;

    JOIN(env, group);
    failure = reduce_once(env, group);
    if (failure == NULL && env->rank != 1) {
        RANK_TRY(env, ranks_meet(env, "reduced",
                                 1)); /* the rank that finds out ends the others' calls */
        RANK_FAILS(env, tri_barrier(group, NULL), TRI_ERR_PEER_LOST, "rank 1 left the group");
        RANK_FAILS(env, tri_barrier(group, NULL), TRI_ERR_PEER_LOST, "or it made fewer calls");
    }
    tri_group_unref(group);
    return failure;
}

static void a_rank_that_left_is_no_failure_until_it_is_needed(void **state)
{
    (void)state;
    run_threads(3, &shm_options, rank_1_leaves, NULL);
    assert_int_equal(trii_alloc_live(), 0);
    run_processes(2, &shm_options, rank_1_leaves, NULL, NULL, 30);
}

static void tcp_lets_a_rank_leave_until_it_is_needed(void **state)
{
    (void)state;
    run_threads(3, &tcp_options, rank_1_leaves, NULL);
    assert_int_equal(trii_alloc_live(), 0);
    run_processes(2, &tcp_options, rank_1_leaves, NULL, NULL, 30);
}

static const char *rank_1_aborts(rank_env *env)
{
    tri_group *group = NULL;
    tri_work *work = NULL;

    JOIN(env, group);
    RANK_TRY(env, tri_barrier(group, NULL));
    RANK_TRY(env, ranks_meet(env, "through", -1));
    if (env->rank == 1) {
        RANK_TRY(env, tri_recv(group, &group, 1, TRI_DTYPE_U8, 0, 0, &work));
        tri_group_abort(group, "the tea is cold");
        RANK_FAILS(env, tri_work_wait(work, 0), TRI_ERR_ABORTED, "the tea is cold");
        if (strstr(tri_work_error(work), "tea") == NULL)
            return RANK_FAIL(env, "the work says \"%s\"", tri_work_error(work));
        tri_work_destroy(work);
    }
    RANK_FAILS(env, tri_barrier(group, NULL), TRI_ERR_ABORTED, "the tea is cold");
    tri_group_unref(group);
    return NULL;
}

static void an_abort_reaches_everybody_with_its_reason(void **state)
{
    (void)state;
    run_threads(4, &shm_options, rank_1_aborts, NULL);
    assert_int_equal(trii_alloc_live(), 0);
    run_processes(2, &shm_options, rank_1_aborts, NULL, NULL, 30);
}

static void tcp_tells_everybody_of_an_abort(void **state)
{
    (void)state;
    run_threads(4, &tcp_options, rank_1_aborts, NULL);
    assert_int_equal(trii_alloc_live(), 0);
    run_processes(2, &tcp_options, rank_1_aborts, NULL, NULL, 30);
}

/* --- disagreement --------------------------------------------------------- */

static char disagreement[3][512]; /* what each rank was told last */

static const char *calls_differ(rank_env *env)
{
    const int *what = env->arg;
    bool odd = env->rank == env->size - 1;
    tri_group *group = NULL;
    float x[64] = {0};
    tri_status st;

    JOIN(env, group);
    switch (*what) {
    case 0:
        st = odd ? tri_barrier(group, NULL)
                 : tri_all_reduce(group, x, x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL);
        break;
    case 1:
        st = tri_all_reduce(group, x, x, 1, odd ? TRI_DTYPE_F32 : TRI_DTYPE_I32, TRI_REDOP_SUM,
                            NULL);
        break;
    case 2:
        st = tri_all_reduce(group, x, x, 1, TRI_DTYPE_F32, odd ? TRI_REDOP_MAX : TRI_REDOP_SUM,
                            NULL);
        break;
    case 3:
        st = tri_all_reduce(group, x, x, odd ? 64 : 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL);
        break;
    case 4:
        st = tri_broadcast(group, x, 64, TRI_DTYPE_F32, odd, NULL);
        if (st == TRI_OK) /* a root may be done before it is heard */
            st = tri_barrier(group, NULL);
        break;
    default:
        st = env->rank == 0   ? tri_send(group, x, 3, TRI_DTYPE_F32, 1, 5, NULL)
             : env->rank == 1 ? tri_recv(group, x, 3, TRI_DTYPE_I32, 0, 5, NULL)
                              : tri_barrier(group, NULL);
        if (env->rank == 0 && st == TRI_OK) /* a send may be done before it is received */
            st = tri_barrier(group, NULL);
        break;
    }
    if (st != TRI_ERR_MISMATCH)
        return RANK_FAIL(env, "rank %d, case %d: %s: %s", env->rank, *what, tri_status_name(st),
                         tri_last_error());
    /* Both ranks and both source lines. */
    if (strstr(tri_last_error(), "disagree: rank") == NULL ||
        strstr(strstr(tri_last_error(), "disagree"), "faults_test.c") == NULL)
        return RANK_FAIL(env, "case %d: %s", *what, tri_last_error());
    snprintf(disagreement[env->rank], sizeof(disagreement[0]), "%s",
             strstr(tri_last_error(), "the ranks disagree"));
    if (strstr(disagreement[env->rank], " (reported by") != NULL)
        *strstr(disagreement[env->rank], " (reported by") = '\0';
    if (strstr(disagreement[env->rank], "; all ranks must") != NULL)
        *strstr(disagreement[env->rank], "; all ranks must") = '\0';
    tri_group_unref(group);
    return NULL;
}

static void ranks_that_disagree_are_both_named(void **state)
{
    (void)state;
    for (int what = 0; what <= 5; what++)
        run_threads(what == 5 ? 2 : 3, &shm_options, calls_differ, &what);
    assert_int_equal(trii_alloc_live(), 0);
}

static void tcp_names_ranks_that_disagree(void **state)
{
    (void)state;
    for (int what = 0; what <= 5; what++)
        run_threads(what == 5 ? 2 : 3, &tcp_options, calls_differ, &what);
    assert_int_equal(trii_alloc_live(), 0);
}

/* One sentence on both ranks and from both engines: the lower rank's call, then the other's, each
 * with its line. */
static void engines_word_a_disagreement_alike(void **state)
{
    static const char *const calls[][2] = {
        {"all_reduce #1 of 1 f32, sum (faults_test.c:", "barrier #1 (faults_test.c:"},
        {"all_reduce #1 of 1 i32, sum (", "all_reduce #1 of 1 f32, sum ("},
        {"all_reduce #1 of 1 f32, sum (", "all_reduce #1 of 1 f32, max ("},
        {"all_reduce #1 of 1 f32, sum (", "all_reduce #1 of 64 f32, sum ("},
        {"broadcast #1 of 64 f32 from rank 0 (", "broadcast #1 of 64 f32 from rank 1 ("},
        {"send #1 of 3 f32 to rank 1, tag 5 (", "recv #1 of 3 i32 from rank 0, tag 5 ("},
    };

    (void)state;
    for (int what = 0; what <= 5; what++) {
        char shm[512], first[160], second[160];

        run_threads(2, &shm_options, calls_differ, &what);
        assert_string_equal(disagreement[0], disagreement[1]);
        memcpy(shm, disagreement[0], sizeof(shm));
        run_threads(2, &tcp_options, calls_differ, &what);
        assert_string_equal(disagreement[0], disagreement[1]);
        assert_string_equal(disagreement[0], shm);
        snprintf(first, sizeof(first), "the ranks disagree: rank 0 calls %s", calls[what][0]);
        snprintf(second, sizeof(second), "; rank 1 calls %s", calls[what][1]);
        if (strncmp(shm, first, strlen(first)) != 0 || strstr(shm, second) == NULL)
            fail_msg("case %d: %s", what, shm);
    }
}

/* What does not fit the recv is an error, and nothing of it may be written. */
static const char *message_is_too_long(rank_env *env)
{
    enum { LONG = 4096, SHORT = 4 };
    float *x = calloc(LONG, sizeof(*x));
    tri_group *group = NULL;

    JOIN(env, group);
    for (int i = 0; i < LONG; i++)
        x[i] = env->rank == 0 ? 1.0f : 0.0f;
    if (env->rank == 0)
        RANK_TRY(env, tri_send(group, x, LONG, TRI_DTYPE_F32, 1, 5, NULL));
    else
        RANK_FAILS(env, tri_recv(group, x, SHORT, TRI_DTYPE_F32, 0, 5, NULL), TRI_ERR_INVALID_ARG,
                   "has 4096 f32, the receive has room for 4");
    RANK_TRY(env, tri_barrier(group, NULL));
    tri_group_unref(group);
    for (int i = 0; i < LONG && env->rank == 1; i++) {
        if (x[i] != 0.0f)
            return RANK_FAIL(env, "element %d of a recv of %d was written", i, SHORT);
    }
    free(x);
    return NULL;
}

static void a_message_that_does_not_fit_is_not_written(void **state)
{
    (void)state;
    run_threads(2, &shm_options, message_is_too_long, NULL);
    run_threads(2, &tcp_options, message_is_too_long, NULL);
    assert_int_equal(trii_alloc_live(), 0);
}

static const char *allocations_differ(rank_env *env)
{
    tri_group *group = NULL;

    JOIN(env, group);
    if (tri_group_alloc(group, env->rank == 1 ? 4096 : 128) != NULL)
        return RANK_FAIL(env, "allocated");
    RANK_FAILS(env, tri_barrier(group, NULL), TRI_ERR_MISMATCH, "4096");
    tri_group_unref(group);
    return NULL;
}

static void allocations_must_agree(void **state)
{
    (void)state;
    run_threads(2, &shm_options, allocations_differ, NULL);
    assert_int_equal(trii_alloc_live(), 0);
}

/* --- time ----------------------------------------------------------------- */

static const char *rank_1_is_late(rank_env *env)
{
    tri_group *group = NULL;
    tri_work *work = NULL;
    float x = 0;

    JOIN(env, group);
    RANK_TRY(env, tri_barrier(group, NULL));
    RANK_TRY(env, ranks_meet(env, "through", -1));
    if (env->rank == 1) { /* comes when the others have given up */
        void *value;

        RANK_TRY(env, tri_store_get(env->store, "gave up", 0, &value, NULL));
        tri_store_free(value);
        /* Rank 0 did arrive in this one: for us alone it may end well. The next may not. */
        if (tri_all_reduce(group, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL) == TRI_OK)
            x = 0;
        RANK_FAILS(env, tri_barrier(group, NULL), TRI_ERR_ABORTED, "rank 0 waited");
        tri_group_unref(group);
        return NULL;
    }
    tri_group_set_timeout(group, 300);
    RANK_TRY(env, tri_all_reduce(group, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, &work));
    if (tri_work_test(work) != TRI_INPROGRESS)
        return RANK_FAIL(env, "the work is over: %s", tri_last_error());
    /* The wait's own patience ends first: the work goes on. */
    RANK_FAILS(env, tri_work_wait(work, 5), TRI_ERR_TIMEOUT, "rank 1");
    RANK_FAILS(env, tri_work_wait(work, 0), TRI_ERR_GROUP_TIMEOUT, "rank 1");
    RANK_FAILS(env, tri_barrier(group, NULL), TRI_ERR_GROUP_TIMEOUT, "rank 1");
    tri_work_destroy(work);
    RANK_TRY(env, tri_store_set(env->store, "gave up", "1", 1));
    tri_group_unref(group);
    return NULL;
}

static void a_timeout_names_who_did_not_come(void **state)
{
    (void)state;
    run_threads(2, &shm_options, rank_1_is_late, NULL);
    assert_int_equal(trii_alloc_live(), 0);
}

static void tcp_names_who_did_not_come(void **state)
{
    (void)state;
    run_threads(2, &tcp_options, rank_1_is_late, NULL);
    assert_int_equal(trii_alloc_live(), 0);
}

static const char *rank_1_never_joins(rank_env *env)
{
    tri_group *group = NULL;

    if (env->rank == 1)
        return NULL;
    RANK_FAILS(env, tri_group_create(env->store, env->rank, env->size, env->options, &group),
               TRI_ERR_TIMEOUT, "rank 1");
    return NULL;
}

static void forming_a_group_names_who_is_missing(void **state)
{
    tri_group_options options = {.engine = "shm", .timeout_ms = 200};

    (void)state;
    run_threads(2, &options, rank_1_never_joins, NULL);
    assert_int_equal(trii_alloc_live(), 0);
}

static void tcp_names_who_is_missing_when_forming(void **state)
{
    tri_group_options options = {.engine = "tcp", .timeout_ms = 200};

    (void)state;
    run_threads(2, &options, rank_1_never_joins, NULL);
    assert_int_equal(trii_alloc_live(), 0);
}

/* Rank 1 comes when rank 0 has complained, which a file tells. Nobody hears of the receive that it
 * has begun meanwhile. */
static const char *rank_0_complains(rank_env *env)
{
    const char *path = env->arg;
    bool tcp = strcmp(env->options->engine, "tcp") == 0;
    const char *whom = tcp ? "rank 1 (last call heard from it: barrier #1"
                           : "rank 1 (its last collective: barrier #1";
    tri_group *group = NULL;
    tri_work *receive = NULL;
    static char text[1 << 14]; /* on a busy machine other lines come first */
    int32_t value = 7;

    JOIN(env, group);
    if (env->rank == 0 && freopen(path, "w", stderr) == NULL)
        return RANK_FAIL(env, "%s", path);
    setvbuf(stderr, NULL, _IONBF, 0);
    RANK_TRY(env, tri_barrier(group, NULL));
    if (env->rank == 1)
        RANK_TRY(env, tri_recv(group, &value, 1, TRI_DTYPE_I32, 0, 0, &receive));
    while (env->rank == 1 && strstr(text, "barrier #2") == NULL) {
        FILE *file = fopen(path, "r");

        if (file != NULL) {
            text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
            fclose(file);
        }
        trii_sleep_until(trii_now_ns() + 20 * TRII_NS_PER_MS);
    }
    RANK_TRY(env, tri_barrier(group, NULL));
    if (env->rank == 1 &&
        (strstr(text, "rank 0 has waited") == NULL ||
         strstr(text, "barrier #2 (faults_test.c:") == NULL || strstr(text, whom) == NULL))
        return RANK_FAIL(env, "complained: %s", text);
    if (env->rank == 0)
        RANK_TRY(env, tri_send(group, &value, 1, TRI_DTYPE_I32, 1, 0, NULL));
    else
        RANK_TRY(env, tri_work_wait(receive, 0));
    tri_work_destroy(receive);
    tri_group_unref(group);
    return NULL;
}

static void a_long_wait_is_logged_with_whom_and_where(void **state)
{
    char folder[256], path[300];

    (void)state;
    spawn_make_folder(folder, sizeof(folder));
    snprintf(path, sizeof(path), "%s/complaint", folder);
    run_processes(2, &shm_options, rank_0_complains, path, NULL, 30);
    run_processes(2, &tcp_options, rank_0_complains, path, NULL, 30);
    spawn_remove_folder(folder);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_killed_rank_is_named),
    cmocka_unit_test(tcp_names_a_killed_rank),
    cmocka_unit_test(a_crashed_rank_is_named_to_all),
    cmocka_unit_test(tcp_names_a_crashed_rank_to_all),
    cmocka_unit_test(a_rank_that_exits_without_leaving_is_lost),
    cmocka_unit_test(tcp_loses_a_rank_that_exits_without_leaving),
    cmocka_unit_test(a_forked_child_does_not_hide_a_death),
    cmocka_unit_test(tcp_sees_a_death_that_a_forked_child_outlives),
    cmocka_unit_test(tcp_sees_a_death_that_a_cloned_child_outlives),
    cmocka_unit_test(a_death_in_the_middle_gives_no_wrong_sum),
    cmocka_unit_test(tcp_gives_no_wrong_sum_after_a_death_in_the_middle),
    cmocka_unit_test(a_rank_that_left_is_no_failure_until_it_is_needed),
    cmocka_unit_test(tcp_lets_a_rank_leave_until_it_is_needed),
    cmocka_unit_test(an_abort_reaches_everybody_with_its_reason),
    cmocka_unit_test(tcp_tells_everybody_of_an_abort),
    cmocka_unit_test(ranks_that_disagree_are_both_named),
    cmocka_unit_test(a_message_that_does_not_fit_is_not_written),
    cmocka_unit_test(tcp_names_ranks_that_disagree),
    cmocka_unit_test(engines_word_a_disagreement_alike),
    cmocka_unit_test(allocations_must_agree),
    cmocka_unit_test(a_timeout_names_who_did_not_come),
    cmocka_unit_test(tcp_names_who_did_not_come),
    cmocka_unit_test(forming_a_group_names_who_is_missing),
    cmocka_unit_test(tcp_names_who_is_missing_when_forming),
    cmocka_unit_test(a_long_wait_is_logged_with_whom_and_where),
};

TEST_MAIN(tests)
