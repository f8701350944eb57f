/* zero_messages_test.c - what goes wrong in a model of tri_zero is told in its name, not in that of
 * tri_ddp, whose module it shares. */
#include "base/err.h"
#include "testing/ddp_ranks.h"
#include "testing/scratch.h"

static tri_module *model_of(rank *r, tri_module *own_net)
{
    return tri_zero(own_net, &(tri_zero_options){.group = r->group, .stage = 2});
}

/* Batch norm's statistics come from rank 0 before each forward in training. */
static tri_module *images(void)
{
    return tri_nn_sequential(tri_nn_batch_norm2d(1, NULL), tri_nn_conv2d(1, 1, 1, NULL));
}

static tri_status say(rank *r, tri_status status)
{
    (void)snprintf(r->line, sizeof(r->line), "%s", tri_last_error());
    return status;
}

/* Rank 0 makes a forward more than rank 1. */
static tri_status look_alone(rank *r)
{
    const float image[8] = {1, 2, 3, 4, 5, 6, 7, 9};
    tri_tensor *x = tri_tensor_from((int64_t[]){2, 1, 2, 2}, 4, TRI_DTYPE_F32, image);
    tri_module *model = model_of(r, images());
    tri_status status = tri_module_status(model);

    if (r->index == 0)
        tri_item(tri_mse_loss(tri_forward(model, x), x, NULL));
    tri_step_end();
    if (status == TRI_OK) {
        tri_backward(tri_mse_loss(tri_forward(model, x), x, NULL));
        status = say(r, tri_step_end_status());
    }
    tri_step_end();
    tri_module_destroy(model);
    tri_tensor_unref(x);
    return status;
}

/* Rank 0's gradients are not numbers. */
static tri_status diverge(rank *r)
{
    tri_module *model = model_of(r, mlp(1));
    tri_tensor *x = rows_of(x_data, IN, 0, 4), *loss;
    tri_status status = tri_module_status(model);

    loss = tri_mean(tri_forward(model, x), NULL, 0, false);
    if (r->index == 0)
        loss = tri_div(loss, tri_sub(loss, loss));
    tri_backward(loss);
    if (status == TRI_OK)
        status = say(r, tri_step_end_status());
    tri_tensor_unref(x);
    tri_module_destroy(model);
    return status;
}

static tri_status destroy_while_pending(rank *r)
{
    tri_module *model = model_of(r, mlp(1));
    tri_tensor *x = rows_of(x_data, IN, 0, 4);
    tri_status status = tri_module_status(model);

    tri_backward(tri_mean(tri_forward(model, x), NULL, 0, false));
    tri_module_destroy(model);
    if (status == TRI_OK)
        status = say(r, tri_step_end_status());
    tri_tensor_unref(x);
    return status;
}

/* The update of rank 1 meets a sum of rank 0's own. */
static tri_status update_alone(rank *r)
{
    tri_module *model = model_of(r, mlp(1));
    tri_optimizer *opt = tri_sgd(model, 0.1, NULL);
    tri_tensor *x = rows_of(x_data, IN, 0, 4);
    tri_status status = tri_module_status(model);
    float one = 1;

    tri_backward(tri_mean(tri_forward(model, x), NULL, 0, false));
    if (status == TRI_OK)
        status = tri_step_end_status();
    if (status == TRI_OK && r->index == 1)
        status = tri_optimizer_step(opt);
    else if (status == TRI_OK)
        status = tri_all_reduce(r->group, &one, &one, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL);
    if (status == TRI_OK)
        status = tri_step_end_status();
    (void)say(r, status);
    tri_step_end();
    tri_tensor_unref(x);
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return status;
}

static tri_status wrap_twice(rank *r)
{
    tri_module *model = tri_ddp(model_of(r, mlp(1)), &(tri_ddp_options){.group = r->group});
    tri_status status = say(r, tri_module_status(model));

    tri_module_destroy(model);
    return status;
}

/* As in torch's tutorial, where fully_shard goes around each block, and then around all. */
static tri_status shard_each_block(rank *r)
{
    const tri_zero_options options = {.group = r->group};
    tri_module *model =
        tri_fully_shard(tri_nn_sequential(tri_fully_shard(mlp(1), &options), mlp(2)), &options);
    tri_status status = say(r, tri_module_status(model));

    tri_module_destroy(model);
    return status;
}

