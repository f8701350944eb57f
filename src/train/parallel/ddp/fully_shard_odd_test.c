/* fully_shard_odd_test.c - tri_fully_shard: odd models, and programs that end in the middle. */
#include "base/err.h"
#include "testing/ddp_ranks.h"

static tri_tensor *loss_of(tri_module *model, int first, int n)
{
    tri_tensor *x = rows_of(x_data, IN, first, n), *y = rows_of(y_data, OUT, first, n);
    tri_tensor *loss = tri_mse_loss(tri_forward(model, x), y, NULL);

    tri_tensor_unref(x);
    tri_tensor_unref(y);
    return loss;
}

static tri_module *sharded(const rank *r, tri_module *net, int prefetch)
{
    return tri_fully_shard(net, &(tri_zero_options){.group = r->group,
                                                    .bucket_cap_bytes = 8,
                                                    .first_bucket_bytes = 8,
                                                    .prefetch = prefetch});
}

static void many_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                         int n_out)
{
    tri_tensor *x = in[0];

    (void)n_in;
    (void)n_out;
    for (int64_t i = 0; i < tri_module_state_count(self); i++) {
        tri_tensor *p = tri_module_state(self, i).tensor;

        if (tri_tensor_numel(p) == 0)
            x = tri_add(x, tri_cast(tri_sum(p, NULL, 0, false), TRI_DTYPE_F64));
        else
            x = tri_mul(x, tri_cast(p, TRI_DTYPE_F64));
    }
    out[0] = x;
}

/* 200 parameters of no, one and few elements, of two types. */
static tri_module *many(void)
{
    static const tri_module_class type = {.name = "Many", .size = 8, .forward = many_forward};
    tri_module *self = tri_module_create(&type);
    char name[16];

    for (int i = 0; i < 200; i++) {
        int kind = i % 5;
        tri_tensor *t = tri_tensor_create((int64_t[]){kind == 0   ? 0
                                                      : kind == 1 ? 1
                                                                  : IN},
                                          kind == 2 ? 0 : 1, i % 3 ? TRI_DTYPE_F64 : TRI_DTYPE_F32);

        (void)snprintf(name, sizeof(name), "p%d", i);
        (void)!tri_init_constant(t, 0.9 + 0.01 * (i % 21));
        (void)tri_module_add_parameter(self, name, t);
    }
    return self;
}

static tri_status train_many(rank *r)
{
    int kind = *(const int *)r->arg;
    tri_module *model;
    tri_optimizer *opt;

    if (kind == 0)
        model = tri_ddp(many(), &(tri_ddp_options){.group = r->group});
    else if (kind == 1)
        model = sharded(r, many(), -1);
    else
        model = tri_fully_shard(many(), &(tri_zero_options){.group = r->group,
                                                            .prefetch = kind == 2 ? 7 : 0,
                                                            .keep_below = kind == 2 ? 0 : 2});
    TRY(tri_module_status(model));
    opt = tri_adam(model, 0.01, NULL);
    for (int i = 0; i < STEPS; i++) {
        tri_tensor *x = rows_of(x_data, IN, 4 * r->index, 4);

        tri_backward(tri_mean(tri_forward(model, x), NULL, 0, false));
        tri_tensor_unref(x);
        TRY(tri_optimizer_step(opt));
        TRY(tri_step_end_status());
    }
    TRY(tri_module_hash(model, &r->hash));
    tri_module_destroy(model);
    tri_optimizer_destroy(opt);
    return TRI_OK;
}

static void many_small_parameters_share_buckets(void **state)
{
    static rank whole[3], ranks[3];

    (void)state;
    make_data();
    for (int n = 1; n <= 3; n++) {
        ranks_succeed(whole, n, train_many, &(int){0});
        for (int kind = 1; kind < 4; kind++) {
            ranks_succeed(ranks, n, train_many, &kind);
            for (int i = 0; i < n; i++)
                if (ranks[i].hash != whole[0].hash)
                    fail_msg("%d ranks, kind %d: other weights", n, kind);
        }
    }
}

/* --- the middle of a step ------------------------------------------------- */

static tri_status leave(rank *r)
{
    int how = *(const int *)r->arg;
    tri_module *model = sharded(r, mlp(1), how % 2 ? -1 : 0);
    tri_optimizer *opt = tri_adam(model, 0.01, NULL);
    tri_tensor *loss;

    TRY(tri_module_status(model));
    loss = loss_of(model, 4 * r->index, 4);
    if (how >= 2)
        tri_backward(loss);
    if (how >= 4)
        TRY(tri_optimizer_step(opt));
    if (how >= 6)
        TRY(tri_unshard_begin(model));
    tri_module_destroy(model);
    tri_step_end();
    tri_optimizer_destroy(opt);
    return TRI_OK;
}

