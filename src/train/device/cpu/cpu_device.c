/*
 * cpu_device.c - the device, trii_device_cpu: which kernel runs which group. The plan asks it
 * through train/plan/device_ops.h.
 *
 * An operation goes to its family (a table below), element-wise ones to chain.c, and operations
 * that no family takes to their reference kernel (fallback.c; element-wise ones in blocks): so
 * every recorded step runs, in every dtype.
 */
#include "base/alloc.h"
#include "train/device/cpu/cpu_ops.h"
#include "train/device/cpu/norm.h"
#include "train/device/cpu/onednn/onednn.h"
#include "train/device/cpu/cpu_parallel.h"
#include "train/graph/step/type.h"
#include "train/tensor/device_list.h"

static const trii_cpu_family *const families[] = {
    &trii_onednn_conv,
    &trii_onednn_conv_backward_data,
    &trii_onednn_conv_backward_weight,
    &trii_cpu_max_pool,
    &trii_cpu_max_pool_backward,
    &trii_cpu_avg_pool,
    &trii_cpu_avg_pool_backward,
    &trii_cpu_adaptive_max_pool,
    &trii_cpu_adaptive_max_pool_backward,
    &trii_cpu_adaptive_avg_pool,
    &trii_cpu_adaptive_avg_pool_backward,
    &trii_cpu_cross_entropy,
    &trii_cpu_cross_entropy_backward,
    &trii_cpu_count_correct,
    &trii_cpu_softmax,
    &trii_cpu_softmax_backward,
    &trii_cpu_log_softmax,
    &trii_cpu_log_softmax_backward,
    &trii_cpu_batch_norm,
    &trii_cpu_batch_norm_stats,
    &trii_cpu_batch_norm_backward,
    &trii_cpu_embedding,
    &trii_cpu_embedding_backward,
    &trii_cpu_row_norm,
    &trii_cpu_row_norm_backward,
    &trii_cpu_lstm,
    &trii_cpu_lstm_backward,
    &trii_cpu_attention,
    &trii_cpu_attention_backward,
    &trii_cpu_dropout_mask,
    &trii_cpu_flip,
    &trii_cpu_slice_update,
    &trii_cpu_amax,
    &trii_cpu_amax_backward,
    &trii_cpu_argmax,
    &trii_cpu_topk,
    &trii_cpu_cumsum,
    &trii_cpu_update,
    &trii_cpu_square_sum,
    &trii_cpu_linear,
    &trii_cpu_matmul,
    &trii_cpu_sum,
    &trii_cpu_mean,
    &trii_cpu_sum_to,
    &trii_cpu_mse_loss,
};

bool tri_is_bf16_fast(void)
{
    return trii_cpu_isa() == TRII_ISA_AVX512 &&
           (trii_cpu_has_amx_bf16() || trii_cpu_has_avx512_bf16());
}

/* The family of the group's main node (its last node may be a fused epilogue, its first a fused
 * prologue), or NULL. */
static const trii_cpu_family *family_of(const trii_ir *ir, const trii_group *group)
{
    for (int32_t n = 0; n < group->n_nodes; n++) {
        const trii_ir_node *node = &ir->nodes[group->nodes[n]];

        if (group->n_nodes > 1 && node->op->op_class == TRII_CLASS_ELEMENTWISE)
            continue; /* fused into the main node */
        for (size_t f = 0; f < TRII_COUNT_OF(families); f++) {
            for (int k = 0; k < TRII_FAMILY_OPS && families[f]->op[k] != NULL; k++) {
                if (families[f]->op[k] == node->op)
                    return families[f]->takes(ir, node) ? families[f] : NULL;
            }
        }
    }
    return NULL;
}

static bool sees_bf16(const trii_ir *ir, const trii_ir_node *node)
{
    bool sees = false;

    for (int i = 0; i < node->n_in + node->n_out; i++) {
        int32_t value = i < node->n_in ? node->in[i] : node->out[i - node->n_in];

        sees = sees || (value >= 0 && ir->values[value].type.dtype == TRI_DTYPE_BF16);
    }
    return sees;
}

/* Where no family takes a node its reference kernel does; but some are better computed in f32,
 * since their family has no loops of its own for bf16. */
