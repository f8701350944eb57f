/*
 * bucket_layout.c - the end of the registration: all ranks must have the same gradients, and each
 * gradient gets its bucket and its offset there.
 */
/* build: leaf */
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "comm/group/join/world.h"
#include "comm/reducer/agreement.h"
#include "comm/reducer/reducer_internal.h"

/* --- agreement ------------------------------------------------------------ */

/* The options come first, then the gradients. */
static void describe(void *ctx, int64_t entry, char line[TRII_AGREE_LINE])
{
    const tri_reducer *r = ctx;
    int64_t index = entry - 1;

    memset(line, 0, TRII_AGREE_LINE);
    if (index < 0)
        snprintf(line, TRII_AGREE_LINE, "buckets of %zu and %zu bytes%s%s",
                 r->options.first_bucket_bytes, r->options.bucket_cap_bytes,
                 r->options.find_unused ? ", find_unused" : "",
                 r->options.hook != NULL ? ", a hook" : "");
    else if (index >= r->n_grads)
        snprintf(line, TRII_AGREE_LINE, "no gradient %lld", (long long)index);
    else
        snprintf(line, TRII_AGREE_LINE, "gradient %lld: %s, %zu %s in %zu rows", (long long)index,
                 trii_agree_name(r->grads[index].name), r->grads[index].count,
                 tri_dtype_name(r->grads[index].dtype), r->grads[index].rows);
}

/* Of what it says, and of the whole name. */
static tri_status hash_entry(void *ctx, int64_t entry, uint64_t *hash_out)
{
    const tri_reducer *r = ctx;
    char line[TRII_AGREE_LINE];
    uint64_t hash;

    describe(ctx, entry, line);
    hash = trii_hash_text(TRII_HASH_SEED, line);
    if (entry > 0 && entry <= r->n_grads)
        hash = trii_hash_text(hash, r->grads[entry - 1].name);
    *hash_out = hash;
    return TRI_OK;
}

tri_status trii_reducer_agree(tri_reducer *r)
{
    const trii_agreement agreement = {
        .group = r->group, .n = r->n_grads + 1, .ctx = r, .hash = hash_entry, .describe = describe};
    trii_difference found;
    tri_status status = trii_agree(&agreement, &found);

    if (status == TRI_OK && found.rank != 0)
        status = TRII_FAIL(TRI_ERR_MISMATCH,
                           "reducer: not the same gradients: rank %d has %s; rank 0 has %s",
                           found.rank, found.line, found.line_of_0);
    return status;
}

/* --- buckets -------------------------------------------------------------- */

/* As a backward pass completes them: the last one first. */
static tri_status list_items(tri_reducer *r)
{
    trii_bucket_item *items = trii_alloc((size_t)r->n_grads, sizeof(*items), "reducer buckets");
    tri_status status;

    if (items == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int k = 0; k < r->n_grads; k++) {
        int index = r->n_grads - 1 - k;
        const reducer_grad *grad = &r->grads[index];

        items[k] = (trii_bucket_item){.name = grad->name,
                                      .count = grad->count,
                                      .rows = grad->rows,
                                      .bytes = grad->count * tri_dtype_size(grad->dtype),
                                      .dtype = grad->dtype,
                                      .index = index};
    }
    status = trii_averager_make(&r->averager, items, r->n_grads, r->options.first_bucket_bytes,
                                r->options.bucket_cap_bytes, 0);
    trii_free(items);
    return status;
}

static tri_status lay_out(tri_reducer *r, tri_bucket *b)
{
    size_t size = tri_dtype_size(b->dtype);
    void *data = NULL;
    tri_status status = trii_group_alloc(r->group, b->count > 0 ? b->count * size : 1, &data);

    if (status != TRI_OK)
        return TRII_FAIL_CTX(status, "reducer bucket of %zu bytes", b->count * size);
    b->data = data;
    for (int i = 0; i < b->n_parts; i++) {
        reducer_grad *grad = &r->grads[b->parts[i].index];

        grad->bucket = b->index;
        grad->bucket_view = (char *)b->data + b->parts[i].offset * size;
        if (grad->data == NULL)
            grad->data = grad->bucket_view;
    }
    return TRI_OK;
}

tri_status trii_reducer_make_buckets(tri_reducer *r)
{
    tri_status status = list_items(r);

    if (status == TRI_OK) {
        r->n_missing = trii_alloc((size_t)r->averager.n_buckets, sizeof(int), "reducer buckets");
        r->map = trii_alloc((size_t)r->n_grads, 1, "reducer map");
        status = r->n_missing != NULL && r->map != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
    }
    for (int b = 0; b < r->averager.n_buckets && status == TRI_OK; b++)
        status = lay_out(r, &r->averager.buckets[b].bucket);
    return status;
}

void trii_reducer_free_buckets(tri_reducer *r)
{
    for (int b = 0; b < r->averager.n_buckets; b++)
        tri_group_free(r->group, r->averager.buckets[b].bucket.data);
    trii_averager_free(&r->averager, true);
    trii_free(r->n_missing);
    trii_free(r->map);
}
