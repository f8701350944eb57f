/* fully_shard_ways_test.c - tri_fully_shard: what a program may do with parameters between layers,
 * in the middle of a step, beside training. Weights are compared with those of tri_ddp, bit for
 * bit. ctest: also=TRI_EAGER=1 also=TRI_CHECK=order */
#include "base/err.h"
#include "testing/ddp_ranks.h"

typedef tri_status (*way)(rank *r, tri_module *model, tri_optimizer *opt, int first);

static tri_tensor *loss_of(tri_module *model, int first, int n)
{
    tri_tensor *x = rows_of(x_data, IN, first, n), *y = rows_of(y_data, OUT, first, n);
    tri_tensor *loss = tri_mse_loss(tri_forward(model, x), y, NULL);

    tri_tensor_unref(x);
    tri_tensor_unref(y);
    return loss;
}

static int parameters_of(tri_module *model, tri_tensor **params)
{
    int n = 0;

    for (int64_t i = 0; i < tri_module_state_count(model); i++)
        if (tri_module_state(model, i).tensor->requires_grad)
            params[n++] = tri_module_state(model, i).tensor;
    return n;
}

/* --- training ------------------------------------------------------------- */

static tri_status train_by(rank *r, tri_module *model)
{
    way step = *(const way *)r->arg;
    tri_optimizer *opt = tri_adam(model, 0.01, NULL);

    TRY(tri_optimizer_status(opt));
    for (int i = 0; i < STEPS; i++) {
        TRY(step(r, model, opt, 4 * r->index));
        TRY(tri_step_end_status());
        tri_step_end();
    }
    TRY(tri_unshard_begin(model));
    TRY(take_weights(r, model));
    TRY(tri_unshard_end(model));
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return TRI_OK;
}

/* Each parameter in a bucket of its own, of which none is gathered ahead. */
static tri_status train_sharded(rank *r)
{
    return train_by(r, tri_fully_shard(mlp(1), &(tri_zero_options){.group = r->group,
                                                                   .bucket_cap_bytes = 8,
                                                                   .first_bucket_bytes = 8,
                                                                   .prefetch = -1}));
}

static tri_status train_in_part(rank *r)
{
    return train_by(r, tri_fully_shard(mlp(1), &(tri_zero_options){.group = r->group,
                                                                   .bucket_cap_bytes = 200,
                                                                   .first_bucket_bytes = 100,
                                                                   .keep_below = 9,
                                                                   .keep_after_forward = true}));
}

static tri_status train_one_bucket(rank *r)
{
    return train_by(r, tri_fully_shard(mlp(1), &(tri_zero_options){.group = r->group}));
}

static tri_status train_whole(rank *r)
{
    return train_by(r, tri_ddp(mlp(1), &(tri_ddp_options){.group = r->group}));
}

static void check_way(way step)
{
    static const rank_body bodies[] = {train_sharded, train_in_part, train_one_bucket};
    static rank whole[2], ranks[2];

    make_data();
    ranks_succeed(whole, 2, train_whole, &step);
    for (size_t k = 0; k < TRII_COUNT_OF(bodies); k++) {
        ranks_succeed(ranks, 2, bodies[k], &step);
        for (int r = 0; r < 2; r++)
            if (ranks[r].hash != whole[r].hash)
                fail_msg("other weights, way of sharding %d (%g, not %g)", (int)k,
                         ranks[r].weights[0], whole[r].weights[0]);
    }
}

/* --- ways ----------------------------------------------------------------- */

/* The norm of gradients is a part of the loss (WGAN-GP and others). */
static tri_status penalise_gradients(rank *r, tri_module *model, tri_optimizer *opt, int first)
{
    tri_tensor *params[16], *grads[16], *loss = loss_of(model, first, 4);
    int n = parameters_of(model, params);

    (void)r;
    TRY(tri_gradients(&loss, 1, params, n, &(tri_gradients_options){.create_graph = true}, grads));
    for (int i = 0; i < n; i++)
        loss = tri_add(loss, tri_mul_scalar(tri_sum(tri_square(grads[i]), NULL, 0, false), 0.1));
    tri_backward(loss);
    return tri_optimizer_step(opt);
}

