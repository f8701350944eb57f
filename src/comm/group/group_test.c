/*
 * group_test.c - what a group promises, through the public calls and a group of one.
 */
/* ctest: threads=none */
#include "testing/check.h"

#include <trireme/comm.h>

#include "base/alloc.h"
#include "comm/group/group_internal.h"

static tri_group *group_of_one(void)
{
    tri_group *group = NULL;

    CHECK_OK(tri_group_create(NULL, 0, 1, NULL, &group));
    return group;
}

static void collectives_of_one_rank_copy(void **state)
{
    const float src[3] = {1.0f, -2.0f, 0.5f};
    float dst[3] = {0};
    tri_work *work = NULL;
    tri_group *group = group_of_one();

    (void)state;
    assert_string_equal(tri_group_engine(group), "self");
    CHECK_OK(tri_all_reduce(group, src, dst, 3, TRI_DTYPE_F32, TRI_REDOP_AVG, NULL));
    assert_memory_equal(dst, src, sizeof(src));
    memset(dst, 0, sizeof(dst));
    CHECK_OK(tri_reduce_scatter(group, src, dst, 3, TRI_DTYPE_F32, TRI_REDOP_SUM, &work));
    tri_group_unref(group); /* the work keeps the group */
    CHECK_OK(tri_work_wait(work, 0));
    assert_memory_equal(dst, src, sizeof(src));
    tri_work_destroy(work);
    assert_int_equal(trii_alloc_live(), 0);
}

static void bad_arguments_are_named_with_their_values(void **state)
{
    float x[4] = {0};
    tri_group *group = NULL;

    (void)state;
    CHECK_FAILS(tri_group_create(NULL, 2, 2, NULL, &group), TRI_ERR_INVALID_ARG, "rank 2 of 2");
    CHECK_FAILS(tri_group_create(NULL, 0, 2, NULL, &group), TRI_ERR_INVALID_ARG, "store is NULL");
    CHECK_FAILS(
        tri_group_create(NULL, 0, 1, &(tri_group_options){.engine = "carrier pigeon"}, &group),
        TRI_ERR_UNSUPPORTED, "carrier pigeon");
    CHECK_FAILS(
        tri_group_create(NULL, 0, 1, &(tri_group_options){.engine = "carrier pigeon"}, &group),
        TRI_ERR_UNSUPPORTED, "this library's: self, shm, hierarchy, tcp");
    CHECK_FAILS(tri_barrier(NULL, NULL), TRI_ERR_STATE, "tri_init");
    CHECK_FAILS(tri_work_wait(NULL, 0), TRI_ERR_INVALID_ARG, "work is NULL");
    CHECK_FAILS(tri_work_test(NULL), TRI_ERR_INVALID_ARG, "work is NULL");
    group = group_of_one();
    CHECK_FAILS(tri_all_reduce(group, x, x + 1, 2, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL),
                TRI_ERR_INVALID_ARG, "overlap");
    CHECK_FAILS(tri_all_reduce(group, NULL, x, 2, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL),
                TRI_ERR_INVALID_ARG, "src is NULL");
    CHECK_FAILS(tri_all_reduce(group, x, x, 2, TRI_DTYPE_I32, TRI_REDOP_AVG, NULL),
                TRI_ERR_INVALID_ARG, "avg of i32");
    CHECK_FAILS(tri_all_reduce(group, x, x, SIZE_MAX / 2, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL),
                TRI_ERR_INVALID_ARG, "count");
    CHECK_FAILS(tri_broadcast(group, x, 2, TRI_DTYPE_F32, 3, NULL), TRI_ERR_INVALID_ARG,
                "root 3 is out of range (group of 1)");
    CHECK_FAILS(tri_send(group, x, 2, TRI_DTYPE_F32, 1, 0, NULL), TRI_ERR_INVALID_ARG,
                "peer 1 is out of range (group of 1)");
    tri_group_unref(group);
}

static void an_aborted_group_stays_failed(void **state)
{
    float x = 1.0f;
    tri_group *group = group_of_one();

    (void)state;
    tri_group_abort(group, "enough");
    tri_group_abort(group, "a second reason");
    for (int i = 0; i < 2; i++)
        CHECK_FAILS(tri_all_reduce(group, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL),
                    TRI_ERR_ABORTED, "enough");
    tri_group_unref(group);
}

