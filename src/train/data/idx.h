/*
 * idx.h - IDX files, the format of MNIST and others like it. All numbers are big-endian.
 *
 *     byte 0, 1   0
 *     byte 2      element type: 8 u8, 9 i8, 11 i16, 12 i32, 13 f32, 14 f64
 *     byte 3      number of dimensions n
 *     n times     u32, the size of a dimension
 *     then        the elements, the last dimension fastest
 */
#ifndef TRII_IDX_H
#define TRII_IDX_H

#include <trireme/data.h>

typedef struct trii_idx {
    tri_dtype dtype;
    int ndim;
    int64_t shape[TRI_MAX_DIMS];
    size_t elems;
    void *data; /* in the machine's byte order; owned */
} trii_idx;

/* Plain or gzip. Memory grows with what the file really holds, not with the sizes that it claims.
 * Errors: NOT_FOUND, IO, NO_MEMORY, FORMAT. */
tri_status trii_idx_read(const char *path, trii_idx *idx_out) TRI_MUST_CHECK;
void trii_idx_fini(trii_idx *idx);

#endif
