/* ddp_pending_test.c - what pends when a model communicates unasked, fails or goes away: values of
 * the program stay, and peers do not wait for them. */
#include "testing/ddp_ranks.h"

/* All ranks have come here, over the store: a rank that leaves the group before would be missed. */
static tri_status meet(const rank *r)
{
    const char *keys[] = {"here/0", "here/1"};

    TRY(tri_store_set(r->store, keys[r->index], "", 0));
    return tri_store_wait(r->store, keys, 2, 20000);
}

/* How a rank that fails ends, and how its peer. */
static void check_told(const rank *ranks, int failing, tri_status status, const char *what)
{
    for (int i = 0; i < 2; i++) {
        if (ranks[i].status != (i == failing ? status : TRI_ERR_ABORTED) ||
            strstr(ranks[i].line, what) == NULL)
            fail_msg("rank %d: %s: %s", i, tri_status_name(ranks[i].status), ranks[i].line);
    }
}

static void keep_line(rank *r)
{
    snprintf(r->line, sizeof(r->line), "%s", tri_last_error());
}

/* --- values --------------------------------------------------------------- */

/* Input, target and a loss of before are recorded when the second forward regroups the gradients,
 * which first runs what pends. */
static tri_status train_on_computed(rank *r)
{
    tri_module *model = tri_ddp(mlp(1), &(tri_ddp_options){.group = r->group});
    tri_tensor *x = rows_of(x_data, IN, 0, 4), *y = rows_of(y_data, OUT, 0, 4);
    tri_optimizer *opt = tri_sgd(model, 0.1, NULL);

    TRY(tri_module_status(model));
    for (int step = 0; step < 4; step++) {
        tri_tensor *in = tri_add_scalar(x, 1), *target = tri_mul_scalar(y, 2), *first, *second;
        double losses[2];

        tri_ddp_no_sync_begin(model);
        first = tri_mse_loss(tri_forward(model, in), target, NULL);
        tri_backward(first);
        tri_ddp_no_sync_end(model);
        second = tri_mse_loss(tri_forward(model, in), target, NULL);
        tri_backward(second);
        TRY(tri_item_status(second, &losses[1]));
        if (step == 1)
            TRY(tri_item_status(first, &losses[0]));
        if (step == 1 && losses[0] != losses[1])
            return TRI_ERR_INTERNAL;
        TRY(tri_optimizer_step(opt));
        TRY(tri_step_end_status());
    }
    return take_and_destroy(r, model, opt, x, y);
}

static void what_was_computed_before_a_forward_is_there_after_it(void **state)
{
    static rank ranks[2];

    (void)state;
    make_data();
    ranks_succeed(ranks, 2, train_on_computed, NULL);
}

/* --- failures ------------------------------------------------------------- */

/* Rank 1's first micro-batch, which is not averaged, has a label that is no class. */
static tri_status fail_in_no_sync(rank *r)
{
    const int *bad_step = r->arg;
    tri_module *model = tri_ddp(mlp(1), &(tri_ddp_options){.group = r->group});
    tri_tensor *x = rows_of(x_data, IN, 0, 2);
    tri_status status = tri_module_status(model);

    for (int step = 0; step < 4 && status == TRI_OK; step++) {
        for (int micro = 0; micro < 2; micro++) {
            bool bad = r->index == 1 && step == *bad_step && micro == 0;
            const int64_t labels[2] = {0, bad ? 77 : 1};
            tri_tensor *y = tri_tensor_from(TRI_SHAPE(2), TRI_DTYPE_I64, labels), *loss;

            if (micro == 0)
                tri_ddp_no_sync_begin(model);
            loss = tri_cross_entropy(tri_forward(model, x), y, NULL);
            tri_backward(loss);
            if (micro == 0)
                tri_ddp_no_sync_end(model);
            if (bad && step > 1)
                (void)tri_item(loss); /* the step has failed when the next forward begins */
            tri_tensor_unref(y);
        }
        status = tri_step_end_status();
        keep_line(r);
    }
    TRY(meet(r));
    tri_tensor_unref(x);
    tri_module_destroy(model);
    return status;
}

