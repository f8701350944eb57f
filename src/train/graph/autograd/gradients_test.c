/* gradients_test.c - every gradient against central differences in f64, over all of
 * testing/op_cases.h; that shape rules look at no numbers; and that those cases leave no operation
 * out. */
/* ctest: threads=none */
#include <math.h>

#include "testing/check.h"
#include "testing/op_cases.h"
#include "testing/shape_rules.h"
#include "train/graph/ops/table.h"
#include "train/graph/step/step.h"

static bool seen[SHAPE_RULES_OPS];

/* sum(result * weights), weights from operand number 9. */
static tri_tensor *loss_of(const op_case *c, tri_tensor **in)
{
    tri_tensor *y = c->build(in), *weights;
    op_input like = {.kind = 'N', .ndim = tri_tensor_ndim(y)};

    CHECK_OK(tri_tensor_status(y));
    for (int d = 0; d < like.ndim; d++)
        like.shape[d] = tri_tensor_size(y, d);
    weights = op_case_tensor(&like, 9, TRI_DTYPE_F64);
    y = tri_sum(tri_mul(y, weights), NULL, 0, false);
    tri_tensor_unref(weights); /* the step holds it */
    return y;
}

static double loss_value(const op_case *c, tri_tensor **in)
{
    double value;

    tri_rng_state_set(&(tri_rng){.step = 7}); /* the same random numbers each time */
    tri_no_grad_begin();
    value = tri_item(loss_of(c, in));
    tri_no_grad_end();
    CHECK_OK(tri_step_end_status());
    return value;
}

static void check_input(const op_case *c, tri_tensor **in, int k)
{
    int64_t n = op_case_numel(&c->in[k]);
    double *x = calloc((size_t)(n + 1), sizeof(*x)), *grad = calloc((size_t)(n + 1), sizeof(*grad));
    const double h = 1e-5;

    assert_non_null(tri_grad(in[k]));
    CHECK_OK(tri_tensor_copy_out(tri_grad(in[k]), grad, (size_t)n * sizeof(*grad)));
    CHECK_OK(tri_tensor_copy_out(in[k], x, (size_t)n * sizeof(*x)));
    CHECK_OK(tri_step_end_status());
    for (int64_t i = 0; i < n; i++) {
        double kept = x[i], up, down, numeric;

        x[i] = kept + h;
        CHECK_OK(tri_tensor_copy_in(in[k], x, (size_t)n * sizeof(*x)));
        up = loss_value(c, in);
        x[i] = kept - h;
        CHECK_OK(tri_tensor_copy_in(in[k], x, (size_t)n * sizeof(*x)));
        down = loss_value(c, in);
        x[i] = kept;
        CHECK_OK(tri_tensor_copy_in(in[k], x, (size_t)n * sizeof(*x)));
        numeric = (up - down) / (2 * h);
        if (!(fabs(numeric - grad[i]) <= 1e-8 + 1e-7 * fabs(numeric)))
            fail_msg("%s: d/d operand %d [%lld]: %.12g, by differences %.12g", c->name, k,
                     (long long)i, grad[i], numeric);
    }
    free(x);
    free(grad);
}

static void check_case(const op_case *c)
{
    tri_tensor *in[OP_CASE_INPUTS], *loss, *unused;

    for (int k = 0; k < OP_CASE_INPUTS; k++)
        in[k] = op_case_tensor(&c->in[k], k, TRI_DTYPE_F64);
    tri_rng_state_set(&(tri_rng){.step = 7});
    if (!c->rough) {
        loss = loss_of(c, in);
        if (op_case_wants_grad(&c->in[0])) /* what that records is checked here, too */
            CHECK_OK(tri_gradients(&loss, 1, in, 1, &(tri_gradients_options){.create_graph = true},
                                   &unused));
        tri_backward(loss);
        CHECK_OK(tri_run());
    } else {
        CHECK_OK(tri_tensor_status(c->build(in)));
    }
    shape_rules_check(trii_step_current(), seen);
    CHECK_OK(tri_step_end_status());
    for (int k = 0; k < OP_CASE_INPUTS && !c->rough; k++) {
        if (op_case_wants_grad(&c->in[k]))
            check_input(c, in, k);
    }
    for (int k = 0; k < OP_CASE_INPUTS; k++)
        tri_tensor_unref(in[k]);
}

/* Those that no public operation records in f64. */
static bool is_recorded_elsewhere(const trii_graph_op *op)
{
    return op == &trii_op_update || op == &trii_op_square_sum || op == &trii_op_clip_factor ||
           op == &trii_op_square_blocks || op == &trii_op_square_spread ||
           op == &trii_op_square_total || op == &trii_op_square_each ||
           op == &trii_op_sum_in_order || op == &trii_op_target_weights || op == &trii_op_copy ||
           op == &trii_op_to || op == &trii_op_matmul_weight || op == &trii_op_matmul_to_weight ||
           op == &trii_op_loss_unscale || op == &trii_op_loss_rescale ||
           op == &trii_op_dropout_mask_part || /* these need ranks */
           op == &trii_op_dist_scatter_to || op == &trii_op_dist_copy_to;
}

static void every_gradient_matches_finite_differences(void **state)
{
    (void)state;
    trii_executor_set(&trii_executor_reference);
    for (int i = 0; i < OP_CASE_COUNT; i++)
        check_case(&op_cases[i]);
    for (int k = 0; k < trii_ops_count; k++) {
        if (!seen[k] && !is_recorded_elsewhere(trii_ops_all[k]))
            fail_msg("no case of testing/op_cases.h uses %s", trii_ops_all[k]->name);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_gradient_matches_finite_differences),
};

TEST_MAIN(tests)
