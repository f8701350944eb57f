/*
 * remote_module_test.c - modules on another worker against the same modules here, bit for bit.
 */
#include <math.h>

#include "testing/remote_served.h"

static const tri_rpc_options by_tcp = {.tcp_only = true};

/* One module here, and its copy on worker 1. */
typedef struct pair {
    remote_workers r;
    tri_module *here, *there, *remote;
} pair;

static void pair_begin(pair *p, const tri_rpc_options *opt, tri_module *(*make)(void))
{
    remote_begin(&p->r, 2, opt);
    p->here = make();
    p->there = make();
    remote_copy_state(p->here, p->there);
    CHECK_OK(tri_remote_serve(p->r.w.rpc[1], "net", p->there, NULL, NULL));
    p->remote = tri_remote_module(p->r.w.rpc[0], "w1/net", NULL);
    CHECK_OK(tri_module_status(p->remote));
}

static void pair_end(pair *p)
{
    tri_step_end();
    tri_module_destroy(p->remote);
    CHECK_OK(tri_remote_withdraw(p->r.w.rpc[1], "net"));
    tri_module_destroy(p->here);
    tri_module_destroy(p->there);
    remote_end(&p->r);
}

/* The owner keeps so many graphs, now or soon. */
static void expect_graphs(pair *p, int expected)
{
    served_await(served_as(&p->r, 1, "net"), served_graphs, expected);
}

static tri_module *make_linear(void)
{
    return tri_nn_linear(24, 7, NULL);
}

/* Forward, mean square, backward, both here and there, with x of this type. */
static void compare_step(const pair *p, tri_tensor *x, tri_tensor *rx)
{
    tri_tensor *y = tri_keep(tri_forward(p->here, x));
    tri_tensor *ry = tri_keep(tri_forward(p->remote, rx));

    CHECK_OK(tri_tensor_status(ry));
    tri_backward(remote_loss(tri_cast(y, TRI_DTYPE_F64)));
    tri_backward(remote_loss(tri_cast(ry, TRI_DTYPE_F64)));
    CHECK_OK(tri_run());
    remote_expect_equal(y, ry);
    remote_expect_equal(tri_grad(x), tri_grad(rx));
    tri_step_end();
}

static void compare_types(const pair *p, const int64_t *shape, int ndim, tri_dtype dtype)
{
    tri_tensor *x = remote_tensor(shape, ndim, dtype, 1);
    tri_tensor *rx = remote_tensor(shape, ndim, dtype, 1);

    tri_requires_grad(x, true);
    tri_requires_grad(rx, true);
    for (int step = 0; step < 3; step++)
        compare_step(p, x, rx);
    tri_tensor_unref(x);
    tri_tensor_unref(rx);
}

static void a_linear_layer_has_the_bits_of_one_process(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++) {
        tri_tensor *x, *rx, *target;
        pair p;

        pair_begin(&p, t == 0 ? NULL : &by_tcp, make_linear);
        x = remote_tensor((int64_t[]){5, 24}, 2, TRI_DTYPE_F32, 1);
        rx = remote_tensor((int64_t[]){5, 24}, 2, TRI_DTYPE_F32, 1);
        target = remote_tensor((int64_t[]){5, 7}, 2, TRI_DTYPE_F32, 2);
        tri_requires_grad(x, true);
        tri_requires_grad(rx, true);
        for (int step = 0; step < 3; step++) {
            tri_tensor *y = tri_keep(tri_forward(p.here, x));
            tri_tensor *ry = tri_keep(tri_forward(p.remote, rx));

            CHECK_OK(tri_tensor_status(ry));
            assert_string_equal(tri_tensor_shape_text(ry), "[5, 7]");
            tri_backward(tri_mse_loss(y, target, NULL));
            tri_backward(tri_mse_loss(ry, target, NULL));
            CHECK_OK(tri_run());
            remote_expect_equal(y, ry);
            remote_expect_equal(tri_grad(x), tri_grad(rx));
            assert_null(tri_grad(tri_module_find(p.there, "weight")));
            tri_step_end();
        }
        tri_tensor_unref(x);
        tri_tensor_unref(rx);
        tri_tensor_unref(target);
        pair_end(&p);
    }
}

/* Exact: a plan rounds to 16 bits where a value leaves it, which differs from one process. */
static tri_module *make_relu(void)
{
    return tri_nn_relu();
}

