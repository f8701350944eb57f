/*
 * large_graph_test.c - random steps on millions of elements, by the plan and by the reference
 * kernels: every gradient is compared as a whole, since among millions one ReLU or maximum may
 * decide otherwise by a rounding.
 */
/* ctest: labels=full timeout=300 */
#include <math.h>

#include "base/compiler.h"
#include "train/device/cpu/cpu_parallel.h"
#include "train/graph/step/step.h"
#include "testing/check.h"
#include "testing/random_graph.h"

#define TOLERANCE 1e-3 /* of the norm */

typedef struct sizes {
    int n_ops;
    int64_t image[4], matrix[2];
} sizes;

typedef struct gradients {
    float *data[RANDOM_GRAPH_MAX];
    int64_t n[RANDOM_GRAPH_MAX];
    int count;
} gradients;

static gradients run_graph(uint64_t seed, const sizes *s)
{
    gradients r = {.count = 0};
    random_graph g;

    tri_rng_state_set(&(tri_rng){.step = 1}); /* part of random numbers */
    random_graph_init(&g, seed, s->n_ops, TRI_DTYPE_F32);
    g.sized = g.quiet = true;
    memcpy(g.image, s->image, sizeof(g.image));
    memcpy(g.matrix, s->matrix, sizeof(g.matrix));
    tri_backward(random_graph_record(&g));
    CHECK_OK(tri_step_end_status());
    for (int p = 0; p < g.n_params; p++) {
        tri_tensor *grad = tri_grad(g.params[p]);

        if (grad == NULL)
            continue;
        r.n[r.count] = tri_tensor_numel(grad);
        r.data[r.count] = malloc((size_t)r.n[r.count] * sizeof(float) + 1);
        CHECK_OK(tri_tensor_copy_out(grad, r.data[r.count], (size_t)r.n[r.count] * sizeof(float)));
        r.count++;
    }
    random_graph_fini(&g);
    CHECK_OK(tri_step_end_status());
    return r;
}

static void compare(uint64_t seed, int threads, const gradients *have, const gradients *want)
{
    assert_int_equal(have->count, want->count);
    for (int k = 0; k < have->count; k++) {
        double off = 0, norm = 0;

        assert_int_equal(have->n[k], want->n[k]);
        for (int64_t i = 0; i < have->n[k]; i++) {
            double a = (double)have->data[k][i], b = (double)want->data[k][i];

            off += (a - b) * (a - b);
            norm += b * b;
        }
        if (!(sqrt(off) <= TOLERANCE * sqrt(norm) + 1e-7))
            fail_msg("seed %llu, %d threads: gradient %d of %lld elements is off by %.3g of its "
                     "norm %.3g",
                     (unsigned long long)seed, threads, k, (long long)have->n[k], sqrt(off / norm),
                     sqrt(norm));
        free(have->data[k]);
    }
}

static void check_sizes(const sizes *s)
{
    for (uint64_t seed = 400; seed < 404 - 2 * TEST_SANITIZED; seed++) {
        gradients want, have;

        trii_executor_set(&trii_executor_reference);
        want = run_graph(seed, s);
        trii_executor_set(NULL);
        for (int threads = 1; threads <= 3; threads += 2) {
            trii_parallel_set_threads(threads);
            trii_step_release(); /* plans of another number of threads */
            have = run_graph(seed, s);
            compare(seed, threads, &have, &want);
        }
        for (int k = 0; k < want.count; k++)
            free(want.data[k]);
    }
}

static void rows_by_the_million(void **state)
{
    const sizes s = {6, {1, 2, 3, 4}, {1 << 18, 16}};

    (void)state;
    check_sizes(&s);
}

static void columns_by_the_million(void **state)
{
    const sizes s = {6, {1, 2, 3, 4}, {2, 1 << 21}};

    (void)state;
    check_sizes(&s);
}

static void pixels_by_the_million(void **state)
{
    const sizes s = {5, {2, 2, 1024, 1024}, {3, 4}};

    (void)state;
    check_sizes(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(rows_by_the_million),
    cmocka_unit_test(columns_by_the_million),
    cmocka_unit_test(pixels_by_the_million),
};

TEST_MAIN(tests)
