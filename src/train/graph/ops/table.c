/*
 * table.c - the table of table.h, made from list.h.
 */
#include "train/graph/ops/table.h"

#include "base/compiler.h"

#define TRII_OP(name) &trii_op_##name,
const trii_graph_op *const trii_ops_all[] = {
#include "train/graph/ops/list.h"
};
#undef TRII_OP

const int trii_ops_count = (int)TRII_COUNT_OF(trii_ops_all);
