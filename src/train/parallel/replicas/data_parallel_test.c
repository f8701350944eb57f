/* data_parallel_test.c - a network on several devices against the network alone. */
#include <string.h>

#include <trireme/trireme.h>

#include "base/compiler.h"
#include "train/plan/plan.h"
#include "testing/check.h"

#define IN 6
#define OUT 3
#define STEPS 10

/* --- what a module sees --------------------------------------------------- */

typedef struct seen {
    int64_t rows[16];
    tri_device device[16];
    int n;
} seen;

static seen pieces;

static tri_tensor *look(tri_module *self, tri_tensor *x)
{
    (void)self;
    assert_true(pieces.n < 16);
    pieces.rows[pieces.n] = tri_tensor_size(x, 0);
    pieces.device[pieces.n++] = tri_tensor_device(x);
    return x;
}

static tri_module *looking(tri_module *net)
{
    return tri_nn_sequential(tri_module_simple("Look", 0, look), net);
}

static tri_tensor *rows(int64_t n, int64_t columns, int seed)
{
    double data[1024];

    assert_true(n * columns <= 1024);
    for (int64_t i = 0; i < n * columns; i++)
        data[i] = (double)((i * 7 + seed * 13) % 23 - 11) / 11;
    return tri_tensor_from((int64_t[]){n, columns}, 2, TRI_DTYPE_F64, data);
}

static void expect_pieces(int64_t n, int devices, const int64_t *expected, int n_expected)
{
    const tri_device ids[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    tri_module *model =
        tri_data_parallel(looking(tri_nn_linear(IN, OUT, NULL)),
                          &(tri_data_parallel_options){.device_ids = ids, .n_devices = devices});
    tri_tensor *x = rows(n, IN, 1), *y;

    pieces.n = 0;
    y = tri_forward(model, tri_cast(x, TRI_DTYPE_F32));
    CHECK_OK(tri_tensor_status(y));
    assert_int_equal(tri_tensor_size(y, 0), n);
    assert_int_equal(tri_tensor_size(y, 1), OUT);
    assert_int_equal(tri_tensor_device(y), TRI_CPU(0));
    assert_int_equal(pieces.n, n_expected);
    for (int i = 0; i < n_expected; i++) {
        assert_int_equal(pieces.rows[i], expected[i]);
        assert_int_equal(pieces.device[i], TRI_CPU(i));
    }
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
    tri_module_destroy(model);
}

static void a_batch_is_cut_as_torch_cuts_it(void **state)
{
    (void)state;
    CHECK_OK(tri_cpu_devices_set(8));
    expect_pieces(30, 4, (int64_t[]){8, 8, 8, 6}, 4);
    expect_pieces(10, 4, (int64_t[]){3, 3, 3, 1}, 4);
    expect_pieces(10, 8, (int64_t[]){2, 2, 2, 2, 2}, 5);
    expect_pieces(64, 4, (int64_t[]){16, 16, 16, 16}, 4);
    expect_pieces(1, 8, (int64_t[]){1}, 1);
    expect_pieces(0, 4, (int64_t[]){0}, 1);
    expect_pieces(7, 1, (int64_t[]){7}, 1);
}

/* --- training ------------------------------------------------------------- */

typedef struct run {
    double losses[STEPS];
    double state[1024];
    int n_state;
} run;

typedef tri_module *(*builder)(void);

static tri_module *mlp(void)
{
    return tri_nn_sequential(tri_nn_linear(IN, 8, NULL), tri_nn_tanh(),
                             tri_nn_linear(8, OUT, NULL));
}

static tri_tensor *to_image(tri_module *self, tri_tensor *x)
{
    (void)self;
    return tri_reshape(x, TRI_SHAPE(-1, 1, 2, 3));
}

static tri_module *norms(void)
{
    return tri_nn_sequential(tri_module_simple("Image", 0, to_image), tri_nn_conv2d(1, 4, 2, NULL),
                             tri_nn_batch_norm2d(4, NULL), tri_nn_relu(), tri_nn_flatten(1),
                             tri_nn_linear(8, OUT, NULL));
}

/* One weight, used three times, in a loop. */
typedef struct tied {
    tri_module *layer;
} tied;

static void tied_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                         int n_out)
{
    const tied *t = tri_module_data(self);

    (void)n_in;
    (void)n_out;
    out[0] = in[0];
    for (int i = 0; i < 3; i++)
        out[0] = tri_tanh(tri_forward(t->layer, out[0]));
    out[0] = tri_narrow(out[0], 1, 0, OUT);
}

