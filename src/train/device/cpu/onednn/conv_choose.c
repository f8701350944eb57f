/*
 * conv_choose.c - which algorithm computes a convolution in f32, and in which layouts.
 *
 * The library is asked for the layouts it likes best ("any"). Layouts that would be padded are
 * refused, operand by operand, in favour of plain order. Called when the plan chooses layouts and
 * again when it compiles the kernel; both times the answer must be the same, so it depends on
 * shapes alone.
 */
#include <string.h>

#include "train/device/cpu/onednn/conv.h"
#include "os/cpu.h"

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

/* Forward in blocks of 8 channels, where the library's own blocks of 16 would be padded and
 * everything would be plain instead. */
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

/* From shapes alone: a choice that took account of the layout which earlier steps gave to the
 * weights would make the bits of a step depend on them, and a resumed run begins with plain
 * weights. */
tri_status trii_conv_choose(const convolution *c, trii_conv_choice *choice_out)
{
    tri_status status = try_blocks_of_8(c, choice_out);

    if (status == TRI_ERR_UNSUPPORTED && wants_winograd(c))
        status = try_algorithm(c, dnnl_convolution_winograd, NULL, choice_out);
    if (status == TRI_ERR_UNSUPPORTED)
        status = try_algorithm(c, dnnl_convolution_direct, NULL, choice_out);
    return status;
}
