/* ops_golden_test.c - every operation forward and backward against PyTorch's numbers (made by
 * make_ops.py): in f64 to rounding and in f32 to its precision (ops.txt), and in bf16 and f16
 * under autocast (ops_bf16.txt, ops_f16.txt), where both round to 8 or 11 bits, each in places of
 * its own. */
#include <math.h>

#include "base/dtype.h"
#include "train/graph/step/step.h"
#include "testing/check.h"
#include "testing/golden.h"
#include "testing/op_cases.h"

typedef struct golden {
    FILE *file;
    char line[1 << 16];
} golden;

static bool next_line(golden *g)
{
    return fgets(g->line, sizeof(g->line), g->file) != NULL;
}

static const op_case *find_case(const char *name)
{
    for (int i = 0; i < OP_CASE_COUNT; i++) {
        if (strcmp(op_cases[i].name, name) == 0)
            return &op_cases[i];
    }
    fail_msg("op_cases.h has no case %s", name);
    return NULL;
}

/* How near the tensor is to the line's array: each element, or all together by their norm. */
typedef struct nearness {
    double element; /* times 1 + |element| */
    double norm;    /* times the norm; 0: elements are compared */
} nearness;

static double *elements(tri_tensor *tensor)
{
    int64_t n = tri_tensor_numel(tensor);
    tri_dtype dtype = tri_tensor_dtype(tensor);
    void *data = calloc((size_t)(n > 0 ? n : 1), 8);
    double *x = calloc((size_t)(n > 0 ? n : 1), sizeof(*x));

    CHECK_OK(tri_tensor_copy_out(tensor, data, (size_t)n * tri_dtype_size(dtype)));
    for (int64_t i = 0; i < n; i++) {
        if (dtype == TRI_DTYPE_F64)
            x[i] = ((double *)data)[i];
        else if (dtype == TRI_DTYPE_F32)
            x[i] = (double)((float *)data)[i];
        else
            x[i] = (double)((int64_t *)data)[i];
    }
    free(data);
    return x;
}

static void check_array(const char *line, const char *name, tri_tensor *tensor, nearness near)
{
    int64_t n = tri_tensor_numel(tensor);
    double *have = elements(tensor), difference = 0, size = 0;
    char *at = strchr(line, ' ');

    assert_int_equal(strtol(at, &at, 10), tri_tensor_ndim(tensor));
    for (int d = 0; d < tri_tensor_ndim(tensor); d++)
        assert_int_equal(strtol(at, &at, 10), tri_tensor_size(tensor, d));
    for (int64_t i = 0; i < n; i++) {
        double want = strtod(at, &at);

        if (isnan(want) && isnan(have[i]))
            continue;
        difference += (have[i] - want) * (have[i] - want);
        size += want * want;
        if (near.norm == 0 && !(fabs(have[i] - want) <= near.element * (1 + fabs(want))))
            fail_msg("%s: %.*s [%lld]: %.17g, PyTorch %.17g", name, (int)strcspn(line, " "), line,
                     (long long)i, have[i], want);
    }
    if (near.norm > 0 && !(sqrt(difference) <= near.norm * sqrt(size)))
        fail_msg("%s: %.*s is off by %.3g of PyTorch's norm %.3g", name, (int)strcspn(line, " "),
                 line, sqrt(difference / size), sqrt(size));
    free(have);
}

typedef struct running {
    const op_case *op;
    tri_tensor *in[OP_CASE_INPUTS];
    tri_tensor *y;
} running;

/* In bf16 or f16, activations are rounded first and the operation runs under autocast. */
static tri_tensor *build(const running *r, tri_dtype dtype)
{
    tri_tensor *in[OP_CASE_INPUTS], *y;

    memcpy(in, r->in, sizeof(in));
    if (!trii_dtype_is_half(dtype))
        return r->op->build(in);
    for (int k = 0; k < OP_CASE_INPUTS; k++) {
        if (in[k] != NULL && op_case_is_activation(r->op, k))
            in[k] = tri_cast(in[k], dtype);
    }
    tri_autocast_begin(dtype);
    y = r->op->build(in);
    tri_autocast_end();
    return tri_tensor_dtype(y) == dtype ? tri_cast(y, TRI_DTYPE_F32) : y;
}

