/*
 * gathered.c - parameters that are whole only while a step uses them (stage 3 of ZeRO).
 *
 * The first operation that reads a parameter of a bucket records one all_gather of the bucket, and
 * the parameter is a view of its result. Later readers find it, until so many other buckets have
 * been gathered (unit->prefetch): then it is retired (graph/step/retired.h), its memory is free
 * after its last reader, and the next reader, such as the gradient of the first one, records
 * another gather. So a bucket is gathered once in forward and once in backward, where what is
 * recomputed and gradients share one; the last one of forward is still there when backward begins.
 *
 * A gather has nothing but the ranks' parts for operands, so it could start when the step does.
 * What holds it back is what was recorded last before the gather of `prefetch` buckets ago: that
 * complete, what is in use are the buckets after it. Where unit->prefetch_bytes bounds what is
 * gathered ahead, it is fewer of them.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "train/dist/unit_collective.h"
#include "train/graph/ops/rules.h"
#include "train/graph/step/recorder.h"
#include "train/graph/step/type.h"

/* --- the operation -------------------------------------------------------- */

/* Where this rank's part of it lies among the values of the bucket. */
static char *place_of(const trii_unit_coll *t, const trii_unit_param *param)
{
    const trii_bucket *wire = t->bucket->wire;

    return (char *)t->bucket->values->data + param->home_offset -
           wire->first * tri_dtype_size(wire->bucket.dtype);
}

/* What the ranks gather: their parts where they lie, or a copy if the step has others. */
static tri_status find_part(trii_unit_coll *t, const trii_host_buffers *buffers, char **part_out)
{
    const trii_bucket *wire = t->bucket->wire;
    bool in_place = true;

    *part_out = t->bucket->values->data;
    for (int i = 0; i < t->n; i++) {
        const trii_unit_param *param = &t->unit->params[t->item[i]];

        in_place = in_place &&
                   (trii_tensor_bytes(param->home) == 0 || buffers->in[i] == place_of(t, param));
    }
    if (TRII_LIKELY(in_place))
        return TRI_OK;
    t->aside = trii_alloc_aligned(64, wire->own * tri_dtype_size(wire->bucket.dtype),
                                  "parameters on their way");
    if (t->aside == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int i = 0; i < t->n; i++) {
        const trii_unit_param *param = &t->unit->params[t->item[i]];
        size_t bytes = trii_tensor_bytes(param->home);

        if (bytes > 0)
            memcpy(t->aside + (place_of(t, param) - *part_out), buffers->in[i], bytes);
    }
    *part_out = t->aside;
    return TRI_OK;
}

static tri_status live_start(trii_host_op *op, const trii_host_buffers *buffers)
{
    trii_unit_coll *t = (trii_unit_coll *)op;
    char *part;
    tri_status status;

    if (t->bucket->rounds)
        return trii_unit_rounded_start(t, buffers->in, buffers->out[0]);
    status = find_part(t, buffers, &part);
    if (status != TRI_OK)
        return status;
    return trii_unit_coll_gather(t, part, buffers->out[0]);
}

static tri_status live_go_on(trii_unit_coll *t, int64_t for_ns)
{
    tri_status status;

    if (t->state != TRII_UNIT_COLL_STARTED)
        return TRI_OK;
    status = trii_unit_coll_gathered(t, for_ns);
    if (status != TRI_OK)
        return status;
    if (t->bucket->rounds)
        trii_unit_rounded_end(t);
    trii_unit_coll_drop_aside(t);
    t->state = TRII_UNIT_COLL_FREE;
    return TRI_OK;
}

static tri_status live_poll(trii_host_op *op)
{
    return live_go_on((trii_unit_coll *)op, 0);
}

static tri_status live_wait(trii_host_op *op, int64_t for_ns)
{
    return live_go_on((trii_unit_coll *)op, for_ns);
}

static const trii_host_kind live_kind = {.name = "parameters of a bucket",
                                         .start = live_start,
                                         .poll = live_poll,
                                         .wait = live_wait,
                                         .abort = trii_unit_coll_abort,
                                         .release = trii_unit_coll_release,
                                         .compare = trii_unit_coll_compare};

/* --- recording it --------------------------------------------------------- */

/* The last value of those that pend which a kernel computes. */
static trii_vid last_computed(const trii_step *step)
{
    for (int32_t n = step->n_nodes - 1; n >= step->first_pending; n--) {
        const trii_node *node = &step->nodes[n];

        if (node->host == NULL && node->n_out > 0 && node->op->op_class != TRII_CLASS_VIEW &&
            step->values[node->first_out].state == TRII_VALUE_PENDING)
            return node->first_out;
    }
    return TRII_NO_VALUE;
}

/* Of which gathers the next one, of so many bytes, is ahead: of how many of the last, itself
 * included. */
static unsigned depth_of(const trii_unit *unit, size_t bytes)
{
    size_t most = unit->prefetch_bytes > 0 ? unit->prefetch_bytes : SIZE_MAX, sum = bytes;
    unsigned at = unit->gathered.n, depth = 0;

    while (depth < (unsigned)unit->prefetch && sum <= most) {
        depth++;
        sum += depth <= at ? unit->gathered.bytes[(at - depth) % TRII_UNIT_LIVE] : 0;
    }
    return depth;
}

/* One more is gathered: retires what is too many, and says after what it may start (NO_VALUE: at
 * once). */
