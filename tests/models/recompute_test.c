/* recompute_test.c - parts of forward that are computed again for backward: the same bits, less
 * memory, and everything that counts counts once. */
/* ctest: also=TRI_ISA=avx2 */
#include <string.h>

#include "train/plan/plan.h"
#include "testing/ddp_ranks.h"

#define DEPTH 6 /* at most */
#define WIDTH 64

/* --- networks ------------------------------------------------------------- */

static tri_module *mlp_block(void)
{
    return tri_nn_sequential(tri_nn_layer_norm(TRI_SHAPE(WIDTH), NULL),
                             tri_nn_linear(WIDTH, 4 * WIDTH, NULL), tri_nn_gelu(TRI_GELU_TANH),
                             tri_nn_dropout(0.2), tri_nn_linear(4 * WIDTH, WIDTH, NULL),
                             tri_nn_softmax(-1));
}

static tri_module *image_block(void)
{
    const tri_nn_conv2d_options pad = {.padding = 1};

    return tri_nn_sequential(tri_nn_conv2d(4, 4, 3, &pad), tri_nn_batch_norm2d(4, NULL),
                             tri_nn_relu(), tri_nn_dropout(0.1), tri_nn_conv2d(4, 4, 3, &pad),
                             tri_nn_silu());
}

static int depth = 2;

static tri_module *network(bool images, bool recompute)
{
    tri_module *blocks[DEPTH + 1], *net;

    tri_manual_seed(3);
    for (int i = 0; i < depth; i++) {
        blocks[i] = images ? image_block() : mlp_block();
        tri_module_set_recompute(blocks[i], recompute);
    }
    blocks[depth] = images ? tri_nn_flatten(1) : tri_nn_linear(WIDTH, 5, NULL);
    net = tri_nn_sequential_of(depth + 1, blocks);
    CHECK_OK(tri_module_status(net));
    return net;
}

static tri_tensor *data(bool images)
{
    static float values[32 * WIDTH];

    for (int i = 0; i < 32 * WIDTH; i++)
        values[i] = (float)((i * 37) % 101) / 50 - 1;
    return images ? tri_tensor_from(TRI_SHAPE(8, 4, 8, 8), TRI_DTYPE_F32, values)
                  : tri_tensor_from(TRI_SHAPE(32, WIDTH), TRI_DTYPE_F32, values);
}

typedef struct setting {
    bool images, autocast, runs_between;
} setting;

/* Three steps; the hash of everything that the network holds. The plan's arena is at least as large
 * as the largest so far. */
static uint64_t train(const setting *s, bool recompute)
{
    tri_module *net = network(s->images, recompute);
    tri_optimizer *opt = tri_sgd(net, 0.1, &(tri_sgd_options){.momentum = 0.9});
    tri_tensor *x = data(s->images);
    uint64_t hash;

    tri_rng_state_set(&(tri_rng){.seed = 11});
    for (int step = 0; step < 3; step++) {
        tri_tensor *y, *loss;

        if (s->autocast)
            tri_autocast_begin(TRI_DTYPE_BF16);
        y = tri_forward(net, x);
        if (s->autocast)
            tri_autocast_end();
        loss = tri_mean(tri_square(y), NULL, 0, false);
        if (s->runs_between)
            assert_true(tri_item(loss) > 0);
        tri_backward(loss);
        CHECK_OK(tri_optimizer_step(opt));
        CHECK_OK(tri_step_end_status());
    }
    CHECK_OK(tri_module_hash(net, &hash));
    tri_step_end();
    tri_tensor_unref(x);
    tri_optimizer_destroy(opt);
    tri_module_destroy(net);
    return hash;
}

static void check_bits(bool autocast, bool runs_between)
{
    for (int images = 0; images < 2; images++) {
        const setting s = {images != 0, autocast, runs_between};

        if (train(&s, true) != train(&s, false))
            fail_msg("%s: recomputation changes the result", images ? "images" : "rows");
    }
}

static void the_same_bits_as_without(void **state)
{
    (void)state;
    check_bits(false, false);
}

static void the_same_bits_where_forward_has_run_before(void **state)
{
    (void)state;
    check_bits(false, true);
}

static void the_same_bits_in_bf16(void **state)
{
    (void)state;
    check_bits(true, false);
}

