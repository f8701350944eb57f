/*
 * table.c - see table.h.
 */
#include "graph/ops/table.h"

#include "base/compiler.h"

const trii_op *const trii_ops_all[] = {
    &trii_op_add,
    &trii_op_sub,
    &trii_op_mul,
    &trii_op_div,
    &trii_op_relu,
    &trii_op_relu_backward,
    &trii_op_neg,
    &trii_op_mul_scalar,
    &trii_op_copy,
    &trii_op_fill,
    &trii_op_reshape,
    &trii_op_expand,
    &trii_op_sum,
    &trii_op_mean,
    &trii_op_sum_to,
    &trii_op_matmul,
    &trii_op_linear,
    &trii_op_mse_loss,
    &trii_op_mse_loss_backward,
};

const int trii_ops_count = (int)TRII_COUNT_OF(trii_ops_all);
