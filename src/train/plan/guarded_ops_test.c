/*
 * guarded_ops_test.c - every operation forward and backward on a device whose memory the host may
 * not touch gives the bits of the cpu.
 */
#include "testing/check.h"
#include "testing/guarded.h"
#include "testing/op_cases.h"

#define RESULTS (OP_CASE_INPUTS + 1)

typedef struct results {
    int n;
    size_t bytes[RESULTS];
    void *data[RESULTS];
} results;

static void read_out(results *r, tri_tensor *tensor, tri_device device)
{
    size_t bytes = (size_t)tri_tensor_numel(tensor) * tri_dtype_size(tri_tensor_dtype(tensor));

    assert_int_equal(tri_tensor_device(tensor), device);
    r->bytes[r->n] = bytes;
    r->data[r->n] = malloc(bytes + 1);
    CHECK_OK(tri_tensor_copy_out(tensor, r->data[r->n], bytes));
    r->n++;
}

static results run(const op_case *op, tri_dtype dtype, tri_device device)
{
    const tri_rng from_the_start = {.seed = 3};
    tri_tensor *in[OP_CASE_INPUTS], *y, *copy[OP_CASE_INPUTS];
    results r = {.n = 0};

    tri_rng_state_set(&from_the_start);
    CHECK_OK(tri_set_device(device));
    for (int k = 0; k < OP_CASE_INPUTS; k++)
        in[k] = op_case_tensor(&op->in[k], k, dtype);
    memcpy(copy, in, sizeof(in));
    y = tri_keep(op->build(copy));
    if (tri_tensor_status(y) != TRI_OK)
        fail_msg("%s on %s: %s", op->name, tri_device_text(device), tri_last_error());
    if (op_case_wants_grad(&op->in[0]))
        tri_backward(tri_sum(tri_square(y), NULL, 0, false));
    read_out(&r, y, device);
    for (int k = 0; k < OP_CASE_INPUTS; k++) {
        if (in[k] != NULL && tri_grad(in[k]) != NULL)
            read_out(&r, tri_grad(in[k]), device);
    }
    CHECK_OK(tri_step_end_status());
    for (int k = 0; k < OP_CASE_INPUTS; k++)
        tri_tensor_unref(in[k]);
    return r;
}

static void compare(const op_case *op, tri_dtype dtype)
{
    results here = run(op, dtype, TRI_CPU(0)), there = run(op, dtype, TRI_CUDA(1));

    assert_int_equal(here.n, there.n);
    for (int i = 0; i < here.n; i++) {
        assert_int_equal(here.bytes[i], there.bytes[i]);
        if (memcmp(here.data[i], there.data[i], here.bytes[i]) != 0)
            fail_msg("%s: result %d differs", op->name, i);
        free(here.data[i]);
        free(there.data[i]);
    }
}

static void operations_in_f32_touch_no_memory_of_a_device(void **state)
{
    (void)state;
    guarded_register();
    for (int i = 0; i < OP_CASE_COUNT; i++)
        compare(&op_cases[i], TRI_DTYPE_F32);
    assert_true(guarded_kernels() > 2 * OP_CASE_COUNT);
}

static void operations_in_f64_touch_no_memory_of_a_device(void **state)
{
    (void)state;
    guarded_register();
    for (int i = 0; i < OP_CASE_COUNT; i++)
        compare(&op_cases[i], TRI_DTYPE_F64);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(operations_in_f32_touch_no_memory_of_a_device),
    cmocka_unit_test(operations_in_f64_touch_no_memory_of_a_device),
};

TEST_MAIN(tests)
