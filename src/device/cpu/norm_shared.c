/*
 * norm_shared.c - batch normalisation in parts, between which ranks exchange statistics: those of a
 * batch, the sums of the backward pass, and dx by the sums of all. Normalising by given statistics
 * is norm.c's.
 */
#include <assert.h>

#include "device/cpu/cpu_parallel.h"
#include "device/cpu/norm_internal.h"

/* --- statistics ----------------------------------------------------------- */

static void stats_range(void *ctx, int64_t begin, int64_t end)
{
    const trii_norm_run *run = ctx;
    const trii_norm_kernel *k = run->k;
    const trii_image_kernels *kernels = trii_image_kernels_of(k->kernels, &k->images);
    int64_t block = k->images.block;

    for (int64_t u = begin; u < end; u++)
        kernels->moments(trii_norm_unit(run, k->in[IN_X], u), &k->images,
                         trii_norm_floats(run, k->out[0], u * block),
                         trii_norm_floats(run, k->out[0], k->images.c + u * block));
}

static tri_status stats_run(const trii_kernel *kernel, void *const *args, const trii_run *run)
{
    const trii_norm_kernel *k = (const trii_norm_kernel *)kernel;
    trii_norm_run ctx = {k, args, 0, 0};

    (void)run;
    *trii_norm_floats(&ctx, k->out[0], 2 * k->images.c) =
        (float)(k->images.n * k->images.h * k->images.w);
    trii_parallel_for(k->images.c / k->images.block, 1, stats_range, &ctx);
    return TRI_OK;
}

static bool stats_takes(const trii_ir *ir, const trii_ir_node *node)
{
    return trii_norm_takes(ir, node, IN_X);
}

static void stats_layouts(const trii_ir *ir, const trii_group *group,
                          const trii_layout *const *have, trii_layouts *want)
{
    trii_norm_follow(ir, group, ir->nodes[group->nodes[0]].in[IN_X], have, want);
}

static tri_status stats_compile(const trii_ir *ir, const trii_group *group,
                                trii_kernel **kernel_out)
{
    const trii_ir_node *node = &ir->nodes[group->nodes[0]];
    trii_norm_kernel *k = trii_norm_kernel_new(ir, group, node->op->name, node->in[IN_X]);

    if (k == NULL)
        return TRI_ERR_NO_MEMORY;
    k->base.run = stats_run;
    k->in[IN_X] = trii_group_in(group, node->in[IN_X]);
    k->out[0] = trii_norm_out_arg(group, node->out[0]);
    *kernel_out = &k->base;
    return TRI_OK;
}

/* --- sums of the backward pass -------------------------------------------- */

enum { OUT_SUMS, OUT_REDUCE_DWEIGHT, OUT_REDUCE_DBIAS };

static void put(const trii_norm_run *run, int out, int64_t at, double sum)
{
    float *to = trii_norm_floats(run, run->k->out[out], at);

    if (to != NULL)
        *to = (float)sum;
}

static void reduce_range(void *ctx, int64_t begin, int64_t end)
{
    const trii_norm_run *run = ctx;
    const trii_norm_kernel *k = run->k;
    const trii_image_kernels *kernels = trii_image_kernels_of(k->kernels, &k->images);
    int64_t block = k->images.block;

    for (int64_t u = begin; u < end; u++) {
        float alpha[TRII_NORM_MAX_BLOCK] = {0}, beta[TRII_NORM_MAX_BLOCK] = {0};
        float invstd[TRII_NORM_MAX_BLOCK];
        double sum_dy[TRII_NORM_MAX_BLOCK], sum_dy_x[TRII_NORM_MAX_BLOCK];
        const float *mean = trii_norm_floats(run, k->in[IN_MEAN], u * block);
        const float *var = trii_norm_floats(run, k->in[IN_VAR], u * block);
        trii_norm_backward_args args;

        assert(mean != NULL && var != NULL);
        for (int64_t l = 0; l < block; l++)
            invstd[l] = trii_norm_invstd(var[l], run->eps);
        args = trii_norm_backward_unit(run, u, mean, invstd, alpha, beta);
        kernels->norm_backward_sums(&args, &k->images, sum_dy, sum_dy_x);
        for (int64_t l = 0; l < block; l++) {
            int64_t c = u * block + l;
            double dot = sum_dy_x[l] * (double)invstd[l];

            put(run, OUT_SUMS, c, sum_dy[l]);
            put(run, OUT_SUMS, k->images.c + c, dot);
            put(run, OUT_REDUCE_DWEIGHT, c, dot);
            put(run, OUT_REDUCE_DBIAS, c, sum_dy[l]);
        }
    }
}