static tri_module *thrice(void)
{
    static const tri_module_class type = {
        .name = "Thrice", .size = sizeof(tied), .forward = tied_forward};
    tri_module *self = tri_module_create(&type);

    ((tied *)tri_module_data(self))->layer =
        tri_module_add_child(self, "layer", tri_nn_linear(IN, IN, NULL));
    return self;
}

/* More tensors than the table of copies begins with, and values made from nothing between. */
static tri_tensor *with_ones(tri_module *self, tri_tensor *x)
{
    (void)self;
    return tri_add(x, tri_mul_scalar(tri_ones(TRI_SHAPE(IN), TRI_DTYPE_F64), 0.25));
}

static tri_module *deep(void)
{
    tri_module *layers[14];

    for (int i = 0; i < 12; i++)
        layers[i] = tri_nn_linear(IN, IN, NULL);
    layers[12] = tri_module_simple("WithOnes", 0, with_ones);
    layers[13] = tri_nn_linear(IN, OUT, NULL);
    return tri_nn_sequential_of(14, layers);
}

static void keep_state(run *r, tri_module *model)
{
    r->n_state = 0;
    for (int64_t i = 0; i < tri_module_state_count(model); i++) {
        tri_state_entry entry = tri_module_state(model, i);
        int64_t n = tri_tensor_numel(entry.tensor);

        if (tri_tensor_dtype(entry.tensor) != TRI_DTYPE_F64)
            continue;
        assert_true(r->n_state + n <= 1024);
        memcpy(r->state + r->n_state, tri_data(entry.tensor), (size_t)n * sizeof(double));
        r->n_state += (int)n;
    }
}

