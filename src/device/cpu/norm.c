/*
 * norm.c - batch normalisation over images, see norm.h.
 *
 * A unit (a channel, or a block of them) is normalised as soon as its statistics are known, while
 * it may still be in the cache. Units go to threads, so a channel's sums never depend on how many
 * there are.
 */
#include "device/cpu/norm.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "device/cpu/cpu_parallel.h"
#include "graph/type.h"

#define MAX_BLOCK 16

/* Operands of batch_norm and batch_norm_eval, outputs of the former. */
enum { IN_X, IN_WEIGHT, IN_BIAS, IN_RUNNING_MEAN, IN_RUNNING_VAR, N_FORWARD_IN };
enum { OUT_Y, OUT_MEAN, OUT_INVSTD, OUT_RUNNING_MEAN, OUT_RUNNING_VAR, N_FORWARD_OUT };
/* Of batch_norm_backward; batch_norm_eval_backward has the running mean and variance instead. */
enum { IN_G, IN_BX, IN_BWEIGHT, IN_MEAN, IN_INVSTD, N_BACKWARD_IN };
#define IN_VAR IN_INVSTD

static bool is_op(const trii_ir_node *node, const char *name)
{
    return strcmp(node->op->name, name) == 0;
}

/* Images, or rows, in f32 or bf16; parameters and statistics are f32. */
static bool takes_images(const trii_ir *ir, const trii_ir_node *node, int x)
{
    return trii_node_computes_f32(ir, node) && trii_has_in(node, x) &&
           trii_in_type(ir, node, x)->ndim <= 4 && trii_type_numel(trii_in_type(ir, node, x)) > 0;
}

static bool forward_takes(const trii_ir *ir, const trii_ir_node *node)
{
    return takes_images(ir, node, IN_X);
}

static bool backward_takes(const trii_ir *ir, const trii_ir_node *node)
{
    return takes_images(ir, node, IN_BX);
}

/* --- fusion ----------------------------------------------------------------------------------- */

bool trii_cpu_norm_absorbs(const trii_ir *ir, const trii_group *group, const trii_ir_node *node)
{
    const trii_ir_node *norm = &ir->nodes[group->nodes[0]];
    const trii_ir_node *last = &ir->nodes[group->nodes[group->n_nodes - 1]];
    bool reads = false;

    if ((!is_op(norm, "batch_norm") && !is_op(norm, "batch_norm_eval")) ||
        !forward_takes(ir, norm) || is_op(last, "relu") ||
        trii_out_type(ir, node, 0)->dtype != trii_out_type(ir, norm, OUT_Y)->dtype)
        return false;
    for (int i = 0; i < node->n_in; i++)
        reads = reads || node->in[i] == last->out[0];
    if (!reads)
        return false;
    if (is_op(node, "relu"))
        return true;
    return is_op(node, "add") && last == norm &&
           trii_type_same_shape(trii_in_type(ir, node, 0), trii_in_type(ir, node, 1));
}

/* If y is the ReLU of this normalisation and nothing else, its sign is that of x * alpha + beta:
 * the kernel needs not read y. Returns the bias, or -1. */
static int32_t sign_from_x(const trii_ir *ir, int32_t y, const trii_ir_node *backward)
{
    const trii_ir_node *relu, *norm;
    int32_t before;

    if (ir->values[y].node < 0)
        return -1;
    relu = &ir->nodes[ir->values[y].node];
    before = is_op(relu, "relu") ? ir->values[relu->in[0]].node : -1;
    if (before < 0)
        return -1;
    norm = &ir->nodes[before];
    if (!is_op(norm, "batch_norm") || norm->in[IN_X] != backward->in[IN_BX] ||
        norm->out[OUT_MEAN] != backward->in[IN_MEAN] ||
        norm->out[OUT_INVSTD] != backward->in[IN_INVSTD] || norm->group < 0 ||
        norm->group != relu->group || !trii_has_in(norm, IN_BIAS) ||
        !trii_has_in(norm, IN_WEIGHT) || norm->in[IN_WEIGHT] != backward->in[IN_BWEIGHT])
        return -1;
    return norm->in[IN_BIAS];
}

