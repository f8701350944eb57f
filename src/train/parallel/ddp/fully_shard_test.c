/* fully_shard_test.c - tri_fully_shard: when parameters are whole, how often they are gathered, and
 * what is refused. Weights are compared with those of tri_ddp, bit for bit, on ways through a step
 * that tests/strategies and tests/bits do not take. */
#include "base/err.h"
#include "testing/ddp_ranks.h"
#include "train/dist/placement.h"
#include "train/graph/step/host_op.h"

/* Each parameter in a bucket of its own. */
static tri_module *sharded(const rank *r, int prefetch)
{
    return tri_fully_shard(mlp(1), &(tri_zero_options){.group = r->group,
                                                       .bucket_cap_bytes = 8,
                                                       .first_bucket_bytes = 8,
                                                       .prefetch = prefetch});
}

static tri_tensor *loss_of(tri_module *model, int first, int n)
{
    tri_tensor *x = rows_of(x_data, IN, first, n), *y = rows_of(y_data, OUT, first, n);
    tri_tensor *loss = tri_mse_loss(tri_forward(model, x), y, NULL);

    tri_tensor_unref(x);
    tri_tensor_unref(y);
    return loss;
}

static void check_all(const rank *ranks, int n, tri_status wanted, const char *line)
{
    for (int r = 0; r < n; r++)
        if (ranks[r].status != wanted || strstr(ranks[r].line, line) == NULL)
            fail_msg("rank %d of %d: %s: %s", r, n, tri_status_name(ranks[r].status),
                     ranks[r].line);
}

/* --- whole for a while ---------------------------------------------------- */

static tri_status read_and_write(rank *r)
{
    tri_module *model = sharded(r, 0), *plain = mlp(1);
    tri_tensor *weight = tri_module_state(model, 0).tensor;
    double had[IN * 8], want[IN * 8], after[IN * 8];
    tri_status status;

    TRY(tri_module_status(model));
    /* the line that readers will be told; a wait for other ranks may have left another */
    if (strstr(tri_last_error(), "tri_unshard_begin") != NULL)
        return TRII_FAIL(TRI_ERR_INTERNAL, "an error though nothing failed: %s", tri_last_error());
    if (tri_tensor_size(weight, 0) != 8 || tri_tensor_size(weight, 1) != IN)
        return TRII_FAIL(TRI_ERR_INTERNAL, "another shape");
    status = tri_tensor_copy_out(weight, had, sizeof(had));
    if (status != TRI_ERR_STATE || strstr(tri_last_error(), "tri_unshard_begin") == NULL)
        return TRII_FAIL(TRI_ERR_INTERNAL, "it is read: %s", tri_last_error());
    status = tri_tensor_copy_in(weight, had, sizeof(had));
    if (status != TRI_ERR_STATE || tri_data(weight) != NULL)
        return TRII_FAIL(TRI_ERR_INTERNAL, "it is written");
    status = tri_unshard_end(model);
    if (status != TRI_ERR_STATE)
        return TRII_FAIL(TRI_ERR_INTERNAL, "an end without a beginning");
    TRY(tri_unshard_begin(model));
    TRY(tri_unshard_begin(tri_module_submodule(model, "0")));
    TRY(tri_tensor_copy_out(weight, had, sizeof(had)));
    TRY(tri_tensor_copy_out(tri_module_state(plain, 0).tensor, want, sizeof(want)));
    if (memcmp(had, want, sizeof(had)) != 0)
        return TRII_FAIL(TRI_ERR_INTERNAL, "other values");
    for (int i = 0; i < IN * 8; i++)
        had[i] = i;
    TRY(tri_tensor_copy_in(weight, had, sizeof(had)));
    TRY(tri_unshard_end(tri_module_submodule(model, "0")));
    TRY(tri_tensor_copy_out(weight, after, sizeof(after))); /* one more end is to come */
    TRY(tri_unshard_end(model));
    if (tri_tensor_copy_out(weight, after, sizeof(after)) != TRI_ERR_STATE)
        return TRII_FAIL(TRI_ERR_INTERNAL, "it is read after the end");
    memset(after, 0, sizeof(after));
    TRY(tri_unshard_begin(model));
    TRY(tri_tensor_copy_out(weight, after, sizeof(after)));
    TRY(tri_unshard_end(model));
    if (memcmp(had, after, sizeof(had)) != 0)
        return TRII_FAIL(TRI_ERR_INTERNAL, "what was written is lost");
    tri_tensor_ref(weight);
    tri_module_destroy(model);
    tri_module_destroy(plain);
    status = tri_tensor_copy_out(weight, had, sizeof(had));
    if (status != TRI_ERR_STATE || strstr(tri_last_error(), "went with the model") == NULL)
        return TRII_FAIL(TRI_ERR_INTERNAL, "read without its model: %s", tri_last_error());
    TRY(tri_tensor_copy_in(weight, after, sizeof(after)));
    TRY(tri_tensor_copy_out(weight, had, sizeof(had)));
    tri_tensor_unref(weight);
    return TRI_OK;
}

