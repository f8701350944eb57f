/* tensor_test.c - persistent tensors: creation, storage of other owners, layouts, and how steps
 * read and write both. */
#include <trireme/ops.h>

#include "base/alloc.h"
#include "train/graph/step/step.h"
#include "testing/check.h"

static void tensors_are_counted_and_checked(void **state)
{
    long live = trii_alloc_live();
    const float data[6] = {0, 1, 2, 3, 4, 5};
    tri_tensor *a = tri_tensor_from((int64_t[]){2, 3}, 2, TRI_DTYPE_F32, data), *b;
    float out[6];

    (void)state;
    assert_ptr_equal(tri_tensor_ref(a), a);
    tri_tensor_unref(a);
    assert_int_equal(tri_tensor_size(a, -1), 3);
    assert_int_equal(tri_tensor_size(a, 2), -1);
    assert_int_equal(tri_tensor_numel(a), 6);
    assert_int_equal((uintptr_t)trii_tensor_data(a) % 64, 0);
    CHECK_OK(tri_tensor_copy_out(a, out, sizeof(out)));
    assert_memory_equal(out, data, sizeof(data));
    CHECK_FAILS(tri_tensor_copy_out(a, out, 4), TRI_ERR_INVALID_ARG,
                "room for 4 bytes, the tensor has 24");
    b = tri_tensor_create((int64_t[]){3, 0, INT64_C(1) << 40}, 3, TRI_DTYPE_F64);
    CHECK_OK(tri_tensor_status(b)); /* no element, so it takes no memory */
    CHECK_OK(tri_tensor_copy_in(b, NULL, 0));
    tri_tensor_unref(b);
    /* though it has no element, the product of the sizes that are left when one is taken away, as a
     * sum takes it, would overflow */
    b = tri_tensor_create((int64_t[]){3, 0, INT64_MAX}, 3, TRI_DTYPE_F64);
    CHECK_FAILS(tri_tensor_status(b), TRI_ERR_INVALID_ARG, "address space");
    tri_tensor_unref(b);
    b = tri_tensor_create((int64_t[]){INT64_MAX, 3}, 2, TRI_DTYPE_F64);
    CHECK_FAILS(tri_tensor_status(b), TRI_ERR_INVALID_ARG, "address space");
    tri_tensor_unref(b);
    b = tri_tensor_create((int64_t[]){1}, 9, TRI_DTYPE_F64);
    CHECK_FAILS(tri_tensor_status(b), TRI_ERR_INVALID_ARG, "9 dimensions");
    tri_tensor_unref(b);
    trii_alloc_fail_at(1);
    b = tri_tensor_create(NULL, 0, TRI_DTYPE_F64);
    trii_alloc_fail_at(0);
    CHECK_FAILS(tri_tensor_status(b), TRI_ERR_NO_MEMORY, "memory");
    tri_tensor_unref(b);
    tri_tensor_unref(NULL);
    tri_tensor_unref(a);
    CHECK_OK(tri_step_end_status());
    trii_step_release();
    assert_int_equal(trii_alloc_live(), live);
}

/* --- storage of another owner --------------------------------------------- */

static char arena[256];
static int arena_users;

static tri_status arena_alloc(void *ctx, size_t bytes, void **data_out)
{
    (void)bytes;
    assert_ptr_equal(ctx, arena);
    arena_users++;
    *data_out = arena;
    return TRI_OK;
}

static void arena_free(void *ctx, void *data, size_t bytes)
{
    (void)ctx;
    (void)data;
    (void)bytes;
    arena_users--;
}

static const trii_storage_ops arena_ops = {"arena", arena_alloc, arena_free};

static void a_tensor_in_a_bucket_stays_there(void **state)
{
    const float old[2] = {1, 2}, new[2] = {10, 20};
    tri_tensor *x = tri_tensor_from((int64_t[]){2}, 1, TRI_DTYPE_F32, old), *y;
    trii_storage *bucket = NULL;
    float out[2];

    (void)state;
    CHECK_OK(trii_storage_create(&arena_ops, arena, sizeof(arena), &bucket));
    CHECK_FAILS(trii_tensor_move(x, bucket, 252), TRI_ERR_INVALID_ARG, "8 bytes at 252");
    CHECK_OK(trii_tensor_move(x, bucket, 64));
    trii_storage_unref(bucket);
    assert_ptr_equal(trii_tensor_data(x), arena + 64);
    assert_memory_equal(arena + 64, old, sizeof(old));
    y = tri_keep(tri_mul_scalar(x, 3));
    CHECK_OK(tri_tensor_copy_in(x, new, sizeof(new))); /* the old contents leave, not the tensor */
    assert_memory_equal(arena + 64, new, sizeof(new));
    CHECK_OK(tri_tensor_copy_out(y, out, sizeof(out)));
    CHECK_NEAR(out[1], 6, 0);
    CHECK_OK(tri_tensor_copy_out(x, out, sizeof(out)));
    CHECK_NEAR(out[1], 20, 0);
    CHECK_OK(tri_step_end_status());
    assert_int_equal(arena_users, 1);
    tri_tensor_unref(x);
    assert_int_equal(arena_users, 0);
}

/* --- layouts -------------------------------------------------------------- */

/* Four floats, last one first. */
static tri_status turn(const trii_layout *layout, const void *src, void *dst)
{
    const float *x = src;
    float *y = dst;

    (void)layout;
    for (int i = 0; i < 4; i++)
        y[i] = x[3 - i];
    return TRI_OK;
}

static const trii_layout turned = {"turned", 16, turn, turn, NULL};

static void users_and_the_interpreter_see_plain_order(void **state)
{
    const float data[4] = {1, 2, 3, 4}, inside[4] = {4, 3, 2, 1};
    tri_tensor *x = tri_tensor_create((int64_t[]){4}, 1, TRI_DTYPE_F32), *y;
    tri_tensor *ramp = tri_tensor_from((int64_t[]){4}, 1, TRI_DTYPE_F32, data);
    trii_vid id = TRII_NO_VALUE;
    float out[4];

    (void)state;
    trii_executor_set(&trii_executor_reference);
    x->layout = &turned;
    CHECK_OK(tri_tensor_copy_in(x, data, sizeof(data)));
    assert_memory_equal(trii_tensor_data(x), inside, sizeof(inside));
    CHECK_OK(tri_tensor_copy_out(x, out, sizeof(out)));
    assert_memory_equal(out, data, sizeof(data));
    y = tri_mul(x, ramp); /* read in its layout, written in its layout */
    CHECK_OK(trii_resolve(trii_step_current(), y, &id));
    CHECK_OK(trii_bind(trii_step_current(), id, x));
    y = tri_tensor_clone(y);
    CHECK_OK(tri_tensor_status(y));
    CHECK_OK(tri_tensor_copy_out(y, out, sizeof(out)));
    CHECK_NEAR(out[3], 16, 0);
    CHECK_NEAR(((float *)trii_tensor_data(x))[0], 16, 0);
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    tri_tensor_unref(ramp);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(tensors_are_counted_and_checked),
    cmocka_unit_test(a_tensor_in_a_bucket_stays_there),
    cmocka_unit_test(users_and_the_interpreter_see_plain_order),
};

TEST_MAIN(tests)
