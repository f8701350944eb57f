/*
 * cumsum.c - cumulative sums in f32 and f64 along one dimension, on all threads.
 *
 * Independent elements are worked on together: four rows if the dimension is the last one, else a
 * strip of columns. Where long sums are too few for all threads they are cut into blocks, by the
 * shape alone: first each block is added up, then each starts from the sum of those before it.
 * Everything is in f64, in an order that does not depend on the threads, so neither do the bits. An
 * element is the sum before its block plus the sum within the block. Neither of them falls while
 * the elements are not negative, so the result does not either.
 */
#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "train/device/cpu/cpu_ops.h"
#include "train/device/cpu/cpu_parallel.h"
#include "train/graph/ops/walks.h"

#define STRIP 128         /* columns that are added beside each other */
#define ROWS 4            /* rows, likewise */
#define BLOCK_ELEMS 16384 /* elements of a block */
#define FEW_ITEMS 16      /* with so many, no blocks are needed */
#define GRAIN 32768       /* elements for a thread */

typedef struct cumsum {
    trii_kernel base;
    trii_around size;
    bool back, wide;       /* from the end; f64 */
    int64_t strips, width; /* of columns; the last is narrower */
    int64_t block, blocks; /* elements of a column; the last is shorter */
    int64_t items, grain;  /* a block of a strip; threads get at least so many */
    int x, y, scratch;     /* arguments */
} cumsum;

typedef struct cumsum_run {
    const cumsum *k;
    const void *x;
    void *y;        /* NULL: only the sum of each block is needed */
    double *before; /* [blocks, outer, inner]: the sums of blocks, then of all blocks before */
} cumsum_run;

/* A block of a strip. */
typedef struct piece {
    int64_t first, n, width; /* the element that is added first; elements of a column; columns */
    double *before;
} piece;

static piece piece_of(const cumsum_run *run, int64_t item)
{
    const cumsum *k = run->k;
    int64_t b = item % k->blocks, strip = item / k->blocks % k->strips;
    int64_t o = item / k->blocks / k->strips, column = strip * k->width, at = b * k->block;
    piece p = {.n = k->block, .width = k->width};

    if (p.n > k->size.n - at)
        p.n = k->size.n - at;
    if (p.width > k->size.inner - column)
        p.width = k->size.inner - column;
    if (k->back)
        at = k->size.n - 1 - at;
    p.first = (o * k->size.n + at) * k->size.inner + column;
    if (run->before != NULL)
        p.before = run->before + (b * k->size.outer + o) * k->size.inner + column;
    return p;
}

