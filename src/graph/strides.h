/*
 * strides.h - views: where the elements of a value lie that is a part of another one, or has its
 * elements in another order.
 */
#ifndef TRII_STRIDES_H
#define TRII_STRIDES_H

#include "graph/type.h"

/* Element [i, j, ..] lies offset + i stride[0] + j stride[1] + .. elements from the first one of
 * the value that owns the memory. */
typedef struct trii_strides {
    int64_t offset, stride[TRI_MAX_DIMS];
} trii_strides;

/* Those of a value of its own in plain order. */
void trii_strides_plain(const trii_type *type, trii_strides *strides_out);
/* Whether the elements are next to each other in plain order, from wherever they begin. */
bool trii_strides_are_plain(const trii_type *type, const int64_t *stride);
/* Of as many elements in another shape. False: no strides say it, since dimensions became one whose
 * elements do not lie at one distance. */
bool trii_strides_reshape(const trii_type *from_type, const trii_strides *from,
                          const trii_type *to_type, trii_strides *to);

#endif
