/*
 * convert.h - tensors of one kind of file in another: `trireme ckpt convert`.
 */
#ifndef TRII_CONVERT_H
#define TRII_CONVERT_H

#include <trireme/status.h>
#include <trireme/types.h>

#include "base/compiler.h"

typedef enum trii_convert_kind {
    TRII_CONVERT_SAFETENSORS,
    TRII_CONVERT_TORCH,
    TRII_CONVERT_HUB
} trii_convert_kind;

/* A name that begins with `old` begins with `by` instead. */
typedef struct trii_renaming {
    const char *old, *by;
} trii_renaming;

typedef struct trii_conversion {
    const char *from; /* as trii_tensor_stream_open takes it */
    const char *to;
    trii_convert_kind kind; /* of `to` */
    uint64_t shard_bytes;   /* HUB: trii_hub's */
    const char *prefix;     /* only tensors whose names begin with it, which is dropped: of all or,
                             * where there is none, of a module's state. NULL: that state, where
                             * tri_load would find it; "": all */
    const trii_renaming *renamings; /* [n_renamings]: then; the first that fits */
    int n_renamings;
    tri_dtype dtype; /* of floats of 16 bits and more; NONE: as they are */
    bool (*go_on)(void *arg, uint64_t done, uint64_t bytes); /* after each block; false: stop. NULL
                                                              * allowed */
    void *arg;
} trii_conversion;

typedef struct trii_converted {
    int64_t n, n_left_out; /* tensors */
    uint64_t bytes;        /* of those n */
    char prefix[64];       /* that was chosen */
} trii_converted;

/* The file, or the folder, appears when it is complete and on disk. Takes as much memory as the
 * tensors' names and blocks of 256 KiB, and 8 MiB where elements lie apart. Those that lie far
 * apart (a matrix that is transposed) are taken from the mapped file; tensors that
 * torch.distributed.checkpoint has divided by other dimensions than the first are put together in
 * memory. Errors: those of the two files; INVALID_ARG (`to` is one of them; two tensors get one
 * name), NOT_FOUND (no such prefix), UNSUPPORTED (a type that Trireme has not), ABORTED (go_on said
 * so). */
tri_status trii_convert(const trii_conversion *what, trii_converted *told_out) TRI_MUST_CHECK;

#endif
