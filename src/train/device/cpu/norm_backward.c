/*
 * norm_backward.c - the gradients of batch normalisation over images: by the statistics of the
 * batch, by the running ones, and in two parts, between which ranks exchange sums.
 *
 * What all do: two sums of each channel, which are the gradients of weight and bias, and dx by
 * these sums, or by those of all ranks. A unit (a channel, or a block of them) belongs to one
 * thread, which does both while the unit may still be in the cache: in parts a ResNet-18 of images
 * of 224 x 224 trained 5 to 9 % slower on one rank.
 */
#include "train/device/cpu/norm.h"

#include <assert.h>

#include "train/device/cpu/cpu_parallel.h"
#include "train/device/cpu/norm_internal.h"

static bool backward_takes(const trii_ir *ir, const trii_ir_node *node)
{
    return trii_norm_takes(ir, node, IN_BX);
}

/* --- fusion --------------------------------------------------------------- */

static bool by_same_statistics(const trii_ir_node *norm, const trii_ir_node *backward)
{
    if (trii_norm_is(norm, "batch_norm"))
        return norm->out[OUT_MEAN] == backward->in[IN_MEAN] &&
               norm->out[OUT_INVSTD] == backward->in[IN_INVSTD];
    return trii_norm_is(norm, "batch_norm_elemt") &&
           norm->in[IN_RUNNING_MEAN] == backward->in[IN_MEAN] &&
           norm->in[IN_RUNNING_VAR] == backward->in[IN_VAR];
}

/* If y is the ReLU of this normalisation and of nothing else, its sign is that of x * alpha + beta:
 * the kernel need not read y. Returns the bias, or -1. */
static int32_t sign_from_x(const trii_ir *ir, int32_t y, const trii_ir_node *backward)
{
    const trii_ir_node *relu, *norm;
    int32_t before;

    if (ir->values[y].node < 0)
        return -1;
    relu = &ir->nodes[ir->values[y].node];
    before = trii_norm_is(relu, "relu") ? ir->values[relu->in[0]].node : -1;
    if (before < 0)
        return -1;
    norm = &ir->nodes[before];
    if (!by_same_statistics(norm, backward) || norm->in[IN_X] != backward->in[IN_BX] ||
        norm->group < 0 || norm->group != relu->group || !trii_has_in(norm, IN_BIAS) ||
        !trii_has_in(norm, IN_WEIGHT) || norm->in[IN_WEIGHT] != backward->in[IN_BWEIGHT])
        return -1;
    return norm->in[IN_BIAS];
}

bool trii_cpu_norm_absorbs_before(trii_ir *ir, trii_ir_node *before, const trii_ir_node *node)
{
    int32_t bias;

    if ((!trii_norm_is(node, "batch_norm_backward") &&
         !trii_norm_is(node, "batch_norm_backward_reduce")) ||
        !backward_takes(ir, node) || !trii_norm_is(before, "relu_backward") ||
        node->in[IN_G] != before->out[0] ||
        trii_out_type(ir, before, 0)->dtype != trii_in_type(ir, node, IN_BX)->dtype ||
        !trii_type_same_shape(trii_in_type(ir, before, 0), trii_in_type(ir, before, 1)) ||
        !trii_type_same_shape(trii_in_type(ir, before, 0), trii_in_type(ir, node, IN_BX)))
        return false;
    bias = sign_from_x(ir, before->in[1], node);
    if (bias >= 0) {
        ir->values[before->in[1]].n_readers--;
        ir->values[bias].n_readers++;
        before->in[1] = bias;
    }
    return true;
}

/* --- kernel --------------------------------------------------------------- */

static void layouts(const trii_ir *ir, const trii_group *group, const trii_layout *const *have,
                    trii_layouts *want)
{
    trii_norm_follow(ir, group, ir->nodes[group->nodes[group->n_nodes - 1]].in[IN_BX], have, want);
}

/* --- a unit --------------------------------------------------------------- */

/* The passes over unit u after the mask, by mean and 1 / standard deviation [block]; alpha and beta
 * are the caller's memory [block]. */
static trii_norm_backward_args unit_args(const trii_norm_run *run, int64_t u, const float *mean,
                                         const float *invstd, float *alpha, float *beta)
{
    const trii_norm_kernel *k = run->k;
    int64_t block = k->images.block;
    trii_norm_backward_args args = {
        .x = trii_norm_unit(run, k->in[IN_BX], u),
        .dy = trii_norm_unit(run, k->in[IN_G], u),
        .masked = trii_norm_unit(run, k->masked, u),
        .alpha = alpha,
        .beta = beta,
        .mean = mean,
        .mask = k->mask_kind,
    };

    if (k->mask_kind == TRII_NORM_MASK_Y)
        args.y = trii_norm_unit(run, k->mask, u);
    for (int64_t l = 0; l < block && k->mask_kind == TRII_NORM_MASK_X; l++)
        /* NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): the caller has set [block] of both */
        trii_norm_line(trii_norm_floats(run, k->in[IN_BWEIGHT], u * block + l),
                       trii_norm_floats(run, k->mask, u * block + l), mean[l], invstd[l], &alpha[l],
                       &beta[l]);
    return args;
}

