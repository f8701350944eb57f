/*
 * ddp_test.c - data-parallel training with ranks as threads: the same as one worker on the whole
 * batch, whatever the number of ranks, parts, buckets and unused parameters.
 */
/* ctest: also=TRI_CHECK=order */
#include "testing/ddp_ranks.h"

static void check_near(const double *a, const double *b, int n, double bound)
{
    for (int i = 0; i < n; i++)
        if (!(fabs(a[i] - b[i]) <= bound))
            fail_msg("weight %d: %.17g and %.17g", i, a[i], b[i]);
}

/* How a test trains. */
typedef struct plan {
    int parts[MAX_RANKS + 1]; /* rank r has rows parts[r] to parts[r + 1] */
    tri_ddp_options options;
    int micro; /* micro-batches of each step; all but the last inside no_sync if no_sync */
    bool no_sync;
    bool composed;  /* the loss has a penalty, which stands first, and a factor */
    bool adam;      /* AdamW instead of SGD */
    double clip;    /* norm to which gradients are clipped; 0 = not at all */
    bool clip_list; /* by tri_clip_grad_norm_of */
} plan;

static tri_tensor *penalty(tri_module *model)
{
    tri_tensor *weight = tri_module_find(model, "0.weight");

    return tri_mul_scalar(tri_sum(tri_mul(weight, weight), NULL, 0, false), 0.01);
}

/* Clips; the norm must not be 0. */
static tri_status clip(const plan *p, tri_module *model, tri_optimizer *opt)
{
    tri_tensor *list[16], *norm;
    int n = 0;

    for (int64_t i = 0; i < tri_module_state_count(model) && n < 16; i++)
        list[n++] = tri_module_state(model, i).tensor;
    norm =
        p->clip_list ? tri_clip_grad_norm_of(list, n, p->clip) : tri_clip_grad_norm(opt, p->clip);
    TRY(tri_optimizer_step(opt));
    return tri_item(norm) > 0.0 ? TRI_OK : TRI_ERR_INTERNAL;
}

static tri_status train(rank *r)
{
    const plan *p = r->arg;
    int first = p->parts[r->index], n = p->parts[r->index + 1] - first;
    int micro = p->micro > 0 ? p->micro : 1;
    tri_ddp_options options = p->options;
    tri_module *model;
    tri_optimizer *opt;
    tri_tensor *x[2], *y[2];
    tri_status status;

    options.group = r->group;
    model = tri_ddp(mlp(1 + (uint64_t)r->index), &options);
    TRY(tri_module_status(model));
    opt = p->adam ? tri_adamw(model, 0.01, NULL)
                  : tri_sgd(model, 0.1, &(tri_sgd_options){.momentum = 0.9, .weight_decay = 0.01});
    for (int m = 0; m < micro; m++) {
        x[m] = rows_of(x_data, IN, first + m * (n / micro), n / micro);
        y[m] = rows_of(y_data, OUT, first + m * (n / micro), n / micro);
    }
    for (int step = 0; step < STEPS; step++) {
        for (int m = 0; m < micro; m++) {
            bool local = p->no_sync && m < micro - 1;
            tri_tensor *loss;

            if (local)
                tri_ddp_no_sync_begin(model);
            loss = tri_mse_loss(tri_forward(model, x[m]), y[m], NULL);
            if (p->composed)
                loss = tri_add(penalty(model), tri_mul_scalar(loss, 0.5));
            tri_backward(loss);
            if (local)
                tri_ddp_no_sync_end(model);
        }
        TRY(p->clip > 0.0 ? clip(p, model, opt) : tri_optimizer_step(opt));
        TRY(tri_step_end_status());
    }
    status = r->size > 1 ? tri_ddp_verify(model, true) : TRI_OK;
    if (status == TRI_OK)
        status = take_weights(r, model);
    for (int m = 0; m < micro; m++) {
        tri_tensor_unref(x[m]);
        tri_tensor_unref(y[m]);
    }
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return status;
}

static const plan whole = {.parts = {0, ROWS}};

