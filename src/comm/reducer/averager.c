/*
 * averager.c - sends a bucket: from a rank's gradients to the averages.
 */
#include "comm/reducer/averager.h"

#include "base/err.h"
#include "comm/group/join/world.h"

/* Messages about what we call name the user's line. */
static tri_status call_hook(trii_averager *a, trii_bucket *b, int stage)
{
    unsigned lines = trii_err_lines();
    tri_status status;

    tri_site_set(a->site.file, a->site.line);
    status = a->hook(a->hook_state, &b->bucket, stage, &b->work);
    b->sent += trii_group_work_bytes(b->work);
    if (status > 0 || (status != TRI_OK && trii_err_lines() == lines))
        trii_err_set("the hook of bucket %d returned %s in stage %d", b->bucket.index,
                     tri_status_name(status), stage);
    return status > 0 ? TRI_ERR_INVALID_ARG : status; /* a stage is over, or it failed */
}

tri_status trii_bucket_send(trii_averager *a, trii_bucket *b, double weight, bool blocks)
{
    tri_bucket *bucket = &b->bucket;
    size_t size = tri_dtype_size(bucket->dtype);

    if (bucket->index == 0) { /* all of the last pass are over */
        a->stage = 1;
        a->next = 0;
    }
    bucket->weight = weight;
    bucket->pass = a->pass;
    b->sent = 0;
    if (a->hook != NULL)
        return call_hook(a, b, 0);
    b->sent = bucket->count * size;
    tri_site_set(a->site.file, a->site.line);
    b->goes_across = a->across != NULL;
    if (b->counts != NULL)
        return (tri_reduce_scatter_v)(b->goes_across ? a->within : a->group, bucket->data,
                                      (char *)bucket->data + b->first * size, b->counts,
                                      bucket->dtype, TRI_REDOP_SUM,
                                      blocks && !b->goes_across ? NULL : &b->work);
    return (tri_all_reduce)(a->group, bucket->data, bucket->data, bucket->count, bucket->dtype,
                            TRI_REDOP_SUM, blocks ? NULL : &b->work);
}

/* The second axis of a mesh: the sums of this rank's part. */
static tri_status sum_across(const trii_averager *a, trii_bucket *b)
{
    void *own = (char *)b->bucket.data + b->first * tri_dtype_size(b->bucket.dtype);

    b->goes_across = false;
    tri_site_set(a->site.file, a->site.line);
    return (tri_all_reduce)(a->across, own, own, b->own, b->bucket.dtype, TRI_REDOP_SUM, &b->work);
}

/* The work of one bucket, which has some. */
static tri_status step_on(trii_averager *a, trii_bucket *b, int stage, int64_t for_ns)
{
    tri_status status = for_ns > 0 ? trii_work_wait_for(b->work, for_ns) : trii_work_poll(b->work);

    if (status == TRI_INPROGRESS)
        return status;
    if (status != TRI_OK)
        status = TRII_FAIL(status, "%s", tri_work_error(b->work));
    tri_work_destroy(b->work);
    b->work = NULL;
    if (status == TRI_OK && a->hook != NULL)
        status = call_hook(a, b, stage);
    else if (status == TRI_OK && b->goes_across)
        status = sum_across(a, b);
    return status == TRI_OK && b->work != NULL && a->each_ends ? step_on(a, b, stage + 1, for_ns)
                                                               : status;
}

tri_status trii_bucket_advance(trii_averager *a, trii_bucket *b, int64_t for_ns)
{
    tri_status status = TRI_OK;

    if (a->hook == NULL && a->across == NULL)
        return b->work != NULL ? step_on(a, b, 1, for_ns) : TRI_OK;
    if (a->each_ends) { /* what came first is dealt with while the others are under way */
        for (int i = 0; i <= b->bucket.index && status == TRI_OK; i++)
            if (a->buckets[i].work != NULL)
                status = step_on(a, &a->buckets[i], 1, for_ns);
        return status;
    }
    while (b->work != NULL && status == TRI_OK) {
        trii_bucket *next = &a->buckets[a->next];

        if (next->work != NULL)
            status = step_on(a, next, a->stage, for_ns);
        if (status == TRI_OK && ++a->next == a->n_buckets) {
            a->next = 0;
            a->stage++;
        }
    }
    return status;
}

void trii_averager_drain(trii_averager *a)
{
    for (int b = 0; b < a->n_buckets && a->buckets != NULL; b++) {
        tri_work *work = a->buckets[b].work;
        tri_status dropped = work != NULL ? tri_work_wait(work, 0) : TRI_OK;

        (void)dropped; /* who drains knows why */
        tri_work_destroy(work);
        a->buckets[b].work = NULL;
    }
}
