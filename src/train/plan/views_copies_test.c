/*
 * views_copies_test.c - what a plan copies of views: products and attention read and write them
 * where they lie.
 */
#include <math.h>

#include <trireme/ops.h>

#include "base/compiler.h"
#include "train/graph/ops/table.h"
#include "train/graph/step/step.h"
#include "train/plan/plan.h"
#include "testing/check.h"
#include "testing/integers.h"

/* --- products ------------------------------------------------------------- */

static void a_weight_that_all_rows_share_gets_its_gradient_from_one_product(void **state)
{
    tri_tensor *x, *w;
    trii_step *step;
    int products = 0;

    (void)state;
    random_state = 1;
    x = integers(TRI_DTYPE_F32, TRI_SHAPE(3, 2, 5, 4));
    w = integers(TRI_DTYPE_F32, TRI_SHAPE(4, 6));
    tri_requires_grad(x, true);
    tri_requires_grad(w, true);
    tri_backward(tri_sum(tri_matmul(x, w), NULL, 0, false));
    step = trii_step_current();
    for (int32_t n = 0; n < step->n_nodes; n++) {
        const trii_node *node = &step->nodes[n];

        assert_ptr_not_equal(node->op, &trii_op_sum_to);
        products += node->op == &trii_op_matmul && step->values[node->first_out].type.ndim == 2;
    }
    assert_int_equal(products, 2);
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
    tri_tensor_unref(w);
}

/* Heads of q, k and v side by side, [n, t, 3, h, d], through products of all heads; then a linear
 * layer on some columns of what comes out. Numbers stay exact. */
static void run_products(const int64_t s[4], float *got, size_t *copied)
{
    int64_t n = s[0], t = s[1], h = s[2], d = s[3], width = h * d, rows = n * t;
    tri_tensor *x, *w, *q[3], *y, *sum;

    random_state = 3;
    x = integers(TRI_DTYPE_F32, TRI_SHAPE(n, t, 3, h, d));
    w = integers(TRI_DTYPE_F32, TRI_SHAPE(7, width / 2));
    tri_requires_grad(x, true);
    tri_requires_grad(w, true);
    for (int i = 0; i < 3; i++)
        q[i] = tri_transpose(tri_select(x, 2, i), 1, 2);
    y = tri_matmul(tri_matmul(q[0], tri_transpose(q[1], -1, -2)), q[2]);
    y = tri_reshape(tri_transpose(y, 1, 2), TRI_SHAPE(n, t, width));
    y = tri_linear(tri_narrow(y, -1, width / 4, width / 2), w, NULL);
    y = tri_concat(
        (tri_tensor *const[]){y, tri_matmul(tri_neg(y), tri_expand(w, TRI_SHAPE(n, 7, width / 2)))},
        2, -1);
    sum = tri_sum(tri_mul_scalar(y, 0.25), NULL, 0, false);
    tri_backward(sum);
    CHECK_OK(tri_run());
    *copied = trii_plan_stats_get().copied_bytes;
    CHECK_OK(tri_tensor_copy_out(tri_grad(x), got, (size_t)(3 * rows * width) * sizeof(*got)));
    got += 3 * rows * width;
    CHECK_OK(tri_tensor_copy_out(tri_grad(w), got, (size_t)(7 * (width / 2)) * sizeof(*got)));
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
    tri_tensor_unref(w);
}

static void products_read_and_write_views(void **state)
{
    static const int64_t shapes[][4] = {{2, 5, 3, 4}, {1, 9, 2, 8},   {3, 1, 2, 4},
                                        {2, 7, 1, 6}, {2, 40, 3, 16}, {0, 5, 2, 4}};

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(shapes); i++) {
        const int64_t *s = shapes[i];
        size_t n = (size_t)(3 * s[0] * s[1] * s[2] * s[3] + 7 * (s[2] * s[3] / 2)), copied;
        float *got = malloc(n * sizeof(*got)), *want = malloc(n * sizeof(*want));

        trii_executor_set(&trii_executor_reference);
        run_products(s, want, &copied);
        trii_executor_set(NULL);
        run_products(s, got, &copied);
        for (size_t k = 0; k < n; k++) {
            if (got[k] != want[k])
                fail_msg("shape %zu: element %zu is %g, not %g", i, k, (double)got[k],
                         (double)want[k]);
        }
        free(got);
        free(want);
    }
}

