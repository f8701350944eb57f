/*
 * pool.c - pooling of images in plain or blocked order or channels last.
 */
#include <string.h>

#include "base/alloc.h"
#include "train/device/cpu/cpu_ops.h"
#include "train/device/cpu/cpu_parallel.h"
#include "train/device/cpu/onednn/onednn.h"
#include "train/graph/step/type.h"

typedef struct pool_kernel {
    trii_kernel base;
    const trii_cpu_kernels *kernels;
    trii_images images; /* the larger side; in channels last all channels are one block */
    trii_pooling pooling;
    bool maximum, backward;
    int g, x, out; /* arguments: gradient, image; -1 = none */
    int sums;      /* scratch for gradients in bf16, a part for each share; -1 = none */
    int64_t shares, sums_floats;
} pool_kernel;

static bool starts_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static bool is_adaptive(const trii_ir_node *node)
{
    return starts_with(node->op->name, "adaptive_");
}

static bool is_maximum(const trii_ir_node *node)
{
    return strstr(node->op->name, "max_pool") != NULL;
}

static bool is_backward(const trii_ir_node *node)
{
    return strstr(node->op->name, "_backward") != NULL;
}

static const trii_type *image_type(const trii_ir *ir, const trii_ir_node *node)
{
    return is_backward(node) ? trii_out_type(ir, node, 0) : trii_in_type(ir, node, 0);
}

static const trii_type *pooled_type(const trii_ir *ir, const trii_ir_node *node)
{
    return is_backward(node) ? trii_in_type(ir, node, 0) : trii_out_type(ir, node, 0);
}

static bool pool_takes(const trii_ir *ir, const trii_ir_node *node)
{
    const trii_type *image = image_type(ir, node), *pooled = pooled_type(ir, node);

    return trii_node_computes_f32(ir, node) && image->ndim == 4 && trii_type_numel(pooled) > 0;
}

/* The layout of the image, or of the gradient that stands for it. */
static trii_images order_of(const trii_ir *ir, const trii_group *group,
                            const trii_layout *const *layouts)
{
    const trii_ir_node *node = &ir->nodes[group->nodes[0]];
    int i = trii_group_in(group, node->in[node->n_in - 1]); /* x, else g */
    const trii_type *type = &ir->values[group->in[i]].type;
    trii_images images;

    if (!trii_cpu_images(type, layouts[i], &images))
        return (trii_images){.block = 1, .step = 1, .bf16 = type->dtype == TRI_DTYPE_BF16};
    /* With one number per channel all orders are the same: takes blocks, as the image's neighbours
     * do. */
    if (layouts[i] == NULL && type->shape[2] == 1 && type->shape[3] == 1) {
        int block = trii_cpu_kernels_get()->lanes;

        if (images.bf16 && trii_onednn_has_bf16())
            images.step = images.c;
        else if (block >= 8 && trii_cpu_blocked(image_type(ir, node), block) != NULL)
            images.step = images.block = block;
    }
    return images;
}

static void pool_layouts(const trii_ir *ir, const trii_group *group, const trii_layout *const *have,
                         trii_layouts *want)
{
    trii_images order = order_of(ir, group, have);
    bool channels_last = order.step != order.block || (order.bf16 && trii_onednn_has_bf16());

    if (order.block == 1 && order.step == 1)
        return;
    for (int i = 0; i < group->n_in + group->n_out; i++) {
        int32_t value = i < group->n_in ? group->in[i] : group->out[i - group->n_in];
        const trii_type *type = &ir->values[value].type;
        const trii_layout *layout =
            channels_last ? trii_cpu_channels_last(type) : trii_cpu_blocked(type, order.block);

        if (i < group->n_in)
            want->in[i] = layout;
        else
            want->out[i - group->n_in] = layout;
    }
}

typedef struct pool_run {
    const pool_kernel *k;
    void *const *args;
} pool_run;

static int64_t pool_units(const pool_kernel *k)
{
    return k->images.n * k->images.c / k->images.block;
}

static int64_t pool_grain(const pool_kernel *k)
{
    return 1 + 16384 / (k->images.h * k->images.w * k->images.block);
}

static void pool_units_range(const pool_run *run, int64_t begin, int64_t end, float *sums)
{
    const pool_kernel *k = run->k;
    const trii_image_kernels *kernels = trii_image_kernels_of(k->kernels, &k->images);
    int64_t size = k->images.bf16 ? (int64_t)sizeof(uint16_t) : (int64_t)sizeof(float);
    int64_t image = k->images.h * k->images.w * k->images.block * size;
    int64_t pooled = k->pooling.out_h * k->pooling.out_w * k->images.block * size;
    const char *g = k->g >= 0 ? run->args[k->g] : NULL;
    const char *x = k->x >= 0 ? run->args[k->x] : NULL;
    char *out = run->args[k->out];

    for (int64_t p = begin; p < end; p++) {
        if (k->maximum && k->backward)
            kernels->max_pool_backward(x + p * image, g + p * pooled, out + p * image, &k->images,
                                       &k->pooling, sums);
        else if (k->maximum)
            kernels->max_pool(x + p * image, out + p * pooled, &k->images, &k->pooling);
        else if (k->backward)
            kernels->avg_pool_backward(g + p * pooled, out + p * image, &k->images, &k->pooling,
                                       sums);
        else
            kernels->avg_pool(x + p * image, out + p * pooled, &k->images, &k->pooling);
    }
}

