/*
 * cpu_group.c - what every family asks about the group that it compiles: which of its operands a
 * value is, and in which type it computes.
 */
#include "base/alloc.h"
#include "train/device/cpu/cpu_ops.h"

int trii_group_in(const trii_group *group, int32_t value)
{
    for (int32_t i = 0; i < group->n_in; i++) {
        if (group->in[i] == value)
            return i;
    }
    return -1;
}

int trii_group_out(const trii_group *group, int32_t value)
{
    for (int32_t o = 0; o < group->n_out; o++) {
        if (group->out[o] == value)
            return o;
    }
    return -1;
}

static bool node_is_of(const trii_ir *ir, const trii_ir_node *node, bool bf16_too)
{
    for (int32_t i = 0; i < node->n_in + node->n_out; i++) {
        int32_t value = i < node->n_in ? node->in[i] : node->out[i - node->n_in];
        tri_dtype dtype = value >= 0 ? ir->values[value].type.dtype : TRI_DTYPE_F32;

        if (dtype != TRI_DTYPE_F32 && !(bf16_too && dtype == TRI_DTYPE_BF16))
            return false;
    }
    return true;
}

bool trii_node_f32(const trii_ir *ir, const trii_ir_node *node)
{
    return node_is_of(ir, node, false);
}

bool trii_node_computes_f32(const trii_ir *ir, const trii_ir_node *node)
{
    return node_is_of(ir, node, true);
}

void trii_cpu_kernel_free(trii_kernel *kernel)
{
    trii_free(kernel);
}
