/* layers_test.c - options of layers: what they change, what is refused and why. */
#include <math.h>

#include <trireme/trireme.h>

#include "base/compiler.h"
#include "testing/check.h"
#include "testing/layer_calls.h"

static void check_shape(tri_tensor *x, const int64_t *shape, int ndim)
{
    CHECK_OK(tri_tensor_status(x));
    assert_int_equal(tri_tensor_ndim(x), ndim);
    for (int d = 0; d < ndim; d++)
        assert_int_equal(tri_tensor_size(x, d), shape[d]);
}

/* The values of two step tensors have the same bits. */
static void check_same(tri_tensor *a, tri_tensor *b)
{
    float got[256] = {0}, wanted[256] = {0};
    size_t bytes = (size_t)tri_tensor_numel(a) * sizeof(float);

    CHECK_OK(tri_tensor_status(a));
    CHECK_OK(tri_tensor_status(b));
    assert_int_equal(tri_tensor_numel(a), tri_tensor_numel(b));
    assert_true(bytes <= sizeof(got));
    (void)tri_keep(a);
    (void)tri_keep(b);
    CHECK_OK(tri_tensor_copy_out(a, got, bytes));
    CHECK_OK(tri_tensor_copy_out(b, wanted, bytes));
    assert_memory_equal(got, wanted, bytes);
}

static void a_convolution_may_differ_in_height_and_width(void **state)
{
    tri_module *conv = tri_nn_conv2d(
        2, 4, 0,
        &(tri_nn_conv2d_options){
            .kernel_hw = {3, 1}, .stride_hw = {2, 1}, .padding_hw = {1, 0}, .dilation_hw = {1, 2}});
    tri_tensor *x = layer_input(TRI_SHAPE(1, 2, 7, 5)), *weight = tri_module_find(conv, "weight");
    tri_tensor *y = tri_forward(conv, x);

    (void)state;
    check_shape(weight, TRI_SHAPE(4, 2, 3, 1));
    check_shape(y, TRI_SHAPE(1, 4, 4, 5));
    check_same(y, tri_conv(x, weight, tri_module_find(conv, "bias"),
                           &(tri_conv_options){.stride = {2, 1}, .padding = {1, 0}}));
    tri_step_end();
    tri_module_destroy(conv);
    conv = tri_nn_conv2d(2, 4, 3, &(tri_nn_conv2d_options){.padding_hw = {0, 1}});
    check_shape(tri_forward(conv, x), TRI_SHAPE(1, 4, 5, 5));
    tri_step_end();
    tri_module_destroy(conv);
    tri_tensor_unref(x);
}

static void pools_may_differ_in_height_and_width(void **state)
{
    tri_module *pool = tri_nn_max_pool2d(0, &(tri_nn_pool2d_options){.kernel_hw = {3, 2}});
    tri_tensor *x = layer_input(TRI_SHAPE(1, 2, 6, 8));

    (void)state;
    check_shape(tri_forward(pool, x), TRI_SHAPE(1, 2, 2, 4));
    tri_module_destroy(pool);
    pool = tri_nn_avg_pool2d(2, &(tri_nn_pool2d_options){.stride_hw = {1, 2},
                                                         .padding_hw = {1, 0},
                                                         .exclude_padding = true});
    check_same(tri_forward(pool, x), tri_avg_pool(x, &(tri_pool_options){.kernel = {2, 2},
                                                                         .stride = {1, 2},
                                                                         .padding = {1, 0},
                                                                         .exclude_padding = true}));
    tri_step_end();
    tri_module_destroy(pool);
    tri_tensor_unref(x);
}

