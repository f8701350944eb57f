/* module_test.c - modules: names, ownership, errors, state, loading, forward, initial values. */
/* ctest: threads=none */
#include <math.h>

#include <trireme/trireme.h>

#include "base/alloc.h"
#include "train/graph/step/step.h"
#include "testing/check.h"
#include "testing/layer_calls.h"
#include "testing/nn_golden.h"

/* --- initial values ------------------------------------------------------- */

static void check_bits(tri_tensor *tensor, const void *wanted, size_t bytes)
{
    char got[4096];

    assert_non_null(tensor);
    assert_true(bytes <= sizeof(got));
    CHECK_OK(tri_tensor_copy_out(tensor, got, bytes));
    assert_memory_equal(got, wanted, bytes);
}

static void linear_and_conv_start_with_the_bits_of_torch(void **state)
{
    tri_module *linear, *conv;

    (void)state;
    tri_manual_seed(0);
    linear = tri_nn_linear(3, 4, NULL);
    conv = tri_nn_conv2d(2, 3, 3, NULL);
    check_bits(tri_module_find(linear, "weight"), golden_linear_weight,
               sizeof(golden_linear_weight));
    check_bits(tri_module_find(linear, "bias"), golden_linear_bias, sizeof(golden_linear_bias));
    check_bits(tri_module_find(conv, "weight"), golden_conv_weight, sizeof(golden_conv_weight));
    check_bits(tri_module_find(conv, "bias"), golden_conv_bias, sizeof(golden_conv_bias));
    tri_module_destroy(linear);
    tri_module_destroy(conv);
}

static void doubles_start_with_the_bits_of_torch(void **state)
{
    tri_module *linear;

    (void)state;
    tri_manual_seed(7);
    tri_set_default_dtype(TRI_DTYPE_F64);
    linear = tri_nn_linear(3, 4, NULL);
    tri_set_default_dtype(TRI_DTYPE_F32);
    check_bits(tri_module_find(linear, "weight"), golden_linear64_weight,
               sizeof(golden_linear64_weight));
    check_bits(tri_module_find(linear, "bias"), golden_linear64_bias, sizeof(golden_linear64_bias));
    tri_module_destroy(linear);
}

/* n values of the type against torch's; at least a block of 16 is drawn another way than fewer. */
static void check_normal(tri_dtype dtype, int64_t n, const double *wanted, double bound)
{
    tri_tensor *x = tri_tensor_create(&n, 1, dtype);
    double f64[37];
    float f32[37];
    bool wide = dtype == TRI_DTYPE_F64;

    tri_manual_seed(0);
    CHECK_OK(tri_init_normal(x, 0.5, 2.0));
    CHECK_OK(tri_tensor_copy_out(x, wide ? (void *)f64 : (void *)f32, (size_t)n * (wide ? 8 : 4)));
    for (int i = 0; i < n; i++)
        if (!(fabs((wide ? f64[i] : (double)f32[i]) - wanted[i]) <= bound))
            fail_msg("element %d of %d: %g instead of %g", i, (int)n,
                     wide ? f64[i] : (double)f32[i], wanted[i]);
    tri_tensor_unref(x);
}

static double mean_square(tri_tensor *x64)
{
    float x[64];
    double squares = 0;

    CHECK_OK(tri_tensor_copy_out(x64, x, sizeof(x)));
    for (int i = 0; i < 64; i++)
        squares += (double)x[i] * (double)x[i];
    return squares / 64;
}

