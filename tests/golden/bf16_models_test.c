/*
 * bf16_models_test.c - whole models in bf16, their logits, loss and gradients, against PyTorch's
 * numbers in f64 (bf16_models.txt, made by make_bf16_models.py): to 0.02 of an array's norm, or to
 * 1.5 times as far as PyTorch's own bf16 is from them where that is more.
 */
#include <trireme/models.h>

#include "train/device/cpu/cpu_parallel.h"
#include "golden_sketch.h"
#include "train/graph/step/step.h"
#include "testing/op_cases.h"

#define TOLERANCE 0.02
#define OF_PYTORCH 1.5 /* times its distance; ours is sketched, to a sixth or so */
#define CLASSES 10

/* resnet_block, with SiLU. */
static void silu_block_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                               int n_out)
{
    tri_module **b = tri_module_data(self);
    tri_tensor *y, *around = tri_forward(b[4], in[0]);

    assert_true(n_in == 1 && n_out == 1);
    y = tri_silu(tri_forward(b[1], tri_forward(b[0], in[0])));
    y = tri_forward(b[3], tri_forward(b[2], y));
    out[0] = tri_silu(tri_add(y, around));
}

static tri_module *conv_without_bias(int64_t in, int64_t out, int kernel, int stride)
{
    return tri_nn_conv2d(
        in, out, kernel,
        &(tri_nn_conv2d_options){.stride = stride, .padding = kernel / 2, .no_bias = true});
}

static tri_module *silu_block(int64_t in, int64_t out, int stride)
{
    static const tri_module_class type = {
        .name = "silu_block", .size = 5 * sizeof(tri_module *), .forward = silu_block_forward};
    tri_module *self = tri_module_create(&type);
    tri_module **b = tri_module_data(self);

    b[0] = tri_module_add_child(self, "conv1", conv_without_bias(in, out, 3, stride));
    b[1] = tri_module_add_child(self, "bn1", tri_nn_batch_norm2d(out, NULL));
    b[2] = tri_module_add_child(self, "conv2", conv_without_bias(out, out, 3, 1));
    b[3] = tri_module_add_child(self, "bn2", tri_nn_batch_norm2d(out, NULL));
    b[4] = tri_module_add_child(self, "downsample",
                                in == out ? tri_nn_identity()
                                          : tri_nn_sequential(conv_without_bias(in, out, 1, stride),
                                                              tri_nn_batch_norm2d(out, NULL)));
    return self;
}

static tri_module *resnet_of(tri_module *(*block)(int64_t in, int64_t out, int stride))
{
    return tri_nn_sequential(
        conv_without_bias(3, 16, 7, 2), tri_nn_batch_norm2d(16, NULL), tri_nn_relu(),
        tri_nn_max_pool2d(3, &(tri_nn_pool2d_options){.stride = 2, .padding = 1}), block(16, 16, 1),
        block(16, 32, 2), tri_nn_adaptive_avg_pool2d(1, 1), tri_nn_flatten(1),
        tri_nn_linear(32, CLASSES, NULL));
}

static tri_module *resnet_silu(void)
{
    return resnet_of(silu_block);
}

static tri_module *relu_block(int64_t in, int64_t out, int stride)
{
    return tri_model_resnet_block(false, in, out, stride);
}

static tri_module *resnet_relu(void)
{
    return resnet_of(relu_block);
}

static tri_module *mlp(void)
{
    return tri_nn_sequential(tri_nn_linear(48, 64, NULL), tri_nn_relu(),
                             tri_nn_linear(64, 64, NULL), tri_nn_gelu(TRI_GELU_ERF),
                             tri_nn_linear(64, CLASSES, NULL));
}

static tri_module *gpt(void)
{
    return tri_model_gpt2(&(tri_model_gpt2_options){
        .layers = 2, .width = 32, .heads = 4, .context = 16, .vocabulary = CLASSES});
}

static tri_module *vit(void)
{
    return tri_model_vit(&(tri_model_vit_options){
        .size = 16, .patch = 4, .width = 32, .depth = 2, .heads = 4, .classes = CLASSES});
}

typedef struct model_case {
    const char *name;
    tri_module *(*make)(void);
    op_input x;
} model_case;

static const model_case cases[] = {
    {"resnet_silu", resnet_silu, {'n', 4, {8, 3, 41, 37}}},
    {"resnet", resnet_relu, {'n', 4, {8, 3, 41, 37}}},
    {"mlp", mlp, {'n', 2, {65, 48}}},
    {"gpt", gpt, {'c', 2, {4, 16}}},
    {"vit", vit, {'n', 4, {8, 3, 16, 16}}},
};

/* A tensor of operand k, each of whose numbers u in (-1, 1) becomes offset + factor * u. */
static void fill(tri_tensor *tensor, int k, double offset, double factor, bool round)
{
    op_input like = {.kind = 'n'};
    int64_t n = tri_tensor_numel(tensor);
    float *data = malloc((size_t)n * sizeof(float));

    for (int64_t i = 0; i < n; i++) {
        double v = offset + factor * op_case_value(&like, k, i);

        data[i] = (float)(round ? rint(v) : v);
    }
    CHECK_OK(tri_tensor_copy_in(tensor, data, (size_t)n * sizeof(float)));
    free(data);
}

typedef struct running {
    tri_module *net;
    tri_tensor *x, *target, *y, *loss;
    tri_tensor *params[64];
    int n_params;
} running;

