/*
 * ddp_losses_test.c - every loss, with a part of the batch on each of two ranks that is not half of
 * it, trains as one process on the whole batch; also beside another mean.
 */
/* ctest: also=TRI_CHECK=order */
#include "base/err.h"
#include "testing/ddp_ranks.h"

#define LOSSES 9

typedef struct plan {
    int loss;
    bool penalised; /* by a mean over dimension 0 of something that has no samples there */
} plan;

static tri_tensor *loss_of(const plan *p, tri_tensor *out, tri_tensor *y)
{
    const tri_pair_loss_options by_batch = {.reduction = TRI_REDUCTION_BATCHMEAN};
    tri_tensor *share = tri_mul_scalar(tri_add_scalar(y, 1), 0.5); /* 0 to 1 */

    switch (p->loss) {
    case 0:
        return tri_mse_loss(out, y, NULL);
    case 1:
        return tri_l1_loss(out, y, NULL);
    case 2:
        return tri_smooth_l1_loss(out, y, &(tri_smooth_l1_loss_options){.beta = TRI_SET(0.4)});
    case 3:
        return tri_smooth_l1_loss(out, y, &(tri_smooth_l1_loss_options){.beta = TRI_SET(0)});
    case 4:
        return tri_bce_loss(tri_sigmoid(out), share, NULL);
    case 5:
        return tri_bce_with_logits_loss(out, share, NULL);
    case 6:
        return tri_kl_div(tri_log_softmax(out, 1), share, NULL);
    case 7:
        return tri_kl_div(tri_log_softmax(out, 1), share, &by_batch);
    default:
        return tri_cross_entropy(out, tri_argmax(y, 1, false), NULL);
    }
}

/* Rank 0 of two has 7 of 12 rows. */
static tri_status train(rank *r)
{
    const plan *p = r->arg;
    int first = r->index == 0 ? 0 : 7, n = r->size == 1 ? ROWS : r->index == 0 ? 7 : ROWS - 7;
    tri_module *model = tri_ddp(mlp(1), &(tri_ddp_options){.group = r->group});
    tri_optimizer *opt = tri_sgd(model, 0.5, NULL);
    tri_tensor *x = rows_of(x_data, IN, first, n), *y = rows_of(y_data, OUT, first, n);

    TRY(tri_module_status(model));
    for (int step = 0; step < 3; step++) {
        tri_tensor *out = tri_forward(model, x), *loss = loss_of(p, out, y);

        if (p->penalised)
            loss = tri_add(
                loss, tri_mul_scalar(tri_mean(tri_square(tri_transpose(out, 0, 1)), NULL, 0, false),
                                     0.125));
        tri_backward(loss);
        TRY(tri_optimizer_step(opt));
        TRY(tri_step_end_status());
    }
    TRY(tri_ddp_verify(model, true));
    return take_and_destroy(r, model, opt, x, y);
}

/* The slope of the network in its input is part of the loss: its gradient goes through the
 * replica's gradients, in regions that are computed again or not. */
static tri_status train_smoothly(rank *r)
{
    const bool *again = r->arg;
    int first = r->index == 0 ? 0 : 7, n = r->size == 1 ? ROWS : r->index == 0 ? 7 : ROWS - 7;
    tri_module *model = tri_ddp(mlp(1), &(tri_ddp_options){.group = r->group});
    tri_optimizer *opt = tri_sgd(model, 0.1, NULL);
    tri_tensor *x = rows_of(x_data, IN, first, n), *y = rows_of(y_data, OUT, first, n);

    TRY(tri_module_status(model));
    tri_requires_grad(x, true);
    for (int step = 0; step < 3; step++) {
        tri_tensor *out, *score, *slope;

        if (*again)
            tri_recompute_begin();
        out = tri_forward(model, tri_tanh(x));
        if (*again)
            tri_recompute_end();
        score = tri_sum(tri_exp(out), NULL, 0, false);
        TRY(tri_gradients(&score, 1, &x, 1, &(tri_gradients_options){.create_graph = true},
                          &slope));
        slope = tri_sum(tri_square(slope), TRI_SHAPE(1), false);
        tri_backward(tri_add(tri_mse_loss(out, y, NULL), tri_mean(slope, NULL, 0, false)));
        TRY(tri_optimizer_step(opt));
        TRY(tri_step_end_status());
    }
    TRY(tri_ddp_verify(model, true));
    return take_and_destroy(r, model, opt, x, y);
}