static void a_failure_before_a_synchronised_forward_is_told_to_peers(void **state)
{
    static rank ranks[2];

    (void)state;
    make_data();
    for (int bad_step = 1; bad_step < 3; bad_step++) {
        run_ranks(ranks, 2, fail_in_no_sync, &bad_step);
        check_told(ranks, 1, TRI_ERR_INVALID_ARG, "target 77 of row 1");
    }
}

/* Rank 1's pending step fails when the model is verified. */
static tri_status fail_when_verified(rank *r)
{
    const bool *buffers = r->arg;
    const int64_t labels[2] = {0, r->index == 1 ? 77 : 1};
    tri_module *model = tri_ddp(mlp(1), &(tri_ddp_options){.group = r->group});
    tri_tensor *x = rows_of(x_data, IN, 0, 2), *loss;
    tri_tensor *y = tri_tensor_from(TRI_SHAPE(2), TRI_DTYPE_I64, labels);
    tri_status status = tri_module_status(model);

    tri_module_train(model, false);
    loss = tri_keep(tri_cross_entropy(tri_forward(model, x), y, NULL));
    (void)loss;
    if (status == TRI_OK)
        status = tri_ddp_verify(model, *buffers);
    keep_line(r);
    TRY(meet(r));
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    tri_module_destroy(model);
    return status;
}

static void a_failure_before_the_replicas_are_compared_is_told_to_peers(void **state)
{
    static rank ranks[2];

    (void)state;
    make_data();
    for (int buffers = 0; buffers < 2; buffers++) {
        run_ranks(ranks, 2, fail_when_verified, &(bool){buffers == 1});
        check_told(ranks, 1, TRI_ERR_INVALID_ARG, "target 77 of row 1");
    }
}

/* The last bucket of one backward is sent while the next forward waits for its own. */
static tri_status fail_in_the_second_pass(rank *r)
{
    tri_module *model = tri_ddp(mlp(1), &(tri_ddp_options){.group = r->group});
    tri_tensor *x = rows_of(x_data, IN, 0, 4), *y = rows_of(y_data, OUT, 0, 4), *out;
    tri_tensor *short_y = rows_of(y_data, OUT, 0, 3);
    tri_status status = tri_module_status(model);

    tri_backward(tri_mse_loss(tri_forward(model, x), y, NULL));
    if (status == TRI_OK)
        status = tri_step_end_status();
    tri_backward(tri_mse_loss(tri_forward(model, x), y, NULL));
    out = tri_keep(tri_forward(model, x));
    if (status == TRI_OK)
        status = tri_run();
    tri_backward(tri_mse_loss(out, r->index == 0 ? short_y : y, NULL));
    if (status == TRI_OK)
        status = tri_run();
    keep_line(r);
    TRY(meet(r));
    tri_step_end();
    tri_module_destroy(model);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    tri_tensor_unref(short_y);
    return status;
}

static void a_mistake_behind_another_backward_is_told_too(void **state)
{
    static rank ranks[2];

    (void)state;
    make_data();
    run_ranks(ranks, 2, fail_in_the_second_pass, NULL);
    check_told(ranks, 0, TRI_ERR_INVALID_ARG, "tri_mse_loss(f64 [4, 3], f64 [3, 3])");
}

/* --- a model that goes away ----------------------------------------------- */

/* While a step of this context or of another one points to its collectives, on rank 0. */
static tri_status destroy_while_pending(rank *r)
{
    const bool *elsewhere = r->arg;
    tri_module *model = tri_ddp(mlp(1), &(tri_ddp_options){.group = r->group});
    tri_tensor *x = rows_of(x_data, IN, 0, 4), *y = rows_of(y_data, OUT, 0, 4);
    tri_context *context = NULL;
    tri_status status = tri_module_status(model);

    TRY(tri_context_create(&context));
    TRY(tri_context_enter(context));
    tri_backward(tri_mse_loss(tri_forward(model, x), y, NULL));
    if (*elsewhere)
        TRY(tri_context_leave());
    if (r->index == 0)
        tri_module_destroy(model);
    if (*elsewhere)
        TRY(tri_context_enter(context));
    if (status == TRI_OK)
        status = tri_run();
    keep_line(r);
    TRY(meet(r));
    TRY(tri_context_leave());
    tri_context_destroy(context);
    if (r->index != 0)
        tri_module_destroy(model);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    return status;
}

