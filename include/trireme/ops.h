/*
 * ops.h - operations on tensors. All return a step tensor (see tensor.h), never NULL; none
 * computes. Shapes are in brackets; N batch, C channels, H height, W width.
 *
 * Binary element-wise operations broadcast as NumPy does; both sides have one dtype.
 * No result has more than 2^48 elements (INVALID_ARG).
 * Declared in parts, by family: ops_math.h, ops_shape.h, ops_create.h, ops_reduce.h, ops_nn.h and
 * ops_loss.h. Semantics, names and defaults are those of torch.nn.functional and torch.
 */
#ifndef TRIREME_OPS_H
#define TRIREME_OPS_H

#include <trireme/function.h>
#include <trireme/ops_create.h>
#include <trireme/ops_loss.h>
#include <trireme/ops_math.h>
#include <trireme/ops_nn.h>
#include <trireme/ops_reduce.h>
#include <trireme/ops_shape.h>

/* Every operation remembers the caller's line for its error message (-DTRI_NO_SITES: off). */
#include <trireme/ops_sites.h>

#endif
