/*
 * forked_child_test.c - a child of fork that ends as programs end, by exit and what stands in
 * atexit, does its parent's groups no harm, is refused calls on them, and may make new ones.
 */
#include <sys/wait.h>

#include "testing/check.h"
#include "testing/ranks.h"
#include "testing/scratch.h"

static const tri_group_options shm_options = {.engine = "shm", .timeout_ms = 20000};
static const tri_group_options tcp_options = {.engine = "tcp", .timeout_ms = 20000};

/* The child leaves what it inherited: as it is, or after giving up. */
static const char *a_child_leaves(rank_env *env, tri_group *group, bool aborts)
{
    int status = -1;
    pid_t child = fork();

    if (child == 0) {
        alarm(20);
        if (aborts) {
            tri_group_abort(NULL, "the child's own affair");
            tri_group_abort(group, "the child's own affair");
        }
        tri_group_unref(group);
        tri_finalize();
        _exit(tri_is_initialized() || tri_world_size() != 1);
    }
    if (waitpid(child, &status, 0) != child || status != 0)
        return RANK_FAIL(env, "the child ended with %#x", (unsigned)status);
    return NULL;
}

static bool is_refused(tri_status status)
{
    return status == TRI_ERR_STATE && strstr(tri_last_error(), "was forked from it") != NULL;
}

/* A message that the parent awaits: a child does not wait for it, nor call in its place. */
static const char *a_child_calls(rank_env *env, tri_group *group)
{
    float x = 1.0f, y = 1.0f;
    tri_work *work = NULL;
    int status = -1;
    pid_t child;

    RANK_TRY(env, tri_recv(group, &x, 1, TRI_DTYPE_F32, 0, 0, &work));
    child = fork();
    if (child == 0) {
        alarm(20);
        _exit(!(is_refused(tri_work_wait(work, 100)) && is_refused(tri_work_test(work)) &&
                is_refused(tri_all_reduce(group, &y, &y, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL)) &&
                is_refused(tri_barrier(NULL, NULL)) && is_refused(tri_group_batch_begin(NULL))));
    }
    if (waitpid(child, &status, 0) != child || status != 0)
        return RANK_FAIL(env, "the child ended with %#x", (unsigned)status);
    RANK_TRY(env, ranks_meet(env, "called", -1)); /* rank 0 may send now */
    RANK_TRY(env, tri_work_wait(work, 0));
    tri_work_destroy(work);
    return x == 7.0f ? NULL : RANK_FAIL(env, "received %g", (double)x);
}

static const char *children_call(rank_env *env)
{
    tri_init_options opt = {.group = *env->options};
    const char *failure = NULL;
    tri_group *group = NULL;
    float x = 7.0f;
    char url[256];

    snprintf(url, sizeof(url), "file://%s?rank=%d&world_size=%d", (const char *)env->arg, env->rank,
             env->size);
    opt.url = url;
    RANK_TRY(env, tri_init(&opt));
    RANK_TRY(env, tri_group_split(NULL, 0, 0, NULL, &group));
    if (env->rank == 1)
        failure = a_child_calls(env, group);
    else
        RANK_TRY(env, ranks_meet(env, "called", -1));
    if (env->rank == 0)
        RANK_TRY(env, tri_send(group, &x, 1, TRI_DTYPE_F32, 1, 0, NULL));
    RANK_TRY(env, tri_barrier(group, NULL));
    tri_group_unref(group);
    tri_finalize();
    return failure;
}

