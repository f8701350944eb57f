/*
 * products_bf16.c - products of bf16: the library multiplies into f32, each thread a rectangle of
 * the result; then the bias is added and the result rounded while it is in the cache. Where the
 * library has no products of bf16, gemm_widened.c does it. Called by products.c.
 *
 * Primitives for fixed sizes are no faster (measured without AMX) and are compiled again for each
 * length of a sequence.
 */
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "train/device/cpu/cpu_parallel.h"
#include "train/device/cpu/gemm_widened.h"
#include "train/device/cpu/onednn/onednn.h"
#include "train/device/cpu/products_bf16.h"
#include "train/device/cpu/products_cut.h"

#define TILE_FLOATS (INT64_C(1) << 20)
/* columns of a tile at least: the right side is packed for each tile */
#define TILE_ROWS 256
#define PARALLEL_MUL_ADDS (INT64_C(1) << 18) /* for a thread */
#define BIAS_FLOATS 512
#define ROUND_ELEMENTS (INT64_C(1) << 14) /* for a thread */

typedef struct narrow {
    trii_kernel base;
    trii_matmul_shape s; /* b in the form in which it is multiplied */
    int arg[5];
    int64_t b_lines, b_line, b_distance; /* b in f32: contiguous pieces; elements; from, to */
    size_t b_bytes;                      /* rounded b, at the start of the scratch */
    trii_product_cut cut;                /* parts of a product, for the threads; or, */
    int64_t batch_parts;                 /* if there are enough products, parts of their number */
    int64_t parts;                       /* rows or columns of a tile */
    /* floats of a part; 0 = results go straight to where they belong */
    int64_t tile;
    bool is_widened;
    int64_t widened; /* floats of a part, after all tiles: for gemm_widened.c */
} narrow;

typedef struct narrow_run {
    const narrow *l;
    void *const *args;
    const uint16_t *b;
    int64_t product; /* the product that is computed, if they are computed one by one */
    atomic_int failed;
} narrow_run;

static size_t result_size(const trii_matmul_shape *s)
{
    return s->c_is_f32 ? sizeof(float) : sizeof(uint16_t);
}

static int64_t tile_rows(const trii_matmul_shape *s, const trii_rectangle *r)
{
    int64_t rows = TILE_FLOATS / r->columns;

    if (s->c_is_f32 || rows > r->rows)
        return r->rows;
    rows = rows / 16 * 16;
    return rows > TILE_ROWS ? rows : r->rows < TILE_ROWS ? r->rows : TILE_ROWS;
}

/* The bias, repeated if rows of sums are short and contiguous: for so many rows. */
static int64_t repeat_bias(const narrow_run *run, const trii_rectangle *r, int64_t distance,
                           float *rows)
{
    const float *bias = (const float *)run->args[run->l->arg[2]] + r->column;
    int64_t n = distance == r->columns && r->columns < BIAS_FLOATS ? BIAS_FLOATS / r->columns : 1;

    for (int64_t i = 0; i < n && n > 1; i++)
        memcpy(rows + i * r->columns, bias, (size_t)r->columns * sizeof(float));
    return n;
}

static void add_bias(const narrow_run *run, const trii_rectangle *r, float *sums, int64_t distance)
{
    const trii_ew_fn add = trii_cpu_kernels_get()->ew[TRII_EW_add];
    const float *bias = (const float *)run->args[run->l->arg[2]] + r->column;
    float rows[BIAS_FLOATS];
    int64_t n = repeat_bias(run, r, distance, rows);

    for (int64_t i = 0; i < r->rows; i += n) {
        int64_t now = r->rows - i < n ? r->rows - i : n;

        add(sums + i * distance, sums + i * distance, n > 1 ? rows : bias, NULL,
            (size_t)(now * r->columns), NULL);
    }
}

static void round_tile(const narrow_run *run, const trii_rectangle *r, const float *tile,
                       uint16_t *c)
{
    const trii_cpu_kernels *kernels = trii_cpu_kernels_get();
    int64_t c_row = run->l->s.c_row;

    if (c_row == r->columns) {
        kernels->to_bf16(c, tile, (size_t)(r->rows * r->columns));
        return;
    }
    for (int64_t i = 0; i < r->rows; i++)
        kernels->to_bf16(c + i * c_row, tile + i * r->columns, (size_t)r->columns);
}

/* Rectangle r of product q. */
static void multiply(narrow_run *run, int64_t part, int64_t q, const trii_rectangle *r)
{
    const narrow *l = run->l;
    const trii_matmul_shape *s = &l->s;
    float *tiles = (float *)((char *)run->args[l->arg[4]] + l->b_bytes);
    float *tile = tiles + part * l->tile, *widened = tiles + l->parts * l->tile + part * l->widened;
    trii_rectangle now = *r;
    int64_t most = tile_rows(s, r);

    for (int64_t i = 0; i < r->rows; i += most) {
        char *c;
        trii_gemm_bf16_args g;
        int failed;

        now.row = r->row + i;
        now.rows = r->rows - i < most ? r->rows - i : most;
        c = (char *)run->args[l->arg[3]] +
            (size_t)(q * s->c_batch + now.row * s->c_row + now.column) * result_size(s);
        g = (trii_gemm_bf16_args){.m = now.rows,
                                  .n = now.columns,
                                  .k = s->k,
                                  .a = (const uint16_t *)run->args[l->arg[0]] + q * s->a_batch +
                                       now.row * s->a_row,
                                  .b = run->b + q * s->b_batch + now.column * s->b_col,
                                  .a_row = s->a_row,
                                  .a_col = s->a_col,
                                  .b_row = s->b_row,
                                  .b_col = s->b_col,
                                  .c = s->c_is_f32 ? (float *)(void *)c : tile,
                                  .c_row = s->c_is_f32 ? s->c_row : now.columns};
        failed = l->is_widened ? trii_gemm_widened(&g, widened) : trii_onednn_gemm_bf16(&g);
        if (failed != 0) {
            atomic_store_explicit(&run->failed, failed, memory_order_relaxed);
            return;
        }
        if (s->bias)
            add_bias(run, &now, g.c, g.c_row);
        if (!s->c_is_f32)
            round_tile(run, &now, tile, (uint16_t *)(void *)c);
    }
}

