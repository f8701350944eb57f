/*
 * topk.c - the k largest or smallest elements along one dimension, in order, in f32 and f64, on all
 * threads.
 *
 * An element becomes a *rank*, a number of 128 bits that is lower the earlier it comes: its value
 * as an integer in the upper half, its place in the lower. No two are equal, so there is only one
 * answer, and however it is found it has the same bits.
 *
 * An element is kept if its rank is below the k-th lowest known so far, which for most is decided
 * by comparing values, many at once. When a list of 2 k is full, it is sorted and cut down to k.
 * Where there are too few rows for all threads they are cut into parts, whose lists are merged in
 * pairs: each piece of a merged list finds by itself where it begins in both.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "train/device/cpu/cpu_ops.h"
#include "train/device/cpu/cpu_parallel.h"
#include "train/graph/ops/reduce_rules.h"
#include "train/graph/ops/walks.h"

#define STRIP 64         /* columns that are read beside each other, */
#define STRIP_RANKS 8192 /* as long as their lists together are not longer */
#define AHEAD 16         /* elements that are compared at once */
#define PART_ELEMS 16384 /* of a part, at least */
#define MIN_ROOM 16      /* of a list */
#define RUN 12           /* ranks that are sorted one by one */
#define PIECE 4096       /* of a merged list */
#define GRAIN 32768      /* elements for a thread */

__extension__ typedef unsigned __int128 rank;

typedef struct topk {
    trii_kernel base;
    trii_around size;
    int64_t k;
    bool largest, nan_first, wide; /* wide: f64 */
    int64_t strips, width;         /* of columns; the last is narrower */
    int64_t part, parts;           /* elements of a column; the last is shorter */
    int64_t items, slots;          /* parts of strips; those who share them: items with parts */
    int64_t room;                  /* of a list */
    int64_t lists;
    int x, values, indices, scratch; /* arguments */
} topk;

typedef struct topk_run {
    const topk *k;
    const void *x;
    void *values;
    int64_t *indices;
    rank *lists, *work; /* [lists, room] */
    int64_t span;       /* parts whose ranks are one list already */
} topk_run;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* --- ranks ---------------------------------------------------------------- */

static rank rank_of(const topk *k, double x, int64_t at)
{
    uint64_t key;

    x += 0.0; /* -0 and 0 are equal */
    memcpy(&key, &x, sizeof(key));
    key = key >> 63 != 0 ? ~key : key | UINT64_C(1) << 63;
    if (k->largest)
        key = ~key;
    if (x != x)
        key = k->nan_first ? 0 : UINT64_MAX;
    return (rank)key << 64 | (uint64_t)at;
}

static int64_t place_of(rank r)
{
    return (int64_t)(uint64_t)r;
}

