/*
 * bucket_op.c - buckets of gradients while a step runs: filled, sent, waited for; and which
 * parameters any rank used.
 */
#include <string.h>

#include <trireme/group.h>

#include "base/err.h"
#include "base/log.h"
#include "comm/group/join/world.h"
#include "os/clock.h"
#include "train/dist/unit_collective.h"

#define BLOCKING_BYTES ((size_t)16 << 10)

/* --- sending -------------------------------------------------------------- */

static void *bucket_data(const trii_unit_param *param)
{
    return (char *)param->bucket->storage->data + param->offset;
}

/* What of it this rank gets as the average. */
static void *home_data(const trii_unit_param *param)
{
    return (char *)param->bucket->storage->data + param->home_offset;
}

/* Whether this rank's loss is the mean of nothing. Gradients to which earlier passes gave a weight
 * count as they are, and so does what had added up before a pass in which no rank has a sample. */
static bool weighs_nothing(const trii_unit_coll *header)
{
    return header->divisor == 0 && !header->weighted && !(header->held && header->sums[0] == 0);
}

static bool has_nan(const void *data, size_t bytes, tri_dtype dtype)
{
    const float *f = data;
    const double *d = data;
    bool found = false;

    for (size_t i = 0; dtype == TRI_DTYPE_F32 && i < bytes / sizeof(*f); i++)
        found |= f[i] != f[i];
    for (size_t i = 0; dtype == TRI_DTYPE_F64 && i < bytes / sizeof(*d); i++)
        found |= d[i] != d[i];
    return found;
}

/* What a parameter of such a rank has counts as zeros, since it may be 0 * NaN, which would reach
 * all ranks. Through statistics that ranks share its rows have a part in the others' losses, even
 * if all their targets are ignored: that counts. */
static bool counts_as_zeros(const trii_unit_coll *t, const trii_unit_param *param)
{
    const trii_unit_coll *header = t->header;

    if (!param->used_here)
        return true;
    return weighs_nothing(header) &&
           (!header->mixes || header->count == 0 ||
            has_nan(bucket_data(param), param->bytes, t->bucket->wire->bucket.dtype));
}

/* Copies into the bucket what is not there yet. Parameters without a gradient count as zeros. */
static void fill_bucket(trii_unit_coll *t, const trii_host_buffers *buffers)
{
    trii_unit *unit = t->unit;
    int n_copied = 0;

    for (int i = 0; i < t->n; i++) {
        const trii_unit_param *param;

        t->out[i] = buffers->out[i];
        if (t->item[i] < 0)
            continue;
        param = &unit->params[t->item[i]];
        if (buffers->in[i] != bucket_data(param)) {
            memcpy(bucket_data(param), buffers->in[i], param->bytes);
            n_copied++;
        }
    }
    if (TRII_UNLIKELY(n_copied > 0))
        TRII_LOG(TRII_LOG_DEBUG, "ddp", "bucket %d: %d of %d gradients were not made in place",
                 t->bucket->wire->bucket.index, n_copied, t->n);
    for (int i = 0; i < t->bucket->wire->bucket.n_parts; i++) {
        const trii_unit_param *param = &unit->params[t->bucket->wire->parts[i].index];

        if (counts_as_zeros(t, param))
            memset(bucket_data(param), 0, param->bytes);
    }
}

/* Sums up which parameters any rank used, only if some rank left one unused; the header, which is
 * complete, tells all ranks. Sent after the last bucket, so that all ranks send it in one order. */
static tri_status send_map(trii_unit_coll *t)
{
    trii_unit *unit = t->unit;

    if (t->header->sums[1] < 0x1p32)
        return TRI_OK;
    for (int i = 0; i < unit->n_params; i++)
        unit->map[i] = unit->params[i].used_here;
    unit->volume.header += unit->n_params;
    return tri_all_reduce(unit->group, unit->map, unit->map, (size_t)unit->n_params, TRI_DTYPE_U8,
                          TRI_REDOP_BOR, &t->map_work);
}

/* Nothing may still be moving in the bucket, or in a hook's memory, when a step has failed. */
static TRII_NOINLINE tri_status gave_up(trii_unit_coll *t, tri_status status)
{
    char line[TRII_ERR_BYTES];

    status = trii_unit_called(t->unit, status);
    snprintf(line, sizeof(line), "%s", tri_last_error());
    trii_unit_abort(t->unit, line);
    trii_averager_drain(&t->unit->averager);
    trii_err_set("%s", line);
    return status;
}