static tri_status reduce_run(const trii_kernel *kernel, void *const *args, const trii_run *run)
{
    const trii_norm_kernel *k = (const trii_norm_kernel *)kernel;
    trii_norm_run ctx = {k, args, 0, run->f[k->f]};

    trii_parallel_for(k->images.c / k->images.block, 1, reduce_range, &ctx);
    return TRI_OK;
}

static tri_status reduce_compile(const trii_ir *ir, const trii_group *group,
                                 trii_kernel **kernel_out)
{
    trii_norm_kernel *k = trii_norm_backward_new(ir, group);

    if (k == NULL)
        return TRI_ERR_NO_MEMORY;
    k->base.run = reduce_run;
    if (k->mask >= 0)
        k->base.name = k->mask_kind == TRII_NORM_MASK_X
                           ? "relu_backward(x)+batch_norm_backward_reduce"
                           : "relu_backward(y)+batch_norm_backward_reduce";
    *kernel_out = &k->base;
    return TRI_OK;
}

/* --- dx ------------------------------------------------------------------- */

static void elemt_range(void *ctx, int64_t begin, int64_t end)
{
    const trii_norm_run *run = ctx;
    const trii_norm_kernel *k = run->k;
    const trii_image_kernels *kernels = trii_image_kernels_of(k->kernels, &k->images);
    const float *sums = trii_norm_floats(run, k->in[IN_SUMS], 0);
    double count = (double)*trii_norm_floats(run, k->in[IN_COUNT], 0);
    int64_t block = k->images.block;

    for (int64_t u = begin; u < end; u++) {
        float k_dy[TRII_NORM_MAX_BLOCK], k_mean[TRII_NORM_MAX_BLOCK], k_x[TRII_NORM_MAX_BLOCK];
        const float *var = trii_norm_floats(run, k->in[IN_VAR], u * block);
        const float *weight = trii_norm_floats(run, k->in[IN_BWEIGHT], u * block);
        const float zero[TRII_NORM_MAX_BLOCK] = {0};
        const trii_norm_backward_args args = {
            .x = trii_norm_unit(run, k->in[IN_BX], u),
            .dy = trii_norm_unit(run, k->in[IN_G], u),
            .dx = trii_norm_unit(run, k->out[0], u),
            .alpha = zero,
            .beta = zero,
            .mean = trii_norm_floats(run, k->in[IN_MEAN], u * block),
            .k_dy = k_dy,
            .k_mean = k_mean,
            .k_x = k_x,
        };

        for (int64_t l = 0; l < block; l++) {
            int64_t c = u * block + l;
            float invstd = trii_norm_invstd(var[l], run->eps);

            k_dy[l] = weight != NULL ? weight[l] * invstd : invstd;
            k_mean[l] = (float)((double)sums[c] / count);
            k_x[l] = (float)((double)sums[k->images.c + c] * (double)invstd / count);
        }
        kernels->norm_backward(&args, &k->images);
    }
}

static tri_status elemt_run(const trii_kernel *kernel, void *const *args, const trii_run *run)
{
    const trii_norm_kernel *k = (const trii_norm_kernel *)kernel;
    trii_norm_run ctx = {k, args, 0, run->f[k->f]};

    trii_parallel_for(k->images.c / k->images.block, 1, elemt_range, &ctx);
    return TRI_OK;
}

static tri_status elemt_compile(const trii_ir *ir, const trii_group *group,
                                trii_kernel **kernel_out)
{
    trii_norm_kernel *k = trii_norm_backward_new(ir, group);

    if (k == NULL)
        return TRI_ERR_NO_MEMORY;
    k->base.run = elemt_run;
    k->in_place[k->out[0] - group->n_in] = UINT64_C(1) << k->in[IN_BX] | UINT64_C(1) << k->in[IN_G];
    *kernel_out = &k->base;
    return TRI_OK;
}

const trii_cpu_family trii_cpu_batch_norm_stats = {.op = {&trii_op_batch_norm_stats},
                                                   .takes = stats_takes,
                                                   .layouts = stats_layouts,
                                                   .compile = stats_compile};
const trii_cpu_family trii_cpu_batch_norm_backward_reduce = {
    .op = {&trii_op_batch_norm_backward_reduce},
    .takes = trii_norm_backward_takes,
    .layouts = trii_norm_backward_layouts,
    .compile = reduce_compile};
const trii_cpu_family trii_cpu_batch_norm_backward_elemt = {
    .op = {&trii_op_batch_norm_backward_elemt},
    .takes = trii_norm_backward_takes,
    .layouts = trii_norm_backward_layouts,
    .compile = elemt_compile};