static void a_model_may_go_in_the_middle_of_a_step(void **state)
{
    static rank ranks[2];

    (void)state;
    make_data();
    for (int how = 0; how < 8; how++)
        ranks_succeed(ranks, 2, leave, &how);
}

static tri_status read_after_the_model(rank *r)
{
    tri_module *model = sharded(r, mlp(1), -1);
    tri_tensor *weight = tri_tensor_ref(tri_module_state(model, 0).tensor), *loss;
    double value;
    tri_status status;

    loss = tri_add(loss_of(model, 4 * r->index, 4), tri_mean(weight, NULL, 0, false));
    trii_err_set("why it goes");
    tri_module_destroy(model);
    if (strcmp(tri_last_error(), "why it goes") != 0)
        return TRII_FAIL(TRI_ERR_INTERNAL, "the error became %s", tri_last_error());
    (void)!tri_item_status(loss, &value);
    tri_backward(loss);
    (void)!tri_step_end_status();
    status = tri_item_status(tri_mean(weight, NULL, 0, false), &value);
    tri_tensor_unref(weight);
    return status == TRI_ERR_STATE ? TRI_OK : TRII_FAIL(TRI_ERR_INTERNAL, "%s", tri_last_error());
}

static void parameters_go_with_their_model(void **state)
{
    static rank ranks[2];

    (void)state;
    make_data();
    ranks_succeed(ranks, 2, read_after_the_model, NULL);
}

/* --- two models ----------------------------------------------------------- */

static tri_status train_two(rank *r)
{
    bool whole = *(const bool *)r->arg;
    tri_group *pair = NULL;
    tri_module *a, *b;
    tri_optimizer *opt_a, *opt_b;
    uint64_t hash;

    TRY(tri_group_split(r->group, r->index / 2, r->index, NULL, &pair));
    if (whole) {
        a = tri_ddp(mlp(1), &(tri_ddp_options){.group = r->group});
        b = tri_ddp(mlp(2), &(tri_ddp_options){.group = pair});
    } else {
        a = sharded(r, mlp(1), -1);
        b = tri_fully_shard(mlp(2), &(tri_zero_options){.group = pair, .bucket_cap_bytes = 100});
    }
    TRY(tri_module_status(a));
    TRY(tri_module_status(b));
    opt_a = tri_adam(a, 0.01, NULL);
    opt_b = tri_sgd(b, 0.01, NULL);
    for (int i = 0; i < STEPS; i++) {
        tri_tensor *loss = loss_of(a, 2 * r->index, 4), *x = rows_of(x_data, IN, 2 * r->index, 4);
        tri_tensor *guide, *both;

        guide = tri_forward(b, x);
        both = tri_mse_loss(tri_forward(a, x), guide, NULL);
        tri_tensor_unref(x);
        tri_backward(tri_add(loss, both));
        TRY(tri_optimizer_step(opt_a));
        tri_backward(loss_of(b, 2 * r->index, 3));
        TRY(tri_optimizer_step(opt_b));
        TRY(tri_step_end_status());
    }
    TRY(tri_module_hash(a, &r->hash));
    TRY(tri_module_hash(b, &hash));
    r->hash ^= 3 * hash;
    tri_optimizer_destroy(opt_a);
    tri_optimizer_destroy(opt_b);
    tri_module_destroy(a);
    tri_module_destroy(b);
    tri_group_unref(pair);
    return TRI_OK;
}

static void two_models_of_different_groups_share_a_step(void **state)
{
    static rank whole[4], ranks[4];

    (void)state;
    make_data();
    ranks_succeed(whole, 4, train_two, &(bool){true});
    ranks_succeed(ranks, 4, train_two, &(bool){false});
    for (int i = 0; i < 4; i++)
        assert_int_equal(ranks[i].hash, whole[i].hash);
}

/* --- failures ------------------------------------------------------------- */

/* A step that fails here alone, or in which this rank runs another module: all are told. */
static tri_status fail_alone(rank *r)
{
    int how = *(const int *)r->arg;
    tri_module *model = sharded(r, mlp(1), -1);
    tri_optimizer *opt = tri_adam(model, 0.01, NULL);
    tri_tensor *loss = loss_of(model, 4 * r->index, 4),
               *x = tri_ones(TRI_SHAPE(2, 3), TRI_DTYPE_F64);
    tri_status status = TRI_OK;

    if (r->index == 1 && how == 0)
        loss = tri_add(loss, tri_mean(tri_matmul(x, x), NULL, 0, false));
    if (r->index == 1 && how == 1) /* another module */
        (void)tri_keep(tri_forward(tri_module_submodule(model, "0"), x));
    tri_backward(loss);
    status = tri_optimizer_step(opt);
    if (status == TRI_OK)
        status = tri_step_end_status();
    (void)snprintf(r->line, sizeof(r->line), "%s", tri_last_error());
    tri_step_end();
    (void)!tri_unshard_begin(model);
    (void)!tri_unshard_end(model);
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    trii_err_set("%s", r->line);
    return status;
}