static void the_world_is_what_null_means(void **state)
{
    int32_t x = 7;
    tri_group *group = group_of_one();

    (void)state;
    trii_group_set_world(group);
    CHECK_OK(tri_all_reduce(NULL, &x, &x, 1, TRI_DTYPE_I32, TRI_REDOP_SUM, NULL));
    assert_int_equal(x, 7);
    assert_int_equal(tri_group_size(NULL), 1);
    trii_group_set_world(NULL);
    tri_group_unref(group);
}

static void every_allocation_may_fail(void **state)
{
    tri_status status = TRI_ERR_NO_MEMORY;
    float x = 1.0f;
    long n = 0;

    (void)state;
    while (status == TRI_ERR_NO_MEMORY) {
        tri_work *work = NULL;
        tri_group *group = NULL;

        trii_alloc_fail_at(++n);
        status = tri_group_create(NULL, 0, 1, NULL, &group);
        if (status == TRI_OK)
            status = tri_all_reduce(group, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, &work);
        trii_alloc_fail_at(0);
        tri_work_destroy(work);
        tri_group_unref(group);
        assert_int_equal(trii_alloc_live(), 0);
    }
    CHECK_OK(status);
    assert_true(n > 2);
}

static void a_call_after_finalize_says_so(void **state)
{
    float x = 1;

    (void)state;
    CHECK_FAILS(
        tri_all_reduce(NULL, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL), TRI_ERR_STATE,
        "all_reduce: the group is NULL and this process has no world: tri_init was not called");
    CHECK_OK(tri_init(NULL));
    CHECK_OK(tri_all_reduce(NULL, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL));
    tri_finalize();
    CHECK_FAILS(tri_all_reduce(NULL, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL), TRI_ERR_STATE,
                "this process has no world: tri_finalize has left it");
    CHECK_FAILS(tri_barrier(NULL, NULL), TRI_ERR_STATE, "tri_finalize has left it");
    assert_null(tri_group_alloc(NULL, 8));
    assert_non_null(strstr(tri_last_error(), "tri_finalize has left it"));
    CHECK_OK(tri_init(NULL));
    CHECK_OK(tri_barrier(NULL, NULL));
    tri_finalize();
}

static void a_group_has_a_largest_size(void **state)
{
    tri_group *group = NULL;
    tri_store *store = NULL;

    (void)state;
    CHECK_OK(tri_store_hash(&store));
    CHECK_FAILS(tri_group_create(store, 0, 1025, NULL, &group), TRI_ERR_UNSUPPORTED,
                "a group of 1025; at most 1024 ranks");
    tri_store_unref(store);
}

static void nothing_is_harmless(void **state)
{
    (void)state;
    assert_null(tri_group_ref(NULL));
    tri_group_unref(NULL);
    assert_string_equal(tri_work_error(NULL), "");
    tri_work_destroy(NULL);
    tri_object_free(NULL);
}

/* One that a debugger holds in the middle of it. */
static void a_fault_whose_author_stops_is_waited_for_with_an_end(void **state)
{
    static trii_fault fault, whole;

    (void)state;
    atomic_store(&fault.claimed, 1);
    assert_false(trii_fault_raise(&fault, TRI_ERR_PEER_LOST, "another"));
    assert_int_equal(trii_fault_cause(&fault), TRI_ERR_ABORTED);
    assert_true(trii_fault_raise(&whole, TRI_ERR_PEER_LOST, "rank %d", 3));
    assert_int_equal(trii_fault_cause(&whole), TRI_ERR_PEER_LOST);
    assert_string_equal(whole.text, "rank 3");
}

/* As a member of a packed structure is. */
static void a_reduction_wants_aligned_buffers_and_a_copy_does_not(void **state)
{
    TRII_ALIGNED(16) char bytes[200] = {0};
    const size_t counts[] = {3};
    tri_group *group = NULL;
    char *at = bytes + 64, *off = bytes + 1;

    (void)state;
    CHECK_OK(tri_group_create(NULL, 0, 1, NULL, &group));
    CHECK_FAILS(tri_all_reduce(group, off, at, 3, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL),
                TRI_ERR_INVALID_ARG, "not a multiple of 4, the size of f32");
    CHECK_FAILS(tri_all_reduce(group, at, off, 3, TRI_DTYPE_F64, TRI_REDOP_MAX, NULL),
                TRI_ERR_INVALID_ARG, "all_reduce: dst is 0x");
    CHECK_FAILS(tri_reduce(group, off, at, 0, TRI_DTYPE_BF16, TRI_REDOP_SUM, 0, NULL),
                TRI_ERR_INVALID_ARG, "reduce: src is 0x");
    CHECK_FAILS(tri_reduce_scatter(group, at + 2, bytes, 3, TRI_DTYPE_C64, TRI_REDOP_SUM, NULL),
                TRI_ERR_INVALID_ARG, "not a multiple of 4");
    CHECK_FAILS(tri_reduce_scatter_v(group, off, at, counts, TRI_DTYPE_I64, TRI_REDOP_SUM, NULL),
                TRI_ERR_INVALID_ARG, "not a multiple of 8, the size of i64");
    CHECK_OK(tri_all_reduce(group, off, at, 3, TRI_DTYPE_U8, TRI_REDOP_SUM, NULL));
    CHECK_OK(tri_all_reduce(group, at + 4, at + 40, 3, TRI_DTYPE_C64, TRI_REDOP_SUM, NULL));
    CHECK_OK(tri_all_gather(group, off, at, 3, TRI_DTYPE_F32, NULL));
    CHECK_OK(tri_broadcast(group, off, 3, TRI_DTYPE_F64, 0, NULL));
    tri_group_unref(group);
}

