/*
 * part_copies.c - concat and split: rows of the parts lie one behind the other in those of the
 * whole. Copies of any type, on all threads.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/dtype.h"
#include "device/cpu/cpu_ops.h"
#include "device/cpu/cpu_parallel.h"
#include "graph/type.h"

#define MIN_BYTES 65536 /* for a thread */

typedef struct part {
    size_t at, bytes; /* of a row */
    int arg;
} part;

typedef struct part_copies {
    trii_kernel base;
    int64_t rows;
    size_t row_bytes; /* of the whole */
    int whole, n_parts;
    bool join;
    part parts[]; /* [n_parts] */
} part_copies;

typedef struct part_run {
    const part_copies *k;
    void *const *args;
} part_run;

/* Items: rows of each part. */
static void copy_range(void *ctx, int64_t begin, int64_t end)
{
    const part_run *run = ctx;
    const part_copies *k = run->k;

    for (int64_t item = begin; item < end; item++) {
        const part *p = &k->parts[item % k->n_parts];
        size_t row = (size_t)(item / k->n_parts);
        char *whole = (char *)run->args[k->whole] + row * k->row_bytes + p->at;
        char *piece = (char *)run->args[p->arg] + row * p->bytes;

        if (p->bytes > 0)
            memcpy(k->join ? whole : piece, k->join ? piece : whole, p->bytes);
    }
}

static tri_status part_run_kernel(const trii_kernel *kernel, void *const *args, const trii_run *run)
{
    const part_copies *k = (const part_copies *)kernel;
    part_run ctx = {k, args};

    (void)run;
    trii_parallel_for(k->rows * k->n_parts,
                      1 + MIN_BYTES * k->n_parts / (1 + (int64_t)k->row_bytes), copy_range, &ctx);
    return TRI_OK;
}

static bool is_join(const trii_ir_node *node)
{
    return node->op == &trii_op_concat;
}

static const trii_type *whole_of(const trii_ir *ir, const trii_ir_node *node)
{
    return is_join(node) ? trii_out_type(ir, node, 0) : trii_in_type(ir, node, 0);
}

static bool takes(const trii_ir *ir, const trii_ir_node *node)
{
    return trii_type_numel(whole_of(ir, node)) > 0;
}

/* concat: in parts.., out whole; split: in whole, out parts..; i: dimension */
static tri_status compile(const trii_ir *ir, const trii_group *group, trii_kernel **kernel_out)
{
    const trii_ir_node *node = &ir->nodes[group->nodes[0]];
    const trii_type *whole = whole_of(ir, node);
    int n = is_join(node) ? node->n_in : node->n_out, dim = (int)node->iattr[0];
    size_t step = tri_dtype_size(whole->dtype), at = 0;
    part_copies *k = trii_alloc(1, sizeof(*k) + (size_t)n * sizeof(k->parts[0]), "kernel");

    if (k == NULL)
        return TRI_ERR_NO_MEMORY;
    k->base = (trii_kernel){
        .name = node->op->name, .run = part_run_kernel, .destroy = trii_cpu_kernel_free};
    k->join = is_join(node);
    k->whole = k->join ? group->n_in : 0;
    k->n_parts = n;
    k->rows = 1;
    for (int d = 0; d < whole->ndim; d++) {
        if (d < dim)
            k->rows *= whole->shape[d];
        if (d > dim)
            step *= (size_t)whole->shape[d];
    }
    for (int i = 0; i < n; i++) {
        const trii_type *type = k->join ? trii_in_type(ir, node, i) : trii_out_type(ir, node, i);

        k->parts[i] = (part){.at = at,
                             .bytes = (size_t)type->shape[dim] * step,
                             .arg = k->join ? trii_group_in(group, node->in[i]) : group->n_in + i};
        at += k->parts[i].bytes;
    }
    k->row_bytes = at;
    *kernel_out = &k->base;
    return TRI_OK;
}

const trii_cpu_family trii_cpu_part_copies = {
    .op = {&trii_op_concat, &trii_op_split}, .takes = takes, .compile = compile};
