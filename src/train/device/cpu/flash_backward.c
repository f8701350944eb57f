/*
 * flash_backward.c - the gradient of attention, tile by tile: the weights are computed again from
 * the scores and the logarithm that forward has left. One thread does all heads that share a head
 * of k and v, whose gradients are added up in one order.
 */
#include "train/device/cpu/flash.h"

#include <math.h>
#include <string.h>

#include "base/compiler.h"

/* The scratch of a thread. */
typedef struct parts {
    float *qt, *gt;           /* [depth or v_depth, TILE] */
    float *s, *ds, *keep;     /* [TILE, TILE] */
    float *dq;                /* [TILE, depth] */
    float *q, *g, *y, *k, *v; /* [TILE, depth or v_depth]: bf16 as f32 */
    float *pack;              /* of products */
    float *total;             /* [TILE] sums of g y */
    float *lse;               /* [TILE] */
    float *dk, *dv;           /* [keys, depth or v_depth], where results are bf16 */
} parts;

/* With scratch NULL counts floats only. */
static size_t lay_out(const trii_attention_size *z, bool bf16, float *scratch, parts *p)
{
    const size_t tile = TRII_TILE, depth = (size_t)z->depth, v_depth = (size_t)z->v_depth;
    const size_t most = depth > v_depth ? depth : v_depth, deep = most > tile ? most : tile;
    const size_t keys = bf16 ? (size_t)z->keys : 0;
    const size_t sizes[] = {
        depth * tile,   v_depth * tile, tile * tile,    tile * tile,
        tile * tile,    tile * depth,   tile * depth,   tile * v_depth,
        tile * v_depth, tile * depth,   tile * v_depth, deep * 2 * TRII_MAX_LANES,
        tile,           tile,           keys * depth,   keys * v_depth};
    float **const parts_of[] = {&p->qt,    &p->gt,  &p->s,  &p->ds, &p->keep, &p->dq,
                                &p->q,     &p->g,   &p->y,  &p->k,  &p->v,    &p->pack,
                                &p->total, &p->lse, &p->dk, &p->dv};
    size_t at = 0;

    for (size_t i = 0; i < TRII_COUNT_OF(sizes); i++) {
        *parts_of[i] = scratch != NULL ? scratch + at : NULL;
        at += (sizes[i] + 15) / 16 * 16;
    }
    return at;
}

/* Rows of an operand, and how far they are apart. */
typedef struct row_block {
    const float *at;
    int64_t stride;
} row_block;

/* 64 queries of one head; where its gradients of k and v are added up. */
typedef struct band {
    row_block q, g;
    float *dk, *dv;
    int64_t dk_stride, dv_stride;
} band;

/* c += a b, where the rows of b are these */
static trii_gemm_args adding(const parts *p, const row_block *b, trii_gemm_args g)
{
    g.b = b->at;
    g.b_row = b->stride;
    g.b_col = 1;
    g.pack = p->pack;
    g.add = true;
    return g;
}

/* scores = rows columns^T, with the columns turned already */
static void score(const trii_flash *f, const parts *p, const row_block *a, const float *turned,
                  int64_t depth, const trii_flash_tile *tile, float *scores)
{
    const trii_gemm_args g = {.m = tile->n_s,
                              .n = trii_flash_columns(f, tile->n_t),
                              .k = depth,
                              .a = a->at,
                              .a_row = a->stride,
                              .a_col = 1,
                              .b = turned,
                              .b_row = TRII_TILE,
                              .b_col = 1,
                              .c = scores,
                              .ldc = TRII_TILE,
                              .pack = p->pack};

    trii_flash_scores(f, tile, g);
}

static void multiply_rows(const trii_flash *f, const trii_flash_tile *tile, float *x,
                          const float *keep)
{
    for (int64_t i = 0; i < tile->n_s; i++)
        f->kernels->ew[TRII_EW_mul](x + i * TRII_TILE, x + i * TRII_TILE, keep + i * TRII_TILE,
                                    NULL, (size_t)tile->n_t, NULL);
}