/* Rank 1 makes other parameters whole. */
static tri_status open_another_layer(rank *r)
{
    const char *units[] = {"*"};
    tri_module *model = tri_fully_shard(
        mlp(1), &(tri_zero_options){.group = r->group, .units = units, .n_units = 1});
    tri_status status = tri_module_status(model);

    if (status == TRI_OK)
        status = say(r, tri_unshard_begin(tri_module_submodule(model, r->index == 0 ? "0" : "2")));
    tri_module_destroy(model);
    return status;
}

/* Rank 0 calls what all ranks call; rank 1 trains. */
static tri_status call_alone(rank *r, tri_status (*call)(tri_module *model))
{
    tri_module *model = tri_fully_shard(mlp(1), &(tri_zero_options){.group = r->group});
    tri_tensor *x = rows_of(x_data, IN, 0, 4);
    tri_status status = tri_module_status(model);

    if (status == TRI_OK && r->index == 0) {
        status = call(model);
    } else if (status == TRI_OK) {
        tri_backward(tri_mean(tri_forward(model, x), NULL, 0, false));
        status = tri_step_end_status();
    }
    (void)say(r, status);
    tri_step_end();
    tri_tensor_unref(x);
    tri_module_destroy(model);
    return status;
}

static tri_status call_save(tri_module *model)
{
    return tri_save(model, "/not-reached");
}

static tri_status call_load(tri_module *model)
{
    tri_module *whole = mlp(1);
    tri_status status;
    scratch s;

    scratch_begin(&s);
    status = tri_save(whole, scratch_path(&s, "weights"));
    if (status == TRI_OK)
        status = tri_load(model, scratch_path(&s, "weights"), NULL);
    scratch_end(&s);
    tri_module_destroy(whole);
    return status;
}

static tri_status call_checkpoint_save(tri_module *model)
{
    return tri_checkpoint_save("/not-reached", model, NULL, &(tri_checkpoint_info){.step = 1},
                               NULL);
}

static tri_status save_alone(rank *r)
{
    return call_alone(r, call_save);
}

static tri_status load_alone(rank *r)
{
    return call_alone(r, call_load);
}

static tri_status save_checkpoint_alone(rank *r)
{
    return call_alone(r, call_checkpoint_save);
}

static tri_tensor *no_rows(void *model)
{
    tri_tensor *x = rows_of(x_data, IN, 0, 0);
    tri_tensor *loss = tri_mean(tri_forward(model, x), NULL, 0, false);

    tri_tensor_unref(x);
    return loss;
}

static tri_status no_update(void *model)
{
    (void)model;
    return TRI_OK;
}

/* Rank 0 adds up over two passes; rank 1 has no data and joins with one. */
static tri_status join_with_fewer_passes(rank *r)
{
    tri_tensor *x = rows_of(x_data, IN, 0, 4);
    tri_module *model;
    tri_status status;

    tri_group_set_timeout(r->group, 2000);
    model = tri_fully_shard(mlp(1), &(tri_zero_options){.group = r->group});
    status = tri_module_status(model);
    if (status == TRI_OK && r->index == 1) {
        status = tri_ddp_join(model, no_rows, no_update, model, NULL);
    } else if (status == TRI_OK) {
        tri_ddp_no_sync_begin(model);
        tri_backward(tri_mean(tri_forward(model, x), NULL, 0, false));
        status = tri_step_end_status();
        tri_ddp_no_sync_end(model);
        if (status == TRI_OK) {
            tri_backward(tri_mean(tri_forward(model, x), NULL, 0, false));
            status = tri_step_end_status();
        }
    }
    (void)say(r, status);
    tri_step_end();
    tri_tensor_unref(x);
    tri_module_destroy(model);
    trii_err_set("%s", r->line); /* the end of the step has said its own */
    return status == TRI_ERR_ABORTED ? TRI_ERR_GROUP_TIMEOUT : status; /* the other's wait */
}

static tri_status verify_a_layer(rank *r)
{
    tri_module *layer = tri_nn_linear(2, 2, NULL);
    tri_status status = say(r, tri_ddp_verify(layer, true));

    tri_module_destroy(layer);
    return status;
}

