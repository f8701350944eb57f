/*
 * fallback.c - runs an operation for which the device has no kernel through its reference kernel,
 * on one thread. Called by cpu_device.c and by families that refuse a layout.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "train/device/cpu/cpu_ops.h"
#include "train/graph/ops/table.h"

/* An operand or a result. */
typedef struct operand {
    trii_type type;
    int arg; /* where its pointer is; -1 = absent */
} operand;

typedef struct fallback {
    trii_kernel base;
    const trii_graph_op *op;
    trii_kernel_args args;
    trii_array *array; /* [n_in + n_out] inputs, then outputs; */
    operand *operands; /* types of both; the arrays follow the kernel in its block */
    int64_t iattr[TRII_MAX_IATTRS];
    int32_t first_f, random, work_arg;
    trii_work work;
} fallback;

static tri_status fallback_run(const trii_kernel *kernel, void *const *args, const trii_run *run)
{
    /* Prepared operands, of which only the pointers change: one thread at a time runs a plan. */
    fallback *f = (fallback *)(uintptr_t)kernel;

    for (int i = 0; i < f->args.n_in + f->args.n_out; i++)
        f->array[i].data = f->operands[i].arg >= 0 ? args[f->operands[i].arg] : NULL;
    f->args.fattr = run->f + f->first_f;
    if (f->random >= 0)
        f->args.random = run->random[f->random];
    if (f->args.work != NULL)
        f->work.begin = f->work.at = args[f->work_arg];
    f->work.bytes = f->base.scratch_bytes;
    return trii_reference_kernel(f->op, &f->args);
}

/* Operands in another order must not come here: their elements would be taken for others. */
static bool all_plain(const trii_group *group)
{
    for (int32_t i = 0; i < group->n_in + group->n_out; i++) {
        if ((i < group->n_in ? group->in_layout[i] : group->out_layout[i - group->n_in]) != NULL)
            return false;
    }
    return true;
}

tri_status trii_cpu_fallback_compile(const trii_ir *ir, const trii_group *group,
                                     trii_kernel **kernel_out)
{
    const trii_ir_node *node = &ir->nodes[group->nodes[0]];
    size_t n = (size_t)node->n_in + (size_t)node->n_out;
    fallback *f =
        trii_alloc(1, sizeof(*f) + n * (sizeof(*f->array) + sizeof(*f->operands)), "kernel");

    if (f == NULL)
        return TRI_ERR_NO_MEMORY;
    if (!all_plain(group)) {
        trii_free(f);
        return TRII_FAIL(TRI_ERR_INTERNAL,
                         "%s: the reference kernel was given operands that are not in plain order",
                         node->op->name);
    }
    f->base =
        (trii_kernel){.name = node->op->name, .run = fallback_run, .destroy = trii_cpu_kernel_free};
    f->op = node->op;
    f->array = (trii_array *)(f + 1);
    f->operands = (operand *)(f->array + n);
    f->args = (trii_kernel_args){.n_in = node->n_in,
                                 .n_out = node->n_out,
                                 .in = f->array,
                                 .out = f->array + node->n_in,
                                 .iattr = f->iattr};
    f->first_f = node->first_f;
    f->random = node->random;
    memcpy(f->iattr, node->iattr, (size_t)node->n_i * sizeof(f->iattr[0]));
    for (int i = 0; i < node->n_in + node->n_out; i++) {
        bool is_in = i < node->n_in;
        operand *o = &f->operands[i];

        o->arg = -1;
        if (is_in && !trii_has_in(node, i))
            continue;
        o->type = is_in ? *trii_in_type(ir, node, i) : *trii_out_type(ir, node, i - node->n_in);
        o->arg = is_in ? trii_group_in(group, node->in[i])
                       : group->n_in + trii_group_out(group, node->out[i - node->n_in]);
        f->array[i].type = &o->type;
    }
    if (node->op->precision != TRII_PRECISION_ANY) /* else it moves elements as they are */
        f->base.scratch_bytes = trii_work_bytes(&f->args);
    f->work_arg = group->n_in + group->n_out;
    f->args.work = f->base.scratch_bytes > 0 ? &f->work : NULL;
    *kernel_out = &f->base;
    return TRI_OK;
}
