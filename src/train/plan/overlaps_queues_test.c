/* overlaps_queues_test.c - tensors that share memory, over several queues, with communication, and
 * in steps that fail. */
/* ctest: also=TRI_EAGER=1 */
#include "base/err.h"
#include "testing/any_order.h"
#include "testing/shared_unit.h"
#include "train/graph/step/host_op.h"

/* --- several queues ------------------------------------------------------- */

typedef void (*scenario)(void);

/* Runs it in each order. */
static void in_any_order(scenario run)
{
    int before = any_order_runs;

    CHECK_OK(tri_cpu_devices_set(3));
    trii_executor_set(&any_order_executor);
    for (any_order_number = 0; any_order_number < ANY_ORDERS; any_order_number++)
        run();
    trii_executor_set(NULL);
    assert_true(any_order_runs >= before + ANY_ORDERS);
}

/* Another device reads where the part lies. */
static void queues_read_part_write_whole(void)
{
    unit u = make_unit(LARGE, 1);
    tri_tensor *early = plus(tri_to(u.a, TRI_CPU(1)), 1);
    tri_tensor *other = plus(tri_to(u.shard, TRI_CPU(2)), 2), *late;

    leave_in(tri_mul_scalar(u.flat, 3), u.flat);
    late = plus(tri_to(u.b, TRI_CPU(2)), 1);
    EXPECT(early, 2);
    EXPECT(other, 3);
    EXPECT(late, 4);
    EXPECT(u.flat, 3);
    free_unit(&u);
}

static void queues_read_whole_write_part(void)
{
    unit u = make_unit(LARGE, 1);
    tri_tensor *early = plus(tri_to(u.flat, TRI_CPU(1)), 1), *late;

    leave_in(tri_mul_scalar(u.a, 3), u.a);
    leave_in(tri_mul_scalar(u.b, 5), u.b);
    late = plus(tri_to(u.shard, TRI_CPU(1)), 1);
    EXPECT(early, 2);
    EXPECT(late, 4, 6);
    EXPECT(u.flat, 3, 3, 5, 5);
    free_unit(&u);
}

/* Small ones are written at the end, when other queues have read them. */
static void queues_write_small(void)
{
    unit u = make_unit(SMALL, 1);
    tri_tensor *early = plus(tri_to(u.a, TRI_CPU(1)), 1);
    const int64_t index[1] = {0};
    tri_tensor *table = tri_tensor_create(TRI_SHAPE(2, 2), TRI_DTYPE_F32);
    tri_tensor *at = tri_tensor_from(TRI_SHAPE(1), TRI_DTYPE_I64, index), *row;

    leave_in(tri_mul_scalar(u.shard, 3), u.shard);
    row = tri_keep(tri_embedding(at, table, NULL)); /* may fail */
    EXPECT(early, 2);
    EXPECT(u.flat, 1, 3, 3, 1);
    (void)row;
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(table);
    tri_tensor_unref(at);
    free_unit(&u);
}

static void queues_keep_the_order_of_whole_and_parts(void **state)
{
    (void)state;
    if (is_eager())
        return; /* there are no queues */
    in_any_order(queues_read_part_write_whole);
    in_any_order(queues_read_whole_write_part);
    in_any_order(queues_write_small);
}

/* Of the newest plan: how often an entry of one queue waits for one of another. */
static int32_t n_waits;

static tri_status count_waits(trii_step *step, const trii_segment *segment)
{
    trii_plan *plan;
    tri_status status = trii_plan_create(step, segment, &trii_plan_device, true, &plan);

    if (status != TRI_OK)
        return status;
    assert_int_equal(plan->n_queues, 2);
    n_waits = plan->first_wait[plan->n_entries];
    trii_plan_destroy(plan);
    return trii_executor_plan.run(step, segment);
}

static const trii_executor counting = {.name = "counting", .run = count_waits};

