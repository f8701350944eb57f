/*
 * matmul_onednn.c - matrix products in bf16, by a primitive for their sizes. Called by products.c
 * where code for fixed sizes is faster than products_bf16.c.
 */
#include "train/device/cpu/onednn/handles.h"

/* [batch, rows, cols] with our strides; batch stride 0 means one matrix for all. */
static tri_status strided_md(dnnl_data_type_t type, int64_t batch, int64_t batch_stride,
                             int64_t rows, int64_t cols, int64_t row_stride, int64_t col_stride,
                             dnnl_memory_desc_t *md_out)
{
    dnnl_dims_t dims = {batch_stride > 0 ? batch : 1, rows, cols};
    dnnl_dims_t strides = {batch_stride > 0 ? batch_stride : rows * cols, row_stride, col_stride};

    return trii_onednn_status(dnnl_memory_desc_init_by_strides(md_out, 3, dims, type, strides),
                              "matmul operand");
}

typedef struct descriptors {
    dnnl_memory_desc_t a, b, bias, c;
} descriptors;

static tri_status describe(const trii_matmul_shape *shape, dnnl_data_type_t b_type, descriptors *d)
{
    dnnl_dims_t bias_dims = {1, 1, shape->n};
    tri_status status = strided_md(dnnl_bf16, shape->batch, shape->a_batch, shape->m, shape->k,
                                   shape->a_row, shape->a_col, &d->a);

    if (status == TRI_OK)
        status = strided_md(b_type, shape->batch, shape->b_batch, shape->k, shape->n, shape->b_row,
                            shape->b_col, &d->b);
    if (status == TRI_OK)
        status = strided_md(shape->c_is_f32 ? dnnl_f32 : dnnl_bf16, shape->batch, shape->c_batch,
                            shape->m, shape->n, shape->c_row, 1, &d->c);
    if (status == TRI_OK)
        status = trii_onednn_status(
            dnnl_memory_desc_init_by_tag(&d->bias, 3, bias_dims, dnnl_f32, dnnl_abc),
            "matmul bias");
    return status;
}

/* b at argument b_arg, the scratch at n_args. */
static tri_status product(const trii_matmul_shape *shape, const descriptors *d, const int args[5],
                          int b_arg, int n_args, trii_kernel **kernel_out)
{
    dnnl_engine_t engine;
    dnnl_primitive_attr_t attr;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_matmul_desc_t desc;
    trii_onednn_arg operands[4];
    int n = 0;
    tri_status status = trii_onednn_engine(&engine);

    if (status == TRI_OK)
        status = trii_onednn_attr(&attr);
    if (status == TRI_OK)
        status = trii_onednn_status(
            dnnl_matmul_desc_init(&desc, &d->a, &d->b, shape->bias ? &d->bias : NULL, &d->c),
            "matmul");
    if (status == TRI_OK)
        status = trii_onednn_status(dnnl_primitive_desc_create(&pd, &desc, attr, engine, NULL),
                                    "matmul");
    if (status != TRI_OK)
        return status;
    operands[n++] = (trii_onednn_arg){DNNL_ARG_SRC, &d->a, args[0]};
    operands[n++] = (trii_onednn_arg){DNNL_ARG_WEIGHTS, &d->b, b_arg};
    if (shape->bias)
        operands[n++] = (trii_onednn_arg){DNNL_ARG_BIAS, &d->bias, args[2]};
    operands[n++] = (trii_onednn_arg){DNNL_ARG_DST, &d->c, args[3]};
    status = trii_onednn_kernel(pd, "matmul", operands, n, n_args, kernel_out);
    dnnl_primitive_desc_destroy(pd);
    return status;
}

/* A parameter on the right stays f32: it is rounded into the scratch, in the order that it has. */
static tri_status rounded_product(const trii_matmul_shape *shape, const int args[5],
                                  trii_kernel **kernel_out)
{
    trii_onednn_pair pair = {.main = 1, .n_args = args[4]};
    descriptors wide, narrow;
    tri_status status = describe(shape, dnnl_f32, &wide);

    if (status == TRI_OK)
        status = describe(shape, dnnl_bf16, &narrow);
    if (status == TRI_OK)
        status = trii_onednn_copy(&wide.b, args[1], &narrow.b, args[4], args[4] + 1, &pair.first);
    if (status == TRI_OK)
        status = product(shape, &narrow, args, args[4], args[4] + 1, &pair.second);
    if (status == TRI_OK)
        pair.copy_bytes = dnnl_memory_desc_get_size(&narrow.b);
    return trii_onednn_compose(&pair, status, kernel_out);
}

tri_status trii_onednn_matmul(const trii_matmul_shape *shape, const int args[5],
                              trii_kernel **kernel_out)
{
    descriptors d;
    tri_status status;

    if (shape->b_is_f32)
        return rounded_product(shape, args, kernel_out);
    status = describe(shape, dnnl_bf16, &d);
    return status == TRI_OK ? product(shape, &d, args, args[1], args[4], kernel_out) : status;
}
