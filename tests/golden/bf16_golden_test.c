/*
 * bf16_golden_test.c - operations on bf16, forward and backward, against PyTorch's numbers in f64
 * of the same rounded operands (bf16.txt, made by make_bf16.py): to 0.005 of an array's norm,
 * little more than the one rounding of its elements.
 */
#include "base/compiler.h"
#include "base/dtype.h"
#include "train/device/cpu/cpu_parallel.h"
#include "train/graph/step/step.h"
#include "golden_sketch.h"
#include "testing/op_cases.h"

#define TOLERANCE 0.005
#define OPERANDS 6

/* Kinds of op_cases.h: n and p, upper case without a gradient; and f: -4 or 4, which decides the
 * sign of what it is added to, however that was rounded. */
typedef struct narrow_case {
    const char *name;
    tri_tensor *(*build)(tri_tensor **in);
    op_input in[OPERANDS];
} narrow_case;

static tri_tensor *conv(tri_tensor **in)
{
    return tri_conv(in[0], in[1], NULL, &(tri_conv_options){.padding = {1, 1}});
}

static tri_tensor *conv_stem(tri_tensor **in)
{
    return tri_conv(in[0], in[1], NULL, &(tri_conv_options){.stride = {2, 2}, .padding = {3, 3}});
}

static tri_tensor *conv_down(tri_tensor **in)
{
    return tri_conv(in[0], in[1], NULL, &(tri_conv_options){.stride = {2, 2}});
}

static tri_tensor *conv_depth(tri_tensor **in)
{
    return tri_conv(in[0], in[1], NULL, &(tri_conv_options){.padding = {1, 1}, .groups = 16});
}

static tri_tensor *max_over(tri_tensor **in)
{
    return tri_max_pool(in[0],
                        &(tri_pool_options){.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}});
}

static tri_tensor *max_every(tri_tensor **in)
{
    return tri_max_pool(in[0],
                        &(tri_pool_options){.kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}});
}

static tri_tensor *max_halve(tri_tensor **in)
{
    return tri_max_pool(in[0], &(tri_pool_options){.kernel = {2, 2}});
}

static tri_tensor *avg_over(tri_tensor **in)
{
    return tri_avg_pool(in[0],
                        &(tri_pool_options){.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}});
}

static tri_tensor *avg_wide(tri_tensor **in)
{
    return tri_avg_pool(in[0],
                        &(tri_pool_options){.kernel = {9, 9}, .stride = {1, 1}, .padding = {4, 4}});
}

static tri_tensor *adaptive_max(tri_tensor **in)
{
    return tri_adaptive_max_pool(in[0], TRI_SHAPE(4, 5));
}

static tri_tensor *adaptive_max_one(tri_tensor **in)
{
    return tri_adaptive_max_pool(in[0], TRI_SHAPE(1, 1));
}

static tri_tensor *adaptive_avg(tri_tensor **in)
{
    return tri_adaptive_avg_pool(in[0], TRI_SHAPE(4, 5));
}

static tri_tensor *adaptive_avg_one(tri_tensor **in)
{
    return tri_adaptive_avg_pool(in[0], TRI_SHAPE(1, 1));
}

static tri_tensor *norm_of(tri_tensor **in, bool training)
{
    return tri_batch_norm(in[0], &(tri_batch_norm_args){.weight = in[1],
                                                        .bias = in[2],
                                                        .running_mean = in[3],
                                                        .running_var = in[4],
                                                        .training = training,
                                                        .momentum = TRI_SET(0.1),
                                                        .eps = TRI_SET(1e-5)});
}

static tri_tensor *bn(tri_tensor **in)
{
    return norm_of(in, true);
}

static tri_tensor *bn_relu(tri_tensor **in)
{
    return tri_relu(norm_of(in, true));
}

static tri_tensor *bn_add_relu(tri_tensor **in)
{
    return tri_relu(tri_add(norm_of(in, true), in[5]));
}

