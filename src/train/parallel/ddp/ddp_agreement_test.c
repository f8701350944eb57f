/*
 * ddp_agreement_test.c - what ranks of data-parallel training must agree about, and what happens
 * when they do not: failures, differing models, votes, buffers, NaN.
 */
/* ctest: also=TRI_CHECK=order */
#include "testing/ddp_ranks.h"

/* --- failures ------------------------------------------------------------- */

static tri_status destroy_while_pending(rank *r)
{
    tri_module *model = tri_ddp(mlp(1), &(tri_ddp_options){.group = r->group});
    tri_tensor *x = rows_of(x_data, IN, 0, 4), *y = rows_of(y_data, OUT, 0, 4);
    tri_status status = tri_module_status(model);

    for (int step = 0; step < 3 && status == TRI_OK; step++) {
        tri_backward(tri_mse_loss(tri_forward(model, x), y, NULL));
        if (step == 2)
            tri_module_destroy(model);
        status = tri_step_end_status();
        (void)snprintf(r->line, sizeof(r->line), "%s", tri_last_error());
    }
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    return status;
}

static void a_pending_step_outlives_its_model(void **state)
{
    static rank ranks[2];

    (void)state;
    make_data();
    run_ranks(ranks, 2, destroy_while_pending, NULL);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ranks[i].status, TRI_ERR_STATE);
        assert_non_null(
            strstr(ranks[i].line, "the model of tri_ddp was destroyed while a step was pending"));
    }
}

/* Rank 1's second step has a label that is no class. */
static tri_status train_with_a_bad_label(rank *r)
{
    tri_module *model = tri_ddp(mlp(1), &(tri_ddp_options){.group = r->group});
    tri_tensor *x = rows_of(x_data, IN, 0, 2);
    tri_status status = tri_module_status(model);

    for (int step = 0; step < 3 && status == TRI_OK; step++) {
        const int64_t labels[2] = {0, r->index == 1 && step == 1 ? 77 : 1};
        tri_tensor *y = tri_tensor_from((int64_t[]){2}, 1, TRI_DTYPE_I64, labels);

        tri_backward(tri_cross_entropy(tri_forward(model, x), y, NULL));
        status = tri_step_end_status();
        (void)snprintf(r->line, sizeof(r->line), "%s", tri_last_error());
        tri_tensor_unref(y);
    }
    tri_tensor_unref(x);
    tri_module_destroy(model);
    return status;
}

static void a_failure_of_one_rank_is_the_peers_at_once(void **state)
{
    static rank ranks[3];

    (void)state;
    make_data();
    run_ranks(ranks, 3, train_with_a_bad_label, NULL);
    assert_int_equal(ranks[1].status, TRI_ERR_INVALID_ARG);
    assert_non_null(strstr(ranks[1].line, "77"));
    for (int i = 0; i < 3; i += 2) {
        if (ranks[i].status != TRI_ERR_ABORTED && ranks[i].status != TRI_ERR_PEER_LOST)
            fail_msg("rank %d: %s: %s", i, tri_status_name(ranks[i].status), ranks[i].line);
        if (strstr(ranks[i].line, "rank 1 aborted the group") == NULL ||
            strstr(ranks[i].line, "77") == NULL)
            fail_msg("rank %d: %s", i, ranks[i].line);
    }
}

/* How rank 1 fails: by what the run finds, or already when it is recorded. */
typedef enum mistake { BAD_LABEL, BAD_SHAPE } mistake;

static trii_mutex gate_mutex = TRII_MUTEX_INITIALIZER;
static trii_cond gate;
static int n_gone;

