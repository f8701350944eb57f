/*
 * sums.c - sums, means and scalar losses in f32. Each result is added by one thread in one
 * order, whatever the number of threads.
 */
#include "base/alloc.h"
#include "device/cpu/cpu_ops.h"
#include "device/cpu/cpu_parallel.h"
#include "graph/type.h"

/* Dimensions fold into [outer, kept, inner]: sums over outer and inner, one result per kept. */
typedef struct fold {
    int64_t outer, kept, inner;
} fold;

typedef struct reduction {
    trii_kernel base;
    const trii_cpu_kernels *kernels;
    fold fold;
    double scale; /* of the sum */
    bool mean;
} reduction;

/* False where the mask alternates more often than that. */
static bool fold_of(const trii_type *in, int64_t mask, fold *f)
{
    int d = 0;

    f->outer = f->kept = f->inner = 1;
    for (; d < in->ndim && ((mask >> d & 1) != 0 || in->shape[d] == 1); d++)
        f->outer *= in->shape[d];
    for (; d < in->ndim && ((mask >> d & 1) == 0 || in->shape[d] == 1); d++)
        f->kept *= in->shape[d];
    for (; d < in->ndim && ((mask >> d & 1) != 0 || in->shape[d] == 1); d++)
        f->inner *= in->shape[d];
    return d == in->ndim;
}

static int64_t sum_to_mask(const trii_type *in, const trii_type *out)
{
    int64_t mask = 0;

    for (int d = 0; d < in->ndim; d++) {
        int e = d - (in->ndim - out->ndim);

        if (e < 0 || (out->shape[e] == 1 && in->shape[d] != 1))
            mask |= INT64_C(1) << d;
    }
    return mask;
}

static int64_t mask_of(const trii_ir *ir, const trii_ir_node *node)
{
    if (node->op->name[3] == '_') /* sum_to */
        return sum_to_mask(trii_in_type(ir, node, 0), trii_out_type(ir, node, 0));
    return node->iattr[0];
}

static bool sum_takes(const trii_ir *ir, const trii_ir_node *node)
{
    fold f;

    return trii_node_f32(ir, node) && fold_of(trii_in_type(ir, node, 0), mask_of(ir, node), &f) &&
           trii_type_numel(trii_in_type(ir, node, 0)) > 0;
}

typedef struct sum_run {
    const reduction *r;
    const float *x;
    float *y;
} sum_run;

static void sum_range(void *ctx, int64_t begin, int64_t end)
{
    const sum_run *run = ctx;
    const reduction *r = run->r;
    const fold *f = &r->fold;

    if (f->inner == 1) {
        r->kernels->sum_rows(run->x + begin, f->outer, f->kept, end - begin, run->y + begin);
        for (int64_t k = begin; r->mean && k < end; k++)
            run->y[k] = (float)((double)run->y[k] * r->scale);
        return;
    }
    for (int64_t k = begin; k < end; k++) {
        double total = 0;

        for (int64_t o = 0; o < f->outer; o++)
            total += r->kernels->sum(run->x + (o * f->kept + k) * f->inner, (size_t)f->inner);
        run->y[k] = (float)(total * r->scale);
    }
}

static tri_status sum_run_kernel(const trii_kernel *kernel, void *const *args, const trii_run *run)
{
    const reduction *r = (const reduction *)kernel;
    sum_run ctx = {r, args[0], args[1]};

    (void)run;
    trii_parallel_for(r->fold.kept, 1 + 65536 / (r->fold.outer * r->fold.inner), sum_range, &ctx);
    return TRI_OK;
}

static tri_status sum_compile(const trii_ir *ir, const trii_group *group, trii_kernel **kernel_out)
{
    const trii_ir_node *node = &ir->nodes[group->nodes[0]];
    reduction *r = trii_alloc(1, sizeof(*r), "kernel");

    if (r == NULL)
        return TRI_ERR_NO_MEMORY;
    r->base = (trii_kernel){
        .name = node->op->name, .run = sum_run_kernel, .destroy = trii_cpu_kernel_free};
    r->kernels = trii_cpu_kernels_get();
    fold_of(trii_in_type(ir, node, 0), mask_of(ir, node), &r->fold);
    r->mean = node->op->name[0] == 'm';
    r->scale = r->mean ? 1 / (double)(r->fold.outer * r->fold.inner) : 1;
    *kernel_out = &r->base;
    return TRI_OK;
}

const trii_cpu_family trii_cpu_sum = {.op = "sum", .takes = sum_takes, .compile = sum_compile};
const trii_cpu_family trii_cpu_mean = {.op = "mean", .takes = sum_takes, .compile = sum_compile};
const trii_cpu_family trii_cpu_sum_to = {
    .op = "sum_to", .takes = sum_takes, .compile = sum_compile};

/* --- mse_loss -------------------------------------------------------------------------------- */

typedef struct mse {
    trii_kernel base;
    int64_t n;
    int a, b, y;
} mse;

static tri_status mse_run(const trii_kernel *kernel, void *const *args, const trii_run *run)
{
    const mse *m = (const mse *)kernel;
    const float *a = args[m->a], *b = args[m->b];
    double s[4] = {0};
    int64_t i = 0;

    (void)run;
    for (; i + 4 <= m->n; i += 4) {
        for (int64_t l = 0; l < 4; l++) {
            double d = (double)a[i + l] - (double)b[i + l];

            s[l] += d * d;
        }
    }
    for (; i < m->n; i++) {
        double d = (double)a[i] - (double)b[i];

        s[0] += d * d;
    }
    *(float *)args[m->y] = (float)((s[0] + s[1] + s[2] + s[3]) / (double)m->n);
    return TRI_OK;
}

static bool mse_takes(const trii_ir *ir, const trii_ir_node *node)
{
    return trii_node_f32(ir, node);
}

static tri_status mse_compile(const trii_ir *ir, const trii_group *group, trii_kernel **kernel_out)
{
    const trii_ir_node *node = &ir->nodes[group->nodes[0]];
    mse *m = trii_alloc(1, sizeof(*m), "kernel");

    if (m == NULL)
        return TRI_ERR_NO_MEMORY;
    m->base =
        (trii_kernel){.name = node->op->name, .run = mse_run, .destroy = trii_cpu_kernel_free};
    m->n = trii_type_numel(trii_in_type(ir, node, 0));
    m->a = trii_group_in(group, node->in[0]);
    m->b = trii_group_in(group, node->in[1]);
    m->y = group->n_in;
    *kernel_out = &m->base;
    return TRI_OK;
}

const trii_cpu_family trii_cpu_mse_loss = {
    .op = "mse_loss", .takes = mse_takes, .compile = mse_compile};
