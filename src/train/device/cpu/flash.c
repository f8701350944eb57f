/*
 * flash.c - attention tile by tile, as FlashAttention does: 64 queries by 64 keys at a time, with
 * the largest score and the sum of each query so far; when a larger score is found, what has been
 * added up is scaled. Memory does not grow with the square of the length, and tiles that causality
 * rules out are not computed.
 */
#include "train/device/cpu/flash.h"

#include <math.h>
#include <string.h>

#include "base/compiler.h"

/* The scratch of a thread. */
typedef struct parts {
    float *qt;                 /* [depth, TILE] */
    float *s, *keep;           /* [TILE, TILE] */
    float *y;                  /* [TILE, v_depth] */
    float *wide_q, *wide;      /* [TILE, depth or v_depth]: bf16 as f32 */
    float *pack;               /* of products */
    float *max, *sum, *factor; /* [TILE] */
} parts;

static size_t deepest(const trii_attention_size *z)
{
    int64_t most = z->depth > z->v_depth ? z->depth : z->v_depth;

    return (size_t)(most > TRII_TILE ? most : TRII_TILE);
}

/* With scratch NULL counts floats only. */
static size_t lay_out(const trii_attention_size *z, float *scratch, parts *p)
{
    const size_t tile = TRII_TILE, deep = deepest(z);
    const size_t sizes[] = {(size_t)z->depth * tile,
                            tile * tile,
                            tile * tile,
                            tile * (size_t)z->v_depth,
                            tile * (size_t)z->depth,
                            tile * deep,
                            deep * 2 * TRII_MAX_LANES,
                            tile,
                            tile,
                            tile};
    float **const parts_of[] = {&p->qt,   &p->s,    &p->keep, &p->y,   &p->wide_q,
                                &p->wide, &p->pack, &p->max,  &p->sum, &p->factor};
    size_t at = 0;

    for (size_t i = 0; i < TRII_COUNT_OF(sizes); i++) {
        *parts_of[i] = scratch != NULL ? scratch + at : NULL;
        at += (sizes[i] + 15) / 16 * 16;
    }
    return at;
}

static void scale_rows(float *y, int64_t rows, int64_t n, const float *factor)
{
    for (int64_t r = 0; r < rows; r++) {
        if (factor[r] == 1)
            continue;
        for (int64_t i = 0; i < n; i++)
            y[r * n + i] *= factor[r];
    }
}

static void forward_tile(const trii_flash_run *run, const trii_flash_tile *tile, const parts *p)
{
    const trii_flash *f = run->f;
    const int64_t at[3] = {tile->b, trii_flash_kv_head(f, tile->h), tile->s};
    trii_tile scores = {.s = p->s, .keys = tile->n_s, .vector = trii_flash_columns(f, tile->n_t)};
    trii_gemm_args g = {.m = tile->n_s,
                        .n = scores.vector,
                        .k = f->size.depth,
                        .a_col = 1,
                        .b = p->qt,
                        .b_row = TRII_TILE,
                        .b_col = 1,
                        .c = p->s,
                        .ldc = TRII_TILE,
                        .pack = p->pack};

    g.a = trii_flash_read(f, run->args[f->arg_k], &f->k, at, tile->n_s, p->wide, &g.a_row);
    trii_flash_scores(f, tile, g);
    trii_flash_mask(run, tile, p->s);
    f->kernels->tile_softmax(&scores, p->max, p->sum, p->factor);
    if (f->arg_key >= 0) {
        trii_flash_keep(run, tile, p->keep);
        for (int64_t i = 0; i < tile->n_s; i++)
            f->kernels->ew[TRII_EW_mul](p->s + i * TRII_TILE, p->s + i * TRII_TILE,
                                        p->keep + i * TRII_TILE, NULL, (size_t)tile->n_t, NULL);
    }
    if (tile->s > 0)
        scale_rows(p->y, tile->n_t, f->size.v_depth, p->factor);
    g = (trii_gemm_args){.m = tile->n_t,
                         .n = f->size.v_depth,
                         .k = tile->n_s,
                         .a = p->s,
                         .a_row = 1,
                         .a_col = TRII_TILE,
                         .b_col = 1,
                         .c = p->y,
                         .ldc = f->size.v_depth,
                         .pack = p->pack,
                         .add = tile->s > 0};
    g.b = trii_flash_read(f, run->args[f->arg_v], &f->v, at, tile->n_s, p->wide, &g.b_row);
    trii_flash_over_keys(f, tile, g);
}