static void begin_case(running *r, const char *name, tri_dtype dtype)
{
    tri_dtype leaves = trii_dtype_is_half(dtype) ? TRI_DTYPE_F32 : dtype;
    op_input like = {.kind = 'N'};
    tri_tensor *weights;

    r->op = find_case(name);
    for (int k = 0; k < OP_CASE_INPUTS; k++)
        r->in[k] = op_case_tensor(&r->op->in[k], k, leaves);
    r->y = tri_keep(build(r, dtype));
    CHECK_OK(tri_tensor_status(r->y));
    like.ndim = tri_tensor_ndim(r->y);
    for (int d = 0; d < like.ndim; d++)
        like.shape[d] = tri_tensor_size(r->y, d);
    if (!op_case_wants_grad(&r->op->in[0]))
        return;
    weights = op_case_tensor(&like, 9, tri_tensor_dtype(r->y));
    tri_backward(tri_sum(tri_mul(r->y, weights), NULL, 0, false));
    tri_tensor_unref(weights);
}

static void end_case(running *r)
{
    CHECK_OK(tri_step_end_status());
    for (int k = 0; k < OP_CASE_INPUTS && r->op != NULL; k++)
        tri_tensor_unref(r->in[k]);
    r->op = NULL;
}

static void compare_all(const char *file, tri_dtype dtype, nearness near)
{
    golden g = {.file = golden_open(file)};
    running r = {0};
    int cases = 0, arrays = 0;
    char name[64] = "";

    while (next_line(&g)) {
        const char *line = g.line;

        if (sscanf(line, "case %63s", name) == 1) {
            end_case(&r);
            begin_case(&r, name, dtype);
            cases++;
        } else if (line[0] == 'y') {
            check_array(line, name, r.y, near);
            arrays++;
        } else if (line[0] == 'g') {
            assert_non_null(tri_grad(r.in[line[1] - '0']));
            check_array(line, name, tri_grad(r.in[line[1] - '0']), near);
            arrays++;
        } else if (line[0] == 'a') {
            check_array(line, name, r.in[line[1] - '0'], near);
            arrays++;
        }
    }
    end_case(&r);
    fclose(g.file);
    assert_int_equal(cases, OP_CASE_COUNT - 10); /* random numbers are our own */
    assert_true(arrays > 2 * cases);
}

/* On the device, and with the reference kernels. */
static void compare(const char *file, tri_dtype dtype, nearness near)
{
    compare_all(file, dtype, near);
    trii_executor_set(&trii_executor_reference);
    compare_all(file, dtype, near);
    trii_executor_set(NULL);
}

static void f64_gives_the_numbers_of_pytorch(void **state)
{
    (void)state;
    compare("ops.txt", TRI_DTYPE_F64, (nearness){.element = 1e-13});
}

static void f32_gives_the_numbers_of_pytorch_to_its_precision(void **state)
{
    (void)state;
    compare("ops.txt", TRI_DTYPE_F32, (nearness){.element = 3e-6});
}

/* A rounding to bf16 is at most 0.0039, and 0.0016 of the norm of many elements; two layers of an
 * LSTM round several times. */
static const nearness near_in_bf16 = {.norm = 6e-3};

static void bf16_gives_the_numbers_of_pytorch_to_its_precision(void **state)
{
    (void)state;
    compare("ops_bf16.txt", TRI_DTYPE_BF16, near_in_bf16);
}

static void bf16_on_avx2(void **state)
{
    (void)state;
    setenv("TRI_ISA", "avx2", 1);
    compare_all("ops_bf16.txt", TRI_DTYPE_BF16, near_in_bf16);
}

static void bf16_on_portable_kernels(void **state)
{
    (void)state;
    setenv("TRI_ISA", "portable", 1);
    compare_all("ops_bf16.txt", TRI_DTYPE_BF16, near_in_bf16);
}

/* To f16 at most 0.0005. */
static const nearness near_in_f16 = {.norm = 1e-3};

static void f16_gives_the_numbers_of_pytorch_to_its_precision(void **state)
{
    (void)state;
    compare("ops_f16.txt", TRI_DTYPE_F16, near_in_f16);
}

