/*
 * norm.c - batch normalisation over images, with what is fused into it: see norm.h. Loops are in
 * kernels_norm.h; norm_shared.c has the form with statistics of several ranks.
 *
 * A unit (a channel, or a block of them) is normalised as soon as its statistics are known, while
 * it may still be in the cache. A unit belongs to one thread, so a channel's sums never depend on
 * how many threads there are.
 */
#include "device/cpu/norm.h"

#include <assert.h>

#include "base/alloc.h"
#include "device/cpu/cpu_parallel.h"
#include "device/cpu/norm_internal.h"

static bool forward_takes(const trii_ir *ir, const trii_ir_node *node)
{
    return trii_norm_takes(ir, node, IN_X);
}

bool trii_norm_backward_takes(const trii_ir *ir, const trii_ir_node *node)
{
    return trii_norm_takes(ir, node, IN_BX);
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
        !trii_norm_backward_takes(ir, node) || !trii_norm_is(before, "relu_backward") ||
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

void trii_norm_backward_layouts(const trii_ir *ir, const trii_group *group,
                                const trii_layout *const *have, trii_layouts *want)
{
    trii_norm_follow(ir, group, ir->nodes[group->nodes[group->n_nodes - 1]].in[IN_BX], have, want);
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

/* --- backward ------------------------------------------------------------- */

enum { OUT_DX, OUT_DWEIGHT, OUT_DBIAS };

/* What the apply pass needs of the sums; also writes the parameters' gradients. */
static void finish_sums(const trii_norm_run *run, int64_t c, double sum_dy, double sum_dy_x,
                        const float *weight, float k_out[3])
{
    const trii_norm_kernel *k = run->k;
    double count = (double)(k->images.n * k->images.h * k->images.w);
    float invstd = *trii_norm_floats(run, k->in[IN_INVSTD], c);

    k_out[0] = weight != NULL ? *weight * invstd : invstd;
    k_out[1] = (float)(sum_dy / count);
    k_out[2] = (float)(sum_dy_x * (double)invstd * (double)invstd / count);
    if (k->out[OUT_DWEIGHT] >= 0)
        *trii_norm_floats(run, k->out[OUT_DWEIGHT], c) = (float)(sum_dy_x * (double)invstd);
    if (k->out[OUT_DBIAS] >= 0)
        *trii_norm_floats(run, k->out[OUT_DBIAS], c) = (float)sum_dy;
}

trii_norm_backward_args trii_norm_backward_unit(const trii_norm_run *run, int64_t u,
                                                const float *mean, const float *invstd,
                                                float *alpha, float *beta)
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
        trii_norm_line(trii_norm_floats(run, k->in[IN_BWEIGHT], u * block + l),
                       trii_norm_floats(run, k->mask, u * block + l), mean[l], invstd[l], &alpha[l],
                       &beta[l]);
    return args;
}

static void backward_range(void *ctx, int64_t begin, int64_t end)
{
    const trii_norm_run *run = ctx;
    const trii_norm_kernel *k = run->k;
    const trii_image_kernels *kernels = trii_image_kernels_of(k->kernels, &k->images);
    int64_t block = k->images.block;

    for (int64_t u = begin; u < end; u++) {
        float alpha[TRII_NORM_MAX_BLOCK] = {0}, beta[TRII_NORM_MAX_BLOCK] = {0};
        float lane[3][TRII_NORM_MAX_BLOCK];
        double sum_dy[TRII_NORM_MAX_BLOCK], sum_dy_x[TRII_NORM_MAX_BLOCK];
        const float *mean = trii_norm_floats(run, k->in[IN_MEAN], u * block);
        trii_norm_backward_args args;

        assert(mean != NULL);
        args = trii_norm_backward_unit(
            run, u, mean, trii_norm_floats(run, k->in[IN_INVSTD], u * block), alpha, beta);
        kernels->norm_backward_sums(&args, &k->images, sum_dy, sum_dy_x);
        for (int64_t l = 0; l < block; l++) {
            float of_channel[3];

            finish_sums(run, u * block + l, sum_dy[l], sum_dy_x[l],
                        trii_norm_floats(run, k->in[IN_BWEIGHT], u * block + l), of_channel);
            for (int i = 0; i < 3; i++)
                lane[i][l] = of_channel[i];
        }
        args.dx = trii_norm_unit(run, k->out[OUT_DX], u);
        if (args.dx == NULL)
            continue;
        args.k_dy = lane[0];
        args.k_mean = lane[1];
        args.k_x = lane[2];
        if (args.masked != NULL) { /* the mask is done */
            args.dy = args.masked;
            args.mask = TRII_NORM_MASK_NONE;
        }
        kernels->norm_backward(&args, &k->images);
    }
}

static tri_status backward_run(const trii_kernel *kernel, void *const *args, const trii_run *run)
{
    const trii_norm_kernel *k = (const trii_norm_kernel *)kernel;
    trii_norm_run ctx = {k, args, 0, 0};

    (void)run;
    trii_parallel_for(k->images.c / k->images.block, 1, backward_range, &ctx);
    return TRI_OK;
}

/* With the running statistics, which have no gradient: dx = dy * scale. */
static void eval_backward_range(void *ctx, int64_t begin, int64_t end)
{
    const trii_norm_run *run = ctx;
    const trii_norm_kernel *k = run->k;
    const trii_image_kernels *kernels = trii_image_kernels_of(k->kernels, &k->images);
    const float zero[TRII_NORM_MAX_BLOCK] = {0};
    double sum_dy[TRII_NORM_MAX_BLOCK] = {0}, sum_dy_x[TRII_NORM_MAX_BLOCK] = {0};
    int64_t block = k->images.block;

    for (int64_t u = begin; u < end; u++) {
        float invstd[TRII_NORM_MAX_BLOCK], scale[TRII_NORM_MAX_BLOCK];
        const float *var = trii_norm_floats(run, k->in[IN_VAR], u * block);
        const float *weight = trii_norm_floats(run, k->in[IN_BWEIGHT], u * block);
        trii_norm_backward_args sums = {.x = trii_norm_unit(run, k->in[IN_BX], u),
                                        .dy = trii_norm_unit(run, k->in[IN_G], u),
                                        .alpha = zero,
                                        .beta = zero,
                                        .mean = trii_norm_floats(run, k->in[IN_MEAN], u * block)};
        trii_norm_args dx = {.x = sums.dy,
                             .y = trii_norm_unit(run, k->out[OUT_DX], u),
                             .alpha = scale,
                             .beta = zero};

        assert(var != NULL && sums.mean != NULL);
        if (k->sums)
            kernels->norm_backward_sums(&sums, &k->images, sum_dy, sum_dy_x);
        for (int64_t l = 0; l < block; l++) {
            invstd[l] = trii_norm_invstd(var[l], run->eps);
            scale[l] = weight != NULL ? weight[l] * invstd[l] : invstd[l];
            if (k->out[OUT_DWEIGHT] >= 0)
                *trii_norm_floats(run, k->out[OUT_DWEIGHT], u * block + l) =
                    (float)(sum_dy_x[l] * (double)invstd[l]);
            if (k->out[OUT_DBIAS] >= 0)
                *trii_norm_floats(run, k->out[OUT_DBIAS], u * block + l) = (float)sum_dy[l];
        }
        if (dx.y != NULL)
            kernels->norm(&dx, &k->images);
    }
}

static tri_status eval_backward_run(const trii_kernel *kernel, void *const *args,
                                    const trii_run *run)
{
    const trii_norm_kernel *k = (const trii_norm_kernel *)kernel;
    trii_norm_run ctx = {k, args, 0, run->f[k->f + 1]};

    trii_parallel_for(k->images.c / k->images.block, 1, eval_backward_range, &ctx);
    return TRI_OK;
}

/* A group of one operation has all its outputs, even those that nobody needs. */
static bool is_needed(const trii_ir *ir, int32_t value)
{
    return ir->values[value].n_readers > 0 || ir->values[value].output >= 0;
}

trii_norm_kernel *trii_norm_backward_new(const trii_ir *ir, const trii_group *group)
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

static tri_status backward_compile(const trii_ir *ir, const trii_group *group,
                                   trii_kernel **kernel_out)
{
    const trii_ir_node *norm = &ir->nodes[group->nodes[group->n_nodes - 1]];
    trii_norm_kernel *k = trii_norm_backward_new(ir, group);
    int dx;

    if (k == NULL)
        return TRI_ERR_NO_MEMORY;
    k->base.run = trii_norm_is(norm, "batch_norm_eval_backward") ? eval_backward_run : backward_run;
    if (k->mask >= 0)
        k->base.name = k->mask_kind == TRII_NORM_MASK_X ? "relu_backward(x)+batch_norm_backward"
                                                        : "relu_backward(y)+batch_norm_backward";
    k->sums = k->out[OUT_DWEIGHT] >= 0 || k->out[OUT_DBIAS] >= 0;
    dx = k->out[OUT_DX] - group->n_in;
    if (k->out[OUT_DX] >= 0) {
        k->in_place[dx] = UINT64_C(1) << k->in[IN_BX] | UINT64_C(1) << k->in[IN_G];
        if (k->mask_kind == TRII_NORM_MASK_Y)
            k->in_place[dx] |= UINT64_C(1) << k->mask;
    }
    *kernel_out = &k->base;
    return TRI_OK;
}

const trii_cpu_family trii_cpu_batch_norm = {.op = {&trii_op_batch_norm},
                                             .takes = forward_takes,
                                             .layouts = forward_layouts,
                                             .compile = forward_compile};
const trii_cpu_family trii_cpu_batch_norm_eval = {.op = {&trii_op_batch_norm_eval},
                                                  .takes = forward_takes,
                                                  .layouts = forward_layouts,
                                                  .compile = forward_compile};
const trii_cpu_family trii_cpu_batch_norm_elemt = {.op = {&trii_op_batch_norm_elemt},
                                                   .takes = forward_takes,
                                                   .layouts = forward_layouts,
                                                   .compile = forward_compile};
const trii_cpu_family trii_cpu_batch_norm_eval_backward = {
    .op = {&trii_op_batch_norm_eval_backward},
    .takes = trii_norm_backward_takes,
    .layouts = trii_norm_backward_layouts,
    .compile = backward_compile};
const trii_cpu_family trii_cpu_batch_norm_backward = {.op = {&trii_op_batch_norm_backward},
                                                      .takes = trii_norm_backward_takes,
                                                      .layouts = trii_norm_backward_layouts,
                                                      .compile = backward_compile};
