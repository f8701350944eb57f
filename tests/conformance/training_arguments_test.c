/*
 * training_arguments_test.c - every function of tensor.h, ops.h, nn.h, optim.h and parallel.h with
 * NULL, negative sizes and numbers out of range: a status or a failed handle whose line names what
 * is wrong, never a crash.
 */
/* ctest: threads=none */
#include <math.h>

#include <trireme/trireme.h>

#include "testing/check.h"

/* The call gives INVALID_ARG, with a line that contains the text. */
static void refused(const char *call, tri_status status, const char *says)
{
    if (status != TRI_ERR_INVALID_ARG)
        fail_msg("%s: %s: %s", call, tri_status_name(status), tri_last_error());
    if (strstr(tri_last_error(), says) == NULL)
        fail_msg("%s: \"%s\" does not say \"%s\"", call, tri_last_error(), says);
}

#define STATUS(call, says) refused(#call, call, says)
#define UNSUPPORTED(call, says) CHECK_FAILS(call, TRI_ERR_UNSUPPORTED, says)
#define TENSOR(call, says) refused(#call, status_of(call), says)
#define MODULE(call, says) refused(#call, status_of_module(call), says)
/* What has no status fails the step. */
#define STEP(call, says) refused(#call, ((void)(call), tri_step_end_status()), says)

static tri_status status_of(tri_tensor *own_tensor)
{
    tri_status status = tri_tensor_status(own_tensor);

    tri_tensor_unref(own_tensor);
    return status;
}

static tri_status status_of_module(tri_module *own_module)
{
    tri_status status = tri_module_status(own_module);

    tri_module_destroy(own_module);
    return status;
}

static tri_tensor *x, *image, *target; /* f32 [2, 3], f32 [1, 2, 4, 4], i64 [2] */

static int set_up(void **state)
{
    (void)state;
    x = tri_tensor_create((int64_t[]){2, 3}, 2, TRI_DTYPE_F32);
    image = tri_tensor_create((int64_t[]){1, 2, 4, 4}, 4, TRI_DTYPE_F32);
    target = tri_tensor_create((int64_t[]){2}, 1, TRI_DTYPE_I64);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tri_step_end();
    tri_tensor_unref(x);
    tri_tensor_unref(image);
    tri_tensor_unref(target);
    return 0;
}

static void tensors(void **state)
{
    const int64_t two = 2, minus = -1;
    float room[6] = {0};

    (void)state;
    TENSOR(tri_tensor_create(NULL, 1, TRI_DTYPE_F32), "shape is NULL");
    TENSOR(tri_tensor_create(&two, -1, TRI_DTYPE_F32), "-1 dimensions");
    TENSOR(tri_tensor_create(&two, 9, TRI_DTYPE_F32), "9 dimensions");
    TENSOR(tri_tensor_create(&minus, 1, TRI_DTYPE_F32), "size -1 of dimension 0");
    TENSOR(tri_tensor_create(&two, 1, TRI_DTYPE_NONE), "dtype");
    TENSOR(tri_tensor_create(&two, 1, (tri_dtype)99), "dtype 99");
    TENSOR(tri_tensor_from(&two, 1, TRI_DTYPE_F32, NULL), "data is NULL");
    TENSOR(tri_tensor_from(NULL, 1, TRI_DTYPE_F32, room), "shape is NULL");
    assert_null(tri_tensor_ref(NULL));
    tri_tensor_unref(NULL);
    assert_int_equal(tri_tensor_dtype(NULL), TRI_DTYPE_NONE);
    assert_int_equal(tri_tensor_ndim(NULL), -1);
    assert_int_equal(tri_tensor_size(NULL, 0), -1);
    assert_int_equal(tri_tensor_size(x, 2), -1);
    assert_int_equal(tri_tensor_size(x, -3), -1);
    assert_int_equal(tri_tensor_size(x, INT32_MIN), -1);
    assert_int_equal(tri_tensor_numel(NULL), -1);
    assert_int_equal(tri_tensor_device(NULL), -1);
    STATUS(tri_tensor_status(NULL), "tensor is NULL");
    STATUS(tri_tensor_copy_in(NULL, room, sizeof(room)), "tensor is NULL");
    STATUS(tri_tensor_copy_in(x, NULL, sizeof(room)), "data is NULL");
    STATUS(tri_tensor_copy_in(x, room, 5), "5 bytes");
    STATUS(tri_tensor_copy_out(NULL, room, sizeof(room)), "tensor is NULL");
    STATUS(tri_tensor_copy_out(x, NULL, sizeof(room)), "data is NULL");
    STATUS(tri_tensor_copy_out(x, room, 5), "5 bytes");
    assert_true(isnan(tri_item(NULL)));
    assert_non_null(strstr(tri_last_error(), "tensor is NULL"));
    assert_true(isnan(tri_item(x)));
    TENSOR(tri_keep(NULL), "tensor is NULL");
    TENSOR(tri_tensor_clone(NULL), "tensor is NULL");
}

