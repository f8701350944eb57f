/*
 * persistent.h - what stands behind a `tri_tensor *` that is not a step's handle.
 */
#ifndef TRII_PERSISTENT_H
#define TRII_PERSISTENT_H

#include <trireme/tensor.h>

#include "tensor/storage.h"

struct trii_grad_hook; /* parallel strategies; graph/step.h */

struct tri_tensor {
    atomic_int refs;
    tri_status status; /* a failed handle: everything below is unset, `why` says it */
    char *why;
    tri_dtype dtype;
    int ndim;
    int64_t shape[TRI_MAX_DIMS];
    tri_device device;
    trii_storage *storage;
    size_t offset;             /* bytes into the storage */
    const trii_layout *layout; /* NULL = plain */

    bool requires_grad;
    bool has_grad;    /* `grad` holds what the optimizer has not consumed yet */
    tri_tensor *grad; /* owned; same shape; may lie in a bucket of a group's arena */
    struct trii_grad_hook *grad_hook; /* borrowed; NULL = gradients stay local */

    /* The recorder's mark: in the step of this generation the tensor's current contents are
     * this value. */
    uint64_t step_generation;
    int32_t step_value;
};

/* Bytes of the plain contents. */
size_t trii_tensor_bytes(const tri_tensor *tensor);
/* Contents in place: only where the caller knows that the layout is plain and no work pends. */
void *trii_tensor_data(const tri_tensor *tensor);
/* A failed handle with the current error line; never NULL (a shared static one when memory is
 * out). */
tri_tensor *trii_tensor_failed(tri_status status);

#endif
