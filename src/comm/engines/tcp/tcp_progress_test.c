/*
 * tcp_progress_test.c - who moves the bytes: when the thread that polls for all leaves, another
 * that waits takes its turn, and if none waits, the control thread.
 */
#include <stdatomic.h>

#include "os/clock.h"
#include "testing/check.h"
#include "testing/ranks.h"

static const tri_group_options tcp_options = {.engine = "tcp", .timeout_ms = 40000};

#define JOIN(env, group)                                                                           \
    RANK_TRY(env,                                                                                  \
             tri_group_create((env)->store, (env)->rank, (env)->size, (env)->options, &(group)))

enum { N_STIRS = 20 };

/* Messages that rank 0 does not receive yet. While a thread of it polls, they also wake its control
 * thread, which then leaves the connection to that thread. */
static tri_status stir(tri_group *group)
{
    tri_status status = TRI_OK;

    for (int i = 0; i < N_STIRS && status == TRI_OK; i++) {
        for (int64_t until = trii_deadline_ms(2); trii_now_ns() < until;)
            trii_thread_yield();
        status = tri_send(group, "x", 1, TRI_DTYPE_U8, 0, 9, NULL);
    }
    return status;
}

static tri_status take_stirred(tri_group *group)
{
    tri_status status = TRI_OK;
    char byte;

    for (int i = 0; i < N_STIRS && status == TRI_OK; i++)
        status = tri_recv(group, &byte, 1, TRI_DTYPE_U8, 1, 9, NULL);
    return status;
}

/* --- from one thread that waits to another -------------------------------- */

typedef struct waiter {
    tri_work *work;
    int64_t timeout_ms, ended_ns;
    tri_status status;
    trii_thread thread;
} waiter;

static void wait_main(void *arg)
{
    waiter *w = arg;

    w->status = tri_work_wait(w->work, w->timeout_ms);
    w->ended_ns = trii_now_ns();
}

/* A thread that sleeps while another polls wakes by itself after 0.3 s, to announce its wait, and
 * after 1.5 s, to log it. The first one polls for longer than that. */
enum { FIRST_MS = 2000 };

/* On rank 0 one thread waits for tag 1 and gives up, a second one for tag 2, which comes only
 * then: it has the first one's turn, or would sleep until the group's deadline. */
static const char *two_wait(rank_env *env)
{
    waiter w[2] = {{.timeout_ms = FIRST_MS}, {.timeout_ms = 0}};
    atomic_int *at = env->arg; /* nothing else may stir in the group of rank 0 */
    char byte[2] = {'a', 'b'};
    tri_group *group = NULL;

    JOIN(env, group);
    if (env->rank == 1) {
        while (atomic_load(at) < 1) /* the first one waits */
            trii_thread_yield();
        RANK_TRY(env, stir(group));
        while (atomic_load(at) < 2) /* it gave up */
            trii_thread_yield();
        RANK_TRY(env, tri_send(group, byte, 1, TRI_DTYPE_U8, 0, 2, NULL));
        RANK_TRY(env, tri_send(group, byte, 1, TRI_DTYPE_U8, 0, 1, NULL));
        RANK_TRY(env, tri_barrier(group, NULL));
        tri_group_unref(group);
        return NULL;
    }
    for (int i = 0; i < 2; i++)
        RANK_TRY(env, tri_recv(group, &byte[i], 1, TRI_DTYPE_U8, 1, i + 1, &w[i].work));
    /* It is announced, and so the first one's wait is not: that, too, would wake others. */
    if (tri_work_wait(w[0].work, 1) != TRI_ERR_TIMEOUT)
        return RANK_FAIL(env, "nothing was sent");
    RANK_TRY(env, trii_thread_start(&w[0].thread, "first", wait_main, &w[0]));
    atomic_store(at, 1);
    for (int64_t until = trii_deadline_ms(50); trii_now_ns() < until;)
        trii_thread_yield(); /* it polls by now, most likely */
    RANK_TRY(env, trii_thread_start(&w[1].thread, "second", wait_main, &w[1]));
    trii_thread_join(&w[0].thread);
    atomic_store(at, 2);
    trii_thread_join(&w[1].thread);
    if (w[0].status != TRI_ERR_TIMEOUT || w[1].status != TRI_OK)
        return RANK_FAIL(env, "%s and %s", tri_status_name(w[0].status),
                         tri_status_name(w[1].status));
    if (w[1].ended_ns - w[0].ended_ns > 20 * TRII_NS_PER_S)
        return RANK_FAIL(env, "the second slept on for %lld ms",
                         (long long)((w[1].ended_ns - w[0].ended_ns) / TRII_NS_PER_MS));
    RANK_TRY(env, tri_work_wait(w[0].work, 0));
    RANK_TRY(env, take_stirred(group));
    for (int i = 0; i < 2; i++)
        tri_work_destroy(w[i].work);
    RANK_TRY(env, tri_barrier(group, NULL));
    tri_group_unref(group);
    return NULL;
}