static void a_pending_step_outlives_its_model_and_peers_hear_of_it(void **state)
{
    static rank ranks[2];

    (void)state;
    make_data();
    for (int elsewhere = 0; elsewhere < 2; elsewhere++) {
        run_ranks(ranks, 2, destroy_while_pending, &(bool){elsewhere == 1});
        check_told(ranks, 0, TRI_ERR_STATE,
                   "the model of tri_ddp was destroyed while a step was pending");
    }
}

/* Two contexts record passes of one model; the one that was begun last is run first. */
static tri_status pass_of_two_contexts(rank *r)
{
    tri_module *model = tri_ddp(mlp(1), &(tri_ddp_options){.group = r->group});
    tri_tensor *x = rows_of(x_data, IN, 0, 4), *y = rows_of(y_data, OUT, 0, 4);
    tri_context *context = NULL;

    TRY(tri_module_status(model));
    TRY(tri_context_create(&context));
    for (int step = 0; step < 3; step++) {
        TRY(tri_context_enter(context));
        tri_ddp_no_sync_begin(model);
        tri_backward(tri_mse_loss(tri_forward(model, x), y, NULL));
        tri_ddp_no_sync_end(model);
        TRY(tri_run()); /* the context's step goes on */
        TRY(tri_context_leave());
        tri_backward(tri_mse_loss(tri_forward(model, x), y, NULL));
        TRY(tri_step_end_status());
        TRY(tri_context_enter(context));
        TRY(tri_step_end_status());
        TRY(tri_context_leave());
    }
    tri_context_destroy(context);
    TRY(take_weights(r, model));
    tri_module_destroy(model);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    return TRI_OK;
}

static void contexts_take_turns(void **state)
{
    static rank ranks[2];

    (void)state;
    make_data();
    ranks_succeed(ranks, 2, pass_of_two_contexts, NULL);
}

/* A loss of one layer alone, whose label is no class where it is to fail. */
static void train_layer(tri_module *model, const char *layer, int64_t width, int64_t label)
{
    const int64_t labels[2] = {0, label};
    tri_tensor *x = tri_tensor_create(TRI_SHAPE(2, width), TRI_DTYPE_F64);
    tri_tensor *y = tri_tensor_from(TRI_SHAPE(2), TRI_DTYPE_I64, labels);

    tri_backward(tri_cross_entropy(tri_forward(tri_module_submodule(model, layer), x), y, NULL));
    tri_tensor_unref(x);
    tri_tensor_unref(y);
}

/* Passes of two contexts that reach different layers pend, without synchronisation, and one fails:
 * its samples must not count in what is averaged next. */
static tri_status two_passes_pend(rank *r)
{
    tri_module *model = tri_ddp(mlp(1), &(tri_ddp_options){.group = r->group});
    tri_tensor *x = rows_of(x_data, IN, 0, 4), *y = rows_of(y_data, OUT, 0, 4);
    tri_context *context = NULL;

    TRY(tri_module_status(model));
    TRY(tri_context_create(&context));
    tri_ddp_no_sync_begin(model);
    tri_backward(tri_mse_loss(tri_forward(model, x), y, NULL));
    TRY(tri_step_end_status());
    TRY(tri_context_enter(context));
    train_layer(model, "0", IN, 77);
    TRY(tri_context_leave());
    train_layer(model, "4", 8, 1);
    if (tri_step_end_status() != TRI_ERR_STATE ||
        strstr(tri_last_error(), "needs the gradient of ") == NULL ||
        strstr(tri_last_error(), "which the step of context ") == NULL)
        return TRI_ERR_INTERNAL;
    TRY(tri_context_enter(context));
    if (tri_step_end_status() != TRI_ERR_INVALID_ARG)
        return TRI_ERR_INTERNAL;
    TRY(tri_context_leave());
    tri_ddp_no_sync_end(model);
    tri_backward(tri_mse_loss(tri_forward(model, x), y, NULL));
    TRY(tri_step_end_status());
    r->n_weights = (int)tri_ddp_sample_count(model);
    tri_context_destroy(context);
    tri_module_destroy(model);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    return TRI_OK;
}