static void all_floating_point_types_and_sizes_travel(void **state)
{
    static const tri_dtype dtypes[] = {TRI_DTYPE_F64, TRI_DTYPE_F32, TRI_DTYPE_BF16, TRI_DTYPE_F16};
    pair p;

    (void)state;
    pair_begin(&p, NULL, make_relu);
    for (size_t i = 0; i < TRII_COUNT_OF(dtypes); i++) {
        compare_types(&p, (int64_t[]){3, 5}, 2, dtypes[i]);
        compare_types(&p, NULL, 0, dtypes[i]);
    }
    expect_graphs(&p, 0);
    pair_end(&p);
}

static void tensors_without_elements_travel(void **state)
{
    tri_tensor *x, *y;
    pair p;

    (void)state;
    pair_begin(&p, NULL, make_linear);
    x = tri_tensor_create((int64_t[]){0, 24}, 2, TRI_DTYPE_F32);
    tri_requires_grad(x, true);
    for (int step = 0; step < 2; step++) {
        y = tri_keep(tri_forward(p.remote, x));
        assert_string_equal(tri_tensor_shape_text(y), "[0, 7]");
        tri_backward(tri_sum(y, NULL, 0, false));
        CHECK_OK(tri_run());
        assert_string_equal(tri_tensor_shape_text(tri_grad(x)), "[0, 24]");
        tri_step_end();
    }
    tri_tensor_unref(x);
    pair_end(&p);
}

static tri_module *make_embedding(void)
{
    return tri_nn_embedding(10, 6, NULL);
}

static void indices_travel_and_get_no_gradient(void **state)
{
    const int64_t at[] = {3, 9, 3, 0};
    tri_tensor *x, *y, *ry;
    pair p;

    (void)state;
    pair_begin(&p, NULL, make_embedding);
    x = tri_tensor_from((int64_t[]){4}, 1, TRI_DTYPE_I64, at);
    y = tri_keep(tri_forward(p.here, x));
    ry = tri_keep(tri_forward(p.remote, x));
    tri_backward(remote_loss(ry));
    CHECK_OK(tri_run());
    remote_expect_equal(y, ry);
    tri_step_end();
    expect_graphs(&p, 0);
    tri_tensor_unref(x);
    pair_end(&p);
}

static void what_the_loss_does_not_reach_is_released(void **state)
{
    tri_tensor *x, *y[6], *loss;
    pair p;

    (void)state;
    pair_begin(&p, NULL, make_linear);
    x = remote_tensor((int64_t[]){5, 24}, 2, TRI_DTYPE_F32, 1);
    tri_requires_grad(x, true);
    for (int step = 0; step < 3; step++) {
        for (int i = 0; i < 6; i++)
            y[i] = tri_forward(p.remote, x);
        loss = remote_loss(tri_add(y[1], y[4]));
        tri_backward(loss);
        assert_true(isfinite(tri_item(loss)));
        expect_graphs(&p, 4); /* two have had their backward */
        tri_step_end();
        expect_graphs(&p, 0);
    }
    /* of no loss at all, and without a run: the step's end runs it */
    (void)tri_forward(p.remote, x);
    CHECK_OK(tri_step_end_status());
    expect_graphs(&p, 0);
    tri_tensor_unref(x);
    pair_end(&p);
}

static void without_gradients_the_owner_keeps_nothing(void **state)
{
    tri_tensor *x, *y, *ry;
    pair p;

    (void)state;
    pair_begin(&p, NULL, make_linear);
    x = remote_tensor((int64_t[]){5, 24}, 2, TRI_DTYPE_F32, 1);
    TRI_NO_GRAD
    {
        y = tri_keep(tri_forward(p.here, x));
        ry = tri_keep(tri_forward(p.remote, x));
    }
    CHECK_OK(tri_run());
    remote_expect_equal(y, ry);
    expect_graphs(&p, 0);
    tri_backward(tri_mean(ry, NULL, 0, false));
    CHECK_FAILS(tri_run(), TRI_ERR_INVALID_ARG, "depends on no tensor that requires a gradient");
    tri_step_end();
    tri_tensor_unref(x);
    pair_end(&p);
}

static void a_second_backward_needs_a_graph_that_was_kept(void **state)
{
    tri_tensor *x, *rx, *y, *ry;
    pair p;

    (void)state;
    pair_begin(&p, NULL, make_linear);
    x = remote_tensor((int64_t[]){5, 24}, 2, TRI_DTYPE_F32, 1);
    rx = remote_tensor((int64_t[]){5, 24}, 2, TRI_DTYPE_F32, 1);
    tri_requires_grad(x, true);
    tri_requires_grad(rx, true);
    y = tri_sum(tri_square(tri_forward(p.here, x)), NULL, 0, false);
    ry = tri_sum(tri_square(tri_forward(p.remote, rx)), NULL, 0, false);
    for (int k = 0; k < 2; k++) {
        tri_backward_of(&y, 1, &(tri_backward_options){.keep_graph = k == 0});
        tri_backward_of(&ry, 1, &(tri_backward_options){.keep_graph = k == 0});
        CHECK_OK(tri_run());
    }
    remote_expect_equal(tri_grad(x), tri_grad(rx));
    tri_step_end();
    expect_graphs(&p, 0);
    tri_tensor_unref(x);
    tri_tensor_unref(rx);
    pair_end(&p);
}