/* Trains with the plan on `size` ranks and compares with one rank and its plan. */
static void check_plan(const plan *p, int size, const plan *reference)
{
    static rank one[1], ranks[MAX_RANKS];

    make_data();
    ranks_succeed(one, 1, train, reference);
    ranks_succeed(ranks, size, train, p);
    assert_true(one[0].n_weights > 100);
    check_near(ranks[0].weights, one[0].weights, one[0].n_weights, 1e-12);
    for (int i = 1; i < size; i++)
        assert_true(ranks[i].hash == ranks[0].hash);
}

static void equal_parts_are_the_whole_batch(void **state)
{
    (void)state;
    check_plan(&(plan){.parts = {0, 6, 12}}, 2, &whole);
    check_plan(&(plan){.parts = {0, 4, 8, 12}}, 3, &whole);
    check_plan(&(plan){.parts = {0, 3, 6, 9, 12}}, 4, &whole);
}

static void uneven_parts_are_the_whole_batch(void **state)
{
    (void)state;
    check_plan(&(plan){.parts = {0, 9, 12}}, 2, &whole);
    check_plan(&(plan){.parts = {0, 1, 5, 12}}, 3, &whole);
}

static void a_composed_loss_weighs_by_the_rows_under_its_mean(void **state)
{
    const plan reference = {.parts = {0, ROWS}, .composed = true};

    (void)state;
    check_plan(&(plan){.parts = {0, 9, 12}, .composed = true}, 2, &reference);
}

static void buckets_change_no_bit(void **state)
{
    static rank a[2], b[2];
    const plan one_bucket = {.parts = {0, 5, 12}};
    const plan many = {.parts = {0, 5, 12},
                       .options = {.bucket_cap_bytes = 200, .first_bucket_bytes = 1}};

    (void)state;
    make_data();
    ranks_succeed(a, 2, train, &one_bucket);
    ranks_succeed(b, 2, train, &many);
    assert_true(a[0].hash == b[0].hash);
}

/* The norm is that of the averages, and it is asked for after all that adds up. */
static void clipping_is_of_the_averages(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        const plan alone = {
            .parts = {0, ROWS}, .clip = 0.05, .adam = i & 1, .clip_list = i & 2, .micro = 2};
        plan p = alone;

        p.no_sync = i & 4;
        p.options.bucket_cap_bytes = 300;
        p.options.first_bucket_bytes = 100;
        memcpy(p.parts, (int[]){0, 6, 12}, 3 * sizeof(int));
        check_plan(&p, 2, &alone);
        p.micro = 1;
        memcpy(p.parts, (int[]){0, 1, 7, 12}, 4 * sizeof(int));
        check_plan(&p, 3, &(plan){.parts = {0, ROWS}, .clip = 0.05, .adam = i & 1});
    }
}

static void gradients_of_no_sync_travel_with_the_next(void **state)
{
    const plan reference = {.parts = {0, ROWS}, .micro = 2};

    (void)state;
    /* Micro-batch m of both ranks together is not micro-batch m of one, but the sum over both is
     * the same: every row counts once, with the same weight. */
    check_plan(&(plan){.parts = {0, 6, 12}, .micro = 2, .no_sync = true}, 2, &reference);
}

/* Micro-batches of 3 and 3 rows on rank 0, of 5 and 1 on rank 1. A rank weighs by all the rows
 * since the last synchronised backward: here both the same. */
static tri_status train_unlike_parts(rank *r)
{
    static const int at[5] = {0, 3, 6, 11, 12};
    tri_module *model = tri_ddp(mlp(1), &(tri_ddp_options){.group = r->group});
    tri_optimizer *opt = tri_sgd(model, 0.1, NULL);
    tri_tensor *held[8] = {NULL};

    TRY(tri_module_status(model));
    for (int m = 0; m < 4; m++) {
        held[m] = rows_of(x_data, IN, at[m], at[m + 1] - at[m]);
        held[4 + m] = rows_of(y_data, OUT, at[m], at[m + 1] - at[m]);
    }
    for (int step = 0; step < STEPS; step++) {
        for (int m = 0; m < 4; m++) {
            tri_tensor *loss;

            if (r->size == 2 && m / 2 != r->index)
                continue;
            if (m % 2 == 0)
                tri_ddp_no_sync_begin(model);
            loss = tri_mse_loss(tri_forward(model, held[m]), held[4 + m], NULL);
            tri_backward(r->size == 2 ? loss : tri_mul_scalar(loss, 0.5));
            if (m % 2 == 0)
                tri_ddp_no_sync_end(model);
        }
        TRY(tri_optimizer_step(opt));
        TRY(tri_step_end_status());
    }
    TRY(take_weights(r, model));
    for (int i = 0; i < 8; i++)
        tri_tensor_unref(held[i]);
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return TRI_OK;
}