/* With step 1 or -1, rows; with a stride, columns. */
#define CUMSUM(T)                                                                                  \
    static void rows_##T(const T *const *x, T *const *y, const double *before, double *sum,        \
                         int64_t step, int64_t n)                                                  \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++) {                                                          \
            for (int r = 0; r < ROWS; r++) {                                                       \
                sum[r] += (double)x[r][i * step];                                                  \
                y[r][i * step] = (T)(before[r] + sum[r]);                                          \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    static void totals_##T(const T *const *x, double *sum, int64_t step, int64_t n)                \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++) {                                                          \
            for (int r = 0; r < ROWS; r++)                                                         \
                sum[r] += (double)x[r][i * step];                                                  \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    static void row_##T(const T *x, T *y, double before, double *sum, int64_t step, int64_t n)     \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++) {                                                          \
            *sum += (double)x[i * step];                                                           \
            if (y != NULL)                                                                         \
                y[i * step] = (T)(before + *sum);                                                  \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    /* Up to ROWS pieces of one column each. */                                                    \
    static void some_rows_##T(const cumsum_run *run, const piece *p, int n_rows)                   \
    {                                                                                              \
        int64_t step = run->k->back ? -1 : 1, n = n_rows == ROWS ? run->k->block : 0;              \
        const T *x[ROWS] = {NULL};                                                                 \
        T *y[ROWS] = {NULL};                                                                       \
        double before[ROWS] = {0}, sum[ROWS] = {0};                                                \
                                                                                                   \
        for (int r = 0; r < n_rows; r++) {                                                         \
            assert(run->y != NULL || p[r].before != NULL);                                         \
            x[r] = (const T *)run->x + p[r].first;                                                 \
            if (run->y != NULL)                                                                    \
                y[r] = (T *)run->y + p[r].first;                                                   \
            if (run->y != NULL && p[r].before != NULL)                                             \
                before[r] = *p[r].before;                                                          \
            n = p[r].n < n ? p[r].n : n;                                                           \
        }                                                                                          \
        assert(n == 0 || (x[ROWS - 1] != NULL && (run->y == NULL || y[ROWS - 1] != NULL)));        \
        if (n > 0 && run->y != NULL)                                                               \
            rows_##T(x, y, before, sum, step, n);                                                  \
        else if (n > 0)                                                                            \
            totals_##T(x, sum, step, n);                                                           \
        for (int r = 0; r < n_rows; r++) {                                                         \
            row_##T(x[r] + n * step, y[r] != NULL ? y[r] + n * step : NULL, before[r], &sum[r],    \
                    step, p[r].n - n);                                                             \
            if (run->y == NULL)                                                                    \
                *p[r].before = sum[r];                                                             \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    static inline void strip_##T(const T *x, T *y, const double *before, double *sum,              \
                                 int64_t step, int64_t n, int64_t width)                           \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++) {                                                          \
            for (int64_t c = 0; c < width; c++)                                                    \
                sum[c] += (double)x[i * step + c];                                                 \
            for (int64_t c = 0; y != NULL && c < width; c++)                                       \
                y[i * step + c] = (T)(before[c] + sum[c]);                                         \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    static void columns_##T(const cumsum_run *run, const piece *p)                                 \
    {                                                                                              \
        int64_t step = run->k->back ? -run->k->size.inner : run->k->size.inner;                    \
        const T *x = (const T *)run->x + p->first;                                                 \
        T *y = run->y != NULL ? (T *)run->y + p->first : NULL;                                     \
        double before[STRIP] = {0}, sum[STRIP] = {0};                                              \
                                                                                                   \
        assert(p->width <= STRIP && (y != NULL || p->before != NULL));                             \
        if (y != NULL && p->before != NULL)                                                        \
            memcpy(before, p->before, (size_t)p->width * sizeof(*before));                         \
        if (p->width == STRIP) /* tells the compiler */                                            \
            strip_##T(x, y, before, sum, step, p->n, STRIP);                                       \
        else                                                                                       \
            strip_##T(x, y, before, sum, step, p->n, p->width);                                    \
        if (y == NULL)                                                                             \
            memcpy(p->before, sum, (size_t)p->width * sizeof(*sum));                               \
    }
CUMSUM(float)
CUMSUM(double)

static void range(void *ctx, int64_t begin, int64_t end)
{
    const cumsum_run *run = ctx;
    int at_once = run->k->size.inner == 1 ? ROWS : 1;
    piece p[ROWS];

    while (begin < end) {
        int n = end - begin < at_once ? (int)(end - begin) : at_once;

        assert(n > 0);
        for (int r = 0; r < n; r++)
            p[r] = piece_of(run, begin++);
        if (at_once > 1 && run->k->wide)
            some_rows_double(run, p, n);
        else if (at_once > 1)
            some_rows_float(run, p, n);
        else if (run->k->wide)
            columns_double(run, p);
        else
            columns_float(run, p);
    }
}

/* Sums of blocks become sums of those before. */
static void add_blocks(const cumsum_run *run)
{
    int64_t n = run->k->size.outer * run->k->size.inner;

    for (int64_t i = 0; i < n; i++) {
        double sum = 0;

        for (int64_t b = 0; b < run->k->blocks; b++) {
            double next = sum + run->before[b * n + i];

            run->before[b * n + i] = sum;
            sum = next;
        }
    }
}

static tri_status cumsum_run_kernel(const trii_kernel *kernel, void *const *args,
                                    const trii_run *unused)
{
    const cumsum *k = (const cumsum *)kernel;
    cumsum_run run = {.k = k, .x = args[k->x]};

    (void)unused;
    if (k->blocks > 1) {
        run.before = args[k->scratch];
        trii_parallel_for(k->items, k->grain, range, &run);
        add_blocks(&run);
    }
    run.y = args[k->y];
    trii_parallel_for(k->items, k->grain, range, &run);
    return TRI_OK;
}

static bool cumsum_takes(const trii_ir *ir, const trii_ir_node *node)
{
    return trii_type_numel(trii_in_type(ir, node, 0)) > 0;
}

static void cut(cumsum *k)
{
    const trii_around *s = &k->size;

    k->width = s->inner < STRIP ? s->inner : STRIP;
    k->strips = (s->inner + k->width - 1) / k->width;
    k->block = s->n;
    k->blocks = 1;
    if (s->outer * k->strips < FEW_ITEMS && s->n > BLOCK_ELEMS / k->width) {
        k->block = BLOCK_ELEMS / k->width;
        k->blocks = (s->n + k->block - 1) / k->block;
    }
    k->items = s->outer * k->strips * k->blocks;
    k->grain = 1 + GRAIN / (k->block * k->width);
}

static tri_status cumsum_compile(const trii_ir *ir, const trii_group *group,
                                 trii_kernel **kernel_out)
{
    const trii_ir_node *node = &ir->nodes[group->nodes[0]];
    const trii_type *x = trii_in_type(ir, node, 0);
    cumsum *k = trii_alloc(1, sizeof(*k), "kernel");

    if (k == NULL)
        return TRI_ERR_NO_MEMORY;
    k->base = (trii_kernel){
        .name = node->op->name, .run = cumsum_run_kernel, .destroy = trii_cpu_kernel_free};
    k->size = trii_around_of(x, node->iattr[0]);
    k->back = node->iattr[1] != 0;
    k->wide = x->dtype == TRI_DTYPE_F64;
    k->x = trii_group_in(group, node->in[0]);
    k->y = group->n_in;
    k->scratch = group->n_in + group->n_out;
    cut(k);
    if (k->blocks > 1)
        k->base.scratch_bytes =
            (size_t)(k->blocks * k->size.outer * k->size.inner) * sizeof(double);
    *kernel_out = &k->base;
    return TRI_OK;
}

const trii_cpu_family trii_cpu_cumsum = {
    .op = {&trii_op_cumsum}, .takes = cumsum_takes, .compile = cumsum_compile};
