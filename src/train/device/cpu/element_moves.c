/*
 * element_moves.c - copies elements of any type from one order to another, on all threads: views,
 * parts of a joined value, and flip.
 *
 * Dimensions are walked in the order in which they are written, and dimensions that stay together
 * are merged first. If the last one is contiguous in x, rows are copied (or reversed); else two
 * dimensions change places, and tiles of a few cache lines go through a buffer, so that each line
 * is read once and written once, whatever the strides.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/dtype.h"
#include "train/device/cpu/cpu_ops.h"
#include "train/device/cpu/cpu_parallel.h"
#include "train/graph/step/strides.h"

#define LINE 64         /* bytes of a tile's row in the result */
#define WIDE 256        /* and of its row in x: long reads are faster */
#define MIN_BYTES 65536 /* per thread */

typedef struct move_kernel {
    trii_kernel base;
    /* the result's sizes, both strides; one more dimension for numbers of 16 bytes */
    int64_t size[TRI_MAX_DIMS + 1], from[TRI_MAX_DIMS + 1], to[TRI_MAX_DIMS + 1];
    int n_dims;
    int turned; /* the dimension that is contiguous in x, if it is not the last; else -1 */
    int64_t start;
    size_t elem;
    bool added; /* adds to what is there */
    int64_t items, grain;
} move_kernel;

typedef struct move_run {
    const move_kernel *k;
    const char *x;
    char *y;
} move_run;

/* --- rows ----------------------------------------------------------------- */

#define ROW(T)                                                                                     \
    static void row_##T(T *y, int64_t to, const T *x, int64_t from, int64_t n)                     \
    {                                                                                              \
        if (to == 1 && from == 0) {                                                                \
            for (int64_t i = 0; i < n; i++)                                                        \
                y[i] = *x;                                                                         \
        } else if (to == 1 && from == -1) {                                                        \
            for (int64_t i = 0; i < n; i++)                                                        \
                y[i] = x[-i];                                                                      \
        } else {                                                                                   \
            for (int64_t i = 0; i < n; i++)                                                        \
                y[i * to] = x[i * from];                                                           \
        }                                                                                          \
    }
ROW(uint8_t)
ROW(uint16_t)
ROW(uint32_t)
ROW(uint64_t)

static void copy_row(void *y, int64_t to, const void *x, int64_t from, int64_t n, size_t elem)
{
    if (to == 1 && from == 1)
        memcpy(y, x, (size_t)n * elem);
    else if (elem == 1)
        row_uint8_t(y, to, x, from, n);
    else if (elem == 2)
        row_uint16_t(y, to, x, from, n);
    else if (elem == 4)
        row_uint32_t(y, to, x, from, n);
    else
        row_uint64_t(y, to, x, from, n);
}

/* y += x, of f32 or f64 */
static void add_row(void *y, int64_t to, const void *x, int64_t from, int64_t n, size_t elem)
{
    if (elem == sizeof(float)) {
        for (int64_t i = 0; i < n; i++)
            ((float *)y)[i * to] += ((const float *)x)[i * from];
    } else {
        for (int64_t i = 0; i < n; i++)
            ((double *)y)[i * to] += ((const double *)x)[i * from];
    }
}

/* Position in all dimensions but the last and `turned`. */
typedef struct place {
    int64_t at[TRI_MAX_DIMS + 1], x, y;
} place;

static place place_of(const move_kernel *k, int64_t index)
{
    place p = {.x = k->start};

    for (int d = k->n_dims - 2; d >= 0; d--) {
        if (d == k->turned)
            continue;
        p.at[d] = index % k->size[d];
        index /= k->size[d];
        p.x += p.at[d] * k->from[d];
        p.y += p.at[d] * k->to[d];
    }
    return p;
}

static void advance(const move_kernel *k, place *p)
{
    for (int d = k->n_dims - 2; d >= 0; d--) {
        if (d == k->turned)
            continue;
        p->x += k->from[d];
        p->y += k->to[d];
        if (++p->at[d] < k->size[d])
            return;
        p->x -= k->size[d] * k->from[d];
        p->y -= k->size[d] * k->to[d];
        p->at[d] = 0;
    }
}

static void rows_range(void *ctx, int64_t begin, int64_t end)
{
    const move_run *run = ctx;
    const move_kernel *k = run->k;
    int last = k->n_dims - 1;
    int64_t elem = (int64_t)k->elem;
    place p = place_of(k, begin);

    for (int64_t row = begin; row < end; row++, advance(k, &p)) {
        const char *x = run->x + p.x * elem;
        char *y = run->y + p.y * elem;

        if (k->added)
            add_row(y, k->to[last], x, k->from[last], k->size[last], k->elem);
        else
            copy_row(y, k->to[last], x, k->from[last], k->size[last], k->elem);
    }
}

/* --- tiles ---------------------------------------------------------------- */

/* y[j * to + l] = x[l * from + j] */
#define TURN(T)                                                                                    \
    static void turn_##T(T *y, int64_t to, const T *x, int64_t from, int64_t n_j, int64_t n_l)     \
    {                                                                                              \
        T tile[LINE / sizeof(T)][WIDE / sizeof(T)];                                                \
                                                                                                   \
        for (int64_t l = 0; l < n_l; l++)                                                          \
            memcpy(tile[l], x + l * from, (size_t)n_j * sizeof(T));                                \
        for (int64_t j = 0; j < n_j; j++) {                                                        \
            for (int64_t l = 0; l < n_l; l++)                                                      \
                y[j * to + l] = tile[l][j];                                                        \
        }                                                                                          \
    }