static void pool_range(void *ctx, int64_t begin, int64_t end)
{
    pool_units_range(ctx, begin, end, NULL);
}

/* Parts of the units, each with memory of its own for sums. */
static void pool_shares_range(void *ctx, int64_t begin, int64_t end)
{
    const pool_run *run = ctx;
    const pool_kernel *k = run->k;
    int64_t units = pool_units(k);

    for (int64_t s = begin; s < end; s++)
        pool_units_range(run, units * s / k->shares, units * (s + 1) / k->shares,
                         (float *)run->args[k->sums] + s * k->sums_floats);
}

static tri_status pool_run_kernel(const trii_kernel *kernel, void *const *args, const trii_run *run)
{
    const pool_kernel *k = (const pool_kernel *)kernel;
    pool_run ctx = {k, args};

    (void)run;
    if (k->sums >= 0)
        trii_parallel_for(k->shares, 1, pool_shares_range, &ctx);
    else
        trii_parallel_for(pool_units(k), pool_grain(k), pool_range, &ctx);
    return TRI_OK;
}

static void read_windows(const trii_ir *ir, const trii_ir_node *node, trii_pooling *p)
{
    const trii_type *image = image_type(ir, node), *pooled = pooled_type(ir, node);
    const int64_t *i = node->iattr;

    p->out_h = pooled->shape[2];
    p->out_w = pooled->shape[3];
    if (is_adaptive(node)) {
        p->adaptive = image->shape[2] % p->out_h != 0 || image->shape[3] % p->out_w != 0;
        p->kernel_h = p->stride_h = (int)(image->shape[2] / p->out_h);
        p->kernel_w = p->stride_w = (int)(image->shape[3] / p->out_w);
        return;
    }
    p->kernel_h = (int)i[0];
    p->kernel_w = (int)i[1];
    p->stride_h = (int)i[2];
    p->stride_w = (int)i[3];
    p->pad_h = (int)i[4];
    p->pad_w = (int)i[5];
    p->exclude_padding = i[7] != 0;
}

/* Gradients in bf16 are added up in f32. */
static void reserve_sums(const trii_group *group, pool_kernel *k)
{
    int64_t most = pool_units(k) / pool_grain(k);

    k->sums = -1;
    if (!k->backward || !k->images.bf16)
        return;
    k->shares = trii_parallel_threads();
    if (k->shares > most)
        k->shares = most > 0 ? most : 1;
    k->sums = group->n_in + group->n_out;
    k->sums_floats = trii_pooling_rows(&k->images, &k->pooling) * k->images.w * k->images.block;
    k->base.scratch_bytes = (size_t)(k->shares * k->sums_floats) * sizeof(float);
}

static tri_status pool_compile(const trii_ir *ir, const trii_group *group, trii_kernel **kernel_out)
{
    const trii_ir_node *node = &ir->nodes[group->nodes[0]];
    const trii_type *image = image_type(ir, node);
    pool_kernel *k = trii_alloc(1, sizeof(*k), "kernel");

    if (k == NULL)
        return TRI_ERR_NO_MEMORY;
    k->base = (trii_kernel){
        .name = node->op->name, .run = pool_run_kernel, .destroy = trii_cpu_kernel_free};
    k->kernels = trii_cpu_kernels_get();
    k->maximum = is_maximum(node);
    k->backward = is_backward(node);
    k->images = (trii_images){.n = image->shape[0],
                              .c = image->shape[1],
                              .h = image->shape[2],
                              .w = image->shape[3],
                              .block = 1,
                              .step = 1,
                              .bf16 = image->dtype == TRI_DTYPE_BF16};
    for (int i = 0; i < group->n_in + group->n_out; i++) { /* whichever side says the block */
        trii_images images;
        const trii_layout *layout =
            i < group->n_in ? group->in_layout[i] : group->out_layout[i - group->n_in];
        int32_t value = i < group->n_in ? group->in[i] : group->out[i - group->n_in];

        if (layout != NULL && trii_cpu_images(&ir->values[value].type, layout, &images))
            k->images.block = (int)images.step;
    }
    k->images.step = k->images.block;
    read_windows(ir, node, &k->pooling);
    k->g = k->backward ? trii_group_in(group, node->in[0]) : -1;
    k->x = !k->backward || k->maximum ? trii_group_in(group, node->in[node->n_in - 1]) : -1;
    k->out = group->n_in;
    reserve_sums(group, k);
    *kernel_out = &k->base;
    return TRI_OK;
}

#define POOL_FAMILY(kind)                                                                          \
    const trii_cpu_family trii_cpu_##kind = {.op = {&trii_op_##kind},                              \
                                             .takes = pool_takes,                                  \
                                             .layouts = pool_layouts,                              \
                                             .compile = pool_compile};                             \
    const trii_cpu_family trii_cpu_##kind##_backward = {.op = {&trii_op_##kind##_backward},        \
                                                        .takes = pool_takes,                       \
                                                        .layouts = pool_layouts,                   \
                                                        .compile = pool_compile}
POOL_FAMILY(max_pool);
POOL_FAMILY(avg_pool);
POOL_FAMILY(adaptive_max_pool);
POOL_FAMILY(adaptive_avg_pool);