static void ranks_weigh_by_all_rows_since_the_last_time(void **state)
{
    static rank one[1], two[2];

    (void)state;
    make_data();
    ranks_succeed(one, 1, train_unlike_parts, NULL);
    ranks_succeed(two, 2, train_unlike_parts, NULL);
    check_near(two[0].weights, one[0].weights, one[0].n_weights, 1e-12);
    assert_true(two[0].hash == two[1].hash);
}

static void two_synchronised_backwards_add_up(void **state)
{
    const plan reference = {.parts = {0, ROWS}, .micro = 2};

    (void)state;
    check_plan(&(plan){.parts = {0, 6, 12}, .micro = 2}, 2, &reference);
}

static void eager_mode_gives_the_same(void **state)
{
    (void)state;
    assert_int_equal(setenv("TRI_EAGER", "1", 1), 0);
    check_plan(&(plan){.parts = {0, 5, 12}}, 2, &whole);
}

/* --- unused parameters ---------------------------------------------------- */

/* A trunk and three heads; the forward takes the head by a number in its data. */
typedef struct forked {
    tri_module *trunk, *head[3];
    int chosen;
} forked;

static void forked_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                           int n_out)
{
    forked *f = tri_module_data(self);

    (void)n_in;
    (void)n_out;
    out[0] = tri_forward(f->head[f->chosen], tri_relu(tri_forward(f->trunk, in[0])));
}

static tri_module *forked_create(void)
{
    static const tri_module_class type = {
        .name = "forked", .size = sizeof(forked), .forward = forked_forward};
    tri_module *self = tri_module_create(&type);
    forked *f = tri_module_data(self);

    trii_mutex_lock(&drawing);
    tri_manual_seed(3);
    tri_set_default_dtype(TRI_DTYPE_F64);
    f->trunk = tri_module_add_child(self, "trunk", tri_nn_linear(IN, 5, NULL));
    f->head[0] = tri_module_add_child(self, "head0", tri_nn_linear(5, OUT, NULL));
    f->head[1] = tri_module_add_child(self, "head1", tri_nn_linear(5, OUT, NULL));
    f->head[2] = tri_module_add_child(self, "head2", tri_nn_linear(5, OUT, NULL));
    tri_set_default_dtype(TRI_DTYPE_F32);
    trii_mutex_unlock(&drawing);
    return self;
}

/* Rank r uses head (step + r) % 2; one rank alone plays both and weighs their losses by rows. */
static tri_status train_forked(rank *r)
{
    static const int parts[3] = {0, 8, ROWS};
    tri_module *net = forked_create();
    forked *f = tri_module_data(net);
    tri_module *model = tri_ddp(net, &(tri_ddp_options){
                                         .group = r->group,
                                         .bucket_cap_bytes = 300,
                                         .first_bucket_bytes = 100,
                                     });
    tri_optimizer *opt;

    TRY(tri_module_status(model));
    opt = tri_sgd(model, 0.1, &(tri_sgd_options){.momentum = 0.9, .weight_decay = 0.1});
    for (int step = 0; step < STEPS; step++) {
        tri_tensor *total = NULL, *held[4] = {NULL};
        int64_t count;

        for (int part = 0; part < 2; part++) {
            int n = parts[part + 1] - parts[part];
            tri_tensor *loss;

            if (r->size == 2 && part != r->index)
                continue;
            held[2 * part] = rows_of(x_data, IN, parts[part], n);
            held[2 * part + 1] = rows_of(y_data, OUT, parts[part], n);
            f->chosen = (step / 2 + part) % 2; /* both, in steps 2 and 3 the other way round */
            if (step == 4)
                f->chosen = 0;
            loss = tri_mse_loss(tri_forward(model, held[2 * part]), held[2 * part + 1], NULL);
            if (r->size == 2)
                total = loss;
            else
                total = part == 0 ? tri_mul_scalar(loss, (double)n / ROWS)
                                  : tri_add(total, tri_mul_scalar(loss, (double)n / ROWS));
        }
        count = parts[r->index + 1] - parts[r->index];
        tri_backward_of(&total, 1, &(tri_backward_options){.count = &count});
        if (r->arg != NULL)
            (void)tri_clip_grad_norm(opt, *(const double *)r->arg);
        TRY(tri_optimizer_step(opt));
        TRY(tri_step_end_status());
        for (int i = 0; i < 4; i++)
            tri_tensor_unref(held[i]);
    }
    TRY(r->size > 1 ? tri_ddp_verify(model, true) : TRI_OK);
    TRY(take_weights(r, model));
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return TRI_OK;
}

