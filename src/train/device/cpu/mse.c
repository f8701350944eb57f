/*
 * mse.c - the mean squared error, on all threads; added in the order of sum_tree.h.
 */
#include "base/alloc.h"
#include "train/device/cpu/cpu_ops.h"
#include "train/device/cpu/cpu_parallel.h"
#include "train/device/cpu/sum_tree.h"
#include "train/graph/step/type.h"

typedef struct mse {
    trii_kernel base;
    const trii_cpu_kernels *kernels;
    int64_t n, blocks;
    int a, b, y, scratch;
} mse;

typedef struct mse_run {
    const mse *m;
    const float *a, *b;
    double *partial;
} mse_run;

static void mse_range(void *ctx, int64_t begin, int64_t end)
{
    const mse_run *run = ctx;

    for (int64_t i = begin; i < end; i++) {
        int64_t at = i * TRII_SUM_BLOCK, left = run->m->n - at;

        run->partial[i] = run->m->kernels->total_squared_difference(
            run->a + at, run->b + at, left < TRII_SUM_BLOCK ? left : TRII_SUM_BLOCK);
    }
}

static tri_status mse_run_kernel(const trii_kernel *kernel, void *const *args, const trii_run *run)
{
    const mse *m = (const mse *)kernel;
    const float *a = args[m->a], *b = args[m->b];
    double total;

    (void)run;
    if (m->blocks <= 1) {
        total = m->kernels->total_squared_difference(a, b, m->n);
    } else {
        mse_run ctx = {m, a, b, args[m->scratch]};

        trii_parallel_for(m->blocks, TRII_SUM_GRAIN / TRII_SUM_BLOCK, mse_range, &ctx);
        total = trii_tree_total(ctx.partial, m->blocks);
    }
    *(float *)args[m->y] = (float)(total / (double)m->n);
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
    m->base = (trii_kernel){
        .name = node->op->name, .run = mse_run_kernel, .destroy = trii_cpu_kernel_free};
    m->kernels = trii_cpu_kernels_get();
    m->n = trii_type_numel(trii_in_type(ir, node, 0));
    m->blocks = trii_sum_blocks(m->n);
    if (m->blocks > 1)
        m->base.scratch_bytes = (size_t)m->blocks * sizeof(double);
    m->a = trii_group_in(group, node->in[0]);
    m->b = trii_group_in(group, node->in[1]);
    m->y = group->n_in;
    m->scratch = group->n_in + group->n_out;
    *kernel_out = &m->base;
    return TRI_OK;
}

const trii_cpu_family trii_cpu_mse_loss = {
    .op = {&trii_op_mse_loss}, .takes = mse_takes, .compile = mse_compile};
