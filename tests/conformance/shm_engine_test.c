/*
 * shm_engine_test.c - what engine shm promises beyond the suite of all engines: real
 * processes, many works in flight, several threads of a rank, its memory, nothing that stays.
 */
#include <dirent.h>
#include <sched.h>
#include <sys/resource.h>
#include <time.h>

#include "conformance/calls.h"

#include "base/alloc.h"
#include "os/clock.h"
#include "os/thread.h"

static const tri_group_options shm_options = {.engine = "shm", .timeout_ms = 40000};

/* --- processes ------------------------------------------------------------ */

static const size_t process_counts[] = {0, 1, 23, 1009, 4099, 40009, SIZE_MAX};
static const tri_dtype process_dtypes[] = {
    TRI_DTYPE_F32, TEST_SANITIZED ? TRI_DTYPE_NONE : TRI_DTYPE_BF16, TRI_DTYPE_I64, TRI_DTYPE_NONE};

static void two_processes_conform(void **state)
{
    script what = {.counts = process_counts, .dtypes = process_dtypes};

    (void)state;
    run_processes(2, &shm_options, run_script, &what, NULL, 50);
}

static void four_processes_conform(void **state)
{
    script what = {.counts = process_counts, .dtypes = process_dtypes};

    (void)state;
    run_processes(4, &shm_options, run_script, &what, NULL, 50);
}

static const char *takes_the_best(rank_env *env)
{
    tri_group *group = NULL;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, NULL, &group));
    if (strcmp(tri_group_engine(group), "shm") != 0)
        return RANK_FAIL(env, "engine %s", tri_group_engine(group));
    RANK_TRY(env, tri_barrier(group, NULL));
    tri_group_unref(group);
    return NULL;
}

static void ranks_of_one_host_get_shm(void **state)
{
    (void)state;
    run_processes(3, NULL, takes_the_best, NULL, NULL, 30);
}

/* --- waiting -------------------------------------------------------------- */

static const char *meets_on_one_core(rank_env *env)
{
    cpu_set_t one;
    float x = 1;
    tri_group *group = NULL;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    CPU_ZERO(&one);
    CPU_SET(*(const int *)env->arg, &one);
    if (sched_setaffinity(0, sizeof(one), &one) != 0)
        return RANK_FAIL(env, "rank %d cannot choose a core", env->rank);
    for (int i = 0; i < 500; i++) {
        RANK_TRY(env, tri_all_reduce(group, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_AVG, NULL));
        if (env->rank == 0) {
            RANK_TRY(env, tri_send(group, &x, 1, TRI_DTYPE_F32, 1, 0, NULL));
            RANK_TRY(env, tri_recv(group, &x, 1, TRI_DTYPE_F32, 1, 0, NULL));
        } else {
            RANK_TRY(env, tri_recv(group, &x, 1, TRI_DTYPE_F32, 0, 0, NULL));
            RANK_TRY(env, tri_send(group, &x, 1, TRI_DTYPE_F32, 0, 0, NULL));
        }
    }
    tri_group_unref(group);
    return NULL;
}

/* The group was made while there was a core for each rank, so it is not crowded. Were they to spin
 * for all of their time, or until the system takes the core from them, it would be 2 ms or more for
 * each of 1500 waits. */
static void ranks_that_share_a_core_do_not_spin(void **state)
{
    cpu_set_t allowed;
    int core = 0;
    struct timespec used;

    (void)state;
    assert_int_equal(setenv("TRI_SPIN_US", "2000", 1), 0);
    assert_int_equal(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
    while (!CPU_ISSET(core, &allowed))
        core++;
    run_threads(2, &shm_options, meets_on_one_core, &core);
    assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used), 0);
    assert_true(used.tv_sec < 1);
}

enum { LATE_ROUNDS = 100 };
static atomic_int rounds_of_rank_0;

/* Rank 0 waits when this returns, or will have to. */
static void be_late(int round)
{
    int64_t end;

    while (atomic_load(&rounds_of_rank_0) < round)
        trii_thread_yield();
    end = trii_now_ns() + 200000;
    while (trii_now_ns() < end)
        ;
}

