/*
 * device_moves_test.c - what moves elements, looks for the largest or draws random numbers gives
 * the bits of the reference kernels: for sizes from one to millions, each type, instruction set and
 * number of threads.
 */
#include <math.h>

#include <trireme/ops.h>

#include "base/compiler.h"
#include "base/dtype.h"
#include "train/device/cpu/cpu_parallel.h"
#include "train/graph/step/step.h"
#include "testing/check.h"

#define MAX_RESULTS 2

typedef struct outcome {
    void *data[MAX_RESULTS];
    size_t bytes[MAX_RESULTS];
    int n;
} outcome;

static void take(outcome *o, tri_tensor *tensor)
{
    size_t bytes = (size_t)tri_tensor_numel(tensor) * tri_dtype_size(tri_tensor_dtype(tensor));

    assert_true(o->n < MAX_RESULTS);
    o->data[o->n] = malloc(bytes + 1);
    CHECK_OK(tri_tensor_copy_out(tensor, o->data[o->n], bytes));
    o->bytes[o->n++] = bytes;
}

/* An operation on one operand; `arg` is its own. */
typedef struct task {
    const char *name;
    tri_tensor *(*build)(tri_tensor *x, const int64_t *arg);
    int64_t arg[4];
    int ndim;
    int64_t shape[4];
    tri_dtype dtype;
    bool gradient; /* of the result's square, too */
} task;

static uint32_t random_state;

/* Few different numbers, so that there are equal ones; NaN and infinities if `odd`. */
static float next_number(bool odd)
{
    uint32_t word;

    random_state = random_state * 1664525u + 1013904223u;
    word = random_state >> 12;
    if (odd && word % 61 == 0)
        return NAN;
    if (odd && word % 61 < 3)
        return word % 61 == 1 ? INFINITY : -INFINITY;
    return (float)((int)(word % 4001) - 2000) / 512;
}

static tri_tensor *operand(const task *t, bool odd)
{
    int64_t n = 1;
    size_t size = tri_dtype_size(t->dtype);
    char *data;
    tri_tensor *x;

    for (int d = 0; d < t->ndim; d++)
        n *= t->shape[d];
    data = malloc((size_t)n * size + 1);
    random_state = 7;
    for (int64_t i = 0; i < n; i++) {
        float number = next_number(odd && trii_dtype_is_float(t->dtype));
        uint16_t narrow = trii_f32_to_bf16(number);
        double wide = (double)number;
        int64_t integer = (int64_t)random_state * 1000003;

        memcpy(data + (size_t)i * size,
               t->dtype == TRI_DTYPE_F32    ? (const void *)&number
               : t->dtype == TRI_DTYPE_F64  ? (const void *)&wide
               : t->dtype == TRI_DTYPE_BF16 ? (const void *)&narrow
                                            : (const void *)&integer,
               size);
    }
    x = tri_tensor_from(t->shape, t->ndim, t->dtype, data);
    free(data);
    tri_requires_grad(x, t->gradient);
    return x;
}

static outcome run_task(const task *t, bool odd)
{
    outcome o = {.n = 0};
    tri_tensor *x = operand(t, odd), *y;

    tri_rng_state_set(&(tri_rng){.step = 5}); /* part of random numbers */
    y = tri_keep(t->build(x, t->arg));
    CHECK_OK(tri_tensor_status(y));
    if (t->gradient)
        tri_backward(tri_sum(tri_square(y), NULL, 0, false));
    CHECK_OK(tri_run());
    take(&o, y);
    if (t->gradient)
        take(&o, tri_grad(x));
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
    return o;
}

static void same(const task *t, int threads, outcome *a, const outcome *b)
{
    assert_int_equal(a->n, b->n);
    for (int k = 0; k < a->n; k++) {
        bool equal;

        assert_int_equal(a->bytes[k], b->bytes[k]);
        equal = memcmp(a->data[k], b->data[k], a->bytes[k]) == 0;
        for (size_t i = 0; i < a->bytes[k] && !equal; i++) {
            if (((char *)a->data[k])[i] != ((char *)b->data[k])[i])
                fail_msg("%s of %s [%lld, %lld, %lld, %lld], %d threads: result %d differs at byte "
                         "%zu of %zu",
                         t->name, tri_dtype_name(t->dtype), (long long)t->shape[0],
                         (long long)t->shape[1], (long long)t->shape[2], (long long)t->shape[3],
                         threads, k, i, a->bytes[k]);
        }
        free(a->data[k]);
    }
}

static void check_task(const task *t, bool odd)
{
    static const int threads[] = {1, 2, 3, 8};
    outcome want;

    trii_executor_set(&trii_executor_reference);
    want = run_task(t, odd);
    trii_executor_set(NULL);
    for (size_t i = TEST_SANITIZED ? 2 : 0; i < TRII_COUNT_OF(threads); i++) {
        outcome got;

        trii_parallel_set_threads(threads[i]);
        trii_step_release(); /* plans of another number of threads */
        got = run_task(t, odd);
        same(t, threads[i], &got, &want);
    }
    for (int k = 0; k < want.n; k++)
        free(want.data[k]);
}

