/*
 * chain_operand.h - how a chain of element-wise operations reads an operand that has another shape
 * or order than its result, and writes a result that is a part of another value.
 */
#ifndef TRII_CHAIN_OPERAND_H
#define TRII_CHAIN_OPERAND_H

#include "train/graph/step/strides.h"
#include "train/tensor/storage.h"

/* Element i of the plain order of the chain's shape is element (i / repeat) % period of the
 * operand; or, if there are dims, the one that the strides say. */
typedef struct trii_chain_operand {
    int64_t repeat, period;
    int n_dims;
    int64_t size[TRI_MAX_DIMS], stride[TRI_MAX_DIMS];
    tri_dtype half; /* bf16 or f16, or NONE: f32 */
} trii_chain_operand;

/* An operand of this type in this layout (NULL or strided), broadcast to the chain's shape. */
void trii_chain_operand_of(const trii_type *in, const trii_layout *layout, const trii_type *shape,
                           trii_chain_operand *operand_out);
/* Whether reading it in place is better than copying it first: not if neighbours are far apart. */
bool trii_chain_operand_is_near(const trii_chain_operand *operand);
/* Copies elements [begin, begin + n), as f32. */
void trii_chain_operand_load(float *d, const void *operand, int64_t begin, int64_t n,
                             const trii_chain_operand *o);
void trii_chain_operand_store(void *result, const float *d, int64_t begin, int64_t n,
                              const trii_chain_operand *o);

#endif
