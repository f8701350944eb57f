/*
 * sums.c - sums and means in f32 over any dimensions, on all threads; in the order of sum_tree.h.
 *
 * Adjacent dimensions that are both reduced, or both kept, are one axis. If the last axis is
 * reduced, its elements are contiguous: a sum is over *rows* of them. If it is kept, *columns* are
 * added, row by row.
 */
#include <string.h>

#include "base/alloc.h"
#include "train/device/cpu/cpu_ops.h"
#include "train/device/cpu/cpu_parallel.h"
#include "train/device/cpu/sum_tree.h"
#include "train/graph/ops/table.h"
#include "train/graph/step/type.h"

#define MAX_AXES (TRI_MAX_DIMS / 2)
#define BLOCK_ROWS 1024   /* of columns: elements that one thread adds to a sum */
#define BLOCK_COLUMNS 256 /* sums that it works on at a time */
#define SHORT_SUM 16      /* with fewer elements of several rows lanes do not pay */
#define ROWS_AT_ONCE 64

/* Axes but the last, slowest first. */
typedef struct axes {
    int n;
    int64_t size[MAX_AXES], stride[MAX_AXES];
    int64_t count; /* all sizes multiplied */
} axes;

typedef struct reduction {
    trii_kernel base;
    const trii_cpu_kernels *kernels;
    axes kept, reduced;
    bool columns;             /* the last axis is kept */
    int64_t last;             /* its size */
    int64_t blocks;           /* blocks that each sum is cut into */
    int64_t chunks;           /* chunks that the columns are cut into; 1 for rows */
    int64_t grain, end_grain; /* items per thread at least: of blocks, of the tree over them */
    double divisor;
} reduction;

static void add_axis(axes *to, int64_t size, int64_t stride)
{
    to->size[to->n] = size;
    to->stride[to->n++] = stride;
    to->count *= size;
}

/* Cuts the shape into axes, from the last one. */
static void find_axes(reduction *r, const trii_type *in, int64_t mask)
{
    int64_t size = 1, stride = 1;
    int kind = -1; /* of the current axis: 1 = reduced; -1 = none yet */
    axes *found[2] = {&r->kept, &r->reduced};

    r->last = r->kept.count = r->reduced.count = 1;
    for (int d = in->ndim; d >= 0; d--) {
        int of = d > 0 ? (int)(mask >> (d - 1) & 1) : -1;

        if (d > 0 && in->shape[d - 1] == 1)
            continue;
        if (of == kind && d > 0) {
            size *= in->shape[d - 1];
            continue;
        }
        if (kind >= 0 && stride == 1) {
            r->last = size;
            r->columns = kind == 0;
        } else if (kind >= 0) {
            add_axis(found[kind], size, stride);
        }
        stride *= size;
        size = d > 0 ? in->shape[d - 1] : 1;
        kind = of;
    }
    for (int k = 0; k < 2; k++) { /* slowest first */
        for (int i = 0, j = found[k]->n - 1; i < j; i++, j--) {
            int64_t n = found[k]->size[i], s = found[k]->stride[i];

            found[k]->size[i] = found[k]->size[j];
            found[k]->stride[i] = found[k]->stride[j];
            found[k]->size[j] = n;
            found[k]->stride[j] = s;
        }
    }
}

static int64_t offset_of(const axes *a, int64_t index)
{
    int64_t offset = 0;

    for (int i = a->n - 1; i > 0; i--) {
        offset += index % a->size[i] * a->stride[i];
        index /= a->size[i];
    }
    return a->n > 0 ? offset + index * a->stride[0] : 0;
}

/* Rows [begin, end) of the reduced axes, in runs of one stride: add(from, rows, stride, n, to). */
static void add_run(const reduction *r, const float *x, int64_t begin, int64_t end, int64_t n,
                    double *to)
{
    const axes *a = &r->reduced;
    int64_t size = a->n > 0 ? a->size[a->n - 1] : 1, stride = a->n > 0 ? a->stride[a->n - 1] : 0;

    while (begin < end) {
        int64_t rows = size - begin % size;

        rows = rows < end - begin ? rows : end - begin;
        if (r->columns)
            r->kernels->add_rows(x + offset_of(a, begin), rows, stride, n, to);
        else
            r->kernels->add_values(x + offset_of(a, begin), rows, stride, n, to);
        begin += rows;
    }
}

typedef struct sum_run {
    const reduction *r;
    const float *x;
    float *y;
    double *partial; /* [kept, blocks, ...] where there are several blocks */
} sum_run;

/* The results: sums, or means, rounded. */
static void store(const reduction *r, const double *sums, int64_t n, float *y)
{
    if (r->divisor == 1) {
        for (int64_t i = 0; i < n; i++)
            y[i] = (float)sums[i];
        return;
    }
    for (int64_t i = 0; i < n; i++)
        y[i] = (float)(sums[i] / r->divisor);
}

