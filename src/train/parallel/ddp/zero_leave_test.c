/* zero_leave_test.c - a rank that leaves between a backward and its update: the others cannot get
 * its part of the parameters. */
#include "base/err.h"
#include "testing/ddp_ranks.h"

static atomic_int n_left;

static tri_status leave_before_the_update(rank *r)
{
    const int stage = *(const int *)r->arg;
    tri_module *model = tri_zero(mlp(1), &(tri_zero_options){.group = r->group, .stage = stage});
    tri_optimizer *opt = tri_sgd(model, 0.1, NULL);
    tri_tensor *x = rows_of(x_data, IN, 0, 4), *weight = tri_module_state(model, 0).tensor;
    tri_status status = tri_module_status(model);

    tri_backward(tri_mean(tri_square(tri_forward(model, x)), NULL, 0, false));
    if (status == TRI_OK)
        status = tri_step_end_status();
    if (status == TRI_OK && r->index == 0) {
        while (atomic_load(&n_left) == 0)
            trii_thread_yield();
        status = tri_optimizer_step(opt);
        if (status != TRI_ERR_PEER_LOST)
            status = TRII_FAIL(TRI_ERR_INTERNAL, "%s: %s", tri_status_name(status), r->line);
        tri_step_end();
        if (status == TRI_ERR_PEER_LOST)
            status = tri_item_status(tri_mean(weight, NULL, 0, false), &(double){0});
    }
    (void)snprintf(r->line, sizeof(r->line), "%s", tri_last_error());
    tri_step_end();
    tri_tensor_unref(x);
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    tri_group_unref(r->group);
    r->group = NULL;
    if (r->index == 1)
        atomic_store(&n_left, 1);
    return status;
}

/* Not of a mixture of old and new contents. */
static void the_others_are_told_that_parameters_are_lost(void **state)
{
    static rank ranks[2];

    (void)state;
    make_data();
    for (int stage = 1; stage <= 2; stage++) {
        atomic_store(&n_left, 0);
        run_ranks(ranks, 2, leave_before_the_update, &stage);
        assert_int_equal(ranks[1].status, TRI_OK);
        if (ranks[0].status != TRI_ERR_STATE ||
            strstr(ranks[0].line, "the contents are lost") == NULL ||
            strstr(ranks[0].line, "rank 1 left the group") == NULL)
            fail_msg("stage %d: %s: %s", stage, tri_status_name(ranks[0].status), ranks[0].line);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_others_are_told_that_parameters_are_lost),
};

TEST_MAIN(tests)