/* A group of one has no peers: a child may go on with it. */
static void a_child_goes_on_with_a_world_of_one(void **state)
{
    int status = -1;
    float x = 3.0f;
    pid_t child;

    (void)state;
    CHECK_OK(tri_init(NULL));
    child = fork();
    if (child == 0) {
        alarm(20);
        _exit(tri_all_reduce(NULL, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL) != TRI_OK ||
              x != 3.0f);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    tri_finalize();
}

static const char *children_leave(rank_env *env)
{
    tri_init_options opt = {.group = *env->options};
    const char *failure = NULL;
    tri_group *group = NULL;
    char url[256];

    snprintf(url, sizeof(url), "file://%s?rank=%d&world_size=%d", (const char *)env->arg, env->rank,
             env->size);
    opt.url = url;
    RANK_TRY(env, tri_init(&opt));
    RANK_TRY(env, tri_group_split(NULL, 0, 0, NULL, &group));
    for (int round = 0; round < 2 && failure == NULL; round++) {
        float x = 1.0f;

        /* The others wait for rank 1 meanwhile. */
        for (int i = 0; i < 20 && env->rank == 1 && failure == NULL; i++)
            failure = a_child_leaves(env, group, round == 1);
        RANK_TRY(env, tri_all_reduce(NULL, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL));
        RANK_TRY(env, tri_all_reduce(group, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL));
        if (failure == NULL && x != (float)(env->size * env->size))
            failure = RANK_FAIL(env, "sum %g", (double)x);
    }
    tri_group_unref(group);
    tri_finalize();
    return failure;
}

static void run(const tri_group_options *options, const char *(*rank)(rank_env *env))
{
    rank_end ends[] = {{0}, {0}, {0}};
    char path[192];
    scratch s;

    scratch_begin(&s);
    snprintf(path, sizeof(path), "%s", scratch_path(&s, "world"));
    run_processes(3, options, rank, path, ends, 30);
    scratch_end(&s);
}

static void a_child_that_exits_does_not_leave_for_its_parent(void **state)
{
    (void)state;
    run(&shm_options, children_leave);
}

static void a_child_that_exits_does_not_leave_for_its_parent_over_tcp(void **state)
{
    (void)state;
    run(&tcp_options, children_leave);
}

static void a_child_may_not_call_for_its_parent(void **state)
{
    (void)state;
    run(&shm_options, children_call);
    run(&tcp_options, children_call);
}

/* --- a child of a process with a control thread --------------------------- */

/* A store of the child's own, in place of the one that its parent serves. */
static int serve_in_child(tri_store *inherited)
{
    const tri_store_tcp_options serve = {.serve = true};
    tri_store *own = NULL, *client = NULL;
    int64_t n = 0;
    bool good;

    alarm(20);
    if (TEST_TSAN) { /* its runtime ends a child whose thread gets the place of the parent's */
        tri_store_unref(inherited);
        return 0;
    }
    good = tri_store_tcp("127.0.0.1", 0, &serve, &own) == TRI_OK &&
           tri_store_tcp("127.0.0.1", tri_store_port(own), NULL, &client) == TRI_OK &&
           tri_store_add(client, "n", 1, &n) == TRI_OK;
    tri_store_unref(inherited);
    good = good && tri_store_add(client, "n", 1, &n) == TRI_OK && n == 2;
    tri_store_unref(client);
    tri_store_unref(own);
    return good ? 0 : 1;
}

static void a_child_serves_a_store_of_its_own(void **state)
{
    const tri_store_tcp_options serve = {.serve = true};
    tri_store *store = NULL;
    int64_t n = 0;

    (void)state;
    CHECK_OK(tri_store_tcp("127.0.0.1", 0, &serve, &store));
    for (int i = 1; i <= 5; i++) {
        int status = -1;
        pid_t child = fork();

        if (child == 0)
            _exit(serve_in_child(store));
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        CHECK_OK(tri_store_add(store, "n", 1, &n));
        assert_int_equal(n, i);
    }
    tri_store_unref(store);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_child_that_exits_does_not_leave_for_its_parent),
    cmocka_unit_test(a_child_that_exits_does_not_leave_for_its_parent_over_tcp),
    cmocka_unit_test(a_child_goes_on_with_a_world_of_one),
    cmocka_unit_test(a_child_may_not_call_for_its_parent),
    cmocka_unit_test(a_child_serves_a_store_of_its_own),
};

TEST_MAIN(tests)
