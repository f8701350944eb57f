/*
 * lengths_test.c - networks whose sequences, or batches, are of many sizes: each size has a plan of
 * its own, but after a few no code is compiled any more.
 */
/* ctest: threads=none tsan=no */
#include <trireme/models.h>
#include <trireme/trireme.h>

#include "train/device/cpu/cpu_parallel.h"
#include "train/plan/plan.h"
#include "testing/check.h"

#define SIZES 40
#define FIRST 20 /* may compile */

/* 1 .. SIZES, each once, in no order. */
static void shuffle(int64_t *sizes)
{
    uint64_t state = 7;

    for (int i = 0; i < SIZES; i++)
        sizes[i] = i + 1;
    for (int i = SIZES - 1; i > 0; i--) {
        int64_t other, kept = sizes[i];

        state = state * UINT64_C(6364136223846793005) + 1;
        other = (int64_t)(state >> 33) % (i + 1);
        sizes[i] = sizes[other];
        sizes[other] = kept;
    }
}

typedef struct run {
    tri_module *net;
    tri_optimizer *opt;
    bool narrow;
    tri_dtype dtype; /* of the products, if narrow */
    /* One step of this size. */
    double (*step)(const struct run *r, int64_t size);
} run;

/* The loss, after backward. */
static double learn(const run *r, tri_tensor *logits, tri_tensor *target)
{
    tri_tensor *loss = tri_cross_entropy(logits, target, NULL);
    double value;

    tri_backward(loss);
    CHECK_OK(tri_optimizer_step(r->opt));
    CHECK_OK(tri_item_status(loss, &value));
    CHECK_OK(tri_step_end_status());
    return value;
}

static tri_tensor *forward(const run *r, tri_tensor *x)
{
    tri_tensor *y;

    if (r->narrow)
        tri_autocast_begin(r->dtype);
    y = tri_forward(r->net, x);
    if (r->narrow)
        tri_autocast_end();
    return y;
}

static tri_tensor *classes(const int64_t *shape, int ndim, int64_t n)
{
    int64_t values[8 * SIZES], elements = 1;

    for (int d = 0; d < ndim; d++)
        elements *= shape[d];
    for (int64_t i = 0; i < elements; i++)
        values[i] = i * 7919 % 61 % n;
    return tri_tensor_from(shape, ndim, TRI_DTYPE_I64, values);
}

static double gpt_step(const run *r, int64_t batch, int64_t length)
{
    tri_tensor *x = classes(TRI_SHAPE(batch, length), 64);
    double loss = learn(r, tri_reshape(forward(r, x), TRI_SHAPE(-1, 64)), tri_flatten(x, 0));

    tri_tensor_unref(x);
    return loss;
}

static double gpt_of_length(const run *r, int64_t size)
{
    return gpt_step(r, 4, size);
}

static double gpt_of_batch(const run *r, int64_t size)
{
    return gpt_step(r, size, 7);
}

static double images_of_batch(const run *r, int64_t size)
{
    float *values = malloc((size_t)size * 3 * 81 * sizeof(*values));
    tri_tensor *x, *target = classes(&size, 1, 10);
    double loss;

    for (int64_t i = 0; i < size * 3 * 81; i++)
        values[i] = (float)(i * 7919 % 61) / 30.5F - 1;
    x = tri_tensor_from(TRI_SHAPE(size, 3, 9, 9), TRI_DTYPE_F32, values);
    loss = learn(r, forward(r, x), target);
    free(values);
    tri_tensor_unref(x);
    tri_tensor_unref(target);
    return loss;
}

static tri_module *gpt(void)
{
    return tri_model_gpt2(&(tri_model_gpt2_options){
        .layers = 1, .width = 128, .heads = 2, .context = SIZES, .vocabulary = 64});
}

static tri_module *conv(int64_t in, int64_t out, int kernel, int stride, int groups)
{
    return tri_nn_conv2d(
        in, out, kernel,
        &(tri_nn_conv2d_options){.stride = stride, .padding = kernel / 2, .groups = groups});
}

