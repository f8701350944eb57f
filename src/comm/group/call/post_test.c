/*
 * post_test.c - a group that fails between the check of a call and its posting.
 */
#include "testing/check.h"

#include <string.h>

#include "base/alloc.h"
#include "comm/group/group_internal.h"

static tri_group *group;

/* As an engine does that learns of a peer's end while it takes the call. */
static tri_status fails_meanwhile(void *self, trii_op *op, bool waits)
{
    (void)self;
    (void)op;
    (void)waits;
    trii_fault_raise(&group->fault, TRI_ERR_PEER_LOST, "rank 1 is lost");
    return TRII_FAIL(TRI_ERR_PEER_LOST, "%s", group->fault.text);
}

static tri_status call_with(bool handle)
{
    tri_work *work = NULL;
    float x = 1;

    return tri_all_reduce(group, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, handle ? &work : NULL);
}

static void a_call_that_meets_the_failure_names_what_later_ones_do(void **state)
{
    (void)state;
    for (int handle = 0; handle <= 1; handle++) {
        trii_engine failing;
        const trii_engine *engine;

        CHECK_OK(tri_group_create(NULL, 0, 1, NULL, &group));
        engine = group->engine;
        failing = *engine;
        failing.submit = fails_meanwhile;
        group->engine = &failing;
        CHECK_FAILS(call_with(handle), TRI_ERR_PEER_LOST,
                    "all_reduce #1 of 1 f32, sum (post_test.c:");
        assert_non_null(
            strstr(tri_last_error(), ", rank 0: the group has failed: rank 1 is lost;"));
        CHECK_FAILS(call_with(handle), TRI_ERR_PEER_LOST, "all_reduce of 1 f32, sum (post_test.c:");
        assert_non_null(
            strstr(tri_last_error(), ", rank 0: the group has failed: rank 1 is lost;"));
        group->engine = engine;
        tri_group_unref(group);
    }
    assert_int_equal(trii_alloc_live(), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_call_that_meets_the_failure_names_what_later_ones_do),
};

TEST_MAIN(tests)