static void slopes_may_be_part_of_the_loss(void **state)
{
    static rank one[1], two[2];

    (void)state;
    make_data();
    for (int again = 0; again < 2; again++) {
        ranks_succeed(one, 1, train_smoothly, &(bool){again != 0});
        ranks_succeed(two, 2, train_smoothly, &(bool){again != 0});
        assert_true(two[0].hash == two[1].hash);
        for (int i = 0; i < one[0].n_weights; i++)
            CHECK_NEAR(two[0].weights[i], one[0].weights[i], 1e-12);
    }
}

/* As for a gradient penalty, adversarial examples or saliency. The mean is a plain one: rank 0 has
 * `n` rows, and how many the ranks have is what weights them. */
static tri_status train_on_inputs_with_gradients(rank *r)
{
    const int *rows_of_0 = r->arg;
    int first = r->index == 0 ? 0 : *rows_of_0;
    int n = r->size == 1 ? ROWS : r->index == 0 ? *rows_of_0 : ROWS - *rows_of_0;
    tri_module *model = tri_ddp(mlp(1), &(tri_ddp_options){.group = r->group});
    tri_optimizer *opt = tri_sgd(model, 0.1, NULL);
    tri_tensor *x = rows_of(x_data, IN, first, n);

    TRY(tri_module_status(model));
    tri_requires_grad(x, true);
    for (int step = 0; step < 3; step++) {
        tri_tensor *out = tri_forward(model, x), *score, *slope;

        tri_backward(tri_mean(tri_square(out), NULL, 0, false));
        score = tri_sum(tri_exp(tri_forward(model, x)), NULL, 0, false);
        TRY(tri_gradients(&score, 1, &x, 1, &(tri_gradients_options){.create_graph = true},
                          &slope));
        tri_backward(tri_mean(tri_square(slope), NULL, 0, false));
        TRY(tri_optimizer_step(opt));
        TRY(tri_step_end_status());
        if (tri_ddp_sample_count(model) != ROWS)
            return TRII_FAIL(TRI_ERR_INTERNAL, "%lld samples",
                             (long long)tri_ddp_sample_count(model));
    }
    TRY(tri_ddp_verify(model, true));
    return take_and_destroy(r, model, opt, x, NULL);
}

static void inputs_may_require_gradients(void **state)
{
    static const int rows_of_0[] = {1, 7, 0};
    static rank one[1], two[2];

    (void)state;
    make_data();
    for (int k = 0; k < 3; k++) {
        ranks_succeed(one, 1, train_on_inputs_with_gradients, &rows_of_0[k]);
        ranks_succeed(two, 2, train_on_inputs_with_gradients, &rows_of_0[k]);
        assert_true(two[0].hash == two[1].hash);
        for (int i = 0; i < one[0].n_weights; i++)
            CHECK_NEAR(two[0].weights[i], one[0].weights[i], 1e-12);
    }
}

static void uneven_parts_of_a_batch_are_one_batch(void **state)
{
    static rank one[1], two[2];

    (void)state;
    make_data();
    for (int k = 0; k < 2 * LOSSES; k++) {
        const plan p = {.loss = k / 2, .penalised = k % 2 != 0};

        ranks_succeed(one, 1, train, &p);
        ranks_succeed(two, 2, train, &p);
        assert_true(two[0].hash == two[1].hash);
        for (int i = 0; i < one[0].n_weights; i++) {
            if (!(fabs(two[0].weights[i] - one[0].weights[i]) <= 1e-12))
                fail_msg("loss %d%s, weight %d: %.15g, and %.15g of one process", p.loss,
                         p.penalised ? " with a penalty" : "", i, two[0].weights[i],
                         one[0].weights[i]);
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(uneven_parts_of_a_batch_are_one_batch),
    cmocka_unit_test(slopes_may_be_part_of_the_loss),
    cmocka_unit_test(inputs_may_require_gradients),
};

TEST_MAIN(tests)