/* How many of the first n of the merged list come from a. */
static int64_t share_of(const rank *a, int64_t n_a, const rank *b, int64_t n_b, int64_t n)
{
    int64_t low = n > n_b ? n - n_b : 0, high = least(n, n_a);

    while (low < high) {
        int64_t middle = low + (high - low) / 2;

        if (a[middle] < b[n - 1 - middle])
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Elements [begin, end) of the merged list, to their places in it. */
static void merge(const rank *a, int64_t n_a, const rank *b, int64_t n_b, rank *to, int64_t begin,
                  int64_t end)
{
    int64_t i = share_of(a, n_a, b, n_b, begin), j = begin - i;

    while (begin < end && i < n_a && j < n_b) {
        bool second = b[j] < a[i];

        to[begin++] = second ? b[j] : a[i];
        i += !second;
        j += second;
    }
    while (begin < end)
        to[begin++] = i < n_a ? a[i++] : b[j++];
}

static void sort(rank *ranks, int64_t n, rank *work)
{
    rank *from = ranks, *to = work;

    for (int64_t at = 0; at < n; at += RUN) {
        for (int64_t i = at + 1; i < n && i < at + RUN; i++) {
            rank r = ranks[i];
            int64_t j = i;

            for (; j > at && r < ranks[j - 1]; j--)
                ranks[j] = ranks[j - 1];
            ranks[j] = r;
        }
    }
    for (int64_t width = RUN; width < n; width *= 2) {
        rank *other = from;

        for (int64_t at = 0; at < n; at += 2 * width) {
            int64_t n_a = least(width, n - at), n_b = least(width, n - at - n_a);

            merge(from + at, n_a, from + at + n_a, n_b, to + at, 0, n_a + n_b);
        }
        from = to;
        to = other;
    }
    if (from != ranks)
        memcpy(ranks, from, (size_t)n * sizeof(*ranks));
}

/* --- lists ---------------------------------------------------------------- */

/* The lowest ranks of what has been read. */
typedef struct list {
    rank *ranks;
    rank bound; /* none from here on is among them */
    int64_t n;
} list;

static void cut_down(const topk *k, list *l, rank *work)
{
    sort(l->ranks, l->n, work);
    if (l->n >= k->k) {
        l->n = k->k;
        l->bound = l->ranks[k->k - 1];
    }
}

static void take(const topk *k, list *l, rank r, rank *work)
{
    if (r < l->bound && l->n == k->room)
        cut_down(k, l, work);
    if (r < l->bound)
        l->ranks[l->n++] = r;
}

/* A part of a strip of columns. */
typedef struct piece {
    int64_t row, column; /* of the result: before and after the dimension */
    int64_t width, begin, end;
} piece;

static piece piece_of(const topk *k, int64_t item)
{
    int64_t part = item % k->parts, strip = item / k->parts % k->strips;
    piece p = {.row = item / k->parts / k->strips, .column = strip * k->width};

    p.width = least(k->width, k->size.inner - p.column);
    p.begin = part * k->part;
    p.end = least(p.begin + k->part, k->size.n);
    return p;
}

/* Whether all of x are above their limits, or equal, which of later ones means above; of NaN and
 * where a limit is NaN it is not known. */
#define READ(T)                                                                                    \
    static inline bool are_above_##T(const T *x, T sign, const T *limit, int64_t n)                \
    {                                                                                              \
        int some = 0;                                                                              \
                                                                                                   \
        for (int64_t c = 0; c < n; c++)                                                            \
            some |= !(sign * x[c] <= limit[c]);                                                    \
        return some == 0;                                                                          \
    }                                                                                              \
                                                                                                   \
    /* What the list has no room for; NaN: it takes all. x is its column. */                       \
    static T limit_of_##T(const topk *k, const T *x, T sign, const list *l)                        \
    {                                                                                              \
        return l->bound == ~(rank)0 ? (T)NAN : sign * x[place_of(l->bound) * k->size.inner];       \
    }                                                                                              \
                                                                                                   \
    static void read_row_##T(const topk *k, const T *x, const piece *p, list *l, rank *work)       \
    {                                                                                              \
        T sign = k->largest ? 1 : -1, limit[AHEAD];                                                \
        int64_t i = p->begin;                                                                      \
                                                                                                   \
        while (i < p->end) {                                                                       \
            T now = limit_of_##T(k, x, sign, l);                                                   \
            int64_t end;                                                                           \
                                                                                                   \
            for (int c = 0; c < AHEAD; c++)                                                        \
                limit[c] = now;                                                                    \
            while (p->end - i >= AHEAD && are_above_##T(x + i, sign, limit, AHEAD))                \
                i += AHEAD;                                                                        \
            for (end = least(i + AHEAD, p->end); i < end; i++)                                     \
                take(k, l, rank_of(k, (double)x[i], i), work);                                     \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    static void read_columns_##T(const topk *k, const T *x, const piece *p, list *lists,           \
                                 rank *work)                                                       \
    {                                                                                              \
        T sign = k->largest ? 1 : -1, limit[STRIP] = {0};                                          \
                                                                                                   \
        for (int64_t c = 0; c < p->width; c++)                                                     \
            limit[c] = limit_of_##T(k, x + c, sign, &lists[c]);                                    \
        for (int64_t i = p->begin; i < p->end; i++) {                                              \
            const T *at = x + i * k->size.inner;                                                   \
                                                                                                   \
            for (int64_t c = 0, n; c < p->width; c += n) {                                         \
                n = p->width - c >= AHEAD ? AHEAD : 1;                                             \
                if (n == AHEAD ? are_above_##T(at + c, sign, limit + c, AHEAD)                     \
                               : sign * at[c] <= limit[c])                                         \
                    continue;                                                                      \
                for (int64_t j = c; j < c + n; j++) {                                              \
                    take(k, &lists[j], rank_of(k, (double)at[j], i), work);                        \
                    limit[j] = limit_of_##T(k, x + j, sign, &lists[j]);                            \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    static void read_##T(const topk *k, const T *x, const piece *p, list *lists, rank *work)       \
    {                                                                                              \
        x += p->row * k->size.n * k->size.inner + p->column;                                       \
        if (k->size.inner == 1)                                                                    \
            read_row_##T(k, x, p, lists, work);                                                    \
        else                                                                                       \
            read_columns_##T(k, x, p, lists, work);                                                \
    }                                                                                              \
                                                                                                   \
    static void write_##T(const topk_run *run, int64_t row, int64_t column, const rank *ranks,     \
                          int64_t begin, int64_t end)                                              \
    {                                                                                              \
        const topk *k = run->k;                                                                    \
        int64_t inner = k->size.inner, at = row * k->k * inner + column;                           \
        const T *x = (const T *)run->x + row * k->size.n * inner + column;                         \
                                                                                                   \
        for (int64_t i = begin; i < end; i++) {                                                    \
            int64_t place = place_of(ranks[i]);                                                    \
                                                                                                   \
            ((T *)run->values)[at + i * inner] = x[place * inner];                                 \
            run->indices[at + i * inner] = place;                                                  \
        }                                                                                          \
    }
READ(float)
READ(double)

static void put(const topk_run *run, int64_t row, int64_t column, const rank *ranks, int64_t begin,
                int64_t end)
{
    if (run->k->wide)
        write_double(run, row, column, ranks, begin, end);
    else
        write_float(run, row, column, ranks, begin, end);
}

/* Makes the lists of an item; without parts they are the result. */
static void read_item(const topk_run *run, int64_t slot, int64_t item)
{
    const topk *k = run->k;
    piece p = piece_of(k, item);
    int64_t step = k->parts, first = slot * k->width;
    list lists[STRIP];
    rank *work;

    if (k->parts > 1)
        first = (p.row * k->size.inner + p.column) * k->parts + item % k->parts;
    work = run->work + first * k->room;
    assert(p.width > 0 && p.width <= STRIP);
    for (int64_t c = 0; c < p.width; c++)
        lists[c] = (list){.ranks = run->lists + (first + c * step) * k->room, .bound = ~(rank)0};
    if (k->wide)
        read_double(k, run->x, &p, lists, work);
    else
        read_float(k, run->x, &p, lists, work);
    for (int64_t c = 0; c < p.width; c++) {
        cut_down(k, &lists[c], work);
        if (k->parts == 1)
            put(run, p.row, p.column + c, lists[c].ranks, 0, k->k);
    }
}

static void read_range(void *ctx, int64_t begin, int64_t end)
{
    const topk_run *run = ctx;
    const topk *k = run->k;

    for (int64_t slot = begin; slot < end; slot++) {
        for (int64_t i = k->items * slot / k->slots; i < k->items * (slot + 1) / k->slots; i++)
            read_item(run, slot, i);
    }
}

/* Ranks in the list of the parts [part, part + span). */
static int64_t length_of(const topk *k, int64_t part, int64_t span)
{
    int64_t begin = least(part * k->part, k->size.n);
    int64_t end = least((part + span) * k->part, k->size.n);

    return least(end - begin, k->k);
}

static int64_t pieces_of(const topk *k, int64_t span)
{
    return (length_of(k, 0, span) + PIECE - 1) / PIECE;
}

/* Items: pieces of the lists of twice as many parts. */
static void merge_range(void *ctx, int64_t begin, int64_t end)
{
    const topk_run *run = ctx;
    const topk *k = run->k;
    int64_t span = run->span, pairs = (k->parts + 2 * span - 1) / (2 * span);
    int64_t pieces = pieces_of(k, 2 * span);

    assert(pairs > 0 && pieces > 0);
    for (int64_t item = begin; item < end; item++) {
        int64_t part = item / pieces % pairs * 2 * span, row = item / pieces / pairs;
        int64_t first = (row * k->parts + part) * k->room, at = item % pieces * PIECE;
        const rank *a = run->lists + first;

        merge(a, length_of(k, part, span), a + span * k->room, length_of(k, part + span, span),
              run->work + first, at, least(at + PIECE, length_of(k, part, 2 * span)));
    }
}

static void write_range(void *ctx, int64_t begin, int64_t end)
{
    const topk_run *run = ctx;
    const topk *k = run->k;
    int64_t pieces = pieces_of(k, k->parts), inner = k->size.inner;

    assert(pieces > 0 && inner > 0);
    for (int64_t item = begin; item < end; item++) {
        int64_t row = item / pieces, at = item % pieces * PIECE;

        put(run, row / inner, row % inner, run->lists + row * k->parts * k->room, at,
            least(at + PIECE, k->k));
    }
}

static tri_status topk_run_kernel(const trii_kernel *kernel, void *const *args,
                                  const trii_run *unused)
{
    const topk *k = (const topk *)kernel;
    topk_run run = {
        .k = k, .x = args[k->x], .values = args[k->values], .indices = args[k->indices]};
    int64_t rows = k->size.outer * k->size.inner;

    (void)unused;
    run.lists = args[k->scratch];
    run.work = run.lists + k->lists * k->room;
    trii_parallel_for(k->slots, 1, read_range, &run);
    if (k->parts == 1)
        return TRI_OK;
    for (run.span = 1; run.span < k->parts; run.span *= 2) {
        int64_t pairs = (k->parts + 2 * run.span - 1) / (2 * run.span);
        rank *merged = run.work;

        trii_parallel_for(rows * pairs * pieces_of(k, 2 * run.span), 4, merge_range, &run);
        run.work = run.lists;
        run.lists = merged;
    }
    trii_parallel_for(rows * pieces_of(k, k->parts), 4, write_range, &run);
    return TRI_OK;
}

/* --- compiling ------------------------------------------------------------ */

static bool topk_takes(const trii_ir *ir, const trii_ir_node *node)
{
    return trii_type_numel(trii_out_type(ir, node, 0)) > 0;
}

static void cut(topk *k)
{
    const trii_around *s = &k->size;
    int64_t items, threads = trii_parallel_threads();

    k->width = 1;
    k->room = 2 * k->k > MIN_ROOM ? 2 * k->k : MIN_ROOM;
    while (k->width < STRIP && 2 * k->width <= s->inner && 2 * k->width * k->room <= STRIP_RANKS)
        k->width *= 2;
    k->strips = (s->inner + k->width - 1) / k->width;
    items = s->outer * k->strips;
    k->parts = least((threads + items - 1) / items, s->n * k->width / PART_ELEMS);
    k->parts = k->parts > 1 ? least(k->parts, s->n) : 1;
    k->part = (s->n + k->parts - 1) / k->parts;
    k->parts = (s->n + k->part - 1) / k->part;
    k->room = least(k->room, k->part);
    k->items = items * k->parts;
    k->slots = k->items;
    k->lists = s->outer * s->inner * k->parts;
    if (k->parts == 1) {
        k->slots = least(threads, s->outer * s->n * s->inner / GRAIN);
        k->slots = k->slots > 1 ? least(k->slots, items) : 1;
        k->lists = k->slots * k->width;
    }
}

static tri_status topk_compile(const trii_ir *ir, const trii_group *group, trii_kernel **kernel_out)
{
    const trii_ir_node *node = &ir->nodes[group->nodes[0]];
    const trii_type *x = trii_in_type(ir, node, 0);
    topk *k = trii_alloc(1, sizeof(*k), "kernel");

    if (k == NULL)
        return TRI_ERR_NO_MEMORY;
    k->base = (trii_kernel){
        .name = node->op->name, .run = topk_run_kernel, .destroy = trii_cpu_kernel_free};
    k->size = trii_around_of(x, node->iattr[0]);
    k->k = node->iattr[1];
    k->largest = node->iattr[2] == TRII_TOPK_LARGEST;
    k->nan_first = node->iattr[2] != TRII_TOPK_SMALLEST;
    k->wide = x->dtype == TRI_DTYPE_F64;
    k->x = trii_group_in(group, node->in[0]);
    k->values = group->n_in + trii_group_out(group, node->out[0]);
    k->indices = group->n_in + trii_group_out(group, node->out[1]);
    k->scratch = group->n_in + group->n_out;
    cut(k);
    k->base.scratch_bytes = 2 * (size_t)(k->lists * k->room) * sizeof(rank);
    *kernel_out = &k->base;
    return TRI_OK;
}

const trii_cpu_family trii_cpu_topk = {
    .op = {&trii_op_topk}, .takes = topk_takes, .compile = topk_compile};
