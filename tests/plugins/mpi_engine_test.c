/*
 * mpi_engine_test.c - the mpi plug-in under mpirun: the conformance suite, messages, and what it
 * refuses. The test starts itself as the ranks; TRI_TEST_ENGINE and TRI_TEST_MPIRUN say which MPI.
 */
/* ctest: labels=full timeout=300 */
#include <sys/resource.h>
#include <unistd.h>

#include "conformance/compared.h"
#include "testing/spawn.h"

#include "comm/group/group_internal.h"

#define PATIENCE_MS 100000 /* beside other load a role may take half a minute */

/* --- as a rank ------------------------------------------------------------ */

static const size_t small_counts[] = {0, 1, 17, 1009, SIZE_MAX};
static const size_t large_counts[] = {0, 1, 23, 4099, 40009, SIZE_MAX};
static const tri_dtype every_dtype[] = {
    TRI_DTYPE_U8,   TRI_DTYPE_I8,  TRI_DTYPE_I16, TRI_DTYPE_I32,  TRI_DTYPE_I64, TRI_DTYPE_F16,
    TRI_DTYPE_BF16, TRI_DTYPE_F32, TRI_DTYPE_F64, TRI_DTYPE_BOOL, TRI_DTYPE_NONE};
static const tri_dtype only_f32[] = {TRI_DTYPE_F32, TRI_DTYPE_NONE};

static const char *rank_script(rank_env *env)
{
    static const script what = {.counts = large_counts, .dtypes = only_f32};

    env->arg = (void *)(uintptr_t)&what;
    return run_script(env);
}

static const char *rank_every_dtype(rank_env *env)
{
    static const script what = {.counts = small_counts, .dtypes = every_dtype, .all_ops = true};

    env->arg = (void *)(uintptr_t)&what;
    return run_script(env);
}

/* Rank 0 takes what comes; then a message that is too long for its receive. */
static const char *rank_messages(rank_env *env)
{
    tri_group *g = NULL;
    int32_t x[8] = {env->rank};
    int seen = 0;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    for (int i = 1; i < env->size && env->rank == 0; i++) {
        int from = -1;

        RANK_TRY(env, tri_recv_any(g, x, 8, TRI_DTYPE_I32, 5, &from, NULL));
        if (from < 1 || from >= env->size || x[0] != from || x[7] != 70 + from)
            return RANK_FAIL(env, "a message from %d says %d", from, x[0]);
        seen |= 1 << from;
    }
    if (env->rank == 0 && seen != (1 << env->size) - 2)
        return RANK_FAIL(env, "messages from %#x", seen);
    x[7] = 70 + env->rank;
    if (env->rank != 0)
        RANK_TRY(env, tri_send(g, x, 8, TRI_DTYPE_I32, 0, 5, NULL));
    RANK_TRY(env, tri_barrier(g, NULL));
    RANK_FAILS(env, tri_send(g, x, 1, TRI_DTYPE_I32, (env->rank + 1) % env->size, -1, NULL),
               TRI_ERR_UNSUPPORTED, "which MPI does not allow");
    tri_group_unref(g);
    return NULL;
}

/* Every rank leaves, and ends with a handle that it never gave back: MPI is finalised all the same,
 * or mpirun would take the end for a failure. */
static const char *rank_leaves(rank_env *env)
{
    static tri_work *work; /* forgotten, which is no leak that a sanitizer should tell of */
    static float x;
    tri_group *g = NULL;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    RANK_TRY(env, tri_all_reduce(g, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, &work));
    RANK_TRY(env, tri_work_wait(work, 0));
    trii_group_leave(g);
    return NULL;
}

