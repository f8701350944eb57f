/*
 * ddp_passes_test.c - several backward passes before an update: gradients that are thrown away
 * before anything runs, passes without samples, losses that reach different parts of the model. As
 * one process that has all ranks' rows.
 */
/* ctest: also=TRI_CHECK=order */
#include "base/err.h"
#include "testing/ddp_ranks.h"

typedef struct trainer trainer;

typedef struct plan {
    void (*step)(trainer *t);
    int ranks;
    tri_bucket_hook hook;
    bool one_bucket; /* else one for each parameter */
    bool frozen;     /* the body, when the model is made */
    double bound;
} plan;

/* --- a body with two heads ------------------------------------------------ */

typedef struct parts {
    tri_module *body, *head[2];
    int which;
} parts;

struct trainer {
    const rank *r;
    tri_module *model;
    parts *parts;
    tri_optimizer *opt;
    tri_tensor *x, *y, *no_x, *no_y;
    tri_status status;
};

static tri_tensor *parts_forward(tri_module *self, tri_tensor *x)
{
    const parts *p = tri_module_data(self);

    return tri_forward(p->head[p->which], tri_tanh(tri_forward(p->body, x)));
}

static tri_module *build(parts **parts_out)
{
    tri_module *self = tri_module_simple("Parts", sizeof(parts), parts_forward);
    parts *p = tri_module_data(self);

    trii_mutex_lock(&drawing);
    tri_manual_seed(3);
    tri_set_default_dtype(TRI_DTYPE_F64);
    p->body = tri_module_add_child(self, "body", tri_nn_linear(IN, 8, NULL));
    p->head[0] = tri_module_add_child(self, "head0", tri_nn_linear(8, OUT, NULL));
    p->head[1] = tri_module_add_child(self, "head1", tri_nn_linear(8, OUT, NULL));
    tri_set_default_dtype(TRI_DTYPE_F32);
    trii_mutex_unlock(&drawing);
    *parts_out = p;
    return self;
}

static tri_tensor *loss_by(trainer *t, int head)
{
    t->parts->which = head;
    return tri_mse_loss(tri_forward(t->model, t->x), t->y, NULL);
}

static tri_tensor *loss_of_both(trainer *t)
{
    return tri_add(loss_by(t, 0), loss_by(t, 1));
}

static void update(trainer *t)
{
    if (t->status == TRI_OK)
        t->status = tri_optimizer_step(t->opt);
}

/* Of unequal numbers of rows, which are all of one process's. */
static tri_status train(rank *r)
{
    const plan *p = r->arg;
    int each = (ROWS - 1) / r->size, first = r->index > 0 ? ROWS - (r->size - r->index) * each : 0;
    int n = r->index > 0 ? each : ROWS - (r->size - 1) * each;
    size_t bucket_bytes = p->one_bucket ? 1 << 20 : 1;
    trainer t = {.r = r};
    tri_module *net = build(&t.parts);

    tri_module_requires_grad(t.parts->body, !p->frozen);
    t.model = tri_ddp(net, &(tri_ddp_options){.group = r->group,
                                              .hook = p->hook,
                                              .first_bucket_bytes = bucket_bytes,
                                              .bucket_cap_bytes = bucket_bytes});
    TRY(tri_module_status(t.model));
    t.opt = tri_sgd(t.model, 0.25, &(tri_sgd_options){.momentum = 0.5});
    t.x = rows_of(x_data, IN, first, n);
    t.y = rows_of(y_data, OUT, first, n);
    t.no_x = rows_of(x_data, IN, 0, 0);
    t.no_y = rows_of(y_data, OUT, 0, 0);
    for (int step = 0; step < STEPS && t.status == TRI_OK; step++) {
        p->step(&t);
        if (t.status == TRI_OK)
            t.status = tri_step_end_status();
    }
    TRY(t.status);
    TRY(tri_ddp_verify(t.model, true));
    TRY(take_weights(r, t.model));
    tri_optimizer_destroy(t.opt);
    tri_module_destroy(t.model);
    tri_tensor_unref(t.x);
    tri_tensor_unref(t.y);
    tri_tensor_unref(t.no_x);
    tri_tensor_unref(t.no_y);
    return TRI_OK;
}

