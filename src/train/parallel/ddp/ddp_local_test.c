/*
 * ddp_local_test.c - what a rank of data-parallel training does on its own: skip a bad batch,
 * evaluate, be the only one.
 */
/* ctest: also=TRI_CHECK=order */
#include "base/err.h"
#include "testing/ddp_ranks.h"

/* Gradients of rows [first, first + n) under no_sync or not, as a step of its own. `bad`: a target
 * that is no class, which the loss finds when it runs. */
static tri_status micro_batch(tri_module *model, int first, int n, bool local, bool bad)
{
    int64_t labels[ROWS] = {0};
    tri_tensor *x = rows_of(x_data, IN, first, n), *t, *loss;
    tri_status status = TRI_OK;

    labels[n - 1] = bad ? OUT : 1;
    t = tri_tensor_from((int64_t[]){n}, 1, TRI_DTYPE_I64, labels);
    if (local)
        tri_ddp_no_sync_begin(model);
    loss = tri_cross_entropy(tri_forward(model, x), t, NULL);
    tri_backward(loss);
    if (local)
        tri_ddp_no_sync_end(model);
    if (bad) {
        if (tri_run() != TRI_ERR_INVALID_ARG)
            status = TRI_ERR_INTERNAL;
        tri_step_end();
    } else if (local) {
        status = tri_step_end_status();
    }
    tri_tensor_unref(x);
    tri_tensor_unref(t);
    return status;
}

/* Rank 0 has a bad micro-batch among its three, and goes on. */
static tri_status train_with_a_bad_batch(rank *r)
{
    const bool *has_bad = r->arg;
    tri_module *model = tri_ddp(mlp(1), &(tri_ddp_options){.group = r->group});
    tri_optimizer *opt = tri_sgd(model, 0.1, NULL);
    int64_t count = 0;

    for (int step = 0; step < 3; step++) {
        TRY(micro_batch(model, 0, 3, true, false));
        if (r->index == 0 && *has_bad)
            TRY(micro_batch(model, 3, 5, true, true));
        TRY(micro_batch(model, 8, 2 + r->index, false, false));
        TRY(tri_optimizer_step(opt));
        TRY(tri_step_end_status());
        count += tri_ddp_sample_count(model);
    }
    TRY(tri_ddp_verify(model, true));
    TRY(take_weights(r, model));
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return count == (3 + 2 + 3 + 3) * 3 ? TRI_OK
                                        : TRII_FAIL(TRI_ERR_INTERNAL, "%d samples", (int)count);
}

static void a_bad_micro_batch_leaves_nothing_behind(void **state)
{
    static rank with[2], without[2];

    (void)state;
    make_data();
    ranks_succeed(with, 2, train_with_a_bad_batch, &(const bool){true});
    ranks_succeed(without, 2, train_with_a_bad_batch, &(const bool){false});
    assert_true(with[0].hash == without[0].hash);
}

/* Alone or not, the loop is the same. */
static void a_world_of_one_counts_its_samples(void **state)
{
    tri_module *model = tri_ddp(mlp(1), NULL);
    tri_optimizer *opt = tri_sgd(model, 0.1, NULL);

    (void)state;
    make_data();
    CHECK_OK(tri_module_status(model));
    assert_int_equal(tri_ddp_sample_count(model), 0);
    CHECK_OK(micro_batch(model, 0, 5, false, false));
    CHECK_OK(tri_optimizer_step(opt));
    CHECK_OK(tri_step_end_status());
    assert_int_equal(tri_ddp_sample_count(model), 5);
    CHECK_OK(micro_batch(model, 0, 4, true, false));
    CHECK_OK(micro_batch(model, 4, 4, true, true)); /* fails, and does not count */
    CHECK_OK(micro_batch(model, 8, 3, false, false));
    CHECK_OK(tri_optimizer_step(opt));
    CHECK_OK(tri_step_end_status());
    assert_int_equal(tri_ddp_sample_count(model), 7);
    CHECK_OK(micro_batch(model, 0, 5, false, true));
    assert_int_equal(tri_ddp_sample_count(model), 7);
    CHECK_OK(micro_batch(model, 0, 2, true, false));
    tri_optimizer_zero_grad(opt); /* thrown away */
    CHECK_OK(micro_batch(model, 0, 6, false, false));
    CHECK_OK(tri_step_end_status());
    assert_int_equal(tri_ddp_sample_count(model), 6);
    CHECK_OK(tri_ddp_sync_buffers(model));
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    tri_finalize();
}

/* --- frozen, and later not ------------------------------------------------ */

static void freeze(tri_module *net, bool on)
{
    tri_requires_grad(tri_module_find(net, "0.weight"), !on);
    tri_requires_grad(tri_module_find(net, "0.bias"), !on);
}

/* The first layer is frozen for three steps, and trained for three more. With `prepares` the batch
 * is the result of operations before the forward, in which the model makes its buckets again. */
