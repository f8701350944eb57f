/*
 * messages_test.c - receives from any rank, and batches: each engine with ranks as threads.
 */
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#include "testing/message_ranks.h"

#define ROUNDS 40

static void run(const char *engine, int size, const char *(*main)(rank_env *env))
{
    run_ranks(engine, NULL, size, 40000, main);
}

/* hierarchy: ranks near and far. */
static void run_hosts(const char *hosts, int size, const char *(*main)(rank_env *env))
{
    run_ranks("hierarchy", hosts, size, 40000, main);
}

/* Rank 0 takes what comes, with sizes from nothing to more than fits into any ring, and learns
 * whose it was: each message says it too. */
static const char *from_anybody(rank_env *env)
{
    enum { COUNT = 70001 };
    int32_t *buffer = calloc(COUNT, sizeof(*buffer));
    tri_group *g = NULL;
    const char *failure = join(env, &g);
    int next[RANKS_MAX] = {0};

    if (failure != NULL)
        return failure;
    for (int i = 0; i < ROUNDS && env->rank != 0; i++) {
        size_t count = i % 4 == 0 ? COUNT : 2;

        buffer[0] = env->rank;
        buffer[1] = i;
        buffer[count - 1] = count > 2 ? i : buffer[1];
        RANK_TRY(env, tri_send(g, buffer, count, TRI_DTYPE_I32, 0, (int)(count > 2), NULL));
    }
    for (int i = 0; i < ROUNDS * (env->size - 1) && env->rank == 0; i++) {
        size_t count = i % 4 == 0 ? COUNT : 2;
        int from = -1;

        RANK_TRY(env, tri_recv_any(g, buffer, count, TRI_DTYPE_I32, (int)(count > 2), &from, NULL));
        if (from < 1 || from >= env->size || buffer[0] != from || buffer[count - 1] != buffer[1])
            return RANK_FAIL(env, "message %d: from %d, says %d", i, from, buffer[0]);
        next[from]++;
    }
    for (int r = 1; r < env->size && env->rank == 0; r++) {
        if (next[r] != ROUNDS)
            return RANK_FAIL(env, "%d messages of rank %d", next[r], r);
    }
    RANK_TRY(env, tri_barrier(g, NULL));
    tri_group_unref(g);
    free(buffer);
    return NULL;
}

/* Receives from a rank and from any rank, posted in turns: each message goes to the oldest that
 * can take it, whether the messages are there first or the receives. The store orders the two,
 * as it moves no messages. */
static const char *oldest_receive_first(rank_env *env)
{
    tri_group *g = NULL;
    const char *failure = join(env, &g);
    int32_t out[4] = {0, 1, 2, 3}, in[4] = {-1, -1, -1, -1};
    tri_work *works[4];
    int from[2] = {-1, -1};

    if (failure != NULL)
        return failure;
    for (int late = 0; late < 2; late++) {
        const char *sent = late ? "sent late" : "sent", *posted = late ? "posted late" : "posted";

        if (env->rank == 1 && late)
            RANK_TRY(env, tri_store_wait(env->store, &posted, 1, 20000));
        for (int i = 0; i < 4 && env->rank == 1; i++)
            RANK_TRY(env, tri_send(g, &out[i], 1, TRI_DTYPE_I32, 0, 5, &works[i]));
        if (env->rank == 1)
            RANK_TRY(env, tri_store_set(env->store, sent, "", 0));
        if (env->rank == 0 && !late)
            RANK_TRY(env, tri_store_wait(env->store, &sent, 1, 20000));
        for (int i = 0; i < 4 && env->rank == 0; i++) {
            if (i % 2 == 0)
                RANK_TRY(env,
                         tri_recv_any(g, &in[i], 1, TRI_DTYPE_I32, 5, &from[i / 2], &works[i]));
            else
                RANK_TRY(env, tri_recv(g, &in[i], 1, TRI_DTYPE_I32, 1, 5, &works[i]));
        }
        if (env->rank == 0 && late) {
            RANK_TRY(env, tri_store_set(env->store, posted, "", 0));
            RANK_TRY(env, tri_store_wait(env->store, &sent, 1, 20000));
        }
        for (int i = 3; i >= 0 && env->rank < 2; i--) {
            RANK_TRY(env, tri_work_wait(works[i], 0));
            tri_work_destroy(works[i]);
        }
        if (env->rank == 0 && (in[0] != 0 || in[1] != 1 || in[2] != 2 || in[3] != 3))
            return RANK_FAIL(env, "late %d: got %d %d %d %d", late, in[0], in[1], in[2], in[3]);
        if (env->rank == 0 && (from[0] != 1 || from[1] != 1))
            return RANK_FAIL(env, "late %d: from %d %d", late, from[0], from[1]);
        RANK_TRY(env, tri_barrier(g, NULL));
    }
    tri_group_unref(g);
    return NULL;
}