static void backward_tile(const trii_flash_run *run, const trii_flash_tile *tile, const parts *p,
                          const band *b)
{
    const trii_flash *f = run->f;
    const trii_attention_size *z = &f->size;
    const int64_t at[3] = {tile->b, trii_flash_kv_head(f, tile->h), tile->s};
    const trii_tile tiles = {
        .s = p->s, .ds = p->ds, .keys = tile->n_s, .vector = trii_flash_columns(f, tile->n_t)};
    row_block k, v;
    trii_gemm_args g;

    k.at = trii_flash_read(f, run->args[f->arg_k], &f->k, at, tile->n_s, p->k, &k.stride);
    v.at = trii_flash_read(f, run->args[f->arg_v], &f->v, at, tile->n_s, p->v, &v.stride);
    score(f, p, &k, p->qt, z->depth, tile, p->s);
    score(f, p, &v, p->gt, z->v_depth, tile, p->ds);
    trii_flash_mask(run, tile, p->s);
    if (f->arg_key >= 0) {
        trii_flash_keep(run, tile, p->keep);
        multiply_rows(f, tile, p->ds, p->keep);
    }
    f->kernels->tile_gradient(&tiles, p->lse, p->total, run->scale);
    if (f->arg_key >= 0)
        multiply_rows(f, tile, p->s, p->keep);
    g = (trii_gemm_args){.m = tile->n_s,
                         .n = z->v_depth,
                         .k = tile->n_t,
                         .a = p->s,
                         .a_row = TRII_TILE,
                         .a_col = 1,
                         .c = b->dv + tile->s * b->dv_stride,
                         .ldc = b->dv_stride};
    trii_flash_over_queries(f, tile, adding(p, &b->g, g));
    g.n = z->depth;
    g.a = p->ds;
    g.c = b->dk + tile->s * b->dk_stride;
    g.ldc = b->dk_stride;
    trii_flash_over_queries(f, tile, adding(p, &b->q, g));
    g = (trii_gemm_args){.m = tile->n_t,
                         .n = z->depth,
                         .k = tile->n_s,
                         .a = p->ds,
                         .a_row = 1,
                         .a_col = TRII_TILE,
                         .c = p->dq,
                         .ldc = z->depth};
    trii_flash_over_keys(f, tile, adding(p, &k, g));
}

/* Reads what belongs to the queries. */
static void begin_band(const trii_flash_run *run, const trii_flash_tile *tile, const parts *p,
                       band *b)
{
    const trii_flash *f = run->f;
    const trii_attention_size *z = &f->size;
    const int64_t at[3] = {tile->b, tile->h, tile->t};
    const float *lse = (const float *)run->args[f->arg_lse] +
                       (tile->b * z->heads + tile->h) * z->queries + tile->t;
    row_block y;

    b->q.at = trii_flash_read(f, run->args[f->arg_q], &f->q, at, tile->n_t, p->q, &b->q.stride);
    b->g.at = trii_flash_read(f, run->args[f->arg_g], &f->g, at, tile->n_t, p->g, &b->g.stride);
    y.at = trii_flash_read(f, run->args[f->arg_y], &f->y, at, tile->n_t, p->y, &y.stride);
    memset(p->qt, 0, (size_t)z->depth * TRII_TILE * sizeof(float));
    memset(p->gt, 0, (size_t)z->v_depth * TRII_TILE * sizeof(float));
    memset(p->lse, 0, TRII_TILE * sizeof(float));
    memset(p->total, 0, TRII_TILE * sizeof(float));
    memset(p->dq, 0, (size_t)(TRII_TILE * z->depth) * sizeof(float));
    f->kernels->transpose(p->qt, TRII_TILE, b->q.at, b->q.stride, tile->n_t, z->depth, run->scale);
    f->kernels->transpose(p->gt, TRII_TILE, b->g.at, b->g.stride, tile->n_t, z->v_depth, 1);
    for (int64_t j = 0; j < tile->n_t; j++) {
        p->lse[j] = lse[j];
        p->total[j] = (float)f->kernels->total_product(b->g.at + j * b->g.stride,
                                                       y.at + j * y.stride, z->v_depth);
    }
}

