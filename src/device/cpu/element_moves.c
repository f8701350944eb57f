/*
 * element_moves.c - permute and flip: copies of elements of any type, on all threads.
 *
 * Dimensions that stay together are merged first. If the result's last one is contiguous in x, rows
 * are copied (or reversed); else two dimensions change places, and tiles of a few cache lines go
 * through a buffer, so that each line is read once and written once, whatever the strides.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/dtype.h"
#include "device/cpu/cpu_ops.h"
#include "device/cpu/cpu_parallel.h"
#include "graph/type.h"

#define LINE 64         /* bytes of a tile as the result has them */
#define WIDE 256        /* and as x does: what is read should be long */
#define MIN_BYTES 65536 /* for a thread */

typedef struct move_kernel {
    trii_kernel base;
    int64_t size[TRI_MAX_DIMS], from[TRI_MAX_DIMS], to[TRI_MAX_DIMS]; /* of the result; strides */
    int n_dims;
    int turned; /* the dimension that is contiguous in x, if that is not the last; else -1 */
    int64_t start;
    size_t elem;
    int64_t items, grain;
} move_kernel;

typedef struct move_run {
    const move_kernel *k;
    const char *x;
    char *y;
} move_run;

/* --- rows ------------------------------------------------------------------------------------- */

#define REVERSE(T)                                                                                 \
    static void reverse_##T(T *y, const T *x, int64_t n)                                           \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++)                                                            \
            y[i] = x[-i];                                                                          \
    }
REVERSE(uint8_t)
REVERSE(uint16_t)
REVERSE(uint32_t)
REVERSE(uint64_t)

static void copy_row(void *y, const void *x, int64_t n, int64_t step, size_t elem)
{
    if (step == 1)
        memcpy(y, x, (size_t)n * elem);
    else if (elem == 1)
        reverse_uint8_t(y, x, n);
    else if (elem == 2)
        reverse_uint16_t(y, x, n);
    else if (elem == 4)
        reverse_uint32_t(y, x, n);
    else
        reverse_uint64_t(y, x, n);
}

/* Position in the dimensions but the last, and but `turned`. */
typedef struct place {
    int64_t at[TRI_MAX_DIMS], x, y;
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

    for (int64_t row = begin; row < end; row++, advance(k, &p))
        copy_row(run->y + p.y * elem, run->x + p.x * elem, k->size[last], k->from[last], k->elem);
}

/* --- tiles ------------------------------------------------------------------------------------ */

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

/* --- the kernel ------------------------------------------------------------------------------- */

static tri_status move_run_kernel(const trii_kernel *kernel, void *const *args, const trii_run *run)
{
    const move_kernel *k = (const move_kernel *)kernel;
    move_run ctx = {k, args[0], args[1]};

    (void)run;
    trii_parallel_for(k->items, k->grain, k->turned >= 0 ? bands_range : rows_range, &ctx);
    return TRI_OK;
}

static bool move_takes(const trii_ir *ir, const trii_ir_node *node)
{
    size_t elem = tri_dtype_size(trii_out_type(ir, node, 0)->dtype);

    return trii_type_numel(trii_out_type(ir, node, 0)) > 0 &&
           (elem == 1 || elem == 2 || elem == 4 || elem == 8);
}

static void plain_strides(const trii_type *type, int64_t *stride)
{
    int64_t step = 1;

    for (int d = type->ndim - 1; d >= 0; d--) {
        stride[d] = step;
        step *= type->shape[d];
    }
}

static void read_strides(const trii_ir *ir, const trii_ir_node *node, int64_t *from, int64_t *start)
{
    const trii_type *in = trii_in_type(ir, node, 0);
    int64_t plain[TRI_MAX_DIMS];

    plain_strides(in, plain);
    *start = 0;
    if (strcmp(node->op->name, "permute") == 0) {
        for (int d = 0; d < in->ndim; d++)
            from[d] = plain[node->iattr[d]];
        return;
    }
    for (int d = 0; d < in->ndim; d++) /* flip */
        from[d] = plain[d];
    *start = (in->shape[node->iattr[0]] - 1) * plain[node->iattr[0]];
    from[node->iattr[0]] *= -1;
}

/* Leaves sizes of one out, and merges what is next to each other on both sides. */
static void merge(const trii_type *out, const int64_t *from, move_kernel *k)
{
    int64_t to[TRI_MAX_DIMS];

    plain_strides(out, to);
    for (int d = 0; d < out->ndim; d++) {
        int n = k->n_dims;

        if (out->shape[d] == 1)
            continue;
        if (n > 0 && k->from[n - 1] == from[d] * out->shape[d]) {
            n--;
            k->size[n] *= out->shape[d];
        } else {
            k->size[n] = out->shape[d];
            k->n_dims++;
        }
        k->from[n] = from[d];
        k->to[n] = to[d];
    }
    if (k->n_dims == 0) {
        k->n_dims = 1;
        k->size[0] = k->from[0] = k->to[0] = 1;
    }
}

static tri_status move_compile(const trii_ir *ir, const trii_group *group, trii_kernel **kernel_out)
{
    const trii_ir_node *node = &ir->nodes[group->nodes[0]];
    const trii_type *out = trii_out_type(ir, node, 0);
    move_kernel *k = trii_alloc(1, sizeof(*k), "kernel");
    int64_t from[TRI_MAX_DIMS] = {0}, wide;
    int last;

    if (k == NULL)
        return TRI_ERR_NO_MEMORY;
    k->base = (trii_kernel){
        .name = node->op->name, .run = move_run_kernel, .destroy = trii_cpu_kernel_free};
    k->elem = tri_dtype_size(out->dtype);
    k->turned = -1;
    read_strides(ir, node, from, &k->start);
    merge(out, from, k);
    last = k->n_dims - 1;
    wide = WIDE / (int64_t)k->elem;
    for (int d = 0; d < last && k->from[last] != 1; d++) {
        if (k->from[d] == 1)
            k->turned = d;
    }
    k->items = k->turned >= 0 ? (k->size[k->turned] + wide - 1) / wide : 1;
    for (int d = 0; d < last; d++)
        k->items *= d == k->turned ? 1 : k->size[d];
    k->grain = 1 + MIN_BYTES / (1 + (int64_t)trii_type_bytes(out) / k->items);
    *kernel_out = &k->base;
    return TRI_OK;
}

const trii_cpu_family trii_cpu_permute = {
    .op = {&trii_op_permute}, .takes = move_takes, .compile = move_compile};
const trii_cpu_family trii_cpu_flip = {
    .op = {&trii_op_flip}, .takes = move_takes, .compile = move_compile};
