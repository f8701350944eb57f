/*
 * range.c - tensors over a part of another one's memory: see sharing.h.
 */
#include "base/err.h"
#include "train/tensor/sharing.h"

tri_status trii_tensor_range(tri_tensor *whole, int64_t first, const int64_t *shape, int ndim,
                             tri_tensor **tensor_out)
{
    size_t size = tri_dtype_size(whole->dtype), at = whole->offset;
    tri_tensor *tensor = NULL;
    tri_status status;

    if (whole->layout != NULL)
        return TRII_FAIL(TRI_ERR_STATE,
                         "the tensor lies in the order of a kernel (%s): it has no ranges",
                         whole->layout->name);
    if (first < 0 || (uint64_t)first > trii_tensor_bytes(whole) / size)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "a range begins at element %lld of a tensor of %zu elements",
                         (long long)first, trii_tensor_bytes(whole) / size);
    at += (size_t)first * size;
    status =
        trii_tensor_over(whole->storage, at, whole->dtype, shape, ndim, whole->device, &tensor);
    if (status != TRI_OK)
        return status;
    if (!trii_tensor_covers(whole, tensor)) {
        tri_tensor_unref(tensor);
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "a range ends after the %zu elements of the tensor",
                         trii_tensor_bytes(whole) / size);
    }
    tensor->stays_plain = whole->stays_plain;
    tensor->address_lent = whole->address_lent;
    tensor->read_only = whole->read_only;
    if (trii_tensor_is_lost(whole)) {
        trii_err_set("%s", trii_tensor_why(whole));
        trii_tensor_lose(tensor, tri_last_error());
    }
    trii_sharing_begin(whole);
    trii_sharing_enter(tensor);
    *tensor_out = tensor;
    return TRI_OK;
}