/* Of one output, and of none: that is no fan of 0. */
static void kaiming_counts_the_inputs_or_the_outputs(void **state)
{
    tri_tensor *one = tri_tensor_create(TRI_SHAPE(1, 64, 1, 1), TRI_DTYPE_F32),
               *none = tri_tensor_create(TRI_SHAPE(0, 64, 1, 1), TRI_DTYPE_F32);

    (void)state;
    tri_manual_seed(3);
    CHECK_OK(tri_init_kaiming_normal(one, 0, TRI_FAN_OUT));
    CHECK_OK(tri_init_kaiming_normal(none, 0, TRI_FAN_OUT));
    CHECK_OK(tri_init_kaiming_uniform(none, 0, TRI_FAN_OUT));
    assert_true(mean_square(one) > 1 && mean_square(one) < 4); /* the variance is 2 / 1 */
    CHECK_OK(tri_init_kaiming_normal(one, 0, TRI_FAN_IN));
    assert_true(mean_square(one) > 1. / 64 && mean_square(one) < 4. / 64); /* 2 / 64 */
    CHECK_OK(tri_init_kaiming_uniform(one, 1, TRI_FAN_OUT));
    assert_true(mean_square(one) > 0.5 && mean_square(one) < 2); /* 1 / 1 */
    CHECK_OK(tri_init_kaiming_uniform(one, 1, TRI_FAN_IN));
    assert_true(mean_square(one) > 0.5 / 64 && mean_square(one) < 2. / 64);
    tri_tensor_unref(one);
    tri_tensor_unref(none);
}

static void normal_values_follow_torch_to_rounding(void **state)
{
    double wanted[37];

    (void)state;
    for (int i = 0; i < 37; i++)
        wanted[i] = (double)golden_normal37[i];
    check_normal(TRI_DTYPE_F32, 37, wanted, 4e-6);
    check_normal(TRI_DTYPE_F64, 37, golden_normal37d, 1e-14);
    check_normal(TRI_DTYPE_F64, 6, golden_normal6, 1e-14);
    check_normal(TRI_DTYPE_F32, 6, golden_normal6, 4e-7); /* made as doubles, then rounded */
}

/* --- names and state ------------------------------------------------------ */

/* Blocks that live when this thread's recorder is there, with its table of tensors of a run. */
static long live_at_start(void)
{
    tri_tensor *x = tri_tensor_create(TRI_SHAPE(1), TRI_DTYPE_F32);

    CHECK_OK(tri_init_constant(x, 1));
    tri_tensor_unref(x);
    assert_non_null(trii_step_current());
    return trii_alloc_live();
}

static void a_tree_owns_everything(void **state)
{
    long before;
    tri_module *net;

    (void)state;
    before = live_at_start();
    net =
        tri_nn_sequential(tri_nn_conv2d(3, 4, 3, NULL), tri_nn_batch_norm2d(4, NULL),
                          tri_nn_sequential(tri_nn_gelu(TRI_GELU_ERF), tri_nn_max_pool2d(2, NULL)));
    assert_int_equal(tri_module_state_count(net), 7);
    tri_module_destroy(net);
    assert_int_equal(trii_alloc_live(), before);
}

static void registering_later_renews_the_state(void **state)
{
    tri_module *net = tri_nn_sequential(tri_nn_linear(2, 2, NULL));

    (void)state;
    assert_int_equal(tri_module_state_count(net), 2);
    (void)tri_module_add_child(net, "head", tri_nn_linear(2, 1, NULL));
    assert_int_equal(tri_module_state_count(net), 4);
    assert_string_equal(tri_module_state(net, 2).name, "head.weight");
    assert_non_null(tri_module_find(net, "module.head.bias"));
    assert_null(tri_module_find(net, "tail.bias"));
    assert_null(tri_module_state(net, 4).name);
    tri_module_destroy(net);
}

/* --- errors --------------------------------------------------------------- */

static void a_failed_child_fails_its_parents(void **state)
{
    tri_module *net = tri_nn_sequential(tri_nn_relu(), tri_nn_sequential(tri_nn_linear(0, 3, NULL)),
                                        tri_nn_linear(3, 3, NULL));
    tri_tensor *y = tri_forward(net, NULL);

    (void)state;
    CHECK_FAILS(tri_module_status(net), TRI_ERR_INVALID_ARG, "nn_linear(0, 3)");
    CHECK_FAILS(tri_tensor_status(y), TRI_ERR_INVALID_ARG, "1: 0: nn_linear(0, 3)");
    assert_int_equal(tri_module_state_count(net), 0);
    tri_module_destroy(net);
    tri_tensor_unref(y);
}

