/*
 * gather_op.c - what lies in parts becomes whole, by one recorded all_gather for each bucket.
 *
 * After an update, in which each rank has changed its part, these are the parameters; the gather
 * starts as soon as the bucket's own updates are complete. Before a backward that adds to averages
 * of an earlier one, these are the averages: DDP's bits come from the sum over the ranks of what
 * has added up on each, so all of them need the whole.
 */
#include <string.h>

#include <trireme/group.h>

#include "base/alloc.h"
#include "base/err.h"
#include "train/dist/unit_collective.h"
#include "train/graph/ops/table.h"
#include "train/graph/record/record.h"
#include "train/graph/step/type.h"

/* Where the bucket's parameters, or their gradients, lie. */
static char *memory_of(const trii_unit_coll *t)
{
    return t->aside != NULL ? t->aside
                            : (t->gathers_grads ? t->bucket->storage : t->bucket->values)->data;
}

/* A parameter that is not bound in place has contents that somebody in the plan reads later (the
 * plan may let the gather start before a reader of what was there before): then nothing is written
 * there, and the plan copies the results in the end. */
static tri_status step_aside(trii_unit_coll *t, const trii_host_buffers *buffers)
{
    const tri_bucket *wire = &t->bucket->wire->bucket;
    bool in_place = true;

    for (int i = 0; i < t->n && !t->gathers_grads; i++)
        in_place =
            in_place && (t->unit->params[t->item[i]].bytes == 0 ||
                         buffers->out[i] == memory_of(t) + t->unit->params[t->item[i]].offset);
    if (TRII_LIKELY(in_place))
        return TRI_OK;
    t->aside = trii_alloc_aligned(64, wire->count * tri_dtype_size(wire->dtype),
                                  "parameters on their way");
    return t->aside != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
}

static tri_status gather_start(trii_host_op *op, const trii_host_buffers *buffers)
{
    trii_unit_coll *t = (trii_unit_coll *)op;
    size_t size = tri_dtype_size(t->bucket->wire->bucket.dtype), own;
    tri_status status = step_aside(t, buffers);
    char *memory = memory_of(t);

    if (status != TRI_OK)
        return status;
    for (int i = 0; i < t->n; i++) {
        const trii_unit_param *param = &t->unit->params[t->item[i]];
        size_t bytes = trii_tensor_bytes(param->home);

        t->out[i] = buffers->out[i];
        if (bytes > 0 && buffers->in[i] != memory + param->home_offset)
            memcpy(memory + param->home_offset, buffers->in[i], bytes);
    }
    (void)trii_unit_coll_own(t, &own);
    return trii_unit_coll_gather(t, memory + own * size, memory + t->from * size);
}

static tri_status gather_go_on(trii_unit_coll *t, int64_t for_ns)
{
    tri_status status;

    if (t->state != TRII_UNIT_COLL_STARTED)
        return TRI_OK;
    status = trii_unit_coll_gathered(t, for_ns);
    if (status != TRI_OK)
        return status;
    for (int i = 0; i < t->n; i++) {
        const trii_unit_param *param = &t->unit->params[t->item[i]];

        if (t->out[i] != memory_of(t) + param->offset)
            memcpy(t->out[i], memory_of(t) + param->offset, param->bytes);
    }
    trii_unit_coll_drop_aside(t);
    t->state = TRII_UNIT_COLL_FREE;
    return TRI_OK;
}

static tri_status gather_poll(trii_host_op *op)
{
    return gather_go_on((trii_unit_coll *)op, 0);
}

static tri_status gather_wait(trii_host_op *op, int64_t for_ns)
{
    return gather_go_on((trii_unit_coll *)op, for_ns);
}

#define GATHER_KIND(what)                                                                          \
    {                                                                                              \
        .name = (what), .in_place = true, .start = gather_start, .poll = gather_poll,              \
        .wait = gather_wait, .abort = trii_unit_coll_abort, .release = trii_unit_coll_release,     \
        .compare = trii_unit_coll_compare                                                          \
    }
static const trii_host_kind values_kind = GATHER_KIND("parameters");
static const trii_host_kind grads_kind = GATHER_KIND("gradients of before");

/* Of the parameters t->item, which the caller has chosen: the whole of what their pieces `in` are
 * parts of. */
static tri_status record(trii_unit *unit, trii_step *step, trii_unit_coll *t, const trii_vid *in,
                         trii_vid *out)
{
    trii_host_result results[TRII_UNIT_ITEMS + 1];
    trii_host_call call = {.in = in, .out = results, .n_in = t->n, .n_out = t->n};
    trii_vid after;
    tri_status status;

    t->op.kind = t->gathers_grads ? &grads_kind : &values_kind;
    t->op.apart = unit->across != NULL;
    t->op.identity &= ~UINT64_C(0xffff);
    t->op.identity |= t->gathers_grads ? UINT64_C(0xc000) : UINT64_C(0x8000);
    t->op.identity |= (uint64_t)(t->bucket->wire->bucket.index + 1);
    t->op.group = (uint64_t)(uintptr_t)unit->group;
    t->place = t->bucket->wire->bucket.index;
    for (int i = 0; i < t->n; i++) {
        results[i] = (trii_host_result){.requires_grad = false};
        trii_type_of_tensor(unit->params[t->item[i]].tensor, &results[i].type);
    }
    call.after = &after;
    if (t->gathers_grads)
        call.n_after = trii_unit_staging_after(unit, step, t->place, &after);
    status = trii_record_host(step, &t->op, &call, out);
    if (status == TRI_OK && t->gathers_grads)
        trii_unit_staging_taken(unit, step, t->place, out[0]);
    return status;
}