/* Rank 1 moves to the other core, and is late in every round, so that it never waits there. */
static const char *moves_and_is_late(rank_env *env)
{
    const int *cores = env->arg;
    struct rusage before, after;
    float x = 1;
    tri_group *group = NULL;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    for (int i = -LATE_ROUNDS; i < LATE_ROUNDS; i++) {
        if (i == -LATE_ROUNDS || i == 0) {
            cpu_set_t one;

            CPU_ZERO(&one);
            CPU_SET(cores[i == 0 ? env->rank : 0], &one);
            if (sched_setaffinity(0, sizeof(one), &one) != 0)
                return RANK_FAIL(env, "rank %d cannot choose a core", env->rank);
            RANK_TRY(env, tri_barrier(group, NULL));
            (void)getrusage(RUSAGE_THREAD, &before);
        }
        if (env->rank == 0)
            atomic_fetch_add(&rounds_of_rank_0, 1);
        else
            be_late(i + LATE_ROUNDS + 1);
        RANK_TRY(env, tri_all_reduce(group, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_AVG, NULL));
    }
    (void)getrusage(RUSAGE_THREAD, &after);
    tri_group_unref(group);
    if (cores[0] != cores[1] && after.ru_nvcsw - before.ru_nvcsw > LATE_ROUNDS / 5)
        return RANK_FAIL(env, "rank %d slept %ld times", env->rank,
                         after.ru_nvcsw - before.ru_nvcsw);
    return NULL;
}

/* That it moved is known from its first wake. */
static void a_rank_on_another_core_is_spun_for_again(void **state)
{
    cpu_set_t allowed;
    int cores[2] = {-1, -1};

    (void)state;
    assert_int_equal(setenv("TRI_SPIN_US", "1000000", 1), 0);
    assert_int_equal(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
    for (int core = CPU_SETSIZE - 1; core >= 0; core--) {
        if (CPU_ISSET(core, &allowed)) {
            cores[1] = cores[0];
            cores[0] = core;
        }
    }
    cores[1] = cores[1] < 0 ? cores[0] : cores[1]; /* there is one only */
    run_threads(2, &shm_options, moves_and_is_late, cores);
}

/* --- many works, many threads --------------------------------------------- */

/* Of base + rank over all ranks. */
static float sum_of_ranks(int size, int base)
{
    int of_ranks = size * (size - 1) / 2;

    return (float)(size * base + of_ranks);
}

/* More than there are lanes, of every path, waited for from the last to the first. */
static const char *fifty_works(rank_env *env)
{
    enum { N = 50 };
    static const size_t counts[] = {3, 700, 3000, 40000, 200000};
    tri_group *group = NULL;
    tri_work *works[N];
    float *buffers[N];

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    for (int i = 0; i < N; i++) {
        size_t count = counts[i % 5], bytes = count * sizeof(float);

        buffers[i] = i % 2 ? malloc(bytes) : tri_group_alloc(group, bytes);
        for (size_t k = 0; k < count; k++)
            buffers[i][k] = (float)(i + env->rank);
    }
    for (int i = 0; i < N; i++)
        RANK_TRY(env, tri_all_reduce(group, buffers[i], buffers[i], counts[i % 5], TRI_DTYPE_F32,
                                     TRI_REDOP_SUM, &works[i]));
    for (int i = N - 1; i >= 0; i--) {
        float expected = sum_of_ranks(env->size, i);

        RANK_TRY(env, tri_work_wait(works[i], 0));
        tri_work_destroy(works[i]);
        for (size_t k = 0; k < counts[i % 5]; k++) {
            if (buffers[i][k] != expected)
                return RANK_FAIL(env, "work %d, element %zu: %g, not %g", i, k,
                                 (double)buffers[i][k], (double)expected);
        }
        if (i % 2)
            free(buffers[i]);
        else
            tri_group_free(group, buffers[i]);
    }
    RANK_TRY(env, tri_barrier(group, NULL));
    tri_group_unref(group);
    return NULL;
}

static void more_works_than_lanes_may_be_in_flight(void **state)
{
    (void)state;
    run_threads(3, &shm_options, fifty_works, NULL);
    assert_int_equal(trii_alloc_live(), 0);
}

/* Index of an element that is not `expected`, or -1; looks at every step-th from the end. */
static int first_wrong(const float *x, int n, int step, float expected)
{
    for (int i = n - 1; i >= 0; i -= step) {
        if (x[i] != expected)
            return i;
    }
    return -1;
}

/* A rank must see every chunk that others had claimed, each time. */
static const char *many_direct_reductions(rank_env *env)
{
    enum { N = 50000, ROUNDS = TEST_SANITIZED ? 100 : 400 };
    tri_group *group = NULL;
    float *x, *all;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    x = tri_group_alloc(group, N * sizeof(float));
    all = tri_group_alloc(group, (size_t)env->size * N * sizeof(float));
    if (x == NULL || all == NULL)
        return RANK_FAIL(env, "%s", tri_last_error());
    for (int round = 0; round < ROUNDS; round++) {
        float expected = sum_of_ranks(env->size, round);
        int wrong;

        for (int i = 0; i < N; i++)
            x[i] = (float)(round + env->rank);
        RANK_TRY(env, tri_all_reduce(group, x, x, N, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL));
        /* A few elements of each chunk first: at once, while a late rank would still be at it. */
        wrong = first_wrong(x, N, 2048, expected);
        wrong = wrong < 0 ? first_wrong(x, N, 1, expected) : wrong;
        if (wrong >= 0)
            return RANK_FAIL(env, "round %d, element %d: %g, not %g", round, wrong,
                             (double)x[wrong], (double)expected);
        x[0] = (float)env->rank; /* a peer may still be reading the sum: it must not */
        RANK_TRY(env, tri_all_gather(group, x, all, N, TRI_DTYPE_F32, NULL));
        x[0] = x[N - 1] = -1.0f; /* written at once: nobody may be reading any more */
        for (int r = 0; r < env->size; r++) {
            if (all[(size_t)r * N] != (float)r || all[(size_t)(r + 1) * N - 1] != expected)
                return RANK_FAIL(env, "round %d: what rank %d gave is wrong", round, r);
        }
    }
    tri_group_free(group, all);
    tri_group_free(group, x);
    RANK_TRY(env, tri_barrier(group, NULL));
    tri_group_unref(group);
    return NULL;
}

static void nobody_returns_before_all_is_done(void **state)
{
    (void)state;
    run_threads(3, &shm_options, many_direct_reductions, NULL);
    assert_int_equal(trii_alloc_live(), 0);
    run_processes(2, &shm_options, many_direct_reductions, NULL, NULL, 50);
}

typedef struct waiter {
    tri_work *work;
    tri_status status;
} waiter;

static void wait_for_work(void *arg)
{
    waiter *w = arg;

    w->status = tri_work_wait(w->work, 0);
}

/* Four threads of each rank wait for works that one of them posted. */
static const char *four_waiters(rank_env *env)
{
    enum { N = 4, COUNT = 100000 };
    tri_group *group = NULL;
    waiter waiters[N];
    trii_thread threads[N];
    float *x[N];

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < N; i++) {
            x[i] = malloc(COUNT * sizeof(float));
            for (int k = 0; k < COUNT; k++)
                x[i][k] = 1.0f;
            RANK_TRY(env, tri_all_reduce(group, x[i], x[i], i % 2 ? COUNT : 1, TRI_DTYPE_F32,
                                         TRI_REDOP_SUM, &waiters[i].work));
            RANK_TRY(env, trii_thread_start(&threads[i], "waiter", wait_for_work, &waiters[i]));
        }
        for (int i = 0; i < N; i++) {
            trii_thread_join(&threads[i]);
            if (waiters[i].status != TRI_OK || x[i][0] != (float)env->size)
                return RANK_FAIL(env, "waiter %d: %s", i, tri_work_error(waiters[i].work));
            tri_work_destroy(waiters[i].work);
            free(x[i]);
        }
    }
    tri_group_unref(group);
    return NULL;
}

