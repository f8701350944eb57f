/*
 * bucket.h - assigns gradients to buckets: sizes in, buckets out. Plain data, shared by the reducer
 * and DDP.
 */
#ifndef TRII_BUCKET_H
#define TRII_BUCKET_H

#include <trireme/types.h>

#include "base/compiler.h"

#define TRII_BUCKET_CAP_BYTES ((size_t)25 << 20)
#define TRII_BUCKET_FIRST_BYTES ((size_t)1 << 20)

/* Fills in the defaults of options that are 0. */
static inline void trii_bucket_defaults(size_t *first_bytes, size_t *cap_bytes)
{
    if (*cap_bytes == 0)
        *cap_bytes = TRII_BUCKET_CAP_BYTES;
    if (*first_bytes == 0)
        *first_bytes = *cap_bytes < TRII_BUCKET_FIRST_BYTES ? *cap_bytes : TRII_BUCKET_FIRST_BYTES;
}

/* A gradient and its place. */
typedef struct trii_bucket_item {
    const char *name;
    size_t count, rows;
    size_t bytes; /* of its place, which is 64-byte aligned */
    tri_dtype dtype;
    int index;
    int place; /* a number: those of different ones share no bucket */
} trii_bucket_item;

/* Walks the items in order; each joins the open bucket of its element type, which closes before an
 * item of another place, and once it holds its limit: the first bucket of a type `first_bytes`, the
 * later ones `cap_bytes`. So the last item may exceed the limit (torch's
 * _compute_bucket_assignment_by_size). Buckets are numbered in the order in which they close, the
 * open ones at the end by their first items.
 *
 *   max_items    a bucket also closes at so many; 0 = any number
 *   bucket_out   [n]: number of each item's bucket */
void trii_bucket_assign(const trii_bucket_item *items, int n, size_t first_bytes, size_t cap_bytes,
                        int max_items, int *bucket_out, int *n_buckets_out);

/* Of n > 0 items: takes the last ones, of `tail_bytes` in all or just the very last, out of their
 * bucket, where that is more than twice as large, into a bucket of their own after all others.
 * Nothing is left to compute while the last bucket is on its way, so it should be small (torch's
 * are as large as they happen to be). Returns the number of buckets. */
int trii_bucket_cut_last(const trii_bucket_item *items, int n, size_t tail_bytes, int *bucket_io,
                         int n_buckets);

#endif
