/*
 * conv_bf16.c - convolution and its gradients on images in bf16; called by conv.c.
 *
 * Images are channels last, the order that suits AMX best and needs no padding. Weights are the f32
 * master copy in whatever layout it has: the kernel rounds them into its scratch, in the order that
 * the library likes best (a few thousand numbers, against millions of pixels). Gradients of weights
 * are summed in f32 and brought into their layout the same way.
 */
#include "train/device/cpu/onednn/conv.h"

static tri_status create_pd(const convolution *c, dnnl_primitive_desc_t *pd_out)
{
    dnnl_memory_desc_t md[N_SIDES], hint[N_SIDES];
    dnnl_status_t status = dnnl_success;

    for (int s = 0; s < N_SIDES && status == dnnl_success; s++) {
        dnnl_format_tag_t tag = s == W ? dnnl_format_tag_any : dnnl_acdb;

        status = dnnl_memory_desc_init_by_tag(&hint[s], c->ndims[s], c->dims[s], dnnl_bf16, tag);
        md[s] = hint[s];
        if (s == W && c->dir == BACKWARD_WEIGHT && status == dnnl_success)
            status = dnnl_memory_desc_init_by_tag(&md[s], c->ndims[s], c->dims[s], dnnl_f32, tag);
    }
    if (status == dnnl_success)
        status = trii_conv_pd(c, dnnl_convolution_direct, hint, md, pd_out);
    return status == dnnl_success ? TRI_OK : trii_onednn_status(status, "convolution in bf16");
}

void trii_conv_bf16_layouts(const trii_ir *ir, const trii_group *group, const convolution *c,
                            const trii_layout *const *have, trii_layouts *want)
{
    dnnl_primitive_desc_t pd = NULL;

    if (create_pd(c, &pd) != TRI_OK)
        return; /* the reference kernel: all plain */
    dnnl_primitive_desc_destroy(pd);
    for (int s = 0; s < N_SIDES; s++) {
        const trii_ir_value *value = &ir->values[c->value[s]];
        int i = trii_group_in(group, c->value[s]);

        if (i >= 0)
            want->in[i] = s == W ? have[i] : trii_cpu_channels_last(&value->type);
        else
            want->out[trii_group_out(group, c->value[s])] =
                s != W         ? trii_cpu_channels_last(&value->type)
                : value->bound ? value->layout
                               : NULL;
    }
}

/* The plain descriptor of the weights, which have one more dimension if there are groups. */
static tri_status master_md(const trii_ir *ir, const trii_group *group, const convolution *c,
                            dnnl_memory_desc_t *md_out)
{
    const trii_layout *layout = trii_conv_layout(group, c->value[W]);

    if (layout != NULL)
        return trii_onednn_md(&ir->values[c->value[W]].type, layout, md_out);
    return trii_onednn_plain_md(dnnl_f32, c->dims[W], c->ndims[W], md_out);
}

static int arg_of(const trii_group *group, int32_t value)
{
    int i = trii_group_in(group, value);

    return i >= 0 ? i : group->n_in + trii_group_out(group, value);
}

static tri_status conv_kernel(const trii_group *group, const convolution *c,
                              const_dnnl_primitive_desc_t pd, trii_kernel **kernel_out)
{
    int copy = group->n_in + group->n_out, index[N_SIDES + 1];

    for (int s = 0; s < N_SIDES; s++)
        index[s] = s == W ? copy : arg_of(group, c->value[s]);
    index[N_SIDES] = c->bias ? trii_group_in(group, c->bias_value) : -1;
    return trii_conv_kernel(c, pd, index, copy + 1, kernel_out);
}

static tri_status compose(const trii_ir *ir, const trii_group *group, const convolution *c,
                          const_dnnl_primitive_desc_t pd, trii_onednn_pair *pair)
{
    const dnnl_memory_desc_t *inner = trii_conv_side(c, pd, W);
    int copy = group->n_in + group->n_out, w = arg_of(group, c->value[W]);
    dnnl_memory_desc_t master;
    tri_status status = master_md(ir, group, c, &master);

    pair->copy_bytes = dnnl_memory_desc_get_size(inner);
    pair->n_args = copy;
    if (status == TRI_OK && c->dir == BACKWARD_WEIGHT)
        status = trii_onednn_copy(inner, copy, &master, w, copy + 1, &pair->second);
    else if (status == TRI_OK)
        status = trii_onednn_copy(&master, w, inner, copy, copy + 1, &pair->first);
    if (status != TRI_OK)
        return status;
    pair->main = c->dir == BACKWARD_WEIGHT ? 0 : 1;
    return conv_kernel(group, c, pd, pair->main == 0 ? &pair->first : &pair->second);
}

tri_status trii_conv_bf16_compile(const trii_ir *ir, const trii_group *group, const convolution *c,
                                  trii_kernel **kernel_out)
{
    trii_onednn_pair pair = {0};
    dnnl_primitive_desc_t pd = NULL;
    tri_status status = create_pd(c, &pd);

    if (status == TRI_ERR_UNSUPPORTED)
        return trii_cpu_fallback_compile(ir, group, kernel_out);
    if (status != TRI_OK)
        return status;
    status = compose(ir, group, c, pd, &pair);
    dnnl_primitive_desc_destroy(pd);
    return trii_onednn_compose(&pair, status, kernel_out);
}