/* Everybody exchanges with everybody, receives first: only together can they end. */
static const char *exchange_in_a_batch(rank_env *env)
{
    tri_group *g = NULL;
    const char *failure = join(env, &g);
    int32_t out[RANKS_MAX], in[RANKS_MAX];
    float sums[3] = {1, 2, 3};
    tri_work *work = NULL;

    if (failure != NULL)
        return failure;
    for (int async = 0; async < 2; async++) {
        memset(in, 0, sizeof(in));
        RANK_TRY(env, tri_group_batch_begin(g));
        RANK_FAILS(env, tri_group_batch_begin(g), TRI_ERR_STATE, "batch already");
        for (int r = 0; r < env->size; r++) {
            if (r == env->rank)
                continue;
            RANK_TRY(env, tri_recv(g, &in[r], 1, TRI_DTYPE_I32, r, 0, NULL));
            out[r] = 100 * env->rank + r;
            RANK_TRY(env, tri_send(g, &out[r], 1, TRI_DTYPE_I32, r, 0, NULL));
        }
        for (int i = 0; i < 3; i++)
            RANK_TRY(env,
                     tri_all_reduce(g, &sums[i], &sums[i], 1, TRI_DTYPE_F32, TRI_REDOP_MAX, NULL));
        RANK_FAILS(env, tri_broadcast(g, NULL, 1, TRI_DTYPE_I32, 0, NULL), TRI_ERR_INVALID_ARG,
                   "is NULL");
        RANK_TRY(env, tri_group_batch_end(g, async ? &work : NULL));
        while (async && tri_work_test(work) == TRI_INPROGRESS)
            ;
        if (async) {
            RANK_TRY(env, tri_work_wait(work, 0));
            tri_work_destroy(work);
        }
        for (int r = 0; r < env->size; r++) {
            if (r != env->rank && in[r] != 100 * r + env->rank)
                return RANK_FAIL(env, "rank %d got %d from rank %d", env->rank, in[r], r);
        }
    }
    RANK_FAILS(env, tri_group_batch_end(g, NULL), TRI_ERR_STATE, "no batch");
    tri_group_unref(g);
    return NULL;
}

static atomic_int computes;

static void compute_main(void *arg)
{
    (void)arg;
    while (atomic_load(&computes) != 0)
        ;
}

/* This thread, and those that it starts, share a core with one that computes until it is told that
 * nothing `computes`: each turn that they give up takes milliseconds. */
static void share_a_core(trii_thread *thread)
{
    cpu_set_t cores, one;
    int core = 0;

    assert_int_equal(sched_getaffinity(0, sizeof(cores), &cores), 0);
    while (!CPU_ISSET(core, &cores))
        core++;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
    atomic_store(&computes, 1);
    CHECK_OK(trii_thread_start(thread, "compute", compute_main, NULL));
}

/* When everybody else has left, a receive from any rank cannot come true. */
static const char *nobody_left(rank_env *env)
{
    tri_group *g = NULL;
    const char *failure = join(env, &g);
    int32_t in = 0;

    if (failure != NULL)
        return failure;
    if (env->rank == 0)
        RANK_FAILS(env, tri_recv_any(g, &in, 1, TRI_DTYPE_I32, 0, NULL, NULL), TRI_ERR_PEER_LOST,
                   "left the group");
    tri_group_unref(g);
    return NULL;
}

static int64_t thread_cpu_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Rank 1, on rank 0's host, has left: rank 0 waits for the other host's message, and sleeps. */
static const char *only_elsewhere(rank_env *env)
{
    enum { WAIT_MS = 400 };
    static const char *const left[] = {"left"}, *const waited[] = {"waited"};
    tri_group *g = NULL;
    const char *failure = join(env, &g);
    int32_t word = 7;
    int from = -1;
    tri_work *work = NULL;
    int64_t used;
    tri_status st;

    if (failure != NULL)
        return failure;
    if (env->rank == 1) {
        tri_group_unref(g);
        RANK_TRY(env, tri_store_set(env->store, left[0], "", 0));
        return NULL;
    }
    if (env->rank == 0) {
        RANK_TRY(env, tri_store_wait(env->store, left, 1, 20000));
        RANK_TRY(env, tri_recv_any(g, &word, 1, TRI_DTYPE_I32, 0, &from, &work));
        used = thread_cpu_ns();
        st = tri_work_wait(work, WAIT_MS);
        used = thread_cpu_ns() - used;
        if (st != TRI_ERR_TIMEOUT || used > WAIT_MS * INT64_C(1000000) / 5)
            return RANK_FAIL(env, "%s: %lld us of work in %d ms", tri_status_name(st),
                             (long long)used / 1000, WAIT_MS);
        RANK_TRY(env, tri_store_set(env->store, waited[0], "", 0));
        RANK_TRY(env, tri_work_wait(work, 0));
        tri_work_destroy(work);
        if (word != 8 || from != 2)
            return RANK_FAIL(env, "%d from rank %d", word, from);
    } else {
        word = 8;
        RANK_TRY(env, tri_store_wait(env->store, waited, 1, 20000));
        RANK_TRY(env, tri_send(g, &word, 1, TRI_DTYPE_I32, 0, 0, NULL));
    }
    tri_group_unref(g);
    return NULL;
}

