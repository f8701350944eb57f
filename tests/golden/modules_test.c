/* modules_test.c - modules print as PyTorch's do (modules.txt, made by make_modules.py). */
#include <stdlib.h>
#include <string.h>

#include <trireme/trireme.h>

#include "testing/check.h"
#include "testing/golden.h"

#define LONGEST 2048

static tri_module *activations(void)
{
    return tri_nn_sequential(tri_nn_relu(), tri_nn_leaky_relu(0.01), tri_nn_leaky_relu(1e-5),
                             tri_nn_gelu(TRI_GELU_ERF), tri_nn_gelu(TRI_GELU_TANH), tri_nn_silu(),
                             tri_nn_tanh(), tri_nn_sigmoid(), tri_nn_softmax(-1),
                             tri_nn_log_softmax(1));
}

static tri_module *pools(void)
{
    return tri_nn_sequential(
        tri_nn_max_pool2d(3, &(tri_nn_pool2d_options){.stride = 2, .padding = 1}),
        tri_nn_max_pool2d(0, &(tri_nn_pool2d_options){.kernel_hw = {3, 2}, .ceil_mode = true}),
        tri_nn_avg_pool2d(2, NULL),
        tri_nn_avg_pool2d(
            0, &(tri_nn_pool2d_options){.kernel_hw = {2, 3}, .stride = 1, .padding_hw = {1, 0}}),
        tri_nn_adaptive_avg_pool2d(1, 1), tri_nn_adaptive_max_pool2d(7, 5));
}

static tri_module *pools_of_rows(void)
{
    return tri_nn_sequential(
        tri_nn_max_pool1d(3, &(tri_nn_pool1d_options){.stride = 2, .padding = 1}),
        tri_nn_max_pool1d(2, &(tri_nn_pool1d_options){.ceil_mode = true}),
        tri_nn_avg_pool1d(2, NULL),
        tri_nn_avg_pool1d(3, &(tri_nn_pool1d_options){.stride = 2, .padding = 1}),
        tri_nn_adaptive_avg_pool1d(1), tri_nn_adaptive_max_pool1d(5));
}

static tri_module *others(void)
{
    return tri_nn_sequential(tri_nn_flatten(1), tri_nn_flatten(0), tri_nn_dropout(0.5),
                             tri_nn_dropout(0.125), tri_nn_dropout2d(0.25), tri_nn_identity());
}

static tri_module *wide_conv2d(void)
{
    return tri_nn_conv2d(4, 8, 0,
                         &(tri_nn_conv2d_options){.kernel_hw = {3, 1},
                                                  .stride = 2,
                                                  .padding_hw = {1, 0},
                                                  .dilation_hw = {1, 2},
                                                  .groups = 2,
                                                  .no_bias = true});
}

static tri_module *plain_batch_norm2d(void)
{
    return tri_nn_batch_norm2d(6, &(tri_nn_batch_norm2d_options){.eps = TRI_SET(1e-3),
                                                                 .momentum = TRI_SET(0.25),
                                                                 .no_affine = true,
                                                                 .no_track_running_stats = true});
}

static tri_module *converted(void)
{
    tri_module *net = tri_nn_sequential(
        tri_nn_conv2d(3, 8, 3, NULL),
        tri_nn_batch_norm2d(8, &(tri_nn_batch_norm2d_options){.momentum = TRI_SET(0.25)}),
        tri_nn_sequential(tri_nn_batch_norm2d(8, NULL), tri_nn_relu()));

    assert_int_equal(tri_convert_sync_batch_norm(net, NULL), 2);
    return net;
}

static tri_module *norm_across_ranks(const char *name)
{
    if (strcmp(name, "sync_batch_norm") == 0)
        return tri_nn_sync_batch_norm(64, NULL);
    if (strcmp(name, "sync_batch_norm_options") == 0)
        return tri_nn_sync_batch_norm(
            6, &(tri_nn_sync_batch_norm_options){.eps = TRI_SET(1e-3),
                                                 .cumulative = true,
                                                 .no_affine = true,
                                                 .no_track_running_stats = true});
    assert_string_equal(name, "sync_batch_norm_converted");
    return converted();
}

