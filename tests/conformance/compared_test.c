/*
 * compared_test.c - engines whose calls the group compares: as for plug-ins, here with those of the
 * library.
 */
#include "conformance/compared.h"

#include "base/alloc.h"
#include "os/clock.h"
#include "os/thread.h"

static const size_t counts[] = {0, 1, 23, 4099, SIZE_MAX};
static const tri_dtype few_dtypes[] = {TRI_DTYPE_F32, TRI_DTYPE_BF16, TRI_DTYPE_NONE};
static const char *const engines[] = {"tcp", "shm"};

static void on(const char *engine, int size, const char *(*main)(rank_env *env), void *arg)
{
    tri_group_options options = {.engine = engine, .timeout_ms = 40000};

    setenv("TRI_CHECK_CALLS", "all", 1);
    run_threads(size, &options, main, arg);
    assert_int_equal(trii_alloc_live(), 0);
}

static void on_all(int size, const char *(*main)(rank_env *env), void *arg)
{
    for (size_t e = 0; e < TRII_COUNT_OF(engines); e++)
        on(engines[e], size, main, arg);
}

static void calls_are_what_they_were(void **state)
{
    script what = {.counts = counts, .dtypes = few_dtypes};

    (void)state;
    on_all(2, run_script, &what);
    on_all(5, run_script, &what);
}

/* Comparisons are calls of several engines there. */
static void hosts_compare_too(void **state)
{
    script what = {.counts = counts, .dtypes = few_dtypes};
    static const char *const hosts[] = {"a,a,b", "a,b,b"};

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(hosts); i++) {
        setenv("TRI_HOSTS", hosts[i], 1);
        on("hierarchy", 3, run_script, &what);
        on("hierarchy", 3, compared_sides, NULL);
    }
}

static void calls_that_differ_are_named(void **state)
{
    (void)state;
    on_all(3, compared_sides, NULL);
}

static void messages_that_differ_are_named(void **state)
{
    (void)state;
    on_all(2, compared_message, NULL);
}

static void messages_come_from_anybody(void **state)
{
    (void)state;
    on_all(4, compared_anybody, NULL);
}

static void who_is_late_is_named(void **state)
{
    (void)state;
    on_all(3, compared_late, NULL);
}

static const char *one_dies(rank_env *env)
{
    tri_group *g = NULL;
    float *x = calloc(1 << 12, sizeof(*x));
    tri_work *work = NULL;
    tri_status st = TRI_OK;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    RANK_TRY(env, tri_recv(g, x, 1, TRI_DTYPE_F32, (env->rank + 1) % env->size, 9, &work));
    for (int i = 0; i < 1000 && st == TRI_OK; i++) {
        if (env->rank == 2 && i == 20)
            raise(SIGKILL);
        st = tri_all_reduce(g, x, x, 1 << (i % 12), TRI_DTYPE_F32, TRI_REDOP_SUM, NULL);
    }
    if (st != TRI_ERR_PEER_LOST && st != TRI_ERR_ABORTED)
        return RANK_FAIL(env, "rank %d: %s: %s", env->rank, tri_status_name(st), tri_last_error());
    if (tri_work_wait(work, 0) >= 0)
        return RANK_FAIL(env, "rank %d: the receive goes on", env->rank);
    tri_work_destroy(work);
    tri_group_unref(g);
    free(x);
    return NULL;
}

static void a_dead_rank_ends_all_calls(void **state)
{
    tri_group_options options = {.engine = "tcp", .timeout_ms = 20000};
    rank_end ends[3] = {{0, 0}, {0, 0}, {0, SIGKILL}};

    (void)state;
    setenv("TRI_CHECK_CALLS", "all", 1);
    run_processes(3, &options, one_dies, NULL, ends, 15);
}

/* What may be posted without waiting may be posted in any order of groups and messages: nobody
 * waits for the others until it asks to. */