/* Rank 1 makes a mistake in its second step, and stays in the group until its peers have gone. */
static tri_status train_and_stay(rank *r)
{
    const mistake *how = r->arg;
    tri_module *model = tri_ddp(mlp(1), &(tri_ddp_options){.group = r->group});
    tri_tensor *x = rows_of(x_data, IN, 0, 2);
    tri_status status = tri_module_status(model);

    for (int step = 0; step < 3 && status == TRI_OK; step++) {
        bool wrong = r->index == 1 && step == 1;
        const int64_t labels[3] = {0, wrong && *how == BAD_LABEL ? 77 : 1, 0};
        int64_t n = wrong && *how == BAD_SHAPE ? 3 : 2;
        tri_tensor *y = tri_tensor_from(&n, 1, TRI_DTYPE_I64, labels);

        tri_backward(tri_cross_entropy(tri_forward(model, x), y, NULL));
        status = tri_step_end_status();
        (void)snprintf(r->line, sizeof(r->line), "%s", tri_last_error());
        tri_tensor_unref(y);
    }
    trii_mutex_lock(&gate_mutex);
    n_gone++;
    trii_cond_broadcast(&gate);
    while (r->index == 1 && n_gone < r->size)
        trii_cond_wait(&gate, &gate_mutex);
    trii_mutex_unlock(&gate_mutex);
    tri_tensor_unref(x);
    tri_module_destroy(model);
    return status;
}

static void peers_hear_of(mistake how, const char *what)
{
    static rank ranks[3];

    make_data();
    trii_cond_init(&gate);
    n_gone = 0;
    run_ranks(ranks, 3, train_and_stay, &how);
    trii_cond_fini(&gate);
    for (int i = 0; i < 3; i++) {
        if (ranks[i].status != (i == 1 ? TRI_ERR_INVALID_ARG : TRI_ERR_ABORTED) ||
            (i != 1 && strstr(ranks[i].line, "rank 1 aborted the group") == NULL) ||
            strstr(ranks[i].line, what) == NULL)
            fail_msg("rank %d: %s: %s", i, tri_status_name(ranks[i].status), ranks[i].line);
    }
}

static void a_mistake_in_a_forward_is_the_peers_at_once(void **state)
{
    (void)state;
    peers_hear_of(BAD_LABEL, "target 77 of row 1");
    peers_hear_of(BAD_SHAPE, "tri_cross_entropy(f64 [2, 3], i64 [3])");
}

static void a_mistake_in_a_forward_is_the_peers_at_once_in_eager_mode(void **state)
{
    (void)state;
    assert_int_equal(setenv("TRI_EAGER", "1", 1), 0);
    peers_hear_of(BAD_LABEL, "target 77 of row 1");
    peers_hear_of(BAD_SHAPE, "tri_cross_entropy(f64 [2, 3], i64 [3])");
}

/* --- a forward that only one rank makes ----------------------------------- */

/* Statistics travel with each forward in training mode: rank 0's pair with the others' next. */
static tri_status look_alone(rank *r)
{
    const float image[8] = {1, 2, 3, 4, 5, 6, 7, 9};
    tri_tensor *x = tri_tensor_from((int64_t[]){2, 1, 2, 2}, 4, TRI_DTYPE_F32, image);
    tri_module *model =
        tri_ddp(tri_nn_sequential(tri_nn_batch_norm2d(1, NULL), tri_nn_conv2d(1, 1, 1, NULL)),
                &(tri_ddp_options){.group = r->group});
    tri_optimizer *opt = tri_sgd(model, 0.1, NULL);
    tri_status status = TRI_OK;

    for (int step = 0; step < 3 && status == TRI_OK; step++) {
        if (step == 1 && r->index == 0)
            tri_item(tri_mse_loss(tri_forward(model, x), x, NULL));
        tri_step_end();
        tri_backward(tri_mse_loss(tri_forward(model, x), x, NULL));
        status = tri_optimizer_step(opt);
        snprintf(r->line, sizeof(r->line), "%s", tri_last_error());
        tri_step_end();
    }
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    tri_tensor_unref(x);
    return status;
}

