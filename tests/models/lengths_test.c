/*
 * lengths_test.c - networks whose sequences, or batches, are of many sizes: each size has a plan of
 * its own, but after a few no code is compiled any more.
 */
#include <trireme/trireme.h>

#include "gpt2.h"
#include "plan/plan.h"
#include "testing/check.h"
#include "vit.h"

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

static tri_tensor *tokens(int64_t batch, int64_t length)
{
    int64_t *values = malloc((size_t)(batch * length) * sizeof(*values));
    tri_tensor *x;

    for (int64_t i = 0; i < batch * length; i++)
        values[i] = i * 7919 % 61;
    x = tri_tensor_from(TRI_DTYPE_I64, TRI_SHAPE(batch, length), values);
    free(values);
    return x;
}

static double gpt_step(tri_module *net, tri_optimizer *opt, int64_t length)
{
    tri_tensor *x = tokens(4, length);
    tri_tensor *logits = tri_reshape(tri_forward(net, x), TRI_SHAPE(-1, 64));
    tri_tensor *loss = tri_cross_entropy(logits, tri_flatten(x, 0), NULL);
    double value;

    tri_backward(loss);
    CHECK_OK(tri_optimizer_step(opt));
    CHECK_OK(tri_item_get(loss, &value));
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
    return value;
}

static void train_gpt(const int64_t *sizes, double *losses)
{
    tri_module *net;
    tri_optimizer *opt;

    tri_manual_seed(1);
    net = gpt_create(
        &(gpt_options){.layers = 1, .width = 128, .heads = 2, .context = SIZES, .vocabulary = 64});
    opt = tri_adamw(net, 1e-3, NULL);
    for (int i = 0; i < SIZES; i++) {
        trii_plan_stats before = trii_plan_stats_get(), after;

        losses[i] = gpt_step(net, opt, sizes[i]);
        after = trii_plan_stats_get();
        assert_true(losses[i] > 0 && losses[i] < 10);
        if (i >= FIRST && after.compiled != before.compiled)
            fail_msg("length %lld, number %d: %llu kernels compiled", (long long)sizes[i], i,
                     (unsigned long long)(after.compiled - before.compiled));
    }
    tri_optimizer_destroy(opt);
    tri_module_destroy(net);
}

/* Nor do plans that are there change a bit of what is trained. */
static void a_gpt_compiles_nothing_for_new_lengths(void **state)
{
    int64_t sizes[SIZES];
    double cold[SIZES], warm[SIZES];
    uint64_t misses;

    (void)state;
    shuffle(sizes);
    train_gpt(sizes, cold);
    misses = trii_plan_stats_get().misses;
    train_gpt(sizes, warm);
    assert_true(trii_plan_stats_get().misses < misses + 3);
    assert_memory_equal(cold, warm, sizeof(cold));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_gpt_compiles_nothing_for_new_lengths),
};

TEST_MAIN(tests)
