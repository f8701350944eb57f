/*
 * sgemm_onednn.c - the library's function for products in f32, which needs no primitive. It
 * compiles once for all sizes: with primitives, each new length of a sequence compiled 14 kernels
 * of a GPT, half of the 4 ms that the length cost.
 */
#include "train/device/cpu/onednn/handles.h"

tri_status trii_onednn_sgemm_ready(void)
{
    dnnl_engine_t engine;

    return trii_onednn_engine(&engine);
}

char trii_onednn_order(int64_t rows, int64_t cols, int64_t row, int64_t col, dnnl_dim_t *ld_out)
{
    bool by_rows = col == 1;
    int64_t others = by_rows ? rows : cols, least = by_rows ? cols : rows;

    *ld_out = by_rows ? row : col;
    if (others == 1 && *ld_out < least)
        *ld_out = least;
    return by_rows ? 'N' : 'T';
}

int trii_onednn_sgemm(const trii_sgemm_args *g)
{
    dnnl_dim_t lda, ldb;
    char a = trii_onednn_order(g->m, g->k, g->a_row, g->a_col, &lda);
    char b = trii_onednn_order(g->k, g->n, g->b_row, g->b_col, &ldb);
    dnnl_dim_t ldc = g->m == 1 && g->c_row < g->n ? g->n : g->c_row;

    return (int)dnnl_sgemm(a, b, g->m, g->n, g->k, 1, g->a, lda, g->b, ldb, g->add ? 1 : 0, g->c,
                           ldc);
}

tri_status trii_onednn_sgemm_status(int failed)
{
    return trii_onednn_status((dnnl_status_t)failed, "product in f32");
}