/* Parameters are operands of the loss itself. */
static tri_status decay_in_the_loss(rank *r, tri_module *model, tri_optimizer *opt, int first)
{
    tri_tensor *params[16], *flat[16], *loss = loss_of(model, first, 4);
    int n = parameters_of(model, params);

    (void)r;
    for (int i = 0; i < n; i++)
        flat[i] = tri_flatten(params[i], 0);
    loss = tri_add(loss,
                   tri_mul_scalar(tri_sum(tri_square(tri_concat(flat, n, 0)), NULL, 0, false), .1));
    for (int i = n - 1; i >= 0; i--)
        loss = tri_add(loss, tri_mul_scalar(tri_norm(params[i], 2, NULL, 0, false), 0.01));
    loss = tri_add(loss, tri_mean(tri_matmul(params[2], params[0]), NULL, 0, false));
    tri_backward(loss);
    return tri_optimizer_step(opt);
}

/* Of a parameter: collectives, casts, copies. */
static tri_status send_parameters(rank *r, tri_module *model, tri_optimizer *opt, int first)
{
    tri_tensor *params[16], *loss = loss_of(model, first, 4);
    int n = parameters_of(model, params);

    for (int i = 0; i < n; i++) {
        tri_tensor *sum = tri_dist_all_reduce(params[i], TRI_REDOP_AVG, r->group);
        tri_tensor *all = tri_dist_all_gather(params[n - 1 - i], 0, r->group);
        tri_tensor *low = tri_cast(tri_cast(params[i], TRI_DTYPE_F32), TRI_DTYPE_F64);

        loss = tri_add(loss, tri_mul_scalar(tri_mean(tri_square(sum), NULL, 0, false), 0.1));
        loss = tri_add(loss, tri_mul_scalar(tri_mean(tri_square(all), NULL, 0, false), 0.1));
        loss = tri_add(loss, tri_mul_scalar(tri_mean(tri_square(low), NULL, 0, false), 0.1));
    }
    tri_backward(loss);
    return tri_optimizer_step(opt);
}

/* Weights are read by several layers, some of which are computed again. */
static tri_status tie_and_recompute(rank *r, tri_module *model, tri_optimizer *opt, int first)
{
    tri_tensor *params[16], *x = rows_of(x_data, IN, first, 4), *h = x, *loss;
    tri_tensor *casts[2];

    (void)r;
    (void)parameters_of(model, params);
    casts[0] = tri_transpose(params[0], 0, 1);
    casts[1] = tri_mul_scalar(params[2], 0.5);
    for (int i = 0; i < 3; i++) {
        TRI_RECOMPUTE
        {
            tri_tensor *w = tri_transpose(params[0], 0, 1);

            h = tri_tanh(tri_linear(h, params[0], params[1]));
            h = tri_tanh(tri_linear(h, params[2], params[3]));
            h = tri_tanh(tri_matmul(tri_matmul(h, casts[1]), params[0]));
            h = tri_matmul(tri_matmul(h, w), tri_transpose(casts[0], 0, 1));
        }
        h = tri_tanh(h);
    }
    loss = tri_mean(tri_square(tri_forward(model, h)), NULL, 0, false);
    tri_tensor_unref(x);
    tri_backward(loss);
    return tri_optimizer_step(opt);
}

static tri_status evaluate_first(rank *r, tri_module *model, tri_optimizer *opt, int first)
{
    double value;

    (void)r;
    tri_module_train(model, false);
    tri_no_grad_begin();
    TRY(tri_item_status(loss_of(model, 0, 3), &value));
    (void)tri_keep(loss_of(model, 1, 3));
    tri_no_grad_end();
    tri_module_train(model, true);
    tri_backward(loss_of(model, first, 4));
    return tri_optimizer_step(opt);
}

