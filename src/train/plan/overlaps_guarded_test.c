/* overlaps_guarded_test.c - tensors that share memory on a device whose memory the host may not
 * touch. */
#include "testing/guarded.h"
#include "testing/shared_unit.h"

static void use_device(void)
{
    guarded_register();
    CHECK_OK(tri_set_device(TRI_CUDA(0)));
}

static void write_parts(int64_t n)
{
    unit u = make_unit(n, 1);
    tri_tensor *early = plus(u.flat, 0), *late;

    leave_in(tri_mul_scalar(u.a, 3), u.a);
    late = plus(u.flat, 0);
    leave_in(tri_mul_scalar(u.shard, 5), u.shard);
    EXPECT(early, 1, 1, 1, 1);
    EXPECT(late, 3, 3, 1, 1);
    EXPECT(u.flat, 3, 15, 5, 1);
    CHECK_OK(tri_step_end_status());
    free_unit(&u);
}

static void the_whole_is_what_was_written_to_its_parts(void **state)
{
    (void)state;
    use_device();
    write_parts(SMALL);
    write_parts(LARGE);
}

/* What was read before stays on the device, in memory of its own. */
static void copies_in_leave_recorded_work_its_old_contents(void **state)
{
    tri_tensor *early, *part;
    unit u;

    (void)state;
    use_device();
    u = make_unit(SMALL, 1);
    early = plus(u.flat, 1);
    part = plus(u.a, 10);
    fill(u.a, 9);
    EXPECT(early, 2);
    EXPECT(part, 11);
    EXPECT(u.flat, 9, 1);
    CHECK_OK(tri_step_end_status());
    /* and where it has the place in memory that it was given */
    early = plus(u.flat, 1);
    fill(u.flat, 5);
    EXPECT(early, 10, 2);
    free_unit(&u);
}

static void tensors_move_within_their_device(void **state)
{
    tri_tensor *x, *there = NULL, *host = NULL;
    unit u;

    (void)state;
    use_device();
    u = make_unit(SMALL, 1);
    x = tri_tensor_create(TRI_SHAPE(SMALL / 2), TRI_DTYPE_F32);
    fill(x, 4);
    CHECK_OK(trii_tensor_move(x, u.flat->storage, 0));
    EXPECT(u.flat, 4, 1);
    EXPECT(x, 4);
    leave_in(tri_mul_scalar(u.shard, 2), u.shard);
    EXPECT(x, 4, 8);
    tri_tensor_unref(x);
    TRI_ON(TRI_CUDA(1))
    {
        there = tri_tensor_create(TRI_SHAPE(4), TRI_DTYPE_F32);
    }
    TRI_ON(TRI_CPU(0))
    {
        host = tri_tensor_create(TRI_SHAPE(4), TRI_DTYPE_F32);
    }
    CHECK_FAILS(trii_tensor_move(there, u.flat->storage, 0), TRI_ERR_INVALID_ARG, "cuda:0");
    CHECK_FAILS(trii_tensor_move(host, u.flat->storage, 0), TRI_ERR_INVALID_ARG, "cuda:0");
    CHECK_FAILS(trii_tensor_move(there, host->storage, 0), TRI_ERR_INVALID_ARG, "cuda:1");
    tri_tensor_unref(there);
    tri_tensor_unref(host);
    free_unit(&u);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_whole_is_what_was_written_to_its_parts),
    cmocka_unit_test(copies_in_leave_recorded_work_its_old_contents),
    cmocka_unit_test(tensors_move_within_their_device),
};

TEST_MAIN(tests)
