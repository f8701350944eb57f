/*
 * cross_entropy.c - cross entropy with its softmax, or nll_loss, their gradients, and
 * count_correct: row by row on all threads. The losses of the rows are added in the order of
 * sum_tree.h.
 */
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include <trireme/ops.h>

#include "base/alloc.h"
#include "train/device/cpu/cpu_ops.h"
#include "train/device/cpu/cpu_parallel.h"
#include "train/device/cpu/softmax_rows.h"
#include "train/device/cpu/sum_tree.h"
#include "train/graph/ops/table.h"

#define GRAIN 16384 /* elements per thread at least */

typedef struct xent {
    trii_kernel base;
    const trii_cpu_kernels *kernels;
    int64_t rows, classes, reduction, ignored;
    bool logarithms;                             /* of log-probabilities: there is no softmax */
    int g, logits, target, weight, out, scratch; /* arguments; -1 = not there */
    int32_t f;
} xent;

typedef struct xent_run {
    const xent *k;
    const float *logits, *weight; /* weight NULL: 1 */
    const int64_t *target;
    double smoothing, divisor, all; /* all: the sum of the weights */
    double *losses;                 /* forward: [rows] */
    const float *g;                 /* backward */
    float *dx;
    atomic_llong count; /* of correct rows */
} xent_run;

static double weight_of(const xent_run *run, int64_t k)
{
    return run->weight != NULL ? (double)run->weight[k] : 1;
}

/* Checks the targets, and adds what the mean divides by. */
static tri_status take_args(const xent *k, void *const *args, const trii_run *run, xent_run *r)
{
    *r = (xent_run){.k = k,
                    .logits = args[k->logits],
                    .weight = k->weight >= 0 ? args[k->weight] : NULL,
                    .target = args[k->target],
                    .smoothing = run->f[k->f]};
    for (int64_t c = 0; c < k->classes && r->weight != NULL; c++)
        r->all += (double)r->weight[c];
    for (int64_t i = 0; i < k->rows; i++) {
        int64_t t = r->target[i];

        if (t == k->ignored)
            continue;
        if (t < 0 || t >= k->classes)
            return trii_target_check(t, i, k->classes); /* sets the error line */
        r->divisor += weight_of(r, t);
    }
    return TRI_OK;
}

static double row_loss(const xent_run *run, const float *x, int64_t target, double lse)
{
    const xent *k = run->k;
    double loss = weight_of(run, target) * (lse - (double)x[target]), all;

    if (run->smoothing == 0)
        return loss;
    if (run->weight == NULL) /* the mean of lse - x */
        all = lse - trii_sum_row(k->kernels, x, k->classes) / (double)k->classes;
    else
        all = (lse * run->all - k->kernels->total_product(run->weight, x, k->classes)) /
              (double)k->classes;
    return (1 - run->smoothing) * loss + run->smoothing * all;
}

static void forward_rows(const xent_run *run, int64_t first, int64_t rows)
{
    const xent *k = run->k;
    const float *x = run->logits + first * k->classes;
    trii_exp_sums sums;

    if (!k->logarithms)
        trii_exp_rows(k->kernels, x, rows, k->classes, NULL, &sums);
    for (int64_t r = 0; r < rows; r++, x += k->classes) {
        int64_t t = run->target[first + r];
        double lse = k->logarithms ? 0 : (double)sums.max[r] + log(sums.sum[r]);

        run->losses[first + r] = t == k->ignored ? 0 : row_loss(run, x, t, lse);
    }
}

static void forward_range(void *ctx, int64_t begin, int64_t end)
{
    for (int64_t r = begin; r < end; r += TRII_EXP_ROWS)
        forward_rows(ctx, r, end - r < TRII_EXP_ROWS ? end - r : TRII_EXP_ROWS);
}