/* Both lines of the program, and what the calls in them are for. */
static void is_told_with_both_lines(const char *const parts[5])
{
    static rank ranks[2];

    run_ranks(ranks, 2, look_alone, NULL);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ranks[i].status, TRI_ERR_MISMATCH);
        for (int k = 0; k < 5; k++) {
            if (strstr(ranks[i].line, parts[k]) == NULL)
                fail_msg("rank %d: \"%s\" is not in: %s", i, parts[k], ranks[i].line);
        }
    }
}

static void a_forward_of_one_rank_alone_is_told_with_both_lines(void **state)
{
    (void)state;
    unsetenv("TRI_CHECK");
    is_told_with_both_lines(
        (const char *const[]){"rank 0 calls broadcast #", "rank 1 calls all_reduce #",
                              " 4 f64, sum (ddp_agreement_test.c:", " (ddp_agreement_test.c:",
                              "in each forward in training mode and each backward"});
}

/* The same of the operations, before the calls meet. */
static void the_order_of_operations_tells_it_too(void **state)
{
    (void)state;
    setenv("TRI_CHECK", "order", 1);
    is_told_with_both_lines((const char *const[]){
        " is not the same on all ranks: rank ", "rank 0: tri_ddp (buffers) 0 at ",
        "rank 1: tri_ddp (numbers of samples) at ",
        "ddp_agreement_test.c:", "in each forward in training mode and each backward"});
}

/* --- what only one rank asks of its model --------------------------------- */

/* Rank 1 verifies, or its model regroups its buckets in a second forward; rank 0 does neither. */
static tri_status ask_alone(rank *r)
{
    const bool *verifies = r->arg;
    tri_module *model = tri_ddp(mlp(1), &(tri_ddp_options){.group = r->group});
    tri_tensor *x = rows_of(x_data, IN, 0, 2), *y = rows_of(y_data, OUT, 0, 2);
    tri_status status = tri_module_status(model);

    if (status == TRI_OK && !*verifies) {
        tri_backward(tri_mse_loss(tri_forward(model, x), y, NULL));
        status = tri_step_end_status();
    }
    if (status == TRI_OK && r->index == 0) {
        float one = 1;

        status = tri_all_reduce(r->group, &one, &one, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL);
    } else if (status == TRI_OK && *verifies) {
        status = tri_ddp_verify(model, true);
    } else if (status == TRI_OK) {
        tri_tensor *out = tri_forward(model, x);

        status = tri_tensor_status(out);
    }
    (void)snprintf(r->line, sizeof(r->line), "%s", tri_last_error());
    tri_step_end();
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    tri_module_destroy(model);
    return status;
}

static void a_model_verified_or_regrouped_on_one_rank_is_the_peers_at_once(void **state)
{
    static rank ranks[2];

    (void)state;
    make_data();
    for (int verifies = 0; verifies < 2; verifies++) {
        run_ranks(ranks, 2, ask_alone, &(bool){verifies != 0});
        assert_int_equal(ranks[1].status, TRI_ERR_MISMATCH);
        if (strstr(ranks[1].line, " (ddp_agreement_test.c:") == NULL ||
            strstr(ranks[1].line, "a model of tri_ddp communicates when it is made or verified") ==
                NULL)
            fail_msg("%s", ranks[1].line);
    }
}

/* --- construction --------------------------------------------------------- */

static tri_tensor *pass_on(tri_module *self, tri_tensor *x)
{
    return tri_forward(tri_module_child(self, 0), x);
}

static tri_status differing_models(rank *r)
{
    tri_module *net =
        tri_nn_sequential(tri_nn_linear(4, 4, NULL), tri_nn_relu(),
                          tri_nn_linear(r->index == 1 ? 2 : 4, r->index == 1 ? 4 : 2, NULL));
    tri_module *model = NULL, *outer;
    const int *depth = r->arg; /* of names: "block_of_the_encoder.block_of_the_encoder.2.weight" */
    tri_status status;

    for (int i = 0; i < *depth; i++) {
        outer = tri_module_simple("Block", 0, pass_on);
        (void)tri_module_add_child(outer, "block_of_the_encoder", net);
        net = outer;
    }
    model = tri_ddp(net, &(tri_ddp_options){.group = r->group});
    status = tri_module_status(model);

    tri_module_destroy(model);
    return status;
}