/* --- parameters ----------------------------------------------------------- */

/* The first and the last part of the bucket that is behind; from now on none is. False: none was.
 */
static bool take_behind(const trii_unit *unit, const tri_bucket *wire, int *first_out,
                        int *last_out)
{
    bool found = false;

    for (int i = 0; i < wire->n_parts; i++) {
        trii_unit_param *param = &unit->params[wire->parts[i].index];

        if (!param->is_behind)
            continue;
        *first_out = found ? *first_out : i;
        *last_out = i;
        param->is_behind = false;
        found = true;
    }
    return found;
}

/* All parameters of the bucket, or those between two that an optimizer of a few has changed. */
static tri_status gather_values(trii_unit *unit, trii_step *step, trii_unit_bucket *bucket)
{
    const tri_bucket *wire = &bucket->wire->bucket;
    trii_vid in[TRII_UNIT_ITEMS + 1], out[TRII_UNIT_ITEMS + 1];
    int first, last;
    trii_unit_coll *t;
    tri_status status;

    if (!take_behind(unit, wire, &first, &last))
        return TRI_OK;
    status = trii_unit_coll_take(unit, &bucket->gathers, step, &t);
    if (status != TRI_OK)
        return status;
    t->bucket = bucket;
    t->gathers_grads = false;
    t->from = wire->parts[first].offset;
    t->until = last + 1 == wire->n_parts ? wire->count : wire->parts[last + 1].offset;
    t->n = last + 1 - first;
    for (int i = 0; i < t->n && status == TRI_OK; i++) {
        t->item[i] = wire->parts[first + i].index;
        status = trii_resolve(step, unit->params[t->item[i]].home, &in[i]);
    }
    if (status == TRI_OK)
        status = record(unit, step, t, in, out);
    for (int i = 0; i < t->n && status == TRI_OK; i++)
        status = trii_bind(step, out[i], unit->params[t->item[i]].tensor);
    return status;
}

tri_status trii_unit_gather(trii_unit *unit, trii_step *step)
{
    tri_status status = TRI_OK;

    if (!unit->is_behind)
        return TRI_OK;
    unit->is_behind = false;
    for (int b = 0; b < unit->averager.n_buckets && status == TRI_OK; b++) {
        if (unit->buckets[b].whole != NULL)
            trii_unit_forget_live(unit, &unit->buckets[b], step);
        else
            status = gather_values(unit, step, &unit->buckets[b]);
    }
    return status != TRI_OK ? TRII_FAIL_CTX(status, "parameters after their update") : TRI_OK;
}

/* --- averages of before --------------------------------------------------- */

/* Added to what this backward brings, weighted as that is. */
static tri_status add_whole(trii_unit *unit, trii_step *step, const trii_unit_param *param,
                            trii_vid whole, trii_vid *grad_io)
{
    trii_vid terms[2] = {whole, *grad_io};
    tri_status status = trii_unit_held(unit, step, param->tensor, &terms[0]);

    if (status == TRI_OK && *grad_io != TRII_NO_VALUE)
        return trii_record_values(step, &trii_op_add, terms, 2, NULL, grad_io);
    *grad_io = terms[0];
    return status;
}

static tri_status gather_grads(trii_unit *unit, trii_step *step, trii_unit_bucket *bucket,
                               trii_vid *grad_of)
{
    const tri_bucket *wire = &bucket->wire->bucket;
    trii_vid in[TRII_UNIT_ITEMS + 1], out[TRII_UNIT_ITEMS + 1];
    int n = 0, item[TRII_UNIT_ITEMS + 1];
    trii_unit_coll *t;
    tri_status status = TRI_OK;

    for (int i = 0; i < wire->n_parts && status == TRI_OK; i++) {
        tri_tensor *home = unit->params[wire->parts[i].index].home;

        if (!trii_step_has_grad(step, home))
            continue;
        item[n] = wire->parts[i].index;
        status = trii_resolve(step, home->grad, &in[n++]);
    }
    if (status != TRI_OK || n == 0)
        return status;
    status = trii_unit_coll_take(unit, &bucket->gathers, step, &t);
    if (status != TRI_OK)
        return status;
    t->bucket = bucket;
    t->gathers_grads = true;
    t->from = 0;
    t->until = wire->count;
    t->n = n;
    memcpy(t->item, item, (size_t)n * sizeof(*item));
    status = record(unit, step, t, in, out);
    for (int i = 0; i < n && status == TRI_OK; i++)
        status = add_whole(unit, step, &unit->params[item[i]], out[i], &grad_of[item[i]]);
    return status;
}

tri_status trii_unit_add_pieces(trii_unit *unit, trii_step *step, trii_vid *grad_of)
{
    tri_status status = TRI_OK;

    for (int b = 0; b < unit->averager.n_buckets && status == TRI_OK; b++)
        status = gather_grads(unit, step, &unit->buckets[b], grad_of);
    return status != TRI_OK ? TRII_FAIL_CTX(status, "averages of an earlier backward") : TRI_OK;
}