static void parameters_are_whole_between_begin_and_end(void **state)
{
    static rank ranks[3];

    (void)state;
    for (int n = 2; n <= 3; n++)
        ranks_succeed(ranks, n, read_and_write, NULL);
}

/* --- how often ------------------------------------------------------------ */

static int n_gathers(void)
{
    const trii_step *step = trii_step_current();
    int n = 0;

    for (int32_t i = 0; i < step->n_nodes; i++)
        n += step->nodes[i].host != NULL &&
             strstr(step->nodes[i].host->kind->name, "parameters of a bucket") != NULL;
    return n;
}

/* Four layers of as many bytes, each of which is a bucket. */
static tri_module *four_layers(const rank *r, int prefetch)
{
    const size_t layer = (8 * 8 + 8) * sizeof(float);

    return tri_fully_shard(tri_nn_sequential(tri_nn_linear(8, 8, NULL), tri_nn_linear(8, 8, NULL),
                                             tri_nn_linear(8, 8, NULL), tri_nn_linear(8, 8, NULL)),
                           &(tri_zero_options){.group = r->group,
                                               .bucket_cap_bytes = layer,
                                               .first_bucket_bytes = layer,
                                               .prefetch = prefetch > 0 ? prefetch : -1});
}

/* What is in use stays, so that no layer is gathered again that one of the last `prefetch` after it
 * was; the first layer's weight is not read for its gradient, but to compute the layer again. */
static tri_status count_gathers(rank *r)
{
    const int prefetch = *(const int *)r->arg;
    tri_module *model = four_layers(r, prefetch);
    tri_tensor *x = tri_tensor_create((int64_t[]){2, 8}, 2, TRI_DTYPE_F32);

    TRY(tri_module_status(model));
    for (int recomputes = 0; recomputes < 2; recomputes++) {
        int first = recomputes ? 0 : 1, again = 3 - prefetch - first;
        tri_tensor *loss;

        for (int i = 0; i < 4; i++)
            tri_module_set_recompute(
                tri_module_submodule(model, (const char *[]){"0", "1", "2", "3"}[i]), recomputes);
        loss = tri_forward(model, x);
        loss = tri_mean(tri_mul(loss, loss), NULL, 0, false);
        if (n_gathers() != 4)
            return TRII_FAIL(TRI_ERR_INTERNAL, "%d gathers in forward", n_gathers());
        tri_backward(loss);
        if (n_gathers() != 4 + (again > 0 ? again : 0))
            return TRII_FAIL(TRI_ERR_INTERNAL, "%d gathers after backward, prefetch %d, %s",
                             n_gathers(), prefetch, recomputes ? "recomputed" : "kept");
        TRY(tri_step_end_status());
        tri_step_end();
    }
    tri_tensor_unref(x);
    tri_module_destroy(model);
    return TRI_OK;
}

static void a_bucket_is_gathered_in_forward_and_once_for_backward(void **state)
{
    static rank ranks[2];

    (void)state;
    make_data();
    for (int prefetch = 0; prefetch <= 3; prefetch++)
        ranks_succeed(ranks, 2, count_gathers, &prefetch);
}

/* --- which ---------------------------------------------------------------- */

