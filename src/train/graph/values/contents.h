/*
 * contents.h - reading tensors of either kind, for what shows or converts them.
 */
#ifndef TRII_CONTENTS_H
#define TRII_CONTENTS_H

#include "train/graph/step/op.h"

/* Runs what is pending and calls the function with the plain contents, which live during the
 * call. */
tri_status trii_contents_visit(tri_tensor *tensor,
                               void (*see)(void *arg, const trii_type *type, const void *data),
                               void *arg) TRI_MUST_CHECK;
/* Whether it requires a gradient, and the operation that made it; false and NULL for a leaf, and
 * for what is not a tensor. */
void trii_contents_origin(const tri_tensor *tensor, bool *requires_grad_out,
                          const char **operation_out);
/* Prepends "CALL at FILE:LINE" to the error line. */
tri_status trii_contents_fail(tri_status status, const char *call);
/* An element of a type, converted. 64-bit integers are rounded in the first. */
double trii_element_double(tri_dtype dtype, const void *element);
int64_t trii_element_int(tri_dtype dtype, const void *element); /* of the integer types and bool */

#endif
