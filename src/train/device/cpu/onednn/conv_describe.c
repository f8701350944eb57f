/*
 * conv_describe.c - a convolution in oneDNN's words: from a node of the plan to the descriptors of
 * its three sides and of the primitive that computes one of them. Every other file of convolutions
 * builds on this one.
 */
#include "train/device/cpu/onednn/conv.h"
#include "train/graph/step/type.h"

static direction direction_of(const trii_ir_node *node)
{
    if (node->op == &trii_op_conv)
        return FORWARD;
    return node->op == &trii_op_conv_backward_data ? BACKWARD_DATA : BACKWARD_WEIGHT;
}

void trii_conv_read(const trii_ir *ir, const trii_ir_node *node, convolution *c)
{
    static const int side_of_in[3][2] = {{X, W}, {Y, W}, {Y, X}};
    static const int side_of_out[3] = {Y, X, W};
    const int64_t *i = node->iattr;
    direction dir = direction_of(node);

    *c = (convolution){.dir = dir, .bias_value = -1};
    c->value[side_of_in[dir][0]] = node->in[0];
    c->value[side_of_in[dir][1]] = node->in[1];
    c->value[side_of_out[dir]] = node->out[0];
    c->bf16 = trii_in_type(ir, node, 0)->dtype == TRI_DTYPE_BF16;
    for (int s = 0; s < N_SIDES; s++) {
        const trii_type *type = &ir->values[c->value[s]].type;

        c->ndims[s] = 4;
        for (int d = 0; d < 4; d++)
            c->dims[s][d] = type->shape[d];
    }
    if (i[6] > 1) { /* groups: [groups, O / groups, C / groups, KH, KW] */
        c->ndims[W] = 5;
        for (int d = 4; d > 0; d--)
            c->dims[W][d] = c->dims[W][d - 1];
        c->dims[W][0] = i[6];
        c->dims[W][1] /= i[6];
    }
    for (int d = 0; d < 2; d++) {
        c->stride[d] = i[d];
        c->dilation[d] = i[4 + d] - 1;
        c->pad_l[d] = c->pad_r[d] = i[2 + d];
    }
    if (dir == FORWARD && trii_has_in(node, 2)) {
        c->bias = true;
        c->bias_value = node->in[2];
    }
}

static dnnl_status_t describe(const convolution *c, dnnl_alg_kind_t alg,
                              const dnnl_memory_desc_t *md, direction dir,
                              dnnl_convolution_desc_t *desc)
{
    dnnl_memory_desc_t bias;
    dnnl_dims_t bias_dims = {c->dims[Y][1]};
    dnnl_status_t status = dnnl_memory_desc_init_by_tag(&bias, 1, bias_dims, dnnl_f32, dnnl_a);

    if (status != dnnl_success)
        return status;
    switch (dir) {
    case FORWARD:
        return dnnl_dilated_convolution_forward_desc_init(
            desc, dnnl_forward_training, alg, &md[X], &md[W], c->bias ? &bias : NULL, &md[Y],
            c->stride, c->dilation, c->pad_l, c->pad_r);
    case BACKWARD_DATA:
        return dnnl_dilated_convolution_backward_data_desc_init(
            desc, alg, &md[X], &md[W], &md[Y], c->stride, c->dilation, c->pad_l, c->pad_r);
    default:
        return dnnl_dilated_convolution_backward_weights_desc_init(
            desc, alg, &md[X], &md[W], NULL, &md[Y], c->stride, c->dilation, c->pad_l, c->pad_r);
    }
}

dnnl_status_t trii_conv_pd(const convolution *c, dnnl_alg_kind_t alg,
                           const dnnl_memory_desc_t *hint_md, const dnnl_memory_desc_t *md,
                           dnnl_primitive_desc_t *pd_out)
{
    dnnl_engine_t engine = NULL;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t hint = NULL;
    dnnl_convolution_desc_t desc;
    dnnl_status_t status = dnnl_success;

    if (trii_onednn_engine(&engine) != TRI_OK || trii_onednn_attr(&attr) != TRI_OK)
        return dnnl_runtime_error;
    if (c->dir != FORWARD) {
        status = describe(c, alg, hint_md, FORWARD, &desc);
        if (status == dnnl_success)
            status = dnnl_primitive_desc_create(&hint, &desc, attr, engine, NULL);
    }
    if (status == dnnl_success)
        status = describe(c, alg, md, c->dir, &desc);
    if (status == dnnl_success)
        status = dnnl_primitive_desc_create(pd_out, &desc, attr, engine, hint);
    if (hint != NULL)
        dnnl_primitive_desc_destroy(hint);
    return status;
}

const dnnl_memory_desc_t *trii_conv_side(const convolution *c, const_dnnl_primitive_desc_t pd,
                                         int side)
{
    static const dnnl_query_t queries[3][N_SIDES] = {
        {dnnl_query_src_md, dnnl_query_weights_md, dnnl_query_dst_md},
        {dnnl_query_diff_src_md, dnnl_query_weights_md, dnnl_query_diff_dst_md},
        {dnnl_query_src_md, dnnl_query_diff_weights_md, dnnl_query_diff_dst_md}};

    return dnnl_primitive_desc_query_md(pd, queries[c->dir][side], 0);
}

int trii_conv_arg(const convolution *c, int side)
{
    static const int args[3][N_SIDES] = {{DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
                                         {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST},
                                         {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST}};

    return args[c->dir][side];
}