static void a_thread_that_leaves_hands_its_turn_on(void **state)
{
    atomic_int at = 0;

    (void)state;
    run_threads(2, &tcp_options, two_wait, &at);
}

/* --- from a thread that waits to the control thread ----------------------- */

typedef struct large_one {
    atomic_int got, sums; /* rank 0 has its message; ranks that have the sum */
    size_t count;         /* every rank sums its slice, and sends it to the others */
} large_one;

/* Rank 0 waits for a message while rank 2 keeps a sum from going on; then it does nothing
 * until the others, who need its part, have the sum. */
static const char *large_one_stays(rank_env *env)
{
    large_one *one = env->arg;
    int64_t deadline = trii_deadline_ms(30000);
    float *data = calloc(one->count, sizeof(*data));
    tri_work *work = NULL;
    tri_group *group = NULL;
    char byte = 0;

    JOIN(env, group);
    while (env->rank == 2 && atomic_load(&one->got) == 0)
        trii_thread_yield();
    RANK_TRY(env,
             tri_all_reduce(group, data, data, one->count, TRI_DTYPE_F32, TRI_REDOP_SUM, &work));
    if (env->rank == 1) {
        RANK_TRY(env, stir(group));
        RANK_TRY(env, tri_send(group, &byte, 1, TRI_DTYPE_U8, 0, 1, NULL));
    }
    if (env->rank == 0) {
        RANK_TRY(env, tri_recv(group, &byte, 1, TRI_DTYPE_U8, 1, 1, NULL));
        atomic_store(&one->got, 1);
        while (atomic_load(&one->sums) < 2) {
            if (trii_now_ns() > deadline)
                return RANK_FAIL(env, "nothing moved after the wait");
            trii_thread_yield();
        }
    }
    RANK_TRY(env, tri_work_wait(work, 0));
    atomic_fetch_add(&one->sums, 1);
    tri_work_destroy(work);
    if (env->rank == 0)
        RANK_TRY(env, take_stirred(group));
    tri_group_unref(group);
    free(data);
    return NULL;
}

static void what_is_left_moves_on_without_anybody(void **state)
{
    (void)state;
    run_threads(3, &tcp_options, large_one_stays, &(large_one){.count = 100000});
}

/* Slices of many rings: the parts of rank 1, which are not summed without rank 2, are in front of
 * the message. */
static void a_message_passes_parts_that_cannot_be_summed(void **state)
{
    (void)state;
    run_threads(3, &tcp_options, large_one_stays, &(large_one){.count = 6000000});
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_thread_that_leaves_hands_its_turn_on),
    cmocka_unit_test(what_is_left_moves_on_without_anybody),
    cmocka_unit_test(a_message_passes_parts_that_cannot_be_summed),
};

TEST_MAIN(tests)