/* Two groups at once, calls in flight on both, and a deadline that passes. */
static const char *rank_groups(rank_env *env)
{
    tri_group_options named = *env->options;
    tri_group *g[2] = {NULL, NULL};
    tri_work *work[2][20];
    double x[2][20];

    for (int k = 0; k < 2; k++) {
        named.name = k == 0 ? "one" : "other";
        RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, &named, &g[k]));
    }
    for (int i = 0; i < 20; i++) {
        for (int k = 0; k < 2; k++) {
            x[k][i] = i + env->rank + 100 * k;
            RANK_TRY(env, tri_all_reduce(g[k], &x[k][i], &x[k][i], 1, TRI_DTYPE_F64, TRI_REDOP_MAX,
                                         &work[k][i]));
        }
    }
    for (int i = 19; i >= 0; i--) {
        for (int k = 0; k < 2; k++) {
            RANK_TRY(env, tri_work_wait(work[k][i], 0));
            tri_work_destroy(work[k][i]);
            if (x[k][i] != i + env->size - 1 + 100 * k)
                return RANK_FAIL(env, "call %d of group %d: %g", i, k, x[k][i]);
        }
    }
    tri_group_unref(g[0]);
    RANK_TRY(env, tri_barrier(g[1], NULL));
    tri_group_unref(g[1]);
    return NULL;
}

/* Groups come and go: more than MPI has communicators for, or memory if it has many. */
static const char *rank_many(rank_env *env)
{
    enum { MANY = 1200, SETTLED = 200, KIB_MORE = 4 << 10 };
    long before = 0;

    for (int i = 0; i < MANY; i++) {
        tri_group *g = NULL;
        struct rusage used;

        RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
        if (i % 100 == 0)
            RANK_TRY(env, tri_barrier(g, NULL));
        tri_group_unref(g);
        getrusage(RUSAGE_SELF, &used);
        if (i == SETTLED)
            before = used.ru_maxrss;
        else if (i > SETTLED && used.ru_maxrss - before > KIB_MORE)
            return RANK_FAIL(env, "%ld KiB more after %d groups than after %d",
                             used.ru_maxrss - before, i, SETTLED);
    }
    return NULL;
}

/* Rank 0 waits for a call that the others do not make. */
static const char *rank_deadline(rank_env *env)
{
    tri_group_options options = *env->options;
    tri_group *g = NULL;

    options.timeout_ms = 2000;
    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, &options, &g));
    if (env->rank == 0) {
        RANK_FAILS(env, tri_barrier(g, NULL), TRI_ERR_GROUP_TIMEOUT, "barrier #1");
        RANK_FAILS(env, tri_barrier(g, NULL), TRI_ERR_GROUP_TIMEOUT, "the group has failed");
        RANK_TRY(env, tri_store_set(env->store, "late", "", 0));
    } else {
        RANK_TRY(env, tri_store_wait(env->store, (const char *const[]){"late"}, 1, 0));
    }
    tri_group_unref(g);
    printf("rank %d is through\n", env->rank);
    fflush(NULL);
    /* mpirun may kill the others when one ends without MPI_Finalize */
    RANK_TRY(env, tri_store_set(env->store, env->rank == 0 ? "0 through" : "1 through", "", 0));
    RANK_TRY(env,
             tri_store_wait(env->store, (const char *const[]){"0 through", "1 through"}, 2, 0));
    _exit(0); /* MPI_Finalize would wait: the group has failed on rank 0 only */
}

/* Rank 1 returns from main as if nothing were left to do; mpirun hears of it and ends the
 * others. */
static const char *rank_forgets(rank_env *env)
{
    tri_group_options options = *env->options;
    tri_group *g = NULL;

    options.timeout_ms = TRI_FOREVER;
    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, &options, &g));
    RANK_TRY(env, tri_barrier(g, NULL));
    if (env->rank == 1) {
        printf("rank 1 goes\n");
        return NULL;
    }
    RANK_TRY(env, tri_barrier(g, NULL));
    return "a barrier without rank 1";
}

/* Two ranks in one process of MPI. */
static const char *thread_refused(rank_env *env)
{
    tri_group *g = NULL;

    RANK_FAILS(env, tri_group_create(env->store, env->rank, env->size, env->options, &g),
               TRI_ERR_UNSUPPORTED, "are one rank of MPI");
    return NULL;
}

/* Calls that do not match, where the group compares them. */
static const char *rank_compared(rank_env *env)
{
    const char *failure;

    setenv("TRI_CHECK_CALLS", "1", 1);
    failure = compared_anybody(env);
    return failure == NULL ? compared_sides(env) : failure;
}