/* In the step in which they have been used. */
static tri_status read_after_forward(rank *r, tri_module *model, tri_optimizer *opt, int first)
{
    tri_tensor *params[16], *loss;
    double value, weights[IN * 8], bias[8], again[8];
    int n = parameters_of(model, params);

    (void)r;
    (void)n;
    tri_no_grad_begin();
    TRY(tri_item_status(loss_of(model, 0, 3), &value));
    tri_no_grad_end();
    TRY(tri_unshard_begin(model));
    TRY(tri_tensor_copy_out(params[0], weights, sizeof(weights)));
    TRY(tri_item_status(tri_sum(params[1], NULL, 0, false), &value));
    TRY(tri_tensor_copy_out(params[1], bias, sizeof(bias)));
    TRY(tri_unshard_end(model));
    loss = loss_of(model, first, 4);
    TRY(tri_unshard_begin(model));
    TRY(tri_tensor_copy_out(params[1], again, sizeof(bias)));
    TRY(tri_unshard_end(model));
    if (memcmp(bias, again, sizeof(bias)) != 0)
        return TRII_FAIL(TRI_ERR_INTERNAL, "other contents");
    tri_backward(loss);
    return tri_optimizer_step(opt);
}

/* Some readers before, while and after they are whole: gradients add up in one order. */
static tri_status use_while_whole(rank *r, tri_module *model, tri_optimizer *opt, int first)
{
    tri_tensor *loss = tri_add(loss_of(model, first, 4), loss_of(model, 0, 3));

    (void)r;
    TRY(tri_unshard_begin(model));
    loss = tri_add(loss, tri_add(loss_of(model, 1, 3), loss_of(model, 2, 5)));
    TRY(tri_unshard_end(model));
    loss = tri_add(loss, tri_add(loss_of(model, 3, 3), loss_of(model, 4, 5)));
    tri_backward(loss);
    return tri_optimizer_step(opt);
}

/* By operations and by hand, between two updates of a step. */
static tri_status write_in_between(rank *r, tri_module *model, tri_optimizer *opt, int first)
{
    tri_tensor *params[16];
    double bias[8];
    int n = parameters_of(model, params);

    (void)r;
    (void)n;
    tri_backward(loss_of(model, first, 4));
    TRY(tri_optimizer_step(opt));
    TRY(tri_unshard_begin(model));
    TRY(tri_init_constant(params[1], 0.25));
    TRY(tri_tensor_copy_out(params[3], bias, sizeof(bias)));
    for (int i = 0; i < 8; i++)
        bias[i] *= 0.5;
    TRY(tri_tensor_copy_in(params[3], bias, sizeof(bias)));
    TRY(tri_unshard_end(model));
    tri_backward(loss_of(model, first, 3));
    return tri_optimizer_step(opt);
}

/* Without a backward in between: several forwards before one. */
static tri_status forwards_before_one_backward(rank *r, tri_module *model, tri_optimizer *opt,
                                               int first)
{
    tri_tensor *loss = loss_of(model, first, 4);

    (void)r;
    for (int i = 0; i < 4; i++) {
        loss = tri_add(loss, loss_of(model, i, 5));
        if (i == 2)
            TRY(tri_run());
    }
    tri_backward(loss);
    (void)tri_clip_grad_norm(opt, 0.5);
    return tri_optimizer_step(opt);
}

/* Those who read them first have their contents, whatever is written later. */
static tri_status write_after_forward(rank *r, tri_module *model, tri_optimizer *opt, int first)
{
    tri_tensor *params[16], *loss;
    double bias[8], value;

    (void)r;
    (void)parameters_of(model, params);
    TRY(tri_unshard_begin(model));
    loss = loss_of(model, first, 4);
    TRY(tri_item_status(loss, &value));
    TRY(tri_tensor_copy_out(params[3], bias, sizeof(bias)));
    for (int i = 0; i < 8; i++)
        bias[i] *= 0.5;
    TRY(tri_tensor_copy_in(params[3], bias, sizeof(bias)));
    loss = tri_add(loss, loss_of(model, first, 4));
    tri_backward(loss);
    TRY(tri_run());
    TRY(tri_unshard_end(model));
    return tri_optimizer_step(opt);
}

/* And what was not written is gathered again. */
static tri_status write_before_backward(rank *r, tri_module *model, tri_optimizer *opt, int first)
{
    tri_tensor *params[16], *loss;
    double value, weights[OUT * 8];

    (void)r;
    (void)parameters_of(model, params);
    TRY(tri_unshard_begin(model));
    loss = loss_of(model, first, 4);
    TRY(tri_item_status(loss, &value));
    TRY(tri_tensor_copy_out(params[4], weights, sizeof(weights)));
    for (int i = 0; i < OUT * 8; i++)
        weights[i] *= 0.5;
    TRY(tri_tensor_copy_in(params[4], weights, sizeof(weights)));
    TRY(tri_unshard_end(model));
    tri_backward(tri_add(loss, loss_of(model, first, 3)));
    return tri_optimizer_step(opt);
}