static void differing_models_are_named_on_every_rank(void **state)
{
    static rank ranks[3];

    (void)state;
    for (int depth = 0; depth <= 10; depth += 5) {
        run_ranks(ranks, 3, differing_models, &depth);
        for (int i = 0; i < 3; i++) {
            if (ranks[i].status != TRI_ERR_MISMATCH ||
                strstr(ranks[i].line, depth == 0 ? "rank 1 has 2.weight f32[4, 2], rank 0 has "
                                                   "2.weight f32[2, 4]"
                                                 : ".2.weight f32[4, 2], rank 0 has ") == NULL)
                fail_msg("depth %d, rank %d: %s", depth, i, ranks[i].line);
        }
    }
}

static tri_status longer_model(rank *r)
{
    tri_module *net = r->index == 0
                          ? tri_nn_sequential(tri_nn_linear(4, 4, NULL))
                          : tri_nn_sequential(tri_nn_linear(4, 4, NULL), tri_nn_linear(4, 4, NULL));
    tri_module *model = tri_ddp(net, &(tri_ddp_options){.group = r->group});
    tri_status status = tri_module_status(model);

    tri_module_destroy(model);
    return status;
}

static void missing_layers_are_named_too(void **state)
{
    static rank ranks[2];

    (void)state;
    run_ranks(ranks, 2, longer_model, NULL);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ranks[i].status, TRI_ERR_MISMATCH);
        assert_non_null(strstr(ranks[i].line, "rank 1 has 1.weight f32[4, 4], rank 0 has nothing "
                                              "more (2 entries)"));
    }
}

static tri_status drift(rank *r)
{
    tri_module *model = tri_ddp(mlp(1), &(tri_ddp_options){.group = r->group});
    tri_tensor *bias = tri_module_find(model, "2.bias");
    double values[8] = {0};
    tri_status status;

    TRY(tri_module_status(model));
    TRY(tri_ddp_verify(model, true));
    if (r->index == 1)
        TRY(tri_tensor_copy_in(bias, values, sizeof(values)));
    status = tri_ddp_verify(model, true);
    (void)snprintf(r->line, sizeof(r->line), "%s", tri_last_error());
    tri_module_destroy(model);
    return status;
}

static void verify_names_who_drifted(void **state)
{
    static rank ranks[2];

    (void)state;
    run_ranks(ranks, 2, drift, NULL);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ranks[i].status, TRI_ERR_MISMATCH);
        assert_non_null(strstr(ranks[i].line, "2.bias f64[8] of rank 1"));
    }
}

/* --- votes, counts, buffers ----------------------------------------------- */

static tri_status vote(rank *r)
{
    tri_module *model = tri_ddp(mlp(1), &(tri_ddp_options){.group = r->group});
    tri_optimizer *opt = tri_sgd(model, 0.1, NULL);
    tri_tensor *x = rows_of(x_data, IN, 0, 2 + r->index),
               *y = rows_of(y_data, OUT, 0, 2 + r->index);
    const int *mode = r->arg; /* two passes for an update: 1: in a step; 2: in two; 3: one of them
                                 is thrown away */
    int steps = 0;

    for (; steps < 10 && !tri_ddp_is_stopped(model); steps++) {
        for (int pass = 0; pass < (*mode > 0 ? 2 : 1); pass++) {
            if (pass > 0 && *mode == 2)
                tri_step_end();
            if (pass > 0 && *mode == 3)
                tri_optimizer_zero_grad(opt);
            tri_backward(tri_mse_loss(tri_forward(model, x), y, NULL));
        }
        if (steps == 3 && r->index == 1)
            tri_ddp_vote_stop(model); /* too late for this one: goes with the next */
        TRY(tri_optimizer_step(opt));
        tri_step_end();
    }
    r->n_weights = steps;
    r->hash = (uint64_t)tri_ddp_sample_count(model);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return TRI_OK;
}

