/*
 * ddp_scaler_test.c - a gradient scaler over replicas: what overflows on one rank is skipped by
 * all.
 */
/* ctest: also=TRI_EAGER=1 */
#include "base/err.h"
#include "testing/ddp_ranks.h"

enum { UPDATES = 6 };

/* Of rank `r->arg`'s loss in two of the steps. */
static tri_status train_scaled(rank *r)
{
    const int bad = *(const int *)r->arg;
    tri_module *model = tri_ddp(mlp(1), &(tri_ddp_options){.group = r->group});
    tri_optimizer *opt = tri_adam(model, 0.01, NULL);
    int n = ROWS / r->size;
    tri_tensor *x = rows_of(x_data, IN, r->index * n, n);
    tri_tensor *y = rows_of(y_data, OUT, r->index * n, n);
    tri_grad_scaler *scaler;
    int64_t counts[6];

    TRY(tri_module_status(model));
    TRY(tri_grad_scaler_create(NULL, &scaler));
    for (int s = 0; s < UPDATES; s++) {
        bool overflows = r->index == bad && (s == 1 || s == 4);
        tri_tensor *loss = tri_mse_loss(tri_forward(model, x), y, NULL);

        tri_backward(tri_grad_scaler_scale(
            scaler, overflows ? tri_mul_scalar(loss, (double)INFINITY) : loss));
        if (s % 2 == 1)
            tri_grad_scaler_unscale(scaler, opt);
        if (s % 2 == 1)
            tri_clip_grad_norm(opt, 1e6);
        TRY(tri_grad_scaler_step(scaler, opt));
        TRY(tri_grad_scaler_update(scaler));
        TRY(tri_step_end_status());
    }
    TRY(take_weights(r, model));
    r->weights[r->n_weights++] = tri_grad_scaler_current_scale(scaler);
    TRY(tri_tensor_copy_out(tri_optimizer_state(opt, tri_optimizer_state_count(opt) - 1).tensor,
                            counts, sizeof(counts)));
    for (int i = 0; i < 6; i++)
        r->weights[r->n_weights++] = (double)counts[i];
    TRY(tri_step_end_status());
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    tri_grad_scaler_destroy(scaler);
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return TRI_OK;
}

static void all_ranks_skip_together(void **state)
{
    static rank one[1], two[2], four[4];
    static const int first = 0, last_of_two = 1, last_of_four = 3;

    (void)state;
    make_data();
    ranks_succeed(one, 1, train_scaled, &first);
    ranks_succeed(two, 2, train_scaled, &last_of_two);
    ranks_succeed(four, 4, train_scaled, &last_of_four);
    assert_int_equal(two[0].n_weights, one[0].n_weights);
    for (int i = 0; i < one[0].n_weights; i++) {
        assert_true(two[0].weights[i] == two[1].weights[i]);
        assert_true(four[0].weights[i] == four[2].weights[i]);
        CHECK_NEAR(two[0].weights[i], one[0].weights[i], 1e-9);
        CHECK_NEAR(four[0].weights[i], one[0].weights[i], 1e-9);
    }
    assert_true(one[0].weights[one[0].n_weights - 7] == 65536 / 4);
    assert_true(one[0].weights[one[0].n_weights - 1] == UPDATES - 2);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(all_ranks_skip_together),
};

TEST_MAIN(tests)
