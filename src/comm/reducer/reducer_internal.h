/*
 * reducer_internal.h - what the files of the reducer share.
 *
 *   reducer.c         creation, and a pass: begin, ready, finish
 *   bucket_layout.c   checks that all ranks have the same gradients, and gives each its bucket
 *   averager.h        shared with DDP: the buckets and how they are sent
 *   agreement.h       shared with DDP: do all ranks have the same?
 *   bucket.c          which gradients share a bucket; bucket_make.c
 *   compress.c        hooks that halve the bytes
 *   power_sgd.c       the hook that sends factors
 *
 * A pass: begin posts the header (the sum of samples). A bucket whose gradients are all there, and
 * that is next in order, is filled with them times this rank's share and handed to the hook, which
 * posts its first collective. So all ranks post header, buckets, the map of used gradients, then
 * the hooks' later stages in one order, whatever the order in which gradients get ready.
 */
#ifndef TRII_REDUCER_INTERNAL_H
#define TRII_REDUCER_INTERNAL_H

#include <trireme/reducer.h>

#include "base/err.h"
#include "comm/reducer/averager.h"

typedef struct reducer_grad {
    char *name;
    void *data;        /* the user's, or `bucket_view` */
    void *bucket_view; /* where it lies in the bucket */
    size_t count, rows;
    tri_dtype dtype;
    int bucket;
    bool ready; /* in this pass */
    bool used;  /* by any rank, in the last one */
} reducer_grad;

struct tri_reducer {
    tri_reducer_options options;
    tri_group *group;
    tri_status status; /* the failure that ended it */
    char why[TRII_ERR_BYTES];
    reducer_grad *grads;
    int n_grads, room;
    trii_averager averager; /* the buckets */
    int *n_missing;         /* [buckets]: gradients that are not ready in this pass */
    bool committed, in_pass;
    int next;            /* bucket to be sent next */
    int64_t local_count; /* samples of no_sync */
    int64_t count;       /* of this rank in this pass */
    int64_t total;       /* of all ranks; the header's buffer */
    int64_t last_total;
    tri_work *header, *map_work;
    uint8_t *map; /* [n_grads]: used by any rank */
};

/* bucket_layout.c. Collective. */
tri_status trii_reducer_agree(tri_reducer *r) TRI_MUST_CHECK;
tri_status trii_reducer_make_buckets(tri_reducer *r) TRI_MUST_CHECK;
void trii_reducer_free_buckets(tri_reducer *r);

#endif