static void the_plan_s_memory_falls(void **state)
{
    size_t with, without;

    (void)state;
    depth = DEPTH;
    trii_plan_release(); /* what other cases have compiled */
    (void)train(&(setting){false, false, false}, true);
    with = trii_plan_stats_get().arena_bytes;
    (void)train(&(setting){false, false, false}, false);
    without = trii_plan_stats_get().arena_bytes;
    depth = 2;
    if (with * 2 > without)
        fail_msg("%zu bytes with recomputation, %zu without", with, without);
}

static void batches_are_counted_once(void **state)
{
    tri_module *net = network(true, true);
    tri_tensor *x = data(true);
    int64_t count;

    (void)state;
    tri_backward(tri_mean(tri_square(tri_forward(net, x)), NULL, 0, false));
    CHECK_OK(tri_step_end_status());
    CHECK_OK(tri_tensor_copy_out(tri_module_find(net, "0.1.num_batches_tracked"), &count,
                                 sizeof(count)));
    assert_int_equal(count, 1);
    tri_tensor_unref(x);
    tri_module_destroy(net);
}

/* --- regions by hand ------------------------------------------------------ */

static int calls;

static tri_tensor *sum(tri_tensor *t)
{
    return tri_sum(t, NULL, 0, false);
}

static tri_tensor *part(tri_tensor *x)
{
    calls++;
    return tri_exp(tri_sin(tri_exp(tri_sin(x))));
}

static tri_tensor *one_parameter(void)
{
    tri_tensor *x = tri_tensor_from(TRI_SHAPE(3), TRI_DTYPE_F64, (const double[]){0.1, 0.2, 0.3});

    tri_requires_grad(x, true);
    return x;
}

typedef struct gradient {
    double at[3];
} gradient;

static gradient plain_gradient(void)
{
    tri_tensor *x = one_parameter();
    gradient g;

    tri_backward(sum(part(x)));
    CHECK_OK(tri_tensor_copy_out(tri_grad(x), g.at, sizeof(g.at)));
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
    return g;
}

static void check_gradient(tri_tensor *x)
{
    gradient wanted = plain_gradient(), got;

    CHECK_OK(tri_tensor_copy_out(tri_grad(x), got.at, sizeof(got.at)));
    assert_memory_equal(&got, &wanted, sizeof(got));
    tri_tensor_unref(x);
}

static void user_code_runs_once_and_regions_nest(void **state)
{
    tri_tensor *x = one_parameter(), *y = NULL;

    (void)state;
    calls = 0;
    TRI_RECOMPUTE
    {
        TRI_RECOMPUTE
        {
            y = part(x);
        }
    }
    tri_backward(sum(y));
    CHECK_OK(tri_step_end_status());
    assert_int_equal(calls, 1);
    check_gradient(x);
}

/* What others read of a region outlives a run, and what only it reads does not. */
static void a_run_keeps_what_goes_on(void **state)
{
    tri_tensor *x = one_parameter(), *y, *inside, *unread;

    (void)state;
    tri_recompute_begin();
    inside = tri_exp(tri_sin(x));
    y = tri_exp(tri_sin(inside));
    unread = tri_square(inside);
    tri_recompute_end();
    (void)tri_item(tri_amax(y, NULL, 0, false));
    CHECK_FAILS(tri_tensor_copy_out(inside, (double[3]){0}, 3 * sizeof(double)), TRI_ERR_STATE,
                "tri_keep");
    assert_false(tri_item(sum(unread)) == 0);
    tri_backward(sum(y));
    CHECK_OK(tri_step_end_status());
    check_gradient(x);
}

static void a_run_inside_a_region_changes_nothing(void **state)
{
    tri_tensor *x = one_parameter(), *y;

    (void)state;
    tri_recompute_begin();
    y = tri_sin(x);
    CHECK_OK(tri_run());
    y = tri_exp(y);
    (void)tri_item(tri_amax(y, NULL, 0, false));
    y = tri_exp(tri_sin(y));
    tri_recompute_end();
    (void)tri_item(tri_amax(y, NULL, 0, false));
    tri_backward(sum(y));
    CHECK_OK(tri_step_end_status());
    check_gradient(x);
}

