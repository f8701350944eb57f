/*
 * reducer_mistakes_test.c - what a reducer says of wrong calls, ranks that differ, fail, leave or
 * do not come, and of memory that ran out.
 */
#include <stdatomic.h>

#include "base/alloc.h"
#include "base/err.h"
#include "testing/check.h"
#include "testing/reducer_ranks.h"

static const char *mistakes(rank_env *env)
{
    float x[4] = {0};
    int index = 7;
    tri_group *group = NULL, *other = NULL;
    tri_reducer *r = NULL;

    JOIN(env, group);
    RANK_TRY(env, tri_group_new(group, &(int){1 - env->rank}, 1, NULL, &other));
    RANK_FAILS(env, tri_reducer_create(&(tri_reducer_options){.group = other}, &r),
               TRI_ERR_INVALID_ARG,
               "reducer_create: options.group: this process is not a member of the group");
    tri_group_unref(other);
    RANK_TRY(env, tri_reducer_create(&(tri_reducer_options){.group = group}, &r));
    RANK_FAILS(env, tri_reducer_add(NULL, NULL, NULL), TRI_ERR_INVALID_ARG, "reducer is NULL");
    RANK_FAILS(env, tri_reducer_add(r, NULL, NULL), TRI_ERR_INVALID_ARG, "gradient is NULL");
    RANK_FAILS(env,
               tri_reducer_add(r, &(tri_reducer_grad){.count = 1, .dtype = TRI_DTYPE_I32}, NULL),
               TRI_ERR_INVALID_ARG, "gradient 0 is i32");
    RANK_FAILS(env, tri_reducer_add(r, &(tri_reducer_grad){.count = 4, .rows = 3}, NULL),
               TRI_ERR_INVALID_ARG, "count 4 is not a multiple of rows 3");
    RANK_FAILS(env, tri_reducer_add(r, &(tri_reducer_grad){.count = SIZE_MAX / 3}, NULL),
               TRI_ERR_INVALID_ARG, "more than memory can hold");
    RANK_TRY(env, tri_reducer_add(r, &(tri_reducer_grad){.data = x, .count = 4}, &index));
    if (index != 0)
        return RANK_FAIL(env, "index %d", index);
    RANK_FAILS(env, tri_reducer_ready(r, 0), TRI_ERR_STATE, "no pass was begun");
    RANK_FAILS(env, tri_reducer_finish(r), TRI_ERR_STATE, "no pass was begun");
    RANK_FAILS(env, tri_reducer_begin(r, -1), TRI_ERR_INVALID_ARG, "-1 samples");
    RANK_FAILS(env, tri_reducer_no_sync(r, -1), TRI_ERR_INVALID_ARG, "-1 samples");
    RANK_TRY(env, tri_reducer_begin(r, 1));
    RANK_FAILS(env, tri_reducer_begin(r, 1), TRI_ERR_STATE, "was not finished");
    RANK_FAILS(env, tri_reducer_add(r, &(tri_reducer_grad){.count = 1}, NULL), TRI_ERR_STATE,
               "too late");
    RANK_FAILS(env, tri_reducer_ready(r, 1), TRI_ERR_INVALID_ARG,
               "gradient 1 is out of range (there are 1)");
    RANK_FAILS(env, tri_reducer_ready(r, -1), TRI_ERR_INVALID_ARG, "gradient -1 is out of range");
    RANK_TRY(env, tri_reducer_ready(r, 0));
    RANK_FAILS(env, tri_reducer_ready(r, 0), TRI_ERR_INVALID_ARG, "gradient 0 (0) was marked");
    RANK_TRY(env, tri_reducer_finish(r)); /* none of them harmed the pass */
    tri_reducer_destroy(r);
    tri_group_unref(group);
    return NULL;
}

static void mistakes_are_named_and_harmless(void **state)
{
    (void)state;
    run_threads(2, &shm_options, mistakes, NULL);
    assert_int_equal(trii_alloc_live(), 0);
}

