/*
 * softmax_rows.c - softmax, log_softmax and their gradients along the last dimension; along other
 * dimensions the reference kernels run.
 */
#include "train/device/cpu/softmax_rows.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "train/device/cpu/cpu_ops.h"
#include "train/device/cpu/cpu_parallel.h"
#include "train/device/cpu/sum_tree.h"
#include "train/graph/step/type.h"

#define PIECE 512    /* elements whose exponentials are kept at a time: whole rounds of the lanes */
#define SHORT_ROW 32 /* with fewer elements lanes do not pay */
#define GRAIN 16384  /* elements per thread at least */

typedef struct softmax {
    trii_kernel base;
    const trii_cpu_kernels *kernels;
    int64_t rows, n;
    bool logarithm;
    int in[2], out; /* arguments: x; or gradient and result */
} softmax;

typedef struct softmax_run {
    const softmax *k;
    void *const *args;
} softmax_run;

static double exp_row(const trii_cpu_kernels *kernels, const float *x, float max, int64_t n,
                      float *e)
{
    const double minus = -(double)max;
    double lanes[TRII_SUM_LANES] = {0};
    float piece[PIECE];

    for (int64_t at = 0; at < n; at += PIECE) {
        int64_t some = n - at < PIECE ? n - at : PIECE;
        float *to = e != NULL ? e + at : piece;

        kernels->ew[TRII_EW_add_scalar](to, x + at, NULL, NULL, (size_t)some, &minus);
        kernels->ew[TRII_EW_exp](to, to, NULL, NULL, (size_t)some, NULL);
        kernels->add_values(to, 1, 0, some, lanes);
    }
    return trii_lanes_total(lanes);
}

/* At most PIECE elements together, so that short rows fill vectors, too. */
static void exp_short_rows(const trii_cpu_kernels *kernels, const float *x, int64_t rows, int64_t n,
                           float *e, float *max, double *sum)
{
    float piece[PIECE], *to = e != NULL ? e : piece;

    for (int64_t r = 0; r < rows; r++) {
        const float *row = x + r * n;
        float best = row[0];

        for (int64_t i = 1; i < n; i++)
            best = row[i] > best || row[i] != row[i] ? row[i] : best;
        for (int64_t i = 0; i < n; i++)
            to[r * n + i] = row[i] - best;
        max[r] = best;
    }
    kernels->ew[TRII_EW_exp](to, to, NULL, NULL, (size_t)(rows * n), NULL);
    for (int64_t r = 0; r < rows; r++) {
        double total = 0;

        for (int64_t i = 0; i < n; i++)
            total += (double)to[r * n + i];
        sum[r] = total;
    }
}

void trii_exp_rows(const trii_cpu_kernels *kernels, const float *x, int64_t rows, int64_t n,
                   float *e, trii_exp_sums *sums_out)
{
    int64_t some;

    if (n > SHORT_ROW) {
        for (int64_t r = 0; r < rows; r++) {
            sums_out->max[r] = kernels->max(x + r * n, (size_t)n);
            sums_out->sum[r] =
                exp_row(kernels, x + r * n, sums_out->max[r], n, e != NULL ? e + r * n : NULL);
        }
        return;
    }
    for (int64_t r = 0; r < rows; r += some) {
        some = rows - r < PIECE / n ? rows - r : PIECE / n;
        exp_short_rows(kernels, x + r * n, some, n, e != NULL ? e + r * n : NULL, sums_out->max + r,
                       sums_out->sum + r);
    }
}

double trii_sum_row(const trii_cpu_kernels *kernels, const float *x, int64_t n)
{
    double total;

    kernels->row_totals(x, 1, 0, n, &total);
    return total;
}

static void forward_rows(const softmax *k, const float *x, int64_t rows, float *y)
{
    trii_exp_sums sums;

    trii_exp_rows(k->kernels, x, rows, k->n, k->logarithm ? NULL : y, &sums);
    for (int64_t r = 0; r < rows; r++, x += k->n, y += k->n) {
        if (k->logarithm) {
            double shift = (double)sums.max[r] + log(sums.sum[r]);

            for (int64_t i = 0; i < k->n; i++)
                y[i] = (float)((double)x[i] - shift);
        } else {
            double scale = 1 / sums.sum[r]; // NOLINT: trii_exp_rows has set it

            k->kernels->ew[TRII_EW_mul_scalar](y, y, NULL, NULL, (size_t)k->n, &scale);
        }
    }
}