static void one_vote_stops_all_in_the_same_step(void **state)
{
    static rank ranks[3];

    (void)state;
    make_data();
    for (int mode = 0; mode < 4; mode++) {
        ranks_succeed(ranks, 3, vote, &mode);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(ranks[i].n_weights, 5);
            assert_int_equal(ranks[i].hash, 2 + 3 + 4);
        }
    }
}

/* A layer with a buffer and a counter that its forward changes. */
typedef struct counting {
    tri_tensor *scale, *seen, *calls;
} counting;

static void counting_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                             int n_out)
{
    counting *c = tri_module_data(self);
    trii_step *step = trii_step_current();
    tri_tensor *next = tri_add(c->seen, tri_sum(in[0], NULL, 0, false));
    trii_vid value;

    (void)n_in;
    (void)n_out;
    if (trii_resolve(step, next, &value) == TRI_OK && trii_bind(step, value, c->seen) == TRI_OK)
        out[0] = tri_mul(in[0], c->scale);
    ++*(int64_t *)trii_tensor_data(c->calls);
}

static tri_module *counting_create(void)
{
    static const tri_module_class type = {
        .name = "counting", .size = sizeof(counting), .forward = counting_forward};
    tri_module *self = tri_module_create(&type);
    counting *c = tri_module_data(self);

    c->scale = tri_module_add_parameter(self, "scale", tri_tensor_create(NULL, 0, TRI_DTYPE_F64));
    c->seen = tri_module_add_buffer(self, "seen", tri_tensor_create(NULL, 0, TRI_DTYPE_F64));
    c->calls = tri_module_add_buffer(self, "calls", tri_tensor_create(NULL, 0, TRI_DTYPE_I64));
    return self;
}

/* More batches for an update than on the other rank. */
static void count_once_more(const rank *r, tri_module *model, tri_tensor *x, tri_tensor *y)
{
    if (r->index == 0)
        return;
    tri_ddp_no_sync_begin(model);
    tri_backward(tri_mse_loss(tri_forward(model, x), y, NULL));
    tri_ddp_no_sync_end(model);
}

static tri_status count_sums(rank *r)
{
    const double mine = 1.0 + r->index;
    tri_module *model = tri_ddp(counting_create(), &(tri_ddp_options){.group = r->group});
    tri_tensor *x = tri_tensor_from((int64_t[]){1, 1}, 2, TRI_DTYPE_F64, &mine);
    tri_tensor *y = tri_tensor_create((int64_t[]){1, 1}, 2, TRI_DTYPE_F64);
    tri_optimizer *opt = tri_sgd(model, 0.1, NULL);

    for (int step = 0; step < 3; step++) {
        if (step == 0)
            count_once_more(r, model, x, y);
        tri_backward(tri_mse_loss(tri_forward(model, x), y, NULL));
        TRY(tri_optimizer_step(opt));
        TRY(tri_step_end_status());
    }
    /* Rank 0 has summed 3 times 1; rank r got 2 from rank 0 and added its own. */
    r->weights[0] = tri_item(tri_module_find(model, "seen"));
    /* Rank 0 evaluates alone, which makes it 4. */
    tri_module_train(model, false);
    if (r->index == 0)
        (void)tri_item(tri_forward(model, x));
    TRY(tri_step_end_status());
    r->weights[1] = tri_item(tri_module_find(model, "seen"));
    TRY(tri_ddp_sync_buffers(model));
    TRY(tri_ddp_verify(model, true));
    r->weights[2] = tri_item(tri_module_find(model, "seen"));
    r->weights[3] = tri_item(tri_module_find(model, "calls"));
    /* and training goes on. */
    tri_module_train(model, true);
    count_once_more(r, model, x, y);
    tri_backward(tri_mse_loss(tri_forward(model, x), y, NULL));
    TRY(tri_optimizer_step(opt));
    TRY(tri_step_end_status());
    r->weights[4] = tri_item(tri_module_find(model, "seen"));
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return TRI_OK;
}