static tri_tensor *bn_eval(tri_tensor **in)
{
    return norm_of(in, false);
}

static tri_tensor *bn_eval_relu(tri_tensor **in)
{
    return tri_relu(norm_of(in, false));
}

static tri_tensor *linear(tri_tensor **in)
{
    return tri_linear(in[0], in[1], in[2]);
}

static tri_tensor *matmul(tri_tensor **in)
{
    return tri_matmul(in[0], in[1]);
}

static tri_tensor *permute(tri_tensor **in)
{
    return tri_permute(in[0], TRI_SHAPE(2, 0, 3, 1));
}

static tri_tensor *flip(tri_tensor **in)
{
    return tri_flip(in[0], 3);
}

#define IMAGES                                                                                     \
    {                                                                                              \
        'n', 4,                                                                                    \
        {                                                                                          \
            2, 16, 15, 13                                                                          \
        }                                                                                          \
    }
#define NORM                                                                                       \
    {'n', 1, {16}}, {'n', 1, {16}}, {'N', 1, {16}},                                                \
    {                                                                                              \
        'P', 1,                                                                                    \
        {                                                                                          \
            16                                                                                     \
        }                                                                                          \
    }
/* clang-format off */
static const narrow_case cases[] = {
    {"conv", conv, {{'n', 4, {2, 16, 9, 10}}, {'n', 4, {32, 16, 3, 3}}}},
    {"conv_stem", conv_stem, {{'n', 4, {1, 3, 20, 21}}, {'n', 4, {16, 3, 7, 7}}}},
    {"conv_down", conv_down, {{'n', 4, {2, 32, 7, 7}}, {'n', 4, {16, 32, 1, 1}}}},
    {"conv_depth", conv_depth, {{'n', 4, {1, 16, 8, 8}}, {'n', 4, {16, 1, 3, 3}}}},
    {"max_over", max_over, {IMAGES}},
    {"max_over_odd", max_over, {{'n', 4, {2, 5, 15, 13}}}},
    {"max_every", max_every, {IMAGES}},
    {"max_halve", max_halve, {IMAGES}},
    {"avg_over", avg_over, {IMAGES}},
    {"avg_wide", avg_wide, {IMAGES}},
    {"adaptive_max", adaptive_max, {IMAGES}},
    {"adaptive_max_one", adaptive_max_one, {IMAGES}},
    {"adaptive_avg", adaptive_avg, {IMAGES}},
    {"adaptive_avg_one", adaptive_avg_one, {IMAGES}},
    {"bn", bn, {IMAGES, NORM}},
    {"bn_relu", bn_relu, {IMAGES, NORM}},
    {"bn_add_relu", bn_add_relu, {IMAGES, NORM, {'f', 4, {2, 16, 15, 13}}}},
    {"bn_eval", bn_eval, {IMAGES, NORM}},
    {"bn_eval_relu", bn_eval_relu, {IMAGES, NORM}},
    {"linear", linear, {{'n', 2, {33, 64}}, {'n', 2, {48, 64}}, {'n', 1, {48}}}},
    {"matmul", matmul, {{'n', 3, {3, 20, 40}}, {'n', 3, {3, 40, 24}}}},
    {"permute", permute, {IMAGES}},
    {"flip", flip, {IMAGES}},
};
/* clang-format on */

/* An operand in f32; unless it is a parameter of one dimension, with the values of bf16. */
static tri_tensor *operand(const op_input *in, int k)
{
    int64_t n = op_case_numel(in);
    float *data = malloc((size_t)n * sizeof(float));
    tri_tensor *tensor;

    for (int64_t i = 0; i < n; i++) {
        data[i] =
            in->kind == 'f' ? op_case_uniform(k, i) < 0.5 ? -4 : 4 : (float)op_case_value(in, k, i);
        if (in->ndim > 1)
            data[i] = trii_bf16_to_f32(trii_f32_to_bf16(data[i]));
    }
    tensor = tri_tensor_from(in->shape, in->ndim, TRI_DTYPE_F32, data);
    free(data);
    tri_requires_grad(tensor, in->kind == 'f' || op_case_wants_grad(in));
    return tensor;
}