/* --- the last axis is reduced --------------------------------------------- */

/* Rows that a block holds; 0: a row is longer than a block. */
static int64_t rows_of_a_block(const reduction *r)
{
    return r->last <= TRII_SUM_BLOCK ? TRII_SUM_BLOCK / r->last : 0;
}

static double short_sum(const reduction *r, const float *x)
{
    double total = 0;

    for (int64_t row = 0; row < r->reduced.count; row++) {
        const float *from = x + offset_of(&r->reduced, row);

        for (int64_t i = 0; i < r->last; i++)
            total += (double)from[i];
    }
    return total;
}

static double block_of_rows(const reduction *r, const float *x, int64_t block)
{
    double lanes[TRII_SUM_LANES] = {0};
    int64_t rows = rows_of_a_block(r);

    if (rows > 0) {
        int64_t begin = block * rows, left = r->reduced.count - begin;

        add_run(r, x, begin, begin + (left < rows ? left : rows), r->last, lanes);
    } else {
        int64_t pieces = trii_sum_blocks(r->last), row = block / pieces;
        int64_t at = block % pieces * TRII_SUM_BLOCK, left = r->last - at;

        add_run(r, x + at, row, row + 1, left < TRII_SUM_BLOCK ? left : TRII_SUM_BLOCK, lanes);
    }
    return trii_lanes_total(lanes);
}

/* The same where there is one row. */
static double block_of_a_row(const reduction *r, const float *x, int64_t block)
{
    int64_t at = block * TRII_SUM_BLOCK, left = r->last - at;
    double total;

    r->kernels->row_totals(x + at, 1, 0, left < TRII_SUM_BLOCK ? left : TRII_SUM_BLOCK, &total);
    return total;
}

/* n sums of one block each, which lie `stride` apart. */
static void whole_sums(const reduction *r, const float *x, int64_t stride, int64_t n, double *sums)
{
    if (r->reduced.count == 1) {
        r->kernels->row_totals(x, n, stride, r->last, sums);
    } else if (r->reduced.count * r->last <= SHORT_SUM) {
        for (int64_t i = 0; i < n; i++)
            sums[i] = short_sum(r, x + i * stride);
    } else {
        for (int64_t i = 0; i < n; i++)
            sums[i] = block_of_rows(r, x + i * stride, 0);
    }
}

/* Sums [begin, end) of one block each, in runs along the fastest of the kept axes. */
static void whole_range(const sum_run *run, int64_t begin, int64_t end)
{
    const reduction *r = run->r;
    const axes *a = &r->kept;
    int64_t size = a->n > 0 ? a->size[a->n - 1] : 1, stride = a->n > 0 ? a->stride[a->n - 1] : 0;
    double sums[ROWS_AT_ONCE];

    while (begin < end) {
        int64_t n = a->n > 1 ? size - begin % size : end - begin;

        n = n < end - begin ? n : end - begin;
        n = n < ROWS_AT_ONCE ? n : ROWS_AT_ONCE;
        whole_sums(r, run->x + offset_of(a, begin), stride, n, sums);
        store(r, sums, n, run->y + begin);
        begin += n;
    }
}

/* Items are blocks of sums. */
static void rows_range(void *ctx, int64_t begin, int64_t end)
{
    const sum_run *run = ctx;
    const reduction *r = run->r;

    if (r->blocks == 1) {
        whole_range(run, begin, end);
        return;
    }
    for (int64_t i = begin; i < end; i++) {
        int64_t k = i / r->blocks, block = i - k * r->blocks;
        const float *x = run->x + offset_of(&r->kept, k);

        run->partial[i] =
            r->reduced.count == 1 ? block_of_a_row(r, x, block) : block_of_rows(r, x, block);
    }
}

static void rows_end_range(void *ctx, int64_t begin, int64_t end)
{
    const sum_run *run = ctx;
    const reduction *r = run->r;

    for (int64_t k = begin; k < end; k++)
        run->y[k] = (float)(trii_tree_total(run->partial + k * r->blocks, r->blocks) / r->divisor);
}

/* --- the last axis is kept ------------------------------------------------ */

static int64_t chunk_size(const reduction *r, int64_t chunk)
{
    int64_t left = r->last - chunk * BLOCK_COLUMNS;

    return left < BLOCK_COLUMNS ? left : BLOCK_COLUMNS;
}