/* Through the library: rows of a part of the columns. */
static void large_products_read_and_write_views(void **state)
{
    float *got = malloc(300 * 200 * sizeof(*got)), *want = malloc(300 * 200 * sizeof(*want));

    (void)state;
    for (int reference = 1; reference >= 0; reference--) {
        tri_tensor *x, *w, *y[2];

        trii_executor_set(reference ? &trii_executor_reference : NULL);
        random_state = 3;
        x = integers(TRI_DTYPE_F32, TRI_SHAPE(300, 256));
        w = integers(TRI_DTYPE_F32, TRI_SHAPE(200, 256));
        for (int i = 0; i < 2; i++)
            y[i] = tri_linear(tri_narrow(x, 1, 100 * i, 156), tri_narrow(w, 1, 0, 156), NULL);
        y[0] = tri_narrow(tri_concat(y, 2, 1), 1, 100, 200);
        CHECK_OK(tri_tensor_copy_out(y[0], reference ? want : got, 300 * 200 * sizeof(*got)));
        CHECK_OK(tri_step_end_status());
        tri_tensor_unref(x);
        tri_tensor_unref(w);
    }
    assert_memory_equal(got, want, 300 * 200 * sizeof(*got));
    assert_int_equal(trii_plan_stats_get().copied_bytes, 300 * 200 * sizeof(*got)); /* the result */
    free(got);
    free(want);
}

/* One matrix for all products, times one for all. */
static void a_product_of_expanded_operands_is_that_of_their_copies(void **state)
{
    (void)state;
    for (int64_t k = 3; k <= 150; k += 147) {
        for (int shared = 0; shared < 2; shared++) {
            size_t n = (size_t)(2 * k * k);
            float *got = malloc(n * sizeof(*got)), *want = malloc(n * sizeof(*want));

            for (int reference = 1; reference >= 0; reference--) {
                tri_tensor *x, *w, *b;

                trii_executor_set(reference ? &trii_executor_reference : NULL);
                random_state = 3;
                x = integers(TRI_DTYPE_F32, TRI_SHAPE(1, k, k));
                w = integers(TRI_DTYPE_F32, TRI_SHAPE(k, k));
                b = shared ? w : tri_expand(w, TRI_SHAPE(2, k, k));
                b = tri_matmul(tri_expand(x, TRI_SHAPE(2, k, k)), b);
                CHECK_OK(tri_tensor_copy_out(b, reference ? want : got, n * sizeof(*got)));
                CHECK_OK(tri_step_end_status());
                tri_tensor_unref(x);
                tri_tensor_unref(w);
            }
            assert_memory_equal(got, want, n * sizeof(*got));
            free(got);
            free(want);
        }
    }
}

/* Windows that overlap, whose matrices so share elements: in our own kernels, and in the
 * library. */
static void products_of_overlapping_windows_are_those_of_their_copies(void **state)
{
    enum { WIDTH = 64 };

    (void)state;
    for (int64_t side = 4; side <= WIDTH; side += WIDTH - 4) {
        for (int left = 0; left < 2; left++) {
            size_t n = (size_t)(15 * side * WIDTH);
            float *got = malloc(n * sizeof(*got)), *want = malloc(n * sizeof(*want));

            for (int reference = 1; reference >= 0; reference--) {
                tri_tensor *x, *w, *y;

                trii_executor_set(reference ? &trii_executor_reference : NULL);
                random_state = 3;
                x = integers(TRI_DTYPE_F32, TRI_SHAPE(16 * side / 2, WIDTH));
                w = integers(TRI_DTYPE_F32, TRI_SHAPE(WIDTH, WIDTH));
                y = tri_unfold(x, 0, side, side / 2); /* [15, WIDTH, side] */
                y = left ? tri_matmul(tri_transpose(y, 1, 2), w) : tri_matmul(w, y);
                CHECK_OK(tri_tensor_copy_out(y, reference ? want : got, n * sizeof(*got)));
                CHECK_OK(tri_step_end_status());
                tri_tensor_unref(x);
                tri_tensor_unref(w);
            }
            assert_memory_equal(got, want, n * sizeof(*got));
            free(got);
            free(want);
        }
    }
}

/* --- attention of GPT ----------------------------------------------------- */

#define N 2
#define T 70
#define HEADS 3
#define DEPTH 8
#define WIDTH (HEADS * DEPTH)

typedef struct attention {
    tri_tensor *x, *qkv, *proj;
    bool weighted; /* queries and keys, as by their places in a text: they lie in an order of theirs
                    */
} attention;