static const char *differ(rank_env *env)
{
    const int what = *(int *)env->arg;
    bool odd = env->rank == 1;
    tri_reducer_options options = {.find_unused = odd && what == 2};
    tri_group *group = NULL;
    tri_reducer *r = NULL;
    static const char *const texts[] = {
        "rank 1 has gradient 1: w, 9 f32 in 0 rows; rank 0 has gradient 1: w, 8 f32 in 0 rows",
        "rank 1 has no gradient 1; rank 0 has gradient 1: w, 8 f32 in 0 rows",
        "rank 1 has buckets of 1048576 and 26214400 bytes, find_unused; rank 0 has buckets of",
        "w, 9 f32 in 0 rows; rank 0 has gradient 1: w"};
    char name[200] = "w"; /* what == 3: so long that a line would end before the numbers */

    if (what == 3)
        memset(name, 'w', sizeof(name) - 1);
    JOIN(env, group);
    options.group = group;
    RANK_TRY(env, tri_reducer_create(&options, &r));
    RANK_TRY(env, tri_reducer_add(r, &(tri_reducer_grad){.count = 2}, NULL));
    if (!odd || what != 1)
        RANK_TRY(
            env,
            tri_reducer_add(
                r, &(tri_reducer_grad){.count = odd && what % 3 == 0 ? 9 : 8, .name = name}, NULL));
    RANK_FAILS(env, tri_reducer_begin(r, 1), TRI_ERR_MISMATCH, texts[what]);
    RANK_FAILS(env, tri_reducer_begin(r, 1), TRI_ERR_MISMATCH, "has failed: reducer: not the same");
    RANK_TRY(env, tri_barrier(group, NULL)); /* the group has not */
    tri_reducer_destroy(r);
    tri_group_unref(group);
    return NULL;
}

static void differing_gradients_are_named_on_every_rank(void **state)
{
    (void)state;
    for (int what = 0; what < 4; what++)
        run_threads(3, &shm_options, differ, &what);
    assert_int_equal(trii_alloc_live(), 0);
}

static tri_status broken_update(void *arg)
{
    (void)arg;
    return TRII_FAIL(TRI_ERR_IO, "the disk is full");
}

static const char *gives_up(rank_env *env)
{
    float x = 1;
    tri_group *group = NULL;
    tri_reducer *r = NULL;

    JOIN(env, group);
    RANK_TRY(env, tri_reducer_create(&(tri_reducer_options){.group = group}, &r));
    RANK_TRY(env, tri_reducer_add(r, &(tri_reducer_grad){.data = &x, .count = 1}, NULL));
    if (env->rank == 0) {
        RANK_FAILS(env, tri_reducer_join(r, broken_update, NULL), TRI_ERR_ABORTED, "disk is full");
        RANK_FAILS(env, tri_reducer_begin(r, 1), TRI_ERR_ABORTED,
                   "has failed: reducer_join: update: IO: the disk is full");
    } else {
        tri_status status = TRI_OK;

        for (int pass = 0; pass < 1000 && status == TRI_OK; pass++) {
            status = tri_reducer_begin(r, 1);
            if (status == TRI_OK)
                status = tri_reducer_ready(r, 0);
            if (status == TRI_OK)
                status = tri_reducer_finish(r);
        }
        if (status != TRI_ERR_ABORTED ||
            strstr(tri_last_error(),
                   "rank 0 aborted the group: reducer_join: update: IO: the disk") == NULL)
            return RANK_FAIL(env, "%s: %s", tri_status_name(status), tri_last_error());
    }
    tri_reducer_destroy(r);
    tri_group_unref(group);
    return NULL;
}

static void a_failure_of_one_rank_is_the_peers(void **state)
{
    (void)state;
    run_threads(3, &shm_options, gives_up, NULL);
    run_threads(2, &tcp_options, gives_up, NULL);
    assert_int_equal(trii_alloc_live(), 0);
}

static const char *leaves_within_a_pass(rank_env *env)
{
    float x[2] = {1, 2};
    tri_group *group = NULL;
    tri_reducer *r = NULL;
    tri_status status;

    JOIN(env, group);
    RANK_TRY(env, tri_reducer_create(&(tri_reducer_options){.group = group}, &r));
    for (int g = 0; g < 2; g++)
        RANK_TRY(env, tri_reducer_add(r, &(tri_reducer_grad){.data = &x[g], .count = 1}, NULL));
    RANK_TRY(env, tri_reducer_commit(r));
    status = tri_reducer_begin(r, 1);
    if (env->rank != 0) {
        if (status == TRI_OK)
            status = tri_reducer_ready(r, 0);
        if (status == TRI_OK)
            status = tri_reducer_finish(r);
        if (status != TRI_ERR_ABORTED || strstr(tri_last_error(), "within a pass") == NULL)
            return RANK_FAIL(env, "%s: %s", tri_status_name(status), tri_last_error());
    }
    tri_reducer_destroy(r);
    tri_group_unref(group);
    return NULL;
}

