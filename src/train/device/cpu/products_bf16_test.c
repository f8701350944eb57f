/*
 * products_bf16_test.c - products of bf16 against sums in double: every order of the operands, rows
 * apart, a right side in f32, sizes around those of tiles, many products, any number of threads.
 */
/* ctest: start=first also=TRI_ISA=avx2 */
#include "train/device/cpu/products_bf16.h"

#include <math.h>
#include <stdlib.h>

#include "base/dtype.h"
#include "train/device/cpu/cpu_parallel.h"
#include "testing/check.h"

#define GAP 3 /* elements between rows */

typedef struct product {
    trii_matmul_shape shape;
    uint16_t *a, *b;
    float *wide_b, *bias;
    void *c;
    int64_t c_elements;
} product;

static float value(int64_t i)
{
    return (float)(i * 2654435761 % 1009) / 504.5F - 1;
}

static uint16_t *values(int64_t n)
{
    uint16_t *v = malloc((size_t)n * sizeof(*v));

    for (int64_t i = 0; i < n; i++)
        v[i] = trii_f32_to_bf16(value(i));
    return v;
}

static float *floats(int64_t n)
{
    float *v = malloc((size_t)n * sizeof(*v));

    for (int64_t i = 0; i < n; i++)
        v[i] = value(i);
    return v;
}

/* order: of a by columns, of b too, with a bias, b in f32, c in f32. */
static product create(int64_t batch, int64_t m, int64_t n, int64_t k, int order)
{
    bool a_cols = (order & 1) != 0, b_cols = (order & 2) != 0;
    int64_t a_elements = (a_cols ? k : m) * ((a_cols ? m : k) + GAP);
    int64_t b_elements = (b_cols ? n : k) * ((b_cols ? k : n) + GAP);
    product p = {.shape = {.batch = batch,
                           .m = m,
                           .n = n,
                           .k = k,
                           .a_row = a_cols ? 1 : k + GAP,
                           .a_col = a_cols ? m + GAP : 1,
                           .b_row = b_cols ? 1 : n + GAP,
                           .b_col = b_cols ? k + GAP : 1,
                           .c_row = n + GAP,
                           .bias = (order & 4) != 0,
                           .b_is_f32 = (order & 8) != 0,
                           .c_is_f32 = (order & 16) != 0}};

    if (batch > 1) {
        p.shape.a_batch = a_elements;
        p.shape.b_batch = b_elements;
        p.shape.c_batch = m * (n + GAP);
    }
    p.c_elements = batch * m * (n + GAP);
    p.a = values(batch * a_elements);
    p.b = values(batch * b_elements);
    p.wide_b = floats(batch * b_elements);
    p.bias = floats(n);
    p.c = malloc((size_t)p.c_elements * sizeof(float));
    return p;
}

static void destroy(product *p)
{
    free(p->a);
    free(p->b);
    free(p->wide_b);
    free(p->bias);
    free(p->c);
}

static float result(const product *p, int64_t e)
{
    return p->shape.c_is_f32 ? ((float *)p->c)[e] : trii_bf16_to_f32(((uint16_t *)p->c)[e]);
}

static void execute(const product *p)
{
    const int args[5] = {0, 1, p->shape.bias ? 2 : -1, 3, 4};
    void *data[5] = {p->a, p->shape.b_is_f32 ? (void *)p->wide_b : p->b, p->bias, p->c, NULL};
    trii_kernel *kernel = NULL;

    memset(p->c, 0xff, (size_t)p->c_elements * sizeof(float)); /* NaN in both types */
    CHECK_OK(trii_cpu_bf16_product(&p->shape, args, "product", &kernel));
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
            assert_true(isnan(result(p, e))); /* between rows */
            continue;
        }
        for (int64_t l = 0; l < s->k; l++) /* values() are floats() rounded */
            want += (double)trii_bf16_to_f32(p->a[q * s->a_batch + i * s->a_row + l * s->a_col]) *
                    (double)trii_bf16_to_f32(p->b[q * s->b_batch + l * s->b_row + j * s->b_col]);
        CHECK_NEAR((double)result(p, e), want,
                   1e-5 * (1 + sqrt((double)s->k) + fabs(want)) +
                       (s->c_is_f32 ? 0 : fabs(want) / 250));
    }
}

static void check_sizes(const int64_t (*sizes)[3], size_t n, int orders)
{
    for (int threads = TEST_SANITIZED ? 8 : 1; threads <= 8; threads += threads < 3 ? 1 : 5) {
        trii_parallel_set_threads(threads);
        for (size_t i = 0; i < n; i++) {
            for (int order = 0; order < orders; order += TEST_SANITIZED ? 3 : 1) {
                product p = create(1, sizes[i][0], sizes[i][1], sizes[i][2], order);

                execute(&p);
                check(&p);
                destroy(&p);
            }
        }
    }
}

static void every_order_and_size_in_bf16(void **state)
{
    static const int64_t sizes[][3] = {{1, 65, 300}, {15, 48, 7}, {1, 1, 1},    {17, 1, 33},
                                       {64, 13, 1},  {7, 70, 13}, {65, 17, 250}};

    (void)state;
    check_sizes(sizes, sizeof(sizes) / sizeof(sizes[0]), 32);
}

/* The threads of large products are those of every order. */
#define LARGE_ORDERS(n) (TEST_SANITIZED ? 1 : (n))

static void products_of_several_tiles(void **state)
{
    static const int64_t sizes[][3] = {{260, 4200, 1}, {1100, 960, 2}};

    (void)state;
    check_sizes(sizes, sizeof(sizes) / sizeof(sizes[0]), LARGE_ORDERS(3));
}

/* Of one side, of the other, of what is summed. */
static void products_of_more_than_a_block(void **state)
{
    static const int64_t sizes[][3] = {
        {2, 1100, 1100}, {1100, 2, 1100}, {3, 2, 100000}, {1, 1, 1025}, {2, 140000, 1}};

    (void)state;
    check_sizes(sizes, sizeof(sizes) / sizeof(sizes[0]), LARGE_ORDERS(4));
}

static void many_products_in_bf16(void **state)
{
    static const int64_t batches[] = {1, 2, 3, 11};

    (void)state;
    for (int threads = TEST_SANITIZED ? 8 : 1; threads <= 8; threads += threads < 3 ? 1 : 5) {
        trii_parallel_set_threads(threads);
        for (size_t i = 0; i < sizeof(batches) / sizeof(batches[0]); i++) {
            for (int order = 0; order < 4; order++) {
                product p = create(batches[i], 83, 150, 20, order | (i % 2 == 0 ? 16 : 0));

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

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_order_and_size_in_bf16),
    cmocka_unit_test(products_of_several_tiles),
    cmocka_unit_test(products_of_more_than_a_block),
    cmocka_unit_test(many_products_in_bf16),
};

TEST_MAIN(tests)
