/*
 * eager_test.c - the plan against node-by-node execution through the reference kernels: random
 * graphs over several steps, and every operation alone.
 *
 * In f64 the plan runs the same reference kernels: the same bits are demanded. In f32 the kernels
 * add in another order; a random graph of 20 operations amplifies that to less than 1e-3 of the
 * largest element, an operation alone to 1e-4.
 * ctest: start=first
 */
#include <math.h>

#include "base/compiler.h"
#include "train/graph/step/step.h"
#include "train/plan/plan.h"
#include "testing/check.h"
#include "testing/op_cases.h"
#include "testing/random_lookups.h"

#define MAX_RESULTS 1024
#define IN_BF16 0.2 /* of the largest: twenty times what is seen */

typedef struct results {
    double *data[MAX_RESULTS];
    int64_t n[MAX_RESULTS];
    int count;
} results;

static void read_result(results *r, tri_tensor *tensor)
{
    int64_t n = tri_tensor_numel(tensor);
    tri_dtype dtype = tri_tensor_dtype(tensor);
    void *raw = calloc((size_t)n + 1, 8);

    assert_true(r->count < MAX_RESULTS);
    r->n[r->count] = n;
    r->data[r->count] = calloc((size_t)n + 1, sizeof(double));
    CHECK_OK(tri_tensor_copy_out(tensor, raw, (size_t)n * tri_dtype_size(dtype)));
    for (int64_t i = 0; i < n; i++)
        r->data[r->count][i] = dtype == TRI_DTYPE_F32   ? (double)((float *)raw)[i]
                               : dtype == TRI_DTYPE_F64 ? ((double *)raw)[i]
                                                        : (double)((int64_t *)raw)[i];
    r->count++;
    free(raw);
}

static void check_results(const char *name, results *a, results *b, double tolerance)
{
    assert_int_equal(a->count, b->count);
    for (int k = 0; k < a->count; k++) {
        double largest = 0;

        assert_int_equal(a->n[k], b->n[k]);
        for (int64_t i = 0; i < a->n[k]; i++)
            largest = fmax(largest, fabs(b->data[k][i]));
        for (int64_t i = 0; i < a->n[k]; i++) {
            double x = a->data[k][i], y = b->data[k][i];

            if (!(fabs(x - y) <= tolerance * (largest + (tolerance > 0 ? 1e-2 : 0))) &&
                !(x != x && y != y))
                fail_msg("%s: result %d, element %lld: %.17g instead of %.17g (largest %g)", name,
                         k, (long long)i, x, y, largest);
        }
        free(a->data[k]);
        free(b->data[k]);
    }
}

/* What a random graph begins with, how long it is, and whether anybody looks at more than its
 * gradients. The name says what there is in it: views, lookups; under autocast, and computed
 * again. */
typedef struct graph_kind {
    const char *name;
    int n_ops;
    bool sized, quiet;
    int64_t image[4], matrix[2];
} graph_kind;

static void begin_graph(random_graph *g, uint64_t seed, tri_dtype dtype, const graph_kind *kind)
{
    random_graph_init(g, seed, kind->n_ops, dtype);
    g->sized = kind->sized;
    g->quiet = kind->quiet;
    g->views = strstr(kind->name, "views") != NULL;
    if (strstr(kind->name, "lookups") != NULL) {
        g->more = random_lookup;
        g->end = random_loss;
    }
    memcpy(g->image, kind->image, sizeof(g->image));
    memcpy(g->matrix, kind->matrix, sizeof(g->matrix));
}

static tri_tensor *record_graph(random_graph *g, const graph_kind *kind)
{
    bool low = strstr(kind->name, "autocast") != NULL, again = strstr(kind->name, "again") != NULL;
    tri_tensor *loss;

    if (low)
        tri_autocast_begin(TRI_DTYPE_BF16);
    if (again)
        tri_recompute_begin();
    loss = random_graph_record(g);
    if (again)
        tri_recompute_end();
    if (low)
        tri_autocast_end();
    return loss;
}