static tri_module *of_sequences(const char *name)
{
    if (strcmp(name, "embedding_bag") == 0)
        return tri_nn_embedding_bag(10, 3, NULL);
    if (strcmp(name, "embedding_bag_options") == 0)
        return tri_nn_embedding_bag(
            10, 3,
            &(tri_nn_embedding_bag_options){.mode = TRI_BAG_AMAX, .padding_idx = TRI_SET(-2)});
    if (strcmp(name, "lstm") == 0)
        return tri_nn_lstm(10, 20, NULL);
    assert_string_equal(name, "lstm_options");
    return tri_nn_lstm(4, 2,
                       &(tri_nn_lstm_options){.num_layers = 2,
                                              .no_bias = true,
                                              .batch_first = true,
                                              .dropout = 0.25,
                                              .bidirectional = true});
}

/* What make_modules.py calls so. */
static tri_module *module_of(const char *name)
{
    if (strcmp(name, "linear") == 0)
        return tri_nn_linear(784, 128, NULL);
    if (strcmp(name, "linear_no_bias") == 0)
        return tri_nn_linear(1, 2, &(tri_nn_linear_options){.no_bias = true});
    if (strcmp(name, "conv2d") == 0)
        return tri_nn_conv2d(3, 64, 3, NULL);
    if (strcmp(name, "conv2d_options") == 0)
        return wide_conv2d();
    if (strcmp(name, "batch_norm1d") == 0)
        return tri_nn_batch_norm1d(32, &(tri_nn_batch_norm2d_options){.eps = TRI_SET(1e-3)});
    if (strcmp(name, "batch_norm2d") == 0)
        return tri_nn_batch_norm2d(64, NULL);
    if (strcmp(name, "batch_norm2d_options") == 0)
        return plain_batch_norm2d();
    if (strcmp(name, "batch_norm2d_cumulative") == 0)
        return tri_nn_batch_norm2d(6, &(tri_nn_batch_norm2d_options){.cumulative = true});
    if (strncmp(name, "sync_", 5) == 0)
        return norm_across_ranks(name);
    if (strcmp(name, "layer_norm") == 0)
        return tri_nn_layer_norm(TRI_SHAPE(768), NULL);
    if (strcmp(name, "layer_norm_options") == 0)
        return tri_nn_layer_norm(
            TRI_SHAPE(4, 6), &(tri_nn_layer_norm_options){.eps = TRI_SET(1e-12), .no_bias = true});
    if (strcmp(name, "layer_norm_plain") == 0)
        return tri_nn_layer_norm(
            TRI_SHAPE(5),
            &(tri_nn_layer_norm_options){.eps = TRI_SET(0), .no_elementwise_affine = true});
    if (strcmp(name, "rms_norm") == 0)
        return tri_nn_rms_norm(TRI_SHAPE(64), NULL);
    if (strcmp(name, "rms_norm_options") == 0)
        return tri_nn_rms_norm(
            TRI_SHAPE(4, 6),
            &(tri_nn_rms_norm_options){.eps = TRI_SET(1e-6), .no_elementwise_affine = true});
    if (strcmp(name, "embedding") == 0)
        return tri_nn_embedding(1000, 16, NULL);
    if (strcmp(name, "embedding_padding") == 0)
        return tri_nn_embedding(10, 3, &(tri_embedding_options){.padding_idx = TRI_SET(-1)});
    if (strncmp(name, "embedding_bag", 13) == 0 || strncmp(name, "lstm", 4) == 0)
        return of_sequences(name);
    if (strcmp(name, "multihead_attention") == 0)
        return tri_nn_multihead_attention(64, 4, NULL);
    if (strcmp(name, "activations") == 0)
        return activations();
    if (strcmp(name, "pools") == 0)
        return pools();
    if (strcmp(name, "pools_of_rows") == 0)
        return pools_of_rows();
    if (strcmp(name, "others") == 0)
        return others();
    if (strcmp(name, "nothing") == 0)
        return tri_nn_sequential_of(0, NULL);
    if (strcmp(name, "nested") == 0)
        return tri_nn_sequential(tri_nn_sequential(tri_nn_linear(2, 3, NULL), tri_nn_relu()),
                                 tri_nn_sequential_of(0, NULL));
    if (strcmp(name, "wrapped") == 0)
        return tri_ddp(tri_nn_sequential(tri_nn_linear(2, 3, NULL)), NULL);
    return NULL;
}