static const struct {
    const char *name;
    const char *(*main)(rank_env *env);
} roles[] = {
    {"compared", rank_compared}, {"script", rank_script},   {"every_dtype", rank_every_dtype},
    {"messages", rank_messages}, {"groups", rank_groups},   {"leaves", rank_leaves},
    {"deadline", rank_deadline}, {"forgets", rank_forgets}, {"many", rank_many},
};

static int number(const char *name, const char *other)
{
    const char *text = getenv(name);

    text = text != NULL ? text : getenv(other);
    return text != NULL ? (int)strtol(text, NULL, 10) : -1;
}

static int rank_main(const char *role)
{
    tri_group_options options = {.engine = getenv("TRI_TEST_ENGINE"), .timeout_ms = 60000};
    rank_env env = {.rank = number("OMPI_COMM_WORLD_RANK", "PMI_RANK"),
                    .size = number("OMPI_COMM_WORLD_SIZE", "PMI_SIZE"),
                    .options = &options};
    const char *failure = "no such role";

    alarm(PATIENCE_MS / 1000);
    if (strcmp(role, "threads") == 0) {
        run_threads(2, &options, thread_refused, NULL);
        return 0;
    }
    TRI_TRY(tri_store_tcp("127.0.0.1", number("TRI_TEST_PORT", ""), NULL, &env.store));
    for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++) {
        if (strcmp(roles[i].name, role) == 0)
            failure = roles[i].main(&env);
    }
    tri_store_unref(env.store);
    if (failure != NULL)
        fprintf(stderr, "%s\n", failure);
    return failure != NULL;
}

/* --- as the test ---------------------------------------------------------- */

/* `mpirun -np ranks PROGRAM`, with env in front. Its output is freed by the caller. */
static void run_mpi(spawn *s, int ranks, const char *program, const char *const *env)
{
    const char *mpirun = getenv("TRI_TEST_MPIRUN");
    bool open_mpi = strcmp(getenv("TRI_TEST_LAUNCHER"), "openmpi") == 0;
    const char *argv[12];
    char np[8];
    int n = 0;

    snprintf(np, sizeof(np), "%d", ranks);
    argv[n++] = mpirun;
    if (open_mpi) {
        argv[n++] = "--oversubscribe";
        argv[n++] = "--allow-run-as-root";
    }
    argv[n++] = "-np";
    argv[n++] = np;
    argv[n++] = program;
    argv[n] = NULL;
    spawn_start(s, argv, env);
    s->deadline_ms = PATIENCE_MS;
    (void)spawn_wait(s);
}

/* All ranks must end well; if `says` is given they must have said so instead. */
static void run_role(const char *role, int ranks, const char *const *says)
{
    char program[512], role_text[64], port_text[32];
    const char *env[] = {role_text, port_text, NULL};
    tri_store *store = NULL;
    ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);
    spawn s;

    assert_true(n > 0);
    program[n] = '\0';
    CHECK_OK(tri_store_tcp("127.0.0.1", 0, &(tri_store_tcp_options){.serve = true}, &store));
    snprintf(role_text, sizeof(role_text), "TRI_TEST_ROLE=%s", role);
    snprintf(port_text, sizeof(port_text), "TRI_TEST_PORT=%d", tri_store_port(store));
    run_mpi(&s, ranks, program, env);
    for (int i = 0; says != NULL && says[i] != NULL; i++) {
        if (strstr(SPAWN_OUT(&s), says[i]) == NULL)
            fail_msg("not said: %s\n%s%s", says[i], SPAWN_OUT(&s), SPAWN_ERR(&s));
    }
    if (says == NULL && s.status != 0)
        fail_msg("%s with %d ranks: status %d\n%s%s", role, ranks, s.status, SPAWN_OUT(&s),
                 SPAWN_ERR(&s));
    spawn_free(&s);
    tri_store_unref(store);
}

static void two_ranks(void **state)
{
    (void)state;
    run_role("script", 2, NULL);
}

static void five_ranks(void **state)
{
    (void)state;
    run_role("script", 5, NULL);
}

static void every_dtype_and_op(void **state)
{
    (void)state;
    run_role("every_dtype", 3, NULL);
}