/* Three steps; splits of the steps and what is read differ, and must not matter. */
static results run_graph(uint64_t seed, tri_dtype dtype, const graph_kind *kind)
{
    results r = {.count = 0};
    random_graph g;

    tri_rng_state_set(&(tri_rng){.step = 1}); /* part of random numbers */
    begin_graph(&g, seed, dtype, kind);
    for (int step = 0; step < 3; step++) {
        tri_tensor *loss = record_graph(&g, kind);

        CHECK_OK(tri_tensor_status(loss));
        if (step == 1 && seed % 2 == 0 && !kind->quiet)
            CHECK_OK(tri_run()); /* the gradients come in a segment of their own */
        tri_backward(loss);
        if (kind->quiet) {
            CHECK_OK(tri_step_end_status());
        } else {
            CHECK_OK(tri_run());
            for (int k = 0; k < g.n_kept; k++)
                read_result(&r, g.kept[k]);
            read_result(&r, loss);
        }
        for (int p = 0; p < g.n_params; p++) {
            if (tri_grad(g.params[p]) != NULL)
                read_result(&r, tri_grad(g.params[p]));
        }
        CHECK_OK(random_graph_update(&g, 0.01));
        CHECK_OK(tri_step_end_status());
    }
    for (int p = 0; p < g.n_params; p++)
        read_result(&r, g.params[p]);
    random_graph_fini(&g);
    return r;
}

static void check_kind(tri_dtype dtype, uint64_t first, uint64_t end, const graph_kind *kind,
                       double tolerance)
{
    for (uint64_t seed = first; seed < end; seed++) {
        results planned, eager;
        char name[64];

        snprintf(name, sizeof(name), "%s, seed %llu", kind->name, (unsigned long long)seed);
        trii_executor_set(NULL);
        planned = run_graph(seed, dtype, kind);
        trii_executor_set(&trii_executor_reference);
        eager = run_graph(seed, dtype, kind);
        trii_executor_set(NULL);
        check_results(name, &planned, &eager, tolerance);
    }
}

static void check_graphs(tri_dtype dtype, uint64_t first, uint64_t end, double tolerance)
{
    const graph_kind kind = {.name = "kept", .n_ops = 20};
    const graph_kind quiet = {.name = "unseen", .n_ops = 20, .quiet = true};

    for (uint64_t seed = first; seed < end; seed++)
        check_kind(dtype, seed, seed + 1, seed % 2 == 0 ? &kind : &quiet, tolerance);
}

static void random_graphs_in_f64_are_exact(void **state)
{
    (void)state;
    check_graphs(TRI_DTYPE_F64, 1, 25, 0);
}

static void random_graphs_in_f32_are_close(void **state)
{
    (void)state;
    check_graphs(TRI_DTYPE_F32, 100, 140, 1e-3);
}

static void random_graphs_on_portable_kernels(void **state)
{
    (void)state;
    setenv("TRI_ISA", "portable", 1);
    check_graphs(TRI_DTYPE_F32, 200, 215, 1e-3);
}

static void random_graphs_on_avx2(void **state)
{
    (void)state;
    setenv("TRI_ISA", "avx2", 1);
    check_graphs(TRI_DTYPE_F32, 240, 255, 1e-3);
}

/* What looks elements up, in places that are data or come from other values; and losses. */
static void random_graphs_of_lookups(void **state)
{
    static const graph_kind kinds[] = {
        {"lookups", .n_ops = 24},
        {"unseen lookups", .n_ops = 24, .quiet = true},
        {"lookups in views", .n_ops = 24},
        {"lookups computed again", .n_ops = 24},
        {"lookups in views computed again, unseen", .n_ops = 24, .quiet = true},
        {"lookups in primes", 14, true, false, {3, 2, 13, 11}, {131, 17}},
        {"lookups in one", 14, true, false, {1, 4, 1, 1}, {1, 1}},
    };

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(kinds); i++) {
        check_kind(TRI_DTYPE_F64, 500, 504, &kinds[i], 0);
        check_kind(TRI_DTYPE_F32, 600, 602, &kinds[i], 1e-3);
    }
}

