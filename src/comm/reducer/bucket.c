/*
 * bucket.c - assignment of gradients to buckets.
 */
/* build: leaf */
#include "comm/reducer/bucket.h"

#include "base/dtype.h"

/* What a key, an element type, has open: its items wear MARK(key) until their bucket closes and
 * gets its number. */
typedef struct open_bucket {
    size_t bytes;
    size_t limit;
    int n;
    int first; /* index of its first item; -1 = nothing open */
} open_bucket;

#define KEYS TRII_TENSOR_DTYPES
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

void trii_bucket_assign(const trii_bucket_item *items, int n, size_t first_bytes, size_t cap_bytes,
                        int max_items, int *bucket_out, int *n_buckets_out)
{
    open_bucket open[KEYS];
    int n_buckets = 0;

    for (int k = 0; k < KEYS; k++)
        open[k] = (open_bucket){.limit = first_bytes, .first = -1};
    for (int i = 0; i < n; i++) {
        int key = (int)items[i].dtype;
        open_bucket *b = &open[key];

        if (b->first >= 0 && items[b->first].place != items[i].place)
            close_bucket(b, key, i - 1, n_buckets++, bucket_out);
        if (b->first < 0)
            b->first = i;
        bucket_out[i] = MARK(key);
        b->bytes += items[i].bytes;
        b->n++;
        if (b->bytes >= b->limit || b->n == max_items) {
            close_bucket(b, key, i, n_buckets++, bucket_out);
            b->limit = cap_bytes;
        }
    }
    for (int i = 0; i < n; i++)
        if (bucket_out[i] < 0)
            close_bucket(&open[items[i].dtype], (int)items[i].dtype, n - 1, n_buckets++,
                         bucket_out);
    *n_buckets_out = n_buckets;
}

int trii_bucket_cut_last(const trii_bucket_item *items, int n, size_t tail_bytes, int *bucket_io,
                         int n_buckets)
{
    int last = bucket_io[n - 1], i = n - 1, cut = n - 1;
    size_t whole = 0, tail = 0;

    for (int k = 0; k < n; k++)
        whole += bucket_io[k] == last ? items[k].bytes : 0;
    if (whole <= 2 * tail_bytes || whole == items[n - 1].bytes)
        return n_buckets;
    for (; i >= 0 && (i == n - 1 || tail + items[i].bytes <= tail_bytes); i--) {
        if (bucket_io[i] != last)
            continue;
        tail += items[i].bytes;
        cut = i;
    }
    for (int k = cut; k < n; k++)
        if (bucket_io[k] == last)
            bucket_io[k] = n_buckets;
    return n_buckets + 1;
}