static void refused_layers_say_why(void **state)
{
    (void)state;
    layer_refused(tri_nn_linear(-1, 5, NULL), "nn_linear(-1, 5): in_features must be at least 1");
    layer_refused(tri_nn_linear(3, 0, NULL), "nn_linear(3, 0): out_features must be at least 1");
    layer_refused(tri_nn_batch_norm2d(0, NULL), "nn_batch_norm2d(0): channels must be at least 1");
    layer_refused(tri_nn_conv2d(3, 0, 3, NULL), "channels must be at least 1");
    layer_refused(tri_nn_conv2d(3, 4, 0, NULL), "kernel 0: it must be at least 1");
    layer_refused(tri_nn_conv2d(3, 4, 3, &(tri_nn_conv2d_options){.groups = 3}),
                  "groups 3: groups must divide both");
    layer_refused(tri_nn_conv2d(3, 4, 3, &(tri_nn_conv2d_options){.stride = -1}),
                  "stride -1: it must be at least 1");
    layer_refused(tri_nn_max_pool2d(0, NULL), "nn_max_pool2d(kernel 0): kernel 0: it must");
    layer_refused(tri_nn_avg_pool2d(2, &(tri_nn_pool2d_options){.padding = 2}), "at most half");
    layer_refused(tri_nn_adaptive_avg_pool2d(0, 1), "nn_adaptive_avg_pool2d(0, 1): the output");
    layer_refused(tri_nn_dropout(1.5), "p must be in [0, 1]");
}

/* Layers take one input to one output, and say so on every output. */
static void layers_refuse_other_numbers(void **state)
{
    tri_module *layers[] = {tri_nn_linear(2, 2, NULL), tri_nn_conv2d(4, 2, 1, NULL),
                            tri_nn_batch_norm2d(2, NULL), tri_nn_relu(),
                            tri_nn_max_pool2d(2, NULL)};
    tri_tensor *x = tri_tensor_create((int64_t[]){2, 2, 2, 2}, 4, TRI_DTYPE_F32);

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(layers); i++) {
        tri_tensor *const in[2] = {x, x};
        tri_tensor *out[3] = {NULL, NULL, x};

        tri_forward_n(layers[i], in, 2, out, 1);
        CHECK_FAILS(tri_tensor_status(out[0]), TRI_ERR_INVALID_ARG, "1 input");
        tri_forward_n(layers[i], in, 1, out, 2);
        CHECK_FAILS(tri_tensor_status(out[0]), TRI_ERR_INVALID_ARG, "1 input");
        CHECK_FAILS(tri_tensor_status(out[1]), TRI_ERR_INVALID_ARG, "1 input");
        assert_ptr_equal(out[2], x);
        tri_module_destroy(layers[i]);
    }
    tri_step_end();
    tri_tensor_unref(x);
}

static void groups_divide_the_weights(void **state)
{
    tri_module *conv = tri_nn_conv2d(6, 4, 3, &(tri_nn_conv2d_options){.groups = 2});

    (void)state;
    assert_int_equal(tri_tensor_size(tri_module_find(conv, "weight"), 0), 4);
    assert_int_equal(tri_tensor_size(tri_module_find(conv, "weight"), 1), 3);
    assert_null(tri_module_state(conv, -1).name);
    assert_null(tri_module_state(conv, 2).name);
    tri_module_destroy(conv);
}

