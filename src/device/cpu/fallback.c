/*
 * fallback.c - runs an operation that the device has no kernel for through its reference kernel.
 */
#include <string.h>

#include "base/alloc.h"
#include "device/cpu/cpu_ops.h"
#include "graph/ops/table.h"

#define MAX_OPERANDS 8

typedef struct fallback {
    trii_kernel base;
    const trii_graph_op *op;
    trii_kernel_args args;
    trii_array in[MAX_OPERANDS], out[MAX_OPERANDS];
    trii_type in_type[MAX_OPERANDS], out_type[MAX_OPERANDS];
    int8_t in_arg[MAX_OPERANDS], out_arg[MAX_OPERANDS]; /* where their pointers are; -1 = absent */
    int64_t iattr[TRII_MAX_IATTRS];
    int32_t first_f, random, work_arg;
    trii_work work;
} fallback;

static tri_status fallback_run(const trii_kernel *kernel, void *const *args, const trii_run *run)
{
    /* Prepared operands, of which only the pointers change: one thread runs a plan. */
    fallback *f = (fallback *)(uintptr_t)kernel;

    for (int i = 0; i < f->args.n_in; i++)
        f->in[i].data = f->in_arg[i] >= 0 ? args[f->in_arg[i]] : NULL;
    for (int o = 0; o < f->args.n_out; o++)
        f->out[o].data = args[f->out_arg[o]];
    f->args.fattr = run->f + f->first_f;
    if (f->random >= 0)
        f->args.random = run->random[f->random];
    if (f->args.work != NULL)
        f->work.begin = f->work.at = args[f->work_arg];
    f->work.bytes = f->base.scratch_bytes;
    return trii_reference_kernel(f->op, &f->args);
}

tri_status trii_cpu_fallback_compile(const trii_ir *ir, const trii_group *group,
                                     trii_kernel **kernel_out)
{
    const trii_ir_node *node = &ir->nodes[group->nodes[0]];
    fallback *f = trii_alloc(1, sizeof(*f), "kernel");

    if (f == NULL)
        return TRI_ERR_NO_MEMORY;
    f->base =
        (trii_kernel){.name = node->op->name, .run = fallback_run, .destroy = trii_cpu_kernel_free};
    f->op = node->op;
    f->args = (trii_kernel_args){
        .n_in = node->n_in, .n_out = node->n_out, .in = f->in, .out = f->out, .iattr = f->iattr};
    f->first_f = node->first_f;
    f->random = node->random;
    memcpy(f->iattr, node->iattr, (size_t)node->n_i * sizeof(f->iattr[0]));
    for (int i = 0; i < node->n_in; i++) {
        f->in_arg[i] = -1;
        if (!trii_has_in(node, i))
            continue;
        f->in_type[i] = *trii_in_type(ir, node, i);
        f->in[i].type = &f->in_type[i];
        f->in_arg[i] = (int8_t)trii_group_in(group, node->in[i]);
    }
    for (int o = 0; o < node->n_out; o++) {
        f->out_type[o] = *trii_out_type(ir, node, o);
        f->out[o].type = &f->out_type[o];
        f->out_arg[o] = (int8_t)(group->n_in + trii_group_out(group, node->out[o]));
    }
    f->base.scratch_bytes = trii_work_bytes(&f->args);
    f->work_arg = group->n_in + group->n_out;
    f->args.work = f->base.scratch_bytes > 0 ? &f->work : NULL;
    *kernel_out = &f->base;
    return TRI_OK;
}
