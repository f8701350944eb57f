/*
 * conv.c - convolution and its gradients, as the plan asks for them: which nodes oneDNN takes, in
 * which layouts, and the kernel.
 *
 * f32 goes to conv_choose.c, bf16 to conv_bf16.c, sums of gradients of weights to conv_sum.c; all
 * of them build their kernel in conv_pieces.c and describe it with conv_describe.c. Weights adopt
 * the layout that forward likes best and keep it from step to step. What oneDNN cannot compute
 * runs in the reference kernel.
 */
#include "train/device/cpu/onednn/conv.h"
#include "train/graph/step/type.h"

static bool conv_takes(const trii_ir *ir, const trii_ir_node *node)
{
    if (!trii_node_computes_f32(ir, node))
        return false;
    for (int i = 0; i < 2; i++) {
        if (trii_type_numel(trii_in_type(ir, node, i)) == 0)
            return false;
    }
    return trii_type_numel(trii_out_type(ir, node, 0)) > 0;
}

static void conv_layouts(const trii_ir *ir, const trii_group *group, const trii_layout *const *have,
                         trii_layouts *want)
{
    const trii_ir_node *node = &ir->nodes[group->nodes[0]];
    convolution c;
    trii_conv_choice chosen = {0};
    int w;

    if (group->n_nodes > 1) {
        trii_conv_sum_layouts(ir, group, want);
        return;
    }
    trii_conv_read(ir, node, &c);
    if (c.bf16) {
        trii_conv_bf16_layouts(ir, group, &c, have, want);
        return;
    }
    w = trii_group_in(group, c.value[W]);
    if (trii_conv_choose(&c, &chosen) != TRI_OK)
        return; /* the reference kernel: all plain */
    for (int s = 0; s < N_SIDES; s++) {
        int i = trii_group_in(group, c.value[s]);

        if (i >= 0)
            want->in[i] = chosen.layout[s];
        else
            want->out[trii_group_out(group, c.value[s])] = chosen.layout[s];
    }
    if (w >= 0 && c.dir == FORWARD)
        want->adopt |= UINT64_C(1) << w;
    dnnl_primitive_desc_destroy(chosen.pd);
}

static tri_status conv_compile(const trii_ir *ir, const trii_group *group, trii_kernel **kernel_out)
{
    const trii_ir_node *node = &ir->nodes[group->nodes[0]];
    int index[N_SIDES + 1];
    convolution c;
    trii_conv_choice chosen = {0};
    tri_status status;

    if (group->n_nodes > 1)
        return trii_conv_sum_compile(ir, group, kernel_out);
    trii_conv_read(ir, node, &c);
    if (c.bf16)
        return trii_conv_bf16_compile(ir, group, &c, kernel_out);
    status = trii_conv_choose(&c, &chosen); /* as for the layouts */
    for (int s = 0; s < N_SIDES && status == TRI_OK; s++) {
        if (chosen.layout[s] != trii_conv_layout(group, c.value[s])) {
            dnnl_primitive_desc_destroy(chosen.pd);
            status = TRI_ERR_UNSUPPORTED;
        }
    }
    if (status == TRI_ERR_UNSUPPORTED)
        return trii_cpu_fallback_compile(ir, group, kernel_out);
    if (status != TRI_OK)
        return status;
    for (int s = 0; s < N_SIDES; s++) {
        int i = trii_group_in(group, c.value[s]);

        index[s] = i >= 0 ? i : group->n_in + trii_group_out(group, c.value[s]);
    }
    index[N_SIDES] = c.bias ? trii_group_in(group, c.bias_value) : -1;
    status = trii_conv_kernel(&c, chosen.pd, index, group->n_in + group->n_out, kernel_out);
    dnnl_primitive_desc_destroy(chosen.pd);
    return status;
}

const trii_cpu_family trii_onednn_conv = {
    .op = {&trii_op_conv}, .takes = conv_takes, .layouts = conv_layouts, .compile = conv_compile};
const trii_cpu_family trii_onednn_conv_backward_data = {.op = {&trii_op_conv_backward_data},
                                                        .takes = conv_takes,
                                                        .layouts = conv_layouts,
                                                        .compile = conv_compile};
const trii_cpu_family trii_onednn_conv_backward_weight = {.op = {&trii_op_conv_backward_weight},
                                                          .takes = conv_takes,
                                                          .layouts = conv_layouts,
                                                          .compile = conv_compile};
