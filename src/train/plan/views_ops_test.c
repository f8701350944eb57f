/*
 * views_ops_test.c - every operation on views: its operands lie in other tensors, its result
 * becomes a part of one, and its gradient arrives as a part of one. Against the reference kernels.
 */
/* ctest: start=first also=TRI_ISA=avx2 */
#include <math.h>

#include "base/compiler.h"
#include "train/graph/step/step.h"
#include "testing/check.h"
#include "testing/op_cases.h"

#define RESULTS (2 + 2 * OP_CASE_INPUTS)

typedef enum view_kind {
    VIEW_ROWS,     /* of rows that are twice as long */
    VIEW_TURNED,   /* dimensions in reverse order */
    VIEW_SECOND,   /* every second element */
    VIEW_REPEATED, /* the first of its first dimension, for all of them */
    VIEW_KINDS
} view_kind;

typedef struct results {
    void *data[RESULTS];
    int64_t n[RESULTS];
    tri_dtype dtype[RESULTS];
    int count;
} results;

static void read_result(results *r, tri_tensor *tensor)
{
    size_t bytes;

    CHECK_OK(tri_tensor_status(tensor));
    r->n[r->count] = tri_tensor_numel(tensor);
    r->dtype[r->count] = tri_tensor_dtype(tensor);
    bytes = (size_t)r->n[r->count] * tri_dtype_size(r->dtype[r->count]);
    r->data[r->count] = calloc(bytes + 1, 1);
    CHECK_OK(tri_tensor_copy_out(tensor, r->data[r->count], bytes));
    r->count++;
}

static double number(const results *r, int k, int64_t i)
{
    switch (r->dtype[k]) {
    case TRI_DTYPE_F32:
        return (double)((const float *)r->data[k])[i];
    case TRI_DTYPE_F64:
        return ((const double *)r->data[k])[i];
    case TRI_DTYPE_BOOL:
        return ((const bool *)r->data[k])[i];
    default:
        return (double)((const int64_t *)r->data[k])[i];
    }
}

static tri_tensor *turned(tri_tensor *x)
{
    int64_t dims[TRI_MAX_DIMS];
    int n = tri_tensor_ndim(x);

    for (int d = 0; d < n; d++)
        dims[d] = n - 1 - d;
    return tri_permute(x, dims, n);
}

/* An operation that is no view, of any type. */
static tri_tensor *copied(tri_tensor *x)
{
    tri_tensor *const both[2] = {x, x};
    tri_dtype dtype = tri_tensor_dtype(x);

    if (dtype == TRI_DTYPE_F32 || dtype == TRI_DTYPE_F64)
        return tri_mul_scalar(x, 1);
    return tri_select(tri_stack(both, 2, 0), 0, 0);
}

static tri_tensor *viewed(tri_tensor *x, view_kind kind)
{
    int64_t shape[TRI_MAX_DIMS];
    int n = tri_tensor_ndim(x);
    tri_tensor *const both[2] = {x, x};

    for (int d = 0; d < n; d++)
        shape[d] = tri_tensor_size(x, d);
    switch (n > 0 ? kind : VIEW_SECOND) {
    case VIEW_ROWS:
        return tri_narrow(tri_concat(both, 2, -1), -1, shape[n - 1], shape[n - 1]);
    case VIEW_TURNED:
        return turned(copied(turned(x)));
    case VIEW_REPEATED:
        return shape[0] > 0 ? tri_expand(tri_narrow(x, 0, 0, 1), shape, n) : x;
    default:
        return tri_select(tri_stack(both, 2, -1), -1, 1);
    }
}

/* y as a part of a joined tensor; nothing else reads y. */
static tri_tensor *joined(tri_tensor *y, view_kind kind)
{
    int64_t shape[TRI_MAX_DIMS];
    tri_tensor *parts[2];

    if (tri_tensor_ndim(y) == 0)
        y = tri_unsqueeze(y, 0);
    if (kind == VIEW_TURNED)
        y = turned(y);
    if (kind == VIEW_SECOND)
        y = tri_unsqueeze(y, -1);
    for (int d = 0; d < tri_tensor_ndim(y); d++)
        shape[d] = tri_tensor_size(y, d);
    parts[kind != VIEW_ROWS] = y;
    parts[kind == VIEW_ROWS] = tri_ones(shape, tri_tensor_ndim(y), tri_tensor_dtype(y));
    return tri_concat(parts, 2, kind == VIEW_REPEATED ? 0 : -1);
}

/* All different: the gradient of an unweighted sum of squares of what is normalised is nothing but
 * rounding. */