static tri_tensor *attend(const attention *a)
{
    tri_tensor *qkv[3], *y;

    tri_split(tri_matmul(a->x, a->qkv), TRI_SHAPE(WIDTH, WIDTH, WIDTH), -1, qkv);
    for (int i = 0; i < 3; i++)
        qkv[i] = tri_transpose(tri_reshape(qkv[i], TRI_SHAPE(N, T, HEADS, DEPTH)), 1, 2);
    for (int i = 0; i < 2 && a->weighted; i++)
        qkv[i] = tri_mul(qkv[i], tri_sin(tri_reshape(tri_arange(0, T * DEPTH, 1, TRI_DTYPE_F32),
                                                     TRI_SHAPE(T, DEPTH))));
    y = tri_attention(qkv[0], qkv[1], qkv[2], &(tri_attention_options){.is_causal = true});
    y = tri_reshape(tri_transpose(y, 1, 2), TRI_SHAPE(N, T, WIDTH));
    return tri_add(a->x, tri_matmul(y, a->proj));
}

static void run_attention(float *got, size_t *copied, bool weighted, bool bf16)
{
    attention a = {.weighted = weighted};
    tri_tensor *loss;

    random_state = 9;
    a.x = integers(TRI_DTYPE_F32, TRI_SHAPE(N, T, WIDTH));
    a.qkv = integers(TRI_DTYPE_F32, TRI_SHAPE(WIDTH, 3 * WIDTH));
    a.proj = integers(TRI_DTYPE_F32, TRI_SHAPE(WIDTH, WIDTH));
    tri_requires_grad(a.x, true);
    tri_requires_grad(a.qkv, true);
    tri_requires_grad(a.proj, true);
    if (bf16)
        tri_autocast_begin(TRI_DTYPE_BF16);
    loss = tri_mean(tri_square(tri_mul_scalar(attend(&a), 0.01)), NULL, 0, false);
    if (bf16)
        tri_autocast_end();
    tri_backward(loss);
    CHECK_OK(tri_run());
    *copied = trii_plan_stats_get().copied_bytes;
    CHECK_OK(tri_tensor_copy_out(tri_grad(a.x), got, (size_t)N * T * WIDTH * sizeof(*got)));
    got += N * T * WIDTH;
    CHECK_OK(tri_tensor_copy_out(tri_grad(a.qkv), got, (size_t)3 * WIDTH * WIDTH * sizeof(*got)));
    got += 3 * WIDTH * WIDTH;
    CHECK_OK(tri_tensor_copy_out(tri_grad(a.proj), got, (size_t)WIDTH * WIDTH * sizeof(*got)));
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(a.x);
    tri_tensor_unref(a.qkv);
    tri_tensor_unref(a.proj);
}

static void check_attention(bool weighted)
{
    enum { COUNT = N * T * WIDTH + 4 * WIDTH * WIDTH };
    float *got = malloc(COUNT * sizeof(*got)), *want = malloc(COUNT * sizeof(*want));
    double largest = 0;
    size_t copied;

    trii_executor_set(&trii_executor_reference);
    run_attention(want, &copied, weighted, false);
    trii_executor_set(NULL);
    run_attention(got, &copied, weighted, false);
    assert_int_equal(copied, 0);
    for (int i = 0; i < COUNT; i++)
        largest = fmax(largest, fabs((double)want[i]));
    for (int i = 0; i < COUNT; i++)
        CHECK_NEAR((double)got[i], (double)want[i], 1e-4 * largest);
    run_attention(got, &copied, weighted, true);
    assert_int_equal(copied, 0);
    free(got);
    free(want);
}

static void attention_of_many_heads_copies_nothing_forward_or_backward(void **state)
{
    (void)state;
    check_attention(false);
}

static void attention_of_changed_queries_and_keys_copies_nothing(void **state)
{
    (void)state;
    check_attention(true);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_weight_that_all_rows_share_gets_its_gradient_from_one_product),
        cmocka_unit_test(products_read_and_write_views),
        cmocka_unit_test(large_products_read_and_write_views),
        cmocka_unit_test(a_product_of_expanded_operands_is_that_of_their_copies),
        cmocka_unit_test(products_of_overlapping_windows_are_those_of_their_copies),
        cmocka_unit_test(attention_of_many_heads_copies_nothing_forward_or_backward),
        cmocka_unit_test(attention_of_changed_queries_and_keys_copies_nothing),
    };

    return test_main(argc, argv, tests, TRII_COUNT_OF(tests));
}
