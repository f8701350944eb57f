/*
 * kernel.h - runs the reference kernel of an operation, and lends it memory.
 */
#ifndef TRII_KERNEL_H
#define TRII_KERNEL_H

#include "train/graph/step/op.h"

/* Runs the reference kernel; operands in bf16 are widened for it, its results rounded. */
tri_status trii_reference_kernel(const trii_graph_op *op,
                                 const trii_kernel_args *args) TRI_MUST_CHECK;
/* Zeroed memory for a reference kernel: lent by its caller as long as that has any, else allocated;
 * NULL (and the error line) without memory. Return it in either case. */
void *trii_work_take(const trii_kernel_args *args, size_t n, size_t size);
void trii_work_return(const trii_kernel_args *args, void *block);
/* The bytes of work memory that trii_reference_kernel needs to widen these operands. */
size_t trii_work_bytes(const trii_kernel_args *args);

#endif