/* Gradients of the sum of all squared gradients of the parameters, as a plan or not. */
static results run_second(uint64_t seed, tri_dtype dtype, const graph_kind *kind)
{
    const tri_gradients_options again = {.create_graph = true, .allow_unused = true};
    results r = {.count = 0};
    random_graph g;

    tri_rng_state_set(&(tri_rng){.step = 1});
    begin_graph(&g, seed, dtype, kind);
    for (int step = 0; step < 2; step++) {
        tri_tensor *loss = record_graph(&g, kind), *total = NULL;
        tri_tensor *wanted[RANDOM_GRAPH_MAX], *grads[RANDOM_GRAPH_MAX];
        int n = 0;

        for (int p = 0; p < g.n_params; p++)
            if (g.params[p]->requires_grad)
                wanted[n++] = g.params[p];
        CHECK_OK(tri_gradients(&loss, 1, wanted, n, &again, grads));
        for (int p = 0; p < n; p++) {
            tri_tensor *part;

            if (grads[p] == NULL)
                continue;
            part = tri_sum(tri_square(grads[p]), NULL, 0, false);
            total = total == NULL ? part : tri_add(total, part);
        }
        tri_backward(total);
        CHECK_OK(tri_run());
        read_result(&r, loss);
        read_result(&r, total);
        for (int p = 0; p < g.n_params; p++) {
            if (tri_grad(g.params[p]) != NULL)
                read_result(&r, tri_grad(g.params[p]));
        }
        CHECK_OK(random_graph_update(&g, 0.0001));
        CHECK_OK(tri_step_end_status());
    }
    random_graph_fini(&g);
    return r;
}

static void second_gradients_of_random_graphs_agree(void **state)
{
    static const graph_kind kinds[] = {
        {"lookups", .n_ops = 14},
        {"lookups in views", .n_ops = 14},
        {"lookups computed again", .n_ops = 14},
        {"lookups under autocast", .n_ops = 14},
    };

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(kinds); i++) {
        for (uint64_t seed = 800; seed < 805; seed++) {
            tri_dtype dtype = i == 3 ? TRI_DTYPE_F32 : TRI_DTYPE_F64;
            results planned = run_second(seed, dtype, &kinds[i]), eager;

            trii_executor_set(&trii_executor_reference);
            eager = run_second(seed, dtype, &kinds[i]);
            trii_executor_set(NULL);
            check_results(kinds[i].name, &planned, &eager, i == 3 ? IN_BF16 : 0);
        }
    }
}

/* In bf16 a rounding may decide which of two is the largest: not in these. */
static void random_graphs_under_autocast_are_close(void **state)
{
    static const graph_kind kinds[] = {
        {"lookups under autocast", .n_ops = 24},
        {"lookups in views under autocast", .n_ops = 24, .quiet = true},
        {"lookups in views under autocast, again", .n_ops = 24},
    };

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(kinds); i++)
        check_kind(TRI_DTYPE_F32, 700, 704, &kinds[i], IN_BF16);
    check_kind(TRI_DTYPE_F32, 1014, 1016, &kinds[1], IN_BF16);
}

/* Sizes at which kernels change what they do: nothing, one, primes, just below and above blocks and
 * shares of threads. */
static void random_graphs_of_all_sizes(void **state)
{
    static const graph_kind kinds[] = {
        {"no images, no rows", 12, true, false, {0, 4, 6, 5}, {0, 7}},
        {"one pixel, one row", 12, true, false, {1, 4, 1, 1}, {1, 1}},
        {"two pixels", 12, true, false, {2, 2, 1, 1}, {2, 3}},
        {"primes", 12, true, false, {3, 2, 13, 11}, {131, 17}},
        {"4095", 10, true, true, {3, 2, 21, 65}, {4095, 1}},
        {"4096", 10, true, false, {1, 16, 16, 16}, {64, 64}},
        {"4097", 10, true, true, {1, 16, 17, 241}, {1, 4097}},
        {"blocks of channels", 10, true, true, {2, 32, 9, 7}, {33, 48}},
        {"65537", 8, true, false, {2, 16, 32, 65}, {65537, 2}},
    };

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(kinds);
         i++) /* for tsan one of each size: the threads matter */
        check_kind(TRI_DTYPE_F32, 300, TEST_SANITIZED ? 301 : 304, &kinds[i], 1e-3);
}