static void empty_tensors_need_no_data(void **state)
{
    tri_tensor *empty = tri_tensor_from((int64_t[]){0, 3}, 2, TRI_DTYPE_F32, NULL);

    (void)state;
    CHECK_OK(tri_tensor_status(empty));
    CHECK_OK(tri_tensor_copy_in(empty, NULL, 0));
    CHECK_OK(tri_tensor_copy_out(empty, NULL, 0));
    tri_tensor_unref(empty);
}

static void steps_and_gradients(void **state)
{
    (void)state;
    tri_requires_grad(NULL, true); /* nothing to fail */
    CHECK_OK(tri_step_end_status());
    STEP(tri_requires_grad(target, true), "only persistent floating-point tensors");
    STEP(tri_backward(NULL), "loss is NULL");
    STEP(tri_backward_of(&(tri_tensor *){NULL}, 1, NULL), "outputs[0] is NULL");
    STEP(tri_backward_of(NULL, 1, NULL), "1 outputs at NULL");
    tri_requires_grad(x, true);
    STEP(tri_backward_of(&(tri_tensor *){tri_sum(x, NULL, 0, false)}, 1,
                         &(tri_backward_options){.count = &(int64_t){-1}}),
         "count -1");
    assert_null(tri_grad(NULL));
    assert_null(tri_grad(x));
    tri_no_grad_end(); /* one too many */
    CHECK_FAILS(tri_step_end_status(), TRI_ERR_STATE, "tri_no_grad_end without");
    STEP(tri_autocast_begin(TRI_DTYPE_I64), "i64");
    tri_autocast_end();
    tri_step_end();
    STEP(tri_autocast_begin((tri_dtype)99), "dtype");
    tri_autocast_end();
    tri_step_end();
}

static void element_wise(void **state)
{
    (void)state;
    TENSOR(tri_add(NULL, x), "tri_add(NULL, f32 [2, 3])");
    TENSOR(tri_add(x, NULL), "argument 1 is NULL");
    TENSOR(tri_sub(NULL, NULL), "argument 0 is NULL");
    TENSOR(tri_mul(x, NULL), "argument 1 is NULL");
    TENSOR(tri_div(x, NULL), "argument 1 is NULL");
    TENSOR(tri_maximum(NULL, x), "argument 0 is NULL");
    TENSOR(tri_minimum(NULL, x), "argument 0 is NULL");
    TENSOR(tri_add_scalar(NULL, 1), "argument 0 is NULL");
    TENSOR(tri_mul_scalar(NULL, 1), "argument 0 is NULL");
    TENSOR(tri_neg(NULL), "argument 0 is NULL");
    TENSOR(tri_abs(NULL), "argument 0 is NULL");
    TENSOR(tri_square(NULL), "argument 0 is NULL");
    TENSOR(tri_sqrt(NULL), "argument 0 is NULL");
    TENSOR(tri_exp(NULL), "argument 0 is NULL");
    TENSOR(tri_log(NULL), "argument 0 is NULL");
    TENSOR(tri_relu(NULL), "argument 0 is NULL");
    TENSOR(tri_leaky_relu(NULL, 0.1), "argument 0 is NULL");
    TENSOR(tri_sigmoid(NULL), "argument 0 is NULL");
    TENSOR(tri_tanh(NULL), "argument 0 is NULL");
    TENSOR(tri_gelu(NULL, TRI_GELU_ERF), "argument 0 is NULL");
    TENSOR(tri_gelu(x, (tri_gelu_form)2), "form 2");
    TENSOR(tri_silu(NULL), "argument 0 is NULL");
    TENSOR(tri_cast(NULL, TRI_DTYPE_F64), "argument 0 is NULL");
    TENSOR(tri_cast(x, (tri_dtype)99), "99");
    TENSOR(tri_cast(x, (tri_dtype)-1), "-1");
    TENSOR(tri_dropout(NULL, 0.5, true), "argument 0 is NULL");
    TENSOR(tri_dropout(NULL, 0.5, false), "argument 0 is NULL");
    TENSOR(tri_dropout(x, -0.1, true), "-0.1");
    TENSOR(tri_dropout(x, 1.5, true), "1.5");
    TENSOR(tri_dropout(x, (double)NAN, true), "nan");
}

