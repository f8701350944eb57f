/*
 * persistent.h - what a `tri_tensor *` that is not a step's handle points to.
 */
#ifndef TRII_PERSISTENT_H
#define TRII_PERSISTENT_H

#include <trireme/tensor.h>

#include "base/compiler.h"
#include "train/tensor/piece.h"
#include "train/tensor/storage.h"

struct trii_placed;    /* train/dist/placement.h */
struct trii_packed;    /* packed.h */
struct trii_elsewhere; /* elsewhere.h */
struct trii_staged;    /* train/tensor/pipeline_stages.h */

struct tri_tensor {
    atomic_int refs;
    /* The runs that hold it (train/graph/step/hold.c), under their lock. */
    uint32_t readers;
    struct tri_context *writer;
    /* Written by the thread that holds it for writing: number of the contents, and the step that
     * wrote them. */
    int32_t version;
    /* The last reference belongs to the lender, and only trii_tensor_release gives it up. */
    atomic_bool lent;
    uint64_t written_by;
    /* Generation of the step that will write `grad` when it runs (train/graph/autograd/gradient.c);
     * 0 = none. */
    atomic_uint_fast64_t grad_writer;
    /* Not OK: a failed handle, of which everything below is unset, or, with a storage, a tensor
     * whose contents are lost (trii_tensor_lose). `why` is the error line. */
    tri_status status;
    char *why; /* NULL: there was no memory for the line; trii_tensor_why gives another */
    tri_dtype dtype;
    int ndim;
    int64_t shape[TRI_MAX_DIMS];
    tri_device device;
    trii_storage *storage;
    size_t offset;             /* bytes into the storage */
    const trii_layout *layout; /* NULL = plain */
    char *name;                /* owned; given by the user, for messages; may be NULL */
    /* Owned; set once, under the lock of train/graph/step/hold.c. NULL: nobody has asked for a
     * copy. */
    struct trii_packed *_Atomic packed;

    bool stays_plain; /* the user accesses the memory: no layout of a kernel */
    /* it is in the list of its storage, of those that share it: sharing.h */
    bool shares;
    /* the program has the address (tri_data) and may write there: no copies are kept; guarded as
     * they are */
    bool address_lent;
    bool read_only; /* the memory is another's: tri_tensor_copy_in refuses */
    bool requires_grad;
    bool is_grad;      /* it is the gradient of another tensor */
    bool is_parameter; /* a module has registered it as one */
    /* its ranks keep averages of its gradient in pieces (train/dist/shards.c): tri_grad shows only
     * what adds up before there is one */
    bool in_pieces;
    /* `grad` holds a gradient that no optimizer has consumed, by runs that are done: trii_has_grad
     * includes what is pending. */
    atomic_bool has_grad;
    /* tri_grad shows `grad`: a run has computed it, or lost it, and nobody has cleared it since. */
    atomic_bool shows_grad;
    /* whether it has a gradient is known once its unit has heard from the other ranks; until then
     * it has none here (train/dist/unused.c) */
    atomic_bool grad_promised;
    tri_tensor *next_sharer; /* sharing.c's */
    tri_tensor *grad;        /* owned; same shape; may lie in a bucket of a group's arena */
    const struct trii_placed *placed; /* borrowed; NULL = gradients stay local */
    const struct trii_held *held;     /* borrowed; NULL = this rank has all of it */
    const struct trii_staged *staged; /* borrowed; NULL = no pipeline of several ranks has it */
    /* borrowed; NULL = the contents are in its memory. Else that has no pages, its contents are
     * lost for readers (trii_tensor_lose), nobody writes them, and a step gets them from there. */
    const struct trii_elsewhere *elsewhere;
};

/* A step's handle is not an address: its low bit is 1. train/graph/record/handle.c interprets the
 * other bits. */
static inline bool trii_is_handle(const tri_tensor *tensor)
{
    return ((uintptr_t)tensor & 1u) != 0;
}

/* Whether the tensor is this rank's part of one (tri_parallelize), of which stage 3 of ZeRO may
 * have left a range here. */
