/*
 * patience_test.c - what counts against the deadline of a call: the time that its caller waits for
 * it, however often it begins to, and never the time that it computes.
 */
#include "testing/check.h"
#include "testing/ranks.h"

#include "base/alloc.h"
#include "os/clock.h"

enum { COUNT = 1 << 18 };

static int timeout_ms = 200;

/* As a training step does between posting a call and asking for it. */
static void compute(int ms)
{
    int64_t end_ns = trii_deadline_ms(ms);

    while (trii_now_ns() < end_ns)
        ;
}

static const char *join(rank_env *env, tri_group **group_out)
{
    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, group_out));
    RANK_TRY(env, tri_barrier(*group_out, NULL));
    tri_group_set_timeout(*group_out, timeout_ms);
    return NULL;
}

static const char *post_and_compute(rank_env *env, tri_group *g, float *x, tri_work **work_out)
{
    tri_work *work;

    RANK_TRY(env, tri_all_reduce(g, x, x, COUNT, TRI_DTYPE_F32, TRI_REDOP_SUM, work_out));
    work = *work_out;
    for (int i = 0; i < 2; i++) {
        tri_status st;

        compute(timeout_ms * 3 / 4);
        st = env->rank == 1 ? tri_work_test(work) : TRI_OK;
        if (st < 0)
            return RANK_FAIL(env, "rank 1 looked: %s", tri_last_error());
    }
    RANK_TRY(env, ranks_meet(env, "computed", -1));
    RANK_TRY(env, tri_work_wait(work, 0));
    if (x[COUNT - 1] != (float)(env->size * (env->size + 1) / 2))
        return RANK_FAIL(env, "a sum of %g", (double)x[COUNT - 1]);
    return NULL;
}

/* All post, all compute for longer than the deadline, and then ask, some by a look in between. */
static const char *computes_long(rank_env *env)
{
    float *x = calloc(COUNT, sizeof(*x));
    tri_work *work = NULL;
    tri_group *g = NULL;
    const char *failure = join(env, &g);

    x[COUNT - 1] = (float)(env->rank + 1);
    if (failure == NULL)
        failure = post_and_compute(env, g, x, &work);
    tri_work_destroy(work);
    tri_group_unref(g);
    free(x);
    return failure;
}

/* A rank may be off its core for as long as the deadline when the others wait: then all have longer
 * ones, and compute longer. */
static void run_on_all(const char *(*main)(rank_env *env))
{
    static const char *const engines[] = {"shm", "tcp", "hierarchy"};
    char failure[RANKS_TEXT];

    setenv("TRI_HOSTS", "0,0,1", 1);
    for (int e = 0; e < 3; e++) {
        tri_group_options options = {.engine = engines[e], .timeout_ms = 20000};

        timeout_ms = 200;
        while (!ranks_run(3, &options, main, NULL, failure)) {
            print_message("%d ms: %s\n", timeout_ms, failure);
            timeout_ms *= 2;
            if (timeout_ms > 2000)
                fail_msg("%s", failure);
        }
        assert_int_equal(trii_alloc_live(), 0);
    }
}

static void computing_for_long_is_no_waiting(void **state)
{
    (void)state;
    run_on_all(computes_long);
}

static const char *const given_up[1] = {"given up"};

/* Rank 0 computes, then waits for one that does not come: the line says how long it waited. */
static const char *waits_in_vain(rank_env *env)
{
    tri_work *work = NULL;
    tri_group *g = NULL;
    const char *failure = join(env, &g);
    double waited_s = 0;
    float x = 1;

    if (failure != NULL)
        return failure;
    if (env->rank == 0) {
        RANK_TRY(env, tri_all_reduce(g, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, &work));
        compute(timeout_ms * 3 / 2);
        RANK_FAILS(env, tri_work_wait(work, 0), TRI_ERR_GROUP_TIMEOUT, "rank");
        if (sscanf(strstr(tri_last_error(), "waited "), "waited %lf", &waited_s) != 1 ||
            waited_s < timeout_ms * 1e-3)
            return RANK_FAIL(env, "%s", tri_last_error());
        tri_work_destroy(work);
        RANK_TRY(env, tri_store_set(env->store, given_up[0], "", 0));
    }
    RANK_TRY(env, tri_store_wait(env->store, given_up, 1, 20000));
    tri_group_unref(g);
    return NULL;
}

static void the_line_says_how_long_was_waited(void **state)
{
    (void)state;
    run_on_all(waits_in_vain);
}

/* Waits and looks that are short: in all they are as long as the deadline allows, not longer. */
static const char *waits_bit_by_bit(rank_env *env)
{
    bool looks = env->arg != NULL;
    tri_work *work = NULL;
    tri_group *g = NULL;
    const char *failure = join(env, &g);
    tri_status st = TRI_OK;
    int64_t begun_ns;
    float x = 1;

    if (failure != NULL)
        return failure;
    if (env->rank == 0) {
        RANK_TRY(env, tri_all_reduce(g, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, &work));
        compute(timeout_ms);
        begun_ns = trii_now_ns();
        while (st == TRI_OK || st == TRI_INPROGRESS || st == TRI_ERR_TIMEOUT)
            st = looks ? tri_work_test(work) : tri_work_wait(work, timeout_ms / 10);
        if (st != TRI_ERR_GROUP_TIMEOUT || trii_now_ns() - begun_ns < timeout_ms * TRII_NS_PER_MS)
            return RANK_FAIL(env, "%s", tri_last_error());
        RANK_FAILS(env, tri_barrier(g, NULL), TRI_ERR_GROUP_TIMEOUT, "rank 1");
        tri_work_destroy(work);
        RANK_TRY(env, tri_store_set(env->store, given_up[0], "", 0));
    }
    RANK_TRY(env, tri_store_wait(env->store, given_up, 1, 20000));
    tri_group_unref(g);
    return NULL;
}

static void short_waits_add_up_to_the_deadline(void **state)
{
    tri_group_options options = {.engine = "shm", .timeout_ms = 20000};

    (void)state;
    run_threads(2, &options, waits_bit_by_bit, NULL);
    assert_int_equal(trii_alloc_live(), 0);
}

static void looks_add_up_to_the_deadline(void **state)
{
    tri_group_options options = {.engine = "shm", .timeout_ms = 20000};

    (void)state;
    run_threads(2, &options, waits_bit_by_bit, &options);
    assert_int_equal(trii_alloc_live(), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(computing_for_long_is_no_waiting),
    cmocka_unit_test(the_line_says_how_long_was_waited),
    cmocka_unit_test(short_waits_add_up_to_the_deadline),
    cmocka_unit_test(looks_add_up_to_the_deadline),
};

TEST_MAIN(tests)
