/*
 * products_large.c - large products in f32: the library multiplies, each thread a rectangle of the
 * result, call after call. Called by products.c.
 *
 * The library's function for products compiles once for the process, whatever the sizes are; its
 * primitives compile for each number of rows, and so for each length of a sequence. It is slow
 * where the right side is in columns, as it is in linear layers: those are transposed a panel at a
 * time, into scratch that stays in the second-level cache.
 *
 * A product that is added to a matrix (the gradient of one more micro-batch) is added where that
 * matrix lies, if nothing else reads it: the sum is not another pass over both.
 */
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "train/device/cpu/cpu_parallel.h"
#include "train/device/cpu/onednn/onednn.h"
#include "train/device/cpu/products_cut.h"
#include "train/device/cpu/products_large.h"

#define PANEL_FLOATS (INT64_C(1) << 17) /* bytes of a panel */
#define PANEL_COLUMNS 48                /* columns of the library's own panels: fewer are slow */
/* with fewer rows of a, the copy costs more than it gains */
#define PANEL_ROWS 16

typedef struct large {
    trii_kernel base;
    trii_matmul_shape s;
    int arg[5];
    trii_product_cut cut; /* parts of a product, for the threads; or, */
    int64_t batch_parts;  /* if there are enough products, parts of their number */
    int64_t panel;        /* columns of b transposed at a time; 0 = as it is */
    uint64_t in_place;    /* of base: c may lie on what it is added to */
} large;

typedef struct large_run {
    const large *l;
    void *const *args;
    const float *a, *b;
    float *c;
    atomic_int failed; /* the library's error */
} large_run;

static void add_bias(const large_run *run, const trii_rectangle *r)
{
    const large *l = run->l;
    const trii_ew_fn add = trii_cpu_kernels_get()->ew[TRII_EW_add];
    const float *bias = (const float *)run->args[l->arg[2]] + r->column;

    for (int64_t i = r->row; i < r->row + r->rows; i++) {
        float *c = run->c + i * l->s.c_row + r->column;

        add(c, c, bias, NULL, (size_t)r->columns, NULL);
    }
}

/* What the product is added to, which the plan may not have been able to give to it. */
static void begin_sum(const large_run *run, const trii_rectangle *r)
{
    const large *l = run->l;
    const float *from = run->args[l->arg[2]];

    for (int64_t i = r->row; i < r->row + r->rows && from != run->c; i++)
        memcpy(run->c + i * l->s.c_row + r->column, from + i * l->s.c_row + r->column,
               (size_t)r->columns * sizeof(float));
}

static int multiply(const large_run *run, const trii_rectangle *r, const float *b, int64_t b_row,
                    int64_t b_col)
{
    const trii_matmul_shape *s = &run->l->s;
    trii_sgemm_args args = {.m = r->rows,
                            .n = r->columns,
                            .k = s->k,
                            .a = run->a + r->row * s->a_row,
                            .a_row = s->a_row,
                            .a_col = s->a_col,
                            .b = b,
                            .b_row = b_row,
                            .b_col = b_col,
                            .c = run->c + r->row * s->c_row + r->column,
                            .c_row = s->c_row,
                            .add = s->sum};
    int failed = trii_onednn_sgemm(&args);

    if (failed == 0 && s->bias)
        add_bias(run, r);
    return failed;
}

static int multiply_panels(const large_run *run, const trii_rectangle *all, float *panel)
{
    const large *l = run->l;
    int64_t n = (all->columns + l->panel - 1) / l->panel;
    int failed = 0;

    for (int64_t i = 0; i < n && failed == 0; i++) {
        int64_t begin = trii_part_begin(all->columns, TRII_CUT_COLUMNS, i, n);
        trii_rectangle r = *all;

        r.column += begin;
        r.columns = trii_part_begin(all->columns, TRII_CUT_COLUMNS, i + 1, n) - begin;
        trii_cpu_kernels_get()->transpose(panel, r.columns, run->b + r.column * l->s.b_col,
                                          l->s.b_col, r.columns, l->s.k, 1);
        failed = multiply(run, &r, panel, r.columns, 1);
    }
    return failed;
}

static void note(large_run *run, int failed)
{
    if (failed != 0)
        atomic_store_explicit(&run->failed, failed, memory_order_relaxed);
}