static void several_threads_of_a_rank_may_wait(void **state)
{
    (void)state;
    run_threads(2, &shm_options, four_waiters, NULL);
    assert_int_equal(trii_alloc_live(), 0);
}

/* --- send and recv -------------------------------------------------------- */

/* More messages than a pair holds at a time, received by tag in another order where that can
 * be, and one larger than its ring. */
static const char *messages_keep_their_order(rank_env *env)
{
    enum { N = 40, LARGE = 300000 };
    static int32_t buffers[2][LARGE];
    tri_group *group = NULL;
    int32_t *large = buffers[env->rank];
    int32_t value, first, second;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    for (int32_t i = 0; i < N; i++) {
        value = i;
        if (env->rank == 0)
            RANK_TRY(env, tri_send(group, &value, 1, TRI_DTYPE_I32, 1, i % 2, NULL));
    }
    for (int i = 0; i < N && env->rank == 1; i += 2) {
        RANK_TRY(env, tri_recv(group, &second, 1, TRI_DTYPE_I32, 0, 1, NULL));
        RANK_TRY(env, tri_recv(group, &first, 1, TRI_DTYPE_I32, 0, 0, NULL));
        if (first != i || second != i + 1)
            return RANK_FAIL(env, "messages %d and %d came as %d and %d", i, i + 1, first, second);
    }
    for (int i = 0; i < LARGE; i++)
        large[i] = env->rank == 0 ? i : -1;
    if (env->rank == 0)
        RANK_TRY(env, tri_send(group, large, LARGE, TRI_DTYPE_I32, 1, 9, NULL));
    else
        RANK_TRY(env, tri_recv(group, large, LARGE, TRI_DTYPE_I32, 0, 9, NULL));
    for (int i = 0; i < LARGE; i++) {
        if (large[i] != i)
            return RANK_FAIL(env, "element %d is %d", i, large[i]);
    }
    RANK_TRY(env, tri_barrier(group, NULL));
    tri_group_unref(group);
    return NULL;
}

