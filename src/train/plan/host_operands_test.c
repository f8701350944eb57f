/* host_operands_test.c - communication whose results lie on its operands or in tensors: nobody sees
 * there what was written too early. */
#include <trireme/trireme.h>

#include "testing/check.h"
#include "train/graph/step/host_op.h"

#define N 6000

/* Each result is its operand plus 3, one after the other. */
typedef struct plus_three {
    trii_host_op op; /* first */
    trii_host_buffers buffers;
    int n;
} plus_three;

static tri_status begin(trii_host_op *op, const trii_host_buffers *buffers)
{
    ((plus_three *)op)->buffers = *buffers;
    return TRI_OK;
}

static tri_status wait(trii_host_op *op, int64_t for_ns)
{
    const plus_three *p = (const plus_three *)op;

    (void)for_ns;
    for (int o = 0; o < p->n; o++) {
        for (int i = 0; i < N; i++)
            ((float *)p->buffers.out[o])[i] = ((const float *)p->buffers.in[o])[i] + 3;
    }
    return TRI_OK;
}

static tri_status poll(trii_host_op *op)
{
    return wait(op, 0);
}

static const trii_host_kind kind = {
    .name = "plus_three", .in_place = true, .start = begin, .poll = poll, .wait = wait};

static void record(tri_tensor *const *in, int n, trii_vid *out)
{
    trii_step *step = trii_step_current();
    trii_host_op *op = NULL;
    trii_vid ids[2];

    CHECK_OK(trii_host_op_new(step, &kind, sizeof(plus_three), &op));
    ((plus_three *)op)->n = n;
    for (int i = 0; i < n; i++)
        CHECK_OK(trii_resolve(step, in[i], &ids[i]));
    CHECK_OK(trii_record_host_like(step, op, ids, n, out));
}

static tri_tensor *filled(float value)
{
    tri_tensor *t = tri_tensor_create(TRI_SHAPE(N), TRI_DTYPE_F32);

    CHECK_OK(tri_init_constant(t, value));
    CHECK_OK(tri_step_end_status());
    return t;
}

/* --- an operand that is there twice --------------------------------------- */

static void reduce_twice(void)
{
    tri_tensor *x = filled(1), *y = tri_mul_scalar(x, 2), *sum;
    trii_vid out[2];

    record((tri_tensor *[]){y, y}, 2, out);
    sum = tri_add(trii_handle(trii_step_current(), out[0]),
                  tri_mul_scalar(trii_handle(trii_step_current(), out[1]), 100));
    CHECK_NEAR(tri_item(tri_mean(sum, NULL, 0, false)), 505, 0);
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
}

static void results_do_not_lie_on_an_operand_that_is_there_twice(void **state)
{
    (void)state;
    reduce_twice();
    trii_executor_set(&trii_executor_reference);
    reduce_twice();
    trii_executor_set(NULL);
}

/* --- a tensor that is read later ------------------------------------------ */

static void leave_and_read(void)
{
    tri_tensor *x = filled(1), *after;
    trii_vid out;

    record(&x, 1, &out);
    after = tri_keep(tri_mul_scalar(x, 10)); /* of the old contents */
    CHECK_OK(trii_bind(trii_step_current(), out, x));
    CHECK_NEAR(tri_item(tri_mean(after, NULL, 0, false)), 10, 0);
    CHECK_NEAR(tri_item(tri_mean(x, NULL, 0, false)), 4, 0);
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
}

static void a_result_waits_for_readers_of_its_tensor(void **state)
{
    (void)state;
    leave_and_read();
    trii_executor_set(&trii_executor_reference);
    leave_and_read();
    trii_executor_set(NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(results_do_not_lie_on_an_operand_that_is_there_twice),
    cmocka_unit_test(a_result_waits_for_readers_of_its_tensor),
};

TEST_MAIN(tests)
