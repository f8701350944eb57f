/*
 * flash.h - what attention forward and backward share: where operands are, and tiles of scores.
 */
#ifndef TRII_CPU_FLASH_H
#define TRII_CPU_FLASH_H

#include "train/device/cpu/cpu_ops.h"
#include "train/graph/ops/kernel_rules.h"

/* Rows of an operand [batch, head, row, depth], in elements; those of a row are next to each
 * other. */
typedef struct trii_flash_rows {
    int64_t batch, head, row, depth;
    bool bf16;
} trii_flash_rows;

/* Arguments; -1 = absent. */
typedef struct trii_flash {
    trii_kernel base;
    const trii_cpu_kernels *kernels;
    trii_attention_size size;
    trii_flash_rows q, k, v, y, g, dq, dk, dv;
    int64_t mask_stride[4];
    bool causal, mask_is_bool;
    int32_t f; /* scale, p */
    int slots; /* threads, each of which has a part of the scratch */
    size_t slot_floats;
    int arg_g, arg_q, arg_k, arg_v, arg_y, arg_lse, arg_mask, arg_key;
    int arg_dq, arg_dk, arg_dv, scratch;
} trii_flash;

/* One run. */
typedef struct trii_flash_run {
    const trii_flash *f;
    void *const *args;
    float scale;
    double p;
    trii_random random;
} trii_flash_run;

/* A tile: queries t .. t + n_t of head h of batch b, keys s .. s + n_s. */
typedef struct trii_flash_tile {
    int64_t b, h, t, n_t, s, n_s;
} trii_flash_tile;

static inline int64_t trii_flash_kv_head(const trii_flash *f, int64_t h)
{
    return h / (f->size.heads / f->size.kv_heads);
}

/* Rows row .. row + n as f32: in place if they are f32, else widened into `wide`; *stride_out is
 * the distance from one to the next. */
const float *trii_flash_read(const trii_flash *f, const void *data, const trii_flash_rows *rows,
                             const int64_t at[3], int64_t n, float *wide, int64_t *stride_out);
/* Writes rows back, rounded if need be. */
void trii_flash_write(const trii_flash *f, void *data, const trii_flash_rows *rows,
                      const int64_t at[3], int64_t n, const float *from, int64_t stride);
/* Scores that the mask or causality rules out become -inf; an additive mask is added. */
void trii_flash_mask(const trii_flash_run *run, const trii_flash_tile *tile, float *s);
/* Products of a tile. On the diagonal of a causal one the first half of the queries sees no key of
 * the second half, so that quarter is left out: its scores are 0 (and masked afterwards), and its
 * weights, which are 0, are not multiplied. */
/* scores [n_s, TILE] = keys queries^T: rows are keys, columns are queries. */
void trii_flash_scores(const trii_flash *f, const trii_flash_tile *tile, trii_gemm_args g);
/* Rows are queries, and what is summed is over keys. */
void trii_flash_over_keys(const trii_flash *f, const trii_flash_tile *tile, trii_gemm_args g);
/* Rows are keys, and what is summed is over queries. */
void trii_flash_over_queries(const trii_flash *f, const trii_flash_tile *tile, trii_gemm_args g);
/* keep [n_s, TILE]: 0, or 1 / (1 - p). */
void trii_flash_keep(const trii_flash_run *run, const trii_flash_tile *tile, float *keep);
/* Keys that some of these queries may look at. */
static inline int64_t trii_flash_keys(const trii_flash *f, int64_t t, int64_t n_t)
{
    return f->causal && t + n_t < f->size.keys ? t + n_t : f->size.keys;
}

/* Columns of a tile, rounded up for vectors. */
static inline int64_t trii_flash_columns(const trii_flash *f, int64_t n_t)
{
    return (n_t + f->kernels->lanes - 1) / f->kernels->lanes * f->kernels->lanes;
}

/* Operands and results may be strided, as long as the elements of a row are contiguous. */
bool trii_flash_takes_layout(const trii_type *type, const trii_layout *layout);
/* Strides of the first n operands. */
void trii_flash_take(const trii_ir *ir, const trii_group *group, const trii_layout *const *have,
                     int n, trii_layouts *want);
/* Where result o lies: in its place in another value, if it has one; else heads lie next to each
 * other within a row if `inside`, or if the first view that reads the result makes them so, which
 * then moves nothing. */
const trii_layout *trii_flash_result_layout(const trii_ir *ir, const trii_group *group, int o,
                                            bool inside);
/* The same for both. takes: f32, or activations in bf16. */
bool trii_flash_takes(const trii_ir *ir, const trii_ir_node *node);
tri_status trii_flash_compile(const trii_ir *ir, const trii_group *group, int64_t items,
                              size_t slot_floats, trii_flash **flash_out) TRI_MUST_CHECK;
/* Calls run for each slot, which does items [items * slot / slots, items * (slot + 1) / slots). */
void trii_flash_slots(const trii_flash_run *run, int64_t items,
                      void (*item)(const trii_flash_run *run, int64_t item, float *scratch));
trii_flash_run trii_flash_begin(const trii_flash *f, void *const *args, const trii_run *run);

#endif
