/*
 * cpu_ops.h - what the files of the cpu device share. Nobody outside includes it but registry/ and
 * tests: trii_device_cpu is the device.
 */
#ifndef TRII_DEVICE_CPU_H
#define TRII_DEVICE_CPU_H

#include "train/device/cpu/kernels.h"
#include "train/graph/ops/table.h"
#include "train/plan/device_ops.h"

extern const trii_device_ops trii_device_cpu;

#define TRII_FAMILY_OPS 4

/* How the device runs one kind of operation. */
typedef struct trii_cpu_family {
    const trii_graph_op *op[TRII_FAMILY_OPS]; /* the operation; NULL after the last */
    /* Required: whether the family can compute it (dtypes, sizes); else the reference kernel runs
     * it. */
    bool (*takes)(const trii_ir *ir, const trii_ir_node *node);
    /* The family reads strided layouts; for other families strided operands are copied to plain
     * ones. */
    bool strided;
    /* NULL: all plain. */
    void (*layouts)(const trii_ir *ir, const trii_group *group, const trii_layout *const *have,
                    trii_layouts *want);
    tri_status (*compile)(const trii_ir *ir, const trii_group *group, trii_kernel **kernel_out);
} trii_cpu_family;

/* The families, each in its file. */
extern const trii_cpu_family trii_cpu_linear, trii_cpu_matmul;
extern const trii_cpu_family trii_cpu_sum, trii_cpu_mean, trii_cpu_sum_to, trii_cpu_mse_loss;
extern const trii_cpu_family trii_cpu_cross_entropy, trii_cpu_cross_entropy_backward,
    trii_cpu_count_correct;
extern const trii_cpu_family trii_cpu_softmax, trii_cpu_softmax_backward, trii_cpu_log_softmax,
    trii_cpu_log_softmax_backward;
extern const trii_cpu_family trii_cpu_batch_norm, trii_cpu_batch_norm_stats,
    trii_cpu_batch_norm_backward;
extern const trii_cpu_family trii_cpu_embedding, trii_cpu_embedding_backward;
extern const trii_cpu_family trii_cpu_row_norm, trii_cpu_row_norm_backward;
extern const trii_cpu_family trii_cpu_lstm, trii_cpu_lstm_backward;
extern const trii_cpu_family trii_cpu_attention, trii_cpu_attention_backward;
extern const trii_cpu_family trii_cpu_dropout_mask;
extern const trii_cpu_family trii_cpu_flip, trii_cpu_slice_update;
extern const trii_cpu_family trii_cpu_amax, trii_cpu_amax_backward, trii_cpu_argmax;
extern const trii_cpu_family trii_cpu_topk, trii_cpu_cumsum;
extern const trii_cpu_family trii_cpu_update, trii_cpu_square_sum;
extern const trii_cpu_family trii_cpu_max_pool, trii_cpu_max_pool_backward;
extern const trii_cpu_family trii_cpu_avg_pool, trii_cpu_avg_pool_backward;
extern const trii_cpu_family trii_cpu_adaptive_avg_pool, trii_cpu_adaptive_avg_pool_backward;
extern const trii_cpu_family trii_cpu_adaptive_max_pool, trii_cpu_adaptive_max_pool_backward;

/* chain.c */
bool trii_cpu_chains(const trii_ir *ir, const trii_ir_node *node);
void trii_cpu_chain_layouts(const trii_ir *ir, const trii_group *group,
                            const trii_layout *const *have, trii_layouts *want);
tri_status trii_cpu_chain_compile(const trii_ir *ir, const trii_group *group,
                                  trii_kernel **kernel_out) TRI_MUST_CHECK;
/* products.c: whether it is a matmul of bf16 whose leading dimensions only the loops for f32
 * support: each side has some that the other lacks. */
bool trii_cpu_product_widens(const trii_ir *ir, const trii_ir_node *node);
/* products.c: absorbs of trii_device_ops. */
bool trii_cpu_product_absorbs(const trii_ir *ir, const trii_group *group, const trii_ir_node *node);
/* fallback.c: runs the operation's reference kernel, all plain. */
tri_status trii_cpu_fallback_compile(const trii_ir *ir, const trii_group *group,
                                     trii_kernel **kernel_out) TRI_MUST_CHECK;

/* element_blocks.c: the same in blocks, on all threads: element-wise operations on many
 * elements. */
bool trii_cpu_element_blocks_take(const trii_ir *ir, const trii_group *group);
tri_status trii_cpu_element_blocks_compile(const trii_ir *ir, const trii_group *group,
                                           trii_kernel **kernel_out) TRI_MUST_CHECK;

/* element_moves.c: copies elements of the type, at these strides from `start` on, to those strides
 * of the result; add (f32, f64): adds them to what is there. */
tri_status trii_cpu_move(const trii_type *type, const int64_t *from, int64_t start,
                         const int64_t *to, bool added, const char *name,
                         trii_kernel **kernel_out) TRI_MUST_CHECK;
/* reorder.c: for a group of kind TRII_GROUP_REORDER. */
tri_status trii_cpu_reorder(const trii_type *type, const trii_layout *from, const trii_layout *to,
                            trii_kernel **kernel_out) TRI_MUST_CHECK;

/* Position of the value among the group's inputs, or outputs; -1 = none. */
int trii_group_in(const trii_group *group, int32_t value);
int trii_group_out(const trii_group *group, int32_t value);
/* Whether all present operands and results of the node are f32. */
bool trii_node_f32(const trii_ir *ir, const trii_ir_node *node);
/* The same, or bf16, which our kernels compute in f32. */
bool trii_node_computes_f32(const trii_ir *ir, const trii_ir_node *node);
static inline const trii_type *trii_in_type(const trii_ir *ir, const trii_ir_node *node, int i)
{
    return &ir->values[node->in[i]].type;
}
static inline const trii_type *trii_out_type(const trii_ir *ir, const trii_ir_node *node, int o)
{
    return &ir->values[node->out[o]].type;
}
static inline bool trii_has_in(const trii_ir_node *node, int i)
{
    return i < node->n_in && node->in[i] >= 0;
}

/* Layouts of images, from onednn/; NULL if the type is not [N, C, H, W], or if the order would be
 * the plain one (C = 1, or H = W = 1). Blocked: block 8 or 16 divides the channels. */
const trii_layout *trii_cpu_blocked(const trii_type *type, int block);
/* Channels last: bf16. */
const trii_layout *trii_cpu_channels_last(const trii_type *type);
/* The same order as another layout from onednn/, for elements of this type: f32, bf16 or f16. NULL
 * when memory is out. */
const trii_layout *trii_cpu_layout_for(tri_dtype dtype, const trii_layout *layout);
/* What the layout of a value [N, C], [N, C, L] or [N, C, H, W] means to our kernels; false: they do
 * not support it. */
bool trii_cpu_images(const trii_type *type, const trii_layout *layout, trii_images *images_out);

/* destroy() of kernels that are one trii_alloc block. */
void trii_cpu_kernel_free(trii_kernel *kernel);

#endif
