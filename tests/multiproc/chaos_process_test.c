/*
 * chaos_process_test.c - what TRI_CHAOS does to real ranks ends as it should: delays change
 * nothing, a killed rank is named by the others, a broken or half-closed connection ends the
 * group on all ranks, and nothing ever hangs.
 */
#include "testing/check.h"
#include "testing/ranks.h"
#include "testing/spawn.h"

static int n_calls = 2000;

/* All calls right, or the group ends with a failure that is the group's: then it says so again. */
static const char *calls_until_the_end(rank_env *env)
{
    tri_group *group = NULL;
    tri_status status = TRI_OK;
    int32_t x[300];

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    RANK_TRY(env, ranks_meet(env, "formed", -1)); /* the first call may be struck */
    for (int i = 0; i < n_calls && status == TRI_OK; i++) {
        for (int k = 0; k < 300; k++)
            x[k] = env->rank + i + k;
        status = tri_all_reduce(group, x, x, 300, TRI_DTYPE_I32, TRI_REDOP_SUM, NULL);
        for (int k = 0; k < 300 && status == TRI_OK; k++) {
            if (x[k] != env->size * (env->size - 1) / 2 + env->size * (i + k))
                return RANK_FAIL(env, "rank %d: wrong sum in call %d", env->rank, i);
        }
    }
    if (status != TRI_OK) {
        if (status != TRI_ERR_PEER_LOST && status != TRI_ERR_ABORTED)
            return RANK_FAIL(env, "rank %d: %s: %s", env->rank, tri_status_name(status),
                             tri_last_error());
        if (tri_barrier(group, NULL) != status)
            return RANK_FAIL(env, "rank %d: the group still works after %s", env->rank,
                             tri_status_name(status));
        if (env->arg != NULL)
            status = TRI_OK;
    }
    tri_group_unref(group);
    return status == TRI_OK ? NULL : RANK_FAIL(env, "rank %d: %s", env->rank, tri_last_error());
}

static const char *const engines[] = {"shm", "tcp"};

static void run(const char *chaos, bool may_fail, const rank_end *ends)
{
    for (int e = 0; e < 2; e++) {
        tri_group_options options = {.engine = engines[e], .timeout_ms = 20000};

        setenv("TRI_CHAOS", chaos, 1);
        setenv("TRI_LOG", "error", 1);
        run_processes(3, &options, calls_until_the_end, may_fail ? &may_fail : NULL, ends, 40);
    }
}

static void delays_change_nothing(void **state)
{
    (void)state;
    n_calls = 400;
    run("seed=3,delay=0.2:3", false, NULL);
    n_calls = 2000;
}

static void a_killed_rank_ends_the_others(void **state)
{
    static const rank_end ends[] = {{0}, {.signal = SIGKILL}, {0}};

    (void)state;
    n_calls = 100000000; /* until the death ends them: it may strike late on a loaded machine */
    for (int seed = 0; seed < 8; seed++) {
        char text[64];

        snprintf(text, sizeof(text), "seed=%d,kill=@%d,rank=1", seed, 1 + 7 * seed);
        run(text, true, ends);
    }
    n_calls = 2000;
}

static void a_broken_connection_ends_the_group(void **state)
{
    (void)state;
    for (int seed = 0; seed < 6; seed++) {
        char text[64];

        snprintf(text, sizeof(text), "seed=%d,%s=@%d,rank=%d", seed, seed % 2 ? "half" : "drop",
                 1 + 9 * seed, seed % 3);
        run(text, true, NULL);
    }
}

static void faults_everywhere_never_hang(void **state)
{
    (void)state;
    for (int seed = 100; seed < 108; seed++) {
        char text[96];

        snprintf(text, sizeof(text), "seed=%d,delay=0.05:2,drop=0.01,half=0.01", seed);
        run(text, true, NULL);
    }
}

/* As a user meets it: a job under trirun is struck, fails, and `trireme why` names the rank. */
static void a_struck_job_is_explained(void **state)
{
    char folder[64], runtime[96];
    const char *env[] = {"TRI_CHAOS=seed=5,kill=@7,rank=1", runtime, "TRI_RUN_DIR", "TRI_LOG",
                         NULL};
    spawn s;

    (void)state;
    spawn_make_folder(folder, sizeof(folder));
    snprintf(runtime, sizeof(runtime), "XDG_RUNTIME_DIR=%s", folder);
    spawn_start(&s,
                (const char *const[]){spawn_bin("trirun"), "--standalone", "--nproc-per-node", "2",
                                      spawn_bin("plain_mlp"), NULL},
                env);
    if (spawn_wait(&s) != 1)
        fail_msg("the job was not struck: %s%s", SPAWN_OUT(&s), SPAWN_ERR(&s));
    assert_non_null(
        strstr(SPAWN_ERR(&s), "chaos: kill of rank 1 at its call 7, all_reduce (seed 5"));
    assert_non_null(strstr(SPAWN_ERR(&s), "SIGKILL"));
    spawn_expect_no_process(&s);
    spawn_free(&s);

    spawn_start(&s, (const char *const[]){spawn_bin("trireme"), "why", NULL}, env);
    assert_int_equal(spawn_wait(&s), 0);
    if (strstr(SPAWN_OUT(&s), "\nrank 1 (pid ") == NULL ||
        strstr(SPAWN_OUT(&s), "was killed by SIGKILL: the first failure; it was in ") == NULL)
        fail_msg("no verdict: %s", SPAWN_OUT(&s));
    spawn_free(&s);
    spawn_remove_folder(folder);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(delays_change_nothing),
    cmocka_unit_test(a_killed_rank_ends_the_others),
    cmocka_unit_test(a_broken_connection_ends_the_group),
    cmocka_unit_test(faults_everywhere_never_hang),
    cmocka_unit_test(a_struck_job_is_explained),
};

TEST_MAIN(tests)
