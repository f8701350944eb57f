/*
 * flash_tiles.c - operands and tiles of attention, for flash.c and flash_backward.c; see flash.h.
 */
#include "train/device/cpu/flash.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "train/device/cpu/cpu_parallel.h"
#include "train/graph/ops/rules.h"
#include "train/graph/step/strides.h"

/* multiplications of a whole call: fewer are not worth a second thread */
#define SERIAL_MUL_ADDS (INT64_C(1) << 16)

const float *trii_flash_read(const trii_flash *f, const void *data, const trii_flash_rows *rows,
                             const int64_t at[3], int64_t n, float *wide, int64_t *stride_out)
{
    int64_t start = at[0] * rows->batch + at[1] * rows->head + at[2] * rows->row;

    if (!rows->bf16) {
        *stride_out = rows->row;
        return (const float *)data + start;
    }
    for (int64_t i = 0; i < n; i++)
        f->kernels->from_bf16(wide + i * rows->depth,
                              (const uint16_t *)data + start + i * rows->row, (size_t)rows->depth);
    *stride_out = rows->depth;
    return wide;
}

void trii_flash_write(const trii_flash *f, void *data, const trii_flash_rows *rows,
                      const int64_t at[3], int64_t n, const float *from, int64_t stride)
{
    int64_t start = at[0] * rows->batch + at[1] * rows->head + at[2] * rows->row;

    for (int64_t i = 0; i < n; i++) {
        if (rows->bf16)
            f->kernels->to_bf16((uint16_t *)data + start + i * rows->row, from + i * stride,
                                (size_t)rows->depth);
        else
            memcpy((float *)data + start + i * rows->row, from + i * stride,
                   (size_t)rows->depth * sizeof(float));
    }
}

/* --- products ------------------------------------------------------------- */

/* Of how many queries, the first ones, as many keys, the last ones, are left out. */
static int64_t left_out(const trii_flash *f, const trii_flash_tile *tile)
{
    bool is_whole = tile->n_t == TRII_TILE && tile->n_s == TRII_TILE;

    return f->causal && is_whole && tile->s == tile->t ? TRII_TILE / 2 : 0;
}

void trii_flash_scores(const trii_flash *f, const trii_flash_tile *tile, trii_gemm_args g)
{
    int64_t half = left_out(f, tile);

    if (half > 0) {
        g.m = half;
        f->kernels->gemm(&g);
        g.a += half * g.a_row;
        g.c += half * g.ldc;
        for (int64_t i = 0; i < half; i++)
            memset(g.c + i * g.ldc, 0, (size_t)half * sizeof(float));
        g.b += half * g.b_col;
        g.c += half;
        g.n -= half;
    }
    f->kernels->gemm(&g);
}

void trii_flash_over_keys(const trii_flash *f, const trii_flash_tile *tile, trii_gemm_args g)
{
    int64_t half = left_out(f, tile);

    if (half > 0) {
        trii_gemm_args first = g;

        first.m = first.k = half;
        f->kernels->gemm(&first);
        g.a += half * g.a_row;
        g.c += half * g.ldc;
        g.m -= half;
    }
    f->kernels->gemm(&g);
}

void trii_flash_over_queries(const trii_flash *f, const trii_flash_tile *tile, trii_gemm_args g)
{
    int64_t half = left_out(f, tile);

    if (half > 0) {
        trii_gemm_args first = g;

        first.m = half;
        f->kernels->gemm(&first);
        g.a += half * (g.a_row + g.a_col);
        g.b += half * g.b_row;
        g.c += half * g.ldc;
        g.m -= half;
        g.k -= half;
    }
    f->kernels->gemm(&g);
}

/* --- masks ---------------------------------------------------------------- */

static void mask_order(const trii_flash_tile *tile, float *s)
{
    for (int64_t i = 0; i < tile->n_s; i++) {
        int64_t first = tile->s + i - tile->t; /* the first query that may look at this key */

        for (int64_t j = 0; j < tile->n_t && j < first; j++)
            s[i * TRII_TILE + j] = -INFINITY;
    }
}

