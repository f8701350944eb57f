/*
 * conv.h - what the files of convolutions share; nobody else includes it. From the bottom up:
 * conv_describe.c, then conv_choose.c and conv_pieces.c, then conv_sum.c and conv_bf16.c, and
 * conv.c on top.
 */
#ifndef TRII_ONEDNN_CONV_H
#define TRII_ONEDNN_CONV_H

#include "train/device/cpu/onednn/handles.h"

typedef enum direction { FORWARD, BACKWARD_DATA, BACKWARD_WEIGHT } direction;

enum { X, W, Y, N_SIDES };

/* A convolution: shapes of the three sides, whichever of them is computed. */
typedef struct convolution {
    direction dir;
    dnnl_dims_t dims[N_SIDES];
    int ndims[N_SIDES];
    dnnl_dims_t stride, dilation, pad_l, pad_r;
    bool bias, bf16;
    int32_t value[N_SIDES], bias_value;
} convolution;

/* A primitive descriptor and the layouts of its sides. */
typedef struct trii_conv_choice {
    dnnl_primitive_desc_t pd;
    const trii_layout *layout[N_SIDES];
} trii_conv_choice;

/* conv_describe.c: the shapes of a node, which is a convolution or one of its gradients. */
void trii_conv_read(const trii_ir *ir, const trii_ir_node *node, convolution *c);
/* The primitive for sides that are described by md ("any" allowed). A gradient needs those of the
 * forward pass, too: hint_md. The caller destroys *pd_out. */
dnnl_status_t trii_conv_pd(const convolution *c, dnnl_alg_kind_t alg,
                           const dnnl_memory_desc_t *hint_md, const dnnl_memory_desc_t *md,
                           dnnl_primitive_desc_t *pd_out);
/* How the primitive wants a side, borrowed from pd; and the side's DNNL_ARG_*. */
const dnnl_memory_desc_t *trii_conv_side(const convolution *c, const_dnnl_primitive_desc_t pd,
                                         int side);
int trii_conv_arg(const convolution *c, int side);
/* conv_choose.c: the primitive and the layouts of a convolution in f32, from its shapes alone. The
 * caller destroys choice_out->pd. UNSUPPORTED: only the reference kernel can compute it. */
tri_status trii_conv_choose(const convolution *c, trii_conv_choice *choice_out) TRI_MUST_CHECK;
/* The layout that the plan has given to an operand or result of the group; NULL = plain. */
static inline const trii_layout *trii_conv_layout(const trii_group *group, int32_t value)
{
    int i = trii_group_in(group, value);

    return i >= 0 ? group->in_layout[i] : group->out_layout[trii_group_out(group, value)];
}

/* Whether the results of n images are so many pixels that Winograd's change of the weights, or of
 * their gradient, is worth it (measured on EPYC 9004 with 64 to 512 channels). */
static inline bool trii_conv_winograd_pays(const convolution *c, int64_t n)
{
    return n * c->dims[Y][2] * c->dims[Y][3] >= (c->dir == BACKWARD_WEIGHT ? 128 : 190);
}

/* conv_pieces.c: a kernel that runs pd, or pieces of its batch where a program uses too many batch
 * sizes to compile each. index: which argument of the kernel each side is, then the bias (-1 =
 * none); the scratch is argument n_args. */
tri_status trii_conv_kernel(const convolution *c, const_dnnl_primitive_desc_t pd,
                            const int index[N_SIDES + 1], int n_args,
                            trii_kernel **kernel_out) TRI_MUST_CHECK;

/* conv_sum.c: the gradients of one convolution's weights by several batches and their sum, as one
 * kernel; in f32. */
void trii_conv_sum_layouts(const trii_ir *ir, const trii_group *group, trii_layouts *want);
tri_status trii_conv_sum_compile(const trii_ir *ir, const trii_group *group,
                                 trii_kernel **kernel_out) TRI_MUST_CHECK;

/* conv_bf16.c: images in bf16. */
void trii_conv_bf16_layouts(const trii_ir *ir, const trii_group *group, const convolution *c,
                            const trii_layout *const *have, trii_layouts *want);
tri_status trii_conv_bf16_compile(const trii_ir *ir, const trii_group *group, const convolution *c,
                                  trii_kernel **kernel_out) TRI_MUST_CHECK;

#endif