static const char *crossed_orders(rank_env *env)
{
    enum { CALLS = 20 };
    float x[2][CALLS], m = 0;
    tri_group *g[2] = {NULL, NULL};
    tri_work *works[2][CALLS];
    int first = env->rank % 2;

    for (int i = 0; i < 2; i++)
        RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g[i]));
    for (int half = 0; half < 2; half++) {
        int i = half == 0 ? first : !first;

        for (int k = 0; k < CALLS; k++) {
            x[i][k] = (float)(k + 1);
            RANK_TRY(env, tri_all_reduce(g[i], &x[i][k], &x[i][k], 1, TRI_DTYPE_F32,
                                         k % 2 == 0 ? TRI_REDOP_SUM : TRI_REDOP_MAX, &works[i][k]));
        }
        /* behind calls that the others have not posted */
        if (half == 0 && env->rank == 0)
            RANK_TRY(env, tri_send(g[0], &x[i][0], 1, TRI_DTYPE_F32, 1, 1, NULL));
        else if (half == 0 && env->rank == 1)
            RANK_TRY(env, tri_recv(g[0], &m, 1, TRI_DTYPE_F32, 0, 1, NULL));
    }
    for (int i = 0; i < 2; i++) { /* the last first */
        for (int k = CALLS - 1; k >= 0; k--) {
            float want = k % 2 == 0 ? (float)((k + 1) * env->size) : (float)(k + 1);

            RANK_TRY(env, tri_work_wait(works[i][k], 0));
            tri_work_destroy(works[i][k]);
            if (x[i][k] != want)
                return RANK_FAIL(env, "group %d, call %d: %g", i, k, (double)x[i][k]);
        }
        tri_group_unref(g[i]);
    }
    return NULL;
}

static void nobody_waits_for_the_others_while_posting(void **state)
{
    (void)state;
    on_all(2, crossed_orders, NULL);
    on_all(5, crossed_orders, NULL);
}

/* Only some of the ranks differ, in a call behind others that they have in common. */
static const char *the_third_differs(rank_env *env)
{
    float x[4] = {0};
    tri_group *g = NULL;
    tri_work *works[3];
    bool odd = env->rank == env->size - 1;
    tri_status status;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    for (int k = 0; k < 2; k++)
        RANK_TRY(env, tri_all_reduce(g, &x[k], &x[k], 1, TRI_DTYPE_F32, TRI_REDOP_SUM, &works[k]));
    status = odd ? tri_broadcast(g, x, 0, TRI_DTYPE_F32, 1, &works[2])
                 : tri_broadcast(g, x, 0, TRI_DTYPE_F32, 0, &works[2]);
    RANK_TRY(env, status);
    RANK_FAILS(env, tri_work_wait(works[2], 0), TRI_ERR_MISMATCH,
               "rank 0 calls broadcast #3 of 0 f32 from rank 0 (compared_test.c:");
    if (strstr(tri_last_error(), odd ? "; rank 3 calls broadcast #3 of 0 f32 from rank 1 "
                                     : "; rank 3 calls broadcast #3") == NULL)
        return RANK_FAIL(env, "rank %d: %s", env->rank, tri_last_error());
    RANK_FAILS(env, tri_barrier(g, NULL), TRI_ERR_MISMATCH, "the group has failed");
    for (int k = 0; k < 3; k++) {
        status = tri_work_wait(works[k], 0); /* over, well or not */
        if (status == TRI_INPROGRESS)
            return RANK_FAIL(env, "call %d goes on", k);
        tri_work_destroy(works[k]);
    }
    tri_group_unref(g);
    return NULL;
}

static void a_call_behind_others_is_named_by_its_number(void **state)
{
    (void)state;
    on_all(4, the_third_differs, NULL);
}

static const char *leaves_a_call(rank_env *env)
{
    float x = 1;
    tri_group *g = NULL;
    tri_work *works[2];

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    RANK_TRY(env, tri_barrier(g, NULL));
    if (env->rank == 0) {
        for (int i = 0; i < 2; i++) {
            RANK_TRY(env, tri_all_reduce(g, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, &works[i]));
            tri_work_destroy(works[i]);
        }
        RANK_TRY(env, tri_store_set(env->store, "posted", "", 0));
    } else {
        RANK_TRY(env, tri_store_wait(env->store, (const char *const[]){"posted"}, 1, 0));
    }
    tri_group_unref(g);
    return NULL;
}

static void a_group_is_left_with_calls_that_have_not_begun(void **state)
{
    (void)state;
    on_all(2, leaves_a_call, NULL);
}

/* A subgroup is compared for itself, and a world of one has nobody to compare with. */
static const char *in_parts(rank_env *env)
{
    float x = 1;
    tri_group *g = NULL, *half = NULL, *one = NULL;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    RANK_TRY(env, tri_group_split(g, env->rank % 2, 0, NULL, &half));
    if (env->rank % 2 == 0)
        RANK_TRY(env, tri_barrier(half, NULL));
    RANK_TRY(env, tri_all_reduce(half, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL));
    RANK_TRY(env, tri_group_split(g, env->rank, 0, NULL, &one));
    RANK_TRY(env, tri_all_reduce(one, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL));
    RANK_TRY(env, tri_barrier(g, NULL));
    if (x != (float)(env->size / 2))
        return RANK_FAIL(env, "rank %d: %g", env->rank, (double)x);
    tri_group_unref(one);
    tri_group_unref(half);
    tri_group_unref(g);
    return NULL;
}

static void subgroups_are_compared_for_themselves(void **state)
{
    (void)state;
    on_all(4, in_parts, NULL);
}

