/*
 * averager.h - sends buckets: what the reducer (plain buffers) and DDP (a model's gradients) share.
 * The caller fills a bucket with this rank's gradients times its share and sends it; this file
 * decides what happens until the averages are in the bucket.
 */
#ifndef TRII_AVERAGER_H
#define TRII_AVERAGER_H

#include <trireme/reducer.h>

#include "base/site.h"
#include "comm/reducer/bucket.h"

/* Memory of a hook. */
typedef struct trii_hook_memory {
    void *data;
    size_t bytes;
} trii_hook_memory;

typedef struct trii_bucket {
    tri_bucket bucket; /* first: what hooks get; bucket.data is the front's */
    struct trii_averager *averager;
    tri_bucket_part *parts;
    /* [size], the front's: each rank gets the averages of its part alone, where each_ends (other
     * hooks give all). NULL: all ranks get all. */
    const size_t *counts;
    size_t first, own; /* then: where this rank's part begins, in elements, and how many it has */
    bool goes_across;  /* after what is under way comes a call along averager->across */
    tri_work *work;    /* under way */
    trii_hook_memory memory;
    size_t sent; /* bytes that the calls of this pass got, so far */
} trii_bucket;

typedef struct trii_averager {
    tri_group *group; /* borrowed */
    /* Buckets in parts, over a mesh of two axes: first the sums of parts along one, then those of
     * the part along the other. Borrowed; NULL: `group` alone. */
    tri_group *within, *across;
    tri_bucket_hook hook; /* NULL = a sum */
    void *hook_state;
    /* A bucket's averages lie there as soon as its own first collective is over: there is no hook,
     * or its later stages only compute. Else all must have been sent, and end together. */
    bool each_ends;
    trii_site site; /* the line that messages name */
    trii_bucket *buckets;
    int n_buckets;
    int n_items;
    trii_hook_memory *kept; /* [n_items], once a hook keeps something of an item */
    int stage, next;        /* what hooks do next: this stage of this bucket */
    int64_t pass;           /* number of the pass that is sent */
} trii_averager;

/* Buckets for the items in this order (see bucket.h), without memory, for the hook that is set:
 * part k of a bucket is its k-th item. On failure there are none. */
tri_status trii_averager_make(trii_averager *a, const trii_bucket_item *items, int n,
                              size_t first_bytes, size_t cap_bytes, int max_items) TRI_MUST_CHECK;
/* The buckets, not their data. Nothing may be under way. Unless it forgets, what hooks keep of
 * items stays, for other buckets of the same items. */
void trii_averager_free(trii_averager *a, bool forgets);
/* Memory of a built-in hook as tri_bucket_memory, but of one part, whatever bucket it is in. */
void *trii_bucket_keep(tri_bucket *bucket, int part, size_t bytes);

/* Sends a filled bucket; all of them are sent in the order of their numbers, on all ranks. blocks:
 * a plain sum may be made at once. */
tri_status trii_bucket_send(trii_averager *a, trii_bucket *b, double weight,
                            bool blocks) TRI_MUST_CHECK;
/* Goes on until the averages lie in the bucket: OK, INPROGRESS after so many nanoseconds (0: it
 * only looks; INT64_MAX: after none), or failure. Unless each_ends, all must
 * have been sent: later stages come in one order on all ranks, stage by stage over all buckets. */
tri_status trii_bucket_advance(trii_averager *a, trii_bucket *b, int64_t for_ns) TRI_MUST_CHECK;
/* Waits for what is under way, which must soon be over: after an abort of the group. */
void trii_averager_drain(trii_averager *a);

#endif