static int32_t waits_of(bool disjoint_parts)
{
    unit u = make_unit(LARGE, 1);
    tri_tensor *read = disjoint_parts ? u.b : u.shard, *early;

    CHECK_OK(tri_cpu_devices_set(2));
    trii_executor_set(&counting);
    (void)plus(u.a, 5); /* the first queue is that of cpu:0 */
    early = plus(tri_to(read, TRI_CPU(1)), 1);
    leave_in(tri_mul_scalar(u.a, 3), u.a);
    EXPECT(early, 2);
    trii_executor_set(NULL);
    EXPECT(u.flat, 3, 3, 1, 1);
    free_unit(&u);
    return n_waits;
}

static void queues_do_not_wait_for_other_parts(void **state)
{
    (void)state;
    if (is_eager())
        return; /* there are no queues */
    assert_int_equal(waits_of(true), 0);
    assert_int_equal(waits_of(false), 1);
}

/* --- communication -------------------------------------------------------- */

/* In place of a gather: each quarter of the result is the operand, plus its number. */
typedef struct gather {
    trii_host_op op; /* first */
    trii_host_buffers buffers;
    size_t n; /* floats of the operand */
    tri_status status;
} gather;

static tri_status gather_start(trii_host_op *op, const trii_host_buffers *buffers)
{
    ((gather *)op)->buffers = *buffers;
    return TRI_OK;
}

static tri_status gather_wait(trii_host_op *op, int64_t for_ns)
{
    const gather *g = (const gather *)op;
    const float *in = g->buffers.in[0];
    float *out = g->buffers.out[0];

    (void)for_ns;
    if (g->status != TRI_OK)
        return TRII_FAIL(g->status, "no peer");
    for (int i = 1; i >= 0; i--) {
        for (size_t k = 0; k < g->n; k++)
            out[(size_t)i * g->n + k] = in[k] + (float)i;
    }
    return TRI_OK;
}

static tri_status gather_poll(trii_host_op *op)
{
    return gather_wait(op, 0);
}

static const trii_host_kind gather_kind = {
    .name = "gather", .start = gather_start, .poll = gather_poll, .wait = gather_wait};

/* Of the shard into the whole unit. */
static tri_tensor *record_gather(tri_tensor *shard, tri_tensor *flat, tri_status status)
{
    trii_step *step = trii_step_current();
    trii_host_op *op = NULL;
    trii_host_result result = {0};
    trii_vid in = TRII_NO_VALUE, whole = TRII_NO_VALUE, out = TRII_NO_VALUE;
    trii_host_call call = {.in = &in, .n_in = 1, .out = &result, .n_out = 1};

    CHECK_OK(trii_resolve(step, shard, &in));
    CHECK_OK(trii_resolve(step, flat, &whole));
    CHECK_OK(trii_host_op_new(step, &gather_kind, sizeof(gather), &op));
    op->group = 1;
    ((gather *)op)->n = (size_t)tri_tensor_numel(shard);
    ((gather *)op)->status = status;
    result.type = step->values[whole].type;
    CHECK_OK(trii_record_host(step, op, &call, &out));
    return trii_handle(step, out);
}

/* A step of a sharded optimizer: parameters are read, the shard is updated and gathered. */
static void shard_and_gather(int64_t n)
{
    unit u = make_unit(n, 1);

    for (int round = 0; round < 3; round++) {
        float now = 1 + 2 * (float)round;
        tri_tensor *shard, *y, *whole;

        fill(u.flat, now);
        shard = tri_mul_scalar(u.b, 2);
        y = plus(u.a, 0); /* the gather does not overtake it */
        leave_in(shard, u.b);
        whole = record_gather(shard, u.flat, TRI_OK);
        leave_in(whole, u.flat);
        EXPECT(y, now);
        EXPECT(u.flat, 2 * now, 2 * now + 1);
        EXPECT(u.b, 2 * now + 1);
        EXPECT(plus(u.a, 1), 2 * now + 1);
        CHECK_OK(tri_step_end_status());
    }
    free_unit(&u);
}

static void a_gather_lies_in_the_unit_and_its_parameters(void **state)
{
    (void)state;
    shard_and_gather(SMALL);
    shard_and_gather(LARGE);
    trii_executor_set(&trii_executor_reference);
    shard_and_gather(SMALL);
    trii_executor_set(NULL);
}

