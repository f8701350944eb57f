/* overlaps_writes_test.c - tensors that share memory: what a write that is refused leaves as it
 * was, what a write of another context has made of values, and what makes lost contents whole. */
/* ctest: also=TRI_EAGER=1 */
#include <trireme/context.h>

#include "base/err.h"
#include "testing/shared_unit.h"
#include "train/graph/step/hold.h"
#include "train/graph/step/host_op.h"

static tri_status bind(tri_tensor *value, tri_tensor *tensor)
{
    trii_vid id = TRII_NO_VALUE;
    tri_status status = trii_resolve(trii_step_current(), value, &id);

    return status == TRI_OK ? trii_bind(trii_step_current(), id, tensor) : status;
}

static tri_tensor *ones(int64_t n)
{
    tri_tensor *t = tri_tensor_create(TRI_SHAPE(n), TRI_DTYPE_F32);

    fill(t, 1);
    return t;
}

/* --- one after the other -------------------------------------------------- */

static void what_was_left_before_is_left_again(void **state)
{
    unit u = make_unit(SMALL, 1);
    tri_tensor *x = ones(SMALL / 2), *y = ones(SMALL / 2), *five = plus(x, 4), *six = plus(x, 5);

    (void)state;
    leave_in(five, u.a);
    leave_in(six, y);
    CHECK_OK(tri_run());
    leave_in(tri_mul_scalar(x, 7), u.a); /* and this is never seen */
    leave_in(five, u.a);
    EXPECT(u.a, 5);
    leave_in(tri_mul_scalar(x, 7), y);
    leave_in(six, y);
    EXPECT(y, 6);
    free_unit(&u);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
}

/* The same operations in the same tensors but for the order: other outputs overlap with the input.
 */
static void plan_of_swapped(bool swap)
{
    static float memory[2][LARGE];
    unit u = make_unit(LARGE, 1);
    tri_tensor *x = ones(LARGE / 2), *early, *made[2];
    tri_tensor *own =
        tri_tensor_wrap(TRI_SHAPE(LARGE / 2), TRI_DTYPE_F32, memory[swap], NULL, NULL);

    CHECK_OK(tri_step_end_status());
    made[0] = tri_mul_scalar(x, 3);
    made[1] = tri_mul_scalar(x, 3);
    early = plus(u.a, 10);
    leave_in(made[swap], u.shard);
    leave_in(made[1 - swap], own);
    EXPECT(early, 11);
    EXPECT(u.flat, 1, 3, 3, 1);
    EXPECT(own, 3);
    free_unit(&u);
    tri_tensor_unref(x);
    tri_tensor_unref(own);
}

static void a_plan_is_one_of_which_result_overlaps(void **state)
{
    (void)state;
    plan_of_swapped(false);
    plan_of_swapped(true);
}

/* --- writes that are refused ---------------------------------------------- */

static void a_refused_copy_leaves_what_pends(void **state)
{
    unit u = make_unit(SMALL, 1);
    tri_context *other = NULL;
    float data[SMALL] = {0};

    (void)state;
    CHECK_OK(tri_context_create(&other));
    leave_in(tri_mul_scalar(u.a, 3), u.a);
    CHECK_OK(trii_hold_one(other, u.flat, false));
    CHECK_FAILS(tri_tensor_copy_in(u.flat, data, sizeof(data)), TRI_ERR_STATE, "");
    trii_hold_end(other);
    EXPECT(u.a, 3);
    EXPECT(u.flat, 3, 1);
    tri_context_destroy(other);
    free_unit(&u);
}

static void a_refused_result_leaves_what_pends(void **state)
{
    unit u = make_unit(SMALL, 1);
    tri_tensor *x = ones(SMALL), *gone = plus(x, 1);

    (void)state;
    leave_in(gone, u.flat);
    CHECK_OK(tri_run());
    leave_in(tri_mul_scalar(u.shard, 5), u.shard); /* where the value lay */
    CHECK_OK(tri_run());
    leave_in(tri_mul_scalar(u.a, 3), u.a);
    if (!is_eager()) { /* else it was copied there */
        CHECK_FAILS(bind(gone, u.flat), TRI_ERR_STATE, "overwritten");
        EXPECT(u.flat, 6, 30, 10, 2);
    }
    free_unit(&u);
    tri_tensor_unref(x);
}

/* --- another context ------------------------------------------------------ */

static void write_elsewhere(tri_tensor *tensor, float value)
{
    tri_context *other = NULL;

    CHECK_OK(tri_context_create(&other));
    CHECK_OK(tri_context_enter(other));
    fill(tensor, value);
    CHECK_OK(tri_step_end_status());
    CHECK_OK(tri_context_leave());
    tri_context_destroy(other);
}

