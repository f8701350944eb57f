/*
 * message_reading_test.c - large messages in shared memory: read where they lie with their sender,
 * in its heap or in memory of the group, or sent piece by piece where the system does not let ranks
 * read each other's memory.
 * ctest: start=first
 */
#include "testing/check.h"
#include "testing/ranks.h"

#include <stdlib.h>
#include <sys/prctl.h>

#include "base/alloc.h"

static const tri_group_options shm_options = {.engine = "shm", .timeout_ms = 20000};

static unsigned char byte_at(size_t i, size_t round, int rank)
{
    return (unsigned char)(i * 31 + i / 4093 + round * 7 + (size_t)rank * 101);
}

/* Both ranks send and receive `bytes`, at an odd address, and look at each byte. */
static const char *exchange(rank_env *env, tri_group *g, size_t bytes, size_t round, bool heap)
{
    int other = 1 - env->rank;
    unsigned char *memory[2];
    tri_work *works[2];

    for (int i = 0; i < 2; i++) {
        memory[i] = heap ? malloc(bytes + 1) : tri_group_alloc(g, bytes + 1);
        if (memory[i] == NULL)
            return RANK_FAIL(env, "no memory");
        for (size_t k = 0; k < bytes; k++)
            memory[i][k + 1] = i == 0 ? byte_at(k, round, env->rank) : 0;
    }
    RANK_TRY(env, tri_send(g, memory[0] + 1, bytes, TRI_DTYPE_U8, other, 3, &works[0]));
    RANK_TRY(env, tri_recv(g, memory[1] + 1, bytes, TRI_DTYPE_U8, other, 3, &works[1]));
    for (int i = 0; i < 2; i++) {
        RANK_TRY(env, tri_work_wait(works[i], 0));
        tri_work_destroy(works[i]);
    }
    for (size_t k = 0; k < bytes; k++) {
        if (memory[1][k + 1] != byte_at(k, round, other))
            return RANK_FAIL(env, "byte %zu of %zu is %d", k, bytes, memory[1][k + 1]);
    }
    for (int i = 0; i < 2; i++) {
        if (heap)
            free(memory[i]);
        else
            tri_group_free(g, memory[i]);
    }
    return NULL;
}

/* Around the largest message that is copied, and around the pieces of those that are not. */
static const char *exchanges(rank_env *env)
{
    static const size_t bytes[] = {262144, 262145, 1 << 20, 4194303, 4194305, 9000001};
    enum { N = sizeof(bytes) / sizeof(bytes[0]) };
    const char *failure = NULL;
    tri_group *g = NULL;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    for (size_t i = 0; i < 2 * N && failure == NULL; i++)
        failure = exchange(env, g, bytes[i / 2], i, i % 2 == 0);
    if (failure == NULL)
        RANK_TRY(env, tri_barrier(g, NULL));
    tri_group_unref(g);
    return failure;
}

static void large_messages_are_whole(void **state)
{
    (void)state;
    run_processes(2, &shm_options, exchanges, NULL, NULL, 50);
}

static void large_messages_are_whole_where_nobody_may_read(void **state)
{
    (void)state;
    setenv("TRI_SHM_CMA", "0", 1);
    run_processes(2, &shm_options, exchanges, NULL, NULL, 50);
}

/* The sender does nothing between its send and the end of the receive. Ranks that are threads may
 * always read each other's memory. */
static const char *sender_is_elsewhere(rank_env *env)
{
    enum { BYTES = 5 << 20 };
    unsigned char *data = calloc(1, BYTES);
    tri_group *g = NULL;
    tri_work *work = NULL;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    if (env->rank == 0) {
        memset(data, 5, BYTES);
        RANK_TRY(env, tri_send(g, data, BYTES, TRI_DTYPE_U8, 1, 0, &work));
    } else {
        RANK_TRY(env, tri_recv(g, data, BYTES, TRI_DTYPE_U8, 0, 0, NULL));
    }
    RANK_TRY(env, ranks_meet(env, "received", -1));
    if (data[0] != 5 || data[BYTES - 1] != 5)
        return RANK_FAIL(env, "%d and %d came", data[0], data[BYTES - 1]);
    if (work != NULL)
        RANK_TRY(env, tri_work_wait(work, 0));
    tri_work_destroy(work);
    RANK_TRY(env, tri_barrier(g, NULL));
    tri_group_unref(g);
    free(data);
    return NULL;
}

static void a_large_message_needs_nothing_more_of_its_sender(void **state)
{
    (void)state;
    run_threads(2, &shm_options, sender_is_elsewhere, NULL);
    assert_int_equal(trii_alloc_live(), 0);
}

/* A process that gave up its privileges, or keeps others from its memory, while it is in a
 * group. */
static const char *locked_out(rank_env *env)
{
    const char *failure;
    tri_group *g = NULL;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    failure = exchange(env, g, 1 << 20, 0, true);
    if (prctl(PR_SET_DUMPABLE, 0) != 0 || (geteuid() == 0 && setuid(65534) != 0))
        return RANK_FAIL(env, "the process cannot be locked");
    for (size_t round = 1; round < 4 && failure == NULL; round++)
        failure = exchange(env, g, 5 << 20, round, true);
    if (failure == NULL)
        RANK_TRY(env, tri_barrier(g, NULL));
    tri_group_unref(g);
    return failure;
}

static void a_message_that_may_not_be_read_any_more_is_sent(void **state)
{
    (void)state;
    run_processes(2, &shm_options, locked_out, NULL, NULL, 50);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(large_messages_are_whole),
    cmocka_unit_test(large_messages_are_whole_where_nobody_may_read),
    cmocka_unit_test(a_large_message_needs_nothing_more_of_its_sender),
    cmocka_unit_test(a_message_that_may_not_be_read_any_more_is_sent),
};

TEST_MAIN(tests)