/* `line` is the sketch of what the tensor must come near to. */
static void check_sketch(const char *name, const char *line, tri_tensor *tensor)
{
    double off = sketch_distance(strchr(line, ' '), tensor);

    if (!(off <= TOLERANCE))
        fail_msg("%s: %.2s is off by %.3g of its norm", name, line, off);
}

typedef struct running {
    tri_tensor *in[OPERANDS], *y, *weights;
} running;

static void begin_case(running *r, const narrow_case *c)
{
    tri_tensor *used[OPERANDS] = {NULL};
    op_input like = {.kind = 'N'};

    *r = (running){0};
    for (int k = 0; k < OPERANDS && c->in[k].kind != 0; k++) {
        bool images = k == 0 || k == 5 || c->build == matmul;

        r->in[k] = operand(&c->in[k], k);
        used[k] = images ? tri_cast(r->in[k], TRI_DTYPE_BF16) : r->in[k];
    }
    tri_autocast_begin(TRI_DTYPE_BF16);
    r->y = c->build(used);
    tri_autocast_end();
    assert_int_equal(tri_tensor_dtype(r->y), TRI_DTYPE_BF16);
    r->y = tri_keep(tri_cast(r->y, TRI_DTYPE_F32));
    like.ndim = tri_tensor_ndim(r->y);
    for (int d = 0; d < like.ndim; d++)
        like.shape[d] = tri_tensor_size(r->y, d);
    r->weights = operand(&like, 9);
    tri_backward(tri_sum(tri_mul(r->y, r->weights), NULL, 0, false));
    CHECK_OK(tri_run());
}

static void end_case(running *r)
{
    CHECK_OK(tri_step_end_status());
    for (int k = 0; k < OPERANDS; k++)
        tri_tensor_unref(r->in[k]);
    tri_tensor_unref(r->weights);
    *r = (running){0};
}

static void check_all(void)
{
    FILE *file = golden_open("bf16.txt");
    char line[4096];
    running r = {0};
    size_t begun = 0, arrays = 0;

    while (fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, "case ", 5) == 0) {
            line[strcspn(line, "\n")] = '\0';
            end_case(&r);
            assert_true(begun < TRII_COUNT_OF(cases));
            assert_string_equal(line + 5, cases[begun].name);
            begin_case(&r, &cases[begun++]);
            continue;
        }
        check_sketch(cases[begun - 1].name, line,
                     line[0] == 'y' ? r.y : tri_grad(r.in[line[1] - '0']));
        arrays++;
    }
    end_case(&r);
    fclose(file);
    assert_int_equal(begun, TRII_COUNT_OF(cases));
    assert_true(arrays > 2 * begun);
}

static void bf16_is_near_to_the_numbers_of_pytorch(void **state)
{
    (void)state;
    check_all();
    trii_parallel_set_threads(3);
    trii_step_release(); /* plans of so many threads */
    check_all();
}

static void bf16_on_avx2(void **state)
{
    (void)state;
    setenv("TRI_ISA", "avx2", 1);
    check_all();
}

static void bf16_on_portable_kernels(void **state)
{
    (void)state;
    setenv("TRI_ISA", "portable", 1);
    check_all();
}

static void bf16_of_the_reference_kernels(void **state)
{
    (void)state;
    trii_executor_set(&trii_executor_reference);
    check_all();
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(bf16_is_near_to_the_numbers_of_pytorch),
    cmocka_unit_test(bf16_on_avx2),
    cmocka_unit_test(bf16_on_portable_kernels),
    cmocka_unit_test(bf16_of_the_reference_kernels),
};

TEST_MAIN(tests)
