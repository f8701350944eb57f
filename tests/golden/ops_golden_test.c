/* ops_golden_test.c - every operation forward and backward against PyTorch's numbers (ops.txt, made
 * by make_ops.py), in f64 to rounding and in f32 to its precision. */
#include <math.h>

#include "graph/step.h"
#include "testing/check.h"
#include "testing/op_cases.h"

typedef struct golden {
    FILE *file;
    char line[1 << 16];
} golden;

static golden golden_open(void)
{
    golden g = {0};
    char path[4096];
    const char *root = getenv("TRI_TEST_SOURCE");

    snprintf(path, sizeof(path), "%s/tests/golden/ops.txt", root != NULL ? root : ".");
    g.file = fopen(path, "r");
    if (g.file == NULL)
        fail_msg("%s cannot be read", path);
    return g;
}

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

/* The line's array equals the tensor. */
static void check_array(const char *line, const char *name, tri_tensor *tensor, double tolerance)
{
    char *at;
    int64_t n = tri_tensor_numel(tensor);
    tri_dtype dtype = tri_tensor_dtype(tensor);
    void *data = calloc((size_t)(n > 0 ? n : 1), 8);

    at = strchr(line, ' ');
    assert_int_equal(strtol(at, &at, 10), tri_tensor_ndim(tensor));
    for (int d = 0; d < tri_tensor_ndim(tensor); d++)
        assert_int_equal(strtol(at, &at, 10), tri_tensor_size(tensor, d));
    CHECK_OK(tri_copy_out(tensor, data, (size_t)n * tri_dtype_size(dtype)));
    for (int64_t i = 0; i < n; i++) {
        double want = strtod(at, &at), have;

        if (dtype == TRI_DTYPE_F64)
            have = ((double *)data)[i];
        else if (dtype == TRI_DTYPE_F32)
            have = (double)((float *)data)[i];
        else
            have = (double)((int64_t *)data)[i];
        if (!(fabs(have - want) <= tolerance * (1 + fabs(want))))
            fail_msg("%s: %.*s [%lld]: %.17g, PyTorch %.17g", name, (int)strcspn(line, " "), line,
                     (long long)i, have, want);
    }
    free(data);
}

typedef struct running {
    const op_case *op;
    tri_tensor *in[OP_CASE_INPUTS];
    tri_tensor *y;
} running;

static void begin_case(running *r, const char *name, tri_dtype dtype)
{
    op_input like = {.kind = 'N'};
    tri_tensor *weights;

    r->op = find_case(name);
    for (int k = 0; k < OP_CASE_INPUTS; k++)
        r->in[k] = op_case_tensor(&r->op->in[k], k, dtype);
    r->y = tri_keep(r->op->build(r->in));
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

static void compare_all(tri_dtype dtype, double tolerance)
{
    golden g = golden_open();
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
            check_array(line, name, r.y, tolerance);
            arrays++;
        } else if (line[0] == 'g') {
            assert_non_null(tri_grad(r.in[line[1] - '0']));
            check_array(line, name, tri_grad(r.in[line[1] - '0']), tolerance);
            arrays++;
        } else if (line[0] == 'a') {
            check_array(line, name, r.in[line[1] - '0'], tolerance);
            arrays++;
        }
    }
    end_case(&r);
    fclose(g.file);
    assert_int_equal(cases, OP_CASE_COUNT - 1); /* dropout's numbers are ours */
    assert_true(arrays > 2 * cases);
}

static void f64_gives_the_numbers_of_pytorch(void **state)
{
    (void)state;
    compare_all(TRI_DTYPE_F64, 1e-13);
    trii_executor_set(&trii_executor_reference);
    compare_all(TRI_DTYPE_F64, 1e-13);
}

static void f32_gives_the_numbers_of_pytorch_to_its_precision(void **state)
{
    (void)state;
    compare_all(TRI_DTYPE_F32, 3e-6);
    trii_executor_set(&trii_executor_reference);
    compare_all(TRI_DTYPE_F32, 3e-6);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(f64_gives_the_numbers_of_pytorch),
    cmocka_unit_test(f32_gives_the_numbers_of_pytorch_to_its_precision),
};

TEST_MAIN(tests)
