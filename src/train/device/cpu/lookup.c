/*
 * lookup.c - embedding and its gradient, rows on all threads. For the gradient, the rows taken are
 * sorted by the row of the table that they came from; each row of the table belongs to one thread,
 * which adds in the order in which rows were taken, in f64: the bits do not depend on the number of
 * threads.
 */
#include <string.h>

#include "base/alloc.h"
#include "train/device/cpu/cpu_ops.h"
#include "train/device/cpu/cpu_parallel.h"
#include "train/graph/ops/kernel_rules.h"
#include "train/graph/step/type.h"

#define GRAIN 16384 /* elements per thread at least */

typedef struct lookup {
    trii_kernel base;
    const trii_cpu_kernels *kernels;
    int64_t n, rows, cols, padding; /* rows taken; of the table; padding -1 = none */
    size_t row_bytes;
    int table, index, g, out, scratch; /* arguments */
} lookup;

typedef struct lookup_run {
    const lookup *k;
    void *const *args;
    const int64_t *index;
    int64_t *first, *taken; /* [rows + 1], [n]: row r was taken as number taken[first[r] ..] */
} lookup_run;

static tri_status check_indices(const lookup *k, const int64_t *index)
{
    tri_status status = TRI_OK;

    for (int64_t i = 0; i < k->n && status == TRI_OK; i++) {
        if (index[i] < 0 || index[i] >= k->rows)
            status = trii_index_check(index[i], i, k->rows, "rows"); /* sets the error line */
    }
    return status;
}

/* --- forward -------------------------------------------------------------- */

static void copy_range(void *ctx, int64_t begin, int64_t end)
{
    const lookup_run *run = ctx;
    const lookup *k = run->k;

    for (int64_t i = begin; i < end; i++)
        memcpy((char *)run->args[k->out] + (size_t)i * k->row_bytes,
               (const char *)run->args[k->table] + (size_t)run->index[i] * k->row_bytes,
               k->row_bytes);
}

static tri_status forward_run(const trii_kernel *kernel, void *const *args, const trii_run *run)
{
    const lookup *k = (const lookup *)kernel;
    lookup_run ctx = {.k = k, .args = args, .index = args[k->index]};
    tri_status status = check_indices(k, ctx.index);

    (void)run;
    if (status == TRI_OK)
        trii_parallel_for(k->n, 1 + GRAIN / k->cols, copy_range, &ctx);
    return status;
}

/* --- backward ------------------------------------------------------------- */

/* Counts how often each row was taken, and sorts by that; the order within a row stays. */
static void sort_rows(const lookup_run *run)
{
    const lookup *k = run->k;

    memset(run->first, 0, (size_t)(k->rows + 1) * sizeof(*run->first));
    for (int64_t i = 0; i < k->n; i++)
        run->first[run->index[i] + 1]++;
    for (int64_t r = 0; r < k->rows; r++)
        run->first[r + 1] += run->first[r];
    for (int64_t i = 0; i < k->n; i++)
        run->taken[run->first[run->index[i]]++] = i;
    /* first[r] is now where row r + 1 begins */
    memmove(run->first + 1, run->first, (size_t)k->rows * sizeof(*run->first));
    run->first[0] = 0;
}

static void add_range(void *ctx, int64_t begin, int64_t end)
{
    enum { SOME = 512 };
    const lookup_run *run = ctx;
    const lookup *k = run->k;
    const float *g = run->args[k->g];
    double sums[SOME];

    for (int64_t r = begin; r < end; r++) {
        float *to = (float *)run->args[k->out] + r * k->cols;
        int64_t from = run->first[r], after = run->first[r + 1];

        if (from == after || r == k->padding) {
            memset(to, 0, (size_t)k->cols * sizeof(float));
            continue;
        }
        for (int64_t at = 0; at < k->cols; at += SOME) {
            int64_t n = k->cols - at < SOME ? k->cols - at : SOME;

            memset(sums, 0, sizeof(sums));
            for (int64_t i = from; i < after; i++)
                k->kernels->add_rows(g + run->taken[i] * k->cols + at, 1, 0, n, sums);
            for (int64_t i = 0; i < n; i++)
                to[at + i] = (float)sums[i];
        }
    }
}

static tri_status backward_run(const trii_kernel *kernel, void *const *args, const trii_run *run)
{
    const lookup *k = (const lookup *)kernel;
    lookup_run ctx = {.k = k, .args = args, .index = args[k->index], .first = args[k->scratch]};
    tri_status status = check_indices(k, ctx.index);

    (void)run;
    if (status != TRI_OK)
        return status;
    ctx.taken = ctx.first + k->rows + 1;
    sort_rows(&ctx);
    trii_parallel_for(k->rows, 1 + GRAIN / (k->cols * (1 + k->n / k->rows)), add_range, &ctx);
    return TRI_OK;
}

/* --- compiling ------------------------------------------------------------ */

static bool forward_takes(const trii_ir *ir, const trii_ir_node *node)
{
    return trii_type_numel(trii_in_type(ir, node, 0)) > 0;
}

static bool backward_takes(const trii_ir *ir, const trii_ir_node *node)
{
    return trii_in_type(ir, node, 0)->dtype == TRI_DTYPE_F32 &&
           trii_type_numel(trii_out_type(ir, node, 0)) > 0;
}

static lookup *create(const trii_ir *ir, const trii_group *group, const trii_type *table)
{
    const trii_ir_node *node = &ir->nodes[group->nodes[0]];
    lookup *k = trii_alloc(1, sizeof(*k), "kernel");

    if (k == NULL)
        return NULL;
    k->base.name = node->op->name;
    k->base.destroy = trii_cpu_kernel_free;
    k->kernels = trii_cpu_kernels_get();
    k->n = trii_type_numel(trii_in_type(ir, node, 1));
    k->rows = table->shape[0];
    k->cols = table->shape[1];
    k->row_bytes = (size_t)k->cols * tri_dtype_size(table->dtype);
    k->padding = node->iattr[0];
    k->index = trii_group_in(group, node->in[1]);
    k->out = group->n_in;
    k->scratch = group->n_in + group->n_out;
    return k;
}

/* in table indices */
static tri_status forward_compile(const trii_ir *ir, const trii_group *group,
                                  trii_kernel **kernel_out)
{
    const trii_ir_node *node = &ir->nodes[group->nodes[0]];
    lookup *k = create(ir, group, trii_in_type(ir, node, 0));

    if (k == NULL)
        return TRI_ERR_NO_MEMORY;
    k->base.run = forward_run;
    k->table = trii_group_in(group, node->in[0]);
    *kernel_out = &k->base;
    return TRI_OK;
}

/* in g indices; i: padding, rows */
static tri_status backward_compile(const trii_ir *ir, const trii_group *group,
                                   trii_kernel **kernel_out)
{
    const trii_ir_node *node = &ir->nodes[group->nodes[0]];
    lookup *k = create(ir, group, trii_out_type(ir, node, 0));

    if (k == NULL)
        return TRI_ERR_NO_MEMORY;
    k->base.run = backward_run;
    k->base.scratch_bytes = (size_t)(k->rows + 1 + k->n) * sizeof(int64_t);
    k->g = trii_group_in(group, node->in[0]);
    *kernel_out = &k->base;
    return TRI_OK;
}

const trii_cpu_family trii_cpu_embedding = {
    .op = {&trii_op_embedding}, .takes = forward_takes, .compile = forward_compile};
const trii_cpu_family trii_cpu_embedding_backward = {
    .op = {&trii_op_embedding_backward}, .takes = backward_takes, .compile = backward_compile};