static inline bool trii_tensor_is_cut(const tri_tensor *tensor)
{
    return tensor->held != NULL && (tensor->elsewhere == NULL ? tensor->held->tensor == NULL
                                                              : tensor->held->shared_by != NULL);
}
/* Of such a tensor the whole, else its own: for files and hashes, which know no ranks. */
static inline const int64_t *trii_whole_shape(const tri_tensor *tensor)
{
    return trii_tensor_is_cut(tensor) ? tensor->held->shape : tensor->shape;
}
size_t trii_whole_bytes(const tri_tensor *tensor);
/* All elements of a tensor that is cut, in row-major order, on all ranks that have parts of it:
 * plain [trii_whole_bytes], or NULL on a rank that only takes part. Collective. `status`: of this
 * rank so far; all return the same. */
tri_status trii_whole_collect(tri_tensor *tensor, void *plain, tri_status status) TRI_MUST_CHECK;
/* The tensor gets its part of the whole, plain. */
tri_status trii_whole_take(tri_tensor *tensor, const void *plain) TRI_MUST_CHECK;

/* Zeros on the device, which must exist; one reference. */
tri_status trii_tensor_create(tri_dtype dtype, const int64_t *shape, int ndim, tri_device device,
                              tri_tensor **tensor_out) TRI_MUST_CHECK;
/* A tensor over memory of the storage (a reference is taken) from this byte on; one reference. */
tri_status trii_tensor_over(trii_storage *storage, size_t offset, tri_dtype dtype,
                            const int64_t *shape, int ndim, tri_device device,
                            tri_tensor **tensor_out) TRI_MUST_CHECK;
/* tri_tensor_unref by the code that set `lent`. */
void trii_tensor_release(tri_tensor *tensor);
/* Moves the contents into `storage` (a reference is taken) at `offset`, in plain order: this puts
 * gradients into buckets. No recorded work may be pending on the tensor. If tensors share the
 * storage (sharing.h), this one does, too, and must be on their device. */
tri_status trii_tensor_move(tri_tensor *tensor, trii_storage *storage,
                            size_t offset) TRI_MUST_CHECK;
/* Whether no kernel's layout may get into the tensor. */
static inline bool trii_tensor_stays_plain(const tri_tensor *tensor)
{
    return tensor->stays_plain || tensor->shares;
}
/* The tensor has this shape and these contents from now on, in plain order: all of a storage that
 * holds them (a reference is taken). Nobody else refers to the tensor, which has no gradient and
 * shares no memory. */
void trii_tensor_become(tri_tensor *tensor, const int64_t *shape, trii_storage *storage);
/* Bytes of the plain contents. */
static inline size_t trii_tensor_bytes(const tri_tensor *tensor)
{
    size_t bytes = tri_dtype_size(tensor->dtype);

    for (int d = 0; d < tensor->ndim; d++)
        bytes *= (size_t)tensor->shape[d];
    return bytes;
}
/* Contents in place: only where the caller knows that the layout is plain and no work is
 * pending. */
void *trii_tensor_data(const tri_tensor *tensor);
/* The contents are lost: a reader gets the line `why` (copied), as STATE, until the tensor gets new
 * contents. */
void trii_tensor_lose(tri_tensor *tensor, const char *why);
void trii_tensor_mend(tri_tensor *tensor);
static inline bool trii_tensor_is_lost(const tri_tensor *tensor)
{
    return tensor->status != TRI_OK && tensor->storage != NULL;
}
/* The error line of a tensor whose status is not OK. */
static inline const char *trii_tensor_why(const tri_tensor *tensor)
{
    return tensor->why != NULL
               ? tensor->why
               : "the contents are lost (the cause could not be stored: out of "
                 "memory): set them again (tri_tensor_copy_in, or load a checkpoint)";
}
/* The shared failed tensor of NO_MEMORY: for callers that never release their result. */
tri_tensor *trii_tensor_no_memory(void);
/* A failed handle with the current error line; never NULL (a shared static one without memory). */
tri_tensor *trii_tensor_failed(tri_status status);

#endif