static void check_plan(const plan *p)
{
    static rank one[1], ranks[MAX_RANKS];

    make_data();
    ranks_succeed(one, 1, train, p);
    ranks_succeed(ranks, p->ranks, train, p);
    for (int i = 1; i < p->ranks; i++)
        assert_true(ranks[i].hash == ranks[0].hash);
    for (int i = 0; i < one[0].n_weights; i++)
        if (!(fabs(ranks[0].weights[i] - one[0].weights[i]) <= p->bound))
            fail_msg("%d ranks, weight %d: %.15g, and %.15g of one process", p->ranks, i,
                     ranks[0].weights[i], one[0].weights[i]);
}

/* Over two and three ranks, in one bucket and in many, with sums and with a hook. */
static void check_with(plan p)
{
    for (int one_bucket = 0; one_bucket < 2; one_bucket++) {
        p.one_bucket = one_bucket != 0;
        p.hook = NULL;
        p.bound = 1e-12;
        for (p.ranks = 2; p.ranks < 4; p.ranks++)
            check_plan(&p);
        p.ranks = 2;
        p.hook = tri_bucket_hook_bf16;
        p.bound = 0.02;
        check_plan(&p);
    }
}

static void check(void (*step)(trainer *t))
{
    check_with((plan){.step = step});
}

/* --- losses that reach different parts ------------------------------------ */

static void one_head_after_the_other(trainer *t)
{
    tri_backward(loss_by(t, 0));
    tri_backward(loss_by(t, 1));
    update(t);
}

static void heads_may_have_a_backward_each(void **state)
{
    (void)state;
    check(one_head_after_the_other);
}

/* Where each rank begins with another head, what one left unused is there on the other. */
static void heads_in_different_orders(trainer *t)
{
    int first = t->r->index % 2;

    tri_backward(loss_by(t, first));
    tri_backward(loss_by(t, 1 - first));
    update(t);
}

static void ranks_may_begin_with_different_heads(void **state)
{
    (void)state;
    check(heads_in_different_orders);
}

static void losses_recorded_first(trainer *t)
{
    tri_tensor *loss[2] = {loss_by(t, 1), loss_by(t, 0)};

    tri_backward(loss[0]);
    tri_backward(loss[1]);
    update(t);
}

static void losses_of_heads_may_all_be_recorded_first(void **state)
{
    (void)state;
    check(losses_recorded_first);
}

static void without_the_other_head(trainer *t)
{
    tri_module_requires_grad(t->parts->head[1], false);
    tri_backward(loss_by(t, 0));
    tri_backward(tri_mul_scalar(loss_by(t, 0), 0.5));
    update(t);
}

static void a_part_may_be_frozen_while_gradients_add_up(void **state)
{
    (void)state;
    check(without_the_other_head);
}

/* The first average, of one head, is followed by a pass of the other that is not averaged. */
static void other_head_in_no_sync(trainer *t)
{
    tri_backward(loss_by(t, 0));
    tri_ddp_no_sync_begin(t->model);
    tri_backward(loss_by(t, 1));
    tri_ddp_no_sync_end(t->model);
    tri_backward(loss_by(t, 0));
    update(t);
}

/* The last average is of the samples of two passes, so one process's sum is another. */
static void a_head_may_add_up_in_no_sync_after_the_other_was_averaged(void **state)
{
    static rank ranks[2];
    const plan p = {.step = other_head_in_no_sync, .ranks = 2};

    (void)state;
    make_data();
    ranks_succeed(ranks, 2, train, &p);
    assert_true(ranks[0].hash == ranks[1].hash);
}

/* The loss once more, for a log, say. */
static void unfrozen_before_update(trainer *t)
{
    tri_module_requires_grad(t->parts->body, false);
    tri_backward(loss_by(t, 0));
    tri_module_requires_grad(t->parts->body, true);
    (void)tri_item(loss_by(t, 0));
    update(t);
}

static void unfreezing_before_an_update_keeps_gradients(void **state)
{
    (void)state;
    check_with((plan){.step = unfrozen_before_update, .frozen = true});
}