void trii_flash_mask(const trii_flash_run *run, const trii_flash_tile *tile, float *s)
{
    const trii_flash *f = run->f;
    const int64_t *stride = f->mask_stride;
    int64_t at =
        tile->b * stride[0] + tile->h * stride[1] + tile->t * stride[2] + tile->s * stride[3];

    if (f->arg_mask >= 0 && f->mask_is_bool) {
        const uint8_t *mask = (const uint8_t *)run->args[f->arg_mask] + at;

        for (int64_t i = 0; i < tile->n_s; i++) {
            for (int64_t j = 0; j < tile->n_t; j++) {
                if (mask[i * stride[3] + j * stride[2]] == 0)
                    s[i * TRII_TILE + j] = -INFINITY;
            }
        }
    } else if (f->arg_mask >= 0) {
        const float *mask = (const float *)run->args[f->arg_mask] + at;

        for (int64_t i = 0; i < tile->n_s; i++) {
            for (int64_t j = 0; j < tile->n_t; j++)
                s[i * TRII_TILE + j] += mask[i * stride[3] + j * stride[2]];
        }
    }
    if (f->causal && tile->s + tile->n_s > tile->t + 1)
        mask_order(tile, s);
}

void trii_flash_keep(const trii_flash_run *run, const trii_flash_tile *tile, float *keep)
{
    const trii_attention_size *z = &run->f->size;
    const double limit = run->p * 4294967296.0;
    const float kept = (float)(1 / (1 - run->p));
    const uint64_t blocks = ((uint64_t)z->keys + 3) / 4;
    const int64_t head = trii_random_head(run->args[run->f->arg_key], tile->b, z->heads, tile->h);

    for (int64_t j = 0; j < tile->n_t; j++) {
        uint64_t row = (uint64_t)(head * z->queries + tile->t + j);
        uint32_t word[4];

        /* tiles begin at multiples of four keys */
        for (int64_t i = 0; i < tile->n_s; i++) {
            if (i % 4 == 0)
                trii_random_words(&run->random, row * blocks + (uint64_t)(tile->s + i) / 4, word);
            keep[i * TRII_TILE + j] = (double)word[i % 4] < limit ? 0 : kept;
        }
    }
}

/* --- compiling and running ------------------------------------------------ */

bool trii_flash_takes(const trii_ir *ir, const trii_ir_node *node)
{
    bool backward = node->op == &trii_op_attention_backward;
    int first = backward ? 1 : 0, mask = backward ? 6 : 3;
    tri_dtype dtype = trii_in_type(ir, node, first)->dtype;

    if (dtype != TRI_DTYPE_F32 && dtype != TRI_DTYPE_BF16)
        return false;
    for (int i = 0; i < mask; i++) {
        bool lse = backward && i == 5;

        if (trii_in_type(ir, node, i)->dtype != (lse ? TRI_DTYPE_F32 : dtype))
            return false;
    }
    for (int o = 0; o < node->n_out; o++) {
        bool lse = !backward && o == 1;

        if (trii_out_type(ir, node, o)->dtype != (lse ? TRI_DTYPE_F32 : dtype))
            return false;
    }
    if (trii_has_in(node, mask) && trii_in_type(ir, node, mask)->dtype != TRI_DTYPE_BOOL &&
        trii_in_type(ir, node, mask)->dtype != TRI_DTYPE_F32)
        return false;
    /* the reference kernel defines the result of empty operands */
    return trii_type_numel(trii_in_type(ir, node, first)) > 0 &&
           trii_type_numel(trii_in_type(ir, node, first + 1)) > 0 &&
           trii_type_numel(trii_in_type(ir, node, first + 2)) > 0;
}

bool trii_flash_takes_layout(const trii_type *type, const trii_layout *layout)
{
    return layout != NULL && layout->strides != NULL && type->ndim == 4 && layout->strides[3] == 1;
}