static void check_printed(const char *name, const char *wanted)
{
    tri_module *module = module_of(name);
    char text[LONGEST] = "";
    FILE *file = tmpfile();

    CHECK_OK(tri_module_status(module));
    assert_non_null(file);
    tri_module_print(module, file);
    rewind(file);
    assert_true(fread(text, 1, sizeof(text) - 1, file) > 0);
    (void)fclose(file);
    assert_string_equal(text, wanted);
    tri_module_destroy(module);
}

static void modules_print_as_torch_s_do(void **state)
{
    char line[256], name[64] = "", wanted[LONGEST] = "";
    FILE *file;
    int n = 0;

    (void)state;
    CHECK_OK(tri_init(NULL));
    file = golden_open("modules.txt");
    for (bool more = true; more;) {
        more = fgets(line, sizeof(line), file) != NULL;
        if (more && strncmp(line, "== ", 3) != 0) {
            assert_true(strlen(wanted) + strlen(line) < sizeof(wanted));
            memcpy(wanted + strlen(wanted), line, strlen(line) + 1);
            continue;
        }
        if (*name != '\0')
            check_printed(name, wanted);
        n += *name != '\0';
        wanted[0] = '\0';
        if (more)
            assert_int_equal(sscanf(line, "== %63s", name), 1);
    }
    assert_int_equal(n, 30);
    (void)fclose(file);
    tri_finalize();
}

static int long_repr(tri_module *self, char *text, size_t bytes)
{
    (void)self;
    return snprintf(text, bytes, "%0*d", 700, 7);
}

static void forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out, int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    out[0] = in[0];
}

static void what_a_user_writes_between_the_brackets_may_be_long(void **state)
{
    static const tri_module_class type = {
        .name = "Mine", .forward = forward, .extra_repr = long_repr};
    tri_module *mine = tri_module_create(&type);
    FILE *file = tmpfile();
    char text[LONGEST] = "";

    (void)state;
    tri_module_add_child(mine, "part", tri_nn_relu());
    tri_module_print(mine, file);
    rewind(file);
    assert_int_equal(fread(text, 1, sizeof(text) - 1, file),
                     strlen("Mine(\n  \n  (part): ReLU()\n)\n") + 700);
    assert_non_null(strstr(text, "7\n  (part): ReLU()\n)\n"));
    (void)fclose(file);
    tri_module_destroy(mine);
}

static void a_failed_module_prints_why(void **state)
{
    tri_module *failed = tri_nn_linear(0, 1, NULL);
    FILE *file = tmpfile();
    char text[LONGEST] = "";

    (void)state;
    tri_module_print(failed, file);
    tri_module_print(NULL, file);
    rewind(file);
    assert_true(fread(text, 1, sizeof(text) - 1, file) > 0);
    assert_string_equal(text, "failed(failed: nn_linear(0, 1): in_features must be at least 1)\n"
                              "failed(failed: the module is NULL)\n");
    (void)fclose(file);
    tri_module_destroy(failed);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(modules_print_as_torch_s_do),
    cmocka_unit_test(what_a_user_writes_between_the_brackets_may_be_long),
    cmocka_unit_test(a_failed_module_prints_why),
};

TEST_MAIN(tests)