static void shapes(void **state)
{
    const int64_t sizes[2] = {-2, 3};
    const int64_t dims[2] = {0, 1}, far[2] = {0, 7};

    (void)state;
    TENSOR(tri_reshape(NULL, (const int64_t[]){6}, 1), "argument 0 is NULL");
    TENSOR(tri_reshape(x, NULL, 1), "shape is NULL");
    TENSOR(tri_reshape(x, sizes, -1), "-1 dimensions");
    TENSOR(tri_reshape(x, sizes, 9), "9 dimensions");
    TENSOR(tri_reshape(x, sizes, 2), "-2");
    TENSOR(tri_flatten(NULL, 0), "argument 0 is NULL");
    TENSOR(tri_flatten(x, 5), "5");
    TENSOR(tri_flatten(x, INT32_MIN), "dimension");
    TENSOR(tri_permute(NULL, dims, 2), "argument 0 is NULL");
    TENSOR(tri_permute(x, NULL, 2), "dims is NULL");
    TENSOR(tri_permute(x, dims, -1), "-1 dimensions");
    TENSOR(tri_permute(x, dims, 9), "9 dimensions");
    TENSOR(tri_permute(x, far, 2), "dims[1] is 7");
    TENSOR(tri_transpose(NULL, 0, 1), "argument 0 is NULL");
    TENSOR(tri_transpose(x, 0, 7), "7");
    TENSOR(tri_transpose(x, INT32_MIN, 0), "dimension");
    TENSOR(tri_expand(NULL, (const int64_t[]){2, 3}, 2), "argument 0 is NULL");
    TENSOR(tri_expand(x, NULL, 2), "shape is NULL");
    TENSOR(tri_expand(x, sizes, -1), "-1 dimensions");
    TENSOR(tri_expand(x, sizes, 9), "9 dimensions");
    TENSOR(tri_expand(x, sizes, 2), "-2");
    TENSOR(tri_flip(NULL, 0), "argument 0 is NULL");
    TENSOR(tri_flip(x, 2), "2");
}

static void reductions_and_products(void **state)
{
    const int64_t dims[1] = {0}, far[1] = {5};

    (void)state;
    TENSOR(tri_sum(NULL, NULL, 0, false), "argument 0 is NULL");
    TENSOR(tri_sum(x, far, 1, false), "5");
    TENSOR(tri_sum(x, dims, -1, false), "-1 dimensions");
    TENSOR(tri_mean(NULL, dims, 1, true), "argument 0 is NULL");
    TENSOR(tri_mean(x, dims, -1, true), "-1 dimensions");
    TENSOR(tri_mean(x, dims, 100, true), "100 dimensions");
    TENSOR(tri_amax(NULL, NULL, 0, false), "argument 0 is NULL");
    TENSOR(tri_amax(x, far, 1, false), "5");
    TENSOR(tri_argmax(NULL, 0, false), "argument 0 is NULL");
    TENSOR(tri_argmax(x, 2, false), "2");
    TENSOR(tri_argmax(x, INT32_MIN, false), "dimension");
    TENSOR(tri_matmul(NULL, x), "argument 0 is NULL");
    TENSOR(tri_matmul(x, NULL), "argument 1 is NULL");
    TENSOR(tri_linear(NULL, x, NULL), "argument 0 is NULL");
    TENSOR(tri_linear(x, NULL, NULL), "argument 1 is NULL");
}