static void a_reducer_may_go_within_a_pass(void **state)
{
    (void)state;
    run_threads(2, &shm_options, leaves_within_a_pass, NULL);
    run_threads(2, &tcp_options, leaves_within_a_pass, NULL);
    assert_int_equal(trii_alloc_live(), 0);
}

/* Rank 0 waits for a pass of rank 1, or a gradient, that never comes: the message names the line of
 * the user's call that posted what hangs. */
typedef struct hang {
    bool begun; /* by rank 1, too */
    atomic_int over;
} hang;

static const char *waits_in_vain(rank_env *env)
{
    hang *h = env->arg;
    char begin_line[40], ready_line[40];
    float x = 1;
    tri_group *group = NULL;
    tri_reducer *r = NULL;

    JOIN(env, group);
    RANK_TRY(env, tri_reducer_create(&(tri_reducer_options){.group = group}, &r));
    RANK_TRY(env, tri_reducer_add(r, &(tri_reducer_grad){.data = &x, .count = 1}, NULL));
    RANK_TRY(env, tri_reducer_commit(r));
    if (env->rank == 0) {
        tri_group_set_timeout(group, 400);
        snprintf(begin_line, sizeof(begin_line), "(reducer_mistakes_test.c:%d)", __LINE__ + 1);
        RANK_TRY(env, tri_reducer_begin(r, 1));
        if (h->begun)
            RANK_TRY(env, ranks_meet(env, "begun", -1));
        snprintf(ready_line, sizeof(ready_line), "(reducer_mistakes_test.c:%d)", __LINE__ + 2);
        if (h->begun) {
            RANK_TRY(env, tri_reducer_ready(r, 0));
            RANK_FAILS(env, tri_reducer_finish(r), TRI_ERR_GROUP_TIMEOUT, ready_line);
        } else {
            RANK_FAILS(env, tri_reducer_ready(r, 0), TRI_ERR_GROUP_TIMEOUT, begin_line);
        }
        atomic_store(&h->over, 1);
    } else {
        if (h->begun) {
            RANK_TRY(env, tri_reducer_begin(r, 1));
            RANK_TRY(env, ranks_meet(env, "begun", -1));
        }
        while (atomic_load(&h->over) == 0)
            trii_thread_yield();
    }
    tri_reducer_destroy(r);
    tri_group_unref(group);
    return NULL;
}

static void a_hang_names_the_line_of_the_call(void **state)
{
    hang h = {.begun = false};

    (void)state;
    run_threads(2, &shm_options, waits_in_vain, &h);
    h.begun = true;
    atomic_store(&h.over, 0);
    run_threads(2, &shm_options, waits_in_vain, &h);
    assert_int_equal(trii_alloc_live(), 0);
}

static void every_allocation_may_fail(void **state)
{
    tri_status status = TRI_ERR_NO_MEMORY;
    float x[20] = {0};
    long n = 0;

    (void)state;
    CHECK_OK(tri_init(NULL));
    while (status == TRI_ERR_NO_MEMORY || status == TRI_ERR_ABORTED) {
        long live = trii_alloc_live();
        tri_reducer *r = NULL;

        trii_alloc_fail_at(++n);
        status = tri_reducer_create(NULL, &r);
        for (int g = 0; g < 20 && status == TRI_OK; g++)
            status = tri_reducer_add(r, &(tri_reducer_grad){.data = &x[g], .count = 1}, NULL);
        if (status == TRI_OK)
            status = tri_reducer_begin(r, 1);
        trii_alloc_fail_at(0);
        tri_reducer_destroy(r);
        if (status != TRI_OK && trii_alloc_live() != live)
            fail_msg("allocation %ld: %ld blocks are left", n, trii_alloc_live() - live);
        tri_finalize(); /* a failure within the commit aborts the group */
        CHECK_OK(tri_init(NULL));
    }
    CHECK_OK(status);
    tri_finalize();
    assert_true(n > 30);
    assert_int_equal(trii_alloc_live(), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(mistakes_are_named_and_harmless),
    cmocka_unit_test(differing_gradients_are_named_on_every_rank),
    cmocka_unit_test(a_failure_of_one_rank_is_the_peers),
    cmocka_unit_test(a_reducer_may_go_within_a_pass),
    cmocka_unit_test(a_hang_names_the_line_of_the_call),
    cmocka_unit_test(every_allocation_may_fail),
};

TEST_MAIN(tests)
