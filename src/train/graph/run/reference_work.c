/*
 * reference_work.c - work memory for reference kernels: lent by the plan, or from the heap.
 * Reference kernels of a plan must not allocate in each step.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/dtype.h"
#include "train/graph/run/kernel.h"
#include "train/graph/step/type.h"

#define ALIGNMENT 64

/* At least one byte, so that every block has an address of its own. */
static size_t rounded(size_t bytes)
{
    return (bytes / ALIGNMENT + 1) * ALIGNMENT;
}

void *trii_work_take(const trii_kernel_args *args, size_t n, size_t size)
{
    trii_work *work = args->work;
    size_t bytes;
    void *block;

    if (work == NULL || __builtin_mul_overflow(n, size, &bytes) || rounded(bytes) > work->bytes)
        return trii_alloc(n, size, "reference kernel");
    bytes = rounded(bytes);
    block = work->at;
    memset(block, 0, bytes);
    work->at += bytes;
    work->bytes -= bytes;
    return block;
}

/* Lent memory is taken from the front; all of it is free again when the kernel has run. */
void trii_work_return(const trii_kernel_args *args, void *block)
{
    const trii_work *work = args->work;

    if (work == NULL || (char *)block < work->begin || (char *)block >= work->at)
        trii_free(block);
}

size_t trii_work_bytes(const trii_kernel_args *args)
{
    size_t bytes = 0;

    for (int i = 0; i < args->n_in + args->n_out; i++) {
        const trii_array *array = i < args->n_in ? &args->in[i] : &args->out[i - args->n_in];
        size_t n;

        if (array->type == NULL)
            continue;
        n = (size_t)trii_type_numel(array->type);
        if (trii_dtype_is_half(array->type->dtype))
            bytes += rounded(n * sizeof(float));
        if (trii_dtype_is_half(array->type->dtype) || array->type->dtype == TRI_DTYPE_F32)
            bytes += 2 * rounded(n * sizeof(double)); /* and what this call makes of it */
    }
    return bytes;
}