static void images(void **state)
{
    const tri_conv_options stride = {.stride = {-1, 1}}, padding = {.padding = {0, -3}},
                           dilation = {.dilation = {-2, 0}}, groups = {.groups = -2};
    const tri_pool_options back = {.kernel = {2, 2}, .stride = {-1, 1}},
                           outside = {.kernel = {2, 2}, .padding = {-1, 0}};

    (void)state;
    TENSOR(tri_conv(NULL, image, NULL, NULL), "argument 0 is NULL");
    TENSOR(tri_conv(image, NULL, NULL, NULL), "argument 1 is NULL");
    TENSOR(tri_conv(image, image, NULL, &stride), "stride");
    TENSOR(tri_conv(image, image, NULL, &padding), "padding");
    TENSOR(tri_conv(image, image, NULL, &dilation), "dilation");
    TENSOR(tri_conv(image, image, NULL, &groups), "groups");
    TENSOR(tri_max_pool(NULL, &(tri_pool_options){.kernel = {2, 2}}), "argument 0 is NULL");
    TENSOR(tri_max_pool(image, &(tri_pool_options){.kernel = {-1, 2}}), "kernel");
    TENSOR(tri_max_pool(image, &(tri_pool_options){.kernel = {0, 2}}), "kernel");
    TENSOR(tri_max_pool(image, &back), "stride");
    TENSOR(tri_max_pool(image, &outside), "padding");
    TENSOR(tri_avg_pool(NULL, &(tri_pool_options){.kernel = {2, 2}}), "argument 0 is NULL");
    TENSOR(tri_avg_pool(image, &(tri_pool_options){.kernel = {2, -1}}), "kernel");
    TENSOR(tri_avg_pool(image, &back), "stride");
    TENSOR(tri_adaptive_avg_pool(NULL, TRI_SHAPE(1, 1)), "argument 0 is NULL");
    TENSOR(tri_adaptive_avg_pool(image, TRI_SHAPE(-1, 1)), "-1");
    TENSOR(tri_adaptive_max_pool(NULL, TRI_SHAPE(1, 1)), "argument 0 is NULL");
    TENSOR(tri_adaptive_max_pool(image, TRI_SHAPE(1, -1)), "-1");
}

static void norms_and_losses(void **state)
{
    (void)state;
    TENSOR(tri_batch_norm(NULL, NULL), "argument 0 is NULL");
    TENSOR(tri_batch_norm(image, NULL), "argument 3 is NULL");
    TENSOR(tri_batch_norm(image, &(tri_batch_norm_args){.training = true, .weight = x}), "weight");
    TENSOR(tri_softmax(NULL, 0), "argument 0 is NULL");
    TENSOR(tri_softmax(x, 2), "2");
    TENSOR(tri_log_softmax(NULL, 0), "argument 0 is NULL");
    TENSOR(tri_log_softmax(x, -3), "-3");
    TENSOR(tri_cross_entropy(NULL, target, NULL), "argument 0 is NULL");
    TENSOR(tri_cross_entropy(x, NULL, NULL), "argument 1 is NULL");
    TENSOR(tri_cross_entropy(x, target, &(tri_cross_entropy_options){.label_smoothing = -1}),
           "label_smoothing -1");
    TENSOR(tri_mse_loss(NULL, x, NULL), "argument 0 is NULL");
    TENSOR(tri_mse_loss(x, NULL, NULL), "argument 1 is NULL");
    TENSOR(tri_count_correct(NULL, target), "argument 0 is NULL");
    TENSOR(tri_count_correct(x, NULL), "argument 1 is NULL");
}