static void names_are_checked(void **state)
{
    const char *bad[] = {"a.b", "", "0"};

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(bad); i++) {
        tri_module *net = tri_nn_sequential(tri_nn_relu());

        (void)tri_module_add_child(net, bad[i], tri_nn_relu());
        assert_int_equal(tri_module_status(net), TRI_ERR_INVALID_ARG);
        tri_module_destroy(net);
        net = tri_nn_sequential(tri_nn_relu());
        (void)tri_module_add_buffer(net, bad[i], tri_tensor_create(NULL, 0, TRI_DTYPE_F32));
        assert_int_equal(tri_module_status(net), TRI_ERR_INVALID_ARG);
        tri_module_destroy(net);
    }
}

static void wrong_shapes_name_module_and_line(void **state)
{
    const int64_t shape[2] = {4, 3};
    tri_module *net = tri_nn_sequential(tri_nn_linear(3, 5, NULL), tri_nn_linear(4, 2, NULL));
    tri_tensor *x = tri_tensor_create(shape, 2, TRI_DTYPE_F32);
    tri_tensor *y = tri_forward(net, x);

    (void)state;
    CHECK_FAILS(tri_tensor_status(y), TRI_ERR_INVALID_ARG, "module_test.c:");
    assert_non_null(strstr(tri_last_error(), "1: "));
    assert_non_null(strstr(tri_last_error(), "linear"));
    tri_step_end();
    tri_module_destroy(net);
    tri_tensor_unref(x);
}

/* --- loading -------------------------------------------------------------- */

static void loading_is_strict_and_all_or_nothing(void **state)
{
    const float w[6] = {1, 2, 3, 4, 5, 6}, b[2] = {7, 8};
    tri_state_source sources[] = {
        {.name = "module.weight", .dtype = TRI_DTYPE_F32, .ndim = 2, .shape = {2, 3}, .data = w},
        {.name = "module.bias", .dtype = TRI_DTYPE_F32, .ndim = 1, .shape = {2}, .data = b},
        {.name = "extra", .dtype = TRI_DTYPE_F32, .ndim = 1, .shape = {2}, .data = b},
    };
    tri_module *net = tri_nn_linear(3, 2, NULL);
    uint64_t before, after;

    (void)state;
    CHECK_OK(tri_module_hash(net, &before));
    CHECK_FAILS(tri_module_load(net, sources, 3, NULL), TRI_ERR_INVALID_ARG, "unexpected: extra");
    CHECK_FAILS(tri_module_load(net, sources, 1, NULL), TRI_ERR_INVALID_ARG, "missing: bias");
    sources[0].shape[1] = 4;
    CHECK_FAILS(tri_module_load(net, sources, 2, NULL), TRI_ERR_INVALID_ARG,
                "weight is f32[2, 3] in the model, f32[2, 4] in what is loaded");
    CHECK_OK(tri_module_hash(net, &after));
    assert_true(before == after);
    sources[0].shape[1] = 3;
    CHECK_OK(tri_module_load(net, sources, 2, NULL));
    check_bits(tri_module_find(net, "weight"), w, sizeof(w));
    check_bits(tri_module_find(net, "bias"), b, sizeof(b));
    CHECK_OK(tri_module_hash(net, &after));
    assert_true(before != after);
    tri_module_destroy(net);
}

/* --- forward -------------------------------------------------------------- */

static void sum_and_difference(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                               int n_out)
{
    (void)self;
    assert_int_equal(n_in, 2);
    if (n_out > 0)
        out[0] = tri_add(in[0], in[1]);
    if (n_out > 1)
        out[1] = tri_sub(in[0], in[1]);
}