void trii_flash_take(const trii_ir *ir, const trii_group *group, const trii_layout *const *have,
                     int n, trii_layouts *want)
{
    const trii_ir_node *node = &ir->nodes[group->nodes[0]];

    for (int i = 0; i < n; i++) {
        int at = trii_group_in(group, node->in[i]);

        if (trii_flash_takes_layout(trii_in_type(ir, node, i), have[at]))
            want->in[at] = have[at];
    }
}

/* Whether the first view that reads the value has plain order if the value lies like this. */
static bool makes_view_plain(const trii_ir *ir, int32_t value, const trii_strides *lies)
{
    for (int32_t g = ir->values[value].group + 1; g < ir->n_groups; g++) {
        const trii_group *group = ir->groups[g];
        const trii_ir_node *node;
        trii_strides at;

        if (group->kind != TRII_GROUP_VIEW || group->in[0] != value)
            continue;
        node = &ir->nodes[group->nodes[0]];
        return node->op->view(&ir->values[value].type, trii_out_type(ir, node, 0), node->iattr, 0,
                              lies, &at) &&
               trii_strides_are_plain(trii_out_type(ir, node, 0), at.stride);
    }
    return false;
}

const trii_layout *trii_flash_result_layout(const trii_ir *ir, const trii_group *group, int o,
                                            bool inside)
{
    const trii_type *type = &ir->values[group->out[o]].type;
    const trii_layout *layout = NULL;
    const int64_t *s = type->shape;
    const trii_strides heads_inside = {0, {s[2] * s[1] * s[3], s[3], s[1] * s[3], 1}};

    if (trii_flash_takes_layout(type, group->out_layout[o]))
        return group->out_layout[o];
    if ((inside || makes_view_plain(ir, group->out[o], &heads_inside)) &&
        trii_ir_strided(ir, type, heads_inside.stride, &layout) != TRI_OK)
        return NULL;
    return layout;
}

static trii_flash_rows rows_of(const trii_type *type, const trii_layout *layout)
{
    trii_strides at;

    trii_strides_plain(type, &at);
    for (int d = 0; d < 4 && layout != NULL; d++)
        at.stride[d] = layout->strides[d];
    return (trii_flash_rows){.batch = at.stride[0],
                             .head = at.stride[1],
                             .row = at.stride[2],
                             .depth = type->shape[3],
                             .bf16 = type->dtype == TRI_DTYPE_BF16};
}

static trii_flash_rows rows_in(const trii_ir *ir, const trii_group *group, const trii_ir_node *node,
                               int i)
{
    return rows_of(trii_in_type(ir, node, i), group->in_layout[trii_group_in(group, node->in[i])]);
}

static trii_flash_rows rows_out(const trii_ir *ir, const trii_group *group,
                                const trii_ir_node *node, int o)
{
    return rows_of(trii_out_type(ir, node, o),
                   group->out_layout[trii_group_out(group, node->out[o])]);
}

static int argument(const trii_group *group, const trii_ir_node *node, int i)
{
    return trii_has_in(node, i) ? trii_group_in(group, node->in[i]) : -1;
}

static int choose_slots(const trii_attention_size *z, int64_t items)
{
    int64_t mul_adds = z->batch * z->heads * z->queries * z->keys * (z->depth + z->v_depth);
    int64_t slots = trii_parallel_threads();

    if (mul_adds < SERIAL_MUL_ADDS || slots < 1)
        slots = 1;
    return (int)(slots < items ? slots : items);
}

