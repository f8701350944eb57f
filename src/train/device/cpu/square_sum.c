/*
 * square_sum.c - the sum of the squares of many tensors, on all threads: what clipping by the norm
 * of all gradients reads. In the order of sum_tree.h within a tensor; then tensor by tensor. Or the
 * sums of their blocks, where other ranks have the rest of them.
 */
#include "base/alloc.h"
#include "train/device/cpu/cpu_ops.h"
#include "train/device/cpu/cpu_parallel.h"
#include "train/device/cpu/sum_tree.h"
#include "train/graph/step/type.h"

typedef struct part {
    int arg;
    int64_t n, first; /* elements; number of its first block among all blocks */
} part;

typedef struct square_sum {
    trii_kernel base;
    double (*total)(const float *a, const float *b, int64_t n);
    part parts[TRII_MAX_INPUTS + 1]; /* one more, after the last */
    int n_parts, before, y, scratch; /* total or blocks so far, from tensors before; -1 = none */
    int64_t n_before;                /* square_blocks: so many */
} square_sum;

typedef struct square_run {
    const square_sum *k;
    void *const *args;
    double *partial;
} square_run;

static void square_range(void *ctx, int64_t begin, int64_t end)
{
    const square_run *run = ctx;
    const part *p = run->k->parts;

    for (int64_t b = begin; b < end; b++) {
        const float *x;
        int64_t at, left;

        while (b >= p[1].first)
            p++;
        at = (b - p->first) * TRII_SUM_BLOCK;
        left = p->n - at;
        x = (const float *)run->args[p->arg] + at;
        run->partial[b] = run->k->total(x, x, left < TRII_SUM_BLOCK ? left : TRII_SUM_BLOCK);
    }
}

static tri_status square_sum_run(const trii_kernel *kernel, void *const *args, const trii_run *run)
{
    const square_sum *k = (const square_sum *)kernel;
    square_run ctx = {k, args, args[k->scratch]};
    double total = k->before >= 0 ? *(const double *)args[k->before] : 0;

    (void)run;
    trii_parallel_for(k->parts[k->n_parts].first, TRII_SUM_GRAIN / TRII_SUM_BLOCK, square_range,
                      &ctx);
    for (const part *p = k->parts; p < k->parts + k->n_parts; p++)
        total += trii_tree_total(ctx.partial + p->first, p[1].first - p->first);
    *(double *)args[k->y] = total;
    return TRI_OK;
}

static tri_status square_blocks_run(const trii_kernel *kernel, void *const *args,
                                    const trii_run *run)
{
    const square_sum *k = (const square_sum *)kernel;
    double *y = args[k->y];
    square_run ctx = {k, args, y + k->n_before};

    (void)run;
    for (int64_t b = 0; b < k->n_before; b++)
        y[b] = ((const double *)args[k->before])[b];
    trii_parallel_for(k->parts[k->n_parts].first, TRII_SUM_GRAIN / TRII_SUM_BLOCK, square_range,
                      &ctx);
    return TRI_OK;
}

static bool square_sum_takes(const trii_ir *ir, const trii_ir_node *node)
{
    for (int i = node->iattr[0] != 0; i < node->n_in; i++) {
        if (trii_in_type(ir, node, i)->dtype != TRI_DTYPE_F32)
            return false;
    }
    return true;
}

static tri_status square_sum_compile(const trii_ir *ir, const trii_group *group,
                                     trii_kernel **kernel_out)
{
    const trii_ir_node *node = &ir->nodes[group->nodes[0]];
    square_sum *k = trii_alloc(1, sizeof(*k), "kernel");
    int64_t blocks = 0;

    if (k == NULL)
        return TRI_ERR_NO_MEMORY;
    k->base =
        (trii_kernel){.name = "square_sum", .run = square_sum_run, .destroy = trii_cpu_kernel_free};
    if (node->op == &trii_op_square_blocks) {
        k->base.name = "square_blocks";
        k->base.run = square_blocks_run;
        k->n_before = node->iattr[0] != 0 ? trii_in_type(ir, node, 0)->shape[0] : 0;
    }
    k->total = trii_cpu_kernels_get()->total_product;
    k->before = node->iattr[0] != 0 ? trii_group_in(group, node->in[0]) : -1;
    for (int i = node->iattr[0] != 0; i < node->n_in; i++) {
        int64_t n = trii_type_numel(trii_in_type(ir, node, i));

        k->parts[k->n_parts++] = (part){trii_group_in(group, node->in[i]), n, blocks};
        blocks += trii_sum_blocks(n);
    }
    k->parts[k->n_parts].first = blocks;
    k->base.scratch_bytes = (size_t)(blocks > 0 ? blocks : 1) * sizeof(double);
    k->y = group->n_in;
    k->scratch = group->n_in + group->n_out;
    *kernel_out = &k->base;
    return TRI_OK;
}

/* All plain: the order of the sum must be the same on every processor. */
const trii_cpu_family trii_cpu_square_sum = {.op = {&trii_op_square_sum, &trii_op_square_blocks},
                                             .takes = square_sum_takes,
                                             .compile = square_sum_compile};