/* What tri_grad has of the part is asked for, which runs what was recorded. */
static void read_gradients(trainer *t, tri_module *part)
{
    for (int64_t i = 0; i < tri_module_state_count(part) && t->status == TRI_OK; i++) {
        tri_tensor *grad = tri_grad(tri_module_state(part, i).tensor);
        double sum;

        t->status = grad != NULL ? tri_item_status(tri_sum(grad, NULL, 0, false), &sum)
                                 : TRII_FAIL(TRI_ERR_INTERNAL, "no gradient");
    }
}

static void read_before_update(trainer *t)
{
    tri_backward(loss_of_both(t));
    read_gradients(t, t->parts->head[1]);
    read_gradients(t, t->parts->body);
    update(t);
}

static void gradients_may_be_read_before_the_update(void **state)
{
    (void)state;
    check(read_before_update);
}

static void second_after_the_first_has_run(trainer *t)
{
    tri_backward(loss_by(t, 0));
    read_gradients(t, t->parts->body);
    tri_backward(loss_of_both(t));
    read_gradients(t, t->parts->head[0]);
    tri_backward(loss_by(t, 1));
    update(t);
}

static void a_backward_adds_to_what_has_run(void **state)
{
    (void)state;
    check(second_after_the_first_has_run);
}

static void second_in_another_step(trainer *t)
{
    tri_backward(loss_by(t, 1));
    t->status = tri_step_end_status();
    tri_backward(loss_by(t, 0));
    if (t->status == TRI_OK)
        t->status = tri_step_end_status();
    update(t);
}

static void a_backward_adds_to_an_earlier_steps(void **state)
{
    (void)state;
    check(second_in_another_step);
}

/* By an optimizer that nobody had during the passes. */
static void updated_by_a_later_optimizer(trainer *t)
{
    tri_optimizer *opt;

    tri_backward(loss_by(t, 0));
    tri_backward(loss_of_both(t));
    opt = tri_sgd(t->model, 0.25, NULL);
    if (t->status == TRI_OK)
        t->status = tri_optimizer_step(opt);
    tri_optimizer_destroy(opt);
}

static void an_optimizer_may_come_after_the_passes(void **state)
{
    (void)state;
    check(updated_by_a_later_optimizer);
}

/* The body is frozen after its gradient was recorded, before that runs. */
static void frozen_before_it_runs(trainer *t)
{
    tri_backward(loss_of_both(t));
    tri_module_requires_grad(t->parts->body, false);
    update(t);
    tri_module_requires_grad(t->parts->body, true);
}

static void a_part_may_be_frozen_before_its_average_runs(void **state)
{
    (void)state;
    check(frozen_before_it_runs);
}

/* --- passes without samples ----------------------------------------------- */

static tri_tensor *ignored_loss(trainer *t)
{
    int64_t labels[ROWS];
    int n = (int)tri_tensor_size(t->x, 0);
    tri_tensor *target, *loss;

    for (int i = 0; i < n; i++)
        labels[i] = -100;
    target = tri_tensor_from(TRI_SHAPE(n), TRI_DTYPE_I64, labels);
    loss = tri_cross_entropy(tri_forward(t->model, t->x), target, NULL);
    tri_tensor_unref(target);
    return loss;
}

static void ignored_pass_last(trainer *t)
{
    tri_backward(loss_of_both(t));
    tri_backward(ignored_loss(t));
    update(t);
}

static void a_loss_whose_targets_are_all_ignored_keeps_the_average(void **state)
{
    (void)state;
    check(ignored_pass_last);
}

static void empty_pass_last(trainer *t)
{
    tri_backward(loss_of_both(t));
    tri_backward(tri_mse_loss(tri_forward(t->model, t->no_x), t->no_y, NULL));
    update(t);
}

static void an_empty_batch_on_all_ranks_keeps_the_average(void **state)
{
    (void)state;
    check(empty_pass_last);
}

static void ignored_pass_first(trainer *t)
{
    tri_backward(ignored_loss(t));
    tri_backward(loss_of_both(t));
    tri_backward(ignored_loss(t));
    tri_backward(loss_by(t, 1));
    update(t);
}

static void passes_without_samples_may_come_in_any_order(void **state)
{
    (void)state;
    check(ignored_pass_first);
}