/* --- modes ---------------------------------------------------------------- */

static tri_module *make_random(void)
{
    return tri_nn_sequential(tri_nn_linear(24, 12, NULL), tri_nn_batch_norm1d(12, NULL),
                             tri_nn_dropout(0.4), tri_nn_linear(12, 7, NULL), tri_nn_dropout(0.1));
}

/* Random numbers and running statistics as in one process: both run the same steps. */
static void run_steps(tri_module *net, tri_module *before, tri_tensor *x, float *losses)
{
    tri_manual_seed(5);
    for (int step = 0; step < 6; step++) {
        tri_tensor *loss;

        tri_module_train(net, step != 4);
        loss = remote_loss(tri_forward(net, tri_forward(before, x)));
        if (step != 4)
            tri_backward(loss);
        losses[step] = (float)tri_item(loss);
        tri_step_end();
    }
}

static void random_numbers_and_running_statistics_are_those_of_one_process(void **state)
{
    tri_module *before;
    float here[6], there[6];
    tri_tensor *x;
    pair p;

    (void)state;
    pair_begin(&p, NULL, make_random);
    before = tri_nn_dropout(0.2);
    x = remote_tensor((int64_t[]){8, 24}, 2, TRI_DTYPE_F32, 1);
    run_steps(p.here, before, x, here);
    run_steps(p.remote, before, x, there);
    assert_memory_equal(here, there, sizeof(here));
    remote_expect_equal_state(p.here, p.there);
    tri_tensor_unref(x);
    tri_module_destroy(before);
    pair_end(&p);
}

static void autocast_travels(void **state)
{
    static const tri_dtype to[] = {TRI_DTYPE_BF16, TRI_DTYPE_F16};
    tri_tensor *x, *y, *ry;
    pair p;

    (void)state;
    for (int k = 0; k < 2; k++) { /* what the process keeps for these types */
        tri_module *net = make_linear();

        x = remote_tensor((int64_t[]){5, 24}, 2, TRI_DTYPE_F32, 1);
        TRI_AUTOCAST(to[k])
        {
            (void)tri_keep(tri_forward(net, x));
        }
        CHECK_OK(tri_run());
        tri_step_end();
        tri_tensor_unref(x);
        tri_module_destroy(net);
    }
    pair_begin(&p, NULL, make_linear);
    x = remote_tensor((int64_t[]){5, 24}, 2, TRI_DTYPE_F32, 1);
    for (int k = 0; k < 2; k++) {
        TRI_AUTOCAST(to[k])
        {
            y = tri_keep(tri_forward(p.here, x));
            ry = tri_keep(tri_forward(p.remote, x));
        }
        assert_int_equal(tri_tensor_dtype(ry), to[k]);
        CHECK_OK(tri_run());
        remote_expect_equal(y, ry);
        tri_step_end();
    }
    tri_tensor_unref(x);
    pair_end(&p);
}

/* --- several results ------------------------------------------------------ */

/* Modules that were called with another number of tensors than their program has given. */
static atomic_int n_misfits;

/* in: x, and one that may be absent; out: a sum, indices, a product. */
static void many_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                         int n_out)
{
    (void)self;
    if (n_in != 2 || n_out != 3) {
        atomic_fetch_add(&n_misfits, 1);
        return;
    }
    out[0] = in[1] != NULL ? tri_add(in[0], in[1]) : tri_tanh(in[0]);
    out[1] = tri_argmax(in[0], 1, false);
    out[2] = tri_mul(in[0], in[0]);
}
static const tri_module_class many_class = {.name = "Many", .forward = many_forward};

static tri_module *make_many(void)
{
    return tri_module_create(&many_class);
}