static void names_of_calls_end_where_their_room_does(void **state)
{
    enum { N = 5, ROOM = 30 };
    char text[128];
    float x = 1;
    tri_work *works[N];
    tri_group *group = group_of_one();

    (void)state;
    memset(text, '~', sizeof(text));
    for (int i = 0; i < N; i++)
        CHECK_OK(tri_all_reduce(group, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, &works[i]));
    assert_int_equal(trii_group_name_works(group, text, ROOM), N);
    assert_int_equal(strlen(text), ROOM - 1);
    for (size_t i = ROOM; i < sizeof(text); i++)
        assert_int_equal(text[i], '~');
    for (int i = 0; i < N; i++)
        tri_work_destroy(works[i]);
    tri_group_unref(group);
}

static void a_group_is_in_epoch_0_since_none_recovers(void **state)
{
    tri_group *group = group_of_one(), *other = NULL;

    (void)state;
    assert_int_equal(tri_group_epoch(group), 0);
    assert_int_equal(tri_group_epoch(NULL), 0);
    CHECK_OK(tri_group_split(group, -1, 0, NULL, &other)); /* of which this is no member */
    assert_int_equal(tri_group_epoch(other), 0);
    tri_group_unref(other);
    tri_group_abort(group, "it shall fail");
    assert_int_equal(tri_group_epoch(group), 0);
    group->epoch = 2;
    assert_int_equal(tri_group_epoch(group), 2);
    tri_group_unref(group);
}

static void a_call_takes_part_in_no_later_epoch_than_its_own(void **state)
{
    float x = 1, y = 0;
    tri_work *over = NULL, *open = NULL;
    tri_group *group = group_of_one();

    (void)state;
    CHECK_OK(tri_all_reduce(group, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, &over));
    CHECK_OK(tri_recv(group, &y, 1, TRI_DTYPE_F32, 0, 5, &open));
    group->epoch = 1; /* as if the group had recovered */
    CHECK_OK(tri_work_wait(over, 0));
    CHECK_FAILS(tri_work_wait(open, 0), TRI_ERR_ABORTED,
                "work_wait: the call belongs to epoch 0 of group ");
    CHECK_FAILS(tri_work_test(open), TRI_ERR_ABORTED, ", now in 1");
    group->epoch = 0;
    CHECK_OK(tri_send(group, &x, 1, TRI_DTYPE_F32, 0, 5, NULL));
    CHECK_OK(tri_work_wait(open, 0));
    tri_work_destroy(over);
    tri_work_destroy(open);
    tri_group_unref(group);
    assert_int_equal(trii_alloc_live(), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_group_is_in_epoch_0_since_none_recovers),
    cmocka_unit_test(a_call_takes_part_in_no_later_epoch_than_its_own),
    cmocka_unit_test(names_of_calls_end_where_their_room_does),
    cmocka_unit_test(a_fault_whose_author_stops_is_waited_for_with_an_end),
    cmocka_unit_test(a_reduction_wants_aligned_buffers_and_a_copy_does_not),
    cmocka_unit_test(a_group_has_a_largest_size),
    cmocka_unit_test(nothing_is_harmless),
    cmocka_unit_test(collectives_of_one_rank_copy),
    cmocka_unit_test(bad_arguments_are_named_with_their_values),
    cmocka_unit_test(an_aborted_group_stays_failed),
    cmocka_unit_test(the_world_is_what_null_means),
    cmocka_unit_test(every_allocation_may_fail),
    cmocka_unit_test(a_call_after_finalize_says_so),
};

TEST_MAIN(tests)