static void layers(void **state)
{
    const tri_nn_conv2d_options stride = {.stride = -1};
    const tri_nn_pool2d_options back = {.stride = -1};

    (void)state;
    MODULE(tri_nn_linear(-1, 2, NULL), "nn_linear(-1, 2)");
    MODULE(tri_nn_linear(INT64_MAX, INT64_MAX, NULL), "");
    MODULE(tri_nn_linear(2, 0, &(tri_nn_linear_options){.no_bias = true}), "2, 0");
    MODULE(tri_nn_conv2d(0, 1, 1, NULL), "nn_conv2d(0, 1, kernel 1)");
    MODULE(tri_nn_conv2d(1, 1, -1, NULL), "-1");
    MODULE(tri_nn_conv2d(1, 1, 1, &stride), "stride");
    MODULE(tri_nn_batch_norm2d(0, NULL), "channels");
    MODULE(tri_nn_max_pool2d(0, NULL), "0");
    MODULE(tri_nn_max_pool2d(2, &back), "stride");
    MODULE(tri_nn_avg_pool2d(-1, NULL), "-1");
    MODULE(tri_nn_adaptive_avg_pool2d(0, 1), "0");
    MODULE(tri_nn_max_pool1d(0, NULL), "kernel 0");
    MODULE(tri_nn_avg_pool1d(2, &(tri_nn_pool1d_options){.stride = -1}), "stride -1");
    MODULE(tri_nn_max_pool1d(2, &(tri_nn_pool1d_options){.padding = 2}), "at most half");
    MODULE(tri_nn_adaptive_avg_pool1d(0), "0");
    MODULE(tri_nn_adaptive_max_pool1d(-1), "-1");
    MODULE(tri_nn_adaptive_max_pool2d(1, -1), "-1");
    MODULE(tri_nn_dropout(-0.5), "-0.5");
    MODULE(tri_nn_dropout((double)NAN), "nan");
    MODULE(tri_nn_sequential_of(1, NULL), "own_modules is NULL");
    MODULE(tri_nn_sequential_of(-1, NULL), "-1 modules");
    MODULE(tri_nn_sequential_of(2, (tri_module *const[]){tri_nn_relu(), NULL}), "\"1\" is NULL");
}

static void nothing(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out, int n_out)
{
    (void)self;
    (void)in;
    (void)n_in;
    (void)out;
    (void)n_out;
}

static void modules_of_ones_own(void **state)
{
    static const tri_module_class bare = {.name = "bare"},
                                  own = {.name = "own", .forward = nothing};
    tri_module *net = tri_module_create(&own);

    (void)state;
    CHECK_OK(tri_module_status(net));
    MODULE(tri_module_create(NULL), "class");
    MODULE(tri_module_create(&bare), "forward");
    assert_null(tri_module_data(NULL));
    STATUS(tri_module_status(tri_module_add_child(NULL, "a", tri_nn_relu())), "module is NULL");
    STATUS(tri_tensor_status(tri_module_add_parameter(NULL, "a", NULL)), "module is NULL");
    STATUS(tri_tensor_status(tri_module_add_buffer(NULL, "a", NULL)), "module is NULL");
    STATUS(tri_tensor_status(tri_module_add_parameter(net, "a", NULL)), "tensor is NULL");
    tri_module_destroy(net);
    net = tri_module_create(&own);
    STATUS(tri_tensor_status(tri_module_add_buffer(net, NULL, tri_tensor_ref(x))), "NULL");
    tri_module_destroy(net);
    net = tri_module_create(&own);
    STATUS(tri_module_status(tri_module_add_child(net, NULL, tri_nn_relu())), "NULL");
    tri_module_destroy(net);
    net = tri_module_create(&own);
    STATUS(tri_module_status(tri_module_add_child(net, "a", NULL)), "child \"a\" is NULL");
    tri_module_destroy(net);
    net = tri_module_create(&own);
    STATUS(tri_module_status(tri_module_add_child(net, "", tri_nn_relu())), "name");
    tri_module_destroy(net);
    assert_false(tri_module_is_training(NULL));
    tri_module_train(NULL, true);
    tri_module_destroy(NULL);
}