/* --- permute, flip -------------------------------------------------------- */

static tri_tensor *permute(tri_tensor *x, const int64_t *arg)
{
    return tri_permute(x, arg, tri_tensor_ndim(x));
}

static tri_tensor *flip(tri_tensor *x, const int64_t *arg)
{
    return tri_flip(x, (int)arg[0]);
}

static const task moves[] = {
    {"permute", permute, {1, 0}, 2, {1, 1}, 0, true},
    {"permute", permute, {1, 0}, 2, {1, 4097}, 0, true},
    {"permute", permute, {1, 0}, 2, {4095, 3}, 0, true},
    {"permute", permute, {1, 0}, 2, {64, 4096}, 0, true},
    {"permute", permute, {1, 0}, 2, {131, 127}, 0, true},
    {"permute", permute, {0, 2, 1}, 3, {7, 33, 65}, 0, true},
    {"permute", permute, {2, 1, 0}, 3, {5, 17, 31}, 0, true},
    {"permute", permute, {2, 0, 1}, 3, {13, 1, 64}, 0, true},
    {"permute", permute, {0, 2, 1, 3}, 4, {3, 16, 5, 64}, 0, true},
    {"permute", permute, {0, 2, 3, 1}, 4, {2, 3, 32, 31}, 0, true},
    {"permute", permute, {0, 3, 1, 2}, 4, {2, 32, 31, 3}, 0, true},
    {"permute", permute, {3, 1, 0, 2}, 4, {4, 9, 11, 6}, 0, true},
    {"permute", permute, {0, 1, 2, 3}, 4, {4, 9, 11, 6}, 0, true},
    {"flip", flip, {0}, 1, {1}, 0, true},
    {"flip", flip, {0}, 1, {4097}, 0, true},
    {"flip", flip, {0}, 2, {4095, 3}, 0, true},
    {"flip", flip, {1}, 2, {37, 129}, 0, true},
    {"flip", flip, {1}, 3, {37, 5, 129}, 0, true},
    {"flip", flip, {3}, 4, {2, 3, 32, 31}, 0, true},
};

static void check_moves(void)
{
    static const tri_dtype types[] = {TRI_DTYPE_F32, TRI_DTYPE_F64, TRI_DTYPE_BF16, TRI_DTYPE_I64,
                                      TRI_DTYPE_U8};

    for (size_t i = 0; i < TRII_COUNT_OF(moves); i++) {
        for (size_t k = 0; k < TRII_COUNT_OF(types); k++) {
            task t = moves[i];

            t.dtype = types[k];
            t.gradient = t.dtype == TRI_DTYPE_F32 || t.dtype == TRI_DTYPE_F64;
            check_task(&t, false);
        }
    }
}

static void elements_move_to_where_the_reference_puts_them(void **state)
{
    (void)state;
    check_moves();
}

static void millions_of_elements_move(void **state)
{
    const int64_t rows = TEST_SANITIZED ? 256 : 2048; /* there the threads matter, not the size */
    const task turn = {"permute", permute, {1, 0}, 2, {rows, 2048}, TRI_DTYPE_F32, false};
    const task heads = {"permute",      permute, {0, 2, 1, 3}, 4, {8, rows / 16, 64, 64},
                        TRI_DTYPE_BF16, false};
    const task back = {"flip", flip, {0}, 1, {rows * 2048}, TRI_DTYPE_F32, false};

    (void)state;
    check_task(&turn, false);
    check_task(&heads, false);
    check_task(&back, false);
}

/* --- the largest ---------------------------------------------------------- */

/* arg: how many dimensions, and which */
static tri_tensor *amax(tri_tensor *x, const int64_t *arg)
{
    return tri_amax(x, arg + 1, (int)arg[0], false);
}

static tri_tensor *argmax(tri_tensor *x, const int64_t *arg)
{
    return tri_argmax(x, (int)arg[0], false);
}

static const task largest[] = {
    {"amax", amax, {1, 0}, 1, {1}, 0, true},
    {"amax", amax, {1, 0}, 1, {4097}, 0, true},
    {"amax", amax, {1, 0}, 1, {300007}, 0, true},
    {"amax", amax, {1, 1}, 2, {4095, 3}, 0, true},
    {"amax", amax, {1, 0}, 2, {4095, 3}, 0, true},
    {"amax", amax, {1, 0}, 2, {65537, 5}, 0, true},
    {"amax", amax, {1, 1}, 2, {3, 65537}, 0, true},
    {"amax", amax, {1, 1}, 3, {5, 7, 600}, 0, true},
    {"amax", amax, {2, 0, 2}, 3, {50, 3, 411}, 0, true},
    {"amax", amax, {2, 0, 2}, 3, {700, 3, 41}, 0, true},
    {"amax", amax, {2, 1, 3}, 4, {3, 4, 5, 6}, 0, true},
    {"amax", amax, {2, 0, 2}, 4, {3, 4, 5, 6}, 0, true},
    {"amax", amax, {3, 0, 1, 2}, 3, {64, 64, 65}, 0, true},
    {"amax", amax, {1, 1}, 3, {5, 1, 6}, 0, true},
    {"argmax", argmax, {0}, 1, {1}, 0, false},
    {"argmax", argmax, {0}, 1, {4097}, 0, false},
    {"argmax", argmax, {0}, 1, {300007}, 0, false},
    {"argmax", argmax, {1}, 2, {4095, 10}, 0, false},
    {"argmax", argmax, {0}, 2, {65537, 5}, 0, false},
    {"argmax", argmax, {1}, 3, {5, 7, 600}, 0, false},
    {"argmax", argmax, {0}, 3, {1, 7, 6}, 0, false},
};

