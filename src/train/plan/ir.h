/*
 * ir.h - the plan's passes, from a recorded segment to groups in order with layouts. Included by
 * the passes and by plan.c, which calls them in this order:
 *
 * trii_ir_build copies the segment and drops dead code, once trii_ir_widen has put casts around
 * nodes that compute on 16 bits in f32; trii_ir_fuse makes groups; trii_ir_layouts chooses layouts
 * and inserts reorders; trii_ir_compile makes the kernels. Everything that they allocate lies in
 * the ir's pool.
 */
#ifndef TRII_IR_H
#define TRII_IR_H

#include "train/graph/step/step.h"
#include "train/graph/step/type.h"
#include "train/plan/device_ops.h"

/* Fills everything but groups. first_f counts the floats of the live nodes, `n_f_out` is their
 * number; `n_random_out` likewise. */
tri_status trii_ir_build(trii_ir *ir, const trii_step *step, const trii_segment *segment,
                         const trii_device_ops *device, int32_t *n_f_out,
                         int32_t *n_random_out) TRI_MUST_CHECK;
/* half.c: nodes that compute on f16, or on bf16 where the device has no kernel for that, get their
 * operands widened to f32 and their results rounded. */
tri_status trii_ir_widen(trii_ir *ir, const trii_device_ops *device) TRI_MUST_CHECK;
tri_status trii_ir_fuse(trii_ir *ir, const trii_device_ops *device) TRI_MUST_CHECK;
/* adopt_out: [n_values], for each value NULL or the layout to which its persistent tensor
 * changes. */
tri_status trii_ir_layouts(trii_ir *ir, const trii_step *step, const trii_segment *segment,
                           const trii_device_ops *device,
                           const trii_layout **adopt_out) TRI_MUST_CHECK;
/* On failure the kernels made so far stay in the groups; the caller destroys them. The line names
 * the operation whose kernel there is not. */
tri_status trii_ir_compile(trii_ir *ir, const trii_step *step, const trii_segment *segment,
                           const trii_device_ops *device) TRI_MUST_CHECK;

/* A new group at the end; NULL when memory is out. */
#define TRII_POSITION_STEP 256 /* room for reorders before and after each group */
trii_group *trii_ir_add_group(trii_ir *ir, trii_group_kind kind, int32_t position);
/* A new value of the type, without producer; -1 when memory is out. */
int32_t trii_ir_add_value(trii_ir *ir, const trii_type *type);
/* Sets the group's `in` and `out` from its nodes, and `group` of the values. */
tri_status trii_ir_finish_group(trii_ir *ir, int32_t group) TRI_MUST_CHECK;
void trii_ir_sort_groups(trii_ir *ir);

/* Bytes of the value in a layout (NULL = plain). */
size_t trii_layout_bytes(const trii_type *type, const trii_layout *layout);

#endif
