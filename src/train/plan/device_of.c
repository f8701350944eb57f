/*
 * device_of.c - one trii_device_ops for all devices of a process: each question of the passes goes
 * to the kind of device on which the group in question runs. A group never has nodes on two
 * devices. Used by cache.c; the kinds are listed in train/registry/train.c.
 */
#include "train/plan/plan.h"
#include "train/tensor/device_list.h"

static const trii_device_ops *ops_of(tri_device device)
{
    return trii_device_kinds[trii_device_kind_of(device)]->ops;
}

static const trii_device_ops *of_node(const trii_ir *ir, const trii_ir_node *node)
{
    return ops_of(ir->values[node->out[0]].type.device);
}

static bool supports(const trii_ir *ir, const trii_ir_node *node)
{
    return of_node(ir, node)->supports(ir, node);
}

static tri_status compile(tri_device device, const trii_ir *ir, const trii_group *group,
                          trii_kernel **kernel_out)
{
    return ops_of(device)->compile(device, ir, group, kernel_out);
}

static bool chains(const trii_ir *ir, const trii_ir_node *node)
{
    const trii_device_ops *ops = of_node(ir, node);

    return ops->chains != NULL && ops->chains(ir, node);
}

static bool absorbs(const trii_ir *ir, const trii_group *group, const trii_ir_node *node)
{
    const trii_device_ops *ops = of_node(ir, node);

    return ops->absorbs != NULL && ops->absorbs(ir, group, node);
}

static bool absorbs_before(trii_ir *ir, trii_ir_node *before, const trii_ir_node *node)
{
    const trii_device_ops *ops = of_node(ir, node);

    return ops->absorbs_before != NULL && ops->absorbs_before(ir, before, node);
}

static bool sums(const trii_ir *ir, const trii_group *a, const trii_group *b,
                 const trii_ir_node *node)
{
    const trii_device_ops *ops = of_node(ir, node);

    return ops->sums != NULL && ops->sums(ir, a, b, node);
}

static void layouts(const trii_ir *ir, const trii_group *group, const trii_layout *const *have,
                    trii_layouts *want)
{
    const trii_device_ops *ops = ops_of(trii_group_device(ir, group));

    if (ops->layouts != NULL)
        ops->layouts(ir, group, have, want);
}

const trii_device_ops trii_plan_device = {
    .abi = TRII_DEVICE_ABI,
    .size = sizeof(trii_device_ops),
    .name = "any",
    .supports = supports,
    .compile = compile,
    .chains = chains,
    .absorbs = absorbs,
    .absorbs_before = absorbs_before,
    .sums = sums,
    .layouts = layouts,
};
