/*
 * bucket.h - which gradients travel together: sizes in, buckets out. Plain data, shared by the
 * reducer over buffers and by DDP.
 */
#ifndef TRII_BUCKET_H
#define TRII_BUCKET_H

#include <trireme/status.h>

#include "base/compiler.h"

#define TRII_BUCKET_CAP_BYTES ((size_t)25 << 20)
#define TRII_BUCKET_FIRST_BYTES ((size_t)1 << 20)

/* Walks the items in order; each joins the open bucket of its key (element type), which closes
 * once it holds its limit: the first bucket of a key `first_bytes`, the later ones `cap_bytes`.
 * So the last item may exceed the limit (torch's _compute_bucket_assignment_by_size). Buckets are
 * numbered in the order in which they close, the open ones at the end by their first items.
 *
 *   bytes, keys  [n]; 0 <= keys < TRII_BUCKET_KEYS
 *   max_items    a bucket also closes at so many; 0 = any number
 *   bucket_out   [n]: number of each item's bucket
 */
#define TRII_BUCKET_KEYS 16
void trii_bucket_assign(const size_t *bytes, const int *keys, int n, size_t first_bytes,
                        size_t cap_bytes, int max_items, int *bucket_out, int *n_buckets_out);

#endif