/* Its loss reaches another model as well, so that sums are weighted instead of the seed. */
static void ignored_pass_with_other_tensor(trainer *t)
{
    tri_tensor *scale = tri_tensor_from(NULL, 0, TRI_DTYPE_F64, &(double){2});

    tri_requires_grad(scale, true);
    tri_backward(loss_of_both(t));
    tri_backward(tri_mul(ignored_loss(t), scale));
    tri_backward(tri_mul(loss_by(t, 1), scale));
    update(t);
    tri_tensor_unref(scale);
}

static void passes_without_samples_may_reach_other_tensors(void **state)
{
    (void)state;
    check(ignored_pass_with_other_tensor);
}

/* --- gradients that are thrown away --------------------------------------- */

static void thrown_away_before_it_runs(trainer *t)
{
    tri_backward(tri_mul_scalar(loss_by(t, 0), 100));
    tri_optimizer_zero_grad(t->opt);
    tri_backward(loss_of_both(t));
    update(t);
}

static void a_pass_may_be_thrown_away_before_it_has_run(void **state)
{
    (void)state;
    check(thrown_away_before_it_runs);
}

/* Nothing is left to update with, neither in the step of the backward nor in the next. */
static void thrown_away_before_an_update(trainer *t)
{
    tri_backward(tri_mul_scalar(loss_of_both(t), 100));
    tri_optimizer_zero_grad(t->opt);
    update(t);
    if (t->status == TRI_OK)
        t->status = tri_step_end_status();
    update(t);
    tri_backward(loss_by(t, 1));
    update(t);
}

static void an_update_uses_nothing_that_was_thrown_away(void **state)
{
    (void)state;
    check(thrown_away_before_an_update);
}

/* Those of the body, of the first loss. */
static void thrown_away_in_part(trainer *t)
{
    tri_optimizer *body = tri_sgd(t->parts->body, 0.25, NULL);

    tri_backward(loss_of_both(t));
    tri_optimizer_zero_grad(body);
    tri_backward(loss_by(t, 1));
    update(t);
    tri_optimizer_destroy(body);
}

static void gradients_of_a_part_may_be_thrown_away(void **state)
{
    (void)state;
    check(thrown_away_in_part);
}

static void unused_then_thrown_away(trainer *t)
{
    tri_backward(loss_by(t, t->r->index % 2));
    tri_optimizer_zero_grad(t->opt);
    t->status = tri_step_end_status();
    tri_backward(loss_by(t, 0));
    update(t);
}

static void what_a_thrown_away_pass_left_unused_has_no_gradient(void **state)
{
    (void)state;
    check(unused_then_thrown_away);
}

/* --- buckets that are on their way ---------------------------------------- */

#define WIDE_PARAMS 4
#define WIDE 30000
#define WIDE_STEPS 4

typedef struct wide_plan {
    tri_bucket_hook hook;
    bool together; /* both losses are recorded before both backward passes */
    double tolerance;
} wide_plan;

typedef struct squares {
    tri_tensor *p[WIDE_PARAMS];
} squares;

/* The sum of the means of (p x)^2. */
static tri_tensor *squares_forward(tri_module *self, tri_tensor *x)
{
    const squares *s = tri_module_data(self);
    tri_tensor *sum = NULL;

    for (int i = 0; i < WIDE_PARAMS; i++) {
        tri_tensor *mean = tri_mean(tri_square(tri_mul(s->p[i], x)), NULL, 0, false);

        sum = sum != NULL ? tri_add(sum, mean) : mean;
    }
    return sum;
}