static void messages_arrive_in_order_by_tag(void **state)
{
    (void)state;
    run_threads(2, &shm_options, messages_keep_their_order, NULL);
    assert_int_equal(trii_alloc_live(), 0);
}

/* --- memory --------------------------------------------------------------- */

static const char *uses_memory(rank_env *env)
{
    static const size_t sizes[] = {1, 100, 4096, 70000, (size_t)3 << 20, 64};
    enum { N = 6 };
    tri_group *group = NULL;
    unsigned char *p[N];

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < N; i++) {
            p[i] = tri_group_alloc(group, sizes[i]);
            if (p[i] == NULL)
                return RANK_FAIL(env, "%s", tri_last_error());
            if ((uintptr_t)p[i] % 64 != 0)
                return RANK_FAIL(env, "%p is not aligned", (void *)p[i]);
            for (size_t k = 0; k < sizes[i]; k++) {
                if (p[i][k] != 0)
                    return RANK_FAIL(env, "round %d: byte %zu of %zu is not zero", round, k,
                                     sizes[i]);
            }
            memset(p[i], 0xff, sizes[i]);
        }
        for (int i = 0; i < N; i++)
            tri_group_free(group, p[(i * 5 + round) % N]);
    }
    tri_group_free(group, NULL);
    RANK_TRY(env, tri_barrier(group, NULL));
    tri_group_unref(group);
    return NULL;
}

static void memory_is_zero_aligned_and_reused(void **state)
{
    (void)state;
    run_threads(2, &shm_options, uses_memory, NULL);
    assert_int_equal(trii_alloc_live(), 0);
}

/* --- nothing stays -------------------------------------------------------- */

static int count_descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int n = 0;

    while (dir != NULL && readdir(dir) != NULL)
        n++;
    closedir(dir);
    return n;
}

static int count_mappings(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    int n = 0;

    while (maps != NULL && fgets(line, sizeof(line), maps) != NULL)
        n += strstr(line, "memfd:trireme") != NULL;
    fclose(maps);
    return n;
}

static const char *leaves_no_descriptor(rank_env *env)
{
    int descriptors = 0;

    for (int round = 0; round < 5; round++) {
        const char *failure = uses_memory(env);

        if (failure != NULL)
            return failure;
        if (round == 0)
            descriptors = count_descriptors();
    }
    if (count_descriptors() != descriptors)
        return RANK_FAIL(env, "%d descriptors became %d", descriptors, count_descriptors());
    return NULL;
}

static void nothing_is_left_behind(void **state)
{
    int descriptors;

    (void)state;
    run_threads(4, &shm_options, uses_memory, NULL); /* the first use may keep something */
    descriptors = count_descriptors();
    run_threads(4, &shm_options, uses_memory, NULL);
    assert_int_equal(count_descriptors(), descriptors);
    assert_int_equal(count_mappings(), 0);
    assert_int_equal(trii_alloc_live(), 0);
    run_processes(3, &shm_options, leaves_no_descriptor, NULL, NULL, 50);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(two_processes_conform),
    cmocka_unit_test(four_processes_conform),
    cmocka_unit_test(ranks_of_one_host_get_shm),
    cmocka_unit_test(ranks_that_share_a_core_do_not_spin),
    cmocka_unit_test(a_rank_on_another_core_is_spun_for_again),
    cmocka_unit_test(more_works_than_lanes_may_be_in_flight),
    cmocka_unit_test(nobody_returns_before_all_is_done),
    cmocka_unit_test(several_threads_of_a_rank_may_wait),
    cmocka_unit_test(messages_arrive_in_order_by_tag),
    cmocka_unit_test(memory_is_zero_aligned_and_reused),
    cmocka_unit_test(nothing_is_left_behind),
};

TEST_MAIN(tests)