static tri_status fine_tune(rank *r)
{
    const bool *prepares = r->arg;
    tri_module *net = mlp(1), *model;
    int n = ROWS / r->size;
    tri_tensor *x = rows_of(x_data, IN, r->index * n, n),
               *y = rows_of(y_data, OUT, r->index * n, n);
    tri_optimizer *opt;

    freeze(net, true);
    model = tri_ddp(net, &(tri_ddp_options){.group = r->group, .bucket_cap_bytes = 200});
    opt = tri_sgd(model, 0.1, &(tri_sgd_options){.momentum = 0.9});
    for (int step = 0; step < 6; step++) {
        tri_tensor *in = *prepares ? tri_mul_scalar(tri_mul_scalar(x, 2), 0.5) : x;
        tri_tensor *want = *prepares ? tri_neg(tri_neg(y)) : y;

        if (step == 3)
            freeze(net, false);
        tri_backward(tri_mse_loss(tri_forward(model, in), want, NULL));
        TRY(tri_optimizer_step(opt));
        TRY(tri_step_end_status());
        TRY(tri_ddp_verify(model, true));
    }
    TRY(take_weights(r, model));
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return TRI_OK;
}

static void a_parameter_that_is_unfrozen_is_averaged(void **state)
{
    static rank one[1], ranks[3];

    (void)state;
    make_data();
    ranks_succeed(one, 1, fine_tune, &(const bool){false});
    for (int size = 2; size <= 3; size++) {
        ranks_succeed(ranks, size, fine_tune, &(const bool){false});
        for (int i = 0; i < one[0].n_weights; i++)
            assert_true(fabs(ranks[0].weights[i] - one[0].weights[i]) < 1e-12);
    }
}

static void what_pends_when_buckets_are_made_anew_is_kept(void **state)
{
    static rank want[2], have[2];

    (void)state;
    make_data();
    ranks_succeed(want, 2, fine_tune, &(const bool){false});
    ranks_succeed(have, 2, fine_tune, &(const bool){true});
    assert_true(want[0].hash == have[0].hash && want[1].hash == have[1].hash);
}

/* Rank 1 forgets to, or unfreezes when forward has begun. */
static tri_status unfreeze_wrongly(rank *r)
{
    const bool *late = r->arg;
    tri_module *net = mlp(1), *model;
    tri_tensor *x = rows_of(x_data, IN, 0, 4), *y = rows_of(y_data, OUT, 0, 4), *loss;
    tri_optimizer *opt;
    tri_status status;

    freeze(net, true);
    model = tri_ddp(net, &(tri_ddp_options){.group = r->group});
    opt = tri_sgd(model, 0.1, NULL);
    if (!*late && r->index == 0)
        freeze(net, false);
    loss = tri_mse_loss(tri_forward(model, x), y, NULL);
    if (*late) {
        freeze(net, false);
        loss = tri_add(loss, tri_sum(tri_module_find(net, "0.weight"), NULL, 0, false));
    }
    tri_backward(loss);
    status = tri_optimizer_step(opt);
    snprintf(r->line, sizeof(r->line), "%s", tri_last_error());
    tri_step_end();
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return status;
}

static void unfreezing_on_one_rank_or_too_late_is_an_error(void **state)
{
    static rank ranks[2];

    (void)state;
    make_data();
    run_ranks(ranks, 2, unfreeze_wrongly, &(const bool){false});
    for (int i = 0; i < 2; i++)
        assert_int_equal(ranks[i].status, TRI_ERR_MISMATCH);
    run_ranks(ranks, 2, unfreeze_wrongly, &(const bool){true});
    for (int i = 0; i < 2; i++) {
        assert_true(ranks[i].status != TRI_OK);
        assert_non_null(strstr(ranks[i].line, "ddp: 0.weight requires a gradient only since this"));
    }
}

/* --- a frozen tensor of two models ---------------------------------------- */

typedef struct pair_plan {
    bool first_trains; /* else the second model does */
    bool other_goes;   /* before that */
} pair_plan;

typedef struct second_net {
    tri_tensor *own, *shared;
} second_net;

static tri_tensor *second_forward(tri_module *self, tri_tensor *x)
{
    const second_net *n = tri_module_data(self);

    return tri_narrow(tri_linear(tri_tanh(tri_linear(x, n->own, NULL)), n->shared, NULL), 1, 0,
                      OUT);
}

/* Its second parameter is another model's. */
static tri_module *second_model(tri_tensor *shared)
{
    tri_module *self = tri_module_simple("Second", sizeof(second_net), second_forward);
    second_net *n = tri_module_data(self);

    n->own = tri_module_add_parameter(self, "own", rows_of(x_data, IN, 0, 8));
    n->shared = tri_module_add_parameter(self, "shared", tri_tensor_ref(shared));
    tri_requires_grad(shared, false);
    return self;
}