static void a_pass_while_another_contexts_pends_is_refused(void **state)
{
    static rank ranks[2];

    (void)state;
    make_data();
    for (int size = 1; size < 3; size++) {
        ranks_succeed(ranks, size, two_passes_pend, NULL);
        for (int i = 0; i < size; i++)
            assert_int_equal(ranks[i].n_weights, size * (4 + 4));
    }
}

/* A step fails while it is recorded; the program notices when it ends. */
static tri_status backward_in_a_failed_step(rank *r)
{
    tri_module *model = tri_ddp(mlp(1), &(tri_ddp_options){.group = r->group});
    tri_tensor *x = rows_of(x_data, IN, 0, 4), *loss;

    TRY(tri_module_status(model));
    tri_ddp_no_sync_begin(model);
    tri_backward(tri_mean(tri_square(tri_forward(model, x)), NULL, 0, false));
    TRY(tri_step_end_status());
    loss = tri_mean(tri_square(tri_forward(model, x)), NULL, 0, false);
    tri_no_grad_end();
    tri_backward(loss);
    if (tri_step_end_status() != TRI_ERR_STATE ||
        strcmp(tri_last_error(), "tri_no_grad_end without tri_no_grad_begin") != 0)
        return TRI_ERR_INTERNAL;
    tri_ddp_no_sync_end(model);
    tri_backward(tri_mean(tri_square(tri_forward(model, x)), NULL, 0, false));
    TRY(tri_step_end_status());
    r->n_weights = (int)tri_ddp_sample_count(model);
    tri_module_destroy(model);
    tri_tensor_unref(x);
    return TRI_OK;
}

static void a_backward_after_its_step_has_failed_does_not_count(void **state)
{
    static rank ranks[2];

    (void)state;
    make_data();
    for (int size = 1; size < 3; size++) {
        ranks_succeed(ranks, size, backward_in_a_failed_step, NULL);
        for (int i = 0; i < size; i++)
            assert_int_equal(ranks[i].n_weights, size * (4 + 4));
    }
}

/* Rank 1 uses the first layer only: whether the others have gradients it learns when the pass runs,
 * and what an optimizer does before that in another context is not for them. */
static tri_status update_elsewhere(rank *r)
{
    tri_module *model = tri_ddp(mlp(1), &(tri_ddp_options){.group = r->group});
    tri_module *first = tri_module_submodule(model, "0");
    tri_optimizer *opt = tri_sgd(model, 0.1, NULL);
    tri_tensor *x = rows_of(x_data, IN, 0, 4);
    tri_context *context = NULL;

    TRY(tri_module_status(model));
    TRY(tri_context_create(&context));
    for (int step = 0; step < 3; step++) {
        tri_tensor *out = tri_forward(model, x);

        out = r->index == 1 ? tri_forward(first, x) : out;
        tri_backward(tri_mean(tri_square(out), NULL, 0, false));
        if (step > 0) {
            TRY(tri_context_enter(context));
            TRY(tri_optimizer_step(opt));
            TRY(tri_step_end_status());
            TRY(tri_context_leave());
        }
        TRY(tri_optimizer_step(opt));
        TRY(tri_step_end_status());
    }
    TRY(tri_ddp_verify(model, true));
    tri_context_destroy(context);
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    tri_tensor_unref(x);
    return TRI_OK;
}

static void an_update_elsewhere_takes_nothing_of_a_pass_that_pends(void **state)
{
    static rank ranks[2];

    (void)state;
    make_data();
    ranks_succeed(ranks, 2, update_elsewhere, NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(what_was_computed_before_a_forward_is_there_after_it),
    cmocka_unit_test(a_failure_before_a_synchronised_forward_is_told_to_peers),
    cmocka_unit_test(a_failure_before_the_replicas_are_compared_is_told_to_peers),
    cmocka_unit_test(a_mistake_behind_another_backward_is_told_too),
    cmocka_unit_test(a_pending_step_outlives_its_model_and_peers_hear_of_it),
    cmocka_unit_test(contexts_take_turns),
    cmocka_unit_test(a_pass_while_another_contexts_pends_is_refused),
    cmocka_unit_test(a_backward_after_its_step_has_failed_does_not_count),
    cmocka_unit_test(an_update_elsewhere_takes_nothing_of_a_pass_that_pends),
};

TEST_MAIN(tests)
