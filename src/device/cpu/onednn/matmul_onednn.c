/*
 * matmul_onednn.c - large matrix products.
 */
#include "device/cpu/onednn/handles.h"

/* [batch, rows, cols] with our strides; batch stride 0 means one matrix for all. */
static tri_status strided_md(int64_t batch, int64_t batch_stride, int64_t rows, int64_t cols,
                             int64_t row_stride, int64_t col_stride, dnnl_memory_desc_t *md_out)
{
    dnnl_dims_t dims = {batch_stride > 0 ? batch : 1, rows, cols};
    dnnl_dims_t strides = {batch_stride > 0 ? batch_stride : rows * cols, row_stride, col_stride};

    return trii_onednn_status(dnnl_memory_desc_init_by_strides(md_out, 3, dims, dnnl_f32, strides),
                              "matmul operand");
}

tri_status trii_onednn_matmul(const trii_matmul_shape *shape, const int args[5],
                              trii_kernel **kernel_out)
{
    dnnl_memory_desc_t a, b, bias, c;
    dnnl_engine_t engine;
    dnnl_primitive_attr_t attr;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_matmul_desc_t desc;
    dnnl_dims_t bias_dims = {1, 1, shape->n};
    trii_onednn_arg operands[4];
    int n = 0;
    tri_status status = trii_onednn_engine(&engine);

    if (status == TRI_OK)
        status = trii_onednn_attr(&attr);
    if (status == TRI_OK)
        status = strided_md(shape->batch, shape->a_batch, shape->m, shape->k, shape->a_row,
                            shape->a_col, &a);
    if (status == TRI_OK)
        status = strided_md(shape->batch, shape->b_batch, shape->k, shape->n, shape->b_row,
                            shape->b_col, &b);
    if (status == TRI_OK)
        status = strided_md(shape->batch, shape->m * shape->n, shape->m, shape->n, shape->n, 1, &c);
    if (status == TRI_OK)
        status = trii_onednn_status(
            dnnl_memory_desc_init_by_tag(&bias, 3, bias_dims, dnnl_f32, dnnl_abc), "matmul bias");
    if (status == TRI_OK)
        status = trii_onednn_status(
            dnnl_matmul_desc_init(&desc, &a, &b, shape->bias ? &bias : NULL, &c), "matmul");
    if (status == TRI_OK)
        status = trii_onednn_status(dnnl_primitive_desc_create(&pd, &desc, attr, engine, NULL),
                                    "matmul");
    if (status != TRI_OK)
        return status;
    operands[n++] = (trii_onednn_arg){DNNL_ARG_SRC, &a, args[0]};
    operands[n++] = (trii_onednn_arg){DNNL_ARG_WEIGHTS, &b, args[1]};
    if (shape->bias)
        operands[n++] = (trii_onednn_arg){DNNL_ARG_BIAS, &bias, args[2]};
    operands[n++] = (trii_onednn_arg){DNNL_ARG_DST, &c, args[3]};
    status = trii_onednn_kernel(pd, "matmul", operands, n, args[4], kernel_out);
    dnnl_primitive_desc_destroy(pd);
    return status;
}