static void check_largest(bool odd)
{
    for (size_t i = 0; i < TRII_COUNT_OF(largest); i++) {
        task t = largest[i];

        t.dtype = TRI_DTYPE_F32;
        t.gradient = t.gradient && !odd; /* bits of NaN are not promised */
        check_task(&t, odd);
    }
}

static void the_largest_is_the_first_of_equals(void **state)
{
    (void)state;
    check_largest(false);
}

static void not_a_number_is_the_largest(void **state)
{
    (void)state;
    check_largest(true);
}

static void check_gradients_of_nan(void)
{
    tri_tensor *x =
        tri_tensor_from(TRI_SHAPE(2, 3), TRI_DTYPE_F32, (float[]){1, (float)NAN, 2, 4, 5, 5});

    tri_requires_grad(x, true);
    for (int dim = 0; dim < 2; dim++) {
        float g[6];

        tri_backward(tri_sum(tri_amax(x, &(int64_t){dim}, 1, false), NULL, 0, false));
        CHECK_OK(tri_tensor_copy_out(tri_grad(x), g, sizeof(g)));
        if (dim == 1) {
            assert_true(isnan(g[0]) && isnan(g[1]) && isnan(g[2]));
            assert_true(g[3] == 0 && g[4] == 0.5f && g[5] == 0.5f);
        } else {
            assert_true(g[0] == 0 && isnan(g[1]) && g[2] == 0);
            assert_true(g[3] == 1 && isnan(g[4]) && g[5] == 1);
        }
        CHECK_OK(tri_step_end_status());
        tri_tensor_unref(x);
        x = tri_tensor_from(TRI_SHAPE(2, 3), TRI_DTYPE_F32, (float[]){1, (float)NAN, 2, 4, 5, 5});
        tri_requires_grad(x, true);
    }
    tri_tensor_unref(x);
}

/* torch.amax on [[1, nan, 2], [4, 5, 5]] */
static void the_gradient_where_nan_is_the_largest_is_nan(void **state)
{
    (void)state;
    check_gradients_of_nan();
    trii_executor_set(&trii_executor_reference);
    check_gradients_of_nan();
}

static void the_largest_on_avx2(void **state)
{
    (void)state;
    setenv("TRI_ISA", "avx2", 1);
    check_largest(false);
}

static void the_largest_on_portable_kernels(void **state)
{
    (void)state;
    setenv("TRI_ISA", "portable", 1);
    check_largest(false);
}

/* --- dropout -------------------------------------------------------------- */

static tri_tensor *dropout(tri_tensor *x, const int64_t *arg)
{
    return tri_dropout(x, (double)arg[0] / 1000.0, true);
}

static void check_dropout(void)
{
    static const int64_t sizes[] = {1, 2, 3, 63, 64, 65, 4095, 4097, 65537};
    static const int p[] = {0, 1, 250, 500, 999, 1000};

    for (size_t i = 0; i < TRII_COUNT_OF(sizes); i++) {
        for (size_t k = 0; k < TRII_COUNT_OF(p); k++) {
            const task t = {"dropout", dropout, {p[k]}, 1, {sizes[i]}, TRI_DTYPE_F32, true};

            check_task(&t, false);
        }
    }
}

static void dropout_has_the_bits_of_the_reference(void **state)
{
    (void)state;
    check_dropout();
}

static void dropout_on_avx2(void **state)
{
    (void)state;
    setenv("TRI_ISA", "avx2", 1);
    check_dropout();
}

static void dropout_on_portable_kernels(void **state)
{
    (void)state;
    setenv("TRI_ISA", "portable", 1);
    check_dropout();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements_move_to_where_the_reference_puts_them),
        cmocka_unit_test(millions_of_elements_move),
        cmocka_unit_test(the_largest_is_the_first_of_equals),
        cmocka_unit_test(not_a_number_is_the_largest),
        cmocka_unit_test(the_gradient_where_nan_is_the_largest_is_nan),
        cmocka_unit_test(the_largest_on_avx2),
        cmocka_unit_test(the_largest_on_portable_kernels),
        cmocka_unit_test(dropout_has_the_bits_of_the_reference),
        cmocka_unit_test(dropout_on_avx2),
        cmocka_unit_test(dropout_on_portable_kernels),
    };

    return test_main(argc, argv, tests, TRII_COUNT_OF(tests));
}