/* micro: batches before each update. n_devices 0 = the plain network. */
static void train(builder build, int n_devices, int micro, run *r)
{
    const tri_device ids[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    tri_module *model;
    tri_optimizer *opt;

    tri_manual_seed(4);
    tri_set_default_dtype(TRI_DTYPE_F64);
    model = build();
    tri_set_default_dtype(TRI_DTYPE_F32);
    if (n_devices > 0)
        model = tri_data_parallel(
            model, &(tri_data_parallel_options){.device_ids = ids, .n_devices = n_devices});
    opt = tri_sgd(model, 0.1, &(tri_sgd_options){.momentum = 0.9});
    for (int s = 0; s < STEPS; s++) {
        tri_tensor *loss = NULL;

        for (int m = 0; m < micro; m++) {
            tri_tensor *x = rows(11 + 5 * (s % 3), IN, 2 * s + m);
            tri_tensor *y = rows(11 + 5 * (s % 3), OUT, 2 * s + m + 1);

            loss = tri_mse_loss(tri_forward(model, x), y, NULL);
            tri_backward(loss);
            tri_tensor_unref(x);
            tri_tensor_unref(y);
        }
        CHECK_OK(tri_optimizer_step(opt));
        r->losses[s] = tri_item(loss);
        CHECK_OK(tri_step_end_status());
    }
    keep_state(r, model);
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
}

static void expect_like_alone(builder build, int micro)
{
    static const int devices[] = {1, 2, 3, 4, 8};
    run alone;

    CHECK_OK(tri_cpu_devices_set(8));
    train(build, 0, micro, &alone);
    assert_true(alone.losses[STEPS - 1] < alone.losses[0]);
    for (size_t d = 0; d < TRII_COUNT_OF(devices); d++) {
        run got;

        train(build, devices[d], micro, &got);
        assert_int_equal(got.n_state, alone.n_state);
        for (int s = 0; s < STEPS; s++)
            CHECK_NEAR(got.losses[s], alone.losses[s], 1e-12);
        for (int i = 0; i < got.n_state; i++)
            CHECK_NEAR(got.state[i], alone.state[i], 1e-12);
    }
}

static void any_number_of_devices_trains_like_one(void **state)
{
    (void)state;
    expect_like_alone(mlp, 1);
}

static void gradients_of_two_batches_add_up(void **state)
{
    (void)state;
    expect_like_alone(mlp, 2);
}

static void a_weight_that_is_used_thrice(void **state)
{
    (void)state;
    expect_like_alone(thrice, 1);
}

static void a_deep_network(void **state)
{
    (void)state;
    expect_like_alone(deep, 1);
}

static tri_module *inside_of_ddp(void)
{
    return tri_ddp(tri_data_parallel(mlp(), NULL), NULL);
}

static void data_parallel_in_ddp_trains_like_one_process(void **state)
{
    run alone, got;

    (void)state;
    CHECK_OK(tri_cpu_devices_set(3));
    train(mlp, 0, 1, &alone);
    train(inside_of_ddp, 0, 1, &got);
    for (int s = 0; s < STEPS; s++)
        CHECK_NEAR(got.losses[s], alone.losses[s], 1e-12);
    for (int i = 0; i < alone.n_state; i++)
        CHECK_NEAR(got.state[i], alone.state[i], 1e-12);
}

/* --- buffers -------------------------------------------------------------- */

/* The first piece's statistics, as if there were no others. */
static void running_statistics_are_the_first_pieces(void **state)
{
    const tri_device ids[2] = {0, 1};
    double mean[2][4];
    int64_t tracked[2];

    (void)state;
    CHECK_OK(tri_cpu_devices_set(2));
    for (int parallel = 0; parallel < 2; parallel++) {
        tri_tensor *all = rows(10, IN, 1), *x = all;
        tri_module *model;

        tri_manual_seed(4);
        tri_set_default_dtype(TRI_DTYPE_F64);
        model = norms();
        tri_set_default_dtype(TRI_DTYPE_F32);
        if (parallel)
            model = tri_data_parallel(
                model, &(tri_data_parallel_options){.device_ids = ids, .n_devices = 2});
        for (int s = 0; s < 3; s++) {
            if (!parallel)
                x = tri_narrow(all, 0, 0, 5);
            CHECK_OK(tri_tensor_status(tri_forward(model, x)));
            CHECK_OK(tri_step_end_status());
        }
        memcpy(mean[parallel], tri_data(tri_module_find(model, "2.running_mean")), sizeof(mean[0]));
        tracked[parallel] =
            *(const int64_t *)tri_data(tri_module_find(model, "2.num_batches_tracked"));
        tri_tensor_unref(all);
        tri_module_destroy(model);
    }
    assert_int_equal(tracked[0], 3);
    assert_int_equal(tracked[1], 3);
    assert_true(mean[0][0] != 0);
    for (int c = 0; c < 4; c++)
        CHECK_NEAR(mean[1][c], mean[0][c], 0);
}

/* --- around it ------------------------------------------------------------ */

/* Copies that were made without gradients serve no training in the same step. */
static void a_forward_without_gradients_before_one_with(void **state)
{
    tri_module *model;
    tri_tensor *x = rows(4, IN, 1), *bias;

    (void)state;
    CHECK_OK(tri_cpu_devices_set(2));
    tri_set_default_dtype(TRI_DTYPE_F64);
    model = tri_data_parallel(tri_nn_linear(IN, OUT, NULL), NULL);
    tri_set_default_dtype(TRI_DTYPE_F32);
    tri_no_grad_begin();
    CHECK_OK(tri_tensor_status(tri_forward(model, x)));
    tri_no_grad_end();
    tri_backward(tri_sum(tri_forward(model, x), NULL, 0, false));
    bias = tri_grad(tri_module_find(model, "bias"));
    CHECK_NEAR(tri_item(tri_select(bias, 0, 0)), 4, 0);
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
    tri_module_destroy(model);
}

/* What a run has not kept is copied again for a later reader in the step. */
static void a_forward_after_a_run_in_the_same_step(void **state)
{
    tri_module *model;
    tri_tensor *x = rows(6, IN, 1), *loss;
    double first;

    (void)state;
    CHECK_OK(tri_cpu_devices_set(3));
    tri_set_default_dtype(TRI_DTYPE_F64);
    model = tri_data_parallel(mlp(), NULL);
    tri_set_default_dtype(TRI_DTYPE_F32);
    tri_no_grad_begin();
    first = tri_item(tri_sum(tri_forward(model, x), NULL, 0, false));
    CHECK_NEAR(tri_item(tri_sum(tri_forward(model, x), NULL, 0, false)), first, 1e-12);
    tri_no_grad_end();
    loss = tri_sum(tri_forward(model, x), NULL, 0, false);
    CHECK_NEAR(tri_item(loss), first, 1e-12);
    tri_no_grad_begin();
    for (int again = 0; again < 2; again++)
        CHECK_NEAR(tri_item(tri_sum(tri_forward(model, x), NULL, 0, false)), first, 1e-12);
    tri_no_grad_end();
    tri_module_set_recompute(tri_module_unwrapped(model), true);
    for (int again = 0; again < 2; again++) {
        loss = tri_sum(tri_forward(model, x), NULL, 0, false);
        tri_backward(loss);
        CHECK_NEAR(tri_item(loss), first, 1e-12);
    }
    CHECK_NEAR(tri_item(tri_select(tri_grad(tri_module_find(model, "2.bias")), 0, 0)), 12, 1e-12);
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
    tri_module_destroy(model);
}

/* More than 2^22 elements, which do not divide evenly. */
static void a_large_batch(void **state)
{
    tri_module *model;
    tri_tensor *x = tri_tensor_create((int64_t[]){(1 << 20) + 3, 4}, 2, TRI_DTYPE_F32), *y;

    (void)state;
    CHECK_OK(tri_cpu_devices_set(2));
    CHECK_OK(tri_init_constant(x, 2.0));
    model = tri_data_parallel(tri_nn_relu(), NULL);
    y = tri_forward(model, x);
    assert_int_equal(tri_tensor_size(y, 0), (1 << 20) + 3);
    CHECK_NEAR(tri_item(tri_sum(y, NULL, 0, false)), 8.0 * ((1 << 20) + 3), 64);
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
    tri_module_destroy(model);
}

/* cpu devices share their memory: what is copied is the results, which are put together. */
static void parameters_and_gradients_are_not_copied(void **state)
{
    tri_module *model;
    tri_optimizer *opt;
    tri_tensor *x = rows(10, IN, 1), *y = rows(10, OUT, 2);

    (void)state;
    CHECK_OK(tri_cpu_devices_set(2));
    tri_set_default_dtype(TRI_DTYPE_F64);
    model = tri_data_parallel(mlp(), NULL);
    tri_set_default_dtype(TRI_DTYPE_F32);
    opt = tri_sgd(model, 0.1, &(tri_sgd_options){.momentum = 0.9});
    for (int s = 0; s < 2; s++) {
        tri_backward(tri_mse_loss(tri_forward(model, x), y, NULL));
        CHECK_OK(tri_optimizer_step(opt));
        assert_true(trii_plan_stats_get().copied_bytes <= 10 * OUT * sizeof(double));
        CHECK_OK(tri_step_end_status());
    }
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
}

static void one_layer_is_wrapped(void **state)
{
    const tri_device ids[3] = {0, 1, 2};
    tri_module *model;
    tri_tensor *x = rows(7, IN, 1);
    FILE *file = tmpfile();
    char text[512];
    size_t n;

    (void)state;
    CHECK_OK(tri_cpu_devices_set(3));
    pieces.n = 0;
    model = tri_nn_sequential(
        tri_nn_linear(IN, 4, NULL),
        tri_data_parallel(looking(tri_nn_linear(4, 4, NULL)),
                          &(tri_data_parallel_options){.device_ids = ids, .n_devices = 3}),
        tri_nn_linear(4, OUT, NULL));
    CHECK_OK(tri_tensor_status(tri_forward(model, tri_cast(x, TRI_DTYPE_F32))));
    assert_int_equal(pieces.n, 3);
    assert_non_null(tri_module_find(model, "1.1.weight"));
    CHECK_OK(tri_step_end_status());
    tri_module_print(model, file);
    rewind(file);
    n = fread(text, 1, sizeof(text) - 1, file);
    text[n] = '\0';
    fclose(file);
    assert_non_null(strstr(text, "(1): DataParallel(\n    (module): Sequential("));
    tri_tensor_unref(x);
    tri_module_destroy(model);
}

static tri_tensor *square_mean(tri_module *self, tri_tensor *x)
{
    (void)self;
    return tri_mean(tri_mul(x, x), NULL, 0, false);
}

static void scalars_become_a_vector(void **state)
{
    tri_module *model;
    tri_tensor *x = rows(5, IN, 1), *y;

    (void)state;
    CHECK_OK(tri_cpu_devices_set(2));
    model = tri_data_parallel(tri_module_simple("Mean", 0, square_mean), NULL);
    y = tri_forward(model, x);
    assert_int_equal(tri_tensor_ndim(y), 1);
    assert_int_equal(tri_tensor_size(y, 0), 2);
    assert_int_equal(tri_tensor_ndim(tri_forward(model, tri_narrow(x, 0, 0, 1))), 0);
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
    tri_module_destroy(model);
}

/* From a device to which nothing of it belongs, along another dimension. */
static void results_are_where_and_as_they_are_wanted(void **state)
{
    const tri_device ids[2] = {1, 2}, output = TRI_CPU(3);
    tri_module *model = NULL;
    tri_tensor *x = rows(3, 4, 1), *y;
    double got[12];

    (void)state;
    CHECK_OK(tri_cpu_devices_set(4));
    TRI_ON(TRI_CPU(1))
    model = tri_data_parallel(
        tri_nn_relu(), &(tri_data_parallel_options){
                           .device_ids = ids, .n_devices = 2, .output_device = &output, .dim = -1});
    y = tri_forward(model, x);
    assert_int_equal(tri_tensor_device(y), TRI_CPU(3));
    assert_int_equal(tri_tensor_size(y, 1), 4);
    CHECK_OK(tri_tensor_copy_out(y, got, sizeof(got)));
    for (int i = 0; i < 12; i++) {
        double in = ((const double *)tri_data(x))[i];

        CHECK_NEAR(got[i], in > 0 ? in : 0, 0);
    }
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
    tri_module_destroy(model);
}

/* --- mistakes ------------------------------------------------------------- */

static void expect_refused(const tri_data_parallel_options *opt, const char *words)
{
    tri_module *model = tri_data_parallel(tri_nn_linear(IN, OUT, NULL), opt);

    CHECK_FAILS(tri_module_status(model), TRI_ERR_INVALID_ARG, words);
    tri_module_destroy(model);
}

static void wrong_options_are_named(void **state)
{
    const tri_device twice[3] = {0, 1, 0}, far[2] = {0, TRI_CPU(7)}, there = TRI_CPU(5);
    tri_module *none;

    (void)state;
    CHECK_OK(tri_cpu_devices_set(2));
    expect_refused(&(tri_data_parallel_options){.device_ids = twice, .n_devices = 3},
                   "tri_data_parallel: device_ids[0] and [2] are both cpu:0");
    expect_refused(&(tri_data_parallel_options){.device_ids = far, .n_devices = 2}, "cpu:7");
    expect_refused(&(tri_data_parallel_options){.output_device = &there}, "cpu:5");
    expect_refused(&(tri_data_parallel_options){.device_ids = twice}, "n_devices is 0");
    expect_refused(&(tri_data_parallel_options){.n_devices = 2}, "device_ids is NULL");
    none = tri_data_parallel(NULL, NULL);
    CHECK_FAILS(tri_module_status(none), TRI_ERR_INVALID_ARG, "own_net is NULL");
    tri_module_destroy(none);
    none = tri_data_parallel(tri_nn_linear(-1, 2, NULL), NULL);
    CHECK_FAILS(tri_module_status(none), TRI_ERR_INVALID_ARG, "-1");
    assert_true(tri_last_error()[0] != ':'); /* the network in it has no name */
    tri_module_destroy(none);
    none = tri_data_parallel(tri_nn_linear(IN, OUT, NULL), NULL);
    CHECK_FAILS(tri_module_load(none, NULL, 0, NULL), TRI_ERR_INVALID_ARG,
                "state does not fit Linear: missing: weight, bias");
    tri_module_destroy(none);
}

static tri_tensor *turn(tri_module *self, tri_tensor *x)
{
    (void)self;
    return tri_transpose(x, 0, 1);
}

static tri_tensor *flatten(tri_module *self, tri_tensor *x)
{
    (void)self;
    return tri_reshape(x, TRI_SHAPE(-1));
}

static void forward_fails(tri_module *model, tri_tensor *const *in, int n_in, const char *words)
{
    tri_tensor *out;

    tri_forward_n(model, in, n_in, &out, 1);
    CHECK_FAILS(tri_tensor_status(out), TRI_ERR_INVALID_ARG, words);
    tri_step_end();
}

/* What each replica gives is not always what fits along the dimension of the samples. */
static void results_that_do_not_fit_are_named(void **state)
{
    tri_module *turned, *flat;
    tri_tensor *x = rows(5, IN, 1);

    (void)state;
    CHECK_OK(tri_cpu_devices_set(2));
    turned = tri_data_parallel(tri_module_simple("Turned", 0, turn), NULL);
    forward_fails(turned, &x, 1,
                  "result 0 of the replicas is put together along dimension 0 (dim): tri_concat");
    flat = tri_data_parallel(tri_module_simple("Flat", 0, flatten),
                             &(tri_data_parallel_options){.dim = 1});
    forward_fails(flat, &x, 1,
                  "result 0 of the replicas is put together along dimension 1 (dim): tri_concat");
    tri_tensor_unref(x);
    tri_module_destroy(turned);
    tri_module_destroy(flat);
}

static void wrong_inputs_are_named(void **state)
{
    tri_module *model;
    tri_tensor *x = rows(4, IN, 1), *y = rows(5, IN, 1), *narrow = rows(4, IN - 1, 1);

    (void)state;
    CHECK_OK(tri_cpu_devices_set(2));
    tri_set_default_dtype(TRI_DTYPE_F64);
    model = tri_data_parallel(tri_nn_sequential(tri_nn_linear(IN, OUT, NULL)), NULL);
    tri_set_default_dtype(TRI_DTYPE_F32);
    forward_fails(model, (tri_tensor *[]){x, y}, 2,
                  "input 1 has 5 samples in dimension 0, input 0 4");
    forward_fails(model, (tri_tensor *[]){NULL, x, NULL, y}, 4,
                  "input 3 has 5 samples in dimension 0, input 1 4");
    forward_fails(model, (tri_tensor *[]){NULL}, 1, "NULL");
    forward_fails(model, (tri_tensor *[]){narrow}, 1, "replica 0 on cpu:0");
    forward_fails(model, (tri_tensor *[]){tri_sum(x, NULL, 0, false)}, 1,
                  "input 0 has 0 dimensions, and is to be cut along dimension 0");
    CHECK_OK(tri_module_to(model, TRI_CPU(1)));
    forward_fails(model, &x, 1, "0.weight lies on cpu:1, and device_ids[0] is cpu:0");
    CHECK_OK(tri_module_to(model, TRI_CPU(0)));
    CHECK_OK(tri_tensor_status(tri_forward(model, x)));
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    tri_tensor_unref(narrow);
    tri_module_destroy(model);
}

/* Attention, whose masks and second and third inputs may be left out. */
static void inputs_may_be_left_out(void **state)
{
    const tri_device ids[3] = {0, 1, 2};
    enum { ROWS = 5, POSITIONS = 3, WIDTH = 8, N = ROWS * POSITIONS * WIDTH };
    const bool padded[ROWS * POSITIONS] = {[2] = true, [7] = true, [13] = true};
    double expected[2][N], got[N];

    (void)state;
    CHECK_OK(tri_cpu_devices_set(3));
    for (int devices = 0; devices < 4; devices++) {
        tri_tensor *flat = rows(ROWS * POSITIONS, WIDTH, 3), *x, *in[5], *y;
        tri_tensor *mask = tri_tensor_from(TRI_SHAPE(ROWS, POSITIONS), TRI_DTYPE_BOOL, padded);
        tri_module *net;

        tri_manual_seed(2);
        tri_set_default_dtype(TRI_DTYPE_F64);
        net = tri_nn_multihead_attention(WIDTH, 2, NULL);
        tri_set_default_dtype(TRI_DTYPE_F32);
        if (devices > 0)
            net = tri_data_parallel(
                net, &(tri_data_parallel_options){.device_ids = ids, .n_devices = devices});
        for (int masked = 0; masked < 2; masked++) {
            x = tri_reshape(flat, TRI_SHAPE(ROWS, POSITIONS, WIDTH));
            in[0] = in[1] = in[2] = x;
            in[3] = masked != 0 ? mask : NULL;
            in[4] = NULL;
            tri_forward_n(net, in, 5, &y, 1);
            CHECK_OK(tri_tensor_copy_out(y, devices > 0 ? got : expected[masked], sizeof(got)));
            for (int i = 0; i < N && devices > 0; i++)
                CHECK_NEAR(got[i], expected[masked][i], 1e-12);
            CHECK_OK(tri_step_end_status());
        }
        tri_module_destroy(net);
        tri_tensor_unref(flat);
        tri_tensor_unref(mask);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_batch_is_cut_as_torch_cuts_it),
        cmocka_unit_test(any_number_of_devices_trains_like_one),
        cmocka_unit_test(gradients_of_two_batches_add_up),
        cmocka_unit_test(a_weight_that_is_used_thrice),
        cmocka_unit_test(a_deep_network),
        cmocka_unit_test(data_parallel_in_ddp_trains_like_one_process),
        cmocka_unit_test(running_statistics_are_the_first_pieces),
        cmocka_unit_test(a_forward_without_gradients_before_one_with),
        cmocka_unit_test(a_forward_after_a_run_in_the_same_step),
        cmocka_unit_test(a_large_batch),
        cmocka_unit_test(parameters_and_gradients_are_not_copied),
        cmocka_unit_test(one_layer_is_wrapped),
        cmocka_unit_test(scalars_become_a_vector),
        cmocka_unit_test(results_are_where_and_as_they_are_wanted),
        cmocka_unit_test(wrong_options_are_named),
        cmocka_unit_test(results_that_do_not_fit_are_named),
        cmocka_unit_test(wrong_inputs_are_named),
        cmocka_unit_test(inputs_may_be_left_out),
    };

    return test_main(argc, argv, tests, TRII_COUNT_OF(tests));
}
