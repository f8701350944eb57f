/*
 * device_steady_test.c - a step whose plan exists allocates nothing, whatever operation it is made
 * of: each has a kernel of its own, since reference kernels work on copies in f64.
 */
/* ctest: also=TRI_ISA=avx2 */
#include "base/alloc.h"
#include "train/plan/plan.h"
#include "testing/check.h"
#include "testing/op_cases.h"

#define WARM 4 /* plans are made twice: weights change their layout after the first */
#define STEPS 3

static void run_step(const op_case *c, tri_tensor **in, bool narrow)
{
    tri_tensor *used[OP_CASE_INPUTS], *y;

    for (int k = 0; k < OP_CASE_INPUTS; k++)
        used[k] = in[k];
    if (narrow) {
        if (tri_tensor_dtype(in[0]) == TRI_DTYPE_F32) /* not truth values and indices */
            used[0] = tri_cast(in[0], TRI_DTYPE_BF16);
        tri_autocast_begin(TRI_DTYPE_BF16);
    }
    y = tri_keep(c->build(used));
    if (narrow)
        tri_autocast_end();
    if (op_case_wants_grad(&c->in[0]))
        tri_backward(tri_sum(tri_cast(y, TRI_DTYPE_F32), NULL, 0, false));
    CHECK_OK(tri_run());
    CHECK_OK(tri_step_end_status());
}

static void check_cases(bool narrow)
{
    char names[2048] = "";
    size_t length = 0;

    for (int i = 0; i < OP_CASE_COUNT; i++) {
        const op_case *c = &op_cases[i];
        tri_tensor *in[OP_CASE_INPUTS];
        long before;

        for (int k = 0; k < OP_CASE_INPUTS; k++)
            in[k] = op_case_tensor(&c->in[k], k, TRI_DTYPE_F32);
        for (int step = 0; step < WARM; step++)
            run_step(c, in, narrow);
        before = trii_alloc_calls();
        for (int step = 0; step < STEPS; step++)
            run_step(c, in, narrow);
        if (trii_alloc_calls() != before && length + 100 < sizeof(names))
            length += (size_t)snprintf(names + length, 100, " %s (%ld)", c->name,
                                       (trii_alloc_calls() - before) / STEPS);
        for (int k = 0; k < OP_CASE_INPUTS; k++)
            tri_tensor_unref(in[k]);
    }
    if (length > 0)
        fail_msg("allocations in a step:%s", names);
}

static void no_operation_allocates(void **state)
{
    (void)state;
    check_cases(false);
}

static void no_operation_on_bf16_allocates(void **state)
{
    (void)state;
    check_cases(true);
}

/* Elements go as they are: nothing is made of x. */
static void a_choice_of_elements_needs_no_memory(void **state)
{
    const int64_t last = (1 << 20) - 1;
    tri_tensor *x = tri_tensor_create(TRI_SHAPE(1 << 20), TRI_DTYPE_F32);
    tri_tensor *at = tri_tensor_from(TRI_SHAPE(1), TRI_DTYPE_I64, &last);

    (void)state;
    trii_step_release();
    (void)tri_keep(tri_gather_along(x, 0, at));
    (void)tri_keep(tri_index_select(x, 0, at));
    CHECK_OK(tri_run());
    assert_true(trii_plan_stats_get().arena_bytes < 1 << 20);
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
    tri_tensor_unref(at);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(no_operation_allocates),
    cmocka_unit_test(no_operation_on_bf16_allocates),
    cmocka_unit_test(a_choice_of_elements_needs_no_memory),
};

TEST_MAIN(tests)