static tri_status gather_once(rank *r)
{
    const size_t layer = (8 * 8 + 8) * sizeof(float);
    tri_module *model =
        tri_fully_shard(tri_nn_sequential(tri_nn_linear(8, 8, NULL), tri_nn_linear(8, 8, NULL),
                                          tri_nn_linear(8, 8, NULL), tri_nn_linear(8, 8, NULL)),
                        &(tri_zero_options){.group = r->group,
                                            .bucket_cap_bytes = layer,
                                            .first_bucket_bytes = layer,
                                            .prefetch = -1,
                                            .keep_after_forward = true});
    tri_tensor *x = tri_tensor_create((int64_t[]){2, 8}, 2, TRI_DTYPE_F32);

    TRY(tri_module_status(model));
    tri_backward(tri_mean(tri_forward(model, x), NULL, 0, false));
    if (n_gathers() != 4)
        return TRII_FAIL(TRI_ERR_INTERNAL, "%d gathers", n_gathers());
    TRY(tri_step_end_status());
    tri_step_end();
    tri_tensor_unref(x);
    tri_module_destroy(model);
    return TRI_OK;
}

static void what_is_kept_after_forward_is_gathered_once(void **state)
{
    static rank ranks[2];

    (void)state;
    ranks_succeed(ranks, 2, gather_once, NULL);
}

static tri_status read_small_ones(rank *r)
{
    tri_module *model =
        tri_fully_shard(mlp(1), &(tri_zero_options){.group = r->group, .keep_below = 9});
    double bias[8], weight[IN * 8];

    TRY(tri_module_status(model));
    TRY(tri_tensor_copy_out(tri_module_state(model, 1).tensor, bias, sizeof(bias)));
    if (tri_tensor_copy_out(tri_module_state(model, 0).tensor, weight, sizeof(weight)) !=
        TRI_ERR_STATE)
        return TRII_FAIL(TRI_ERR_INTERNAL, "a large one is whole");
    tri_backward(loss_of(model, 0, 4));
    if (n_gathers() != 1) /* of the three weights, which share a bucket */
        return TRII_FAIL(TRI_ERR_INTERNAL, "%d gathers", n_gathers());
    TRY(tri_step_end_status());
    tri_step_end();
    tri_module_destroy(model);
    return TRI_OK;
}

static void small_parameters_stay_whole(void **state)
{
    static rank ranks[2];

    (void)state;
    make_data();
    ranks_succeed(ranks, 2, read_small_ones, NULL);
}

typedef struct units {
    const char *names[3];
    int n, gathers;
    const char *refused; /* NULL: it is not */
} units;

static tri_status gather_units(rank *r)
{
    const units *u = r->arg;
    tri_module *model = tri_fully_shard(
        mlp(1),
        &(tri_zero_options){.group = r->group, .prefetch = 7, .units = u->names, .n_units = u->n});
    tri_status status = tri_module_status(model);

    if (u->refused != NULL) {
        bool said = status == TRI_ERR_INVALID_ARG && strstr(tri_last_error(), u->refused) != NULL;

        tri_module_destroy(model);
        return said ? TRI_OK : TRII_FAIL(TRI_ERR_INTERNAL, "%s", tri_last_error());
    }
    TRY(status);
    (void)loss_of(model, 0, 4);
    if (n_gathers() != u->gathers)
        return TRII_FAIL(TRI_ERR_INTERNAL, "%d gathers", n_gathers());
    TRY(tri_step_end_status());
    tri_step_end();
    tri_module_destroy(model);
    return TRI_OK;
}

static void units_are_gathered_as_one(void **state)
{
    static const units cases[] = {
        {{"*"}, 1, 3, NULL}, /* a layer each */
        {{"0", "4"}, 2, 3, NULL},
        {{"2"}, 1, 3, NULL}, /* what is before and after it is not of one unit with it */
        {{"*", "2"}, 2, 0, "is in both"},
        {{"h.*"}, 1, 0, "units[0], \"h.*\", names no module"},
        {{"0.weight"}, 1, 0, "names no module"},
        {{NULL}, 1, 0, "units[0] is NULL"},
        {{""}, 1, 0, "is empty"},
    };
    static rank ranks[2];

    (void)state;
    make_data();
    for (size_t i = 0; i < TRII_COUNT_OF(cases); i++)
        ranks_succeed(ranks, 2, gather_units, &cases[i]);
}

static const char *const unit_0[] = {"0"}, *const unit_2[] = {"2"};

