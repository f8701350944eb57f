/*
 * torch_dtype.h - torch's element types, by the names that its files have for them.
 */
#ifndef TRII_TORCH_DTYPE_H
#define TRII_TORCH_DTYPE_H

#include <stddef.h>

#include <trireme/types.h>

typedef struct trii_torch_dtype {
    const char *name;    /* "float32", after "torch." */
    const char *storage; /* "FloatStorage"; NULL: it has no class of its own */
    tri_dtype dtype;     /* NONE: tensors here are never of it */
    size_t size;         /* bytes of an element */
} trii_torch_dtype;

/* "torch.float32"; NULL: it is none. */
const trii_torch_dtype *trii_torch_dtype_named(const char *name);
/* "torch.FloatStorage", "torch.cuda.FloatStorage", ...; NULL: it is none. */
const trii_torch_dtype *trii_torch_dtype_of_storage(const char *class_name);
/* NULL: torch has no such type. */
const trii_torch_dtype *trii_torch_dtype_of(tri_dtype dtype);

#endif
