/*
 * conv_pieces.c - the kernel of a convolution. Where a program uses many batch sizes, it is put
 * together from kernels for 1, 2, 4.. images (pieces.c), since compiling one for each size would
 * take longer than running it.
 */
#include <string.h>

#include "train/device/cpu/cpu_parallel.h"
#include "train/device/cpu/onednn/conv.h"
#include "train/device/cpu/variety.h"

static const char *const names[3] = {"conv", "conv_backward_data", "conv_backward_weight"};

/* A hash of everything but the batch. */
static uint64_t kind_of(const convolution *c)
{
    uint64_t kind = trii_kind_add(0, c->dir);

    kind = trii_kind_add(kind, (c->bias ? 1 : 0) + (c->bf16 ? 2 : 0));
    kind = trii_kind_add(kind, trii_parallel_threads());
    for (int s = 0; s < N_SIDES; s++) {
        for (int d = s == W ? 0 : 1; d < c->ndims[s]; d++)
            kind = trii_kind_add(kind, c->dims[s][d]);
    }
    for (int d = 0; d < 2; d++) {
        kind = trii_kind_add(trii_kind_add(kind, c->stride[d]), c->dilation[d]);
        kind = trii_kind_add(kind, c->pad_l[d]);
    }
    return kind;
}

typedef struct whole {
    const convolution *c;
    const_dnnl_primitive_desc_t pd;
    dnnl_alg_kind_t alg;
    const trii_onednn_arg *operands; /* the sides, in their order, and a bias */
    int n_operands, n_args;
} whole;

static bool is_reference(const_dnnl_primitive_desc_t pd)
{
    const char *name = "ref";

    return dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&name) !=
               dnnl_success ||
           strncmp(name, "ref", 3) == 0;
}

/* The same for n images, with the sides as they lie in the whole. */
static dnnl_status_t describe_images(const whole *w, int64_t n, dnnl_alg_kind_t alg, convolution *c,
                                     dnnl_memory_desc_t *md, dnnl_primitive_desc_t *pd_out)
{
    dnnl_memory_desc_t hint[N_SIDES];
    dnnl_status_t status;

    *c = *w->c;
    for (int s = 0; s < N_SIDES; s++) {
        md[s] = *trii_conv_side(w->c, w->pd, s);
        if (s == W)
            continue;
        if (!trii_onednn_images(&md[s], n, &md[s]))
            return dnnl_unimplemented;
        c->dims[s][0] = n;
        hint[s] = md[s];
    }
    status = dnnl_memory_desc_init_by_tag(&hint[W], c->ndims[W], c->dims[W],
                                          c->bf16 ? dnnl_bf16 : dnnl_f32, dnnl_format_tag_any);
    return status == dnnl_success ? trii_conv_pd(c, alg, hint, md, pd_out) : status;
}

static tri_status conv_by(const whole *w, int64_t n, dnnl_alg_kind_t alg, trii_kernel **kernel_out)
{
    trii_onednn_arg operands[TRII_ONEDNN_ARGS];
    dnnl_memory_desc_t md[N_SIDES];
    dnnl_primitive_desc_t pd = NULL;
    convolution c;
    tri_status status = TRI_ERR_UNSUPPORTED;

    if (describe_images(w, n, alg, &c, md, &pd) != dnnl_success)
        return TRI_ERR_UNSUPPORTED;
    if (!is_reference(pd)) {
        for (int i = 0; i < w->n_operands; i++) {
            operands[i] = w->operands[i];
            if (i < N_SIDES)
                operands[i].md = &md[i];
        }
        status =
            trii_onednn_kernel(pd, names[c.dir], operands, w->n_operands, w->n_args, kernel_out);
    }
    dnnl_primitive_desc_destroy(pd);
    return status;
}

static tri_status conv_images(const void *of, int64_t n, trii_kernel **kernel_out)
{
    const whole *w = of;
    tri_status status = TRI_ERR_UNSUPPORTED;

    if (w->alg != dnnl_convolution_direct && !trii_conv_winograd_pays(w->c, n))
        status = conv_by(w, n, dnnl_convolution_direct, kernel_out);
    return status == TRI_ERR_UNSUPPORTED ? conv_by(w, n, w->alg, kernel_out) : status;
}

static tri_status pieces(const whole *w, trii_kernel **kernel_out)
{
    const bool in_images[TRII_ONEDNN_ARGS] = {[X] = true, [Y] = true};
    trii_onednn_batch batch = {.n = w->c->dims[X][0],
                               .operands = w->operands,
                               .in_images = in_images,
                               .n_operands = w->n_operands,
                               .n_args = w->n_args,
                               .sum = -1};

    if (w->c->dir == BACKWARD_WEIGHT) {
        batch.sum = w->operands[W].index;
        batch.sum_bytes = dnnl_memory_desc_get_size(w->operands[W].md);
    }
    return trii_onednn_pieces(&batch, w, conv_images, kernel_out);
}

tri_status trii_conv_kernel(const convolution *c, const_dnnl_primitive_desc_t pd,
                            const int index[N_SIDES + 1], int n_args, trii_kernel **kernel_out)
{
    const dnnl_convolution_desc_t *desc = NULL;
    trii_onednn_arg operands[TRII_ONEDNN_ARGS];
    dnnl_memory_desc_t bias;
    whole w = {.c = c, .pd = pd, .operands = operands, .n_args = n_args};
    tri_status status = TRI_ERR_UNSUPPORTED;

    for (int s = 0; s < N_SIDES; s++)
        operands[w.n_operands++] =
            (trii_onednn_arg){trii_conv_arg(c, s), trii_conv_side(c, pd, s), index[s]};
    if (c->bias) {
        tri_status plain = trii_onednn_plain_md(dnnl_f32, &c->dims[Y][1], 1, &bias);

        if (plain != TRI_OK)
            return plain;
        operands[w.n_operands++] = (trii_onednn_arg){DNNL_ARG_BIAS, &bias, index[N_SIDES]};
    }
    if (trii_onednn_varies(kind_of(c), c->dims[X][0]) &&
        dnnl_primitive_desc_query(pd, dnnl_query_convolution_d, 0, (void *)&desc) == dnnl_success) {
        w.alg = desc->alg_kind;
        status = pieces(&w, kernel_out);
    }
    if (status == TRI_ERR_UNSUPPORTED)
        status = trii_onednn_kernel(pd, names[c->dir], operands, w.n_operands, n_args, kernel_out);
    return status;
}
