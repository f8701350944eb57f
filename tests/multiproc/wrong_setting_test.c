/*
 * wrong_setting_test.c - a setting that one rank alone has wrong: the others hear of it, instead of
 * waiting for that rank until their deadline, which is minutes away.
 */
#include <trireme/comm.h>

#include "testing/check.h"
#include "testing/ranks.h"
#include "testing/spawn.h"

enum { SIZE = 3 };

static const char *own_path; /* of this program */

static int worker(void)
{
    tri_status status = tri_init(NULL);

    if (status != TRI_OK)
        fprintf(stderr, "worker: %s: %s\n", tri_status_name(status), tri_last_error());
    tri_finalize();
    return status == TRI_OK ? 0 : 3;
}

/* Started by hand, rank `odd` with `setting`; of each the line contains `what`. */
static void check_all_hear(int odd, const char *setting, const char *what)
{
    const char *const argv[] = {own_path, "worker", NULL};
    char rank[32], port[32];
    spawn s[SIZE];

    snprintf(port, sizeof(port), "MASTER_PORT=%d", spawn_free_port());
    for (int r = 0; r < SIZE; r++) {
        const char *const env[] = {rank,
                                   port,
                                   "WORLD_SIZE=3",
                                   "MASTER_ADDR=127.0.0.1",
                                   r == odd ? setting : "TRI_ENGINE",
                                   "LOCAL_RANK",
                                   "LOCAL_WORLD_SIZE",
                                   NULL};

        snprintf(rank, sizeof(rank), "RANK=%d", r);
        spawn_start(&s[r], argv, env);
    }
    for (int r = 0; r < SIZE; r++) {
        char theirs[160];

        assert_int_equal(spawn_wait(&s[r]), 3);
        snprintf(theirs, sizeof(theirs), "rank %d: ", odd);
        if (strstr(SPAWN_ERR(&s[r]), what) == NULL ||
            (r != odd && strstr(SPAWN_ERR(&s[r]), theirs) == NULL))
            fail_msg("rank %d: %s", r, SPAWN_ERR(&s[r]));
        spawn_free(&s[r]);
    }
}

static void a_number_that_is_none_is_heard_by_all(void **state)
{
    (void)state;
    for (int odd = 0; odd < SIZE; odd += 2)
        check_all_hear(odd, "TRI_TIMEOUT_MS=soon", "TRI_TIMEOUT_MS");
}

static void an_engine_that_does_not_exist_is_heard_by_all(void **state)
{
    (void)state;
    check_all_hear(0, "TRI_ENGINE=bogus", "bogus");
    check_all_hear(1, "TRI_ENGINE=shm,all_reduce:tcp", "a group has one engine");
}

/* arg: what the others ask for; the last rank asks for what there is not. */
static const char *one_asks_for_nothing(rank_env *env)
{
    const bool odd = env->rank + 1 == env->size;
    tri_group_options options = {.engine = odd ? "bogus" : env->arg};
    tri_group *group = NULL;

    RANK_FAILS(env, tri_group_create(env->store, env->rank, env->size, &options, &group),
               TRI_ERR_UNSUPPORTED, "bogus");
    options.engine = env->arg; /* and the next one forms */
    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, &options, &group));
    RANK_TRY(env, tri_barrier(group, NULL));
    tri_group_unref(group);
    return NULL;
}

static void whatever_the_others_ask_for(void **state)
{
    static const char *const engines[] = {NULL, "shm", "tcp", "cpu:tcp"};

    (void)state;
    for (size_t i = 0; i < sizeof(engines) / sizeof(engines[0]); i++) {
        for (int size = 2; size <= 3; size++)
            run_processes(size, NULL, one_asks_for_nothing, (void *)(uintptr_t)engines[i], NULL,
                          20);
    }
}

typedef struct engines {
    const char *of_one, *of_the_others;
    int one, status;
    const char *what;
} engines;

static const char *one_has_another_engine(rank_env *env)
{
    const engines *e = env->arg;
    tri_group_options options = {.engine = env->rank == e->one ? e->of_one : e->of_the_others};
    tri_group *group = NULL;

    RANK_FAILS(env, tri_group_create(env->store, env->rank, env->size, &options, &group), e->status,
               e->what);
    return NULL;
}

/* Each would wait for the others where these do not come. */
static void of_ranks_with_different_engines_two_are_named(void **state)
{
    static const engines cases[] = {
        {"shm", "tcp", 0, TRI_ERR_INVALID_ARG, "rank 0 has engine shm, rank "},
        {"tcp", NULL, 0, TRI_ERR_INVALID_ARG, "rank 0 has engine tcp, rank "},
        {"tcp", "shm", 1, TRI_ERR_INVALID_ARG, "rank 0 has engine shm, rank 1 has engine tcp"},
        {"tcp", NULL, 1, TRI_ERR_INVALID_ARG, "rank 0 has engine shm, rank 1 has engine tcp"},
        {"self", "tcp", 1, TRI_ERR_UNSUPPORTED, "engine self: a group of "}};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (int size = 2; size <= 3; size++)
            run_processes(size, NULL, one_has_another_engine, (void *)(uintptr_t)&cases[i], NULL,
                          20);
    }
}

static const char *one_pretends(rank_env *env)
{
    const bool odd = env->rank == *(const int *)env->arg;
    tri_group *group = NULL;

    if (odd)
        setenv("TRI_HOSTS", env->size == 2 ? "a,b" : "a,b,b", 1);
    RANK_FAILS(env, tri_group_create(env->store, env->rank, env->size, NULL, &group),
               TRI_ERR_INVALID_ARG, "the ranks want different groups: rank 0 has engine ");
    return NULL;
}

/* They pass over different engines. */
static void hosts_that_one_alone_pretends_are_heard_by_all(void **state)
{
    (void)state;
    for (int odd = 0; odd < 2; odd++) {
        for (int size = 2; size <= 3; size++)
            run_processes(size, NULL, one_pretends, &odd, NULL, 20);
    }
}

static const char *one_names_what_the_other_finds(rank_env *env)
{
    tri_group_options options = {.engine = env->rank == 0 ? "tcp" : NULL};
    tri_group *group = NULL;

    setenv("TRI_HOSTS", "a,b", 1);
    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, &options, &group));
    RANK_TRY(env, tri_barrier(group, NULL));
    tri_group_unref(group);
    return NULL;
}

static void the_first_that_may_serve_is_met_by_its_name(void **state)
{
    (void)state;
    run_processes(2, NULL, one_names_what_the_other_finds, NULL, NULL, 20);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_number_that_is_none_is_heard_by_all),
    cmocka_unit_test(an_engine_that_does_not_exist_is_heard_by_all),
    cmocka_unit_test(whatever_the_others_ask_for),
    cmocka_unit_test(of_ranks_with_different_engines_two_are_named),
    cmocka_unit_test(hosts_that_one_alone_pretends_are_heard_by_all),
    cmocka_unit_test(the_first_that_may_serve_is_met_by_its_name),
};

int main(int argc, char **argv)
{
    own_path = argv[0];
    if (argc > 1 && strcmp(argv[1], "worker") == 0)
        return worker();
    return test_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
