/*
 * bucket.c - assignment of gradients to buckets.
 */
#include "reducer/bucket.h"

/* What a key has open: items wear OPEN - key until their bucket closes and gets its number. */
typedef struct open_bucket {
    size_t bytes;
    size_t limit;
    int n;
    int first; /* index of its first item; -1 = nothing open */
} open_bucket;

#define MARK(key) (-1 - (key))

static void close_bucket(open_bucket *open, int key, int last, int number, int *bucket)
{
    for (int i = open->first; i <= last; i++)
        if (bucket[i] == MARK(key))
            bucket[i] = number;
    open->first = -1;
    open->bytes = 0;
    open->n = 0;
}

void trii_bucket_assign(const size_t *bytes, const int *keys, int n, size_t first_bytes,
                        size_t cap_bytes, int max_items, int *bucket_out, int *n_buckets_out)
{
    open_bucket open[TRII_BUCKET_KEYS];
    int n_buckets = 0;

    for (int k = 0; k < TRII_BUCKET_KEYS; k++)
        open[k] = (open_bucket){.limit = first_bytes, .first = -1};
    for (int i = 0; i < n; i++) {
        open_bucket *b = &open[keys[i]];

        if (b->first < 0)
            b->first = i;
        bucket_out[i] = MARK(keys[i]);
        b->bytes += bytes[i];
        b->n++;
        if (b->bytes >= b->limit || b->n == max_items) {
            close_bucket(b, keys[i], i, n_buckets++, bucket_out);
            b->limit = cap_bytes;
        }
    }
    for (int i = 0; i < n; i++)
        if (bucket_out[i] < 0)
            close_bucket(&open[keys[i]], keys[i], n - 1, n_buckets++, bucket_out);
    *n_buckets_out = n_buckets;
}