static void put(const trii_norm_run *run, int arg, int64_t at, double sum)
{
    float *to = trii_norm_floats(run, arg, at);

    if (to != NULL)
        *to = (float)sum;
}

/* The sums of channel c: as one vector for the other ranks, and as gradients. */
static void put_sums(const trii_norm_run *run, int64_t c, double sum_dy, double sum_dy_x,
                     double invstd)
{
    const trii_norm_kernel *k = run->k;

    put(run, k->all_sums, c, sum_dy);
    put(run, k->all_sums, k->images.c + c, sum_dy_x * invstd);
    put(run, k->out[OUT_DWEIGHT], c, sum_dy_x * invstd);
    put(run, k->out[OUT_DBIAS], c, sum_dy);
}

/* What dx = k[0] (dy - k[1] - (x - mean) k[2]) needs: by the sums of this batch, or of all. */
static void factors(const trii_norm_run *run, int64_t c, double sum_dy, double sum_dy_x,
                    float invstd, float k_out[3])
{
    const trii_norm_kernel *k = run->k;
    const float *weight = trii_norm_floats(run, k->in[IN_BWEIGHT], c);
    double count = (double)(k->images.n * k->images.h * k->images.w);

    k_out[0] = weight != NULL ? *weight * invstd : invstd;
    if (k->by == TRII_NORM_BY_ALL) {
        const float *sums = trii_norm_floats(run, k->in[IN_SUMS], 0);

        count = (double)*trii_norm_floats(run, k->in[IN_COUNT], 0);
        k_out[1] = (float)((double)sums[c] / count);
        k_out[2] = (float)((double)sums[k->images.c + c] * (double)invstd / count);
    } else {
        k_out[1] = (float)(sum_dy / count);
        k_out[2] = (float)(sum_dy_x * (double)invstd * (double)invstd / count);
    }
}

static void write_dx(const trii_norm_run *run, trii_norm_backward_args *args, int64_t u,
                     float lane[3][TRII_NORM_MAX_BLOCK])
{
    const trii_norm_kernel *k = run->k;
    const trii_image_kernels *kernels = trii_image_kernels_of(k->kernels, &k->images);
    const float zero[TRII_NORM_MAX_BLOCK] = {0};
    const trii_norm_args scaled = {
        .x = args->dy, .y = trii_norm_unit(run, k->dx, u), .alpha = lane[0], .beta = zero};

    if (k->by == TRII_NORM_BY_RUNNING) { /* which have no gradient: dx = dy * scale */
        kernels->norm(&scaled, &k->images);
        return;
    }
    args->dx = scaled.y;
    args->k_dy = lane[0];
    args->k_mean = lane[1];
    args->k_x = lane[2];
    if (args->masked != NULL) { /* the mask is done */
        args->dy = args->masked;
        args->mask = TRII_NORM_MASK_NONE;
    }
    kernels->norm_backward(args, &k->images);
}

static void range(void *ctx, int64_t begin, int64_t end)
{
    const trii_norm_run *run = ctx;
    const trii_norm_kernel *k = run->k;
    const trii_image_kernels *kernels = trii_image_kernels_of(k->kernels, &k->images);
    int64_t block = k->images.block;

    for (int64_t u = begin; u < end; u++) {
        float alpha[TRII_NORM_MAX_BLOCK] = {0}, beta[TRII_NORM_MAX_BLOCK] = {0};
        float invstd[TRII_NORM_MAX_BLOCK], lane[3][TRII_NORM_MAX_BLOCK];
        double sum_dy[TRII_NORM_MAX_BLOCK] = {0}, sum_dy_x[TRII_NORM_MAX_BLOCK] = {0};
        const float *mean = trii_norm_floats(run, k->in[IN_MEAN], u * block);
        const float *spread = trii_norm_floats(run, k->in[IN_INVSTD], u * block);
        trii_norm_backward_args args;

        assert(mean != NULL && spread != NULL);
        for (int64_t l = 0; l < block; l++)
            invstd[l] =
                k->by == TRII_NORM_BY_BATCH ? spread[l] : trii_norm_invstd(spread[l], run->eps);
        args = unit_args(run, u, mean, invstd, alpha, beta);
        if (k->sums)
            kernels->norm_backward_sums(&args, &k->images, sum_dy, sum_dy_x);
        for (int64_t l = 0; l < block; l++) {
            float of_channel[3] = {0};

            if (k->sums)
                put_sums(run, u * block + l, sum_dy[l], sum_dy_x[l], (double)invstd[l]);
            if (k->dx >= 0)
                factors(run, u * block + l, sum_dy[l], sum_dy_x[l], invstd[l], of_channel);
            for (int i = 0; i < 3; i++)
                lane[i][l] = of_channel[i];
        }
        if (k->dx >= 0)
            write_dx(run, &args, u, lane);
    }
}