static void modules_take_and_give_several(void **state)
{
    static const tri_module_class type = {.name = "both", .forward = sum_and_difference};
    const float a = 5, b = 3;
    tri_module *both = tri_module_create(&type);
    tri_tensor *in[2] = {tri_tensor_from(NULL, 0, TRI_DTYPE_F32, &a),
                         tri_tensor_from(NULL, 0, TRI_DTYPE_F32, &b)};
    tri_tensor *out[3];

    (void)state;
    tri_forward_n(both, in, 2, out, 2);
    assert_true(tri_item(tri_keep(out[0])) == 8.0);
    tri_step_end();
    tri_forward_n(both, in, 2, out, 3);
    CHECK_FAILS(tri_tensor_status(out[2]), TRI_ERR_INVALID_ARG, "left output 2 of 3 unset");
    tri_step_end();
    tri_tensor_unref(out[2]);
    tri_tensor_unref(in[0]);
    tri_tensor_unref(in[1]);
    tri_module_destroy(both);
}

static void a_linear_layer_computes(void **state)
{
    const float w[6] = {1, 2, 3, 4, 5, 6}, b[2] = {0.5f, -1}, ones[3] = {1, 1, 1};
    const int64_t shape[2] = {1, 3};
    const tri_state_source sources[] = {
        {.name = "weight", .dtype = TRI_DTYPE_F32, .ndim = 2, .shape = {2, 3}, .data = w},
        {.name = "bias", .dtype = TRI_DTYPE_F32, .ndim = 1, .shape = {2}, .data = b}};
    tri_module *net = tri_nn_linear(3, 2, NULL);
    tri_tensor *x = tri_tensor_from(shape, 2, TRI_DTYPE_F32, ones), *y;
    float got[2];

    (void)state;
    CHECK_OK(tri_module_load(net, sources, 2, NULL));
    y = tri_keep(tri_forward(net, x));
    CHECK_OK(tri_tensor_copy_out(y, got, sizeof(got)));
    assert_true(got[0] == 6.5f && got[1] == 14.0f);
    tri_step_end();
    tri_tensor_unref(x);
    tri_module_destroy(net);
}

static void a_module_does_not_contain_itself(void **state)
{
    tri_module *inner = tri_nn_sequential(tri_nn_relu()), *outer = tri_nn_sequential(inner), *root;

    (void)state;
    root = tri_nn_sequential(outer);
    CHECK_OK(tri_module_status(root));
    assert_ptr_equal(tri_module_add_child(inner, "root", root), inner);
    CHECK_FAILS(tri_module_status(inner), TRI_ERR_INVALID_ARG,
                "child \"root\" contains this module already");
    assert_ptr_equal(tri_module_add_child(outer, "self", outer), outer);
    CHECK_FAILS(tri_module_status(outer), TRI_ERR_INVALID_ARG, "contains this module");
    tri_module_train(root, false); /* still a tree */
    assert_false(tri_module_is_training(inner));
    tri_module_destroy(root);
}

static void a_child_needs_a_name(void **state)
{
    tri_module *inner = tri_nn_relu(), *outer = tri_nn_sequential(inner);
    tri_module *net = tri_nn_sequential(tri_nn_relu());

    (void)state;
    assert_ptr_equal(tri_module_add_child(net, NULL, inner), net); /* which is a part of outer */
    CHECK_FAILS(tri_module_status(net), TRI_ERR_INVALID_ARG, "\"NULL\" cannot name a part");
    tri_module_destroy(net);
    tri_module_destroy(outer);
}

/* As deep as is allowed works; deeper is an error from either end, and no overflow of the stack. */
static void nesting_ends_with_an_error(void **state)
{
    tri_tensor *x = tri_tensor_from((int64_t[]){1}, 1, TRI_DTYPE_F32, (const float[]){-3});
    tri_module *net = tri_nn_relu(), *root, *at;

    (void)state;
    for (int level = 1; level < 1024; level++)
        net = tri_nn_sequential(net);
    CHECK_OK(tri_module_status(net));
    assert_true(tri_item(tri_forward(net, x)) == 0.0);
    for (int level = 0; level < 100000; level++)
        net = tri_nn_sequential(net);
    CHECK_FAILS(tri_module_status(net), TRI_ERR_INVALID_ARG, "1024 levels are allowed");
    assert_true(isnan(tri_item(tri_forward(net, x))));
    tri_step_end();
    tri_module_destroy(net);
    root = at = tri_nn_sequential(tri_nn_relu());
    for (int level = 2; level < 1024; level++)
        at = tri_module_add_child(at, "down", tri_nn_sequential(tri_nn_relu()));
    CHECK_OK(tri_module_status(at));
    CHECK_FAILS(
        tri_module_status(tri_module_add_child(at, "down", tri_nn_sequential(tri_nn_relu()))),
        TRI_ERR_INVALID_ARG, "nested 1025 deep");
    tri_module_destroy(root);
    tri_tensor_unref(x);
}