static void using_modules(void **state)
{
    tri_module *net = tri_nn_linear(3, 2, NULL);
    tri_tensor *out[2];
    uint64_t hash;

    (void)state;
    TENSOR(tri_forward(NULL, x), "module is NULL");
    TENSOR(tri_forward(net, NULL), "argument 0 is NULL");
    tri_forward_n(net, NULL, 1, out, 1);
    STATUS(tri_tensor_status(out[0]), "inputs are NULL");
    tri_forward_n(net, &x, -1, out, 1);
    STATUS(tri_tensor_status(out[0]), "-1 inputs");
    tri_forward_n(net, &x, 1, NULL, 1); /* nowhere to say so */
    tri_forward_n(net, &x, 1, out, -1);
    tri_forward_n(NULL, NULL, 0, NULL, 0);
    tri_forward_n(net, &x, 1, out, 2);
    STATUS(tri_tensor_status(out[1]), "Linear");
    STATUS(tri_module_status(NULL), "module is NULL");
    assert_int_equal(tri_module_state_count(NULL), 0);
    assert_null(tri_module_state(NULL, 0).name);
    assert_null(tri_module_state(net, -1).name);
    assert_null(tri_module_state(net, 2).name);
    assert_int_equal(tri_module_parameter_count(NULL), 0);
    assert_null(tri_module_find(NULL, "weight"));
    assert_null(tri_module_find(net, NULL));
    STATUS(tri_module_hash(NULL, &hash), "module is NULL");
    STATUS(tri_module_hash(net, NULL), "hash_out is NULL");
    tri_module_destroy(net);
}

static void loading(void **state)
{
    const float w[6] = {0}, b[2] = {0};
    tri_state_source sources[2] = {
        {.name = "weight", .dtype = TRI_DTYPE_F32, .ndim = 2, .shape = {2, 3}, .data = w},
        {.name = "bias", .dtype = TRI_DTYPE_F32, .ndim = 1, .shape = {2}, .data = b}};
    tri_module *net = tri_nn_linear(3, 2, NULL);

    (void)state;
    CHECK_OK(tri_module_load(net, sources, 2, NULL));
    STATUS(tri_module_load(NULL, sources, 2, NULL), "module is NULL");
    STATUS(tri_module_load(net, NULL, 2, NULL), "sources are NULL");
    STATUS(tri_module_load(net, sources, -1, NULL), "-1 sources");
    sources[1].data = NULL;
    STATUS(tri_module_load(net, sources, 2, NULL), "data of bias is NULL");
    sources[1].data = b;
    sources[1].name = NULL;
    STATUS(tri_module_load(net, sources, 2, NULL), "source 1 has no name");
    sources[1].name = "bias";
    sources[1].ndim = 99;
    STATUS(tri_module_load(net, sources, 2, NULL), "bias");
    sources[1].ndim = -1;
    STATUS(tri_module_load(net, sources, 2, NULL), "bias");
    tri_module_destroy(net);
}

static void initial_values(void **state)
{
    tri_tensor *step_tensor = tri_relu(x);

    (void)state;
    STATUS(tri_init_uniform(NULL, 0, 1), "tensor is NULL");
    STATUS(tri_init_normal(NULL, 0, 1), "tensor is NULL");
    STATUS(tri_init_constant(NULL, 0), "tensor is NULL");
    STATUS(tri_init_kaiming_uniform(NULL, 1, TRI_FAN_IN), "tensor is NULL");
    STATUS(tri_init_kaiming_normal(NULL, 0, TRI_FAN_OUT), "tensor is NULL");
    UNSUPPORTED(tri_init_uniform(target, 0, 1), "i64");
    UNSUPPORTED(tri_init_normal(target, 0, 1), "i64");
    STATUS(tri_init_kaiming_uniform(target, 1, TRI_FAN_IN), "1 dimensions");
    STATUS(tri_init_kaiming_normal(target, 0, (tri_fan_mode)2), "mode 2");
    STATUS(tri_init_constant(step_tensor, 0), "persistent");
    tri_set_default_dtype(TRI_DTYPE_I64);
    UNSUPPORTED(status_of_module(tri_nn_linear(3, 2, NULL)), "i64");
    tri_set_default_dtype((tri_dtype)99);
    UNSUPPORTED(status_of_module(tri_nn_linear(3, 2, NULL)), "99");
    tri_set_default_dtype(TRI_DTYPE_F32);
}