static tri_status run_kernel(const trii_kernel *kernel, void *const *args, const trii_run *run)
{
    const trii_norm_kernel *k = (const trii_norm_kernel *)kernel;
    trii_norm_run ctx = {k, args, 0, k->by == TRII_NORM_BY_BATCH ? 0 : run->f[k->f]};

    trii_parallel_for(k->images.c / k->images.block, 1, range, &ctx);
    return TRI_OK;
}

/* --- compiling ------------------------------------------------------------ */

/* A group of one operation has all its outputs, even those that nobody needs. */
static bool is_needed(const trii_ir *ir, int32_t value)
{
    return ir->values[value].n_readers > 0 || ir->values[value].output >= 0;
}

/* A kernel with operands, needed outputs and mask set. */
static trii_norm_kernel *new_kernel(const trii_ir *ir, const trii_group *group)
{
    const trii_ir_node *norm = &ir->nodes[group->nodes[group->n_nodes - 1]];
    const trii_ir_node *relu = group->n_nodes > 1 ? &ir->nodes[group->nodes[0]] : NULL;
    trii_norm_kernel *k = trii_norm_kernel_new(ir, group, norm->op->name, norm->in[IN_BX]);

    if (k == NULL)
        return NULL;
    k->f = norm->first_f;
    for (int i = 0; i < N_ELEMT_IN; i++)
        k->in[i] = trii_has_in(norm, i) ? trii_group_in(group, norm->in[i]) : -1;
    for (int o = 0; o < N_FORWARD_OUT; o++)
        k->out[o] = o < norm->n_out && is_needed(ir, norm->out[o])
                        ? trii_norm_out_arg(group, norm->out[o])
                        : -1;
    k->base.in_place = k->in_place;
    if (relu == NULL)
        return k;
    k->in[IN_G] = trii_group_in(group, relu->in[0]);
    k->mask = trii_group_in(group, relu->in[1]);
    k->mask_kind = trii_in_type(ir, relu, 1)->ndim == 1 ? TRII_NORM_MASK_X : TRII_NORM_MASK_Y;
    k->masked = trii_norm_out_arg(group, relu->out[0]);
    /* Written in the first pass: only over dy, which the second pass then finds masked. */
    if (k->masked >= 0)
        k->in_place[k->masked - group->n_in] = UINT64_C(1) << k->in[IN_G];
    return k;
}

static tri_status compile(const trii_ir *ir, const trii_group *group, trii_kernel **kernel_out)
{
    const trii_ir_node *norm = &ir->nodes[group->nodes[group->n_nodes - 1]];
    bool reduce = trii_norm_is(norm, "batch_norm_backward_reduce");
    bool eval = trii_norm_is(norm, "batch_norm_eval_backward");
    trii_norm_kernel *k = new_kernel(ir, group);

    if (k == NULL)
        return TRI_ERR_NO_MEMORY;
    k->base.run = run_kernel;
    k->by = eval                                        ? TRII_NORM_BY_RUNNING
            : trii_norm_is(norm, "batch_norm_backward") ? TRII_NORM_BY_BATCH
                                                        : TRII_NORM_BY_ALL;
    k->f += eval; /* where eps is */
    k->all_sums = reduce ? k->out[0] : -1;
    k->dx = reduce ? -1 : k->out[0];
    k->sums =
        reduce || k->by == TRII_NORM_BY_BATCH || k->out[OUT_DWEIGHT] >= 0 || k->out[OUT_DBIAS] >= 0;
    if (k->mask >= 0 && reduce)
        k->base.name = k->mask_kind == TRII_NORM_MASK_X
                           ? "relu_backward(x)+batch_norm_backward_reduce"
                           : "relu_backward(y)+batch_norm_backward_reduce";
    else if (k->mask >= 0)
        k->base.name = k->mask_kind == TRII_NORM_MASK_X ? "relu_backward(x)+batch_norm_backward"
                                                        : "relu_backward(y)+batch_norm_backward";
    if (k->dx >= 0) {
        uint64_t *in_place = &k->in_place[k->dx - group->n_in];

        *in_place = UINT64_C(1) << k->in[IN_BX] | UINT64_C(1) << k->in[IN_G];
        if (k->mask_kind == TRII_NORM_MASK_Y)
            *in_place |= UINT64_C(1) << k->mask;
    }
    *kernel_out = &k->base;
    return TRI_OK;
}

const trii_cpu_family trii_cpu_batch_norm_backward = {
    .op = {&trii_op_batch_norm_backward, &trii_op_batch_norm_eval_backward,
           &trii_op_batch_norm_backward_reduce, &trii_op_batch_norm_backward_elemt},
    .takes = backward_takes,
    .layouts = layouts,
    .compile = compile};
