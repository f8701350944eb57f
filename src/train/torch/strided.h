/*
 * strided.h - elements of a tensor that lie apart from each other, put together.
 */
#ifndef TRII_STRIDED_H
#define TRII_STRIDED_H

#include <trireme/torch_file.h>

#include "base/compiler.h"
#include "os/file.h"

/* Whether its elements follow each other, row-major. */
bool trii_is_contiguous(const tri_torch_tensor *tensor);
/* from: its first element; to: [tensor->bytes], row-major. */
void trii_strided_copy(void *to, const void *from, const tri_torch_tensor *tensor);

/* So many elements from this one on, counted row-major. from: the element of the storage that so
 * many (`skipped`) lie before, counted from the tensor's first. */
void trii_strided_range(void *to, const void *from, uint64_t skipped,
                        const tri_torch_tensor *tensor, uint64_t first, uint64_t n);
/* Elements [*low_out, *high_out] of the storage, counted from the tensor's first, have all of those
 * (n > 0), and perhaps more. */
void trii_strided_span(const tri_torch_tensor *tensor, uint64_t first, uint64_t n,
                       uint64_t *low_out, uint64_t *high_out);

/* The first element of a tensor of the file, in the mapped file; its storage's checksum has been
 * compared. Errors: FORMAT. */
tri_status trii_torch_data(tri_torch_file *file, const tri_torch_tensor *tensor,
                           const void **data_out) TRI_MUST_CHECK;
/* A file of torch.save that lies within another: `map` is its part of that, and outlives it. Errors
 * as tri_torch_open, whose messages begin with `path` and count offsets within the part. */
tri_status trii_torch_open_within(const char *path, const trii_mapping *map,
                                  tri_torch_file **file_out) TRI_MUST_CHECK;

#endif
