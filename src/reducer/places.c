/*
 * places.c - the end of the registration: all ranks must have the same gradients, and each gets its
 * bucket and its place there.
 */
#include <string.h>

#include "base/alloc.h"
#include "group/world.h"
#include "reducer/bucket.h"
#include "reducer/inside.h"

#define LINE_BYTES 160
#define PLACE_ALIGN ((size_t)64)

/* --- agreement ------------------------------------------------------------------------------ */

/* What a rank says about gradient `index`; -1: about the options. */
static void describe(const tri_reducer *r, int64_t index, char line[LINE_BYTES])
{
    memset(line, 0, LINE_BYTES);
    if (index < 0)
        snprintf(line, LINE_BYTES, "buckets of %zu and %zu bytes%s%s",
                 r->options.first_bucket_bytes, r->options.bucket_cap_bytes,
                 r->options.find_unused ? ", find_unused" : "",
                 r->options.hook != NULL ? ", a hook" : "");
    else if (index >= r->n_grads)
        snprintf(line, LINE_BYTES, "no gradient %lld", (long long)index);
    else
        snprintf(line, LINE_BYTES, "gradient %lld: %s, %zu %s in %zu rows", (long long)index,
                 r->grads[index].name, r->grads[index].count, tri_dtype_name(r->grads[index].dtype),
                 r->grads[index].rows);
}

static int64_t hash_of(const tri_reducer *r, int64_t index)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    char line[LINE_BYTES];

    describe(r, index, line);
    for (int i = 0; i < LINE_BYTES; i++)
        hash = (hash ^ (unsigned char)line[i]) * UINT64_C(0x100000001b3);
    return (int64_t)hash;
}

/* Both ranks' words about the gradient; the same line on all ranks. */
static tri_status say_difference(tri_reducer *r, int64_t index, int other)
{
    int size = tri_group_size(r->group), rank = tri_group_rank(r->group);
    char *lines = trii_alloc((size_t)size, LINE_BYTES, "reducer agreement");
    tri_status st = TRI_ERR_NO_MEMORY;

    if (lines == NULL)
        return st;
    describe(r, index, lines + (size_t)rank * LINE_BYTES);
    st = tri_all_gather(r->group, lines + (size_t)rank * LINE_BYTES, lines, LINE_BYTES,
                        TRI_DTYPE_U8, NULL);
    if (st == TRI_OK)
        st = TRII_FAIL(TRI_ERR_MISMATCH,
                       "reducer: not the same gradients: rank %d has %s; rank 0 has %s", other,
                       lines + (size_t)other * LINE_BYTES, lines);
    trii_free(lines);
    return st;
}

tri_status trii_reducer_agree(tri_reducer *r)
{
    int size = tri_group_size(r->group), rank = tri_group_rank(r->group);
    int64_t n = r->n_grads, *hashes, *mine;
    tri_status st = tri_all_reduce(r->group, &n, &n, 1, TRI_DTYPE_I64, TRI_REDOP_MAX, NULL);

    if (st != TRI_OK)
        return st;
    n++; /* the options come first */
    hashes = trii_alloc((size_t)n * (size_t)size, sizeof(*hashes), "reducer agreement");
    if (hashes == NULL)
        return TRI_ERR_NO_MEMORY;
    mine = hashes + (size_t)rank * (size_t)n;
    for (int64_t i = 0; i < n; i++)
        mine[i] = hash_of(r, i - 1);
    st = tri_all_gather(r->group, mine, hashes, (size_t)n, TRI_DTYPE_I64, NULL);
    for (int64_t i = 0; i < n && st == TRI_OK; i++)
        for (int other = 1; other < size && st == TRI_OK; other++)
            if (hashes[(size_t)other * (size_t)n + (size_t)i] != hashes[i])
                st = say_difference(r, i - 1, other);
    trii_free(hashes);
    return st;
}

/* --- buckets -------------------------------------------------------------------------------- */

static size_t padded(const reducer_grad *grad)
{
    size_t bytes = grad->count * tri_dtype_size(grad->dtype);

    return (bytes + PLACE_ALIGN - 1) / PLACE_ALIGN * PLACE_ALIGN;
}

