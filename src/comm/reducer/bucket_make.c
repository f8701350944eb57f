/*
 * bucket_make.c - creates buckets, and the memory that hooks attach to them.
 */
/* build: leaf */
#include "base/alloc.h"
#include "base/err.h"
#include "comm/reducer/averager.h"

#define PLACE_ALIGN ((size_t)64)

static tri_status fill(trii_averager *a, const trii_bucket_item *items, int n, const int *bucket_of)
{
    a->buckets = trii_alloc((size_t)a->n_buckets, sizeof(*a->buckets), "buckets");
    if (a->buckets == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int k = 0; k < n; k++)
        a->buckets[bucket_of[k]].bucket.n_parts++;
    for (int b = 0; b < a->n_buckets; b++) {
        trii_bucket *bucket = &a->buckets[b];

        bucket->averager = a;
        bucket->parts =
            trii_alloc((size_t)bucket->bucket.n_parts, sizeof(*bucket->parts), "bucket");
        if (bucket->parts == NULL)
            return TRI_ERR_NO_MEMORY;
        bucket->bucket = (tri_bucket){.index = b,
                                      .n_buckets = a->n_buckets,
                                      .group = a->group,
                                      .parts = bucket->parts,
                                      .owner = bucket};
    }
    for (int k = 0; k < n; k++) {
        const trii_bucket_item *item = &items[k];
        tri_bucket *bucket = &a->buckets[bucket_of[k]].bucket;
        size_t padded = (item->bytes + PLACE_ALIGN - 1) / PLACE_ALIGN * PLACE_ALIGN;

        bucket->dtype = item->dtype;
        a->buckets[bucket_of[k]].parts[bucket->n_parts++] =
            (tri_bucket_part){.name = item->name,
                              .offset = bucket->count,
                              .count = item->count,
                              .rows = item->rows,
                              .index = item->index};
        bucket->count += padded / tri_dtype_size(item->dtype);
    }
    return TRI_OK;
}

tri_status trii_averager_make(trii_averager *a, const trii_bucket_item *items, int n,
                              size_t first_bytes, size_t cap_bytes, int max_items)
{
    int *bucket_of = trii_alloc((size_t)n, sizeof(*bucket_of), "buckets");
    tri_status status;

    a->buckets = NULL;
    a->n_buckets = 0;
    a->each_ends =
        a->hook == NULL || a->hook == tri_bucket_hook_f16 || a->hook == tri_bucket_hook_bf16;
    a->n_items = n;
    if (bucket_of == NULL)
        return TRI_ERR_NO_MEMORY;
    trii_bucket_assign(items, n, first_bytes, cap_bytes, max_items, bucket_of, &a->n_buckets);
    if (n > 0)
        a->n_buckets = trii_bucket_cut_last(items, n, first_bytes, bucket_of, a->n_buckets);
    status = fill(a, items, n, bucket_of);
    trii_free(bucket_of);
    if (status != TRI_OK)
        trii_averager_free(a, false);
    return status;
}

void trii_averager_free(trii_averager *a, bool forgets)
{
    for (int b = 0; b < a->n_buckets && a->buckets != NULL; b++) {
        trii_free(a->buckets[b].parts);
        trii_free(a->buckets[b].memory.data);
    }
    trii_free(a->buckets);
    a->buckets = NULL;
    a->n_buckets = 0;
    for (int i = 0; i < a->n_items && forgets && a->kept != NULL; i++)
        trii_free(a->kept[i].data);
    if (forgets) {
        trii_free(a->kept);
        a->kept = NULL;
    }
}