/* Divides by the sums, and writes the rows and the logarithms. */
static void finish(const trii_flash_run *run, const trii_flash_tile *tile, const parts *p)
{
    const trii_flash *f = run->f;
    const trii_attention_size *z = &f->size;
    const int64_t at[3] = {tile->b, tile->h, tile->t};
    float *lse =
        (float *)run->args[f->arg_lse] + (tile->b * z->heads + tile->h) * z->queries + tile->t;

    for (int64_t j = 0; j < tile->n_t; j++) {
        p->factor[j] = 1 / p->sum[j];
        if (p->sum[j] == 0) { /* a query that sees no key: y may be 0 times NaN */
            p->factor[j] = 1;
            memset(p->y + j * z->v_depth, 0, (size_t)z->v_depth * sizeof(float));
        }
        lse[j] = p->max[j] + logf(p->sum[j]);
        if (p->sum[j] != p->sum[j])
            lse[j] = NAN;
    }
    scale_rows(p->y, tile->n_t, z->v_depth, p->factor);
    trii_flash_write(f, run->args[f->arg_y], &f->y, at, tile->n_t, p->y, z->v_depth);
}

/* 64 queries of one head. */
static void forward_item(const trii_flash_run *run, int64_t item, float *scratch)
{
    const trii_flash *f = run->f;
    const trii_attention_size *z = &f->size;
    int64_t bands = (z->queries + TRII_TILE - 1) / TRII_TILE, head = item / bands, stride, keys;
    trii_flash_tile tile = {
        .b = head / z->heads, .h = head % z->heads, .t = item % bands * TRII_TILE};
    const int64_t at[3] = {tile.b, tile.h, tile.t};
    const float *q;
    parts p;

    lay_out(z, scratch, &p);
    tile.n_t = z->queries - tile.t < TRII_TILE ? z->queries - tile.t : TRII_TILE;
    keys = trii_flash_keys(f, tile.t, tile.n_t);
    q = trii_flash_read(f, run->args[f->arg_q], &f->q, at, tile.n_t, p.wide_q, &stride);
    memset(p.qt, 0, (size_t)z->depth * TRII_TILE * sizeof(float));
    f->kernels->transpose(p.qt, TRII_TILE, q, stride, tile.n_t, z->depth, run->scale);
    for (int j = 0; j < TRII_TILE; j++) {
        p.max[j] = -INFINITY;
        p.sum[j] = 0;
    }
    for (; tile.s < keys; tile.s += TRII_TILE) {
        tile.n_s = keys - tile.s < TRII_TILE ? keys - tile.s : TRII_TILE;
        forward_tile(run, &tile, &p);
    }
    finish(run, &tile, &p);
}

static int64_t forward_items(const trii_attention_size *z)
{
    return z->batch * z->heads * ((z->queries + TRII_TILE - 1) / TRII_TILE);
}

static tri_status forward_run(const trii_kernel *kernel, void *const *args, const trii_run *run)
{
    const trii_flash *f = (const trii_flash *)kernel;
    trii_flash_run r = trii_flash_begin(f, args, run);

    trii_flash_slots(&r, forward_items(&f->size), forward_item);
    return TRI_OK;
}

/* A row of y begins where that of q does among the heads. */
static void layouts(const trii_ir *ir, const trii_group *group, const trii_layout *const *have,
                    trii_layouts *want)
{
    const trii_ir_node *node = &ir->nodes[group->nodes[0]];
    int q = trii_group_in(group, node->in[0]), y = trii_group_out(group, node->out[0]);

    trii_flash_take(ir, group, have, 3, want);
    if (trii_has_in(node, 3))
        want->in[trii_group_in(group, node->in[3])] = NULL;
    want->out[y] = trii_flash_result_layout(
        ir, group, y, want->in[q] != NULL && want->in[q]->strides[2] >= want->in[q]->strides[1]);
}

static tri_status compile(const trii_ir *ir, const trii_group *group, trii_kernel **kernel_out)
{
    const trii_ir_node *node = &ir->nodes[group->nodes[0]];
    trii_attention_size z;
    trii_flash *f;
    parts p;
    tri_status status;

    trii_attention_sizes(trii_in_type(ir, node, 0), trii_in_type(ir, node, 1),
                         trii_in_type(ir, node, 2), &z);
    status = trii_flash_compile(ir, group, forward_items(&z), lay_out(&z, NULL, &p), &f);
    if (status != TRI_OK)
        return status;
    f->base.run = forward_run;
    *kernel_out = &f->base;
    return TRI_OK;
}

const trii_cpu_family trii_cpu_attention = {.op = {&trii_op_attention},
                                            .takes = trii_flash_takes,
                                            .strided = true,
                                            .layouts = layouts,
                                            .compile = compile};
