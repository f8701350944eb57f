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

/* Rank 0 has no rows in each second step; NaN on the other rank is found all the same. */
static tri_status train_without_rows(rank *r)
{
    tri_module *model = tri_ddp(mlp(1), &(tri_ddp_options){.group = r->group});
    tri_optimizer *opt = tri_sgd(model, 0.1, NULL);
    tri_status status = tri_module_status(model);

    for (int step = 0; step < 4 && status == TRI_OK; step++) {
        int n = r->index == 0 && step % 2 != 0 ? 0 : 4;
        tri_tensor *x = rows_of(x_data, IN, 0, n), *y = rows_of(y_data, OUT, 0, n);
        tri_tensor *loss = tri_mse_loss(tri_forward(model, x), y, NULL);

        if (r->index == 1 && step == 3)
            loss = tri_mul(loss, tri_log(tri_neg(tri_square(loss))));
        tri_backward(loss);
        status = tri_optimizer_step(opt);
        if (status == TRI_OK)
            status = tri_step_end_status();
        (void)snprintf(r->line, sizeof(r->line), "%s", tri_last_error());
        r->weights[0] = step;
        tri_step_end();
        tri_tensor_unref(x);
        tri_tensor_unref(y);
    }
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return status;
}

static void a_check_for_nan_lets_a_rank_have_no_rows(void **state)
{
    static rank ranks[2];

    (void)state;
    assert_int_equal(unsetenv("TRI_EAGER"), 0); /* where a loss runs before its backward */
    assert_int_equal(setenv("TRI_CHECK", "nan", 1), 0);
    make_data();
    run_ranks(ranks, 2, train_without_rows, NULL);
    if (ranks[1].status != TRI_ERR_NAN || strstr(ranks[1].line, "NaN made by log") == NULL)
        fail_msg("%s: %s", tri_status_name(ranks[1].status), ranks[1].line);
    assert_true(ranks[0].status != TRI_OK && ranks[0].weights[0] == 3);
}

/* Rank 0 has no rows of the first batch, which is inside no_sync. */
static tri_status add_up_without_rows(rank *r)
{
    tri_module *model = tri_ddp(mlp(1), &(tri_ddp_options){.group = r->group});
    tri_optimizer *opt = tri_sgd(model, 0.1, NULL);
    tri_status status = tri_module_status(model);

    for (int batch = 0; batch < 4 && status == TRI_OK; batch++) {
        bool first = batch % 2 == 0;
        int n = first && r->index == 0 ? 0 : 4;
        tri_tensor *x = rows_of(x_data, IN, 0, n), *y = rows_of(y_data, OUT, 0, n);

        if (first)
            tri_ddp_no_sync_begin(model);
        tri_backward(tri_mse_loss(tri_forward(model, x), y, NULL));
        if (first)
            tri_ddp_no_sync_end(model);
        if (!first)
            status = tri_optimizer_step(opt);
        if (status == TRI_OK && batch > 0) /* the first two run together */
            status = tri_step_end_status();
        tri_tensor_unref(x);
        tri_tensor_unref(y);
    }
    (void)snprintf(r->line, sizeof(r->line), "%s", tri_last_error());
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return status;
}

static void a_check_for_nan_lets_a_micro_batch_have_no_rows(void **state)
{
    static rank ranks[2];

    (void)state;
    assert_int_equal(unsetenv("TRI_EAGER"), 0); /* where a loss runs before its backward */
    assert_int_equal(setenv("TRI_CHECK", "nan", 1), 0);
    make_data();
    ranks_succeed(ranks, 2, add_up_without_rows, NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_rank_with_fewer_batches_is_told_to_join),
    cmocka_unit_test(a_check_for_nan_lets_a_rank_have_no_rows),
    cmocka_unit_test(a_check_for_nan_lets_a_micro_batch_have_no_rows),
};

TEST_MAIN(tests)
