/*
 * gemm_bf16_onednn.c - the library's function for products in bf16, which needs no primitive. It is
 * exported for the library's own tests and declared in none of its headers, so it is looked up at
 * run time, and its absence is no error.
 */
#include "train/device/cpu/onednn/handles.h"

dnnl_status_t dnnl_gemm_bf16bf16f32(char a_order, char b_order, dnnl_dim_t m, dnnl_dim_t n,
                                    dnnl_dim_t k, float alpha, const uint16_t *a, dnnl_dim_t lda,
                                    const uint16_t *b, dnnl_dim_t ldb, float beta, float *c,
                                    dnnl_dim_t ldc) __attribute__((weak));

tri_status trii_onednn_gemm_bf16_ready(void)
{
    const uint16_t one = 0x3f80;
    float product = 0;
    dnnl_engine_t engine;
    tri_status status = trii_onednn_engine(&engine);

    if (status != TRI_OK)
        return status;
    if (dnnl_gemm_bf16bf16f32 == NULL ||
        dnnl_gemm_bf16bf16f32('N', 'N', 1, 1, 1, 1, &one, 1, &one, 1, 0, &product, 1) !=
            dnnl_success ||
        product != 1)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED, "oneDNN: no function for products in bf16");
    return TRI_OK;
}

int trii_onednn_gemm_bf16(const trii_gemm_bf16_args *g)
{
    dnnl_dim_t lda, ldb;
    char a = trii_onednn_order(g->m, g->k, g->a_row, g->a_col, &lda);
    char b = trii_onednn_order(g->k, g->n, g->b_row, g->b_col, &ldb);
    dnnl_dim_t ldc = g->m == 1 && g->c_row < g->n ? g->n : g->c_row;

    return (int)dnnl_gemm_bf16bf16f32(a, b, g->m, g->n, g->k, 1, g->a, lda, g->b, ldb, 0, g->c,
                                      ldc);
}

tri_status trii_onednn_gemm_bf16_status(int failed)
{
    return trii_onednn_status((dnnl_status_t)failed, "product in bf16");
}
