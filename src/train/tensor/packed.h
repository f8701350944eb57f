/*
 * packed.h - copies of a parameter in other layouts, in which kernels read it, which stay with the
 * tensor from run to run ("prepacked weights").
 *
 * A copy is of one version of the contents. It is kept where contents are read more than once:
 * when a copy is asked for again, or was asked for more than once before the last write. So a
 * program that trains in one plan a step keeps none. A write makes copies invalid; memory that the
 * next version will not need is freed then. A tensor has TRII_PACKED_COPIES of them at most.
 *
 * Calls on one tensor exclude each other: the plan and train/graph/step/hold.c make them under
 * trii_step_lock. Memory that is not needed any more is returned to them, to be released after the
 * lock: to free it may wait for a device.
 */
#ifndef TRII_PACKED_H
#define TRII_PACKED_H

#include <stddef.h>
#include <stdint.h>

#include <trireme/tensor.h>

#include "train/tensor/storage.h"

#define TRII_PACKED_COPIES 2

struct trii_packed; /* of one tensor */

/* What a copy is, and where. */
typedef struct trii_packed_kind {
    const trii_layout *layout; /* interned; NULL = plain */
    tri_device device;         /* whose memory it is; TRI_CPU(0) for all cpu devices */
    size_t bytes;
} trii_packed_kind;

typedef struct trii_packed_use {
    trii_storage *storage; /* a reference; NULL: the copy is not to be kept, or not there yet */
    bool ready;            /* it has the contents; else the caller fills it */
    trii_storage *dropped; /* a reference, to be released: what the copy has taken the place of */
    bool wanted;           /* no storage: the caller makes one and gives it to trii_packed_keep */
} trii_packed_use;

/* References to be released. */
typedef struct trii_packed_dropped {
    trii_storage *storage[TRII_PACKED_COPIES]; /* NULL where there is none */
} trii_packed_dropped;

/* Somebody needs a copy of this version of the contents. */
trii_packed_use trii_packed_take(tri_tensor *tensor, const trii_packed_kind *kind, int32_t version);
/* The storage has the copy now. A reference is taken, unless the copy is not wanted any more.
 * Returns one to be released, or NULL. */
trii_storage *trii_packed_keep(tri_tensor *tensor, const trii_packed_kind *kind, int32_t version,
                               trii_storage *storage) TRI_MUST_CHECK;
/* The tensor got another version. */
trii_packed_dropped trii_packed_written(tri_tensor *tensor) TRI_MUST_CHECK;
/* Without the lock. */
void trii_packed_release(const trii_packed_dropped *dropped);
void trii_packed_free(struct trii_packed *packed); /* NULL allowed */
/* Bytes of all copies that tensors have. Any thread. */
size_t trii_packed_bytes(void);

#endif