static bool cpu_supports(const trii_ir *ir, const trii_ir_node *node)
{
    bool is_conv = node->op == &trii_op_conv || node->op == &trii_op_conv_backward_data ||
                   node->op == &trii_op_conv_backward_weight;

    return is_conv ? trii_onednn_has_bf16() || !sees_bf16(ir, node)
                   : !trii_cpu_product_widens(ir, node);
}

static bool cpu_absorbs(const trii_ir *ir, const trii_group *group, const trii_ir_node *node)
{
    return trii_cpu_norm_absorbs(ir, group, node) || trii_cpu_product_absorbs(ir, group, node);
}

static void cpu_layouts(const trii_ir *ir, const trii_group *group, const trii_layout *const *have,
                        trii_layouts *want)
{
    const trii_layout *seen[TRII_GROUP_VALUES];
    const trii_cpu_family *family;

    if (group->kind == TRII_GROUP_CHAIN) {
        trii_cpu_chain_layouts(ir, group, have, want);
        return;
    }
    family = family_of(ir, group);
    if (family == NULL || family->layouts == NULL)
        return;
    for (int32_t i = 0; i < group->n_in; i++)
        seen[i] = have[i] != NULL && have[i]->strides != NULL && !family->strided ? NULL : have[i];
    family->layouts(ir, group, seen, want);
}

static tri_status run_nothing(const trii_kernel *kernel, void *const *args, const trii_run *run)
{
    (void)kernel;
    (void)args;
    (void)run;
    return TRI_OK;
}

/* No elements: rows may still be many, so nothing is run. Operations that check their operands run
 * anyway. */
static bool makes_nothing(const trii_ir *ir, const trii_group *group)
{
    for (int32_t o = 0; o < group->n_out; o++) {
        if (trii_type_numel(&ir->values[group->out[o]].type) > 0)
            return false;
    }
    for (int32_t n = 0; n < group->n_nodes; n++) {
        if (ir->nodes[group->nodes[n]].op->may_refuse)
            return false;
    }
    return true;
}

static tri_status compile_nothing(trii_kernel **kernel_out)
{
    trii_kernel *kernel = trii_alloc(1, sizeof(*kernel), "kernel");

    if (kernel == NULL)
        return TRI_ERR_NO_MEMORY;
    *kernel = (trii_kernel){.name = "nothing", .run = run_nothing, .destroy = trii_cpu_kernel_free};
    *kernel_out = kernel;
    return TRI_OK;
}

static tri_status cpu_compile(tri_device device, const trii_ir *ir, const trii_group *group,
                              trii_kernel **kernel_out)
{
    const trii_cpu_family *family;

    trii_parallel_enter(trii_device_index_of(device));
    if (group->kind == TRII_GROUP_REORDER)
        return trii_cpu_reorder(&ir->values[group->in[0]].type, group->in_layout[0],
                                group->out_layout[0], kernel_out);
    if (TRII_UNLIKELY(makes_nothing(ir, group)))
        return compile_nothing(kernel_out);
    if (group->kind == TRII_GROUP_CHAIN)
        return trii_cpu_chain_compile(ir, group, kernel_out);
    family = family_of(ir, group);
    if (family != NULL)
        return family->compile(ir, group, kernel_out);
    if (trii_cpu_element_blocks_take(ir, group))
        return trii_cpu_element_blocks_compile(ir, group, kernel_out);
    return trii_cpu_fallback_compile(ir, group, kernel_out);
}

static tri_status cpu_begin(trii_queue *queue)
{
    trii_parallel_enter(trii_device_index_of(queue->device));
    return TRI_OK;
}

const trii_device_ops trii_device_cpu = {
    .abi = TRII_DEVICE_ABI,
    .size = sizeof(trii_device_ops),
    .name = "cpu",
    .supports = cpu_supports,
    .compile = cpu_compile,
    .chains = trii_cpu_chains,
    .absorbs = cpu_absorbs,
    .absorbs_before = trii_cpu_norm_absorbs_before,
    .sums = trii_onednn_conv_sums,
    .layouts = cpu_layouts,
    .begin = cpu_begin,
};