/* Windows, strides, groups, pools; what flatten needs in plain order. */
static tri_module *convolutions(void)
{
    return tri_nn_sequential(conv(3, 16, 3, 1, 1), tri_nn_batch_norm2d(16, NULL), tri_nn_relu(),
                             conv(16, 64, 1, 1, 1), tri_nn_max_pool2d(2, NULL),
                             conv(64, 64, 3, 1, 1), tri_nn_relu(), conv(64, 32, 3, 2, 4),
                             tri_nn_flatten(1), tri_nn_linear(128, 10, NULL));
}

static void train(run *r, tri_module *(*make)(void), const int64_t *sizes, double *losses)
{
    tri_manual_seed(1);
    r->net = make();
    r->opt = tri_adamw(r->net, 1e-3, NULL);
    for (int i = 0; i < SIZES; i++) {
        trii_plan_stats before = trii_plan_stats_get(), after;

        losses[i] = r->step(r, sizes[i]);
        after = trii_plan_stats_get();
        assert_true(losses[i] > 0 && losses[i] < 10);
        if (i >= FIRST && after.compiled != before.compiled)
            fail_msg("size %lld, number %d: %llu kernels compiled", (long long)sizes[i], i,
                     (unsigned long long)(after.compiled - before.compiled));
    }
    tri_optimizer_destroy(r->opt);
    tri_module_destroy(r->net);
}

/* Nor do plans that are there change a bit of what is trained. */
static void check(tri_module *(*make)(void), run r)
{
    int64_t sizes[SIZES];
    double cold[SIZES], warm[SIZES];
    uint64_t misses;

    trii_parallel_set_threads(1); /* what is compiled is the same, and nobody waits for cores */
    shuffle(sizes);
    train(&r, make, sizes, cold);
    misses = trii_plan_stats_get().misses;
    train(&r, make, sizes, warm);
    assert_true(trii_plan_stats_get().misses < misses + 3);
    assert_memory_equal(cold, warm, sizeof(cold));
}

static void a_gpt_compiles_nothing_for_new_lengths(void **state)
{
    (void)state;
    check(gpt, (run){.step = gpt_of_length});
}

static void a_gpt_in_bf16_compiles_nothing_for_new_lengths(void **state)
{
    (void)state;
    check(gpt, (run){.step = gpt_of_length, .narrow = true, .dtype = TRI_DTYPE_BF16});
}

static void a_gpt_in_f16_compiles_nothing_for_new_lengths(void **state)
{
    (void)state;
    check(gpt, (run){.step = gpt_of_length, .narrow = true, .dtype = TRI_DTYPE_F16});
}

static void a_gpt_in_bf16_compiles_nothing_for_new_batches(void **state)
{
    (void)state;
    check(gpt, (run){.step = gpt_of_batch, .narrow = true, .dtype = TRI_DTYPE_BF16});
}

static void convolutions_compile_nothing_for_new_batches(void **state)
{
    (void)state;
    check(convolutions, (run){.step = images_of_batch});
}

static void convolutions_in_bf16_compile_nothing_for_new_batches(void **state)
{
    (void)state;
    check(convolutions, (run){.step = images_of_batch, .narrow = true, .dtype = TRI_DTYPE_BF16});
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_gpt_compiles_nothing_for_new_lengths),
    cmocka_unit_test(a_gpt_in_bf16_compiles_nothing_for_new_lengths),
    cmocka_unit_test(a_gpt_in_f16_compiles_nothing_for_new_lengths),
    cmocka_unit_test(a_gpt_in_bf16_compiles_nothing_for_new_batches),
    cmocka_unit_test(convolutions_compile_nothing_for_new_batches),
    cmocka_unit_test(convolutions_in_bf16_compile_nothing_for_new_batches),
};

TEST_MAIN(tests)
