/*
 * composite.h - what an engine made of engines (src/comm/composites) uses of the group, besides
 * what engine.h gives every engine.
 */
#ifndef TRII_COMPOSITE_H
#define TRII_COMPOSITE_H

#include "comm/group/engine.h"

#define TRII_GROUP_NAME 32

/* An operation of `call`, to be submitted to a child; only call and status may be changed then. */
void trii_op_init(trii_op *op, const trii_collective *call);
/* Memory of tri_group_alloc where no child has its own: zeroed. Refused before it is touched if
 * there is not so much. Released with trii_free. */
tri_status trii_group_heap(size_t bytes, void **p_out) TRI_MUST_CHECK;

#endif
