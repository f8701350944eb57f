/*
 * element_blocks.c - element-wise operations that no chain takes (truth values, integers, f64),
 * through their reference kernels: block by block, on all threads.
 *
 * A block is a part of the result: one index of each outer dimension, some of the next, and all of
 * the inner ones. Of an operand it is the part that broadcasts to it, so the reference kernel sees
 * smaller tensors and need not know about blocks.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/dtype.h"
#include "train/device/cpu/cpu_ops.h"
#include "train/device/cpu/cpu_parallel.h"
#include "train/graph/ops/table.h"
#include "train/graph/step/strides.h"

#define OPERANDS 4               /* the last is the result */
#define BLOCK 4096               /* elements of a block, at most */
#define WORK_BYTES (64 * 1024)   /* of a block, on the stack of a thread */
#define GRAIN (INT64_C(1) << 15) /* elements for a thread */

/* An operand, broadcast to the dimensions of the result. */
typedef struct operand {
    int arg;
    trii_type type;               /* of a block of full size */
    int64_t stride[TRI_MAX_DIMS]; /* bytes; 0: broadcast */
} operand;

typedef struct blocks {
    trii_kernel base;
    const trii_graph_op *op;
    operand operands[OPERANDS];
    int n_in;
    int64_t iattr[TRII_MAX_IATTRS];
    int32_t first_f;
    int64_t size[TRI_MAX_DIMS];
    int ndim, cut;        /* the dimension that is cut */
    int64_t step, n_cuts; /* elements of it in a block, blocks along it */
    int64_t n, grain;     /* blocks */
} blocks;

typedef struct blocks_run {
    const blocks *k;
    void *const *args;
    const double *fattr;
    int failed; /* a tri_status */
} blocks_run;

/* Block i of operand o. */
static void place(const blocks *k, int o, int64_t i, char *data, trii_type *type, trii_array *array)
{
    const operand *of = &k->operands[o];
    int64_t at = i % k->n_cuts * k->step, left = k->size[k->cut] - at;

    *type = of->type;
    if (of->stride[k->cut] != 0 && left < k->step)
        type->shape[k->cut - (k->ndim - type->ndim)] = left;
    data += at * of->stride[k->cut];
    i /= k->n_cuts;
    for (int d = k->cut - 1; d >= 0; d--) {
        data += i % k->size[d] * of->stride[d];
        i /= k->size[d];
    }
    *array = (trii_array){.data = data, .type = type};
}

static void range(void *ctx, int64_t begin, int64_t end)
{
    blocks_run *run = ctx;
    const blocks *k = run->k;
    char memory[WORK_BYTES] __attribute__((aligned(64)));
    trii_work work = {.begin = memory, .at = memory, .bytes = sizeof(memory)};
    trii_type types[OPERANDS];
    trii_array array[OPERANDS];
    const trii_kernel_args args = {.n_in = k->n_in,
                                   .n_out = 1,
                                   .in = array,
                                   .out = array + k->n_in,
                                   .iattr = k->iattr,
                                   .fattr = run->fattr,
                                   .work = &work};

    for (int64_t i = begin; i < end; i++) {
        tri_status status;

        for (int o = 0; o <= k->n_in; o++)
            place(k, o, i, run->args[k->operands[o].arg], &types[o], &array[o]);
        work.at = memory;
        work.bytes = sizeof(memory);
        status = trii_reference_kernel(k->op, &args);
        if (status != TRI_OK)
            __atomic_store_n(&run->failed, (int)status, __ATOMIC_RELAXED);
    }
}

static tri_status blocks_run_kernel(const trii_kernel *kernel, void *const *args,
                                    const trii_run *run)
{
    const blocks *k = (const blocks *)kernel;
    blocks_run ctx = {.k = k, .args = args, .fattr = run->f + k->first_f, .failed = TRI_OK};

    trii_parallel_for(k->n, k->grain, range, &ctx);
    return (tri_status)ctx.failed;
}

/* Blocks as large as they may be, of whole inner dimensions. */
static void cut(blocks *k)
{
    int64_t inner = 1, outer = 1;
    int d = k->ndim - 1;

    while (d > 0 && inner * k->size[d] <= BLOCK)
        inner *= k->size[d--];
    k->cut = d;
    k->step = BLOCK / inner < k->size[d] ? BLOCK / inner : k->size[d];
    k->n_cuts = (k->size[d] + k->step - 1) / k->step;
    for (int e = 0; e < d; e++)
        outer *= k->size[e];
    k->n = outer * k->n_cuts;
    k->grain = 1 + GRAIN / (inner * k->step);
}

static void describe(const blocks *k, const trii_type *type, operand *o)
{
    int shift = k->ndim - type->ndim;
    trii_strides plain;

    o->type = *type;
    trii_strides_plain(type, &plain);
    for (int d = shift; d < k->ndim; d++) {
        int64_t *size = &o->type.shape[d - shift];

        if (*size == 1)
            continue;
        o->stride[d] = plain.stride[d - shift] * (int64_t)tri_dtype_size(type->dtype);
        if (d <= k->cut)
            *size = d < k->cut ? 1 : k->step;
    }
}

bool trii_cpu_element_blocks_take(const trii_ir *ir, const trii_group *group)
{
    const trii_ir_node *node = &ir->nodes[group->nodes[0]];

    if (group->n_nodes != 1 || node->op->op_class != TRII_CLASS_ELEMENTWISE || node->n_out != 1 ||
        node->n_in >= OPERANDS || node->op->random || node->op->may_refuse)
        return false;
    for (int i = 0; i < node->n_in; i++) {
        if (!trii_has_in(node, i))
            return false;
    }
    return trii_type_numel(trii_out_type(ir, node, 0)) > BLOCK;
}

tri_status trii_cpu_element_blocks_compile(const trii_ir *ir, const trii_group *group,
                                           trii_kernel **kernel_out)
{
    const trii_ir_node *node = &ir->nodes[group->nodes[0]];
    const trii_type *out = trii_out_type(ir, node, 0);
    blocks *k = trii_alloc(1, sizeof(*k), "kernel");

    if (k == NULL)
        return TRI_ERR_NO_MEMORY;
    k->base = (trii_kernel){
        .name = node->op->name, .run = blocks_run_kernel, .destroy = trii_cpu_kernel_free};
    k->op = node->op;
    k->n_in = node->n_in;
    k->first_f = node->first_f;
    memcpy(k->iattr, node->iattr, (size_t)node->n_i * sizeof(k->iattr[0]));
    k->ndim = out->ndim;
    memcpy(k->size, out->shape, (size_t)out->ndim * sizeof(k->size[0]));
    cut(k);
    for (int i = 0; i < node->n_in; i++) {
        k->operands[i].arg = trii_group_in(group, node->in[i]);
        describe(k, trii_in_type(ir, node, i), &k->operands[i]);
    }
    k->operands[node->n_in].arg = group->n_in;
    describe(k, out, &k->operands[node->n_in]);
    *kernel_out = &k->base;
    return TRI_OK;
}