static void pools_of_rows(void **state)
{
    const tri_nn_pool1d_options options = {
        .stride = 2, .padding = 1, .ceil_mode = true, .exclude_padding = true};
    tri_tensor *x = layer_input(TRI_SHAPE(2, 3, 8)), *one = layer_input(TRI_SHAPE(3, 8));
    tri_module *pools[4] = {tri_nn_max_pool1d(3, NULL), tri_nn_avg_pool1d(3, &options),
                            tri_nn_adaptive_avg_pool1d(5), tri_nn_adaptive_max_pool1d(1)};
    static const int64_t lengths[4] = {2, 5, 5, 1};

    (void)state;
    for (int i = 0; i < 4; i++) {
        check_shape(tri_forward(pools[i], x), TRI_SHAPE(2, 3, lengths[i]));
        check_shape(tri_forward(pools[i], one), TRI_SHAPE(3, lengths[i]));
    }
    check_same(tri_forward(pools[1], x),
               tri_avg_pool(x, &(tri_pool_options){.kernel = {3},
                                                   .stride = {2},
                                                   .padding = {1},
                                                   .ceil_mode = true,
                                                   .exclude_padding = true}));
    tri_step_end();
    for (int i = 0; i < 4; i++)
        tri_module_destroy(pools[i]);
    tri_tensor_unref(x);
    tri_tensor_unref(one);
}

static void an_option_is_said_once(void **state)
{
    (void)state;
    layer_refused(tri_nn_conv2d(1, 1, 3, &(tri_nn_conv2d_options){.kernel_hw = {3, 1}}),
                  "nn_conv2d(1, 1, kernel 3): kernel is 3, and kernel_hw {3, 1}: give only one");
    layer_refused(
        tri_nn_conv2d(1, 1, 3, &(tri_nn_conv2d_options){.stride = 2, .stride_hw = {2, 2}}),
        "stride is 2, and stride_hw {2, 2}");
    layer_refused(tri_nn_conv2d(1, 1, 0, &(tri_nn_conv2d_options){.kernel_hw = {3, 0}}),
                  "kernel 0: it must be at least 1");
    layer_refused(tri_nn_conv2d(1, 1, 3, &(tri_nn_conv2d_options){.groups = -1}),
                  "groups -1: groups must be at least 1");
    layer_refused(tri_nn_max_pool2d(2, &(tri_nn_pool2d_options){.padding_hw = {0, 2}}),
                  "padding 2 of a kernel of 2: at most half");
}

static void a_linear_layer_may_lack_its_bias(void **state)
{
    tri_module *bare = tri_nn_linear(3, 2, &(tri_nn_linear_options){.no_bias = true});
    tri_module *whole = tri_nn_linear(3, 2, &(tri_nn_linear_options){0});

    (void)state;
    assert_int_equal(tri_module_state_count(bare), 1);
    assert_int_equal(tri_module_state_count(whole), 2);
    tri_module_destroy(bare);
    tri_module_destroy(whole);
}

static void batch_norm_may_lack_its_parts(void **state)
{
    tri_module *bare = tri_nn_batch_norm2d(
        2, &(tri_nn_batch_norm2d_options){
               .no_affine = true, .no_track_running_stats = true, .eps = TRI_SET(0.5)});
    tri_module *plain = tri_nn_batch_norm2d(2, &(tri_nn_batch_norm2d_options){.no_affine = true});
    tri_tensor *x = layer_input(TRI_SHAPE(3, 2, 2, 2));

    (void)state;
    assert_int_equal(tri_module_state_count(bare), 0);
    assert_int_equal(tri_module_state_count(plain), 3);
    tri_module_train(bare, false); /* normalises by the batch all the same */
    check_same(tri_forward(bare, x),
               tri_batch_norm(x, &(tri_batch_norm_args){.training = true, .eps = TRI_SET(0.5)}));
    CHECK_FAILS(tri_tensor_status(tri_forward(plain, tri_flatten(x, 1))), TRI_ERR_INVALID_ARG,
                "BatchNorm2d takes x [N, C, H, W] (tri_nn_batch_norm1d: [N, C] or [N, C, L]), not "
                "one of 2 dimensions");
    assert_non_null(strstr(tri_last_error(), "layers_test.c:"));
    tri_step_end();
    tri_module_destroy(bare);
    tri_module_destroy(plain);
    tri_tensor_unref(x);
    layer_refused(tri_nn_batch_norm2d(2, &(tri_nn_batch_norm2d_options){.eps = TRI_SET(-1)}),
                  "eps -1");
    layer_refused(tri_nn_batch_norm2d(2, &(tri_nn_batch_norm2d_options){.momentum = TRI_SET(1.5)}),
                  "momentum 1.5");
    layer_refused(
        tri_nn_batch_norm2d(2, &(tri_nn_batch_norm2d_options){.eps = TRI_SET((double)NAN)}), "nan");
}