static void backward_head(const trii_flash_run *run, int64_t b, int64_t h, const parts *p,
                          band *band_of)
{
    const trii_flash *f = run->f;
    const trii_attention_size *z = &f->size;

    for (int64_t t = 0; t < z->queries; t += TRII_TILE) {
        trii_flash_tile tile = {.b = b, .h = h, .t = t};
        const int64_t at[3] = {b, h, t};
        int64_t keys;

        tile.n_t = z->queries - t < TRII_TILE ? z->queries - t : TRII_TILE;
        keys = trii_flash_keys(f, t, tile.n_t);
        begin_band(run, &tile, p, band_of);
        for (; tile.s < keys; tile.s += TRII_TILE) {
            tile.n_s = keys - tile.s < TRII_TILE ? keys - tile.s : TRII_TILE;
            backward_tile(run, &tile, p, band_of);
        }
        for (int64_t j = 0; j < tile.n_t; j++) { /* a query that sees no key: 0 times k */
            if (p->lse[j] == -INFINITY)
                memset(p->dq + j * z->depth, 0, (size_t)z->depth * sizeof(float));
        }
        trii_flash_write(f, run->args[f->arg_dq], &f->dq, at, tile.n_t, p->dq, z->depth);
    }
}

/* Where the rows of a gradient begin: in the result, or in the scratch if the result is rounded. */
static float *gradient_rows(void *data, const trii_flash_rows *rows, const int64_t at[3], int64_t n,
                            float *wide, int64_t *stride)
{
    float *first = rows->bf16 ? wide : (float *)data + at[0] * rows->batch + at[1] * rows->head;

    *stride = rows->bf16 ? rows->depth : rows->row;
    for (int64_t i = 0; i < n; i++)
        memset(first + i * *stride, 0, (size_t)rows->depth * sizeof(float));
    return first;
}

/* One head of k and v. */
static void backward_item(const trii_flash_run *run, int64_t item, float *scratch)
{
    const trii_flash *f = run->f;
    const trii_attention_size *z = &f->size;
    const int64_t at[3] = {item / z->kv_heads, item % z->kv_heads, 0};
    int64_t shared = z->heads / z->kv_heads;
    band b;
    parts p;

    lay_out(z, f->k.bf16, scratch, &p);
    b.dk = gradient_rows(run->args[f->arg_dk], &f->dk, at, z->keys, p.dk, &b.dk_stride);
    b.dv = gradient_rows(run->args[f->arg_dv], &f->dv, at, z->keys, p.dv, &b.dv_stride);
    for (int64_t h = at[1] * shared; h < (at[1] + 1) * shared; h++)
        backward_head(run, at[0], h, &p, &b);
    if (f->k.bf16) {
        trii_flash_write(f, run->args[f->arg_dk], &f->dk, at, z->keys, b.dk, b.dk_stride);
        trii_flash_write(f, run->args[f->arg_dv], &f->dv, at, z->keys, b.dv, b.dv_stride);
    }
}

static tri_status backward_run(const trii_kernel *kernel, void *const *args, const trii_run *run)
{
    const trii_flash *f = (const trii_flash *)kernel;
    trii_flash_run r = trii_flash_begin(f, args, run);

    trii_flash_slots(&r, f->size.batch * f->size.kv_heads, backward_item);
    return TRI_OK;
}

static void layouts(const trii_ir *ir, const trii_group *group, const trii_layout *const *have,
                    trii_layouts *want)
{
    const trii_ir_node *node = &ir->nodes[group->nodes[0]];

    trii_flash_take(ir, group, have, 5, want);
    if (trii_has_in(node, 6))
        want->in[trii_group_in(group, node->in[6])] = NULL;
    for (int o = 0; o < group->n_out; o++)
        want->out[o] = trii_flash_result_layout(ir, group, o, false);
}

static tri_status compile(const trii_ir *ir, const trii_group *group, trii_kernel **kernel_out)
{
    const trii_ir_node *node = &ir->nodes[group->nodes[0]];
    bool bf16 = trii_in_type(ir, node, 1)->dtype == TRI_DTYPE_BF16;
    trii_attention_size z;
    trii_flash *f;
    parts p;
    tri_status status;

    trii_attention_sizes(trii_in_type(ir, node, 1), trii_in_type(ir, node, 2),
                         trii_in_type(ir, node, 3), &z);
    status = trii_flash_compile(ir, group, z.batch * z.kv_heads, lay_out(&z, bf16, NULL, &p), &f);
    if (status != TRI_OK)
        return status;
    f->base.run = backward_run;
    *kernel_out = &f->base;
    return TRI_OK;
}

const trii_cpu_family trii_cpu_attention_backward = {.op = {&trii_op_attention_backward},
                                                     .takes = trii_flash_takes,
                                                     .strided = true,
                                                     .layouts = layouts,
                                                     .compile = compile};