/* Of what it averages; where earlier passes have been weighted each by itself, of all samples. */
static double share_of(const trii_unit_coll *header)
{
    const double *sums = header->sums;

    if (header->weighted)
        return sums[2] > 0 ? (double)header->count / sums[2] : 0.0;
    if (sums[0] > 0)
        return header->divisor / sums[0];
    return header->held ? 1.0 / header->unit->size : 0.0;
}

static tri_status bucket_send(trii_unit_coll *t, const trii_host_buffers *buffers, bool blocks)
{
    trii_unit *unit = t->unit;
    const double *sums = t->header->sums;
    double weight = unit->averager.hook != NULL ? share_of(t->header) : 0.0;
    /* A join's last pass: with a hook the header, which says so, is there. */
    bool none = unit->averager.hook != NULL && unit->n_joined == unit->size && sums[0] == 0 &&
                !t->header->weighted;
    tri_status status;

    if (t->bucket->wire->bucket.index == 0 && !none)
        unit->averager.pass++;
    unit->averager.site = t->site;
    fill_bucket(t, buffers);
    t->state = TRII_UNIT_COLL_STARTED;
    if (TRII_UNLIKELY(unit->stats.on))
        t->bucket->sent_ns = trii_now_ns();
    status = none ? TRI_OK : trii_bucket_send(&unit->averager, t->bucket->wire, weight, blocks);
    if (status == TRI_OK && t->last) {
        trii_unit_coll_blame(t);
        status = send_map(t);
    }
    return TRII_LIKELY(status == TRI_OK) ? status : gave_up(t, status);
}

static tri_status bucket_start(trii_host_op *op, const trii_host_buffers *buffers)
{
    return bucket_send((trii_unit_coll *)op, buffers, false);
}

/* The averages of what only other ranks used: nothing stays in the bucket. */
static void keep_unused(const trii_unit_coll *t)
{
    const tri_bucket *wire = &t->bucket->wire->bucket;

    for (int i = 0; i < wire->n_parts; i++) {
        const trii_unit_param *param = &t->unit->params[wire->parts[i].index];
        size_t bytes = trii_tensor_bytes(param->home);

        if (!param->used_here && bytes > 0)
            memcpy(trii_tensor_data(param->home->grad), home_data(param), bytes);
    }
}

static void count_volume(const trii_unit_coll *t)
{
    const trii_bucket *wire = t->bucket->wire;
    tri_ddp_volume_stats *volume = &t->unit->volume;

    if (t->unit->averager.hook != NULL) {
        volume->hook_bytes += (int64_t)wire->sent;
    } else if (wire->counts != NULL) {
        volume->reduce_scatter += (int64_t)wire->bucket.count;
        volume->all_reduce += t->unit->across != NULL ? (int64_t)wire->own : 0;
    } else {
        volume->all_reduce += (int64_t)wire->bucket.count;
    }
}

static tri_status bucket_done(trii_unit_coll *t)
{
    for (int i = 0; i < t->n; i++) {
        const trii_unit_param *param;
        size_t bytes;

        if (t->item[i] < 0)
            continue;
        param = &t->unit->params[t->item[i]];
        bytes = t->unit->stage > 0 ? trii_tensor_bytes(param->home) : param->bytes;
        if (bytes > 0 && t->out[i] != home_data(param))
            memcpy(t->out[i], home_data(param), bytes);
    }
    if (t->unit->stage > 1)
        keep_unused(t);
    if (t->last)
        trii_unit_close_pass(t->unit, t->generation);
    count_volume(t);
    if (TRII_UNLIKELY(t->unit->stats.on)) {
        t->unit->stats.n_passes += t->last && t->bucket->sent_ns != 0;
        trii_unit_stats_over(t->unit, t->bucket, &t->bucket->sent_ns, t->bucket->wire->sent);
    }
    t->state = TRII_UNIT_COLL_FREE;
    return TRI_OK;
}

/* Its first collective is over; what the hook makes of it is the end's. */
static tri_status bucket_sent(trii_unit_coll *t, int64_t for_ns)
{
    tri_work *work = t->bucket->wire->work;
    tri_status status = TRI_OK;

    if (work != NULL)
        status = for_ns > 0 ? trii_work_wait_for(work, for_ns) : trii_work_poll(work);
    if (status < 0)
        return TRII_FAIL(status, "%s", tri_work_error(work));
    return status;
}

/* The moment, if somebody waits from now on and the time is taken; else 0. */
static inline int64_t waits_since(const trii_unit_coll *t, int64_t for_ns)
{
    return TRII_UNLIKELY(t->unit->stats.on) && for_ns > 0 ? trii_now_ns() : 0;
}