static tri_status forward_run(const trii_kernel *kernel, void *const *args, const trii_run *run)
{
    const xent *k = (const xent *)kernel;
    float *y = args[k->out];
    xent_run ctx;
    tri_status status = take_args(k, args, run, &ctx);

    if (status != TRI_OK)
        return status;
    ctx.losses = args[k->scratch];
    trii_parallel_for(k->rows, 1 + GRAIN / k->classes, forward_range, &ctx);
    if (k->reduction == TRI_REDUCTION_NONE) {
        for (int64_t i = 0; i < k->rows; i++)
            y[i] = (float)ctx.losses[i];
    } else {
        double total = trii_tree_total(ctx.losses, k->rows);

        *y = (float)(k->reduction == TRI_REDUCTION_MEAN ? total / ctx.divisor : total);
    }
    return TRI_OK;
}

/* dx holds e^x, whose sum is `sum`: see row_gradient of train/graph/ops/class_losses.c. */
static void backward_row(const xent_run *run, int64_t target, double g, double sum, float *dx)
{
    const xent *k = run->k;
    /* 0 even where g is infinite */
    const double other = run->smoothing == 0 ? 0 : -g * run->smoothing / (double)k->classes;
    double terms = run->weight == NULL ? 1
                                       : (1 - run->smoothing) * weight_of(run, target) +
                                             run->smoothing / (double)k->classes * run->all;
    double scale = g * terms / sum;

    if (k->logarithms)
        memset(dx, 0, (size_t)k->classes * sizeof(*dx));
    else
        k->kernels->ew[TRII_EW_mul_scalar](dx, dx, NULL, NULL, (size_t)k->classes, &scale);
    if (other != 0 && run->weight == NULL)
        k->kernels->ew[TRII_EW_add_scalar](dx, dx, NULL, NULL, (size_t)k->classes, &other);
    for (int64_t i = 0; other != 0 && run->weight != NULL && i < k->classes; i++)
        dx[i] += (float)(other * (double)run->weight[i]);
    dx[target] -= (float)(g * (1 - run->smoothing) * weight_of(run, target));
}

static void backward_rows(const xent_run *run, int64_t first, int64_t rows)
{
    const xent *k = run->k;
    float *dx = run->dx + first * k->classes;
    trii_exp_sums sums;

    if (!k->logarithms)
        trii_exp_rows(k->kernels, run->logits + first * k->classes, rows, k->classes, dx, &sums);
    for (int64_t r = 0; r < rows; r++, dx += k->classes) {
        int64_t t = run->target[first + r];
        double g = (double)run->g[k->reduction == TRI_REDUCTION_NONE ? first + r : 0];

        if (t == k->ignored)
            memset(dx, 0, (size_t)k->classes * sizeof(*dx));
        else
            backward_row(run, t, trii_class_grad(g, k->reduction, run->divisor),
                         k->logarithms ? 1 : sums.sum[r], dx);
    }
}

static void backward_range(void *ctx, int64_t begin, int64_t end)
{
    for (int64_t r = begin; r < end; r += TRII_EXP_ROWS)
        backward_rows(ctx, r, end - r < TRII_EXP_ROWS ? end - r : TRII_EXP_ROWS);
}

static tri_status backward_run(const trii_kernel *kernel, void *const *args, const trii_run *run)
{
    const xent *k = (const xent *)kernel;
    xent_run ctx;
    tri_status status = take_args(k, args, run, &ctx);

    ctx.g = args[k->g];
    ctx.dx = args[k->out];
    if (status == TRI_OK)
        trii_parallel_for(k->rows, 1 + GRAIN / k->classes, backward_range, &ctx);
    return status;
}

/* Whether x[target] is the first largest element, or the first NaN. */
static bool is_largest(const xent *k, const float *x, int64_t target)
{
    float max;

    if (target < 0 || target >= k->classes)
        return false;
    max = k->kernels->max(x, (size_t)k->classes);
    if (max != max) {
        for (int64_t i = 0; i < target; i++) {
            if (x[i] != x[i])
                return false;
        }
        return x[target] != x[target];
    }
    for (int64_t i = 0; i < target && x[target] == max; i++) {
        if (x[i] == max)
            return false;
    }
    return x[target] == max;
}

