/*
 * strides.h - views: where the elements of a value are that is a part of another one, or has its
 * elements in another order.
 */
#ifndef TRII_STRIDES_H
#define TRII_STRIDES_H

#include "train/graph/step/type.h"

/* Element [i, j, ..] is offset + i stride[0] + j stride[1] + .. elements from the first element of
 * the value that owns the memory. */
typedef struct trii_strides {
    int64_t offset, stride[TRI_MAX_DIMS];
} trii_strides;

/* The place of a value in plain order in memory of its own. */
void trii_strides_plain(const trii_type *type, trii_strides *strides_out);
/* Whether the elements are contiguous in plain order, wherever they begin. */
bool trii_strides_are_plain(const trii_type *type, const int64_t *stride);
/* The place of the same elements in another shape. False: strides cannot say it, since dimensions
 * became one whose elements are not at equal distances. */
bool trii_strides_reshape(const trii_type *from_type, const trii_strides *from,
                          const trii_type *to_type, trii_strides *to);

#endif