/* It has the tensor for its operand, and not the value that was left there. */
static void a_gather_reads_what_was_left_in_the_shard(void **state)
{
    unit u = make_unit(SMALL, 1);

    (void)state;
    leave_in(tri_mul_scalar(u.a, 3), u.a);
    leave_in(record_gather(u.shard, u.flat, TRI_OK), u.flat);
    EXPECT(u.flat, 3, 1, 4, 2);
    free_unit(&u);
}

/* --- failures ------------------------------------------------------------- */

static void a_step_that_fails_changes_neither_whole_nor_parts(void **state)
{
    unit u, other;

    (void)state;
    if (is_eager())
        return; /* what has run before the failure stays */
    u = make_unit(SMALL, 1);
    other = make_unit(SMALL, 1);
    leave_in(tri_mul_scalar(u.shard, 3), u.shard);
    (void)tri_keep(record_gather(other.a, other.flat, TRI_ERR_PEER_LOST));
    CHECK_FAILS(tri_run(), TRI_ERR_PEER_LOST, "no peer");
    tri_step_end();
    EXPECT(u.flat, 1);
    EXPECT(u.a, 1);
    EXPECT(u.shard, 1);
    free_unit(&u);
    free_unit(&other);
}

/* Too large to wait for the end: each tensor that has some of the bytes has lost them. */
static void what_a_failed_step_has_torn_is_lost_to_all_that_share_it(void **state)
{
    unit u, other;
    float got;

    (void)state;
    if (is_eager())
        return; /* nothing is bound to what has failed */
    u = make_unit(LARGE, 1);
    other = make_unit(LARGE, 1);
    leave_in(record_gather(other.a, u.flat, TRI_ERR_PEER_LOST), u.flat);
    CHECK_FAILS(tri_run(), TRI_ERR_PEER_LOST, "no peer");
    tri_step_end();
    CHECK_FAILS(tri_item_status(tri_sum(u.b, NULL, 0, false), &(double){0}), TRI_ERR_STATE, "lost");
    tri_step_end();
    fill(u.b, 2); /* the others are as they were */
    EXPECT(u.b, 2);
    CHECK_FAILS(tri_tensor_copy_out(u.flat, &got, sizeof(got)), TRI_ERR_STATE, "lost");
    CHECK_FAILS(tri_tensor_copy_out(u.a, &got, sizeof(got)), TRI_ERR_STATE, "lost");
    tri_step_end();
    fill(u.flat, 3); /* all of them */
    EXPECT(u.a, 3);
    EXPECT(u.shard, 3);
    free_unit(&u);
    free_unit(&other);
}

static void a_search_for_nan_gives_the_parts_back(void **state)
{
    bool before = trii_nan_check_set(trii_step_current(), true);
    tri_tensor *y;
    unit u;

    (void)state;
    if (is_eager())
        return; /* nothing is bound to what has failed */
    u = make_unit(SMALL, 1);
    y = plus(u.a, 1);
    leave_in(tri_log(tri_sub(tri_mul_scalar(u.flat, 0), u.flat)), u.flat);
    CHECK_FAILS(tri_run(), TRI_ERR_NAN, "made by log");
    (void)y;
    tri_step_end();
    (void)trii_nan_check_set(trii_step_current(), before);
    EXPECT(u.flat, 1);
    EXPECT(u.a, 1);
    free_unit(&u);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(queues_keep_the_order_of_whole_and_parts),
    cmocka_unit_test(queues_do_not_wait_for_other_parts),
    cmocka_unit_test(a_gather_lies_in_the_unit_and_its_parameters),
    cmocka_unit_test(a_gather_reads_what_was_left_in_the_shard),
    cmocka_unit_test(a_step_that_fails_changes_neither_whole_nor_parts),
    cmocka_unit_test(what_a_failed_step_has_torn_is_lost_to_all_that_share_it),
    cmocka_unit_test(a_search_for_nan_gives_the_parts_back),
};

TEST_MAIN(tests)
