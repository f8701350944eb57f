/*
 * norm.c - batch normalisation over images, with what is fused into it: see norm.h. Loops are in
 * kernels_norm.h, gradients in norm_backward.c.
 *
 * A unit (a channel, or a block of them) is normalised as soon as its statistics are known, while
 * it may still be in the cache. A unit belongs to one thread, so a channel's sums never depend on
 * how many threads there are.
 */
#include "train/device/cpu/norm.h"

#include "base/alloc.h"
#include "train/device/cpu/cpu_parallel.h"
#include "train/device/cpu/norm_internal.h"

static bool forward_takes(const trii_ir *ir, const trii_ir_node *node)
{
    return trii_norm_takes(ir, node, IN_X);
}

/* --- fusion --------------------------------------------------------------- */

bool trii_cpu_norm_absorbs(const trii_ir *ir, const trii_group *group, const trii_ir_node *node)
{
    const trii_ir_node *norm = &ir->nodes[group->nodes[0]];
    const trii_ir_node *last = &ir->nodes[group->nodes[group->n_nodes - 1]];
    bool reads = false;

    if ((!trii_norm_is(norm, "batch_norm") && !trii_norm_is(norm, "batch_norm_eval") &&
         !trii_norm_is(norm, "batch_norm_elemt")) ||
        !forward_takes(ir, norm) || trii_norm_is(last, "relu") ||
        trii_out_type(ir, node, 0)->dtype != trii_out_type(ir, norm, OUT_Y)->dtype)
        return false;
    for (int i = 0; i < node->n_in; i++)
        reads = reads || node->in[i] == last->out[0];
    if (!reads)
        return false;
    if (trii_norm_is(node, "relu"))
        return true;
    return trii_norm_is(node, "add") && last == norm &&
           trii_type_same_shape(trii_in_type(ir, node, 0), trii_in_type(ir, node, 1));
}

/* --- layouts -------------------------------------------------------------- */

void trii_norm_follow(const trii_ir *ir, const trii_group *group, int32_t x,
                      const trii_layout *const *have, trii_layouts *want)
{
    const trii_layout *layout = have[trii_group_in(group, x)];
    trii_images images;

    if (!trii_cpu_images(&ir->values[x].type, layout, &images))
        layout = NULL;
    for (int i = 0; i < group->n_in; i++)
        want->in[i] = ir->values[group->in[i]].type.ndim == 4 ? layout : NULL;
    for (int o = 0; o < group->n_out; o++)
        want->out[o] = ir->values[group->out[o]].type.ndim == 4 ? layout : NULL;
}

static void forward_layouts(const trii_ir *ir, const trii_group *group,
                            const trii_layout *const *have, trii_layouts *want)
{
    trii_norm_follow(ir, group, ir->nodes[group->nodes[0]].in[IN_X], have, want);
}

/* --- forward -------------------------------------------------------------- */

static void update_running(const trii_norm_run *run, int64_t c, float mean, float var)
{
    const trii_norm_kernel *k = run->k;
    double count = (double)(k->images.n * k->images.h * k->images.w);
    float *new_mean = trii_norm_floats(run, k->out[OUT_RUNNING_MEAN], c);
    float *new_var = trii_norm_floats(run, k->out[OUT_RUNNING_VAR], c);

    if (new_mean != NULL)
        *new_mean = (float)((1 - run->momentum) *
                                (double)*trii_norm_floats(run, k->in[IN_RUNNING_MEAN], c) +
                            run->momentum * (double)mean);
    if (new_var != NULL)
        *new_var =
            (float)((1 - run->momentum) * (double)*trii_norm_floats(run, k->in[IN_RUNNING_VAR], c) +
                    run->momentum * ((double)var * count / (count - 1)));
}

static void forward_range(void *ctx, int64_t begin, int64_t end)
{
    const trii_norm_run *run = ctx;
    const trii_norm_kernel *k = run->k;
    const trii_image_kernels *kernels = trii_image_kernels_of(k->kernels, &k->images);
    int64_t block = k->images.block;

    for (int64_t u = begin; u < end; u++) {
        float mean[TRII_NORM_MAX_BLOCK], var[TRII_NORM_MAX_BLOCK], alpha[TRII_NORM_MAX_BLOCK],
            beta[TRII_NORM_MAX_BLOCK];
        trii_norm_args args = {.x = trii_norm_unit(run, k->in[IN_X], u),
                               .residual = trii_norm_unit(run, k->residual, u),
                               .y = trii_norm_unit(run, k->out[OUT_Y], u),
                               .alpha = alpha,
                               .beta = beta,
                               .relu = k->relu};

        if (k->training)
            kernels->moments(args.x, &k->images, mean, var);
        for (int64_t l = 0; l < block; l++) {
            int64_t c = u * block + l;
            float invstd;

            if (!k->training) {
                mean[l] = *trii_norm_floats(run, k->in[IN_RUNNING_MEAN], c);
                var[l] = *trii_norm_floats(run, k->in[IN_RUNNING_VAR], c);
            }
            invstd = trii_norm_invstd(var[l], run->eps);
            trii_norm_line(trii_norm_floats(run, k->in[IN_WEIGHT], c),
                           trii_norm_floats(run, k->in[IN_BIAS], c), mean[l], invstd, &alpha[l],
                           &beta[l]);
            if (k->out[OUT_MEAN] >= 0)
                *trii_norm_floats(run, k->out[OUT_MEAN], c) = mean[l];
            if (k->out[OUT_INVSTD] >= 0)
                *trii_norm_floats(run, k->out[OUT_INVSTD], c) = invstd;
            if (k->training)
                update_running(run, c, mean[l], var[l]);
        }
        if (args.y != NULL)
            kernels->norm(&args, &k->images);
    }
}

