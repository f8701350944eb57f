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
    /* The runs' that hold it (graph/hold.c), under their lock. */
    uint32_t readers;
    struct tri_context *writer;
    /* Of whoever holds it for writing: the contents' number, and the step that they are of. */
    int32_t version;
    /* The last reference is that of who lends the tensor out, and only trii_tensor_release gives it
     * up. */
    atomic_bool lent;
    uint64_t written_by;
    /* The step that will write `grad` when it runs (graph/gradient.c); 0 = none. */
    atomic_uint_fast64_t grad_writer;
    /* Not OK, and `why` says it: a failed handle, of which everything below is unset, or with a
     * storage a tensor whose contents are lost (trii_tensor_lose). */
    tri_status status;
    char *why; /* NULL: no memory for the words; trii_tensor_why has others */
    tri_dtype dtype;
    int ndim;
    int64_t shape[TRI_MAX_DIMS];
    tri_device device;
    trii_storage *storage;
    size_t offset;             /* bytes into the storage */
    const trii_layout *layout; /* NULL = plain */
    char *name;                /* owned; the user's, for messages; may be NULL */

    bool stays_plain; /* the user looks at the memory: no kernel's layout */
    bool requires_grad;
    bool is_grad; /* of another tensor */
    /* `grad` holds what no optimizer has consumed, of the runs that are done: trii_has_grad knows
     * of what pends. */
    atomic_bool has_grad;
    /* tri_grad shows `grad`: a run has computed it, or lost it, and nobody has cleared it since. */
    atomic_bool shows_grad;
    tri_tensor *grad; /* owned; same shape; may lie in a bucket of a group's arena */
    struct trii_grad_hook *grad_hook; /* borrowed; NULL = gradients stay local */
};

/* A step's handle is no address: its low bit is 1. graph/handle.c knows what the others mean. */
static inline bool trii_is_handle(const tri_tensor *tensor)
{
    return ((uintptr_t)tensor & 1u) != 0;
}

/* Zeros on the device, which is there; one reference. */
tri_status trii_tensor_create(tri_dtype dtype, const int64_t *shape, int ndim, tri_device device,
                              tri_tensor **tensor_out) TRI_MUST_CHECK;
/* tri_tensor_unref by who has set `lent`. */
void trii_tensor_release(tri_tensor *tensor);
/* Moves the contents into `storage` (a reference is taken) at `offset`, in plain order: how
 * gradients get into buckets. No recorded work may pend on the tensor. */
tri_status trii_tensor_move(tri_tensor *tensor, trii_storage *storage,
                            size_t offset) TRI_MUST_CHECK;
/* Bytes of the plain contents. */
size_t trii_tensor_bytes(const tri_tensor *tensor);
/* Contents in place: only where the caller knows that the layout is plain and no work pends. */
void *trii_tensor_data(const tri_tensor *tensor);
/* The contents are worth nothing: whoever reads them gets the current error line, as STATE, until
 * the tensor is mended, by new contents. */
void trii_tensor_lose(tri_tensor *tensor);
void trii_tensor_mend(tri_tensor *tensor);
static inline bool trii_tensor_is_lost(const tri_tensor *tensor)
{
    return tensor->status != TRI_OK && tensor->storage != NULL;
}
/* Of a tensor whose status is not OK. */
static inline const char *trii_tensor_why(const tri_tensor *tensor)
{
    return tensor->why != NULL ? tensor->why
                               : "the contents are lost, and there was no memory to say why: set "
                                 "them again (tri_copy_in, or load a checkpoint)";
}
/* The shared failed tensor of NO_MEMORY: for those whose result nobody releases. */
tri_tensor *trii_tensor_no_memory(void);
/* A failed handle with the current error line; never NULL (a shared static one when memory is
 * out). */
tri_tensor *trii_tensor_failed(tri_status status);

#endif