static tri_status bucket_go_on(trii_unit_coll *t, int64_t for_ns)
{
    trii_averager *averager = &t->unit->averager;
    int64_t since = waits_since(t, for_ns);
    tri_status status;

    if (t->state != TRII_UNIT_COLL_STARTED)
        return TRI_OK;
    averager->site = t->site;
    status = averager->each_ends ? trii_bucket_advance(averager, t->bucket->wire, for_ns)
                                 : bucket_sent(t, for_ns);
    if (since != 0)
        trii_unit_stats_waited(t->unit, t->bucket, since);
    if (TRII_UNLIKELY(status < 0))
        return gave_up(t, status);
    if (status == TRI_OK && t->map_work != NULL)
        status = trii_unit_coll_work(t->unit, &t->map_work, for_ns);
    if (status != TRI_OK)
        return status;
    if (averager->each_ends)
        return bucket_done(t);
    t->state = TRII_UNIT_COLL_FREE;
    return TRI_OK;
}

static tri_status bucket_poll(trii_host_op *op)
{
    return bucket_go_on((trii_unit_coll *)op, 0);
}

static tri_status bucket_wait(trii_host_op *op, int64_t for_ns)
{
    return bucket_go_on((trii_unit_coll *)op, for_ns);
}

/* Nothing is left to overlap with: a small one is done without a work handle. */
static tri_status bucket_run(trii_host_op *op, const trii_host_buffers *buffers)
{
    trii_unit_coll *t = (trii_unit_coll *)op;
    const tri_bucket *bucket = &t->bucket->wire->bucket;
    bool small = bucket->count * tri_dtype_size(bucket->dtype) <= BLOCKING_BYTES;
    tri_work *batch = trii_batch_set(NULL); /* without a handle it blocks, whatever it begins */
    int64_t since = waits_since(t, INT64_MAX);
    tri_status status = bucket_send(t, buffers, small);

    trii_batch_set(batch);
    if (since != 0 && small)
        trii_unit_stats_waited(t->unit, t->bucket, since);
    return status == TRI_OK ? bucket_wait(op, INT64_MAX) : status;
}

static const trii_host_kind bucket_kind = {.name = "gradients",
                                           .in_place = true,
                                           .start = bucket_start,
                                           .poll = bucket_poll,
                                           .wait = bucket_wait,
                                           .run = bucket_run,
                                           .abort = trii_unit_coll_abort,
                                           .release = trii_unit_coll_release,
                                           .compare = trii_unit_coll_compare};

void trii_unit_coll_is_bucket(trii_unit_coll *t)
{
    t->op.kind = &bucket_kind;
    t->op.any_layout = t->unit->any_layout;
    t->op.apart = t->unit->across != NULL;
}

static tri_status end_start(trii_host_op *op, const trii_host_buffers *buffers)
{
    trii_unit_coll *t = (trii_unit_coll *)op;

    for (int i = 0; i < t->n; i++)
        t->out[i] = buffers->out[i];
    t->state = TRII_UNIT_COLL_STARTED;
    return TRI_OK;
}

/* The last one waits for all: what begins after it must not meet a hook's later stages. */
static tri_status end_go_on(trii_unit_coll *t, int64_t for_ns)
{
    trii_averager *averager = &t->unit->averager;
    int64_t since = waits_since(t, for_ns);
    tri_status status;

    if (t->state != TRII_UNIT_COLL_STARTED)
        return TRI_OK;
    averager->site = t->site;
    status = trii_bucket_advance(averager, t->bucket->wire, for_ns);
    for (int b = 0; b < averager->n_buckets && t->last && status == TRI_OK; b++)
        status = trii_bucket_advance(averager, &averager->buckets[b], for_ns);
    if (since != 0)
        trii_unit_stats_waited(t->unit, t->bucket, since);
    if (TRII_UNLIKELY(status < 0))
        return gave_up(t, status);
    return status == TRI_OK ? bucket_done(t) : status;
}

static tri_status end_poll(trii_host_op *op)
{
    return end_go_on((trii_unit_coll *)op, 0);
}

static tri_status end_wait(trii_host_op *op, int64_t for_ns)
{
    return end_go_on((trii_unit_coll *)op, for_ns);
}

static const trii_host_kind end_kind = {.name = "averages of a hook",
                                        .in_place = true,
                                        .start = end_start,
                                        .poll = end_poll,
                                        .wait = end_wait,
                                        .abort = trii_unit_coll_abort,
                                        .release = trii_unit_coll_release,
                                        .compare = trii_unit_coll_compare};

void trii_unit_coll_is_end(trii_unit_coll *t)
{
    t->op.kind = &end_kind;
    t->op.identity |= UINT64_C(0x2000);
    t->op.any_layout = false;
    t->op.holds_back = t->last;
}