static void batch_norm_of_rows_is_that_of_images(void **state)
{
    tri_module *rows = tri_nn_batch_norm1d(2, NULL), *images = tri_nn_batch_norm2d(2, NULL);
    tri_tensor *x = layer_input(TRI_SHAPE(4, 2, 3));

    (void)state;
    for (int training = 1; training >= 0; training--) {
        tri_module_train(rows, training == 1);
        tri_module_train(images, training == 1);
        for (int64_t length = 3; length > 0; length -= 2) { /* [N, C, 3], [N, C] */
            tri_tensor *part = tri_narrow(x, 2, 0, length);
            tri_tensor *image = tri_reshape(part, TRI_SHAPE(4, 2, length, 1));

            check_same(tri_forward(rows, length > 1 ? part : tri_reshape(part, TRI_SHAPE(4, 2))),
                       tri_forward(images, image));
        }
    }
    check_same(tri_mul_scalar(tri_module_find(rows, "running_var"), 1),
               tri_mul_scalar(tri_module_find(images, "running_var"), 1));
    assert_true(tri_item(tri_module_find(rows, "num_batches_tracked")) == 2);
    CHECK_FAILS(tri_tensor_status(tri_forward(rows, tri_reshape(x, TRI_SHAPE(4, 2, 3, 1)))),
                TRI_ERR_INVALID_ARG,
                "BatchNorm1d takes x [N, C] or [N, C, L] (tri_nn_batch_norm2d: [N, C, H, W]), not "
                "one of 4 dimensions");
    tri_step_end();
    CHECK_FAILS(tri_tensor_status(tri_forward(rows, tri_flatten(x, 0))), TRI_ERR_INVALID_ARG,
                "not one of 1 dimension");
    tri_step_end();
    tri_module_destroy(rows);
    tri_module_destroy(images);
    tri_tensor_unref(x);
    layer_refused(tri_nn_batch_norm1d(0, NULL), "nn_batch_norm1d(0): channels must be at least 1");
}

/* The first running mean is momentum times the batch's. */
static void batch_norm_takes_its_momentum(void **state)
{
    const tri_opt momentum[] = {TRI_DEFAULT, TRI_SET(0.5), TRI_SET(0)};
    const double wanted[] = {0.1, 0.5, 0};
    tri_tensor *x = tri_tensor_from(TRI_SHAPE(2, 1, 1, 1), TRI_DTYPE_F32, (const float[]){2, 6});

    (void)state;
    for (int i = 0; i < 3; i++) {
        tri_module *norm =
            tri_nn_batch_norm2d(1, &(tri_nn_batch_norm2d_options){.momentum = momentum[i]});

        (void)tri_keep(tri_forward(norm, x));
        CHECK_OK(tri_step_end_status());
        assert_true(fabs(tri_item(tri_module_find(norm, "running_mean")) - 4 * wanted[i]) < 1e-6);
        assert_true(tri_item(tri_module_find(norm, "num_batches_tracked")) == 1);
        tri_step_end();
        tri_module_destroy(norm);
    }
    tri_tensor_unref(x);
}

