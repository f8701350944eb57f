/*
 * unit_timing.c - how long each bucket takes, and how much of that time is spent waiting for
 * it.
 */
#include "os/clock.h"
#include "train/dist/unit.h"

void trii_unit_stats_waited(trii_unit *unit, trii_unit_bucket *bucket, int64_t since_ns)
{
    int64_t waited = trii_now_ns() - since_ns;

    bucket->exposed_ns += waited;
    unit->stats.exposed_ns += waited;
}

void trii_unit_stats_over(trii_unit *unit, trii_unit_bucket *bucket, int64_t *sent_ns, size_t bytes)
{
    int64_t now = trii_now_ns(), from = *sent_ns;

    if (from == 0) /* it was under way when this began */
        return;
    *sent_ns = 0;
    bucket->comm_ns += now - from;
    bucket->sent_bytes += bytes;
    from = from > unit->stats.until_ns ? from : unit->stats.until_ns;
    unit->stats.comm_ns += now - from;
    unit->stats.until_ns = now;
}