static void two_walks_and_gradients_of_gradients_go_through_a_region(void **state)
{
    double got[2][3];

    (void)state;
    for (int with = 0; with < 2; with++) {
        tri_tensor *x = one_parameter(), *y, *g;

        if (with)
            tri_recompute_begin();
        y = part(x);
        if (with)
            tri_recompute_end();
        y = sum(y);
        tri_backward_of(&y, 1, &(tri_backward_options){.keep_graph = true});
        CHECK_OK(tri_run());
        CHECK_OK(tri_gradients(&y, 1, &x, 1, &(tri_gradients_options){.create_graph = true}, &g));
        tri_backward(sum(tri_square(g)));
        CHECK_OK(tri_step_end_status());
        CHECK_OK(tri_tensor_copy_out(tri_grad(x), got[with], sizeof(got[with])));
        tri_tensor_unref(x);
    }
    assert_memory_equal(got[0], got[1], sizeof(got[0]));
}

/* A step may end inside of it: the next goes on with a region of its own. */
static void a_region_lasts_over_steps_and_ends_once(void **state)
{
    tri_tensor *x = one_parameter(), *y;

    (void)state;
    tri_recompute_begin();
    (void)tri_item(sum(part(x)));
    CHECK_OK(tri_step_end_status());
    y = part(x);
    tri_recompute_end();
    tri_backward(sum(y));
    CHECK_OK(tri_step_end_status());
    tri_recompute_end();
    CHECK_FAILS(tri_step_end_status(), TRI_ERR_STATE, "tri_recompute_end without");
    check_gradient(x);
}

/* An evaluation has nothing to go back to: nothing of it is kept, nor copied. */
static void without_gradients_a_region_is_nothing(void **state)
{
    tri_tensor *x = one_parameter(), *y = NULL;
    int32_t nodes;

    (void)state;
    TRI_NO_GRAD
    {
        TRI_RECOMPUTE
        {
            y = part(x);
        }
    }
    nodes = trii_step_current()->n_nodes;
    (void)tri_item(sum(y));
    assert_int_equal(trii_step_current()->n_nodes, nodes + 1);
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
}

/* --- replicas ------------------------------------------------------------- */

static tri_status train_replica(rank *r)
{
    const bool *recompute = r->arg;
    tri_module *net = mlp(4), *model;
    tri_optimizer *opt;

    tri_module_set_recompute(net, *recompute);
    model = tri_ddp(net, &(tri_ddp_options){.group = r->group, .bucket_cap_bytes = 300});
    opt = tri_sgd(model, 0.1, NULL);
    for (int step = 0; step < STEPS; step++) {
        tri_tensor *x = rows_of(x_data, IN, 4 * r->index, 4);
        tri_tensor *y = rows_of(y_data, OUT, 4 * r->index, 4);

        tri_backward(tri_mse_loss(tri_forward(model, x), y, NULL));
        TRY(tri_optimizer_step(opt));
        TRY(tri_step_end_status());
        tri_tensor_unref(x);
        tri_tensor_unref(y);
    }
    TRY(tri_ddp_verify(model, true));
    TRY(take_weights(r, model));
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return TRI_OK;
}

static void replicas_train_as_without(void **state)
{
    rank ranks[2][MAX_RANKS];

    (void)state;
    make_data();
    for (int with = 0; with < 2; with++) {
        bool recompute = with != 0;

        run_ranks(ranks[with], 3, train_replica, &recompute);
        check_ranks(ranks[with], 3);
    }
    assert_true(ranks[0][0].hash == ranks[1][0].hash);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_same_bits_as_without),
    cmocka_unit_test(the_same_bits_where_forward_has_run_before),
    cmocka_unit_test(the_same_bits_in_bf16),
    cmocka_unit_test(the_plan_s_memory_falls),
    cmocka_unit_test(batches_are_counted_once),
    cmocka_unit_test(user_code_runs_once_and_regions_nest),
    cmocka_unit_test(a_run_keeps_what_goes_on),
    cmocka_unit_test(a_run_inside_a_region_changes_nothing),
    cmocka_unit_test(two_walks_and_gradients_of_gradients_go_through_a_region),
    cmocka_unit_test(a_region_lasts_over_steps_and_ends_once),
    cmocka_unit_test(without_gradients_a_region_is_nothing),
    cmocka_unit_test(replicas_train_as_without),
};

TEST_MAIN(tests)
