/*
 * group_poor_test.c - a rank that has no memory while a group is formed: the others hear of it,
 * instead of waiting until their deadline, and the next group forms.
 */
#include "testing/check.h"
#include "testing/ranks.h"

#include "base/alloc.h"

#define POOR 1         /* this rank */
#define MOST 400       /* allocations of forming a group */
#define FORM_MS 20000  /* if it is waited out, the test has failed */
#define WATCHDOG_S 120 /* of all processes */

typedef enum way { CREATED, SPLIT, LISTED } way;

typedef struct poverty {
    int in_a_row; /* allocations that fail */
    way how;
} poverty;

/* whole: NULL, or a group of all ranks. */
static tri_status form(const rank_env *env, tri_group *whole, way how, tri_group **group_out)
{
    static const int all[] = {0, 1, 2};

    if (how == SPLIT)
        return tri_group_split(whole, 0, 0, NULL, group_out);
    if (how == LISTED)
        return tri_group_new(whole, all, env->size, NULL, group_out);
    return tri_group_create(env->store, env->rank, env->size, env->options, group_out);
}

/* The group forms on all ranks or on none, and a rank that waits knows why. *over_out: no
 * allocation was left to fail. */
static const char *form_once(rank_env *env, const poverty *p, int n, bool *over_out)
{
    char key[32], word[160], *theirs = NULL;
    tri_group *group = NULL, *whole = NULL;
    tri_status status;
    long calls;

    if (p->how != CREATED)
        RANK_TRY(env, form(env, NULL, CREATED, &whole));
    trii_alloc_fail_some(env->rank == POOR ? n : 0, p->in_a_row);
    calls = trii_alloc_calls();
    status = form(env, whole, p->how, &group);
    calls = trii_alloc_calls() - calls;
    trii_alloc_fail_at(0);
    snprintf(word, sizeof(word), "%d %d", (int)status, status == TRI_OK && calls < n);
    /* with two the rank may lose a connection over it, which the others see first */
    if (status != TRI_OK && status != TRI_ERR_NO_MEMORY &&
        (status != TRI_ERR_PEER_LOST || p->in_a_row == 1))
        return RANK_FAIL(env, "rank %d, allocation %d of rank %d: %s", env->rank, n, POOR,
                         tri_last_error());
    if (status == TRI_ERR_NO_MEMORY && strstr(tri_last_error(), "rank 1") == NULL)
        return RANK_FAIL(env, "rank %d, allocation %d: nobody is named: %s", env->rank, n,
                         tri_last_error());
    if (status == TRI_OK)
        RANK_TRY(env, tri_barrier(group, NULL));
    tri_group_unref(group);
    tri_group_unref(whole);
    snprintf(key, sizeof(key), "said/%d/%d", n, env->rank);
    RANK_TRY(env, tri_store_set(env->store, key, word, strlen(word)));
    for (int r = 0; r < env->size; r++) {
        int its = 0, over = 0;

        snprintf(key, sizeof(key), "said/%d/%d", n, r);
        RANK_TRY(env, tri_store_get(env->store, key, FORM_MS, (void **)&theirs, NULL));
        if (sscanf(theirs, "%d %d", &its, &over) != 2)
            its = 1;
        tri_store_free(theirs);
        if (p->in_a_row == 1 ? its != (int)status : (its == 0) != (status == TRI_OK))
            return RANK_FAIL(env, "rank %d has %d, rank %d has %d, allocation %d", env->rank,
                             (int)status, r, its, n);
        if (r == POOR)
            *over_out = over != 0;
    }
    return NULL;
}

static const char *each_allocation_fails(rank_env *env)
{
    const poverty *p = env->arg;
    const char *failure = NULL;
    bool over = false;

    for (int n = 1; n < MOST && !over && failure == NULL; n++)
        failure = form_once(env, p, n, &over);
    return failure != NULL || over
               ? failure
               : RANK_FAIL(env, "forming a group allocates %d times or more", MOST);
}

static void torture_forming(way how, const char *engine, int in_a_row)
{
    const tri_group_options options = {.engine = engine, .timeout_ms = FORM_MS};
    poverty p = {in_a_row, how};

    run_processes(3, &options, each_allocation_fails, &p, NULL, WATCHDOG_S);
}

static void torture(const char *engine, int in_a_row)
{
    torture_forming(CREATED, engine, in_a_row);
}

static void all_hear_of_a_rank_without_memory_shm(void **state)
{
    (void)state;
    torture("shm", 1);
}

static void all_hear_of_a_rank_without_memory_shm_twice(void **state)
{
    (void)state;
    torture("shm", 2);
}

static void all_hear_of_a_rank_without_memory_tcp(void **state)
{
    (void)state;
    torture("tcp", 1);
}

static void all_hear_of_a_rank_without_memory_tcp_twice(void **state)
{
    (void)state;
    torture("tcp", 2);
}

static void all_hear_of_a_rank_without_memory_where_the_engine_is_chosen(void **state)
{
    (void)state;
    torture(NULL, 1);
}

static void all_hear_of_a_rank_without_memory_where_the_engine_is_chosen_twice(void **state)
{
    (void)state;
    torture(NULL, 2);
}

static void all_hear_of_a_rank_without_memory_where_a_group_is_split(void **state)
{
    (void)state;
    torture_forming(SPLIT, "shm", 1);
}

static void all_hear_of_a_rank_without_memory_where_ranks_are_listed(void **state)
{
    (void)state;
    torture_forming(LISTED, "shm", 1);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(all_hear_of_a_rank_without_memory_shm),
    cmocka_unit_test(all_hear_of_a_rank_without_memory_shm_twice),
    cmocka_unit_test(all_hear_of_a_rank_without_memory_tcp),
    cmocka_unit_test(all_hear_of_a_rank_without_memory_tcp_twice),
    cmocka_unit_test(all_hear_of_a_rank_without_memory_where_the_engine_is_chosen),
    cmocka_unit_test(all_hear_of_a_rank_without_memory_where_the_engine_is_chosen_twice),
    cmocka_unit_test(all_hear_of_a_rank_without_memory_where_a_group_is_split),
    cmocka_unit_test(all_hear_of_a_rank_without_memory_where_ranks_are_listed),
};

TEST_MAIN(tests)