static void f16_on_avx2(void **state)
{
    (void)state;
    setenv("TRI_ISA", "avx2", 1);
    compare_all("ops_f16.txt", TRI_DTYPE_F16, near_in_f16);
}

static void f16_on_portable_kernels(void **state)
{
    (void)state;
    setenv("TRI_ISA", "portable", 1);
    compare_all("ops_f16.txt", TRI_DTYPE_F16, near_in_f16);
}

/* --- second gradients ----------------------------------------------------- */

static tri_tensor *weighed(tri_tensor *x, int number)
{
    op_input like = {.kind = 'N', .ndim = tri_tensor_ndim(x)};
    tri_tensor *weights;

    for (int d = 0; d < like.ndim; d++)
        like.shape[d] = tri_tensor_size(x, d);
    weights = op_case_tensor(&like, number, tri_tensor_dtype(x));
    x = tri_sum(tri_mul(x, weights), NULL, 0, false);
    tri_tensor_unref(weights); /* the step holds it */
    return x;
}

/* second[k] becomes the second gradient of operand k: see make_ops.py. */
static void begin_second(running *r, const char *name, tri_dtype dtype, tri_tensor **second)
{
    tri_tensor *wanted[OP_CASE_INPUTS], *grads[OP_CASE_INPUTS], *loss, *total = NULL;
    int place[OP_CASE_INPUTS], n = 0;

    r->op = find_case(name);
    for (int k = 0; k < OP_CASE_INPUTS; k++) {
        r->in[k] =
            op_case_tensor(&r->op->in[k], k, trii_dtype_is_half(dtype) ? TRI_DTYPE_F32 : dtype);
        if (op_case_wants_grad(&r->op->in[k])) {
            place[n] = k;
            wanted[n++] = r->in[k];
        }
    }
    loss = weighed(tri_square(build(r, dtype)), 9);
    CHECK_OK(
        tri_gradients(&loss, 1, wanted, n, &(tri_gradients_options){.create_graph = true}, grads));
    for (int i = 0; i < n; i++)
        total = i == 0 ? weighed(grads[i], 5) : tri_add(total, weighed(grads[i], 5 + i));
    CHECK_OK(tri_gradients(&total, 1, wanted, n, NULL, grads));
    for (int i = 0; i < n; i++)
        second[place[i]] = tri_keep(grads[i]);
}

static void compare_second(tri_dtype dtype, nearness near)
{
    golden g = {.file = golden_open("ops_second.txt")};
    running r = {0};
    tri_tensor *second[OP_CASE_INPUTS];
    int cases = 0;
    char name[64] = "";

    while (next_line(&g)) {
        if (sscanf(g.line, "case %63s", name) == 1) {
            end_case(&r);
            begin_second(&r, name, dtype, second);
            cases++;
        } else if (g.line[0] == 'h') {
            check_array(g.line, name, second[g.line[1] - '0'], near);
        }
    }
    end_case(&r);
    fclose(g.file);
    assert_int_equal(cases, 43);
}

static void second_gradients_are_those_of_pytorch(void **state)
{
    (void)state;
    compare_second(TRI_DTYPE_F64, (nearness){.element = 1e-12});
    compare_second(TRI_DTYPE_F32, (nearness){.element = 2e-5});
    /* operands are rounded, which PyTorch's are not: other elements of a window may be largest */
    compare_second(TRI_DTYPE_BF16, (nearness){.norm = 0.1});
    compare_second(TRI_DTYPE_F16, (nearness){.norm = 0.1});
    trii_executor_set(&trii_executor_reference);
    compare_second(TRI_DTYPE_F32, (nearness){.element = 2e-5});
    trii_executor_set(NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(f64_gives_the_numbers_of_pytorch),
    cmocka_unit_test(f32_gives_the_numbers_of_pytorch_to_its_precision),
    cmocka_unit_test(bf16_gives_the_numbers_of_pytorch_to_its_precision),
    cmocka_unit_test(bf16_on_avx2),
    cmocka_unit_test(bf16_on_portable_kernels),
    cmocka_unit_test(f16_gives_the_numbers_of_pytorch_to_its_precision),
    cmocka_unit_test(f16_on_avx2),
    cmocka_unit_test(f16_on_portable_kernels),
    cmocka_unit_test(second_gradients_are_those_of_pytorch),
};

TEST_MAIN(tests)
