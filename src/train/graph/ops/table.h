/*
 * table.h - every operation by name (trii_op_NAME, from list.h), and what runs their reference
 * kernels.
 */
#ifndef TRII_OPS_TABLE_H
#define TRII_OPS_TABLE_H

#include <float.h>

#include "train/graph/op.h"

#define TRII_OP(name) extern const trii_graph_op trii_op_##name;
#include "train/graph/ops/list.h"
#undef TRII_OP

/* All of them; tests iterate. */
extern const trii_graph_op *const trii_ops_all[];
extern const int trii_ops_count;

/* Runs the reference kernel; operands in bf16 are widened for it, its results rounded. */
tri_status trii_reference_kernel(const trii_graph_op *op,
                                 const trii_kernel_args *args) TRI_MUST_CHECK;
/* Zeroed memory for a reference kernel: lent by its caller as long as that has any, else allocated;
 * NULL (and the error line) without memory. Return it in either case. */
void *trii_work_take(const trii_kernel_args *args, size_t n, size_t size);
void trii_work_return(const trii_kernel_args *args, void *block);
/* The bytes of work memory that trii_reference_kernel needs to widen these operands. */
size_t trii_work_bytes(const trii_kernel_args *args);
void trii_fill_attrs(const trii_type *type, double value, trii_attrs *attrs);

/* loss_scale.c: a scale is at least this, so that its inverse is finite in f32. */
#define TRII_LEAST_LOSS_SCALE FLT_MIN

/* class_losses.c: the target of a row must be one of its classes. */
tri_status trii_target_check(int64_t target, int64_t row, int64_t n_classes) TRI_MUST_CHECK;
/* The gradient g of the result for a row: the mean divides by the weights of the targets that are
 * not ignored. */
double trii_class_grad(double g, int64_t reduction, double divisor);

#endif
