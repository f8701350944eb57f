/*
 * norm.c - see norm.h.
 */
#include "device/cpu/norm.h"
bool trii_cpu_norm_absorbs(const trii_ir *ir, const trii_group *group, const trii_ir_node *node)
{
    (void)ir, (void)group, (void)node;
    return false;
}
bool trii_cpu_norm_absorbs_before(const trii_ir *ir, const trii_ir_node *before,
                                  const trii_ir_node *node)
{
    (void)ir, (void)before, (void)node;
    return false;
}