/* One pass whose gradients are thrown away, and one that trains, in one step. */
static tri_status train_wide(rank *r)
{
    const wide_plan *p = r->arg;
    tri_module *net = tri_module_simple("Squares", sizeof(squares), squares_forward), *model;
    squares *s = tri_module_data(net);
    const float thrown_away = 8, mine = 1 + 0.125f * (float)r->index;
    tri_tensor *x = tri_tensor_from(TRI_SHAPE(1), TRI_DTYPE_F32, &thrown_away);
    tri_tensor *y = tri_tensor_from(TRI_SHAPE(1), TRI_DTYPE_F32, &mine);
    float *weights = malloc(WIDE * sizeof(*weights));
    double want = 1, slope = 0;
    tri_optimizer *opt;

    for (int i = 0; i < WIDE_PARAMS; i++) {
        char name[8];

        snprintf(name, sizeof(name), "p%d", i);
        s->p[i] =
            tri_module_add_parameter(net, name, tri_tensor_create(TRI_SHAPE(WIDE), TRI_DTYPE_F32));
        TRY(tri_init_constant(s->p[i], 1));
    }
    for (int q = 0; q < r->size; q++)
        slope += 2 * pow(1 + 0.125 * q, 2) / r->size;
    model = tri_ddp(net, &(tri_ddp_options){.group = r->group,
                                            .hook = p->hook,
                                            .first_bucket_bytes = 4 * WIDE,
                                            .bucket_cap_bytes = 4 * WIDE});
    TRY(tri_module_status(model));
    opt = tri_sgd(model, WIDE / 16.0, NULL);
    for (int step = 0; step < WIDE_STEPS; step++) {
        tri_tensor *first = tri_forward(model, x), *second = NULL;

        if (p->together)
            second = tri_forward(model, y);
        tri_backward(first);
        tri_optimizer_zero_grad(opt);
        tri_backward(p->together ? second : tri_forward(model, y));
        TRY(tri_optimizer_step(opt));
        TRY(tri_step_end_status());
        want -= want * slope / 16;
        for (int i = 0; i < WIDE_PARAMS; i++) {
            TRY(tri_tensor_copy_out(s->p[i], weights, WIDE * sizeof(*weights)));
            for (int k = 0; k < WIDE; k++)
                if (!(fabs(weights[k] - want) < p->tolerance * want))
                    return TRII_FAIL(TRI_ERR_INTERNAL, "step %d, weight %d of p%d: %g, not %g",
                                     step, k, i, weights[k], want);
        }
    }
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    free(weights);
    return TRI_OK;
}

static void check_wide(const wide_plan *p)
{
    static rank ranks[MAX_RANKS];

    for (int size = 2; size <= MAX_RANKS; size++)
        ranks_succeed(ranks, size, train_wide, p);
}

static void a_pass_waits_for_the_buckets_of_one_that_was_thrown_away(void **state)
{
    (void)state;
    for (int together = 0; together < 2; together++) {
        check_wide(&(wide_plan){.together = together != 0, .tolerance = 1e-4});
        check_wide(&(wide_plan){
            .together = together != 0, .hook = tri_bucket_hook_bf16, .tolerance = 0.02});
        check_wide(&(wide_plan){
            .together = together != 0, .hook = tri_bucket_hook_f16, .tolerance = 0.01});
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(heads_may_have_a_backward_each),
    cmocka_unit_test(ranks_may_begin_with_different_heads),
    cmocka_unit_test(losses_of_heads_may_all_be_recorded_first),
    cmocka_unit_test(a_part_may_be_frozen_while_gradients_add_up),
    cmocka_unit_test(a_head_may_add_up_in_no_sync_after_the_other_was_averaged),
    cmocka_unit_test(unfreezing_before_an_update_keeps_gradients),
    cmocka_unit_test(gradients_may_be_read_before_the_update),
    cmocka_unit_test(a_backward_adds_to_what_has_run),
    cmocka_unit_test(a_backward_adds_to_an_earlier_steps),
    cmocka_unit_test(an_optimizer_may_come_after_the_passes),
    cmocka_unit_test(a_part_may_be_frozen_before_its_average_runs),
    cmocka_unit_test(a_loss_whose_targets_are_all_ignored_keeps_the_average),
    cmocka_unit_test(an_empty_batch_on_all_ranks_keeps_the_average),
    cmocka_unit_test(passes_without_samples_may_come_in_any_order),
    cmocka_unit_test(passes_without_samples_may_reach_other_tensors),
    cmocka_unit_test(a_pass_may_be_thrown_away_before_it_has_run),
    cmocka_unit_test(an_update_uses_nothing_that_was_thrown_away),
    cmocka_unit_test(gradients_of_a_part_may_be_thrown_away),
    cmocka_unit_test(what_a_thrown_away_pass_left_unused_has_no_gradient),
    cmocka_unit_test(a_pass_waits_for_the_buckets_of_one_that_was_thrown_away),
};

TEST_MAIN(tests)