static void what_goes_wrong_is_told_in_its_name(void **state)
{
    static const struct {
        tri_status (*run)(rank *r);
        const char *check; /* TRI_CHECK */
        int rank;
        tri_status status;
        const char *line;
    } cases[] = {
        {look_alone, "order", 1, TRI_ERR_MISMATCH, "rank 0: tri_zero (buffers) 0 at "},
        {look_alone, "order", 1, TRI_ERR_MISMATCH, "rank 1: tri_zero (numbers of samples) at "},
        {look_alone, "order", 1, TRI_ERR_MISMATCH,
         "a model of tri_zero communicates when it is made or verified, in each forward in "
         "training mode, each backward and each update"},
        {diverge, "nan", 1, TRI_ERR_NAN, "NaN came in through tri_zero (gradients)("},
        {destroy_while_pending, "", 0, TRI_ERR_STATE, "tri_zero (a model that is gone)"},
        {destroy_while_pending, "", 0, TRI_ERR_STATE, "the model of tri_zero was destroyed"},
        {update_alone, "", 1, TRI_ERR_MISMATCH, "tri_zero (parameters)"},
        {wrap_twice, "", 0, TRI_ERR_INVALID_ARG, "has a model of tri_zero inside"},
        {shard_each_block, "", 0, TRI_ERR_INVALID_ARG,
         "has a model of tri_fully_shard inside (0), whose gradients are averaged already: wrap "
         "all of it, or parts that have nothing in common (tri_zero_options.units says which"},
        {open_another_layer, "", 1, TRI_ERR_MISMATCH,
         "(a model of tri_fully_shard communicates when it is made or verified, in each forward, "
         "each backward and wherever parameters become whole (tri_unshard_begin, tri_save,"},
        {save_alone, "", 0, TRI_ERR_MISMATCH, ": the ranks disagree: rank 0 calls "},
        {save_alone, "", 0, TRI_ERR_MISMATCH, "all of them call tri_save, or none"},
        {load_alone, "", 0, TRI_ERR_MISMATCH, "all of them call tri_load, or none"},
        {save_checkpoint_alone, "", 0, TRI_ERR_MISMATCH,
         "all of them call tri_checkpoint_save, or none"},
        {join_with_fewer_passes, "", 1, TRI_ERR_GROUP_TIMEOUT,
         "in stage 3 loss also makes the passes of the others' loops between "
         "tri_ddp_no_sync_begin"},
        {verify_a_layer, "", 0, TRI_ERR_INVALID_ARG,
         "was not made by tri_ddp, tri_zero or tri_fully_shard"},
    };
    static rank ranks[2];

    (void)state;
    make_data();
    for (size_t c = 0; c < TRII_COUNT_OF(cases); c++) {
        const rank *r = &ranks[cases[c].rank];

        assert_int_equal(setenv("TRI_CHECK", cases[c].check, 1), 0);
        run_ranks(ranks, 2, cases[c].run, NULL);
        if (r->status != cases[c].status || strstr(r->line, cases[c].line) == NULL)
            fail_msg("case %zu: %s: %s", c, tri_status_name(r->status), r->line);
    }
}

/* --- traces --------------------------------------------------------------- */

static tri_status train(rank *r)
{
    tri_module *model = model_of(r, mlp(1));
    tri_optimizer *opt = tri_sgd(model, 0.1, NULL);
    tri_tensor *x = rows_of(x_data, IN, 0, 4);

    TRY(tri_module_status(model));
    tri_backward(tri_mean(tri_forward(model, x), NULL, 0, false));
    TRY(tri_optimizer_step(opt));
    TRY(tri_step_end_status());
    tri_tensor_unref(x);
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return TRI_OK;
}

static void a_trace_names_what_is_sent_and_waited_for(void **state)
{
    static const char *const names[] = {"tri_zero (gradients)", "wait for tri_zero (gradients)",
                                        "wait for tri_zero (parameters)"};
    static rank ranks[2];
    scratch s;
    char *text;
    size_t n;

    (void)state;
    make_data();
    scratch_begin(&s);
    assert_int_equal(setenv("TRI_TRACE", scratch_path(&s, "t.json"), 1), 0);
    ranks_succeed(ranks, 2, train, NULL);
    text = scratch_read(scratch_path(&s, "t.json"), &n);
    for (size_t i = 0; i < TRII_COUNT_OF(names); i++) {
        char event[128];

        (void)snprintf(event, sizeof(event), "{\"name\":\"%s\",\"cat\":\"communication\"",
                       names[i]);
        if (strstr(text, event) == NULL)
            fail_msg("the trace lacks %s: %s", event, text);
    }
    free(text);
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(what_goes_wrong_is_told_in_its_name),
    cmocka_unit_test(a_trace_names_what_is_sent_and_waited_for),
};

TEST_MAIN(tests)
