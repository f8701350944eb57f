/* ddp_uneven_test.c - a rank that has fewer batches than others, without tri_ddp_join. */
#include "testing/ddp_ranks.h"

static tri_status train_with_fewer_batches(rank *r)
{
    tri_module *model = tri_ddp(mlp(1), &(tri_ddp_options){.group = r->group});
    tri_tensor *x = rows_of(x_data, IN, 0, 4), *y = rows_of(y_data, OUT, 0, 4);
    tri_status status = tri_module_status(model);

    for (int step = 0; step < (r->index == 1 ? 2 : 3) && status == TRI_OK; step++) {
        tri_backward(tri_mse_loss(tri_forward(model, x), y, NULL));
        status = tri_step_end_status();
        (void)snprintf(r->line, sizeof(r->line), "%s", tri_last_error());
    }
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    tri_module_destroy(model);
    return status;
}

static void a_rank_with_fewer_batches_is_told_to_join(void **state)
{
    static rank ranks[2];

    (void)state;
    make_data();
    run_ranks(ranks, 2, train_with_fewer_batches, NULL);
    assert_int_equal(ranks[1].status, TRI_OK);
    assert_int_equal(ranks[0].status, TRI_ERR_PEER_LOST);
    if (strstr(ranks[0].line, "rank 1 left the group") == NULL ||
        strstr(ranks[0].line, "calls tri_ddp_join after its loop") == NULL)
        fail_msg("%s", ranks[0].line);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_rank_with_fewer_batches_is_told_to_join),
};

TEST_MAIN(tests)
