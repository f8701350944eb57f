/* traffic_store_test.c - TRI_CHECK=order and a store that ends, or does not answer any more: steps
 * say so, peers too, and a deadline stays what it is. */
#include <trireme/trireme.h>

#include "base/compiler.h"
#include "testing/traffic_calls.h"

/* --- a store in a process of its own -------------------------------------- */

typedef struct served {
    pid_t pid;
    int port;
} served;

static void serve(served *s)
{
    tri_store *store = NULL;
    int tell[2];

    assert_int_equal(pipe(tell), 0);
    s->pid = fork();
    assert_true(s->pid >= 0);
    if (s->pid == 0) {
        alarm(60);
        if (tri_store_tcp("127.0.0.1", 0, &(tri_store_tcp_options){.serve = true}, &store) ==
            TRI_OK) {
            int port = tri_store_port(store);

            if (write(tell[1], &port, sizeof(port)) == (ssize_t)sizeof(port))
                pause();
        }
        _exit(1);
    }
    assert_int_equal(read(tell[0], &s->port, sizeof(s->port)), sizeof(s->port));
    close(tell[0]);
    close(tell[1]);
}

static void end(const served *s)
{
    assert_int_equal(kill(s->pid, SIGKILL), 0);
    assert_int_equal(waitpid(s->pid, NULL, 0), s->pid);
}

static tri_status join(rank_env *env, tri_store **store_out, tri_group **group_out)
{
    const served *s = env->arg;
    tri_status status = tri_store_tcp("127.0.0.1", s->port, NULL, store_out);

    return status == TRI_OK
               ? tri_group_create(*store_out, env->rank, env->size, env->options, group_out)
               : status;
}

/* --- it ends -------------------------------------------------------------- */

/* Only what rank 0 does still needs it. */
static const char *rank_whose_store_ends(rank_env *env)
{
    const served *s = env->arg;
    tri_store *store = NULL;
    tri_group *group = NULL;
    tri_tensor *x = filled(4, env->rank, 1);
    tri_status status;

    RANK_TRY(env, join(env, &store, &group));
    (void)tri_keep(collective(ALL_REDUCE, group, x));
    RANK_TRY(env, tri_step_end_status());
    RANK_TRY(env, ranks_meet(env, "summed", -1));
    if (env->rank == 0 && kill(s->pid, SIGKILL) != 0)
        return RANK_FAIL(env, "kill");
    RANK_TRY(env, ranks_meet(env, "killed", -1));
    (void)tri_keep(collective(ALL_REDUCE, group, x));
    (void)tri_keep(env->rank == 0 ? send_to(group, x, 1, 7)
                                  : recv_from(group, TRI_DTYPE_F64, 2, 2, false, 0, 7));
    status = tri_step_end_status();
    if ((status != TRI_ERR_IO && status != TRI_ERR_ABORTED) ||
        strstr(tri_last_error(), "TRI_CHECK=order, operation 2 of group ") == NULL)
        return RANK_FAIL(env, "rank %d: %s: %s", env->rank, tri_status_name(status),
                         tri_last_error());
    RANK_TRY(env, ranks_meet(env, "heard", -1));
    tri_tensor_unref(x);
    tri_group_unref(group);
    tri_store_unref(store);
    return NULL;
}

static void a_store_that_ends_is_named_on_all_ranks(void **state)
{
    (void)state;
    setenv("TRI_CHECK", "order", 1);
    for (int e = 0; e < 2; e++) {
        served s;

        serve(&s);
        run_threads(2, &engines[e], rank_whose_store_ends, &s);
        assert_int_equal(waitpid(s.pid, NULL, 0), s.pid);
    }
    unsetenv("TRI_CHECK");
}

/* --- it does not answer --------------------------------------------------- */

static bool has_begun(tri_store *store)
{
    char **keys = NULL;
    int64_t n = 0;
    bool found = false;

    if (tri_store_list_keys(store, &keys, &n) != TRI_OK)
        return true;
    for (int64_t i = 0; i < n; i++)
        found = found || strstr(keys[i], "/tag 4/1") != NULL;
    tri_store_free(keys);
    return found;
}

/* Rank 0 stops it once rank 1 waits for a message. */
static const char *rank_whose_store_stops(rank_env *env)
{
    const served *s = env->arg;
    tri_store *store = NULL;
    tri_group *group = NULL;

    RANK_TRY(env, join(env, &store, &group));
    if (env->rank == 0) {
        while (!has_begun(store))
            ;
        if (kill(s->pid, SIGSTOP) != 0)
            return RANK_FAIL(env, "kill");
    } else {
        tri_group_set_timeout(group, 500);
        (void)tri_keep(recv_from(group, TRI_DTYPE_F64, 1, 2, false, 0, 4));
        RANK_FAILS(env, tri_step_end_status(), TRI_ERR_GROUP_TIMEOUT, "recv #1 of 2 f64");
    }
    RANK_TRY(env, ranks_meet(env, "missed", -1));
    tri_group_unref(group);
    tri_store_unref(store);
    return NULL;
}

static void a_deadline_does_not_wait_for_a_store_that_is_silent(void **state)
{
    served s;

    (void)state;
    setenv("TRI_CHECK", "order", 1);
    serve(&s);
    run_threads(2, &engines[0], rank_whose_store_stops, &s);
    end(&s);
    unsetenv("TRI_CHECK");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_store_that_ends_is_named_on_all_ranks),
    cmocka_unit_test(a_deadline_does_not_wait_for_a_store_that_is_silent),
};

TEST_MAIN(tests)