static const struct difference {
    tri_zero_options options[2];
    const char *said;
} differences[] = {
    {{{.keep_below = 0}, {.keep_below = 1}},
     "rank 1 has options: buckets of 1048576 and 26214400 "
     "bytes, stage 3, prefetch 1, keep_below 1"},
    {{{.stage = 2}, {.stage = 3}},
     "rank 0 has options: buckets of 1048576 and 26214400 bytes, "
     "divided by tri_fully_shard, stage 2"},
    {{{.units = unit_0, .n_units = 1}, {.units = unit_2, .n_units = 1}}, "units 2, rank 0 has"},
    {{{.prefetch = 8}, {.prefetch = 7}}, "prefetch 8: -1 (none) to 7 buckets"},
    {{{.prefetch = 7}, {.stage = 4}}, "rank 1 has none: stage 4 does not exist"},
};

static tri_status differ(rank *r)
{
    const struct difference *d = r->arg;
    tri_zero_options options = d->options[r->index];
    tri_module *model;
    tri_status status;

    options.group = r->group;
    model = tri_fully_shard(mlp(1), &options);
    status = tri_module_status(model);

    (void)snprintf(r->line, sizeof(r->line), "%s", tri_last_error());
    tri_module_destroy(model);
    trii_err_set("%s", r->line);
    return status;
}

static void ranks_whose_options_differ_are_named(void **state)
{
    static rank ranks[2];

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(differences); i++) {
        run_ranks(ranks, 2, differ, &differences[i]);
        for (int r = 0; r < 2; r++) { /* where only its own options are wrong, a rank has its own */
            if (strstr(ranks[r].line, differences[i].said) == NULL &&
                ranks[r].status != TRI_ERR_INVALID_ARG)
                fail_msg("case %d, rank %d: %s: %s", (int)i, r, tri_status_name(ranks[r].status),
                         ranks[r].line);
            assert_true(ranks[r].status == TRI_ERR_MISMATCH ||
                        ranks[r].status == TRI_ERR_INVALID_ARG);
        }
    }
}

/* --- ways through a step -------------------------------------------------- */

typedef tri_status (*way)(tri_module *model, tri_optimizer *opt, int first);

static tri_status read_the_loss_first(tri_module *model, tri_optimizer *opt, int first)
{
    tri_tensor *loss = loss_of(model, first, 4);

    TRY(tri_item_status(loss, &(double){0}));
    tri_backward(loss);
    TRY(tri_run());
    return tri_optimizer_step(opt);
}

static tri_status evaluate_in_between(tri_module *model, tri_optimizer *opt, int first)
{
    tri_tensor *loss = loss_of(model, first, 4);

    tri_no_grad_begin();
    (void)tri_keep(loss_of(model, 0, 3));
    tri_no_grad_end();
    tri_backward(loss);
    return tri_optimizer_step(opt);
}

static tri_status two_losses_of_one_forward(tri_module *model, tri_optimizer *opt, int first)
{
    tri_tensor *x = rows_of(x_data, IN, first, 4), *out = tri_forward(model, x);
    tri_tensor *a = tri_mean(out, NULL, 0, false), *b = tri_mean(tri_mul(out, out), NULL, 0, false);

    tri_tensor_unref(x);
    tri_ddp_no_sync_begin(model);
    tri_backward_of(&a, 1, &(tri_backward_options){.keep_graph = true});
    tri_ddp_no_sync_end(model);
    TRY(tri_item_status(a, &(double){0}));
    tri_backward(b);
    return tri_optimizer_step(opt);
}

static tri_status update_twice_in_a_step(tri_module *model, tri_optimizer *opt, int first)
{
    for (int i = 0; i < 2; i++) {
        tri_backward(loss_of(model, first, 4 - i));
        TRY(tri_optimizer_step(opt));
    }
    return TRI_OK;
}

static tri_status forward_while_whole(tri_module *model, tri_optimizer *opt, int first)
{
    tri_tensor *loss;

    TRY(tri_unshard_begin(model));
    loss = loss_of(model, first, 4);
    TRY(tri_unshard_end(model));
    tri_backward(loss);
    return tri_optimizer_step(opt);
}