/* forward: in q k v mask? key?, out y lse; backward: in g q k v y lse mask? key?, out dq dk dv */
static void find_arguments(const trii_group *group, const trii_ir_node *node, trii_flash *f)
{
    bool backward = node->op == &trii_op_attention_backward;
    int first = backward ? 1 : 0, mask = backward ? 6 : 3;

    f->arg_q = argument(group, node, first);
    f->arg_k = argument(group, node, first + 1);
    f->arg_v = argument(group, node, first + 2);
    f->arg_mask = argument(group, node, mask);
    f->arg_key = argument(group, node, mask + 1);
    f->arg_g = backward ? argument(group, node, 0) : -1;
    f->arg_y = backward ? argument(group, node, 4) : group->n_in;
    f->arg_lse = backward ? argument(group, node, 5) : group->n_in + 1;
    f->arg_dq = group->n_in;
    f->arg_dk = group->n_in + 1;
    f->arg_dv = group->n_in + 2;
    f->scratch = group->n_in + group->n_out;
}

tri_status trii_flash_compile(const trii_ir *ir, const trii_group *group, int64_t items,
                              size_t slot_floats, trii_flash **flash_out)
{
    const trii_ir_node *node = &ir->nodes[group->nodes[0]];
    bool backward = node->op == &trii_op_attention_backward;
    int first_in = backward ? 1 : 0, mask = backward ? 6 : 3;
    trii_flash *f = trii_alloc(1, sizeof(*f), "kernel");

    if (f == NULL)
        return TRI_ERR_NO_MEMORY;
    f->base.name = node->op->name;
    f->base.destroy = trii_cpu_kernel_free;
    f->kernels = trii_cpu_kernels_get();
    trii_attention_sizes(trii_in_type(ir, node, first_in), trii_in_type(ir, node, first_in + 1),
                         trii_in_type(ir, node, first_in + 2), &f->size);
    f->q = rows_in(ir, group, node, first_in);
    f->k = rows_in(ir, group, node, first_in + 1);
    f->v = rows_in(ir, group, node, first_in + 2);
    f->y = backward ? rows_in(ir, group, node, 4) : rows_out(ir, group, node, 0);
    if (backward) {
        f->g = rows_in(ir, group, node, 0);
        f->dq = rows_out(ir, group, node, 0);
        f->dk = rows_out(ir, group, node, 1);
        f->dv = rows_out(ir, group, node, 2);
    }
    f->causal = node->iattr[0] != 0;
    f->f = node->first_f;
    find_arguments(group, node, f);
    if (f->arg_mask >= 0) {
        f->mask_is_bool = trii_in_type(ir, node, mask)->dtype == TRI_DTYPE_BOOL;
        trii_attention_mask_strides(trii_in_type(ir, node, mask), f->mask_stride);
    }
    f->slots = choose_slots(&f->size, items);
    f->slot_floats = (slot_floats + 15) / 16 * 16;
    f->base.scratch_bytes = (size_t)f->slots * f->slot_floats * sizeof(float);
    *flash_out = f;
    return TRI_OK;
}

trii_flash_run trii_flash_begin(const trii_flash *f, void *const *args, const trii_run *run)
{
    trii_flash_run r = {.f = f, .args = args, .scale = (float)run->f[f->f], .p = run->f[f->f + 1]};

    if (f->arg_key >= 0)
        r.random = trii_random_of_key(args[f->arg_key]);
    return r;
}

typedef struct slots_run {
    const trii_flash_run *run;
    int64_t items;
    void (*item)(const trii_flash_run *run, int64_t item, float *scratch);
} slots_run;

static void slots_range(void *ctx, int64_t begin, int64_t end)
{
    const slots_run *all = ctx;
    const trii_flash *f = all->run->f;

    for (int64_t slot = begin; slot < end; slot++) {
        float *scratch = (float *)all->run->args[f->scratch] + (size_t)slot * f->slot_floats;

        for (int64_t i = all->items * slot / f->slots; i < all->items * (slot + 1) / f->slots; i++)
            all->item(all->run, i, scratch);
    }
}

void trii_flash_slots(const trii_flash_run *run, int64_t items,
                      void (*item)(const trii_flash_run *run, int64_t item, float *scratch))
{
    slots_run all = {run, items, item};

    trii_parallel_for(run->f->slots, 1, slots_range, &all);
}
