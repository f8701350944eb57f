/*
 * dropout.c - the mask of dropout in f32, by counter: an element is the same whichever thread makes
 * it, and the same as in the reference kernel (train/graph/ops/create.c, which defines it).
 */
#include <math.h>

#include "base/alloc.h"
#include "train/device/cpu/cpu_ops.h"
#include "train/device/cpu/cpu_parallel.h"
#include "train/graph/step/type.h"

#define GRAIN 4096 /* blocks of four elements */

typedef struct mask_kernel {
    trii_kernel base;
    const trii_cpu_kernels *kernels;
    int64_t n;
    /* In blocks: the mask is runs of a larger one, of which one begins every stride. */
    int64_t run, stride, start;
    int32_t f, random;
} mask_kernel;

typedef struct mask_run {
    const mask_kernel *k;
    trii_mask_args args;
    float *y;
} mask_run;

static void mask_range(void *ctx, int64_t begin, int64_t end)
{
    const mask_run *run = ctx;
    const mask_kernel *k = run->k;

    for (int64_t b = begin; b < end;) {
        int64_t in_run = b % k->run, n = k->run - in_run < end - b ? k->run - in_run : end - b;
        int64_t first = k->start + b / k->run * k->stride + in_run;
        trii_mask_args args = run->args;
        /* where block 0 would be */
        float *y = (float *)((uintptr_t)run->y + (uintptr_t)(4 * (b - first)) * sizeof(float));

        args.n += 4 * (first - b);
        k->kernels->random_mask(y, &args, first, first + n);
        b += n;
    }
}

static tri_status mask_run_kernel(const trii_kernel *kernel, void *const *args, const trii_run *run)
{
    const mask_kernel *k = (const mask_kernel *)kernel;
    const trii_random *r = &run->random[k->random];
    double p = run->f[k->f], limit = ceil(p * 4294967296.0); /* word < p 2^32, in integers */
    mask_run ctx = {.k = k, .y = args[0]};

    ctx.args = (trii_mask_args){
        .n = k->n,
        .key = r->seed,
        .counter = {0, r->index, (uint32_t)r->step, r->stream | (uint32_t)(r->step >> 32) << 16},
        .limit = limit < 4294967296.0 ? (uint32_t)limit : 0,
        .keep = limit < 4294967296.0 ? (float)(1 / (1 - p)) : 0};
    trii_parallel_for((k->n + 3) / 4, GRAIN, mask_range, &ctx);
    return TRI_OK;
}

static bool mask_takes(const trii_ir *ir, const trii_ir_node *node)
{
    const int64_t *i = node->iattr; /* of a part: only whole blocks */

    return trii_node_f32(ir, node) &&
           (node->op == &trii_op_dropout_mask || (i[2] % 4 == 0 && i[3] % 4 == 0 && i[4] % 4 == 0));
}

static tri_status mask_compile(const trii_ir *ir, const trii_group *group, trii_kernel **kernel_out)
{
    const trii_ir_node *node = &ir->nodes[group->nodes[0]];
    mask_kernel *k = trii_alloc(1, sizeof(*k), "kernel");

    if (k == NULL)
        return TRI_ERR_NO_MEMORY;
    k->base = (trii_kernel){
        .name = node->op->name, .run = mask_run_kernel, .destroy = trii_cpu_kernel_free};
    k->kernels = trii_cpu_kernels_get();
    k->n = trii_type_numel(trii_out_type(ir, node, 0));
    k->run = (k->n + 3) / 4 + 1;
    if (node->op == &trii_op_dropout_mask_part) {
        k->run = node->iattr[2] / 4;
        k->stride = node->iattr[3] / 4;
        k->start = node->iattr[4] / 4;
    }
    k->f = node->first_f;
    k->random = node->random;
    *kernel_out = &k->base;
    return TRI_OK;
}

const trii_cpu_family trii_cpu_dropout_mask = {
    .op = {&trii_op_dropout_mask, &trii_op_dropout_mask_part},
    .takes = mask_takes,
    .compile = mask_compile};