static tri_tensor *weighted(tri_tensor *y)
{
    tri_tensor *weights = tri_arange(0, (double)tri_tensor_numel(y), 1, tri_tensor_dtype(y));
    int64_t shape[TRI_MAX_DIMS];

    for (int d = 0; d < tri_tensor_ndim(y); d++)
        shape[d] = tri_tensor_size(y, d);
    weights = tri_add_scalar(tri_sin(weights), 1.5);
    return tri_mul(y, tri_reshape(weights, shape, tri_tensor_ndim(y)));
}

static results run_case(const op_case *c, tri_dtype dtype, view_kind kind, bool bf16)
{
    results r = {.count = 0};
    tri_tensor *in[OP_CASE_INPUTS], *views[OP_CASE_INPUTS] = {NULL}, *y;

    tri_rng_state_set(&(tri_rng){.step = 1});
    if (bf16)
        tri_autocast_begin(TRI_DTYPE_BF16);
    for (int k = 0; k < OP_CASE_INPUTS; k++) {
        bool state = strncmp(c->name, "bn", 2) == 0 && k > 2;

        in[k] = op_case_tensor(&c->in[k], k, dtype);
        if (in[k] == NULL)
            continue;
        views[k] = state ? in[k] : viewed(in[k], kind);
        if (bf16 && !state && op_case_is_activation(c, k))
            views[k] = viewed(tri_cast(in[k], TRI_DTYPE_BF16), kind);
    }
    y = joined(c->build(views), kind);
    if (tri_tensor_dtype(y) == TRI_DTYPE_BF16)
        y = tri_cast(y, dtype);
    if (bf16)
        tri_autocast_end();
    if (tri_tensor_dtype(y) == dtype)
        tri_backward(tri_sum(weighted(tri_square(y)), NULL, 0, false));
    read_result(&r, tri_keep(y));
    for (int k = 0; k < OP_CASE_INPUTS; k++) {
        if (in[k] != NULL)
            read_result(&r, in[k]);
        if (in[k] != NULL && tri_grad(in[k]) != NULL)
            read_result(&r, tri_grad(in[k]));
    }
    CHECK_OK(tri_step_end_status());
    for (int k = 0; k < OP_CASE_INPUTS; k++)
        tri_tensor_unref(in[k]);
    return r;
}

static void check_results(const char *name, results *a, results *b, double tolerance)
{
    assert_int_equal(a->count, b->count);
    for (int k = 0; k < a->count; k++) {
        double largest = 0;

        assert_int_equal(a->n[k], b->n[k]);
        for (int64_t i = 0; i < a->n[k]; i++)
            largest = fmax(largest, fabs(number(b, k, i)));
        for (int64_t i = 0; i < a->n[k]; i++) {
            double x = number(a, k, i), y = number(b, k, i);

            if (!(fabs(x - y) <= tolerance * (largest + 1e-2)) && !(x != x && y != y))
                fail_msg("%s: result %d, element %lld: %.17g instead of %.17g (largest %g)", name,
                         k, (long long)i, x, y, largest);
        }
        free(a->data[k]);
        free(b->data[k]);
    }
}

static void check_cases(tri_dtype dtype, bool bf16, double tolerance)
{
    for (size_t i = 0; i < TRII_COUNT_OF(op_cases); i++) {
        for (view_kind kind = 0; kind < VIEW_KINDS; kind++) {
            results planned, eager;
            char name[64];

            if (kind == VIEW_REPEATED && (strncmp(op_cases[i].name, "bn_train", 8) == 0 ||
                                          strncmp(op_cases[i].name, "bn_shared", 9) == 0))
                continue; /* without a variance its gradient is rounding alone */
            snprintf(name, sizeof(name), "%s, view %d", op_cases[i].name, (int)kind);
            planned = run_case(&op_cases[i], dtype, kind, bf16);
            trii_executor_set(&trii_executor_reference);
            eager = run_case(&op_cases[i], dtype, kind, bf16);
            trii_executor_set(NULL);
            check_results(name, &planned, &eager, op_case_layers(&op_cases[i]) * tolerance);
        }
    }
}

static void every_operation_reads_and_writes_views_of_f32(void **state)
{
    (void)state;
    check_cases(TRI_DTYPE_F32, false, 1e-4);
}

static void every_operation_reads_and_writes_views_of_f64(void **state)
{
    (void)state;
    check_cases(TRI_DTYPE_F64, false, 0);
}

static void every_operation_reads_and_writes_views_of_bf16(void **state)
{
    (void)state;
    check_cases(TRI_DTYPE_F32, true, 0.02);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operation_reads_and_writes_views_of_f32),
        cmocka_unit_test(every_operation_reads_and_writes_views_of_f64),
        cmocka_unit_test(every_operation_reads_and_writes_views_of_bf16),
    };

    return test_main(argc, argv, tests, TRII_COUNT_OF(tests));
}