static void count_range(void *ctx, int64_t begin, int64_t end)
{
    xent_run *run = ctx;
    long long count = 0;

    for (int64_t r = begin; r < end; r++)
        count += is_largest(run->k, run->logits + r * run->k->classes, run->target[r]);
    atomic_fetch_add_explicit(&run->count, count, memory_order_relaxed);
}

static tri_status count_run(const trii_kernel *kernel, void *const *args, const trii_run *run)
{
    const xent *k = (const xent *)kernel;
    xent_run ctx = {.k = k, .logits = args[k->logits], .target = args[k->target]};

    (void)run;
    trii_parallel_for(k->rows, 1 + GRAIN / k->classes, count_range, &ctx);
    *(int64_t *)args[k->out] = atomic_load(&ctx.count);
    return TRI_OK;
}

/* Which operand the logits are: after the gradient, if there is one. */
static int logits_at(const trii_ir_node *node)
{
    return node->op == &trii_op_cross_entropy_backward;
}

static bool takes(const trii_ir *ir, const trii_ir_node *node)
{
    const trii_type *logits = trii_in_type(ir, node, logits_at(node));

    return logits->dtype == TRI_DTYPE_F32 && logits->shape[0] > 0 && logits->shape[1] > 0;
}

static tri_status compile(const trii_ir *ir, const trii_group *group,
                          tri_status (*run)(const trii_kernel *kernel, void *const *args,
                                            const trii_run *run),
                          trii_kernel **kernel_out)
{
    const trii_ir_node *node = &ir->nodes[group->nodes[0]];
    int at = logits_at(node);
    const trii_type *logits = trii_in_type(ir, node, at);
    xent *k = trii_alloc(1, sizeof(*k), "kernel");

    if (k == NULL)
        return TRI_ERR_NO_MEMORY;
    k->base = (trii_kernel){.name = node->op->name, .run = run, .destroy = trii_cpu_kernel_free};
    k->kernels = trii_cpu_kernels_get();
    k->rows = logits->shape[0];
    k->classes = logits->shape[1];
    k->g = at > 0 ? trii_group_in(group, node->in[0]) : -1;
    k->logits = trii_group_in(group, node->in[at]);
    k->target = trii_group_in(group, node->in[at + 1]);
    k->weight =
        node->n_in > at + 2 && node->in[at + 2] >= 0 ? trii_group_in(group, node->in[at + 2]) : -1;
    k->out = group->n_in;
    k->scratch = group->n_in + group->n_out;
    k->f = node->first_f;
    if (node->op != &trii_op_count_correct) {
        k->reduction = node->iattr[0];
        k->ignored = node->iattr[1];
        k->logarithms = node->iattr[2] != 0;
    }
    if (run == forward_run)
        k->base.scratch_bytes = (size_t)k->rows * sizeof(double);
    *kernel_out = &k->base;
    return TRI_OK;
}

static tri_status forward_compile(const trii_ir *ir, const trii_group *group,
                                  trii_kernel **kernel_out)
{
    return compile(ir, group, forward_run, kernel_out);
}

static tri_status backward_compile(const trii_ir *ir, const trii_group *group,
                                   trii_kernel **kernel_out)
{
    return compile(ir, group, backward_run, kernel_out);
}

static tri_status count_compile(const trii_ir *ir, const trii_group *group,
                                trii_kernel **kernel_out)
{
    return compile(ir, group, count_run, kernel_out);
}

/* in logits target weight?; gradient: in g logits target weight?; i: reduction, ignored target, 1 =
 * logarithms; f: smoothing */
const trii_cpu_family trii_cpu_cross_entropy = {
    .op = {&trii_op_cross_entropy, &trii_op_nll_loss}, .takes = takes, .compile = forward_compile};
const trii_cpu_family trii_cpu_cross_entropy_backward = {
    .op = {&trii_op_cross_entropy_backward}, .takes = takes, .compile = backward_compile};
/* in logits target */
const trii_cpu_family trii_cpu_count_correct = {
    .op = {&trii_op_count_correct}, .takes = takes, .compile = count_compile};
