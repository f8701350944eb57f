/*
 * conv.c - convolution and its gradients.
 *
 * The library chooses the layouts of images and weights ("any"); weights keep theirs for good.
 * Layouts that would be padded are refused, operand by operand, in favour of plain order. Where
 * nothing fits, the reference kernel runs. In bf16 things are simpler, see conv_bf16.c.
 */
#include <string.h>

#include "base/alloc.h"
#include "device/cpu/onednn/conv.h"
#include "graph/type.h"
#include "os/cpu.h"

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

/* Winograd multiplies less but rounds more and moves more: it pays for 3x3 windows over enough
 * channels (measured on Sapphire Rapids by bench/steps.c). The rule depends on shapes alone: equal
 * runs must choose equally. */
static bool wants_winograd(const convolution *c)
{
    if (trii_cpu_isa() != TRII_ISA_AVX512 || c->ndims[W] != 4 || c->dims[W][2] != 3 ||
        c->dims[W][3] != 3)
        return false;
    for (int d = 0; d < 2; d++) {
        if (c->stride[d] != 1 || c->dilation[d] != 0 || c->pad_l[d] != 1 || c->pad_r[d] != 1)
            return false;
    }
    return trii_conv_winograd_pays(c, c->dims[Y][0]) && c->dims[W][0] >= 64 &&
           c->dims[W][1] >= 64 && c->dims[W][0] % 16 == 0 && c->dims[W][1] % 16 == 0;
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

/* With the weights in the order of `fixed_w` if it is not NULL. OK only if no side is padded. */
static tri_status try_algorithm(const convolution *c, dnnl_alg_kind_t alg,
                                const dnnl_memory_desc_t *fixed_w, trii_conv_choice *choice_out)
{
    bool plain[N_SIDES] = {false};

    for (int attempt = 0; attempt <= N_SIDES; attempt++) {
        dnnl_memory_desc_t md[N_SIDES];
        dnnl_primitive_desc_t pd = NULL;
        bool fits = true;

        for (int s = 0; s < N_SIDES; s++) {
            tri_status status = trii_onednn_plain_md(dnnl_f32, c->dims[s], c->ndims[s], &md[s]);

            if (status != TRI_OK)
                return status;
            if (s == W && fixed_w != NULL)
                md[s] = *fixed_w;
            else if (!plain[s] &&
                     dnnl_memory_desc_init_by_tag(&md[s], c->ndims[s], c->dims[s], dnnl_f32,
                                                  dnnl_format_tag_any) != dnnl_success)
                return TRI_ERR_UNSUPPORTED;
        }
        if (trii_conv_pd(c, alg, md, md, &pd) != dnnl_success)
            return TRII_FAIL(TRI_ERR_UNSUPPORTED, "oneDNN: no such convolution");
        for (int s = 0; s < N_SIDES; s++) {
            const dnnl_memory_desc_t *is = trii_conv_side(c, pd, s);

            if (trii_onednn_padded(is)) {
                fits = false;
                plain[s] = true;
            } else if (trii_onednn_layout(is, &choice_out->layout[s]) != TRI_OK) {
                fits = false;
            }
        }
        if (fits) {
            choice_out->pd = pd;
            return TRI_OK;
        }
        dnnl_primitive_desc_destroy(pd);
    }
    return TRII_FAIL(TRI_ERR_UNSUPPORTED, "oneDNN: no layouts without padding");
}

/* Forward in blocks of 8 channels, where the library's own blocks of 16 would be padded and all
 * would fall back to plain order. */
static tri_status try_blocks_of_8(const convolution *c, trii_conv_choice *choice_out)
{
    dnnl_memory_desc_t eights;
    const char *name = "ref";
    tri_status status;

    if (c->dir != FORWARD || c->ndims[W] != 4 || c->dims[W][0] % 16 != 8 ||
        c->dims[W][1] % 8 != 0 ||
        dnnl_memory_desc_init_by_tag(&eights, 4, c->dims[W], dnnl_f32, dnnl_ABcd8b8a) !=
            dnnl_success)
        return TRI_ERR_UNSUPPORTED;
    status = try_algorithm(c, dnnl_convolution_direct, &eights, choice_out);
    if (status != TRI_OK)
        return status;
    if (dnnl_primitive_desc_query(choice_out->pd, dnnl_query_impl_info_str, 0, &name) ==
            dnnl_success &&
        strncmp(name, "jit", 3) == 0)
        return TRI_OK;
    dnnl_primitive_desc_destroy(choice_out->pd);
    *choice_out = (trii_conv_choice){0};
    return TRI_ERR_UNSUPPORTED;
}

/* From shapes alone: a choice that heeded the layout which earlier steps gave to the weights would
 * make the bits of a step depend on them, and a run that is resumed begins with plain weights. */
tri_status trii_conv_choose(const convolution *c, trii_conv_choice *choice_out)
{
    tri_status status = try_blocks_of_8(c, choice_out);

    if (status == TRI_ERR_UNSUPPORTED && wants_winograd(c))
        status = try_algorithm(c, dnnl_convolution_winograd, NULL, choice_out);
    if (status == TRI_ERR_UNSUPPORTED)
        status = try_algorithm(c, dnnl_convolution_direct, NULL, choice_out);
    return status;
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

int trii_conv_arg(const convolution *c, int side)
{
    static const int args[3][N_SIDES] = {{DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
                                         {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST},
                                         {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST}};

    return args[c->dir][side];
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
