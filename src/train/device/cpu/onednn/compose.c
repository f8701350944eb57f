/*
 * compose.c - two kernels as one, with something between them in the scratch: a copy of weights in
 * another type or order, made before the primitive that reads it or converted back after the one
 * that wrote it. Used by conv_bf16.c and matmul_onednn.c.
 */
#include "base/alloc.h"
#include "train/device/cpu/onednn/handles.h"

#define MAX_ARGS 8

typedef struct composed {
    trii_kernel base;
    trii_onednn_pair pair;
} composed;

static tri_status composed_run(const trii_kernel *kernel, void *const *args, const trii_run *run)
{
    const trii_onednn_pair *pair = &((const composed *)kernel)->pair;
    void *all[MAX_ARGS + 2];
    tri_status status;

    for (int i = 0; i <= pair->n_args; i++) /* the scratch begins with the copy */
        all[i] = args[i];
    all[pair->n_args + 1] = (char *)args[pair->n_args] + pair->copy_bytes;
    status = pair->first->run(pair->first, all, run);
    return status == TRI_OK ? pair->second->run(pair->second, all, run) : status;
}

static void destroy_pair(const trii_onednn_pair *pair)
{
    if (pair->first != NULL)
        pair->first->destroy(pair->first);
    if (pair->second != NULL)
        pair->second->destroy(pair->second);
}

static void composed_destroy(trii_kernel *kernel)
{
    destroy_pair(&((composed *)kernel)->pair);
    trii_free(kernel);
}

tri_status trii_onednn_compose(trii_onednn_pair *pair, tri_status status, trii_kernel **kernel_out)
{
    composed *k = NULL;
    size_t first, second;

    if (status == TRI_OK && pair->n_args > MAX_ARGS)
        status = TRII_FAIL(TRI_ERR_INTERNAL, "a composed kernel of %d arguments", pair->n_args);
    if (status == TRI_OK) {
        k = trii_alloc(1, sizeof(*k), "kernel");
        status = k != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
    }
    if (status != TRI_OK) {
        destroy_pair(pair);
        return status;
    }
    pair->copy_bytes = (pair->copy_bytes + 63) / 64 * 64;
    first = pair->first->scratch_bytes;
    second = pair->second->scratch_bytes;
    k->pair = *pair;
    k->base = (trii_kernel){.name = pair->main == 0 ? pair->first->name : pair->second->name,
                            .run = composed_run,
                            .destroy = composed_destroy,
                            .scratch_bytes = pair->copy_bytes + (first > second ? first : second)};
    *kernel_out = &k->base;
    return TRI_OK;
}

tri_status trii_onednn_copy(const dnnl_memory_desc_t *from, int from_arg,
                            const dnnl_memory_desc_t *to, int to_arg, int n_args,
                            trii_kernel **kernel_out)
{
    const trii_onednn_arg operands[2] = {{DNNL_ARG_FROM, from, from_arg},
                                         {DNNL_ARG_TO, to, to_arg}};
    dnnl_primitive_desc_t pd = NULL;
    dnnl_engine_t engine;
    dnnl_primitive_attr_t attr;
    tri_status status = trii_onednn_engine(&engine);

    if (status == TRI_OK)
        status = trii_onednn_attr(&attr);
    if (status == TRI_OK)
        status = trii_onednn_status(
            dnnl_reorder_primitive_desc_create(&pd, from, engine, to, engine, attr), "reorder");
    if (status == TRI_OK)
        status = trii_onednn_kernel(pd, "reorder", operands, 2, n_args, kernel_out);
    if (pd != NULL)
        dnnl_primitive_desc_destroy(pd);
    return status;
}