static void unused_parameters_are_zeros_or_left_alone(void **state)
{
    static rank one[1], two[2];

    (void)state;
    make_data();
    ranks_succeed(one, 1, train_forked, NULL);
    ranks_succeed(two, 2, train_forked, NULL);
    check_near(two[0].weights, one[0].weights, one[0].n_weights, 1e-12);
    assert_true(two[0].hash == two[1].hash);
}

/* Which parameters have a gradient is known when their norm is asked for. */
static void gradients_of_other_ranks_count_in_the_norm(void **state)
{
    static const double bound = 0.05;
    static rank one[1], two[2];

    (void)state;
    make_data();
    ranks_succeed(one, 1, train_forked, &bound);
    ranks_succeed(two, 2, train_forked, &bound);
    check_near(two[0].weights, one[0].weights, one[0].n_weights, 1e-12);
    assert_true(two[0].hash == two[1].hash);
}

/* A backward whose gradients are thrown away, then one that counts. */
static tri_status train_after_zero_grad(rank *r)
{
    tri_module *net = forked_create();
    forked *f = tri_module_data(net);
    tri_module *model = tri_ddp(net, &(tri_ddp_options){.group = r->group});
    tri_optimizer *opt;
    tri_tensor *x, *y;

    TRY(tri_module_status(model));
    opt = tri_sgd(model, 0.1, NULL);
    x = rows_of(x_data, IN, r->index * (ROWS / r->size), ROWS / r->size);
    y = rows_of(y_data, OUT, r->index * (ROWS / r->size), ROWS / r->size);
    for (int step = 0; step < 3; step++) {
        f->chosen = step % 2;
        tri_backward(tri_mse_loss(tri_forward(model, x), y, NULL));
        if (step == 1) {
            TRY(tri_run());
            tri_optimizer_zero_grad(opt);
        } else {
            TRY(tri_optimizer_step(opt));
        }
        TRY(tri_step_end_status());
    }
    TRY(take_weights(r, model));
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return TRI_OK;
}

static void gradients_may_be_thrown_away(void **state)
{
    static rank one[1], two[2];

    (void)state;
    make_data();
    ranks_succeed(one, 1, train_after_zero_grad, NULL);
    ranks_succeed(two, 2, train_after_zero_grad, NULL);
    check_near(two[0].weights, one[0].weights, one[0].n_weights, 1e-12);
    assert_true(two[0].hash == two[1].hash);
}

/* The loss of every second step reaches a tensor outside of the model too. */
static tri_status train_beside_another_leaf(rank *r)
{
    tri_module *model = tri_ddp(mlp(1), &(tri_ddp_options){.group = r->group});
    tri_optimizer *opt;
    tri_tensor *x, *y, *shift = tri_tensor_create((int64_t[]){OUT}, 1, TRI_DTYPE_F64);

    TRY(tri_module_status(model));
    opt = tri_sgd(model, 0.1, NULL);
    tri_requires_grad(shift, true);
    x = rows_of(x_data, IN, r->index * (ROWS / r->size), ROWS / r->size);
    y = rows_of(y_data, OUT, r->index * (ROWS / r->size), ROWS / r->size);
    for (int step = 0; step < 4; step++) {
        tri_tensor *out = tri_forward(model, x);

        tri_backward(tri_mse_loss(step % 2 ? tri_add(out, shift) : out, y, NULL));
        TRY(tri_optimizer_step(opt));
        TRY(tri_step_end_status());
    }
    TRY(take_weights(r, model));
    tri_tensor_unref(shift);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return TRI_OK;
}