static void norms_of_rows_are_their_operations(void **state)
{
    tri_module *layer = tri_nn_layer_norm(TRI_SHAPE(4, 3), NULL);
    tri_module *bare =
        tri_nn_layer_norm(TRI_SHAPE(3), &(tri_nn_layer_norm_options){.no_elementwise_affine = true,
                                                                     .eps = TRI_SET(0.25)});
    tri_module *half =
        tri_nn_layer_norm(TRI_SHAPE(3), &(tri_nn_layer_norm_options){.no_bias = true});
    tri_module *rms = tri_nn_rms_norm(TRI_SHAPE(3), NULL);
    tri_tensor *x = layer_input(TRI_SHAPE(2, 4, 3));

    (void)state;
    check_shape(tri_module_find(layer, "bias"), TRI_SHAPE(4, 3));
    assert_int_equal(tri_module_state_count(bare), 0);
    assert_int_equal(tri_module_state_count(half), 1);
    assert_int_equal(tri_module_state_count(rms), 1);
    check_same(tri_forward(layer, x), tri_layer_norm(x, 2, tri_module_find(layer, "weight"),
                                                     tri_module_find(layer, "bias"), 1e-5));
    check_same(tri_forward(bare, x), tri_layer_norm(x, 1, NULL, NULL, 0.25));
    check_same(tri_forward(rms, x),
               tri_rms_norm(x, 1, tri_module_find(rms, "weight"), TRI_DEFAULT));
    tri_step_end();
    tri_module_destroy(layer);
    tri_module_destroy(bare);
    tri_module_destroy(half);
    tri_module_destroy(rms);
    tri_tensor_unref(x);
    layer_refused(tri_nn_layer_norm(NULL, 1, NULL), "nn_layer_norm: shape is NULL");
    layer_refused(tri_nn_layer_norm(NULL, 0, NULL), "a row of 0 dimensions");
    layer_refused(tri_nn_rms_norm(TRI_SHAPE(3, 0), NULL), "shape[1] is 0: must be at least 1");
    layer_refused(tri_nn_rms_norm(TRI_SHAPE(3), &(tri_nn_rms_norm_options){.eps = TRI_SET(-1)}),
                  "eps -1");
}

static void an_embedding_gives_rows(void **state)
{
    const int64_t indices[] = {4, 0, 2};
    tri_module *layer =
        tri_nn_embedding(5, 3, &(tri_embedding_options){.padding_idx = TRI_SET(-1)});
    tri_tensor *at = tri_tensor_from(TRI_SHAPE(3), TRI_DTYPE_I64, indices);
    float weight[15], got[9];
    tri_tensor *y = tri_keep(tri_forward(layer, at));

    (void)state;
    CHECK_OK(tri_tensor_copy_out(y, got, sizeof(got)));
    CHECK_OK(tri_tensor_copy_out(tri_module_find(layer, "weight"), weight, sizeof(weight)));
    for (int i = 0; i < 3; i++)
        assert_memory_equal(got + 3 * i, weight + 3 * indices[i], 3 * sizeof(float));
    assert_true(got[0] == 0 && got[1] == 0 && got[2] == 0 && weight[0] != 0);
    tri_step_end();
    tri_module_destroy(layer);
    tri_tensor_unref(at);
    layer_refused(tri_nn_embedding(0, 3, NULL), "nn_embedding(0, 3): num_embeddings must be");
    layer_refused(tri_nn_embedding(3, 0, NULL), "embedding_dim must be at least 1");
    layer_refused(tri_nn_embedding(3, 2, &(tri_embedding_options){.padding_idx = TRI_SET(3)}),
                  "padding_idx 3 is out of range (3 rows)");
}

/* [T, C] rows of x [1, T, C] against each other by hand: softmax(q k' / sqrt(C)) v, one head. */
static tri_tensor *one_head(tri_module *layer, tri_tensor *query, tri_tensor *key)
{
    tri_tensor *weight = tri_module_find(layer, "in_proj_weight"), *part[3];
    tri_tensor *bias = tri_module_find(layer, "in_proj_bias");
    const int64_t c = tri_tensor_size(query, 2);

    for (int i = 0; i < 3; i++)
        part[i] =
            tri_linear(tri_select(i == 0 ? query : key, 0, 0), tri_narrow(weight, 0, i * c, c),
                       bias != NULL ? tri_narrow(bias, 0, i * c, c) : NULL);
    part[0] = tri_matmul(part[0], tri_transpose(part[1], 0, 1));
    part[0] = tri_matmul(tri_softmax(tri_mul_scalar(part[0], 1 / sqrt((double)c)), 1), part[2]);
    return tri_linear(part[0], tri_module_find(layer, "out_proj.weight"),
                      tri_module_find(layer, "out_proj.bias"));
}

static void check_close(tri_tensor *a, tri_tensor *b)
{
    double off;

    CHECK_OK(tri_item_status(
        tri_amax(tri_abs(tri_sub(tri_flatten(a, 0), tri_flatten(b, 0))), NULL, 0, false), &off));
    assert_true(off < 1e-6);
}

