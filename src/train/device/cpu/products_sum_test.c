/*
 * products_sum_test.c - products that are added to what is there: gradients of several pieces of a
 * batch need no memory and no pass of their own, and what others read stays as it is.
 */
/* ctest: also=TRI_ISA=avx2 */
#include <stdlib.h>

#include <trireme/ops.h>

#include "train/device/cpu/cpu_parallel.h"
#include "train/plan/plan.h"
#include "testing/check.h"

enum { PIECES = 8, ROWS = 64, SIZE = 256, WHOLE = SIZE * SIZE };

static float value(int64_t i)
{
    return (float)(i * 2654435761 % 1009) / 504.5F - 1;
}

static tri_tensor *filled(int64_t rows, int64_t first)
{
    float *v = malloc((size_t)(rows * SIZE) * sizeof(*v));
    tri_tensor *t;

    for (int64_t i = 0; i < rows * SIZE; i++)
        v[i] = value(first + i);
    t = tri_tensor_from(TRI_SHAPE(rows, SIZE), TRI_DTYPE_F32, v);
    free(v);
    return t;
}

static float *contents(tri_tensor *t)
{
    float *v = malloc(WHOLE * sizeof(*v));

    CHECK_OK(tri_tensor_copy_out(t, v, WHOLE * sizeof(*v)));
    return v;
}

/* Of the squares of x w^T, by so many pieces of x. */
static float *gradient(int pieces, size_t *arena_bytes)
{
    tri_tensor *x = filled((int64_t)PIECES * ROWS, 7), *w = filled(SIZE, 1);
    int64_t rows = PIECES * ROWS / pieces;
    float *g;

    tri_requires_grad(w, true);
    for (int i = 0; i < pieces; i++) {
        tri_tensor *y = tri_linear(tri_narrow(x, 0, i * rows, rows), w, NULL);

        tri_backward(tri_mul_scalar(tri_sum(tri_square(y), NULL, 0, false), 1e-3));
    }
    CHECK_OK(tri_run());
    *arena_bytes = trii_plan_stats_get().arena_bytes;
    g = contents(tri_grad(w));
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
    tri_tensor_unref(w);
    return g;
}

static void gradients_of_pieces_add_up_where_they_lie(void **state)
{
    (void)state;
    assert_int_equal(unsetenv("TRI_EAGER"), 0); /* which has no arena */
    for (int threads = 1; threads <= 3; threads += 2) {
        size_t bytes;
        float *whole, *sum;

        trii_parallel_set_threads(threads);
        whole = gradient(1, &bytes);
        trii_plan_release();
        sum = gradient(PIECES, &bytes);
        for (int64_t i = 0; i < WHOLE; i++)
            CHECK_NEAR((double)sum[i], (double)whole[i], 1e-4);
        /* two of them at a time, not all */
        assert_true(bytes < 4 * WHOLE * sizeof(float));
        free(whole);
        free(sum);
    }
}

/* a b + other, on either side; what `other` is may be read later as well. */
static void what_others_read_stays(void **state)
{
    (void)state;
    for (int kind = 0; kind < 10; kind++) {
        tri_tensor *a = filled(SIZE, 1), *b = filled(SIZE, 9), *before, *product, *other, *sum;
        tri_tensor *twice;
        float *ab = contents(tri_keep(tri_matmul(a, b))), *o, *s, *t;

        CHECK_OK(tri_step_end_status());
        before = kind / 2 == 0 ? tri_neg(a) : kind / 2 == 1 ? tri_transpose(tri_neg(a), 0, 1) : a;
        product = tri_matmul(a, b);
        other = kind / 2 == 3 ? tri_neg(b) : kind / 2 == 4 ? product : before;
        sum = tri_keep(kind % 2 == 0 ? tri_add(product, other) : tri_add(other, product));
        twice = tri_keep(tri_mul_scalar(other, 2));
        s = contents(sum);
        t = contents(twice);
        o = contents(tri_keep(tri_mul_scalar(twice, 0.5)));
        for (int64_t i = 0; i < WHOLE; i++) {
            int64_t turned = i % SIZE * SIZE + i / SIZE;
            float want = kind / 2 == 0   ? -value(1 + i)
                         : kind / 2 == 1 ? -value(1 + turned)
                         : kind / 2 == 2 ? value(1 + i)
                         : kind / 2 == 3 ? -value(9 + i)
                                         : ab[i];

            CHECK_NEAR((double)t[i], (double)(2 * want), 1e-6);
            CHECK_NEAR((double)o[i], (double)want, 1e-6);
            CHECK_NEAR((double)s[i], (double)ab[i] + (double)want, 1e-4);
        }
        CHECK_OK(tri_step_end_status());
        free(ab);
        free(o);
        free(s);
        free(t);
        tri_tensor_unref(a);
        tri_tensor_unref(b);
    }
}

/* a b + c as the plan does it, and with a product that is kept, and so computed for itself; a lies
 * in rows or, as where it is the gradient of an output, in columns. */
static void sums_have_the_bits_of_additions(void **state)
{
    const int64_t depths[] = {1, 17, 97, 255, 256, 257, 600};

    (void)state;
    for (int way = 0; way < 4; way++) {
        trii_parallel_set_threads(way % 2 == 0 ? 1 : 3);
        for (size_t d = 0; d < sizeof(depths) / sizeof(depths[0]); d++) {
            int64_t whole = depths[d] * SIZE;
            float *v = malloc((size_t)whole * sizeof(*v)), *sums[2];
            tri_tensor *a, *b, *c = filled(SIZE, 5);

            for (int64_t i = 0; i < whole; i++)
                v[i] = value(i + 3);
            a = way < 2 ? tri_tensor_from(TRI_SHAPE(SIZE, depths[d]), TRI_DTYPE_F32, v)
                        : tri_tensor_from(TRI_SHAPE(depths[d], SIZE), TRI_DTYPE_F32, v);
            b = tri_tensor_from(TRI_SHAPE(depths[d], SIZE), TRI_DTYPE_F32, v);
            for (int kept = 0; kept < 2; kept++) {
                tri_tensor *before = tri_neg(c), *left = way < 2 ? a : tri_transpose(a, 0, 1);
                tri_tensor *product = tri_matmul(left, b);

                if (kept == 1)
                    (void)tri_keep(product);
                sums[kept] = contents(tri_keep(tri_add(before, product)));
                CHECK_OK(tri_step_end_status());
            }
            assert_memory_equal(sums[0], sums[1], WHOLE * sizeof(*v));
            free(sums[0]);
            free(sums[1]);
            free(v);
            tri_tensor_unref(a);
            tri_tensor_unref(b);
            tri_tensor_unref(c);
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(gradients_of_pieces_add_up_where_they_lie),
    cmocka_unit_test(what_others_read_stays),
    cmocka_unit_test(sums_have_the_bits_of_additions),
};

TEST_MAIN(tests)