/* Items are chunks of columns of blocks of sums. */
static void columns_range(void *ctx, int64_t begin, int64_t end)
{
    const sum_run *run = ctx;
    const reduction *r = run->r;

    for (int64_t i = begin; i < end; i++) {
        bool whole = r->chunks == 1 && r->blocks == 1; /* saves divisions in small steps */
        int64_t unit = whole ? i : i / r->chunks, chunk = i - unit * r->chunks;
        int64_t k = whole ? i : unit / r->blocks, block = unit - k * r->blocks;
        int64_t first = block * BLOCK_ROWS, left = r->reduced.count - first;
        int64_t n = chunk_size(r, chunk), at = chunk * BLOCK_COLUMNS;
        double own[BLOCK_COLUMNS];
        double *sums = r->blocks > 1 ? run->partial + unit * r->last + at : own;

        memset(sums, 0, (size_t)n * sizeof(*sums));
        add_run(r, run->x + offset_of(&r->kept, k) + at, first,
                first + (left < BLOCK_ROWS ? left : BLOCK_ROWS), n, sums);
        if (r->blocks == 1)
            store(r, sums, n, run->y + k * r->last + at);
    }
}

/* The tree over blocks, of a chunk of columns at a time. */
static void columns_end_range(void *ctx, int64_t begin, int64_t end)
{
    const sum_run *run = ctx;
    const reduction *r = run->r;

    for (int64_t i = begin; i < end; i++) {
        int64_t k = i / r->chunks, chunk = i % r->chunks;
        int64_t at = chunk * BLOCK_COLUMNS, n = chunk_size(r, chunk);
        double *top = run->partial + k * r->blocks * r->last + at;

        for (int64_t step = 1; step < r->blocks; step *= 2) {
            for (int64_t b = 0; b + step < r->blocks; b += 2 * step) {
                double *to = top + b * r->last;
                const double *from = to + step * r->last;

                for (int64_t j = 0; j < n; j++)
                    to[j] += from[j];
            }
        }
        store(r, top, n, run->y + k * r->last + at);
    }
}

/* --- the kernel ----------------------------------------------------------- */

static tri_status sum_run_kernel(const trii_kernel *kernel, void *const *args, const trii_run *run)
{
    const reduction *r = (const reduction *)kernel;
    sum_run ctx = {r, args[0], args[1], r->blocks > 1 ? args[2] : NULL};

    (void)run;
    trii_parallel_for(r->kept.count * r->blocks * r->chunks, r->grain,
                      r->columns ? columns_range : rows_range, &ctx);
    if (r->blocks > 1)
        trii_parallel_for(r->kept.count * r->chunks, r->end_grain,
                          r->columns ? columns_end_range : rows_end_range, &ctx);
    return TRI_OK;
}

/* How many blocks and chunks, and when threads pay. */
static void cut(reduction *r)
{
    int64_t rows = r->columns ? BLOCK_ROWS : rows_of_a_block(r), width = 1, length;

    r->chunks = 1;
    if (r->columns) {
        r->chunks = (r->last + BLOCK_COLUMNS - 1) / BLOCK_COLUMNS;
        width = r->last / r->chunks;
    }
    r->blocks = rows > 0 ? (r->reduced.count + rows - 1) / rows
                         : r->reduced.count * trii_sum_blocks(r->last);
    length = r->reduced.count * (r->columns ? width : r->last) / r->blocks;
    r->grain = 1 + TRII_SUM_GRAIN / (length + 1);
    r->end_grain = 1 + TRII_SUM_GRAIN / (r->blocks * width);
    if (r->blocks > 1)
        r->base.scratch_bytes =
            (size_t)(r->kept.count * r->blocks * (r->columns ? r->last : 1)) * sizeof(double);
}

static int64_t mask_of(const trii_ir *ir, const trii_ir_node *node)
{
    const trii_type *in = trii_in_type(ir, node, 0), *out = trii_out_type(ir, node, 0);
    int64_t mask = 0;

    if (node->op != &trii_op_sum_to)
        return node->iattr[0];
    for (int d = 0; d < in->ndim; d++) {
        int e = d - (in->ndim - out->ndim);

        if (e < 0 || out->shape[e] == 1)
            mask |= INT64_C(1) << d;
    }
    return mask;
}

static bool sum_takes(const trii_ir *ir, const trii_ir_node *node)
{
    return trii_node_f32(ir, node) && trii_type_numel(trii_in_type(ir, node, 0)) > 0;
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
    find_axes(r, trii_in_type(ir, node, 0), mask_of(ir, node));
    cut(r);
    r->divisor =
        node->op == &trii_op_mean ? (double)(r->reduced.count * (r->columns ? 1 : r->last)) : 1;
    *kernel_out = &r->base;
    return TRI_OK;
}

const trii_cpu_family trii_cpu_sum = {
    .op = {&trii_op_sum}, .takes = sum_takes, .compile = sum_compile};
const trii_cpu_family trii_cpu_mean = {
    .op = {&trii_op_mean}, .takes = sum_takes, .compile = sum_compile};
const trii_cpu_family trii_cpu_sum_to = {
    .op = {&trii_op_sum_to}, .takes = sum_takes, .compile = sum_compile};
