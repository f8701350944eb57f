/*
 * spawn_compute_test.c - workers of a process that has computed itself: they do, too.
 */
#include <trireme/function.h>
#include <trireme/launch.h>
#include <trireme/ops.h>

#include "testing/check.h"

static tri_status compute(int rank, void *arg)
{
    tri_tensor *twos = tri_full(TRI_SHAPE(8), 2, TRI_DTYPE_F32);
    double sum;
    tri_status status = tri_item_get(tri_sum(tri_square(twos), NULL, 0, false), &sum);

    (void)rank;
    (void)arg;
    tri_step_end();
    if (status == TRI_OK && sum != 32)
        return tri_fail(TRI_ERR_STATE, "the sum is %g, not 32", sum);
    return status;
}

/* One thread, so that nothing but the computing tells of itself. */
static void workers_compute_where_their_parent_has(void **state)
{
    (void)state;
    setenv("TRI_NUM_THREADS", "1", 1);
    CHECK_OK(compute(0, NULL));
    CHECK_OK(tri_spawn(compute, NULL, 2, NULL));
    CHECK_OK(compute(0, NULL));
}

static void copies_that_cannot_are_told_how(void **state)
{
    (void)state;
    CHECK_OK(compute(0, NULL));
    CHECK_FAILS(tri_spawn(compute, NULL, 1, &(tri_spawn_options){.how = TRI_SPAWN_COPY}),
                TRI_ERR_STATE, "unless they are to be copies (TRI_SPAWN_COPY)");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(workers_compute_where_their_parent_has),
    cmocka_unit_test(copies_that_cannot_are_told_how),
};

TEST_MAIN(tests)