TURN(uint8_t)
TURN(uint16_t)
TURN(uint32_t)
TURN(uint64_t)

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Items: bands of the turned dimension, as wide as a tile. */
static void bands_range(void *ctx, int64_t begin, int64_t end)
{
    const move_run *run = ctx;
    const move_kernel *k = run->k;
    int last = k->n_dims - 1, turned = k->turned;
    int64_t elem = (int64_t)k->elem, wide = WIDE / elem, line = LINE / elem, n = k->size[last];
    int64_t from = k->from[last], to = k->to[turned];
    int64_t bands = (k->size[turned] + wide - 1) / wide;

    for (int64_t item = begin; item < end; item++) {
        place p = place_of(k, item / bands);
        int64_t j = item % bands * wide, n_j = least(wide, k->size[turned] - j);
        const char *x = run->x + (p.x + j) * elem;
        char *y = run->y + (p.y + j * to) * elem;

        for (int64_t l = 0; l < n; l += line) {
            int64_t n_l = least(line, n - l);
            const void *tile_x = x + l * from * elem;
            void *tile_y = y + l * elem;

            if (elem == 1)
                turn_uint8_t(tile_y, to, tile_x, from, n_j, n_l);
            else if (elem == 2)
                turn_uint16_t(tile_y, to, tile_x, from, n_j, n_l);
            else if (elem == 4)
                turn_uint32_t(tile_y, to, tile_x, from, n_j, n_l);
            else
                turn_uint64_t(tile_y, to, tile_x, from, n_j, n_l);
        }
    }
}

/* --- the kernel ----------------------------------------------------------- */

static tri_status move_run_kernel(const trii_kernel *kernel, void *const *args, const trii_run *run)
{
    const move_kernel *k = (const move_kernel *)kernel;
    move_run ctx = {k, args[0], args[1]};

    (void)run;
    trii_parallel_for(k->items, k->grain, k->turned >= 0 ? bands_range : rows_range, &ctx);
    return TRI_OK;
}

/* Leaves out dimensions of size 1, orders the others as in the result, and merges those that are
 * adjacent on both sides. */
static void arrange(move_kernel *k, const trii_type *type, const int64_t *from, const int64_t *to)
{
    int order[TRI_MAX_DIMS], n = 0;

    for (int d = 0; d < type->ndim; d++) {
        int at = n;

        if (type->shape[d] == 1)
            continue;
        for (; at > 0 && to[order[at - 1]] < to[d]; at--)
            order[at] = order[at - 1];
        order[at] = d;
        n++;
    }
    for (int i = 0; i < n; i++) {
        int d = order[i], last = k->n_dims - 1;

        if (last >= 0 && k->from[last] == from[d] * type->shape[d] &&
            k->to[last] == to[d] * type->shape[d]) {
            k->size[last] *= type->shape[d];
        } else {
            k->size[++last] = type->shape[d];
            k->n_dims++;
        }
        k->from[last] = from[d];
        k->to[last] = to[d];
    }
    if (k->n_dims == 0) {
        k->n_dims = 1;
        k->size[0] = k->from[0] = k->to[0] = 1;
    }
}

/* Numbers of 16 bytes move as two of 8. */
static void halve_elements(move_kernel *k)
{
    int last = k->n_dims;

    if (k->elem != 16)
        return;
    k->elem = 8;
    for (int d = 0; d < last; d++) {
        k->from[d] *= 2;
        k->to[d] *= 2;
    }
    k->size[last] = 2;
    k->from[last] = k->to[last] = 1;
    k->n_dims++;
    k->start *= 2;
}

tri_status trii_cpu_move(const trii_type *type, const int64_t *from, int64_t start,
                         const int64_t *to, bool added, const char *name, trii_kernel **kernel_out)
{
    move_kernel *k = trii_alloc(1, sizeof(*k), "kernel");
    int64_t wide, n = trii_type_numel(type);
    int last;

    if (k == NULL)
        return TRI_ERR_NO_MEMORY;
    k->base = (trii_kernel){.name = name, .run = move_run_kernel, .destroy = trii_cpu_kernel_free};
    k->elem = tri_dtype_size(type->dtype);
    k->turned = -1;
    k->start = start;
    k->added = added;
    *kernel_out = &k->base;
    if (n == 0)
        return TRI_OK; /* no items */
    arrange(k, type, from, to);
    halve_elements(k);
    last = k->n_dims - 1;
    wide = WIDE / (int64_t)k->elem;
    for (int d = 0; d < last && k->to[last] == 1 && (k->from[last] > 1 || k->from[last] < -1);
         d++) {
        if (k->from[d] == 1 && !added)
            k->turned = d;
    }
    k->items = k->turned >= 0 ? (k->size[k->turned] + wide - 1) / wide : 1;
    for (int d = 0; d < last; d++)
        k->items *= d == k->turned ? 1 : k->size[d];
    k->grain = 1 + MIN_BYTES / (1 + (int64_t)trii_type_bytes(type) / k->items);
    return TRI_OK;
}

static bool flip_takes(const trii_ir *ir, const trii_ir_node *node)
{
    (void)ir;
    (void)node;
    return true;
}

static tri_status flip_compile(const trii_ir *ir, const trii_group *group, trii_kernel **kernel_out)
{
    const trii_ir_node *node = &ir->nodes[group->nodes[0]];
    const trii_type *type = trii_in_type(ir, node, 0);
    int64_t dim = node->iattr[0], start;
    trii_strides plain, from;

    trii_strides_plain(type, &plain);
    from = plain;
    start = (type->shape[dim] - 1) * plain.stride[dim];
    from.stride[dim] *= -1;
    return trii_cpu_move(type, from.stride, start, plain.stride, false, "flip", kernel_out);
}

const trii_cpu_family trii_cpu_flip = {
    .op = {&trii_op_flip}, .takes = flip_takes, .compile = flip_compile};