static void every_allocation_may_fail(void **state)
{
    tri_status status = TRI_ERR_NO_MEMORY;
    long n = 0, before;

    (void)state;
    before = live_at_start();
    while (status != TRI_OK && n < 1000) {
        tri_module *net;

        trii_alloc_fail_at(++n);
        net = tri_nn_sequential(tri_nn_linear(2, 2, NULL), tri_nn_batch_norm2d(2, NULL),
                                tri_nn_relu());
        status = tri_module_status(net);
        if (status == TRI_OK && tri_module_state_count(net) != 7)
            status = TRI_ERR_NO_MEMORY;
        trii_alloc_fail_at(0);
        tri_module_destroy(net);
        assert_int_equal(trii_alloc_live(), before);
    }
    assert_true(n > 10 && n < 1000);
}

static float first_weight(const char *name, tri_module *net)
{
    float weights[9];

    CHECK_OK(tri_tensor_copy_out(tri_module_find(net, name), weights, sizeof(weights)));
    return weights[0];
}

/* Compilers may make the arguments of a function in any order, and gcc begins with the last. */
static void layers_of_a_sequential_are_made_in_order(void **state)
{
    tri_module *first, *second, *apart, *together;

    (void)state;
    tri_manual_seed(7);
    first = tri_nn_linear(3, 3, NULL);
    second = tri_nn_linear(3, 3, NULL);
    apart = tri_nn_sequential(first, second);
    tri_manual_seed(7);
    together = tri_nn_sequential(tri_nn_linear(3, 3, NULL), tri_nn_linear(3, 3, NULL));
    assert_true(first_weight("0.weight", apart) == first_weight("0.weight", together));
    assert_true(first_weight("1.weight", apart) == first_weight("1.weight", together));
    tri_module_destroy(apart);
    tri_module_destroy(together);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kaiming_counts_the_inputs_or_the_outputs),
        cmocka_unit_test(linear_and_conv_start_with_the_bits_of_torch),
        cmocka_unit_test(doubles_start_with_the_bits_of_torch),
        cmocka_unit_test(normal_values_follow_torch_to_rounding),
        cmocka_unit_test(a_tree_owns_everything),
        cmocka_unit_test(registering_later_renews_the_state),
        cmocka_unit_test(a_failed_child_fails_its_parents),
        cmocka_unit_test(refused_layers_say_why),
        cmocka_unit_test(layers_refuse_other_numbers),
        cmocka_unit_test(groups_divide_the_weights),
        cmocka_unit_test(layers_of_a_sequential_are_made_in_order),
        cmocka_unit_test(names_are_checked),
        cmocka_unit_test(wrong_shapes_name_module_and_line),
        cmocka_unit_test(loading_is_strict_and_all_or_nothing),
        cmocka_unit_test(modules_take_and_give_several),
        cmocka_unit_test(a_linear_layer_computes),
        cmocka_unit_test(a_module_does_not_contain_itself),
        cmocka_unit_test(a_child_needs_a_name),
        cmocka_unit_test(nesting_ends_with_an_error),
        cmocka_unit_test(every_allocation_may_fail),
    };

    return test_main(argc, argv, tests, TRII_COUNT_OF(tests));
}