/* softmax: y (g - sum g y); log_softmax: g - e^y sum g */
static void backward_row(const softmax *k, const float *g, const float *y, float *dx)
{
    float piece[PIECE], sum;

    if (!k->logarithm) {
        sum = (float)k->kernels->total_product(g, y, k->n);
        for (int64_t i = 0; i < k->n; i++)
            dx[i] = y[i] * (g[i] - sum);
        return;
    }
    sum = (float)trii_sum_row(k->kernels, g, k->n);
    for (int64_t at = 0; at < k->n; at += PIECE) {
        int64_t n = k->n - at < PIECE ? k->n - at : PIECE;

        k->kernels->ew[TRII_EW_exp](piece, y + at, NULL, NULL, (size_t)n, NULL);
        for (int64_t i = 0; i < n; i++)
            dx[at + i] = g[at + i] - piece[i] * sum;
    }
}

static void range(void *ctx, int64_t begin, int64_t end)
{
    const softmax_run *run = ctx;
    const softmax *k = run->k;

    for (int64_t r = begin, rows; r < end; r += rows) {
        const float *a = (const float *)run->args[k->in[0]] + r * k->n;
        float *out = (float *)run->args[k->out] + r * k->n;

        rows = k->in[1] >= 0 ? 1 : end - r < TRII_EXP_ROWS ? end - r : TRII_EXP_ROWS;
        if (k->in[1] >= 0)
            backward_row(k, a, (const float *)run->args[k->in[1]] + r * k->n, out);
        else
            forward_rows(k, a, rows, out);
    }
}

static tri_status softmax_run_kernel(const trii_kernel *kernel, void *const *args,
                                     const trii_run *run)
{
    const softmax *k = (const softmax *)kernel;
    softmax_run ctx = {k, args};

    (void)run;
    trii_parallel_for(k->rows, 1 + GRAIN / k->n, range, &ctx);
    return TRI_OK;
}

static bool takes(const trii_ir *ir, const trii_ir_node *node)
{
    const trii_type *type = trii_in_type(ir, node, 0);

    return trii_node_f32(ir, node) && type->ndim > 0 && node->iattr[0] == type->ndim - 1 &&
           trii_type_numel(type) > 0;
}

static tri_status compile(const trii_ir *ir, const trii_group *group, trii_kernel **kernel_out)
{
    const trii_ir_node *node = &ir->nodes[group->nodes[0]];
    const trii_type *type = trii_in_type(ir, node, 0);
    softmax *k = trii_alloc(1, sizeof(*k), "kernel");

    if (k == NULL)
        return TRI_ERR_NO_MEMORY;
    k->base = (trii_kernel){
        .name = node->op->name, .run = softmax_run_kernel, .destroy = trii_cpu_kernel_free};
    k->kernels = trii_cpu_kernels_get();
    k->n = type->shape[type->ndim - 1];
    k->rows = trii_type_numel(type) / k->n;
    k->logarithm = strncmp(node->op->name, "log_", 4) == 0;
    k->in[0] = trii_group_in(group, node->in[0]);
    k->in[1] = node->n_in > 1 ? trii_group_in(group, node->in[1]) : -1;
    k->out = group->n_in;
    *kernel_out = &k->base;
    return TRI_OK;
}

const trii_cpu_family trii_cpu_softmax = {
    .op = {&trii_op_softmax}, .takes = takes, .compile = compile};
const trii_cpu_family trii_cpu_softmax_backward = {
    .op = {&trii_op_softmax_backward}, .takes = takes, .compile = compile};
const trii_cpu_family trii_cpu_log_softmax = {
    .op = {&trii_op_log_softmax}, .takes = takes, .compile = compile};
const trii_cpu_family trii_cpu_log_softmax_backward = {
    .op = {&trii_op_log_softmax_backward}, .takes = takes, .compile = compile};