bool trii_cpu_norm_absorbs_before(trii_ir *ir, trii_ir_node *before, const trii_ir_node *node)
{
    int32_t bias;

    if (!is_op(node, "batch_norm_backward") || !backward_takes(ir, node) ||
        !is_op(before, "relu_backward") || node->in[IN_G] != before->out[0] ||
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

/* --- layouts ---------------------------------------------------------------------------------- */

/* Everything of the images' shape in the layout that x has. */
static void follow_x(const trii_ir *ir, const trii_group *group, int32_t x,
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
    follow_x(ir, group, ir->nodes[group->nodes[0]].in[IN_X], have, want);
}

static void backward_layouts(const trii_ir *ir, const trii_group *group,
                             const trii_layout *const *have, trii_layouts *want)
{
    follow_x(ir, group, ir->nodes[group->nodes[group->n_nodes - 1]].in[IN_BX], have, want);
}

/* --- forward ---------------------------------------------------------------------------------- */

typedef struct norm_kernel {
    trii_kernel base;
    const trii_cpu_kernels *kernels;
    trii_images images;
    int in[N_FORWARD_IN], residual, out[N_FORWARD_OUT]; /* arguments; -1 = none */
    int mask, masked; /* backward: where the sign comes from, where dy after the mask goes */
    trii_norm_mask mask_kind;
    int32_t f;
    bool training, relu, sums; /* sums: somebody needs the parameters' gradients */
    uint64_t in_place[8];
} norm_kernel;

typedef struct norm_run {
    const norm_kernel *k;
    void *const *args;
    double momentum, eps;
} norm_run;

static float *floats(const norm_run *run, int arg, int64_t offset)
{
    return arg >= 0 ? (float *)run->args[arg] + offset : NULL;
}

/* The unit of an operand of the images' shape and type. */
static void *unit_of(const norm_run *run, int arg, int64_t unit)
{
    const trii_images *images = &run->k->images;
    int64_t size = images->bf16 ? (int64_t)sizeof(uint16_t) : (int64_t)sizeof(float);

    return arg >= 0 ? (char *)run->args[arg] + unit * trii_images_unit(images) * size : NULL;
}

/* y = x * alpha + beta; the backward pass must find the same bits. */
static void line_of(const float *weight, const float *bias, float mean, float invstd, float *alpha,
                    float *beta)
{
    *alpha = weight != NULL ? *weight * invstd : invstd;
    *beta = (bias != NULL ? *bias : 0) - mean * *alpha;
}

static void update_running(const norm_run *run, int64_t c, float mean, float var)
{
    const norm_kernel *k = run->k;
    double count = (double)(k->images.n * k->images.h * k->images.w);
    float *new_mean = floats(run, k->out[OUT_RUNNING_MEAN], c);
    float *new_var = floats(run, k->out[OUT_RUNNING_VAR], c);

    if (new_mean != NULL)
        *new_mean = (float)((1 - run->momentum) * (double)*floats(run, k->in[IN_RUNNING_MEAN], c) +
                            run->momentum * (double)mean);
    if (new_var != NULL)
        *new_var = (float)((1 - run->momentum) * (double)*floats(run, k->in[IN_RUNNING_VAR], c) +
                           run->momentum * ((double)var * count / (count - 1)));
}

static void forward_range(void *ctx, int64_t begin, int64_t end)
{
    const norm_run *run = ctx;
    const norm_kernel *k = run->k;
    const trii_image_kernels *kernels = trii_image_kernels_of(k->kernels, &k->images);
    int64_t block = k->images.block;

    for (int64_t u = begin; u < end; u++) {
        float mean[MAX_BLOCK], var[MAX_BLOCK], alpha[MAX_BLOCK], beta[MAX_BLOCK];
        trii_norm_args args = {.x = unit_of(run, k->in[IN_X], u),
                               .residual = unit_of(run, k->residual, u),
                               .y = unit_of(run, k->out[OUT_Y], u),
                               .alpha = alpha,
                               .beta = beta,
                               .relu = k->relu};

        if (k->training)
            kernels->moments(args.x, &k->images, mean, var);
        for (int64_t l = 0; l < block; l++) {
            int64_t c = u * block + l;
            float invstd;

            if (!k->training) {
                mean[l] = *floats(run, k->in[IN_RUNNING_MEAN], c);
                var[l] = *floats(run, k->in[IN_RUNNING_VAR], c);
            }
            invstd = (float)(1 / sqrt((double)var[l] + run->eps));
            line_of(floats(run, k->in[IN_WEIGHT], c), floats(run, k->in[IN_BIAS], c), mean[l],
                    invstd, &alpha[l], &beta[l]);
            if (k->out[OUT_MEAN] >= 0)
                *floats(run, k->out[OUT_MEAN], c) = mean[l];
            if (k->out[OUT_INVSTD] >= 0)
                *floats(run, k->out[OUT_INVSTD], c) = invstd;
            if (k->training)
                update_running(run, c, mean[l], var[l]);
        }
        if (args.y != NULL)
            kernels->norm(&args, &k->images);
    }
}

static tri_status forward_run(const trii_kernel *kernel, void *const *args, const trii_run *run)
{
    const norm_kernel *k = (const norm_kernel *)kernel;
    norm_run ctx = {k, args, run->f[k->f], run->f[k->f + 1]};

    trii_parallel_for(k->images.c / k->images.block, 1, forward_range, &ctx);
    return TRI_OK;
}

static norm_kernel *new_kernel(const trii_ir *ir, const trii_group *group, const char *name,
                               int32_t x)
{
    norm_kernel *k = trii_alloc(1, sizeof(*k), "kernel");

    if (k == NULL)
        return NULL;
    k->kernels = trii_cpu_kernels_get();
    k->base = (trii_kernel){.name = name, .destroy = trii_cpu_kernel_free};
    trii_cpu_images(&ir->values[x].type, group->in_layout[trii_group_in(group, x)], &k->images);
    k->residual = k->mask = k->masked = -1;
    return k;
}

static int out_arg(const trii_group *group, int32_t value)
{
    int o = trii_group_out(group, value);

    return o >= 0 ? group->n_in + o : -1;
}

static tri_status forward_compile(const trii_ir *ir, const trii_group *group,
                                  trii_kernel **kernel_out)
{
    static const char *const names[2][2][2] = {
        {{"batch_norm_eval", "batch_norm_eval+relu"},
         {"batch_norm_eval+add", "batch_norm_eval+add+relu"}},
        {{"batch_norm", "batch_norm+relu"}, {"batch_norm+add", "batch_norm+add+relu"}}};
    const trii_ir_node *norm = &ir->nodes[group->nodes[0]];
    const trii_ir_node *last = &ir->nodes[group->nodes[group->n_nodes - 1]];
    norm_kernel *k = new_kernel(ir, group, "batch_norm", norm->in[IN_X]);

    if (k == NULL)
        return TRI_ERR_NO_MEMORY;
    k->base.run = forward_run;
    k->f = norm->first_f;
    k->training = is_op(norm, "batch_norm");
    for (int i = 0; i < N_FORWARD_IN; i++)
        k->in[i] = trii_has_in(norm, i) ? trii_group_in(group, norm->in[i]) : -1;
    for (int o = 0; o < N_FORWARD_OUT; o++)
        k->out[o] = o > 0 && o < norm->n_out ? out_arg(group, norm->out[o]) : -1;
    k->out[OUT_Y] = out_arg(group, last->out[0]);
    for (int32_t n = 1; n < group->n_nodes; n++) {
        const trii_ir_node *node = &ir->nodes[group->nodes[n]];

        if (is_op(node, "relu"))
            k->relu = true;
        else
            k->residual =
                trii_group_in(group, node->in[0] == norm->out[OUT_Y] ? node->in[1] : node->in[0]);
    }
    k->base.name = names[k->training][k->residual >= 0][k->relu];
    /* A unit is read completely before it is written, element by element. Nobody may need y: the
     * gradient of a ReLU behind it takes the sign from x. */
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

/* --- backward --------------------------------------------------------------------------------- */

enum { OUT_DX, OUT_DWEIGHT, OUT_DBIAS };

/* What the apply pass needs of the sums; writes the parameters' gradients. */
static void finish_sums(const norm_run *run, int64_t c, double sum_dy, double sum_dy_x,
                        const float *weight, float k_out[3])
{
    const norm_kernel *k = run->k;
    double count = (double)(k->images.n * k->images.h * k->images.w);
    float invstd = *floats(run, k->in[IN_INVSTD], c);

    k_out[0] = weight != NULL ? *weight * invstd : invstd;
    k_out[1] = (float)(sum_dy / count);
    k_out[2] = (float)(sum_dy_x * (double)invstd * (double)invstd / count);
    if (k->out[OUT_DWEIGHT] >= 0)
        *floats(run, k->out[OUT_DWEIGHT], c) = (float)(sum_dy_x * (double)invstd);
    if (k->out[OUT_DBIAS] >= 0)
        *floats(run, k->out[OUT_DBIAS], c) = (float)sum_dy;
}

static void backward_range(void *ctx, int64_t begin, int64_t end)
{
    const norm_run *run = ctx;
    const norm_kernel *k = run->k;
    const trii_image_kernels *kernels = trii_image_kernels_of(k->kernels, &k->images);
    int64_t block = k->images.block;

    for (int64_t u = begin; u < end; u++) {
        float alpha[MAX_BLOCK] = {0}, beta[MAX_BLOCK] = {0}, lane[3][MAX_BLOCK];
        double sum_dy[MAX_BLOCK], sum_dy_x[MAX_BLOCK];
        trii_norm_backward_args args = {
            .x = unit_of(run, k->in[IN_BX], u),
            .dy = unit_of(run, k->in[IN_G], u),
            .masked = unit_of(run, k->masked, u),
            .dx = unit_of(run, k->out[OUT_DX], u),
            .alpha = alpha,
            .beta = beta,
            .mean = floats(run, k->in[IN_MEAN], u * block),
            .k_dy = lane[0],
            .k_mean = lane[1],
            .k_x = lane[2],
            .mask = k->mask_kind,
        };

        if (k->mask_kind == TRII_NORM_MASK_Y)
            args.y = unit_of(run, k->mask, u);
        assert(args.mean != NULL);
        for (int64_t l = 0; l < block && k->mask_kind == TRII_NORM_MASK_X; l++)
            line_of(floats(run, k->in[IN_BWEIGHT], u * block + l),
                    floats(run, k->mask, u * block + l), args.mean[l],
                    *floats(run, k->in[IN_INVSTD], u * block + l), &alpha[l], &beta[l]);
        kernels->norm_backward_sums(&args, &k->images, sum_dy, sum_dy_x);
        for (int64_t l = 0; l < block; l++) {
            float of_channel[3];

            finish_sums(run, u * block + l, sum_dy[l], sum_dy_x[l],
                        floats(run, k->in[IN_BWEIGHT], u * block + l), of_channel);
            for (int i = 0; i < 3; i++)
                lane[i][l] = of_channel[i];
        }
        if (args.dx == NULL)
            continue;
        if (args.masked != NULL) { /* the mask is done */
            args.dy = args.masked;
            args.mask = TRII_NORM_MASK_NONE;
        }
        kernels->norm_backward(&args, &k->images);
    }
}

static tri_status backward_run(const trii_kernel *kernel, void *const *args, const trii_run *run)
{
    const norm_kernel *k = (const norm_kernel *)kernel;
    norm_run ctx = {k, args, 0, 0};

    (void)run;
    trii_parallel_for(k->images.c / k->images.block, 1, backward_range, &ctx);
    return TRI_OK;
}

/* By the running statistics, which no gradient goes through: dx = dy * scale. */
static void eval_backward_range(void *ctx, int64_t begin, int64_t end)
{
    const norm_run *run = ctx;
    const norm_kernel *k = run->k;
    const trii_image_kernels *kernels = trii_image_kernels_of(k->kernels, &k->images);
    const float zero[MAX_BLOCK] = {0};
    double sum_dy[MAX_BLOCK] = {0}, sum_dy_x[MAX_BLOCK] = {0};
    int64_t block = k->images.block;

    for (int64_t u = begin; u < end; u++) {
        float invstd[MAX_BLOCK], scale[MAX_BLOCK];
        const float *var = floats(run, k->in[IN_VAR], u * block);
        const float *weight = floats(run, k->in[IN_BWEIGHT], u * block);
        trii_norm_backward_args sums = {.x = unit_of(run, k->in[IN_BX], u),
                                        .dy = unit_of(run, k->in[IN_G], u),
                                        .alpha = zero,
                                        .beta = zero,
                                        .mean = floats(run, k->in[IN_MEAN], u * block)};
        trii_norm_args dx = {
            .x = sums.dy, .y = unit_of(run, k->out[OUT_DX], u), .alpha = scale, .beta = zero};

        assert(var != NULL && sums.mean != NULL);
        if (k->sums)
            kernels->norm_backward_sums(&sums, &k->images, sum_dy, sum_dy_x);
        for (int64_t l = 0; l < block; l++) {
            invstd[l] = (float)(1 / sqrt((double)var[l] + run->eps));
            scale[l] = weight != NULL ? weight[l] * invstd[l] : invstd[l];
            if (k->out[OUT_DWEIGHT] >= 0)
                *floats(run, k->out[OUT_DWEIGHT], u * block + l) =
                    (float)(sum_dy_x[l] * (double)invstd[l]);
            if (k->out[OUT_DBIAS] >= 0)
                *floats(run, k->out[OUT_DBIAS], u * block + l) = (float)sum_dy[l];
        }
        if (dx.y != NULL)
            kernels->norm(&dx, &k->images);
    }
}

static tri_status eval_backward_run(const trii_kernel *kernel, void *const *args,
                                    const trii_run *run)
{
    const norm_kernel *k = (const norm_kernel *)kernel;
    norm_run ctx = {k, args, 0, run->f[k->f + 1]};

    trii_parallel_for(k->images.c / k->images.block, 1, eval_backward_range, &ctx);
    return TRI_OK;
}

/* An operation alone has all its outputs, also those that nobody needs. */
static bool is_needed(const trii_ir *ir, int32_t value)
{
    return ir->values[value].n_readers > 0 || ir->values[value].output >= 0;
}

static tri_status backward_compile(const trii_ir *ir, const trii_group *group,
                                   trii_kernel **kernel_out)
{
    const trii_ir_node *norm = &ir->nodes[group->nodes[group->n_nodes - 1]];
    const trii_ir_node *relu = group->n_nodes > 1 ? &ir->nodes[group->nodes[0]] : NULL;
    norm_kernel *k = new_kernel(ir, group, "batch_norm_backward", norm->in[IN_BX]);
    int dx;

    if (k == NULL)
        return TRI_ERR_NO_MEMORY;
    k->base.run = backward_run;
    if (is_op(norm, "batch_norm_eval_backward")) {
        k->base.name = norm->op->name;
        k->base.run = eval_backward_run;
        k->f = norm->first_f;
    }
    for (int i = 0; i < N_BACKWARD_IN; i++)
        k->in[i] = trii_has_in(norm, i) ? trii_group_in(group, norm->in[i]) : -1;
    for (int o = 0; o < N_FORWARD_OUT; o++)
        k->out[o] =
            o < norm->n_out && is_needed(ir, norm->out[o]) ? out_arg(group, norm->out[o]) : -1;
    if (relu != NULL) {
        k->in[IN_G] = trii_group_in(group, relu->in[0]);
        k->mask = trii_group_in(group, relu->in[1]);
        k->mask_kind = trii_in_type(ir, relu, 1)->ndim == 1 ? TRII_NORM_MASK_X : TRII_NORM_MASK_Y;
        k->masked = out_arg(group, relu->out[0]);
        k->base.name = k->mask_kind == TRII_NORM_MASK_X ? "relu_backward(x)+batch_norm_backward"
                                                        : "relu_backward(y)+batch_norm_backward";
    }
    k->sums = k->out[OUT_DWEIGHT] >= 0 || k->out[OUT_DBIAS] >= 0;
    dx = k->out[OUT_DX] - group->n_in;
    if (k->out[OUT_DX] >= 0) {
        k->in_place[dx] = UINT64_C(1) << k->in[IN_BX] | UINT64_C(1) << k->in[IN_G];
        if (k->mask_kind == TRII_NORM_MASK_Y)
            k->in_place[dx] |= UINT64_C(1) << k->mask;
    }
    /* Written in the first pass: over dy only, which the second then finds masked. */
    if (k->masked >= 0)
        k->in_place[k->masked - group->n_in] = UINT64_C(1) << k->in[IN_G];
    k->base.in_place = k->in_place;
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
const trii_cpu_family trii_cpu_batch_norm_eval_backward = {
    .op = {&trii_op_batch_norm_eval_backward},
    .takes = backward_takes,
    .layouts = backward_layouts,
    .compile = backward_compile};
const trii_cpu_family trii_cpu_batch_norm_backward = {.op = {&trii_op_batch_norm_backward},
                                                      .takes = backward_takes,
                                                      .layouts = backward_layouts,
                                                      .compile = backward_compile};
