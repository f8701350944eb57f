/*
 * ops.h - operations on tensors. Shapes are in brackets; N batch, C channels, H height, W width.
 * Semantics, names and defaults are those of torch.nn.functional and torch.
 *
 * An operation checks its operands, is recorded in the current step of the calling thread, and
 * returns a step tensor (tensor.h), never NULL. It computes nothing and does not block. Operands
 * are borrowed during the call: a persistent one may be released right after it, since the step
 * holds a reference. An operand that is NULL, on another device, or of a wrong dtype or shape gives
 * a failed tensor (INVALID_ARG) whose error names the call, all operands and the caller's line; a
 * failed operand gives its own error.
 *
 * Unless its comment says otherwise, an operation takes f32 and f64 (for f16 and bf16 see
 * tri_autocast_begin in tensor.h), its operands have one dtype, and its result has that dtype and a
 * gradient. Binary element-wise operations broadcast as in NumPy. A result has at most 2^48
 * elements (INVALID_ARG).
 *
 * Declared in parts, by family: ops_math.h, ops_shape.h, ops_create.h, ops_reduce.h, ops_nn.h and
 * ops_loss.h; operations of your own are in function.h. Each header ends with macros by which an
 * error names the caller's line (-DTRI_NO_SITES: off).
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

#endif
