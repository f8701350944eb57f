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

static const trii_device_ops *of_group(const trii_ir *ir, const trii_group *group)
{
    return of_node(ir, &ir->nodes[group->nodes[0]]);
}

static void enter(tri_device device)
{
    ops_of(device)->enter(device);
}

static bool widens(const trii_ir *ir, const trii_ir_node *node)
{
    const trii_device_ops *ops = of_node(ir, node);

    return ops->widens != NULL && ops->widens(ir, node);
}

static bool chains(const trii_ir *ir, const trii_ir_node *node)
{
    return of_node(ir, node)->chains(ir, node);
}

static bool absorbs(const trii_ir *ir, const trii_group *group, const trii_ir_node *node)
{
    return of_node(ir, node)->absorbs(ir, group, node);
}

static bool absorbs_before(trii_ir *ir, trii_ir_node *before, const trii_ir_node *node)
{
    return of_node(ir, node)->absorbs_before(ir, before, node);
}

static bool sums(const trii_ir *ir, const trii_group *a, const trii_group *b,
                 const trii_ir_node *node)
{
    return of_node(ir, node)->sums(ir, a, b, node);
}

static void layouts(const trii_ir *ir, const trii_group *group, const trii_layout *const *have,
                    trii_layouts *want)
{
    of_group(ir, group)->layouts(ir, group, have, want);
}

static tri_status compile(const trii_ir *ir, const trii_group *group, trii_kernel **kernel_out)
{
    return of_group(ir, group)->compile(ir, group, kernel_out);
}

static tri_status compile_reorder(const trii_type *type, const trii_layout *from,
                                  const trii_layout *to, trii_kernel **kernel_out)
{
    return ops_of(type->device)->compile_reorder(type, from, to, kernel_out);
}

const trii_device_ops trii_plan_device = {
    .abi = TRII_DEVICE_ABI,
    .size = sizeof(trii_device_ops),
    .name = "any",
    .enter = enter,
    .widens = widens,
    .chains = chains,
    .absorbs = absorbs,
    .absorbs_before = absorbs_before,
    .sums = sums,
    .layouts = layouts,
    .compile = compile,
    .compile_reorder = compile_reorder,
};