/* In a step that has read the parameters already, by their address. */
static tri_status one_rank_looks(tri_module *model, tri_optimizer *opt, int first)
{
    tri_tensor *loss = loss_of(model, first, 4);

    for (int i = 0; i < 2; i++) {
        TRY(tri_unshard_begin(model));
        if (first == 0 && tri_data(tri_module_state(model, 2).tensor) == NULL)
            return TRI_ERR_INTERNAL;
        TRY(tri_unshard_end(model));
    }
    tri_backward(loss);
    return tri_optimizer_step(opt);
}

/* Each layer again, the first one thrice. */
static tri_status layers_are_shared(tri_module *model, tri_optimizer *opt, int first)
{
    tri_tensor *x = rows_of(x_data, IN, first, 4), *out = tri_forward(model, x), *loss = NULL;

    for (int i = 0; i < 3; i++) {
        tri_tensor *more = tri_forward(model, tri_mul(x, x));

        out = tri_add(out, i == 1 ? tri_tanh(more) : more);
    }
    loss = tri_mean(tri_mul(out, out), NULL, 0, false);
    tri_tensor_unref(x);
    tri_backward(loss);
    return tri_optimizer_step(opt);
}

static tri_status train_by(rank *r, tri_module *model, way step)
{
    tri_optimizer *opt = tri_adam(model, 0.01, NULL);

    TRY(tri_optimizer_status(opt));
    for (int i = 0; i < STEPS; i++) {
        TRY(step(model, opt, 4 * r->index));
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

static tri_status train_sharded(rank *r)
{
    return train_by(r, sharded(r, -1), *(const way *)r->arg);
}

static tri_status train_in_part(rank *r)
{
    return train_by(r,
                    tri_fully_shard(mlp(1), &(tri_zero_options){.group = r->group,
                                                                .bucket_cap_bytes = 200,
                                                                .first_bucket_bytes = 100,
                                                                .keep_below = 9,
                                                                .keep_after_forward = true}),
                    *(const way *)r->arg);
}

static tri_status train_whole(rank *r)
{
    return train_by(r, tri_ddp(mlp(1), &(tri_ddp_options){.group = r->group}),
                    *(const way *)r->arg);
}

static void check_way(way step)
{
    static rank whole[2], ranks[2];

    make_data();
    ranks_succeed(whole, 2, train_whole, &step);
    for (int part = 0; part < 2; part++) {
        ranks_succeed(ranks, 2, part ? train_in_part : train_sharded, &step);
        for (int r = 0; r < 2; r++)
            assert_int_equal(ranks[r].hash, whole[r].hash);
    }
}

static void what_runs_in_the_middle_changes_nothing(void **state)
{
    (void)state;
    check_way(read_the_loss_first);
}

static void an_evaluation_in_between_changes_nothing(void **state)
{
    (void)state;
    check_way(evaluate_in_between);
}

static void a_second_backward_gathers_again(void **state)
{
    (void)state;
    check_way(two_losses_of_one_forward);
}

static void a_second_update_reads_the_first(void **state)
{
    (void)state;
    check_way(update_twice_in_a_step);
}

static void a_forward_may_read_what_is_whole(void **state)
{
    (void)state;
    check_way(forward_while_whole);
}

static void what_one_rank_looks_at_changes_nothing(void **state)
{
    (void)state;
    check_way(one_rank_looks);
}

static void shared_layers_add_up_in_one_order(void **state)
{
    (void)state;
    check_way(layers_are_shared);
}

/* --- ranks that run other layers ------------------------------------------ */

static tri_status take_another_branch(rank *r)
{
    tri_module *model = four_layers(r, 0);
    tri_tensor *x = tri_tensor_create((int64_t[]){2, 8}, 2, TRI_DTYPE_F32);
    tri_status status = tri_module_status(model);

    tri_no_grad_begin();
    if (status == TRI_OK)
        status = tri_item_status(
            tri_mean(tri_forward(tri_module_submodule(model, r->index == 0 ? "1" : "2"), x), NULL,
                     0, false),
            &(double){0});
    (void)snprintf(r->line, sizeof(r->line), "%s", tri_last_error());
    tri_no_grad_end();
    tri_step_end();
    tri_tensor_unref(x);
    tri_module_destroy(model);
    trii_err_set("%s", r->line);
    return status;
}

/* Layers of as many elements: whose each rank gathers is in the call. */
static void ranks_that_gather_other_layers_are_told(void **state)
{
    static rank ranks[2];

    (void)state;
    run_ranks(ranks, 2, take_another_branch, NULL);
    check_all(ranks, 2, TRI_ERR_MISMATCH, "what they gather does");
}

/* --- frozen, and moved ---------------------------------------------------- */

static tri_status freeze_and_move(rank *r)
{
    tri_module *model = sharded(r, 0);
    tri_tensor *weight = tri_module_state(model, 0).tensor;

    TRY(tri_tensor_status(weight));
    tri_requires_grad(weight, false);
    tri_backward(loss_of(model, 0, 4));
    TRY(tri_step_end_status());
    tri_step_end();
    if (trii_has_grad(trii_home(weight)))
        return TRII_FAIL(TRI_ERR_INTERNAL, "a frozen parameter has a gradient");
    if (tri_module_to(model, TRI_CPU(1)) != TRI_ERR_STATE)
        return TRII_FAIL(TRI_ERR_INTERNAL, "moved: %s", tri_last_error());
    tri_module_destroy(model);
    return TRI_OK;
}

static void a_parameter_is_frozen_and_stays_where_it_is(void **state)
{
    static rank ranks[2];

    (void)state;
    make_data();
    CHECK_OK(tri_cpu_devices_set(2));
    ranks_succeed(ranks, 2, freeze_and_move, NULL);
}

/* --- what is refused ------------------------------------------------------ */

static tri_status step_while_whole(rank *r)
{
    tri_module *model = sharded(r, 0);
    tri_optimizer *opt = tri_sgd(model, 0.1, NULL);
    tri_status status;

    tri_backward(loss_of(model, 0, 4));
    TRY(tri_unshard_begin(model));
    status = tri_optimizer_step(opt);
    (void)snprintf(r->line, sizeof(r->line), "%s", tri_last_error());
    tri_step_end();
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    trii_err_set("%s", r->line);
    return status;
}

static tri_status backward_after_the_update(rank *r)
{
    tri_module *model = sharded(r, -1);
    tri_optimizer *opt = tri_sgd(model, 0.1, NULL);
    tri_tensor *late = loss_of(model, 0, 4);
    tri_status status;

    tri_backward(loss_of(model, 0, 4));
    TRY(tri_optimizer_step(opt));
    tri_backward(late);
    status = tri_step_end_status();
    (void)snprintf(r->line, sizeof(r->line), "%s", tri_last_error());
    tri_step_end();
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    trii_err_set("%s", r->line);
    return status;
}

static void what_cannot_be_is_refused(void **state)
{
    static rank ranks[2];

    (void)state;
    make_data();
    run_ranks(ranks, 2, step_while_whole, NULL);
    check_all(ranks, 2, TRI_ERR_STATE, "call tri_unshard_end first");
    run_ranks(ranks, 2, backward_after_the_update, NULL);
    check_all(ranks, 2, TRI_ERR_STATE,
              "what it was then is gone: call tri_backward before the update");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(parameters_are_whole_between_begin_and_end),
    cmocka_unit_test(a_bucket_is_gathered_in_forward_and_once_for_backward),
    cmocka_unit_test(what_is_kept_after_forward_is_gathered_once),
    cmocka_unit_test(small_parameters_stay_whole),
    cmocka_unit_test(units_are_gathered_as_one),
    cmocka_unit_test(ranks_whose_options_differ_are_named),
    cmocka_unit_test(what_runs_in_the_middle_changes_nothing),
    cmocka_unit_test(an_evaluation_in_between_changes_nothing),
    cmocka_unit_test(a_second_backward_gathers_again),
    cmocka_unit_test(a_second_update_reads_the_first),
    cmocka_unit_test(a_forward_may_read_what_is_whole),
    cmocka_unit_test(what_one_rank_looks_at_changes_nothing),
    cmocka_unit_test(shared_layers_add_up_in_one_order),
    cmocka_unit_test(ranks_that_gather_other_layers_are_told),
    cmocka_unit_test(a_parameter_is_frozen_and_stays_where_it_is),
    cmocka_unit_test(what_cannot_be_is_refused),
};

TEST_MAIN(tests)