static void a_rank_that_fails_alone_tells_the_others(void **state)
{
    static rank ranks[2];

    (void)state;
    make_data();
    for (int how = 0; how < 2; how++) {
        run_ranks(ranks, 2, fail_alone, &how);
        for (int i = 0; i < 2; i++)
            assert_non_null(strstr(ranks[i].line, how == 0 ? "tri_matmul(f64 [2, 3], f64 [2, 3])"
                                                           : "the ranks disagree"));
    }
}

/* tri_unshard_end ends it although the step has failed. */
static tri_status end_in_a_failed_step(rank *r)
{
    tri_module *model = sharded(r, mlp(1), -1);
    tri_optimizer *opt = tri_adam(model, 0.01, NULL);
    tri_tensor *x = tri_ones(TRI_SHAPE(2, 3), TRI_DTYPE_F64),
               *weight = tri_module_state(model, 0).tensor;
    tri_status status;
    double had[IN * 8];

    TRY(tri_unshard_begin(model));
    tri_requires_grad(tri_add(x, x), true);
    status = tri_unshard_end(model);
    if (status == TRI_OK)
        return TRII_FAIL(TRI_ERR_INTERNAL, "no failure");
    tri_step_end();
    if (tri_tensor_copy_out(weight, had, sizeof(had)) != TRI_ERR_STATE)
        return TRII_FAIL(TRI_ERR_INTERNAL, "it is whole after the end");
    tri_backward(loss_of(model, 4 * r->index, 4));
    TRY(tri_optimizer_step(opt));
    TRY(tri_step_end_status());
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return TRI_OK;
}

static void an_end_in_a_failed_step_is_one(void **state)
{
    static rank ranks[2];

    (void)state;
    make_data();
    ranks_succeed(ranks, 2, end_in_a_failed_step, NULL);
}

/* --- threads -------------------------------------------------------------- */

typedef struct visit {
    tri_module *model;
    int index;
    tri_status status;
    double value;
    char line[256];
} visit;

static void visit_model(void *arg)
{
    visit *v = arg;

    tri_no_grad_begin();
    v->status = tri_item_status(loss_of(v->model, 4 * v->index, 4), &v->value);
    (void)snprintf(v->line, sizeof(v->line), "%s", tri_last_error());
    tri_no_grad_end();
    tri_step_end();
}

/* Each thread that uses it, one after the other, has steps of its own. */
static tri_status use_in_threads(rank *r)
{
    bool whole = *(const bool *)r->arg;
    tri_module *model =
        whole ? tri_ddp(mlp(1), &(tri_ddp_options){.group = r->group}) : sharded(r, mlp(1), -1);
    tri_optimizer *opt = tri_adam(model, 0.01, NULL);

    for (int i = 0; i < STEPS; i++) {
        visit v = {.model = model, .index = r->index};
        trii_thread thread;
        double value;

        tri_backward(loss_of(model, 4 * r->index, 4));
        TRY(tri_run());
        TRY(trii_thread_start(&thread, "visit", visit_model, &v));
        trii_thread_join(&thread);
        if (v.status != TRI_OK)
            return TRII_FAIL(v.status, "visit: %s", v.line);
        TRY(tri_optimizer_step(opt));
        TRY(tri_item_status(loss_of(model, 4 * r->index, 4), &value));
        r->weights[i] = v.value + value;
        TRY(tri_step_end_status());
    }
    TRY(tri_module_hash(model, &r->hash));
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return TRI_OK;
}

static void a_second_thread_may_use_the_model(void **state)
{
    static rank whole[2], ranks[2];

    (void)state;
    make_data();
    ranks_succeed(whole, 2, use_in_threads, &(bool){true});
    ranks_succeed(ranks, 2, use_in_threads, &(bool){false});
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ranks[i].hash, whole[i].hash);
        assert_memory_equal(ranks[i].weights, whole[i].weights, STEPS * sizeof(double));
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(many_small_parameters_share_buckets),
    cmocka_unit_test(a_model_may_go_in_the_middle_of_a_step),
    cmocka_unit_test(parameters_go_with_their_model),
    cmocka_unit_test(two_models_of_different_groups_share_a_step),
    cmocka_unit_test(a_rank_that_fails_alone_tells_the_others),
    cmocka_unit_test(an_end_in_a_failed_step_is_one),
    cmocka_unit_test(a_second_thread_may_use_the_model),
};

TEST_MAIN(tests)