static void run_parts(void *ctx, int64_t begin, int64_t end)
{
    large_run *run = ctx;
    const large *l = run->l;
    const trii_matmul_shape *s = &l->s;

    for (int64_t i = begin; i < end; i++) {
        trii_rectangle r = trii_product_part(&l->cut, s->m, s->n, i);

        if (r.rows == 0 || r.columns == 0)
            continue;
        if (s->sum)
            begin_sum(run, &r);
        if (l->panel > 0)
            note(run,
                 multiply_panels(run, &r, (float *)run->args[l->arg[4]] + i * l->panel * s->k));
        else
            note(run, multiply(run, &r, run->b + r.column * s->b_col, s->b_row, s->b_col));
    }
}

static void at_product(large_run *run, int64_t i)
{
    const large *l = run->l;

    run->a = (const float *)run->args[l->arg[0]] + i * l->s.a_batch;
    run->b = (const float *)run->args[l->arg[1]] + i * l->s.b_batch;
    run->c = (float *)run->args[l->arg[3]] + i * l->s.c_batch;
}

static void run_products(void *ctx, int64_t begin, int64_t end)
{
    large_run *all = ctx;
    large_run run = {.l = all->l, .args = all->args};
    const trii_rectangle whole = {.rows = run.l->s.m, .columns = run.l->s.n};

    for (int64_t i = begin; i < end; i++) {
        at_product(&run, i);
        note(all, multiply(&run, &whole, run.b, run.l->s.b_row, run.l->s.b_col));
    }
}

static tri_status large_execute(const trii_kernel *kernel, void *const *args, const trii_run *r)
{
    const large *l = (const large *)kernel;
    large_run run = {.l = l, .args = args};

    (void)r;
    if (l->batch_parts > 1) {
        trii_parallel_for(l->s.batch, 1, run_products, &run);
        return trii_onednn_sgemm_status(run.failed);
    }
    for (int64_t i = 0; i < l->s.batch && run.failed == 0; i++) {
        at_product(&run, i);
        trii_parallel_for(l->cut.row_parts * l->cut.column_parts, 1, run_parts, &run);
    }
    return trii_onednn_sgemm_status(run.failed);
}

tri_status trii_cpu_large_product(const trii_matmul_shape *shape, const int args[5],
                                  const char *name, trii_kernel **kernel_out)
{
    int64_t threads = trii_parallel_threads();
    bool copied =
        shape->b_col != 1 && shape->m >= PANEL_ROWS && shape->k * PANEL_COLUMNS <= 2 * PANEL_FLOATS;
    tri_status status = trii_onednn_sgemm_ready();
    large *l;

    if (status != TRI_OK)
        return status;
    l = trii_alloc(1, sizeof(*l), "kernel");
    if (l == NULL)
        return TRI_ERR_NO_MEMORY;
    l->s = *shape;
    for (int i = 0; i < 5; i++)
        l->arg[i] = args[i];
    l->base = (trii_kernel){.name = name, .run = large_execute, .destroy = trii_cpu_kernel_free};
    l->in_place = shape->sum ? UINT64_C(1) << args[2] : 0;
    l->base.in_place = shape->sum ? &l->in_place : NULL;
    l->batch_parts = shape->batch >= threads && shape->batch > 1 ? threads : 1;
    l->cut = trii_product_cut_for(shape->m, shape->n, threads, copied);
    /* the library divides what we do not, and then makes copies itself */
    copied &= l->batch_parts == 1 && l->cut.row_parts * l->cut.column_parts == threads;
    if (copied) {
        int64_t columns = trii_product_columns(&l->cut, shape->n);

        l->panel = PANEL_FLOATS / shape->k / TRII_CUT_COLUMNS * TRII_CUT_COLUMNS;
        if (l->panel < PANEL_COLUMNS)
            l->panel = PANEL_COLUMNS;
        if (l->panel > columns)
            l->panel = (columns + TRII_CUT_COLUMNS - 1) / TRII_CUT_COLUMNS * TRII_CUT_COLUMNS;
        l->base.scratch_bytes =
            (size_t)(l->cut.row_parts * l->cut.column_parts * l->panel * shape->k) * sizeof(float);
    }
    *kernel_out = &l->base;
    return TRI_OK;
}
