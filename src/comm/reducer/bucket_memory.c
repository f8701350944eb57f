/*
 * bucket_memory.c - memory that hooks attach to a bucket, or to a gradient in it.
 */
#include "base/alloc.h"
#include "base/err.h"
#include "comm/reducer/averager.h"

static void *memory_of(trii_hook_memory *memory, size_t bytes)
{
    if (bytes > memory->bytes || memory->data == NULL) {
        void *data = trii_alloc(1, bytes, "memory of a hook");

        if (data == NULL)
            return NULL;
        trii_free(memory->data);
        memory->data = data;
        memory->bytes = bytes;
    }
    return memory->data;
}

void *tri_bucket_memory(tri_bucket *bucket, size_t bytes)
{
    trii_bucket *b = bucket != NULL ? bucket->owner : NULL;

    if (b == NULL) {
        (void)TRII_FAIL(TRI_ERR_INVALID_ARG, "bucket_memory: bucket is %s",
                        bucket == NULL ? "NULL" : "not made by a reducer or tri_ddp");
        return NULL;
    }
    return memory_of(&b->memory, bytes);
}

void *trii_bucket_keep(tri_bucket *bucket, int part, size_t bytes)
{
    trii_averager *a = ((trii_bucket *)bucket)->averager;

    if (a->kept == NULL)
        a->kept = trii_alloc((size_t)a->n_items, sizeof(*a->kept), "memory of a hook");
    return a->kept != NULL ? memory_of(&a->kept[bucket->parts[part].index], bytes) : NULL;
}