static tri_status forward_run(const trii_kernel *kernel, void *const *args, const trii_run *run)
{
    const trii_norm_kernel *k = (const trii_norm_kernel *)kernel;
    trii_norm_run ctx = {k, args, run->f[k->f], run->f[k->f + 1]};

    trii_parallel_for(k->images.c / k->images.block, 1, forward_range, &ctx);
    return TRI_OK;
}

trii_norm_kernel *trii_norm_kernel_new(const trii_ir *ir, const trii_group *group, const char *name,
                                       int32_t x)
{
    trii_norm_kernel *k = trii_alloc(1, sizeof(*k), "kernel");

    if (k == NULL)
        return NULL;
    k->kernels = trii_cpu_kernels_get();
    k->base = (trii_kernel){.name = name, .destroy = trii_cpu_kernel_free};
    trii_cpu_images(&ir->values[x].type, group->in_layout[trii_group_in(group, x)], &k->images);
    k->residual = k->mask = k->masked = -1;
    return k;
}

int trii_norm_out_arg(const trii_group *group, int32_t value)
{
    int o = trii_group_out(group, value);

    return o >= 0 ? group->n_in + o : -1;
}

static tri_status forward_compile(const trii_ir *ir, const trii_group *group,
                                  trii_kernel **kernel_out)
{
    static const char *const names[3][2][2] = {
        {{"batch_norm_eval", "batch_norm_eval+relu"},
         {"batch_norm_eval+add", "batch_norm_eval+add+relu"}},
        {{"batch_norm", "batch_norm+relu"}, {"batch_norm+add", "batch_norm+add+relu"}},
        {{"batch_norm_elemt", "batch_norm_elemt+relu"},
         {"batch_norm_elemt+add", "batch_norm_elemt+add+relu"}}};
    const trii_ir_node *norm = &ir->nodes[group->nodes[0]];
    const trii_ir_node *last = &ir->nodes[group->nodes[group->n_nodes - 1]];
    trii_norm_kernel *k = trii_norm_kernel_new(ir, group, "batch_norm", norm->in[IN_X]);

    if (k == NULL)
        return TRI_ERR_NO_MEMORY;
    k->base.run = forward_run;
    k->f = norm->first_f;
    k->training = trii_norm_is(norm, "batch_norm");
    for (int i = 0; i < N_FORWARD_IN; i++)
        k->in[i] = trii_has_in(norm, i) ? trii_group_in(group, norm->in[i]) : -1;
    for (int o = 0; o < N_FORWARD_OUT; o++)
        k->out[o] = o > 0 && o < norm->n_out ? trii_norm_out_arg(group, norm->out[o]) : -1;
    k->out[OUT_Y] = trii_norm_out_arg(group, last->out[0]);
    for (int32_t n = 1; n < group->n_nodes; n++) {
        const trii_ir_node *node = &ir->nodes[group->nodes[n]];

        if (trii_norm_is(node, "relu"))
            k->relu = true;
        else
            k->residual =
                trii_group_in(group, node->in[0] == norm->out[OUT_Y] ? node->in[1] : node->in[0]);
    }
    k->base.name =
        names[trii_norm_is(norm, "batch_norm_elemt") ? 2 : k->training][k->residual >= 0][k->relu];
    /* A unit is read completely before it is written, element by element. Nobody may need y: the
     * gradient of a ReLU after it takes the sign from x. */
    if (k->out[OUT_Y] >= 0)
        k->in_place[k->out[OUT_Y] - group->n_in] =
            UINT64_C(1) << k->in[IN_X] | (k->residual >= 0 ? UINT64_C(1) << k->residual : 0);
    for (int o = OUT_RUNNING_MEAN; o < N_FORWARD_OUT; o++) {
        if (k->out[o] >= 0 && k->in[o] >= 0)
            k->in_place[k->out[o] - group->n_in] = UINT64_C(1) << k->in[o];
    }
    k->base.in_place = k->in_place;
    *kernel_out = &k->base;
    return TRI_OK;
}

/* --- statistics alone, for other ranks ------------------------------------ */

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

const trii_cpu_family trii_cpu_batch_norm = {
    .op = {&trii_op_batch_norm, &trii_op_batch_norm_eval, &trii_op_batch_norm_elemt},
    .takes = forward_takes,
    .layouts = forward_layouts,
    .compile = forward_compile};
const trii_cpu_family trii_cpu_batch_norm_stats = {.op = {&trii_op_batch_norm_stats},
                                                   .takes = forward_takes,
                                                   .layouts = forward_layouts,
                                                   .compile = stats_compile};
