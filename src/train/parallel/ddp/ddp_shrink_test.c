/*
 * ddp_shrink_test.c - training goes on without a rank that failed: a new model on the ranks that
 * are left, with the scaler of before.
 */
#include "testing/ddp_ranks.h"

enum { BEFORE = 2, AFTER = 4, OVERFLOWS_AT = 1 };

typedef struct training {
    tri_module *model;
    tri_optimizer *opt;
    tri_grad_scaler *scaler;
    tri_tensor *x, *y;
} training;

static tri_status one_step(const training *t, double factor, tri_tensor *target)
{
    tri_tensor *loss = tri_mse_loss(tri_forward(t->model, t->x), target, NULL);
    tri_status status;

    tri_backward(tri_grad_scaler_scale(t->scaler, tri_mul_scalar(loss, factor)));
    status = tri_grad_scaler_step(t->scaler, t->opt);
    if (status == TRI_OK)
        status = tri_grad_scaler_update(t->scaler);
    if (status == TRI_OK)
        return tri_step_end_status();
    tri_step_end();
    return status;
}

/* The values of the old model in a new one. */
static tri_status wrap_again(training *t, tri_group *group)
{
    tri_module *net = mlp(2);

    for (int64_t i = 0; i < tri_module_state_count(net); i++) {
        char bytes[WEIGHTS * sizeof(double)];
        tri_tensor *from = tri_module_state(t->model, i).tensor;
        size_t n = (size_t)tri_tensor_numel(from) * sizeof(double);

        TRY(tri_tensor_copy_out(from, bytes, n));
        TRY(tri_tensor_copy_in(tri_module_state(net, i).tensor, bytes, n));
    }
    tri_optimizer_destroy(t->opt);
    tri_module_destroy(t->model);
    t->model = tri_ddp(net, &(tri_ddp_options){.group = group});
    t->opt = tri_adam(t->model, 0.01, NULL);
    return tri_module_status(t->model);
}

/* Rank 2's step fails, or that of all, which no rank knows of the others. */
static tri_status train_on(rank *r)
{
    const bool *all = r->arg;
    training t = {.model = tri_ddp(mlp(1), &(tri_ddp_options){.group = r->group}),
                  .x = rows_of(x_data, IN, r->index * 4, 4),
                  .y = rows_of(y_data, OUT, r->index * 4, 4)};
    tri_tensor *short_y = rows_of(y_data, OUT, 0, 3);
    bool fails = *all || r->index == 2;
    tri_group *left = NULL;
    tri_status status;

    TRY(tri_module_status(t.model));
    TRY(tri_grad_scaler_create(&(tri_grad_scaler_options){.growth_interval = 3}, &t.scaler));
    t.opt = tri_adam(t.model, 0.01, NULL);
    for (int s = 0; s < BEFORE; s++)
        TRY(one_step(&t, 1, t.y));
    status = one_step(&t, 1, fails ? short_y : t.y);
    if (status != (fails ? TRI_ERR_INVALID_ARG : TRI_ERR_ABORTED))
        return TRI_ERR_INTERNAL;
    status = one_step(&t, 1, t.y); /* the group stays failed, also where all ranks failed alike */
    if (status != TRI_ERR_ABORTED || tri_group_status(r->group) != TRI_ERR_ABORTED)
        return TRI_ERR_INTERNAL;
    if (*all || r->index < 2) {
        TRY(tri_group_shrink(r->group, &(tri_group_shrink_options){.grace_ms = *all ? 0 : 200},
                             &left));
        TRY(wrap_again(&t, left));
        for (int s = 0; s < AFTER; s++)
            TRY(one_step(&t, s == OVERFLOWS_AT && r->index == 1 ? (double)INFINITY : 1, t.y));
        TRY(tri_ddp_verify(t.model, true));
        TRY(take_weights(r, t.model));
        r->weights[r->n_weights++] = tri_grad_scaler_current_scale(t.scaler);
        TRY(tri_step_end_status());
    }
    tri_tensor_unref(t.x);
    tri_tensor_unref(t.y);
    tri_tensor_unref(short_y);
    tri_grad_scaler_destroy(t.scaler);
    tri_optimizer_destroy(t.opt);
    tri_module_destroy(t.model);
    tri_group_unref(left);
    return TRI_OK;
}

static void check_scale(const rank *ranks, int n, double scale)
{
    for (int i = 0; i < n; i++) {
        assert_true(ranks[i].n_weights > 0 && ranks[i].hash == ranks[0].hash);
        assert_true(ranks[i].weights[ranks[i].n_weights - 1] == scale);
    }
}

/* Two steps before and one after it let the scale grow, the next one overflows. */
static void a_scaler_goes_on_with_the_ranks_that_are_left(void **state)
{
    static rank ranks[3];

    (void)state;
    make_data();
    ranks_succeed(ranks, 3, train_on, &(bool){false});
    check_scale(ranks, 2, 65536);
}

static void ranks_that_failed_alike_go_on_with_a_new_group(void **state)
{
    static rank ranks[3];

    (void)state;
    make_data();
    ranks_succeed(ranks, 3, train_on, &(bool){true});
    check_scale(ranks, 3, 65536);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_scaler_goes_on_with_the_ranks_that_are_left),
    cmocka_unit_test(ranks_that_failed_alike_go_on_with_a_new_group),
};

TEST_MAIN(tests)