static void hierarchy_sleeps_when_nobody_is_near(void **state)
{
    (void)state;
    run_hosts("a,a,b", 3, only_elsewhere);
}

/* Rank 0 begins a large reduction and sends; the others take the message before they join in. */
static const char *message_behind_a_reduction(rank_env *env)
{
    enum { COUNT = 3000001 };
    tri_group *g = NULL;
    const char *failure = join(env, &g);
    int32_t *x = malloc(COUNT * sizeof(*x)), word = 7;
    tri_work *work = NULL, *sends[RANKS_MAX];

    if (failure != NULL)
        return failure;
    for (int i = 0; i < COUNT; i++)
        x[i] = (int32_t)((uint32_t)i * (uint32_t)(env->rank + 1));
    if (env->rank == 0)
        RANK_TRY(env, tri_all_reduce(g, x, x, COUNT, TRI_DTYPE_I32, TRI_REDOP_SUM, &work));
    for (int r = 1; r < env->size && env->rank == 0; r++)
        RANK_TRY(env, tri_send(g, &word, 1, TRI_DTYPE_I32, r, 3, &sends[r]));
    if (env->rank != 0) {
        RANK_TRY(env, tri_recv(g, &word, 1, TRI_DTYPE_I32, 0, 3, NULL));
        RANK_TRY(env, tri_all_reduce(g, x, x, COUNT, TRI_DTYPE_I32, TRI_REDOP_SUM, &work));
    }
    RANK_TRY(env, tri_work_wait(work, 0));
    tri_work_destroy(work);
    for (int r = 1; r < env->size && env->rank == 0; r++) {
        RANK_TRY(env, tri_work_wait(sends[r], 0));
        tri_work_destroy(sends[r]);
    }
    for (int i = 0; i < COUNT; i++) {
        if (x[i] != (int32_t)((uint32_t)i * (uint32_t)(env->size * (env->size + 1) / 2)))
            return RANK_FAIL(env, "rank %d: element %d is %d", env->rank, i, x[i]);
    }
    tri_group_unref(g);
    free(x);
    return NULL;
}

static void shm_takes_a_message_behind_a_reduction(void **state)
{
    (void)state;
    run("shm", 3, message_behind_a_reduction);
}

static void tcp_takes_a_message_behind_a_reduction(void **state)
{
    (void)state;
    run("tcp", 2, message_behind_a_reduction);
    run("tcp", 3, message_behind_a_reduction);
}

static void shm_receives_from_any_rank(void **state)
{
    (void)state;
    run("shm", 4, from_anybody);
}

static void tcp_receives_from_any_rank(void **state)
{
    (void)state;
    run("tcp", 4, from_anybody);
}

static void shm_gives_a_message_to_the_oldest_receive(void **state)
{
    (void)state;
    run("shm", 2, oldest_receive_first);
}

static void tcp_gives_a_message_to_the_oldest_receive(void **state)
{
    (void)state;
    run("tcp", 2, oldest_receive_first);
}

static void shm_batches(void **state)
{
    (void)state;
    run("shm", 4, exchange_in_a_batch);
}

static void tcp_batches(void **state)
{
    (void)state;
    run("tcp", 4, exchange_in_a_batch);
}

static void shm_receive_from_nobody_fails(void **state)
{
    (void)state;
    run("shm", 3, nobody_left);
}

static void tcp_receive_from_nobody_fails(void **state)
{
    (void)state;
    run("tcp", 3, nobody_left);
}

static void hierarchy_takes_a_message_behind_a_reduction(void **state)
{
    (void)state;
    run_hosts("a,a,b", 3, message_behind_a_reduction);
    run_hosts("a,b,b", 3, message_behind_a_reduction);
}