/* Of values made of parameters, too. */
static tri_status gradients_of_views(rank *r, tri_module *model, tri_optimizer *opt, int first)
{
    tri_tensor *params[16], *x = rows_of(x_data, IN, first, 4), *h = x, *loss, *w, *grad;

    (void)r;
    (void)parameters_of(model, params);
    w = tri_transpose(params[0], 0, 1);
    for (int i = 0; i < 3; i++) {
        h = tri_tanh(tri_add(tri_matmul(h, w), params[1]));
        h = tri_tanh(tri_linear(h, params[2], params[3]));
        h = tri_tanh(tri_matmul(h, params[0]));
    }
    loss = tri_mean(tri_square(tri_forward(model, h)), NULL, 0, false);
    tri_tensor_unref(x);
    TRY(tri_gradients(&loss, 1, &w, 1, &(tri_gradients_options){.create_graph = true}, &grad));
    tri_backward(tri_add(loss, tri_sum(tri_square(grad), NULL, 0, false)));
    return tri_optimizer_step(opt);
}

/* By address, after the step has used them. */
static tri_status write_by_address(rank *r, tri_module *model, tri_optimizer *opt, int first)
{
    tri_tensor *params[16];
    double value, *bias;

    (void)r;
    (void)parameters_of(model, params);
    TRY(tri_item_status(loss_of(model, first, 4), &value));
    TRY(tri_unshard_begin(model));
    bias = (double *)(uintptr_t)tri_data(params[3]);
    for (int i = 0; i < 8; i++)
        bias[i] *= 0.5;
    TRY(tri_unshard_end(model));
    tri_backward(loss_of(model, first, 4));
    return tri_optimizer_step(opt);
}

/* Readers while and after they are whole. */
static tri_status use_after_whole(rank *r, tri_module *model, tri_optimizer *opt, int first)
{
    tri_tensor *loss;

    (void)r;
    TRY(tri_unshard_begin(model));
    loss = tri_add(loss_of(model, first, 4), loss_of(model, 0, 3));
    TRY(tri_unshard_end(model));
    for (int i = 0; i < 3; i++)
        loss = tri_add(loss, loss_of(model, i, 5));
    tri_backward(loss);
    return tri_optimizer_step(opt);
}

/* Averages of the weights are used in between. */
static tri_status swap_averages(rank *r, tri_module *model, tri_optimizer *opt, int first)
{
    tri_ema *ema = NULL;
    double value;

    (void)r;
    TRY(tri_ema_create(model, 0.5, &ema));
    tri_backward(loss_of(model, first, 4));
    TRY(tri_optimizer_step(opt));
    TRY(tri_ema_update(ema));
    tri_backward(loss_of(model, first, 3));
    TRY(tri_optimizer_step(opt));
    TRY(tri_ema_update(ema));
    TRY(tri_ema_swap(ema));
    tri_no_grad_begin();
    TRY(tri_item_status(loss_of(model, 0, 3), &value));
    tri_no_grad_end();
    TRY(tri_unshard_begin(model));
    TRY(tri_unshard_end(model));
    tri_ema_destroy(ema);
    return TRI_OK;
}

#define WAY(name, step)                                                                            \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        check_way(step);                                                                           \
    }

WAY(gradients_of_gradients_gather_again, penalise_gradients)
WAY(a_loss_may_read_parameters, decay_in_the_loss)
WAY(parameters_may_be_sent_and_cast, send_parameters)
WAY(tied_weights_may_be_computed_with_again, tie_and_recompute)
WAY(an_evaluation_may_come_first, evaluate_first)
WAY(what_a_step_has_used_may_be_read, read_after_forward)
WAY(what_is_whole_for_a_while_adds_up_in_one_order, use_while_whole)
WAY(what_is_written_in_between_counts, write_in_between)
WAY(forwards_may_be_many, forwards_before_one_backward)
WAY(what_is_written_after_forward_is_not_what_it_read, write_after_forward)
WAY(what_is_not_written_is_gathered_again, write_before_backward)
WAY(views_have_gradients_of_their_own, gradients_of_views)
WAY(what_is_written_by_address_is_read, write_by_address)
WAY(readers_of_what_is_whole_come_first, use_after_whole)
WAY(averages_may_be_swapped_in, swap_averages)