/* The step has read `read`, the other context writes it by way of `written`, and then this one. */
static void read_before_other(tri_tensor *read, tri_tensor *written)
{
    trii_vid old = TRII_NO_VALUE;
    tri_tensor *sum = tri_keep(tri_sum(read, NULL, 0, false));

    CHECK_OK(trii_resolve(trii_step_current(), read, &old));
    CHECK_OK(tri_run());
    write_elsewhere(written, 2);
    fill(written, 7);
    sum = tri_add(sum, tri_sum(trii_handle(trii_step_current(), old), NULL, 0, false));
    CHECK_FAILS(tri_item_status(sum, &(double){0}), TRI_ERR_STATE, "overwritten");
    tri_step_end();
    EXPECT(read, 7);
}

static void what_another_context_has_written_is_not_taken_for_what_was_read(void **state)
{
    unit u = make_unit(SMALL, 1);
    tri_tensor *alone = ones(SMALL);

    (void)state;
    read_before_other(alone, alone);
    read_before_other(u.a, u.a);
    read_before_other(u.a, u.flat);
    read_before_other(u.flat, u.flat);
    free_unit(&u);
    tri_tensor_unref(alone);
}

/* --- lost contents -------------------------------------------------------- */

static tri_status start(trii_host_op *op, const trii_host_buffers *buffers)
{
    (void)op;
    *(float *)buffers->out[0] = 1234;
    return TRI_OK;
}

static tri_status wait(trii_host_op *op, int64_t for_ns)
{
    (void)op;
    (void)for_ns;
    return TRII_FAIL(TRI_ERR_PEER_LOST, "no peer");
}

static tri_status poll(trii_host_op *op)
{
    return wait(op, 0);
}

static const trii_host_kind failing = {
    .name = "failing", .start = start, .poll = poll, .wait = wait};

/* A plan has begun to write the tensor, and fails. */
static void lose(tri_tensor *tensor)
{
    trii_step *step = trii_step_current();
    bool eager = trii_recorder_of(step)->eager;
    tri_tensor *x = tri_tensor_create(tensor->shape, tensor->ndim, TRI_DTYPE_F32);
    trii_host_op *op = NULL;
    trii_vid in = TRII_NO_VALUE, out = TRII_NO_VALUE;

    trii_recorder_of(step)->eager = false;
    CHECK_OK(trii_resolve(step, x, &in));
    CHECK_OK(trii_host_op_new(step, &failing, sizeof(*op), &op));
    CHECK_OK(trii_record_host_like(step, op, &in, 1, &out));
    CHECK_OK(trii_bind(step, out, tensor));
    CHECK_FAILS(tri_run(), TRI_ERR_PEER_LOST, "no peer");
    tri_step_end();
    trii_recorder_of(step)->eager = eager;
    tri_tensor_unref(x);
}

static void expect_lost(tri_tensor *tensor, bool lost)
{
    float data[SMALL];
    tri_status status = tri_tensor_copy_out(tensor, data, trii_tensor_bytes(tensor));

    assert_int_equal(status, lost ? TRI_ERR_STATE : TRI_OK);
    tri_step_end();
}

static void an_update_of_all_bytes_makes_contents_whole(void **state)
{
    unit u = make_unit(SMALL, 1);
    tri_tensor *x = ones(SMALL);

    (void)state;
    lose(x);
    expect_lost(x, true);
    leave_in(plus(u.flat, 3), x);
    CHECK_OK(tri_step_end_status());
    EXPECT(x, 4);
    lose(u.a);
    expect_lost(u.flat, true);
    expect_lost(u.shard, true);
    expect_lost(u.b, false);
    leave_in(plus(x, 1), u.flat); /* as a gather does */
    CHECK_OK(tri_step_end_status());
    EXPECT(u.flat, 5);
    EXPECT(u.shard, 5);
    EXPECT(u.a, 5);
    free_unit(&u);
    tri_tensor_unref(x);
}

/* A checkpoint writes the parameters, and never the unit or its shards. */
static void parts_make_the_whole_whole(void **state)
{
    unit u = make_unit(SMALL, 1);
    tri_tensor *part = NULL;

    (void)state;
    lose(u.flat);
    part = range(u.flat, SMALL / 2 + 1, 3); /* it has no better contents */
    expect_lost(part, true);
    fill(u.b, 2);
    expect_lost(part, false);
    expect_lost(u.b, false);
    expect_lost(u.shard, true);
    expect_lost(u.flat, true);
    fill(u.a, 3);
    EXPECT(u.flat, 3, 2);
    EXPECT(u.shard, 3, 2);
    tri_tensor_unref(part);
    free_unit(&u);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(what_was_left_before_is_left_again),
    cmocka_unit_test(a_plan_is_one_of_which_result_overlaps),
    cmocka_unit_test(a_refused_copy_leaves_what_pends),
    cmocka_unit_test(a_refused_result_leaves_what_pends),
    cmocka_unit_test(what_another_context_has_written_is_not_taken_for_what_was_read),
    cmocka_unit_test(an_update_of_all_bytes_makes_contents_whole),
    cmocka_unit_test(parts_make_the_whole_whole),
};

TEST_MAIN(tests)