static tri_status train_one_of_two(rank *r)
{
    const pair_plan *p = r->arg;
    const tri_ddp_options options = {.group = r->group};
    tri_module *net = mlp(1), *models[2], *trained;
    tri_tensor *shared = tri_module_find(net, "2.weight");
    int first = r->index == 0 ? 0 : 7, n = r->size == 1 ? ROWS : r->index == 0 ? 7 : ROWS - 7;
    int which = p->first_trains ? 0 : 1;
    tri_tensor *x = rows_of(x_data, IN, first, n), *y = rows_of(y_data, OUT, first, n);
    tri_optimizer *opt;

    tri_requires_grad(shared, false);
    models[0] = tri_ddp(net, &options);
    models[1] = tri_ddp(second_model(shared), &options);
    TRY(tri_module_status(models[0]));
    TRY(tri_module_status(models[1]));
    if (p->other_goes) {
        tri_module_destroy(models[1 - which]);
        models[1 - which] = NULL;
    }
    trained = models[which];
    opt = tri_sgd(trained, 0.1, NULL);
    for (int step = 0; step < 4; step++) {
        if (step == 1)
            tri_requires_grad(shared, true);
        tri_backward(tri_mse_loss(tri_forward(trained, x), y, NULL));
        TRY(tri_optimizer_step(opt));
        TRY(tri_step_end_status());
    }
    TRY(tri_ddp_verify(trained, true));
    TRY(take_weights(r, trained));
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    tri_optimizer_destroy(opt);
    tri_module_destroy(models[0]);
    tri_module_destroy(models[1]);
    return TRI_OK;
}

static void a_frozen_tensor_of_two_models_may_be_trained_with_one(void **state)
{
    static rank one[1], two[2];

    (void)state;
    make_data();
    for (int k = 0; k < 4; k++) {
        const pair_plan p = {.first_trains = k % 2 == 0, .other_goes = k / 2 != 0};

        ranks_succeed(one, 1, train_one_of_two, &p);
        ranks_succeed(two, 2, train_one_of_two, &p);
        for (int i = 0; i < one[0].n_weights; i++)
            CHECK_NEAR(two[0].weights[i], one[0].weights[i], 1e-12);
    }
}

/* The model that spoke for the frozen tensor is gone: the other one refuses in its place. */
static tri_status unfreeze_too_late(rank *r)
{
    const tri_ddp_options options = {.group = r->group};
    tri_module *net = mlp(1), *models[2];
    tri_tensor *shared = tri_module_find(net, "2.weight"), *loss;
    tri_tensor *x = rows_of(x_data, IN, 0, 7), *y = rows_of(y_data, OUT, 0, 7);
    tri_status status;

    tri_requires_grad(shared, false);
    models[0] = tri_ddp(net, &options);
    models[1] = tri_ddp(second_model(shared), &options);
    TRY(tri_module_status(models[0]));
    TRY(tri_module_status(models[1]));
    tri_module_destroy(models[0]);
    loss = tri_mse_loss(tri_forward(models[1], x), y, NULL);
    tri_requires_grad(shared, true);
    loss = tri_add(loss, tri_sum(shared, NULL, 0, false));
    tri_backward(loss);
    status = tri_step_end_status();
    snprintf(r->line, sizeof(r->line), "%s", tri_last_error());
    tri_module_destroy(models[1]);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    return status;
}

static void what_another_model_watched_is_refused_as_well(void **state)
{
    static rank ranks[2];

    (void)state;
    make_data();
    run_ranks(ranks, 2, unfreeze_too_late, NULL);
    for (int i = 0; i < 2; i++)
        if (ranks[i].status == TRI_OK ||
            strstr(ranks[i].line, "requires a gradient only since this forward began") == NULL)
            fail_msg("rank %d: %d, %s", i, ranks[i].status, ranks[i].line);
}

static tri_status move_before_and_after(rank *r)
{
    tri_module *net = mlp(1), *model;
    tri_status status;

    TRY(tri_module_to(net, TRI_CPU(1)));
    model = tri_ddp(net, &(tri_ddp_options){.group = r->group});
    TRY(tri_module_status(model));
    TRY(tri_module_to(model, TRI_CPU(1)));
    status = tri_module_to(model, TRI_CPU(0));
    tri_module_destroy(model);
    return status == TRI_ERR_STATE &&
                   strstr(tri_last_error(), "move the model before it is wrapped")
               ? TRI_OK
               : TRII_FAIL(TRI_ERR_INTERNAL, "%s: %s", tri_status_name(status), tri_last_error());
}

static void a_wrapped_model_stays_on_its_device(void **state)
{
    static rank ranks[2];

    (void)state;
    CHECK_OK(tri_cpu_devices_set(2));
    ranks_succeed(ranks, 2, move_before_and_after, NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_wrapped_model_stays_on_its_device),
    cmocka_unit_test(a_bad_micro_batch_leaves_nothing_behind),
    cmocka_unit_test(a_world_of_one_counts_its_samples),
    cmocka_unit_test(a_parameter_that_is_unfrozen_is_averaged),
    cmocka_unit_test(what_pends_when_buckets_are_made_anew_is_kept),
    cmocka_unit_test(unfreezing_on_one_rank_or_too_late_is_an_error),
    cmocka_unit_test(a_frozen_tensor_of_two_models_may_be_trained_with_one),
    cmocka_unit_test(what_another_model_watched_is_refused_as_well),
};

TEST_MAIN(tests)
