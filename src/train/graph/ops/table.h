/*
 * table.h - every operation by name (trii_op_NAME, from list.h).
 */
#ifndef TRII_OPS_TABLE_H
#define TRII_OPS_TABLE_H

#include <float.h>

#include "train/graph/run/kernel.h"

#define TRII_OP(name) extern const trii_graph_op trii_op_##name;
#include "train/graph/ops/list.h"
#undef TRII_OP

/* All of them; tests iterate. */
extern const trii_graph_op *const trii_ops_all[];
extern const int trii_ops_count;

void trii_fill_attrs(const trii_type *type, double value, trii_attrs *attrs);

/* loss_scale.c: a scale is at least this, so that its inverse is finite in f32. */
#define TRII_LEAST_LOSS_SCALE FLT_MIN

/* class_losses.c: the integer of cross_entropy and nll_loss that is their tri_reduction. What their
 * mean divides by is target_weights of operands 1 and 2, with the same integers. */
#define TRII_CLASS_LOSS_REDUCTION 0
/* class_losses.c: the target of a row must be one of its classes. */
tri_status trii_target_check(int64_t target, int64_t row, int64_t n_classes) TRI_MUST_CHECK;
/* The gradient g of the result for a row: the mean divides by the weights of the targets that are
 * not ignored. */
double trii_class_grad(double g, int64_t reduction, double divisor);

#endif
