/*
 * ddp_timing.c - how long each bucket takes, and how much of that time is spent waiting for
 * it.
 */
#include "os/clock.h"
#include "train/parallel/ddp/ddp.h"

void trii_ddp_stats_sent(trii_ddp_bucket *bucket)
{
    bucket->sent_ns = trii_now_ns();
}

void trii_ddp_stats_waited(trii_ddp *ddp, trii_ddp_bucket *bucket, int64_t since_ns)
{
    int64_t waited = trii_now_ns() - since_ns;

    bucket->exposed_ns += waited;
    ddp->stats.exposed_ns += waited;
}

void trii_ddp_stats_over(trii_ddp *ddp, trii_ddp_bucket *bucket, bool last)
{
    int64_t now = trii_now_ns(), from = bucket->sent_ns;

    if (from == 0) /* it was under way when this began */
        return;
    bucket->sent_ns = 0;
    bucket->comm_ns += now - from;
    bucket->sent_bytes += bucket->wire->sent;
    from = from > ddp->stats.until_ns ? from : ddp->stats.until_ns;
    ddp->stats.comm_ns += now - from;
    ddp->stats.until_ns = now;
    ddp->stats.n_passes += last;
}