static void random_graphs_of_views(void **state)
{
    static const graph_kind kinds[] = {
        {"views", .n_ops = 30},
        {"unseen views", .n_ops = 30, .quiet = true},
        {"views of primes", 20, true, false, {3, 2, 13, 11}, {131, 17}},
        {"views of nothing", 20, true, false, {0, 4, 6, 5}, {0, 7}},
    };

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(kinds); i++) {
        check_kind(TRI_DTYPE_F64, 400, 403, &kinds[i], 0);
        check_kind(TRI_DTYPE_F32, 400, 403, &kinds[i], 1e-3);
    }
}

/* Of y's shape, all different: the gradient of an unweighted sum of squares of what is normalised
 * is nothing but rounding. */
static tri_tensor *weights_like(const tri_tensor *y, tri_dtype dtype)
{
    int64_t shape[TRI_MAX_DIMS], n = tri_tensor_numel(y);
    double *values = calloc((size_t)n + 1, sizeof(double));
    tri_tensor *weights;

    assert_non_null(values);
    for (int d = 0; d < tri_tensor_ndim(y); d++)
        shape[d] = tri_tensor_size(y, d);
    for (int64_t i = 0; i < n; i++) {
        double value = 0.5 + (double)(i * 37 % 101) / 101;

        if (dtype == TRI_DTYPE_F64)
            values[i] = value;
        else
            ((float *)values)[i] = (float)value;
    }
    weights = tri_tensor_from(shape, tri_tensor_ndim(y), dtype, values);
    free(values);
    return weights;
}

static results run_case(const op_case *c, tri_dtype dtype)
{
    results r = {.count = 0};
    tri_tensor *in[OP_CASE_INPUTS];
    tri_tensor *y, *weights = NULL;

    for (int k = 0; k < OP_CASE_INPUTS; k++)
        in[k] = op_case_tensor(&c->in[k], k, dtype);
    y = tri_keep(c->build(in));
    CHECK_OK(tri_tensor_status(y));
    if (tri_tensor_dtype(y) == dtype) {
        weights = weights_like(y, dtype);
        tri_backward(tri_sum(tri_mul(tri_mul(y, y), weights), NULL, 0, false));
    }
    read_result(&r, y);
    for (int k = 0; k < OP_CASE_INPUTS; k++) {
        if (in[k] != NULL)
            read_result(&r, in[k]);
        if (in[k] != NULL && tri_grad(in[k]) != NULL)
            read_result(&r, tri_grad(in[k]));
    }
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(weights);
    for (int k = 0; k < OP_CASE_INPUTS; k++)
        tri_tensor_unref(in[k]);
    return r;
}

static void check_cases(tri_dtype dtype, double tolerance)
{
    for (size_t i = 0; i < sizeof(op_cases) / sizeof(op_cases[0]); i++) {
        results planned, eager;

        trii_executor_set(NULL);
        tri_rng_state_set(&(tri_rng){.step = 1});
        planned = run_case(&op_cases[i], dtype);
        trii_executor_set(&trii_executor_reference);
        tri_rng_state_set(&(tri_rng){.step = 1});
        eager = run_case(&op_cases[i], dtype);
        trii_executor_set(NULL);
        check_results(op_cases[i].name, &planned, &eager, tolerance);
    }
}

static void every_operation_in_f32(void **state)
{
    (void)state;
    check_cases(TRI_DTYPE_F32, 1e-4);
}

static void every_operation_in_f64(void **state)
{
    (void)state;
    check_cases(TRI_DTYPE_F64, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_graphs_in_f64_are_exact),
        cmocka_unit_test(random_graphs_in_f32_are_close),
        cmocka_unit_test(random_graphs_of_lookups),
        cmocka_unit_test(random_graphs_under_autocast_are_close),
        cmocka_unit_test(second_gradients_of_random_graphs_agree),
        cmocka_unit_test(random_graphs_of_all_sizes),
        cmocka_unit_test(random_graphs_of_views),
        cmocka_unit_test(random_graphs_on_portable_kernels),
        cmocka_unit_test(random_graphs_on_avx2),
        cmocka_unit_test(every_operation_in_f32),
        cmocka_unit_test(every_operation_in_f64),
    };

    return test_main(argc, argv, tests, TRII_COUNT_OF(tests));
}