static void messages_come_from_anybody(void **state)
{
    (void)state;
    run_role("messages", 4, NULL);
}

static void groups_work_beside_each_other(void **state)
{
    (void)state;
    run_role("groups", 3, NULL);
}

static void calls_that_differ_are_named(void **state)
{
    (void)state;
    run_role("compared", 3, NULL);
}

static void a_group_is_left_though_a_handle_remains(void **state)
{
    (void)state;
    run_role("leaves", 2, NULL);
}

static void groups_come_and_go(void **state)
{
    (void)state;
    run_role("many", 2, NULL);
}

static void a_deadline_ends_the_wait(void **state)
{
    (void)state;
    run_role("deadline", 2, (const char *const[]){"rank 0 is through", "rank 1 is through", NULL});
}

static void a_rank_that_goes_without_a_word_ends_the_job(void **state)
{
    (void)state;
    run_role("forgets", 2, (const char *const[]){"rank 1 goes", NULL});
}

static void threads_are_refused(void **state)
{
    (void)state;
    run_role("threads", 1, NULL);
}

static void the_mpi_engine_without_mpirun_is_refused(void **state)
{
    tri_group_options options = {.engine = getenv("TRI_TEST_ENGINE"), .timeout_ms = 20000};
    tri_group *group = NULL;
    tri_store *store = NULL;

    (void)state;
    CHECK_OK(tri_store_hash(&store));
    assert_true(tri_engine_is_available(options.engine));
    CHECK_FAILS(tri_group_create(store, 0, 1, &options, &group), TRI_ERR_UNSUPPORTED,
                "this process was not started by mpirun or srun");
    tri_store_unref(store);
}

/* A program that knows nothing of MPI, under mpirun, by a setting: what it prints has the same
 * numbers as under trirun in shared memory. */
static void a_program_gives_the_same_bits(void **state)
{
    char engine[40];
    const char *env[] = {engine, NULL};
    char *line, *end;
    spawn mpi, shm;
    int n = 0;

    (void)state;
    snprintf(engine, sizeof(engine), "TRI_ENGINE=%s", getenv("TRI_TEST_ENGINE"));
    run_mpi(&mpi, 2, spawn_bin("plain_mlp"), env);
    if (mpi.status != 0)
        fail_msg("plain_mlp: %s%s", SPAWN_OUT(&mpi), SPAWN_ERR(&mpi));
    spawn_start(&shm,
                (const char *const[]){spawn_bin("trirun"), "--standalone", "--nproc-per-node", "2",
                                      spawn_bin("plain_mlp"), NULL},
                NULL);
    assert_int_equal(spawn_wait(&shm), 0);
    /* Ranks print in any order. */
    for (line = SPAWN_OUT(&shm); *line != '\0'; line = end + 1, n++) {
        end = strchr(line, '\n');
        assert_non_null(end);
        *end = '\0';
        if (strstr(SPAWN_OUT(&mpi), line) == NULL)
            fail_msg("not printed: %s\n%s", line, SPAWN_OUT(&mpi));
    }
    assert_true(n > 4);
    spawn_free(&mpi);
    spawn_free(&shm);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(two_ranks),
    cmocka_unit_test(five_ranks),
    cmocka_unit_test(every_dtype_and_op),
    cmocka_unit_test(messages_come_from_anybody),
    cmocka_unit_test(groups_work_beside_each_other),
    cmocka_unit_test(groups_come_and_go),
    cmocka_unit_test(a_group_is_left_though_a_handle_remains),
    cmocka_unit_test(calls_that_differ_are_named),
    cmocka_unit_test(a_deadline_ends_the_wait),
    cmocka_unit_test(a_rank_that_goes_without_a_word_ends_the_job),
    cmocka_unit_test(threads_are_refused),
    cmocka_unit_test(the_mpi_engine_without_mpirun_is_refused),
    cmocka_unit_test(a_program_gives_the_same_bits),
};

int main(int argc, char **argv)
{
    const char *role = getenv("TRI_TEST_ROLE");

    return role != NULL ? rank_main(role)
                        : test_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