/* Values as make_bf16_models.py gives them. */
static void fill_params(running *r)
{
    for (int64_t i = 0; i < tri_module_state_count(r->net); i++) {
        tri_state_entry e = tri_module_state(r->net, i);
        const char *last = strrchr(e.name, '.');
        int k = r->n_params + 1;

        if (!e.parameter)
            continue;
        if (k == 1)
            fill(e.tensor, k, 0, 1.5, true);
        else if (tri_tensor_ndim(e.tensor) > 1)
            fill(e.tensor, k, 0,
                 1 / sqrt((double)(tri_tensor_numel(e.tensor) / tri_tensor_size(e.tensor, 0))),
                 false);
        else if (last != NULL && strcmp(last, ".weight") == 0) /* of a norm */
            fill(e.tensor, k, 1, 0.5, false);
        else
            fill(e.tensor, k, 0, 0.25, false);
        r->params[r->n_params++] = e.tensor;
    }
}

static void begin_case(running *r, const model_case *c)
{
    int64_t target[256], tokens[64], n;

    *r = (running){.net = c->make()};
    CHECK_OK(tri_module_status(r->net));
    fill_params(r);
    for (int64_t i = 0; i < 64; i++)
        tokens[i] = (7 * i + 3) % CLASSES;
    r->x = c->x.kind == 'c' ? tri_tensor_from(c->x.shape, c->x.ndim, TRI_DTYPE_I64, tokens)
                            : tri_tensor_create(c->x.shape, c->x.ndim, TRI_DTYPE_F32);
    if (c->x.kind != 'c')
        fill(r->x, 0, 0, 1.5, true);
    tri_autocast_begin(TRI_DTYPE_BF16);
    r->y = tri_reshape(tri_forward(r->net, r->x), TRI_SHAPE(-1, CLASSES));
    n = tri_tensor_size(r->y, 0);
    for (int64_t i = 0; i < n; i++)
        target[i] = i % CLASSES;
    r->target = tri_tensor_from(&n, 1, TRI_DTYPE_I64, target);
    r->loss = tri_keep(tri_cross_entropy(r->y, r->target, NULL));
    tri_autocast_end();
    assert_int_equal(tri_tensor_dtype(r->y), TRI_DTYPE_BF16);
    r->y = tri_keep(tri_cast(r->y, TRI_DTYPE_F32));
    tri_backward(r->loss);
    CHECK_OK(tri_run());
}

static void end_case(running *r)
{
    CHECK_OK(tri_step_end_status());
    tri_module_destroy(r->net);
    tri_tensor_unref(r->x);
    tri_tensor_unref(r->target);
    *r = (running){0};
}

/* A line "LABEL OFF NORM SUMS..". */
static void check_line(const char *name, char *line, const running *r)
{
    char *at;
    tri_tensor *tensor;
    double allowed, off;
    int k = (int)strtol(line + 1, &at, 10);

    if (line[0] == 'g') {
        assert_true(k < r->n_params);
        tensor = tri_grad(r->params[k]);
    } else {
        at = strchr(line, ' ');
        tensor = line[0] == 'y' ? r->y : r->loss;
    }
    allowed = OF_PYTORCH * strtod(at, &at);
    allowed = allowed > TOLERANCE ? allowed : TOLERANCE;
    off = sketch_distance(at, tensor);
    if (!(off <= allowed))
        fail_msg("%s: %.4s is off by %.3g of its norm, %.3g is allowed", name, line, off, allowed);
}

static void check_all(void)
{
    FILE *file = golden_open("bf16_models.txt");
    char line[4096];
    running r = {0};
    size_t begun = 0;
    int arrays = 0;

    while (fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, "case ", 5) != 0) {
            check_line(cases[begun - 1].name, line, &r);
            arrays++;
            continue;
        }
        line[strcspn(line, "\n")] = '\0';
        if (r.net != NULL) {
            assert_int_equal(arrays, r.n_params + 2);
            end_case(&r);
        }
        assert_true(begun < sizeof(cases) / sizeof(cases[0]));
        assert_string_equal(line + 5, cases[begun].name);
        begin_case(&r, &cases[begun++]);
        arrays = 0;
    }
    assert_int_equal(arrays, r.n_params + 2);
    end_case(&r);
    fclose(file);
    assert_int_equal(begun, sizeof(cases) / sizeof(cases[0]));
}

static void models_in_bf16_are_near_to_the_numbers_of_pytorch(void **state)
{
    (void)state;
    check_all();
    trii_parallel_set_threads(3);
    trii_step_release(); /* plans of so many threads */
    check_all();
}

static void models_in_bf16_on_avx2(void **state)
{
    (void)state;
    setenv("TRI_ISA", "avx2", 1);
    check_all();
}

static void models_in_bf16_on_portable_kernels(void **state)
{
    (void)state;
    setenv("TRI_ISA", "portable", 1);
    check_all();
}

static void models_in_bf16_of_the_reference_kernels(void **state)
{
    (void)state;
    trii_executor_set(&trii_executor_reference);
    check_all();
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(models_in_bf16_are_near_to_the_numbers_of_pytorch),
    cmocka_unit_test(models_in_bf16_on_avx2),
    cmocka_unit_test(models_in_bf16_on_portable_kernels),
    cmocka_unit_test(models_in_bf16_of_the_reference_kernels),
};

TEST_MAIN(tests)
