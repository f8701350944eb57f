/*
 * products_large_test.c - large products against sums in double: every order of the operands, rows
 * apart, sizes around those of blocks, many products, any number of threads.
 */
#include "train/device/cpu/products_large.h"

#include <math.h>
#include <stdlib.h>

#include "train/device/cpu/cpu_parallel.h"
#include "testing/check.h"

#define GAP 3 /* elements between rows */

typedef struct product {
    trii_matmul_shape shape;
    float *a, *b, *bias, *c;
    int64_t c_elements;
} product;

static float value(int64_t i)
{
    return (float)(i * 2654435761 % 1009) / 504.5F - 1;
}

static float *values(int64_t n)
{
    float *v = malloc((size_t)n * sizeof(*v));

    for (int64_t i = 0; i < n; i++)
        v[i] = value(i);
    return v;
}

static product create(int64_t batch, int64_t m, int64_t n, int64_t k, bool a_cols, bool b_cols,
                      bool bias)
{
    product p = {.shape = {.batch = batch,
                           .m = m,
                           .n = n,
                           .k = k,
                           .a_row = a_cols ? 1 : k + GAP,
                           .a_col = a_cols ? m + GAP : 1,
                           .b_row = b_cols ? 1 : n + GAP,
                           .b_col = b_cols ? k + GAP : 1,
                           .c_row = n + GAP,
                           .bias = bias}};

    if (batch > 1) {
        p.shape.a_batch = (a_cols ? k : m) * ((a_cols ? m : k) + GAP);
        p.shape.b_batch = (b_cols ? n : k) * ((b_cols ? k : n) + GAP);
        p.shape.c_batch = m * (n + GAP);
    }
    p.c_elements = batch * m * (n + GAP);
    p.a = values(batch * (a_cols ? k : m) * ((a_cols ? m : k) + GAP));
    p.b = values(batch * (b_cols ? n : k) * ((b_cols ? k : n) + GAP));
    p.bias = values(n);
    p.c = malloc((size_t)p.c_elements * sizeof(float));
    return p;
}

static void destroy(product *p)
{
    free(p->a);
    free(p->b);
    free(p->bias);
    free(p->c);
}

static void execute(const product *p)
{
    const int args[5] = {0, 1, p->shape.bias ? 2 : -1, 3, 4};
    void *data[5] = {p->a, p->b, p->bias, p->c, NULL};
    trii_kernel *kernel = NULL;

    for (int64_t i = 0; i < p->c_elements; i++)
        p->c[i] = NAN;
    CHECK_OK(trii_cpu_large_product(&p->shape, args, "product", &kernel));
    data[4] = malloc(kernel->scratch_bytes + 1);
    CHECK_OK(kernel->run(kernel, data, NULL));
    CHECK_OK(kernel->run(kernel, data, NULL)); /* over what is there */
    free(data[4]);
    kernel->destroy(kernel);
}

static void check(const product *p)
{
    const trii_matmul_shape *s = &p->shape;

    for (int64_t e = 0; e < p->c_elements; e++) {
        int64_t j = e % s->c_row, i = e / s->c_row % s->m, q = e / s->c_row / s->m;
        double want = s->bias && j < s->n ? (double)p->bias[j] : 0;

        if (j >= s->n) {
            assert_true(isnan(p->c[e])); /* between rows */
            continue;
        }
        for (int64_t l = 0; l < s->k; l++)
            want += (double)p->a[q * s->a_batch + i * s->a_row + l * s->a_col] *
                    (double)p->b[q * s->b_batch + l * s->b_row + j * s->b_col];
        CHECK_NEAR((double)p->c[e], want, 1e-5 * (1 + sqrt((double)s->k)));
    }
}

static void every_order_and_size(void **state)
{
    static const int64_t
        sizes[][3] = {{1, 65, 300},   {15, 48, 7},    {16, 49, 64}, {17, 1, 33},
                      {64, 131, 1},   {131, 64, 96},  {7, 700, 13}, {65, 17, 2500},
                      {16, 20, 5500}, {17, 130, 2500}}; /* the last in several panels */

    (void)state;
    for (int threads = TEST_SANITIZED ? 8 : 1; threads <= 8; threads += threads < 3 ? 1 : 5) {
        trii_parallel_set_threads(threads);
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            for (int order = 0; order < 8; order += TEST_SANITIZED ? 3 : 1) {
                product p = create(1, sizes[i][0], sizes[i][1], sizes[i][2], (order & 1) != 0,
                                   (order & 2) != 0, (order & 4) != 0);

                execute(&p);
                check(&p);
                destroy(&p);
            }
        }
    }
}

static void many_products(void **state)
{
    static const int64_t batches[] = {1, 2, 3, 11};

    (void)state;
    for (int threads = TEST_SANITIZED ? 8 : 1; threads <= 8; threads += threads < 3 ? 1 : 5) {
        trii_parallel_set_threads(threads);
        for (size_t i = 0; i < sizeof(batches) / sizeof(batches[0]); i++) {
            for (int order = 0; order < 4; order++) {
                product p =
                    create(batches[i], 33, 50, 20, (order & 1) != 0, (order & 2) != 0, false);

                execute(&p);
                check(&p);
                p.shape.a_batch = 0; /* one on the left for all */
                execute(&p);
                check(&p);
                destroy(&p);
            }
        }
    }
}

/* Which a kernel that was compiled before gives as well as a new one. */
static void equal_products_have_equal_bits(void **state)
{
    product p = create(1, 77, 200, 384, false, true, true);
    float *first = malloc((size_t)p.c_elements * sizeof(float));

    (void)state;
    trii_parallel_set_threads(2);
    execute(&p);
    memcpy(first, p.c, (size_t)p.c_elements * sizeof(float));
    for (int i = 0; i < 3; i++) {
        product other = create(1, 100 + i, 200, 384, false, true, true);

        execute(&other); /* another number of rows in between */
        destroy(&other);
        execute(&p);
        assert_memory_equal(first, p.c, (size_t)p.c_elements * sizeof(float));
    }
    free(first);
    destroy(&p);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_order_and_size),
    cmocka_unit_test(many_products),
    cmocka_unit_test(equal_products_have_equal_bits),
};

TEST_MAIN(tests)