static void buffers_come_from_rank_0_before_each_forward_in_training(void **state)
{
    static rank ranks[2];

    (void)state;
    ranks_succeed(ranks, 2, count_sums, NULL);
    for (int i = 0; i < 2; i++) {
        assert_true(ranks[i].weights[0] == 2.0 + (1.0 + i));
        assert_true(ranks[i].weights[1] == 4.0);
        assert_true(ranks[i].weights[2] == 4.0);
        assert_true(ranks[i].weights[3] == 4.0);
        assert_true(ranks[i].weights[4] == 4.0 + (1.0 + i));
    }
}

/* --- TRI_CHECK=nan -------------------------------------------------------- */

/* Rank 0 makes a NaN in its backward pass, rank 1 none. */
static tri_status diverge(rank *r)
{
    tri_module *model = tri_ddp(mlp(1), &(tri_ddp_options){.group = r->group});
    tri_optimizer *opt = tri_sgd(model, 0.1, NULL);
    tri_tensor *x = rows_of(x_data, IN, 0, 4), *y = rows_of(y_data, OUT, 0, 4), *loss;
    tri_status status;

    TRY(tri_module_status(model));
    loss = tri_mse_loss(tri_forward(model, x), y, NULL);
    if (r->index == 0)
        loss = tri_div(loss, tri_sub(loss, loss));
    tri_backward(loss);
    status = tri_optimizer_step(opt);
    if (status == TRI_OK)
        status = tri_step_end_status();
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return status;
}

static void a_nan_is_named_where_it_was_made(void **state)
{
    static rank ranks[2];

    (void)state;
    make_data();
    assert_int_equal(setenv("TRI_CHECK", "nan", 1), 0);
    run_ranks(ranks, 2, diverge, NULL);
    for (int i = 0; i < 2; i++)
        assert_int_equal(ranks[i].status, TRI_ERR_NAN);
    assert_non_null(strstr(ranks[0].line, "NaN made by add("));
    assert_non_null(strstr(ranks[1].line, "NaN came in through tri_ddp (gradients)("));
}

static void a_world_of_one_votes(void **state)
{
    tri_module *model = tri_ddp(mlp(1), NULL);

    (void)state;
    CHECK_OK(tri_module_status(model));
    assert_string_equal(tri_module_state(model, 0).name, "0.weight");
    tri_ddp_vote_stop(model);
    assert_true(tri_ddp_is_stopped(model));
    tri_module_destroy(model);
    tri_finalize();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pending_step_outlives_its_model),
        cmocka_unit_test(a_failure_of_one_rank_is_the_peers_at_once),
        cmocka_unit_test(a_mistake_in_a_forward_is_the_peers_at_once),
        cmocka_unit_test(a_mistake_in_a_forward_is_the_peers_at_once_in_eager_mode),
        cmocka_unit_test(a_forward_of_one_rank_alone_is_told_with_both_lines),
        cmocka_unit_test(the_order_of_operations_tells_it_too),
        cmocka_unit_test(a_model_verified_or_regrouped_on_one_rank_is_the_peers_at_once),
        cmocka_unit_test(differing_models_are_named_on_every_rank),
        cmocka_unit_test(missing_layers_are_named_too),
        cmocka_unit_test(verify_names_who_drifted),
        cmocka_unit_test(one_vote_stops_all_in_the_same_step),
        cmocka_unit_test(buffers_come_from_rank_0_before_each_forward_in_training),
        cmocka_unit_test(a_nan_is_named_where_it_was_made),
        cmocka_unit_test(a_world_of_one_votes),
    };

    return test_main(argc, argv, tests, TRII_COUNT_OF(tests));
}