static void attention_takes_one_input_or_three(void **state)
{
    tri_module *layer = tri_nn_multihead_attention(4, 1, NULL);
    tri_tensor *x = layer_input(TRI_SHAPE(1, 3, 4)), *key = layer_input(TRI_SHAPE(1, 5, 4));
    tri_tensor *y;

    (void)state;
    CHECK_OK(tri_init_normal(tri_module_find(layer, "in_proj_bias"), 0, 1));
    check_close(tri_forward(layer, x), one_head(layer, x, x));
    tri_step_end();
    tri_forward_n(layer, (tri_tensor *[]){x, key, key}, 3, &y, 1);
    check_shape(y, TRI_SHAPE(1, 3, 4));
    check_close(y, one_head(layer, x, key));
    tri_step_end();
    tri_forward_n(layer, (tri_tensor *[]){x, key}, 2, &y, 1);
    CHECK_FAILS(tri_tensor_status(y), TRI_ERR_INVALID_ARG,
                "takes 1 input, or query, key, value, key_padding_mask and attn_mask");
    CHECK_FAILS(tri_tensor_status(tri_forward(layer, tri_select(x, 0, 0))), TRI_ERR_INVALID_ARG,
                "x is f32 [3, 4], not [N, T, 4]");
    tri_step_end();
    tri_module_destroy(layer);
    tri_tensor_unref(x);
    tri_tensor_unref(key);
}

/* What comes later does not change what a query sees. */
static void causal_attention_looks_back_only(void **state)
{
    tri_module *layer = tri_nn_multihead_attention(
        4, 2, &(tri_nn_multihead_attention_options){.is_causal = true, .no_bias = true});
    tri_tensor *x = layer_input(TRI_SHAPE(2, 5, 4));
    tri_tensor *whole = tri_forward(layer, x);

    (void)state;
    assert_int_equal(tri_module_state_count(layer), 2);
    check_close(tri_narrow(whole, 1, 0, 3), tri_forward(layer, tri_narrow(x, 1, 0, 3)));
    tri_step_end();
    tri_module_destroy(layer);
    tri_tensor_unref(x);
    layer_refused(tri_nn_multihead_attention(0, 1, NULL), "both must be at least 1");
    layer_refused(tri_nn_multihead_attention(6, 4, NULL),
                  "embed_dim must be a multiple of num_heads");
    layer_refused(
        tri_nn_multihead_attention(4, 2, &(tri_nn_multihead_attention_options){.dropout = 1}),
        "dropout must be in [0, 1)");
}

static void layers_without_parameters_are_their_operations(void **state)
{
    tri_module *layers[] = {tri_nn_flatten(0), tri_nn_flatten(2), tri_nn_softmax(1),
                            tri_nn_log_softmax(-1), tri_nn_leaky_relu(0.25)};
    tri_tensor *x = layer_input(TRI_SHAPE(2, 3, 2, 2));
    tri_tensor *wanted[] = {tri_flatten(x, 0), tri_flatten(x, 2), tri_softmax(x, 1),
                            tri_log_softmax(x, -1), tri_leaky_relu(x, 0.25)};

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(layers); i++)
        (void)tri_keep(wanted[i]);
    for (size_t i = 0; i < TRII_COUNT_OF(layers); i++) {
        check_same(tri_forward(layers[i], x), wanted[i]);
        tri_module_destroy(layers[i]);
    }
    tri_step_end();
    tri_tensor_unref(x);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_convolution_may_differ_in_height_and_width),
    cmocka_unit_test(pools_may_differ_in_height_and_width),
    cmocka_unit_test(pools_of_rows),
    cmocka_unit_test(an_option_is_said_once),
    cmocka_unit_test(a_linear_layer_may_lack_its_bias),
    cmocka_unit_test(batch_norm_may_lack_its_parts),
    cmocka_unit_test(batch_norm_of_rows_is_that_of_images),
    cmocka_unit_test(batch_norm_takes_its_momentum),
    cmocka_unit_test(norms_of_rows_are_their_operations),
    cmocka_unit_test(an_embedding_gives_rows),
    cmocka_unit_test(attention_takes_one_input_or_three),
    cmocka_unit_test(causal_attention_looks_back_only),
    cmocka_unit_test(layers_without_parameters_are_their_operations),
};

TEST_MAIN(tests)