/* bucket_of[k] for the k-th gradient from the end. */
static tri_status assign(tri_reducer *r, int *bucket_of)
{
    size_t n = (size_t)r->n_grads;
    size_t *bytes = trii_alloc(n, sizeof(*bytes), "reducer buckets");
    int *keys = trii_alloc(n, sizeof(*keys), "reducer buckets");
    tri_status st = bytes != NULL && keys != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;

    for (int k = 0; k < r->n_grads && st == TRI_OK; k++) {
        const reducer_grad *grad = &r->grads[r->n_grads - 1 - k];

        bytes[k] = grad->count * tri_dtype_size(grad->dtype);
        keys[k] = (int)grad->dtype; /* below TRII_BUCKET_KEYS */
    }
    if (st == TRI_OK)
        trii_bucket_assign(bytes, keys, r->n_grads, r->options.first_bucket_bytes,
                           r->options.bucket_cap_bytes, 0, bucket_of, &r->n_buckets);
    trii_free(bytes);
    trii_free(keys);
    return st;
}

static tri_status fill_buckets(tri_reducer *r, const int *bucket_of)
{
    for (int k = 0; k < r->n_grads; k++)
        r->buckets[bucket_of[k]].bucket.n_parts++;
    for (int b = 0; b < r->n_buckets; b++) {
        reducer_bucket *bucket = &r->buckets[b];

        bucket->parts =
            trii_alloc((size_t)bucket->bucket.n_parts, sizeof(*bucket->parts), "reducer bucket");
        if (bucket->parts == NULL)
            return TRI_ERR_NO_MEMORY;
        bucket->bucket = (tri_bucket){.index = b,
                                      .n_buckets = r->n_buckets,
                                      .group = r->group,
                                      .parts = bucket->parts,
                                      .owner = bucket};
    }
    for (int k = 0; k < r->n_grads; k++) {
        int index = r->n_grads - 1 - k;
        reducer_grad *grad = &r->grads[index];
        reducer_bucket *bucket = &r->buckets[bucket_of[k]];

        grad->bucket = bucket_of[k];
        bucket->bucket.dtype = grad->dtype;
        bucket->parts[bucket->bucket.n_parts++] = (tri_bucket_part){.name = grad->name,
                                                                    .offset = bucket->bucket.count,
                                                                    .count = grad->count,
                                                                    .rows = grad->rows,
                                                                    .index = index};
        bucket->bucket.count += padded(grad) / tri_dtype_size(grad->dtype);
    }
    return TRI_OK;
}

static tri_status place(tri_reducer *r, reducer_bucket *bucket)
{
    tri_bucket *b = &bucket->bucket;
    size_t size = tri_dtype_size(b->dtype);
    void *data = NULL;
    tri_status st;

    st = trii_group_alloc(r->group, b->count > 0 ? b->count * size : PLACE_ALIGN, &data);
    if (st != TRI_OK)
        return TRII_FAIL_CTX(st, "reducer bucket of %zu bytes", b->count * size);
    b->data = data;
    for (int i = 0; i < b->n_parts; i++) {
        reducer_grad *grad = &r->grads[b->parts[i].index];

        grad->place = (char *)b->data + b->parts[i].offset * size;
        if (grad->data == NULL)
            grad->data = grad->place;
    }
    return TRI_OK;
}

tri_status trii_reducer_make_buckets(tri_reducer *r)
{
    int *bucket_of = trii_alloc((size_t)r->n_grads, sizeof(*bucket_of), "reducer buckets");
    tri_status st = TRI_ERR_NO_MEMORY;

    if (bucket_of == NULL)
        return st;
    st = assign(r, bucket_of);
    if (st == TRI_OK) {
        r->buckets = trii_alloc((size_t)r->n_buckets, sizeof(*r->buckets), "reducer buckets");
        r->map = trii_alloc((size_t)r->n_grads, 1, "reducer map");
        st = r->buckets != NULL && r->map != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
    }
    if (st == TRI_OK)
        st = fill_buckets(r, bucket_of);
    for (int b = 0; b < r->n_buckets && st == TRI_OK; b++)
        st = place(r, &r->buckets[b]);
    trii_free(bucket_of);
    return st;
}

void trii_reducer_free_buckets(tri_reducer *r)
{
    for (int b = 0; b < r->n_buckets && r->buckets != NULL; b++) {
        tri_group_free(r->group, r->buckets[b].bucket.data);
        trii_free(r->buckets[b].parts);
        trii_free(r->buckets[b].memory);
    }
    trii_free(r->buckets);
    trii_free(r->map);
}
