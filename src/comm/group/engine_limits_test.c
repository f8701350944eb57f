/*
 * engine_limits_test.c - what the group does for engines that lack something: a call is refused
 * with the engine's name and who has it; what is in a device's memory is not touched.
 */
#include "testing/check.h"

#include <string.h>

#include "comm/group/group_internal.h"

/* The engine of a group of one, with other facts, and what it was given. */
static trii_engine lame;
static trii_collective given;
static void *given_queue;
static tri_status answer; /* not OK: it is not taken */

static tri_status take(void *self, trii_op *op, bool waits)
{
    (void)self;
    (void)waits;
    given = op->call;
    if (lame.device != NULL)
        given_queue = op->queue;
    if (answer != TRI_OK)
        return answer;
    trii_op_finish(op, TRI_OK, NULL);
    return TRI_OK;
}

static tri_device a_gpu(const void *self)
{
    (void)self;
    return TRI_CUDA(3);
}

static tri_group *group_with(uint32_t lacks, bool on_device)
{
    tri_group *group = NULL;

    CHECK_OK(tri_group_create(NULL, 0, 1, NULL, &group));
    lame = *group->engine;
    lame.name = "lame";
    lame.kinds &= ~lacks;
    lame.device = on_device ? a_gpu : NULL;
    lame.submit = take;
    group->engine = &lame;
    return group;
}

static void what_is_lacking_is_refused_with_who_has_it(void **state)
{
    tri_group *group = group_with(1u << TRII_KIND_ALL_REDUCE, false);
    float x = 1.0f, y = 2.0f;

    (void)state;
    CHECK_FAILS(tri_all_reduce(group, &x, &y, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL),
                TRI_ERR_UNSUPPORTED,
                "all_reduce: engine lame does not have it; shm, tcp and hierarchy do");
    CHECK_OK(tri_barrier(group, NULL));
    tri_group_unref(group);
}

static void factors_are_applied_for_an_engine(void **state)
{
    tri_group *group = group_with(0, false);
    float x = 3.0f, y = 0.0f;

    (void)state;
    CHECK_OK(tri_all_reduce_premul_sum(group, &x, &y, 1, TRI_DTYPE_F32, 0.5f, NULL));
    assert_ptr_equal(given.src, &y);
    assert_true(y == 1.5f);
    tri_group_unref(group);
}

/* Memory that the processor may not be able to read. */
static void factors_are_left_to_an_engine_on_a_device(void **state)
{
    tri_group *group = group_with(0, true);
    void *device = (void *)(uintptr_t)4096; /* a touch would end the test */

    (void)state;
    CHECK_OK(tri_all_reduce_premul_sum(group, device, device, 1000, TRI_DTYPE_F16, 0.5f, NULL));
    assert_ptr_equal(given.src, device);
    assert_int_equal(given.op, TRII_REDOP_PREMUL_SUM);
    assert_true(given.factor == 0.5f);
    tri_group_unref(group);
}

static void calls_bring_the_threads_queue_to_an_engine_on_a_device(void **state)
{
    tri_group *group = group_with(0, true);
    void *device = (void *)(uintptr_t)4096;
    tri_work *work = NULL;
    int queue = 0, other = 0; /* stand for queues */

    (void)state;
    CHECK_OK(tri_device_set_queue(TRI_CUDA(3), &queue));
    CHECK_OK(tri_device_set_queue(TRI_CUDA(0), &other)); /* the engine's device is cuda:3 */
    CHECK_OK(tri_broadcast(group, device, 9, TRI_DTYPE_U8, 0, NULL));
    assert_ptr_equal(given_queue, &queue);
    CHECK_OK(tri_device_set_queue(TRI_CUDA(3), NULL));
    CHECK_OK(tri_broadcast(group, device, 9, TRI_DTYPE_U8, 0, &work));
    assert_null(given_queue);
    CHECK_OK(tri_work_wait(work, 0));
    tri_work_destroy(work);
    CHECK_OK(tri_device_set_queue(TRI_CUDA(0), NULL));
    tri_group_unref(group);
}

/* The host's memory would be refused by the next call. */
static void an_engine_on_a_device_gives_no_memory_of_the_host(void **state)
{
    tri_group *group = group_with(0, true);

    (void)state;
    lame.alloc = NULL;
    assert_null(tri_group_alloc(group, 100));
    assert_non_null(strstr(tri_last_error(), "group_alloc: engine lame reduces memory of a device, "
                                             "and has none to give"));
    CHECK_OK(tri_barrier(group, NULL));
    tri_group_unref(group);
}

/* The other ranks have made it, and messages and `trireme why` compare numbers. */
static void a_call_that_is_not_taken_has_no_number(void **state)
{
    tri_group *group = group_with(0, false);
    float x = 1.0f;

    (void)state;
    CHECK_OK(tri_all_reduce(group, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL));
    answer = TRI_ERR_NO_MEMORY;
    assert_int_equal(tri_all_reduce(group, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL),
                     TRI_ERR_NO_MEMORY);
    assert_int_equal(tri_send(group, &x, 1, TRI_DTYPE_F32, 0, 0, NULL), TRI_ERR_NO_MEMORY);
    answer = TRI_OK;
    CHECK_OK(tri_barrier(group, NULL));
    assert_int_equal(given.seq, 2);
    CHECK_OK(tri_send(group, &x, 1, TRI_DTYPE_F32, 0, 0, NULL));
    assert_int_equal(given.seq, 1);
    tri_group_unref(group);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(what_is_lacking_is_refused_with_who_has_it),
    cmocka_unit_test(a_call_that_is_not_taken_has_no_number),
    cmocka_unit_test(factors_are_applied_for_an_engine),
    cmocka_unit_test(factors_are_left_to_an_engine_on_a_device),
    cmocka_unit_test(an_engine_on_a_device_gives_no_memory_of_the_host),
    cmocka_unit_test(calls_bring_the_threads_queue_to_an_engine_on_a_device),
};

TEST_MAIN(tests)
