/*
 * cross_entropy.c - softmax and cross entropy in one, its gradient, and how many rows have their
 * largest element where it belongs: row by row on all threads. The losses of the rows are added as
 * sum_tree.h says.
 */
#include <math.h>
#include <stdatomic.h>

#include "base/alloc.h"
#include "device/cpu/cpu_ops.h"
#include "device/cpu/cpu_parallel.h"
#include "device/cpu/softmax_rows.h"
#include "device/cpu/sum_tree.h"
#include "graph/ops/table.h"

#define GRAIN 16384 /* elements per thread at least */

typedef struct xent {
    trii_kernel base;
    const trii_cpu_kernels *kernels;
    int64_t rows, classes;
    int g, logits, target, out, scratch; /* arguments; g -1 = forward */
    int32_t f;
} xent;

typedef struct xent_run {
    const xent *k;
    const float *logits;
    const int64_t *target;
    double smoothing;
    double *losses;     /* forward: [rows] */
    float *dx;          /* backward */
    double g;           /* of a row */
    atomic_llong count; /* of correct rows */
} xent_run;

static tri_status check_targets(const xent *k, const int64_t *target)
{
    for (int64_t r = 0; r < k->rows; r++) {
        if (target[r] < 0 || target[r] >= k->classes)
            return trii_target_check(target[r], r, k->classes); /* says so */
    }
    return TRI_OK;
}

static void forward_rows(const xent_run *run, int64_t first, int64_t rows)
{
    const xent *k = run->k;
    const float *x = run->logits + first * k->classes;
    trii_exp_sums sums;

    trii_exp_rows(k->kernels, x, rows, k->classes, NULL, &sums);
    for (int64_t r = 0; r < rows; r++, x += k->classes) {
        double lse = (double)sums.max[r] + log(sums.sum[r]);
        double loss = lse - (double)x[run->target[first + r]];

        if (run->smoothing != 0) { /* the mean of lse - x */
            double all = lse - trii_sum_row(k->kernels, x, k->classes) / (double)k->classes;

            loss = (1 - run->smoothing) * loss + run->smoothing * all;
        }
        run->losses[first + r] = loss;
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
    xent_run ctx = {.k = k,
                    .logits = args[k->logits],
                    .target = args[k->target],
                    .smoothing = run->f[k->f],
                    .losses = args[k->scratch]};
    tri_status status = check_targets(k, ctx.target);

    if (status != TRI_OK)
        return status;
    trii_parallel_for(k->rows, 1 + GRAIN / k->classes, forward_range, &ctx);
    *(float *)args[k->out] = (float)(trii_tree_total(ctx.losses, k->rows) / (double)k->rows);
    return TRI_OK;
}

/* g (softmax - smoothing / classes), and at the target - g (1 - smoothing) */
static void backward_rows(const xent_run *run, int64_t first, int64_t rows)
{
    const xent *k = run->k;
    const double other = -run->g * run->smoothing / (double)k->classes;
    float *dx = run->dx + first * k->classes;
    trii_exp_sums sums;

    trii_exp_rows(k->kernels, run->logits + first * k->classes, rows, k->classes, dx, &sums);
    for (int64_t r = 0; r < rows; r++, dx += k->classes) {
        double scale = run->g / sums.sum[r];

        k->kernels->ew[TRII_EW_MUL_SCALAR](dx, dx, NULL, NULL, (size_t)k->classes, &scale);
        if (other != 0)
            k->kernels->ew[TRII_EW_ADD_SCALAR](dx, dx, NULL, NULL, (size_t)k->classes, &other);
        dx[run->target[first + r]] -= (float)(run->g * (1 - run->smoothing));
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
    xent_run ctx = {.k = k,
                    .logits = args[k->logits],
                    .target = args[k->target],
                    .smoothing = run->f[k->f],
                    .dx = args[k->out],
                    .g = (double)*(const float *)args[k->g] / (double)k->rows};
    tri_status status = check_targets(k, ctx.target);

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

static bool takes(const trii_ir *ir, const trii_ir_node *node)
{
    const trii_type *logits = trii_in_type(ir, node, node->n_in - 2);

    return logits->dtype == TRI_DTYPE_F32 && logits->shape[0] > 0 && logits->shape[1] > 0;
}

static tri_status compile(const trii_ir *ir, const trii_group *group,
                          tri_status (*run)(const trii_kernel *kernel, void *const *args,
                                            const trii_run *run),
                          trii_kernel **kernel_out)
{
    const trii_ir_node *node = &ir->nodes[group->nodes[0]];
    const trii_type *logits = trii_in_type(ir, node, node->n_in - 2);
    xent *k = trii_alloc(1, sizeof(*k), "kernel");

    if (k == NULL)
        return TRI_ERR_NO_MEMORY;
    k->base = (trii_kernel){.name = node->op->name, .run = run, .destroy = trii_cpu_kernel_free};
    k->kernels = trii_cpu_kernels_get();
    k->rows = logits->shape[0];
    k->classes = logits->shape[1];
    k->g = node->n_in == 3 ? trii_group_in(group, node->in[0]) : -1;
    k->logits = trii_group_in(group, node->in[node->n_in - 2]);
    k->target = trii_group_in(group, node->in[node->n_in - 1]);
    k->out = group->n_in;
    k->scratch = group->n_in + group->n_out;
    k->f = node->first_f;
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

/* in logits target; gradient: in g logits target; f: smoothing */
const trii_cpu_family trii_cpu_cross_entropy = {
    .op = {&trii_op_cross_entropy}, .takes = takes, .compile = forward_compile};
const trii_cpu_family trii_cpu_cross_entropy_backward = {
    .op = {&trii_op_cross_entropy_backward}, .takes = takes, .compile = backward_compile};
/* in logits target */
const trii_cpu_family trii_cpu_count_correct = {
    .op = {&trii_op_count_correct}, .takes = takes, .compile = count_compile};