/* --- accumulation that a rank has no batches for -------------------------- */

typedef struct uneven {
    tri_module *model;
    tri_optimizer *opt;
    int rows; /* of a batch */
} uneven;

static tri_tensor *uneven_loss(const uneven *u)
{
    tri_tensor *x = rows_of(x_data, IN, 0, u->rows), *y = rows_of(y_data, OUT, 0, u->rows);
    tri_tensor *loss = tri_mse_loss(tri_forward(u->model, x), y, NULL);

    tri_tensor_unref(x);
    tri_tensor_unref(y);
    return loss;
}

/* As the loop: a pass that adds up, then the one whose average is updated with. */
static tri_tensor *uneven_passes(void *arg)
{
    uneven *u = arg;

    tri_ddp_no_sync_begin(u->model);
    tri_backward(uneven_loss(u));
    tri_ddp_no_sync_end(u->model);
    return uneven_loss(u);
}

static tri_status uneven_update(void *arg)
{
    return tri_optimizer_step(((uneven *)arg)->opt);
}

/* Rank r has 3 - r % 3 updates' worth of batches. */
static tri_status accumulate_and_join(rank *r)
{
    const bool shards = *(const bool *)r->arg;
    uneven u = {.rows = 4 + r->index};

    u.model = shards ? tri_fully_shard(mlp(1), &(tri_zero_options){.group = r->group,
                                                                   .bucket_cap_bytes = 300,
                                                                   .first_bucket_bytes = 300})
                     : tri_ddp(mlp(1), &(tri_ddp_options){.group = r->group,
                                                          .bucket_cap_bytes = 300,
                                                          .first_bucket_bytes = 300});
    TRY(tri_module_status(u.model));
    u.opt = tri_sgd(u.model, 0.1, NULL);
    for (int i = 0; i < 3 - r->index % 3; i++) {
        tri_backward(uneven_passes(&u));
        TRY(uneven_update(&u));
        TRY(tri_step_end_status());
    }
    u.rows = 0;
    TRY(tri_ddp_join(u.model, uneven_passes, uneven_update, &u, NULL));
    TRY(tri_module_hash(u.model, &r->hash));
    tri_optimizer_destroy(u.opt);
    tri_module_destroy(u.model);
    return TRI_OK;
}

static void a_join_makes_the_passes_of_an_accumulation(void **state)
{
    static rank ranks[4];

    (void)state;
    make_data();
    for (int size = 1; size <= 4; size++) {
        uint64_t hash = 0;

        for (int shards = 0; shards < 2; shards++) {
            ranks_succeed(ranks, size, accumulate_and_join, &(bool){shards != 0});
            if (shards == 0)
                hash = ranks[0].hash;
            for (int i = 0; i < size; i++)
                assert_true(ranks[i].hash == hash);
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_join_makes_the_passes_of_an_accumulation),
    cmocka_unit_test(gradients_of_gradients_gather_again),
    cmocka_unit_test(a_loss_may_read_parameters),
    cmocka_unit_test(parameters_may_be_sent_and_cast),
    cmocka_unit_test(tied_weights_may_be_computed_with_again),
    cmocka_unit_test(an_evaluation_may_come_first),
    cmocka_unit_test(what_a_step_has_used_may_be_read),
    cmocka_unit_test(what_is_whole_for_a_while_adds_up_in_one_order),
    cmocka_unit_test(what_is_written_in_between_counts),
    cmocka_unit_test(forwards_may_be_many),
    cmocka_unit_test(what_is_written_after_forward_is_not_what_it_read),
    cmocka_unit_test(what_is_not_written_is_gathered_again),
    cmocka_unit_test(views_have_gradients_of_their_own),
    cmocka_unit_test(what_is_written_by_address_is_read),
    cmocka_unit_test(readers_of_what_is_whole_come_first),
    cmocka_unit_test(averages_may_be_swapped_in),
};

TEST_MAIN(tests)
