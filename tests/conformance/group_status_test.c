/*
 * group_status_test.c - a status says what must be replaced: whatever fails a group comes out in
 * the group's range, from the call that met it, from every later one and when asked.
 */
#include "testing/check.h"
#include "testing/ranks.h"

#include "base/alloc.h"
#include "comm/group/engine.h"

/* Every cause that there is, and what a group makes of it. */
static const struct {
    tri_status cause, of_group;
    const char *begins;
} causes[] = {
    {TRI_ERR_INVALID_ARG, TRI_ERR_ABORTED, "INVALID_ARG: why"},
    {TRI_ERR_NO_MEMORY, TRI_ERR_ABORTED, "NO_MEMORY: why"},
    {TRI_ERR_UNSUPPORTED, TRI_ERR_ABORTED, "UNSUPPORTED: why"},
    {TRI_ERR_TIMEOUT, TRI_ERR_GROUP_TIMEOUT, "why"},
    {TRI_ERR_IO, TRI_ERR_ABORTED, "IO: why"},
    {TRI_ERR_NOT_FOUND, TRI_ERR_ABORTED, "NOT_FOUND: why"},
    {TRI_ERR_FORMAT, TRI_ERR_ABORTED, "FORMAT: why"},
    {TRI_ERR_STATE, TRI_ERR_ABORTED, "STATE: why"},
    {TRI_ERR_NAN, TRI_ERR_ABORTED, "NAN: why"},
    {TRI_ERR_PEER_LOST, TRI_ERR_PEER_LOST, "why"},
    {TRI_ERR_ABORTED, TRI_ERR_ABORTED, "why"},
    {TRI_ERR_MISMATCH, TRI_ERR_MISMATCH, "why"},
    {TRI_ERR_GROUP_TIMEOUT, TRI_ERR_GROUP_TIMEOUT, "why"},
    {TRI_ERR_INTERNAL, TRI_ERR_INTERNAL, "why"},
};

static void what_fails_a_group_is_of_its_range(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(causes) / sizeof(causes[0]); i++) {
        trii_fault fault = {0};

        assert_true(trii_fault_raise(&fault, causes[i].cause, "why"));
        assert_int_equal(trii_fault_status(&fault), causes[i].of_group);
        assert_true(trii_fault_status(&fault) <= TRI_ERR_PEER_LOST);
        assert_string_equal(fault.text, causes[i].begins);
    }
}

static void every_status_has_a_name_of_its_own(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(causes) / sizeof(causes[0]); i++) {
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(tri_status_name(causes[i].cause),
                                    tri_status_name(causes[k].cause));
        assert_string_not_equal(tri_status_name(causes[i].cause), "unknown status");
    }
}

typedef struct failure {
    const char *engine;
    tri_status at_cause, elsewhere; /* rank 0 has the cause */
    const char *words;
    const char *(*make)(rank_env *env, tri_group *g);
} failure;

static const char *runs_out_of_memory(rank_env *env, tri_group *g)
{
    enum { MANY = 1 << 20 };
    const failure *f = env->arg;
    float *x = calloc(MANY, sizeof(*x));
    tri_status st;

    if (env->rank == 0)
        trii_alloc_fail_at(1); /* the scratch memory of the sum */
    st = tri_all_reduce(g, x, x, MANY, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL);
    trii_alloc_fail_at(0);
    free(x);
    if (env->rank == 0 && (st != f->at_cause || strstr(tri_last_error(), f->words) == NULL))
        return RANK_FAIL(env, "%s: %s", tri_status_name(st), tri_last_error());
    return NULL;
}

static const char *has_no_room_for_objects(rank_env *env, tri_group *g)
{
    const failure *f = env->arg;
    void *data = NULL;
    size_t bytes = 0;
    tri_status st;

    if (env->rank == 0)
        trii_alloc_fail_at(1); /* root 1 gives an object: only its copy is made */
    st = tri_broadcast_object(g, env->rank == 1 ? "object" : NULL, 6, 1, &data, &bytes);
    trii_alloc_fail_at(0);
    tri_object_free(data);
    if (env->rank == 0 && (st != f->at_cause || strstr(tri_last_error(), f->words) == NULL))
        return RANK_FAIL(env, "%s: %s", tri_status_name(st), tri_last_error());
    return NULL;
}

static const char *waits_in_vain(rank_env *env, tri_group *g)
{
    const failure *f = env->arg;

    if (env->rank != 0)
        return NULL;
    tri_group_set_timeout(g, 100);
    RANK_FAILS(env, tri_barrier(g, NULL), f->at_cause, f->words);
    return NULL;
}

static const char *gives_up(rank_env *env, tri_group *g)
{
    const failure *f = env->arg;

    if (env->rank == 0)
        tri_group_abort(g, "enough");
    else
        RANK_FAILS(env, tri_barrier(g, NULL), f->elsewhere, "enough");
    return NULL;
}

static const char *fails(rank_env *env)
{
    const failure *f = env->arg;
    tri_status want = env->rank == 0 ? f->at_cause : f->elsewhere;
    tri_group *g = NULL;
    const char *failed;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    RANK_TRY(env, tri_barrier(g, NULL));
    RANK_TRY(env, tri_group_status(g));
    RANK_TRY(env, ranks_meet(env, "whole", -1));
    failed = f->make(env, g);
    if (failed != NULL)
        return failed;
    RANK_TRY(env, ranks_meet(env, "failed", -1));
    /* Rank 0 did come to the one that it gave up: for the other it may have ended well. */
    if (env->rank == 1 && f->make == waits_in_vain && tri_barrier(g, NULL) == TRI_OK)
        print_message("rank 1 was through\n");
    RANK_FAILS(env, tri_barrier(g, NULL), want, "");
    RANK_FAILS(env, tri_group_status(g), want, f->words);
    RANK_TRY(env, ranks_meet(env, "asked", -1));
    tri_group_unref(g);
    return NULL;
}

static void later_calls_and_the_group_say_the_same(void **state)
{
    static const failure failures[] = {
        {"tcp", TRI_ERR_ABORTED, TRI_ERR_ABORTED, "NO_MEMORY: ", runs_out_of_memory},
        {"shm", TRI_ERR_ABORTED, TRI_ERR_ABORTED, "broadcast_object", has_no_room_for_objects},
        {"tcp", TRI_ERR_ABORTED, TRI_ERR_ABORTED, "broadcast_object", has_no_room_for_objects},
        {"shm", TRI_ERR_GROUP_TIMEOUT, TRI_ERR_ABORTED, "waited 0.", waits_in_vain},
        {"tcp", TRI_ERR_GROUP_TIMEOUT, TRI_ERR_ABORTED, "waited 0.", waits_in_vain},
        {"shm", TRI_ERR_ABORTED, TRI_ERR_ABORTED, "enough", gives_up},
        {"tcp", TRI_ERR_ABORTED, TRI_ERR_ABORTED, "enough", gives_up},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
        failure f = failures[i];
        tri_group_options options = {.engine = f.engine, .timeout_ms = 20000};

        print_message("%s, %s\n", f.engine, f.words);
        run_processes(2, &options, fails, &f, NULL, 30);
    }
}

static void without_a_world_there_is_no_status(void **state)
{
    (void)state;
    CHECK_FAILS(tri_group_status(NULL), TRI_ERR_STATE, "tri_init was not called");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(what_fails_a_group_is_of_its_range),
    cmocka_unit_test(every_status_has_a_name_of_its_own),
    cmocka_unit_test(later_calls_and_the_group_say_the_same),
    cmocka_unit_test(without_a_world_there_is_no_status),
};

TEST_MAIN(tests)