static trii_vid make_way(trii_unit *unit, trii_step *step, size_t bytes)
{
    unsigned depth, at;
    trii_vid after;

    if (unit->gathered.generation != step->generation) {
        unit->gathered.generation = step->generation;
        unit->gathered.n = unit->gathered.kept = 0;
    }
    at = unit->gathered.n;
    depth = depth_of(unit, bytes);
    for (; unit->gathered.kept + depth < at; unit->gathered.kept++)
        if (!unit->keep_after_forward)
            trii_value_retire(step, unit->gathered.whole[unit->gathered.kept % TRII_UNIT_LIVE]);
    unit->gathered.bytes[at % TRII_UNIT_LIVE] = bytes;
    unit->gathered.before[at % TRII_UNIT_LIVE] = last_computed(step);
    after = at >= depth ? unit->gathered.before[(at - depth) % TRII_UNIT_LIVE] : TRII_NO_VALUE;
    return after != TRII_NO_VALUE && step->values[after].state == TRII_VALUE_PENDING
               ? after
               : TRII_NO_VALUE;
}

static tri_status record_gather(trii_unit *unit, trii_step *step, trii_unit_bucket *bucket)
{
    const tri_bucket *wire = &bucket->wire->bucket;
    trii_vid in[TRII_UNIT_ITEMS + 1],
        after = make_way(unit, step, wire->count * tri_dtype_size(wire->dtype));
    trii_host_result result = {
        .type = {.dtype = wire->dtype,
                 .ndim = 1,
                 .device = unit->params[wire->parts[0].index].tensor->device}};
    trii_host_call call = {.in = in, .out = &result, .n_out = 1, .after = &after};
    trii_unit_coll *t;
    tri_status status = trii_unit_coll_take(unit, &bucket->gathers, step, &t);

    if (status != TRI_OK)
        return status;
    result.type.shape[0] = (int64_t)wire->count;
    t->bucket = bucket;
    t->from = 0;
    t->until = wire->count;
    t->op.kind = &live_kind;
    t->op.identity &= ~UINT64_C(0xffff);
    t->op.identity |= UINT64_C(0xa000) + (uint64_t)(wire->index + 1);
    t->place = wire->index;
    t->op.group = (uint64_t)(uintptr_t)unit->apart;
    t->n = call.n_in = wire->n_parts;
    call.n_after = after != TRII_NO_VALUE;
    for (int i = 0; i < t->n && status == TRI_OK; i++) {
        t->item[i] = wire->parts[i].index;
        status = trii_resolve(step, unit->params[t->item[i]].home, &in[i]);
    }
    if (status == TRI_OK)
        status = trii_record_host(step, &t->op, &call, &bucket->live);
    if (status != TRI_OK)
        return status;
    bucket->live_in = bucket->read_in = step->generation;
    unit->gathered.whole[unit->gathered.n++ % TRII_UNIT_LIVE] = bucket->live;
    return TRI_OK;
}

static tri_status record_view(trii_step *step, trii_unit_param *param)
{
    const trii_unit_bucket *bucket = param->bucket;
    int64_t start = (int64_t)(param->offset / tri_dtype_size(bucket->wire->bucket.dtype));
    tri_status status = trii_rec_narrow(step, bucket->live, 0, start,
                                        tri_tensor_numel(param->tensor), &param->view);

    if (status == TRI_OK)
        status = trii_rec_reshape(step, param->view, param->tensor->shape, param->tensor->ndim,
                                  &param->view);
    if (status != TRI_OK)
        return status;
    param->view_of = bucket->live;
    param->view_in = step->generation;
    step->values[param->view].version = bucket->epoch;
    return trii_value_own(step, param->view, param->tensor);
}

static inline bool can_be_read(const trii_step *step, trii_vid value, uint64_t in)
{
    return in == step->generation && step->values[value].state < TRII_VALUE_DROPPED;
}

static tri_status find_view(trii_unit *unit, trii_step *step, trii_unit_param *param)
{
    trii_unit_bucket *bucket = param->bucket;
    tri_status status = TRI_OK;

    if (!can_be_read(step, bucket->live, bucket->live_in))
        status = record_gather(unit, step, bucket);
    if (status == TRI_OK &&
        (!can_be_read(step, param->view, param->view_in) || param->view_of != bucket->live))
        status = record_view(step, param);
    return status;
}

tri_status trii_unit_resolve(trii_step *step, tri_tensor *tensor, trii_vid old, trii_vid *value_out)
{
    trii_recorder *r = trii_recorder_of(step);
    trii_unit *unit = trii_unit_of(tensor);
    trii_unit_param *param = &unit->params[tensor->placed->index];
    int32_t region = r->scopes.region;
    tri_status status;

    if (old != TRII_NO_VALUE && step->values[old].version != param->bucket->epoch)
        return TRII_FAIL(TRI_ERR_STATE,
                         "%s was updated since this step read it, and what it was then is gone: "
                         "call tri_backward before the update, and end the steps of other threads "
                         "before it",
                         param->name);
    if (TRII_UNLIKELY(r->scopes.replica.home != r->scopes.replica.device))
        return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                         "%s: replicas of tri_data_parallel read whole parameters, which stage 3 "
                         "does not keep: stages 1 and 2 do",
                         param->name);
    /* Not in a region, whose values are computed again: it is gathered again by itself. */
    r->scopes.region = 0;
    status = find_view(unit, step, param);
    r->scopes.region = region;
    *value_out = param->view;
    return status == TRI_OK ? TRI_OK : TRII_FAIL_CTX(status, "%s", param->name);
}

void trii_unit_forget_live(const trii_unit *unit, trii_unit_bucket *bucket, trii_step *step)
{
    bucket->epoch++;
    bucket->live_in = 0;
    for (int i = 0; i < bucket->wire->bucket.n_parts; i++) {
        const tri_tensor *tensor = unit->params[bucket->wire->parts[i].index].tensor;
        trii_known *known = tensor->elsewhere != NULL ? trii_known_find(step, tensor) : NULL;

        if (known != NULL)
            known->value = TRII_NO_VALUE;
    }
}
