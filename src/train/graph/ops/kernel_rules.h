/*
 * kernel_rules.h - what the reference kernels and those of devices must agree on beyond a table
 * entry.
 */
#ifndef TRII_KERNEL_RULES_H
#define TRII_KERNEL_RULES_H

#include "train/graph/step/op.h"

/* q [batch, heads, queries, depth], k [batch, kv_heads, keys, depth], v [.., keys, v_depth]; head h
 * of q uses head h / (heads / kv_heads) of k and v. */
typedef struct trii_attention_size {
    int64_t batch, heads, kv_heads, queries, keys, depth, v_depth;
} trii_attention_size;

void trii_attention_sizes(const trii_type *q, const trii_type *k, const trii_type *v,
                          trii_attention_size *size);
/* Elements from one batch, head, query and key to the next; 0 where the mask is broadcast. */
void trii_attention_mask_strides(const trii_type *mask, int64_t stride[4]);

#define TRII_RANDOM_KEY 6 /* numbers of a random_key */
trii_random trii_random_of_key(const int64_t *key);
/* Of head h of batch b, of which there are `heads` here: its number among those of the whole. */
static inline int64_t trii_random_head(const int64_t *key, int64_t b, int64_t heads, int64_t h)
{
    return key[4] > 0 ? b * key[4] + key[5] + h : b * heads + h;
}

/* Which matrix of the operand product number `index` of the result takes: the stride of each
 * leading dimension of the result, 0 where the operand is broadcast. */
void trii_matmul_batches(const trii_type *operand, const trii_type *out, int64_t *stride);
int64_t trii_matmul_batch(const trii_type *out, const int64_t *stride, int64_t index);

/* OK, or a failure that names element `at` of the indices; there are `size` of `what`. */
tri_status trii_index_check(int64_t index, int64_t at, int64_t size,
                            const char *what) TRI_MUST_CHECK;

#endif
