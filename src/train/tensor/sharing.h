/*
 * sharing.h - persistent tensors that share memory: a flat unit, and the parameters and shards that
 * are ranges of it.
 *
 * A storage lists the tensors that share it. Whatever compares tensors of the program by address
 * asks here who else has some of their bytes: a write of one is a write of all that overlap with
 * it (train/graph/step/overlaps.c: versions, what a step knows, who may run; train/plan: the order
 * of reads and writes). Tensors of one storage that have no byte in common are strangers.
 *
 * Tensors that share memory stay in plain order, since a layout is of a whole tensor, and in their
 * place: they neither leave their storage for a new one nor change their device.
 */
#ifndef TRII_SHARING_H
#define TRII_SHARING_H

#include <stdbool.h>
#include <stdint.h>

#include <trireme/tensor.h>

#include "train/tensor/persistent.h"

/* A tensor over the elements of `whole` from number `first` on, with its dtype and device. It keeps
 * the memory, not `whole`. From now on both share: a tensor that trii_tensor_move brings into the
 * storage later shares, too. One reference; nobody else may use `whole` meanwhile. INVALID_ARG: it
 * would not fit; STATE: `whole` lies in the layout of a kernel. */
tri_status trii_tensor_range(tri_tensor *whole, int64_t first, const int64_t *shape, int ndim,
                             tri_tensor **tensor_out) TRI_MUST_CHECK;

/* Whether the two have a byte in common. */
static inline bool trii_tensors_overlap(const tri_tensor *a, const tri_tensor *b)
{
    size_t end_a, end_b;

    if (a->storage != b->storage)
        return false;
    end_a = a->offset + trii_tensor_bytes(a);
    end_b = b->offset + trii_tensor_bytes(b);
    return (a->offset > b->offset ? a->offset : b->offset) < (end_a < end_b ? end_a : end_b);
}
/* Whether all bytes of `part`, which overlaps with the tensor, are the tensor's. */
static inline bool trii_tensor_covers(const tri_tensor *tensor, const tri_tensor *part)
{
    return tensor->offset <= part->offset &&
           part->offset + trii_tensor_bytes(part) <= tensor->offset + trii_tensor_bytes(tensor);
}
/* Calls see() with each other tensor that overlaps with this one, which shares its memory. see()
 * makes and releases no tensors. */
void trii_overlaps_visit(const tri_tensor *tensor, void (*see)(void *arg, tri_tensor *other),
                         void *arg);

/* All bytes of the tensor are new: its contents are not lost any more, nor are those of others that
 * share its memory and of which nothing is lost now: tensors that are whole have all of their bytes
 * between them. */
void trii_tensor_rewritten(tri_tensor *tensor);

/* For range.c and tensor.c: the tensor is one that shares its storage; or it is if there are others
 * already; or it leaves the storage. */
void trii_sharing_begin(tri_tensor *tensor);
void trii_sharing_enter(tri_tensor *tensor);
void trii_sharing_leave(tri_tensor *tensor);

#endif