static void hierarchy_receives_from_any_rank(void **state)
{
    (void)state;
    run_hosts("a,b,a,b", 4, from_anybody);
    run_hosts("a,b,a,b,a", 5, from_anybody);
    run_hosts("a,b,b", 3, from_anybody);
}

static void hierarchy_gives_a_message_to_the_oldest_receive(void **state)
{
    (void)state;
    run_hosts("a,a,b", 3, oldest_receive_first);
    run_hosts("a,b,a", 3, oldest_receive_first);
}

static void hierarchy_batches(void **state)
{
    (void)state;
    run_hosts("a,a,b,b", 4, exchange_in_a_batch);
    run_hosts("a,b,b,a,b", 5, exchange_in_a_batch);
}

static void hierarchy_receive_from_nobody_fails(void **state)
{
    (void)state;
    run_hosts("a,a,b", 3, nobody_left);
    run_hosts("a,b,b", 3, nobody_left);
}

/* Where the ranks of a host take turns, and are never in time to sleep. */
static void hierarchy_receive_from_nobody_fails_on_a_busy_core(void **state)
{
    trii_thread thread;

    (void)state;
    share_a_core(&thread);
    run_hosts("a,a,b", 3, nobody_left);
    atomic_store(&computes, 0);
    trii_thread_join(&thread);
}

/* Everybody receives from anybody what everybody sends, one after the other, small and large. */
static const char *all_from_anybody(rank_env *env)
{
    enum { COUNT = 70001, TURNS = 30 };
    tri_group *g = NULL;
    const char *failure = join(env, &g);
    int32_t *out = calloc(COUNT, sizeof(*out)), *in = calloc(COUNT, sizeof(*in));

    if (failure != NULL)
        return failure;
    for (int i = 0; i < TURNS; i++) {
        size_t count = i % 3 == 0 ? COUNT : 1;
        tri_work *sends[RANKS_MAX];
        int seen = 0;

        out[0] = 1000 * env->rank + i;
        for (int r = 0; r < env->size; r++) {
            if (r != env->rank)
                RANK_TRY(env, tri_send(g, out, count, TRI_DTYPE_I32, r, i, &sends[r]));
        }
        for (int r = 1; r < env->size; r++) {
            int from = -1;

            RANK_TRY(env, tri_recv_any(g, in, count, TRI_DTYPE_I32, i, &from, NULL));
            if (from < 0 || in[0] != 1000 * from + i)
                return RANK_FAIL(env, "turn %d: from %d, says %d", i, from, in[0]);
            seen |= 1 << from;
        }
        if (seen != ((1 << env->size) - 1 - (1 << env->rank)))
            return RANK_FAIL(env, "turn %d: messages from %#x", i, seen);
        for (int r = 0; r < env->size; r++) {
            if (r == env->rank)
                continue;
            RANK_TRY(env, tri_work_wait(sends[r], 0));
            tri_work_destroy(sends[r]);
        }
    }
    tri_group_unref(g);
    free(in);
    free(out);
    return NULL;
}

static void all_receive_from_any_rank(void **state)
{
    (void)state;
    run("shm", 4, all_from_anybody);
    run("tcp", 4, all_from_anybody);
    run_hosts("a,b,a,b", 4, all_from_anybody);
    run_hosts("a,a,b", 3, all_from_anybody);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(hierarchy_takes_a_message_behind_a_reduction),
    cmocka_unit_test(hierarchy_receives_from_any_rank),
    cmocka_unit_test(hierarchy_sleeps_when_nobody_is_near),
    cmocka_unit_test(hierarchy_gives_a_message_to_the_oldest_receive),
    cmocka_unit_test(hierarchy_batches),
    cmocka_unit_test(hierarchy_receive_from_nobody_fails),
    cmocka_unit_test(hierarchy_receive_from_nobody_fails_on_a_busy_core),
    cmocka_unit_test(all_receive_from_any_rank),
    cmocka_unit_test(shm_receives_from_any_rank),
    cmocka_unit_test(tcp_receives_from_any_rank),
    cmocka_unit_test(shm_gives_a_message_to_the_oldest_receive),
    cmocka_unit_test(tcp_gives_a_message_to_the_oldest_receive),
    cmocka_unit_test(shm_takes_a_message_behind_a_reduction),
    cmocka_unit_test(tcp_takes_a_message_behind_a_reduction),
    cmocka_unit_test(shm_batches),
    cmocka_unit_test(tcp_batches),
    cmocka_unit_test(shm_receive_from_nobody_fails),
    cmocka_unit_test(tcp_receive_from_nobody_fails),
};

TEST_MAIN(tests)