/* Of a rank, a thread has messages and waits for a call that the other thread has posted. */
typedef struct side {
    rank_env *env;
    tri_group *group;
    tri_work *work;
    tri_status status;
} side;

enum { TURNS = 200 };

static void exchange_messages(void *arg)
{
    side *s = arg;
    int peer = s->env->rank ^ 1;

    for (int i = 0; i < TURNS && s->status == TRI_OK; i++) {
        float out = (float)i, in = -1;
        tri_work *work = NULL;

        s->status = tri_recv(s->group, &in, 1, TRI_DTYPE_F32, peer, i, &work);
        if (s->status == TRI_OK)
            s->status = tri_send(s->group, &out, 1, TRI_DTYPE_F32, peer, i, NULL);
        if (s->status == TRI_OK)
            s->status = tri_work_wait(work, 0);
        tri_work_destroy(work);
        if (s->status == TRI_OK && in != out)
            s->status = TRI_ERR_FORMAT;
    }
    if (s->status == TRI_OK)
        s->status = tri_work_wait(s->work, 0);
}

static const char *two_threads(rank_env *env)
{
    float first = 1, x = 1;
    trii_thread thread;
    side s = {.env = env};

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &s.group));
    RANK_TRY(env,
             tri_all_reduce(s.group, &first, &first, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, &s.work));
    RANK_TRY(env, trii_thread_start(&thread, "messages", exchange_messages, &s));
    for (int i = 0; i < TURNS; i++) {
        x = 1;
        RANK_TRY(env, tri_all_reduce(s.group, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL));
    }
    trii_thread_join(&thread);
    RANK_TRY(env, s.status);
    if (first != (float)env->size || x != (float)env->size)
        return RANK_FAIL(env, "%g, %g", (double)first, (double)x);
    tri_work_destroy(s.work);
    tri_group_unref(s.group);
    return NULL;
}

static void threads_share_a_group(void **state)
{
    (void)state;
    on_all(2, two_threads, NULL);
    on_all(4, two_threads, NULL);
}

enum { WAITERS = 32, CROWD_CALLS = 40 };

typedef struct crowd {
    tri_work *works[CROWD_CALLS];
    atomic_int failed;
} crowd;

static void wait_for_all(void *arg)
{
    crowd *c = arg;

    for (int i = 0; i < CROWD_CALLS; i++)
        atomic_fetch_add(&c->failed, tri_work_wait(c->works[i], 0) != TRI_OK);
}

/* A step of a comparison begins when nobody looks at the one before it, so those who come back to
 * that one must not count. */
static const char *many_wait(rank_env *env)
{
    int64_t start_ns = trii_now_ns();
    float x[CROWD_CALLS] = {0};
    trii_thread threads[WAITERS];
    tri_group *g = NULL;
    crowd c = {.failed = 0};

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    for (int i = 0; i < CROWD_CALLS; i++)
        RANK_TRY(env,
                 tri_all_reduce(g, x + i, x + i, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, &c.works[i]));
    for (int i = 0; i < WAITERS; i++)
        RANK_TRY(env, trii_thread_start(&threads[i], "waits", wait_for_all, &c));
    for (int i = 0; i < WAITERS; i++)
        trii_thread_join(&threads[i]);
    for (int i = 0; i < CROWD_CALLS; i++)
        tri_work_destroy(c.works[i]);
    tri_group_unref(g);
    if (c.failed > 0 || trii_now_ns() - start_ns > 5 * TRII_NS_PER_S)
        return RANK_FAIL(env, "%d calls failed, %.1f s", c.failed,
                         (double)(trii_now_ns() - start_ns) / TRII_NS_PER_S);
    return NULL;
}

static void many_threads_wait_for_the_same_calls(void **state)
{
    (void)state;
    on_all(3, many_wait, NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(calls_are_what_they_were),
    cmocka_unit_test(calls_that_differ_are_named),
    cmocka_unit_test(messages_that_differ_are_named),
    cmocka_unit_test(messages_come_from_anybody),
    cmocka_unit_test(who_is_late_is_named),
    cmocka_unit_test(a_dead_rank_ends_all_calls),
    cmocka_unit_test(hosts_compare_too),
    cmocka_unit_test(nobody_waits_for_the_others_while_posting),
    cmocka_unit_test(a_call_behind_others_is_named_by_its_number),
    cmocka_unit_test(a_group_is_left_with_calls_that_have_not_begun),
    cmocka_unit_test(subgroups_are_compared_for_themselves),
    cmocka_unit_test(threads_share_a_group),
    cmocka_unit_test(many_threads_wait_for_the_same_calls),
};

TEST_MAIN(tests)
