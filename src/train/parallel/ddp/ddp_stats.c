/*
 * ddp_stats.c - tri_ddp_stats, tri_ddp_volume: what a unit (train/dist/unit.h) has measured and
 * counted since the last call.
 */
#include "base/err.h"
#include "train/parallel/ddp/ddp.h"

static double mean_ms(int64_t ns, int64_t n)
{
    return n > 0 ? (double)ns / (double)n / 1e6 : 0.0;
}

static void read_buckets(trii_ddp *ddp, tri_ddp_pass_stats *all, tri_ddp_bucket_stats *out,
                         int room)
{
    int64_t n = ddp->unit.stats.n_passes;

    for (int b = 0; b < ddp->unit.averager.n_buckets; b++) {
        const tri_bucket *wire = &ddp->unit.averager.buckets[b].bucket;
        trii_unit_bucket *bucket = &ddp->unit.buckets[b];
        size_t bytes = wire->count * tri_dtype_size(wire->dtype);

        size_t sent = n > 0 ? bucket->sent_bytes / (size_t)n : 0;

        all->bytes += bytes;
        all->sent_bytes += sent;
        if (b < room)
            out[b] = (tri_ddp_bucket_stats){.bytes = bytes,
                                            .sent_bytes = sent,
                                            .n_parameters = wire->n_parts,
                                            .comm_ms = mean_ms(bucket->comm_ns, n),
                                            .exposed_ms = mean_ms(bucket->exposed_ns, n)};
        bucket->comm_ns = bucket->exposed_ns = 0;
        bucket->sent_bytes = 0;
    }
}

tri_status tri_ddp_stats(tri_module *model, tri_ddp_pass_stats *stats_out,
                         tri_ddp_bucket_stats *buckets_out, int room)
{
    trii_ddp *ddp;
    tri_status status = trii_ddp_need(model, "ddp_stats", &ddp);
    tri_ddp_pass_stats stats = {.hidden = 1.0};
    int64_t n;

    if (status == TRI_OK)
        status = trii_need(stats_out, "ddp_stats", "stats_out");
    if (status != TRI_OK)
        return status;
    if (room < 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "ddp_stats: room %d is negative", room);
    if (room > 0 && buckets_out == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "ddp_stats: buckets_out is NULL, and room %d is not 0", room);
    n = stats.n_passes = ddp->unit.stats.n_passes;
    stats.n_buckets = ddp->unit.averager.n_buckets;
    stats.comm_ms = mean_ms(ddp->unit.stats.comm_ns, n);
    stats.exposed_ms = mean_ms(ddp->unit.stats.exposed_ns, n);
    if (ddp->unit.stats.comm_ns > 0)
        stats.hidden = 1.0 - stats.exposed_ms / stats.comm_ms;
    stats.hidden = stats.hidden > 0.0 ? stats.hidden : 0.0;
    read_buckets(ddp, &stats, buckets_out, room);
    ddp->unit.stats.on = ddp->unit.group != NULL;
    ddp->unit.stats.n_passes = ddp->unit.stats.comm_ns = ddp->unit.stats.exposed_ns = 0;
    *stats_out = stats;
    return TRI_OK;
}

tri_status tri_ddp_volume(tri_module *model, tri_ddp_volume_stats *volume_out)
{
    trii_ddp *ddp;
    tri_status status = trii_need(volume_out, "ddp_volume", "volume_out");

    if (status == TRI_OK)
        status = trii_ddp_need(model, "ddp_volume", &ddp);
    if (status != TRI_OK)
        return status;
    *volume_out = ddp->unit.volume;
    ddp->unit.volume = (tri_ddp_volume_stats){0};
    return TRI_OK;
}