static void optimisers(void **state)
{
    tri_module *empty = tri_nn_relu();
    tri_optimizer *opt = tri_sgd(NULL, 0.1, NULL);

    (void)state;
    STATUS(tri_optimizer_status(opt), "the model is NULL");
    STATUS(tri_optimizer_step(opt), "the model is NULL");
    tri_optimizer_destroy(opt);
    opt = tri_sgd(empty, 0.1, NULL);
    STATUS(tri_optimizer_step(opt), "the parameter list is empty");
    tri_optimizer_destroy(opt);
    tri_module_destroy(empty);
    STATUS(tri_optimizer_status(NULL), "optimizer is NULL");
    STATUS(tri_optimizer_step(NULL), "optimizer is NULL");
    tri_optimizer_zero_grad(NULL);
    tri_optimizer_set_lr(NULL, 1);
    tri_optimizer_schedule(NULL, 1, NULL, NULL);
    tri_optimizer_set_hyper(NULL, 0, TRI_HYPER_MOMENTUM, 1);
    assert_true(isnan(tri_optimizer_lr(NULL)));
    assert_int_equal(tri_optimizer_group_count(NULL), 0);
    assert_int_equal(tri_optimizer_state_count(NULL), 0);
    assert_null(tri_optimizer_state(NULL, 0).name);
    assert_null(tri_optimizer_state(NULL, -1).name);
    tri_optimizer_destroy(NULL);
}

static void schedules(void **state)
{
    const int64_t totals[] = {INT64_MIN, -5, 0, 1, 2, INT64_MAX};

    (void)state;
    for (size_t i = 0; i < sizeof(totals) / sizeof(totals[0]); i++) {
        for (int64_t step = -2; step <= 3; step++) {
            assert_true(isfinite(tri_schedule_cosine(0.1, 0.01, totals[i], step)));
            assert_true(isfinite(tri_schedule_one_cycle(0.1, totals[i], step, NULL).lr));
            assert_true(isfinite(
                tri_schedule_one_cycle(0.1, totals[i], step,
                                       &(tri_schedule_one_cycle_options){.three_phase = true})
                    .momentum));
        }
    }
}

static void data_parallel(void **state)
{
    tri_module *plain = tri_nn_linear(3, 2, NULL);

    (void)state;
    MODULE(tri_ddp(NULL, NULL), "NULL");
    tri_ddp_no_sync_begin(NULL);
    tri_ddp_no_sync_end(NULL);
    tri_ddp_no_sync_begin(plain);
    tri_ddp_no_sync_end(plain);
    tri_ddp_vote_stop(NULL);
    tri_ddp_vote_stop(plain);
    assert_false(tri_ddp_is_stopped(NULL));
    assert_false(tri_ddp_is_stopped(plain));
    assert_int_equal(tri_ddp_sample_count(NULL), 0);
    assert_int_equal(tri_ddp_sample_count(plain), 0);
    STATUS(tri_ddp_sync_buffers(NULL), "module is NULL");
    STATUS(tri_ddp_sync_buffers(plain), "tri_ddp");
    STATUS(tri_ddp_verify(NULL, true), "module is NULL");
    STATUS(tri_ddp_verify(plain, true), "tri_ddp");
    tri_module_destroy(plain);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(tensors, set_up, tear_down),
    cmocka_unit_test_setup_teardown(empty_tensors_need_no_data, set_up, tear_down),
    cmocka_unit_test_setup_teardown(steps_and_gradients, set_up, tear_down),
    cmocka_unit_test_setup_teardown(element_wise, set_up, tear_down),
    cmocka_unit_test_setup_teardown(shapes, set_up, tear_down),
    cmocka_unit_test_setup_teardown(reductions_and_products, set_up, tear_down),
    cmocka_unit_test_setup_teardown(images, set_up, tear_down),
    cmocka_unit_test_setup_teardown(norms_and_losses, set_up, tear_down),
    cmocka_unit_test_setup_teardown(layers, set_up, tear_down),
    cmocka_unit_test_setup_teardown(modules_of_ones_own, set_up, tear_down),
    cmocka_unit_test_setup_teardown(using_modules, set_up, tear_down),
    cmocka_unit_test_setup_teardown(loading, set_up, tear_down),
    cmocka_unit_test_setup_teardown(initial_values, set_up, tear_down),
    cmocka_unit_test_setup_teardown(optimisers, set_up, tear_down),
    cmocka_unit_test_setup_teardown(schedules, set_up, tear_down),
    cmocka_unit_test_setup_teardown(data_parallel, set_up, tear_down),
};

TEST_MAIN(tests)