static trii_rectangle rectangle_of(const narrow *l, int64_t part)
{
    if (l->batch_parts > 1)
        return (trii_rectangle){.rows = l->s.m, .columns = l->s.n};
    return trii_product_part(&l->cut, l->s.m, l->s.n, part);
}

static void run_parts(void *ctx, int64_t begin, int64_t end)
{
    narrow_run *run = ctx;
    const narrow *l = run->l;

    for (int64_t part = begin; part < end; part++) {
        trii_rectangle r = rectangle_of(l, part);
        int64_t q = run->product, last = q + 1;

        if (l->batch_parts > 1) {
            q = trii_part_begin(l->s.batch, 1, part, l->parts);
            last = trii_part_begin(l->s.batch, 1, part + 1, l->parts);
        }
        for (; q < last && r.rows > 0 && r.columns > 0; q++)
            multiply(run, part, q, &r);
    }
}

static void round_lines(void *ctx, int64_t begin, int64_t end)
{
    const narrow_run *run = ctx;
    const narrow *l = run->l;
    const float *from = run->args[l->arg[1]];
    uint16_t *to = run->args[l->arg[4]];

    for (int64_t i = begin; i < end; i++)
        trii_cpu_kernels_get()->to_bf16(to + i * l->b_line, from + i * l->b_distance,
                                        (size_t)l->b_line);
}

static tri_status narrow_execute(const trii_kernel *kernel, void *const *args, const trii_run *r)
{
    const narrow *l = (const narrow *)kernel;
    narrow_run run = {.l = l, .args = args, .b = args[l->arg[l->b_bytes > 0 ? 4 : 1]]};

    (void)r;
    if (l->b_bytes > 0)
        trii_parallel_for(l->b_lines, ROUND_ELEMENTS / l->b_line + 1, round_lines, &run);
    for (; run.product < (l->batch_parts > 1 ? 1 : l->s.batch) && run.failed == 0; run.product++)
        trii_parallel_for(l->parts, 1, run_parts, &run);
    return trii_onednn_gemm_bf16_status(run.failed);
}

/* Rounds b in f32 in the order that it has, without gaps between its lines. */
static void plan_rounding(narrow *l)
{
    trii_matmul_shape *s = &l->s;
    const bool rows = s->b_col == 1;

    if (!s->b_is_f32)
        return;
    l->b_line = rows ? s->n : s->k;
    l->b_lines = rows ? s->k : s->n;
    l->b_distance = rows ? s->b_row : s->b_col;
    l->b_bytes = ((size_t)(s->k * s->n) * sizeof(uint16_t) + 63) / 64 * 64;
    s->b_row = rows ? s->n : 1;
    s->b_col = rows ? 1 : s->k;
}

/* Whole cache lines, so that no two parts share one. */
static int64_t at_least(int64_t most, int64_t floats)
{
    return floats > most ? (floats + 15) / 16 * 16 : most;
}

static void plan_tiles(narrow *l)
{
    const trii_matmul_shape *s = &l->s;

    for (int64_t i = 0; i < l->parts; i++) {
        trii_rectangle r = rectangle_of(l, i);
        int64_t rows = r.rows == 0 || r.columns == 0 ? 0 : tile_rows(s, &r);

        if (!s->c_is_f32)
            l->tile = at_least(l->tile, rows * r.columns);
        if (l->is_widened && rows > 0)
            l->widened = at_least(l->widened, trii_gemm_widened_floats(rows, r.columns, s->k));
    }
    l->base.scratch_bytes =
        l->b_bytes + (size_t)(l->parts * (l->tile + l->widened)) * sizeof(float);
}

tri_status trii_cpu_bf16_product(const trii_matmul_shape *shape, const int args[5],
                                 const char *name, trii_kernel **kernel_out)
{
    const int64_t mul_adds = shape->batch * shape->m * shape->n * shape->k;
    int64_t threads = trii_parallel_threads();
    bool is_widened = !trii_onednn_has_bf16();
    tri_status status = is_widened ? trii_onednn_sgemm_ready() : trii_onednn_gemm_bf16_ready();
    narrow *l;

    if (status == TRI_OK && shape->b_is_f32 && shape->b_batch > 0)
        status = TRI_ERR_UNSUPPORTED; /* a parameter is one matrix */
    if (status != TRI_OK)
        return status;
    l = trii_alloc(1, sizeof(*l), "kernel");
    if (l == NULL)
        return TRI_ERR_NO_MEMORY;
    if (mul_adds / PARALLEL_MUL_ADDS < threads)
        threads = mul_adds / PARALLEL_MUL_ADDS + 1;
    l->is_widened = is_widened;
    l->s = *shape;
    for (int i = 0; i < 5; i++)
        l->arg[i] = args[i];
    l->base = (trii_kernel){.name = name, .run = narrow_execute, .destroy = trii_cpu_kernel_free};
    l->cut = trii_product_cut_for(shape->m, shape->n, threads, shape->b_col != 1);
    l->batch_parts = shape->batch >= threads && shape->batch > 1 ? threads : 1;
    l->parts = l->batch_parts > 1 ? threads : l->cut.row_parts * l->cut.column_parts;
    plan_rounding(l);
    plan_tiles(l);
    *kernel_out = &l->base;
    return TRI_OK;
}