static void a_leaf_outside_the_model_changes_no_weight(void **state)
{
    static rank one[1], two[2];

    (void)state;
    make_data();
    ranks_succeed(one, 1, train_beside_another_leaf, NULL);
    ranks_succeed(two, 2, train_beside_another_leaf, NULL);
    check_near(two[0].weights, one[0].weights, one[0].n_weights, 1e-12);
    assert_true(two[0].hash == two[1].hash);
}

/* Two layers with one weight. */
typedef struct tied {
    tri_tensor *weight;
} tied;

static void tied_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                         int n_out)
{
    tied *t = tri_module_data(self);

    (void)n_in;
    (void)n_out;
    out[0] = tri_matmul(tri_relu(tri_matmul(in[0], t->weight)), t->weight);
}

static tri_status train_tied(rank *r)
{
    static const tri_module_class type = {
        .name = "tied", .size = sizeof(tied), .forward = tied_forward};
    tri_module *net = tri_module_create(&type), *model;
    tied *t = tri_module_data(net);
    int first = r->size == 2 && r->index == 1 ? 5 : 0;
    int n = r->size == 1 ? ROWS : r->index == 0 ? 5 : ROWS - 5;
    tri_tensor *x = rows_of(x_data, IN, first, n);
    tri_optimizer *opt;

    t->weight = tri_module_add_parameter(
        net, "first", tri_tensor_from((int64_t[]){IN, IN}, 2, TRI_DTYPE_F64, y_data));
    (void)tri_module_add_parameter(net, "second", tri_tensor_ref(t->weight));
    if (tri_module_parameter_count(net) != IN * IN)
        return TRI_ERR_INTERNAL;
    model = tri_ddp(net, &(tri_ddp_options){.group = r->group});
    opt = tri_sgd(model, 0.1, &(tri_sgd_options){.momentum = 0.9});
    if (tri_optimizer_state_count(opt) != 2)
        return TRI_ERR_INTERNAL;
    for (int step = 0; step < STEPS; step++) {
        tri_backward(tri_mse_loss(tri_forward(model, x), x, NULL));
        TRY(tri_optimizer_step(opt));
        TRY(tri_step_end_status());
    }
    TRY(take_weights(r, model));
    tri_tensor_unref(x);
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return TRI_OK;
}

static void a_shared_weight_is_one_parameter(void **state)
{
    static rank one[1], two[2];

    (void)state;
    make_data();
    ranks_succeed(one, 1, train_tied, NULL);
    ranks_succeed(two, 2, train_tied, NULL);
    check_near(two[0].weights, one[0].weights, one[0].n_weights, 1e-12);
    assert_true(two[0].hash == two[1].hash);
    assert_true(fabs(one[0].weights[0] - y_data[0]) > 1e-6); /* it was trained */
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_parts_are_the_whole_batch),
        cmocka_unit_test(uneven_parts_are_the_whole_batch),
        cmocka_unit_test(a_composed_loss_weighs_by_the_rows_under_its_mean),
        cmocka_unit_test(buckets_change_no_bit),
        cmocka_unit_test(clipping_is_of_the_averages),
        cmocka_unit_test(gradients_of_other_ranks_count_in_the_norm),
        cmocka_unit_test(gradients_of_no_sync_travel_with_the_next),
        cmocka_unit_test(ranks_weigh_by_all_rows_since_the_last_time),
        cmocka_unit_test(two_synchronised_backwards_add_up),
        cmocka_unit_test(eager_mode_gives_the_same),
        cmocka_unit_test(unused_parameters_are_zeros_or_left_alone),
        cmocka_unit_test(gradients_may_be_thrown_away),
        cmocka_unit_test(a_leaf_outside_the_model_changes_no_weight),
        cmocka_unit_test(a_shared_weight_is_one_parameter),
    };

    return test_main(argc, argv, tests, TRII_COUNT_OF(tests));
}
