/*
 * cross_entropy.c - softmax and cross entropy in one, and its gradient.
 */
#include <inttypes.h>
#include <math.h>

#include "base/alloc.h"
#include "base/err.h"
#include "device/cpu/cpu_ops.h"

#define PIECE 512

typedef struct xent {
    trii_kernel base;
    trii_ew_fn exp;
    float (*max)(const float *x, size_t n);
    int64_t rows, classes;
    int g, logits, target, out; /* arguments; g -1 = forward */
    int32_t f;
} xent;

/* Sum of e^(x - max); e, if not NULL, gets the terms. */
static double exp_row(const xent *k, const float *x, float max, float *e)
{
    double sum = 0;

    for (int64_t at = 0; at < k->classes; at += PIECE) {
        int64_t n = k->classes - at < PIECE ? k->classes - at : PIECE;
        float piece[PIECE], *to = e != NULL ? e + at : piece;

        for (int64_t i = 0; i < n; i++)
            to[i] = x[at + i] - max;
        k->exp(to, to, NULL, NULL, (size_t)n, NULL);
        for (int64_t i = 0; i < n; i++)
            sum += (double)to[i];
    }
    return sum;
}

static tri_status check_target(const xent *k, int64_t target, int64_t row)
{
    if (target >= 0 && target < k->classes)
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_INVALID_ARG,
                     "target %" PRId64 " of row %" PRId64 " is not in [0, %" PRId64 ")", target,
                     row, k->classes);
}

static tri_status forward_run(const trii_kernel *kernel, void *const *args, const trii_run *run)
{
    const xent *k = (const xent *)kernel;
    const int64_t *target = args[k->target];
    double smoothing = run->f[k->f], total = 0;

    for (int64_t r = 0; r < k->rows; r++) {
        const float *x = (const float *)args[k->logits] + r * k->classes;
        float max = k->max(x, (size_t)k->classes);
        double lse, sum = 0;
        tri_status status = check_target(k, target[r], r);

        if (status != TRI_OK)
            return status;
        lse = (double)max + log(exp_row(k, x, max, NULL));
        for (int64_t i = 0; i < k->classes && smoothing != 0; i++)
            sum += lse - (double)x[i];
        total +=
            (1 - smoothing) * (lse - (double)x[target[r]]) + smoothing / (double)k->classes * sum;
    }
    *(float *)args[k->out] = (float)(total / (double)k->rows);
    return TRI_OK;
}

static tri_status backward_run(const trii_kernel *kernel, void *const *args, const trii_run *run)
{
    const xent *k = (const xent *)kernel;
    const int64_t *target = args[k->target];
    double smoothing = run->f[k->f];
    double g = (double)*(const float *)args[k->g] / (double)k->rows;
    float other = (float)(smoothing / (double)k->classes);

    for (int64_t r = 0; r < k->rows; r++) {
        const float *x = (const float *)args[k->logits] + r * k->classes;
        float *dx = (float *)args[k->out] + r * k->classes;
        tri_status status = check_target(k, target[r], r);
        float scale;

        if (status != TRI_OK)
            return status;
        scale = (float)(1 / exp_row(k, x, k->max(x, (size_t)k->classes), dx));
        for (int64_t i = 0; i < k->classes; i++)
            dx[i] = (float)(g * (double)(dx[i] * scale - other));
        dx[target[r]] -= (float)(g * (1 - smoothing));
    }
    return TRI_OK;
}

static bool forward_takes(const trii_ir *ir, const trii_ir_node *node)
{
    const trii_type *logits = trii_in_type(ir, node, node->n_in - 2);

    return logits->dtype == TRI_DTYPE_F32 && logits->shape[0] > 0 && logits->shape[1] > 0;
}

static tri_status xent_compile(const trii_ir *ir, const trii_group *group, trii_kernel **kernel_out)
{
    const trii_ir_node *node = &ir->nodes[group->nodes[0]];
    const trii_type *logits = trii_in_type(ir, node, node->n_in - 2);
    xent *k = trii_alloc(1, sizeof(*k), "kernel");

    if (k == NULL)
        return TRI_ERR_NO_MEMORY;
    k->base = (trii_kernel){.name = node->op->name,
                            .run = node->n_in == 3 ? backward_run : forward_run,
                            .destroy = trii_cpu_kernel_free};
    k->exp = trii_cpu_kernels_get()->ew[TRII_EW_EXP];
    k->max = trii_cpu_kernels_get()->max;
    k->rows = logits->shape[0];
    k->classes = logits->shape[1];
    k->g = node->n_in == 3 ? trii_group_in(group, node->in[0]) : -1;
    k->logits = trii_group_in(group, node->in[node->n_in - 2]);
    k->target = trii_group_in(group, node->in[node->n_in - 1]);
    k->out = group->n_in;
    k->f = node->first_f;
    *kernel_out = &k->base;
    return TRI_OK;
}

/* in logits target; gradient: in g logits target; f: smoothing */
const trii_cpu_family trii_cpu_cross_entropy = {
    .op = "cross_entropy", .takes = forward_takes, .compile = xent_compile};
const trii_cpu_family trii_cpu_cross_entropy_backward = {
    .op = "cross_entropy_backward", .takes = forward_takes, .compile = xent_compile};