static void compare_many(const pair *p, tri_tensor *const *x, const bool *used)
{
    tri_tensor *y[2][3], *loss;
    tri_tensor *grads[2][2] = {{NULL}};
    tri_module *nets[2] = {p->here, p->remote};
    int n = x[1] != NULL ? 2 : 1;

    for (int k = 0; k < 2; k++) {
        tri_forward_n(nets[k], x, 2, y[k], 3);
        loss = tri_full(NULL, 0, 0, TRI_DTYPE_F32);
        for (int o = 0; o < 3; o += 2) {
            if (used[o])
                loss = tri_add(loss, tri_sum(tri_square(y[k][o]), NULL, 0, false));
        }
        CHECK_OK(tri_gradients(&loss, 1, x, n, &(tri_gradients_options){.allow_unused = true},
                               grads[k]));
        for (int i = 0; i < n; i++) {
            if (grads[k][i] != NULL)
                (void)tri_keep(grads[k][i]);
        }
        for (int o = 0; o < 3; o++)
            (void)tri_keep(y[k][o]);
    }
    CHECK_OK(tri_run());
    for (int o = 0; o < 3; o++)
        remote_expect_equal(y[0][o], y[1][o]);
    for (int i = 0; i < n; i++) {
        /* what lies at an owner counts as reached */
        if (grads[0][i] != NULL)
            remote_expect_equal(grads[0][i], grads[1][i]);
    }
    tri_step_end();
}

static void some_of_the_results_are_used(void **state)
{
    static const bool used[3][3] = {
        {true, false, true}, {true, false, false}, {false, false, true}};
    tri_tensor *x[2];
    pair p;

    (void)state;
    pair_begin(&p, NULL, make_many);
    for (int i = 0; i < 2; i++) {
        x[i] = remote_tensor((int64_t[]){4, 6}, 2, TRI_DTYPE_F32, i + 1);
        tri_requires_grad(x[i], true);
    }
    for (int k = 0; k < 3; k++) {
        compare_many(&p, x, used[k]);
        compare_many(&p, (tri_tensor *[]){x[0], NULL}, used[k]);
    }
    expect_graphs(&p, 0);
    assert_int_equal(atomic_load(&n_misfits), 0);
    for (int i = 0; i < 2; i++)
        tri_tensor_unref(x[i]);
    pair_end(&p);
}

/* out[i]: in[i] times itself. */
static void squares_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                            int n_out)
{
    (void)self;
    atomic_fetch_add(&n_misfits, n_in != 4 || n_out != 4);
    for (int i = 0; i < n_out && i < n_in; i++)
        out[i] = tri_square(in[i]);
}
static const tri_module_class squares_class = {.name = "Squares", .forward = squares_forward};

static tri_module *make_squares(void)
{
    return tri_module_create(&squares_class);
}

static void results_lie_beside_some_without_elements(void **state)
{
    tri_tensor *x[4], *y[2][4], *grads[2][4];
    pair p;

    (void)state;
    pair_begin(&p, NULL, make_squares);
    for (int i = 0; i < 4; i++) {
        x[i] = i % 2 == 0 ? tri_tensor_create((int64_t[]){0, 6}, 2, TRI_DTYPE_F32)
                          : remote_tensor((int64_t[]){4, 6}, 2, TRI_DTYPE_F32, i);
        tri_requires_grad(x[i], true);
    }
    for (int k = 0; k < 2; k++) {
        tri_tensor *loss = tri_full(NULL, 0, 0, TRI_DTYPE_F32);

        tri_forward_n(k == 0 ? p.here : p.remote, x, 4, y[k], 4);
        for (int i = 0; i < 4; i++)
            loss = tri_add(loss, tri_sum(tri_square(tri_keep(y[k][i])), NULL, 0, false));
        CHECK_OK(tri_gradients(&loss, 1, x, 4, NULL, grads[k]));
        for (int i = 0; i < 4; i++)
            (void)tri_keep(grads[k][i]);
    }
    CHECK_OK(tri_run());
    for (int i = 0; i < 4; i++) {
        remote_expect_equal(y[0][i], y[1][i]);
        remote_expect_equal(grads[0][i], grads[1][i]);
    }
    assert_int_equal(atomic_load(&n_misfits), 0);
    tri_step_end();
    for (int i = 0; i < 4; i++)
        tri_tensor_unref(x[i]);
    pair_end(&p);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_linear_layer_has_the_bits_of_one_process),
    cmocka_unit_test(all_floating_point_types_and_sizes_travel),
    cmocka_unit_test(tensors_without_elements_travel),
    cmocka_unit_test(indices_travel_and_get_no_gradient),
    cmocka_unit_test(what_the_loss_does_not_reach_is_released),
    cmocka_unit_test(without_gradients_the_owner_keeps_nothing),
    cmocka_unit_test(a_second_backward_needs_a_graph_that_was_kept),
    cmocka_unit_test(random_numbers_and_running_statistics_are_those_of_one_process),
    cmocka_unit_test(autocast_travels),
    cmocka_unit_test(some_of_the_results_are_used),
    cmocka_unit_test(results_lie_beside_some_without_elements),
};

TEST_MAIN(tests)
