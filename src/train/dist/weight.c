/*
 * weight.c - the weight of this rank's samples in an average: the header that finds it, whether the
 * gradients of a backward pass are made with it or multiplied by it later, and the samples that
 * were counted but not averaged yet.
 */
#include <string.h>

#include "train/dist/unit_collective.h"
#include "train/graph/ops/table.h"

/* Records the header; weights[i] is its result as types[i]. */
static tri_status record_header(trii_unit *unit, trii_step *step, trii_header_use use,
                                const trii_samples *under, const tri_dtype *types, int n,
                                trii_vid *weights)
{
    trii_vid in[3], out[3];
    /* What a header brings is the model's: that of the last one counts. */
    trii_host_call call = {.in = in,
                           .after = &unit->last_weight,
                           .n_after = unit->last_generation == step->generation};
    trii_unit_coll *t;
    tri_status status = trii_unit_coll_take(unit, &unit->headers, step, &t);

    for (int i = 0; i < n && status == TRI_OK; i++)
        status = trii_resolve(step, unit->one[types[i] == TRI_DTYPE_F64], &in[i]);
    if (status != TRI_OK)
        return status;
    trii_unit_coll_is_header(t);
    t->joined = unit->joined;
    t->throws = unit->joined && unit->throws;
    t->count = unit->tally.local_count + (t->joined ? 0 : under->count);
    t->valued = under->divisor != TRII_NO_VALUE && !t->joined;
    t->fixed = (use != TRII_HEADER_CHECK ? unit->tally.local_fixed : 0) +
               (t->valued || t->joined ? 0 : under->count);
    t->epoch = unit->tally.epoch;
    t->unused = t->vote_stop = t->even = t->weighted = false;
    t->held = unit->held;
    t->mixes = unit->crossed;
    t->use = use;
    t->n = n;
    for (int i = 0; i < n; i++)
        t->out_bytes[i] = tri_dtype_size(types[i]);
    if (t->valued)
        in[n] = under->divisor;
    call.n_in = n + t->valued;
    status = trii_record_host(step, &t->op, &call, out);
    if (status != TRI_OK)
        return status;
    memcpy(weights, out, (size_t)n * sizeof(*out));
    t->weight = unit->last_weight = out[0];
    unit->last_generation = step->generation;
    unit->header = t;
    return TRI_OK;
}

void trii_unit_forget_weight(trii_unit *unit)
{
    unit->weight[0] = unit->weight[1] = TRII_NO_VALUE;
    unit->weight_there[0] = unit->weight_there[1] = TRII_NO_VALUE;
    unit->weight_device = TRI_CPU(0);
}

tri_status trii_unit_weight(trii_unit *unit, trii_step *step, trii_header_use use,
                            const trii_samples *under)
{
    static const tri_dtype types[2] = {TRI_DTYPE_F32, TRI_DTYPE_F64};

    return record_header(unit, step, use, under, types, 2, unit->weight);
}

tri_status trii_unit_apply_weight(trii_unit *unit, trii_step *step, const tri_tensor *param,
                                  trii_vid *grad_io)
{
    int wide = param->dtype == TRI_DTYPE_F64;
    trii_vid *there = &unit->weight_there[wide], factors[2] = {*grad_io, TRII_NO_VALUE};
    tri_status status = TRI_OK;

    if (param->device != unit->weight_device)
        unit->weight_there[0] = unit->weight_there[1] = TRII_NO_VALUE;
    unit->weight_device = param->device;
    if (*there == TRII_NO_VALUE)
        status = trii_record_to(step, unit->weight[wide], param->device, there);
    factors[1] = *there;
    return status == TRI_OK ? trii_record_values(step, &trii_op_mul, factors, 2, NULL, grad_io)
                            : status;
}

tri_status trii_unit_weigh(trii_unit *unit, trii_step *step, tri_dtype dtype,
                           const trii_samples *under, trii_vid *seed_out)
{
    trii_header_use use = unit->no_sync > 0 ? TRII_HEADER_WEIGH : TRII_HEADER_AVERAGE;
    bool cleared;
    tri_status status;

    if (unit->group == NULL)
        return TRI_OK;
    unit->header = NULL;
    unit->seeded = false;
    trii_unit_forget_weight(unit);
    if (TRII_UNLIKELY(unit->in_parts))
        return TRI_OK;
    status = trii_unit_remember(unit, step);
    if (status != TRI_OK)
        return status;
    cleared = trii_unit_forget_if_cleared(unit);
    if ((unit->no_sync > 0 && !unit->crossed) || (dtype != TRI_DTYPE_F32 && dtype != TRI_DTYPE_F64))
        return TRI_OK;
    if (cleared || unit->tally.weighted) {
        status = record_header(unit, step, use, under, &dtype, 1, seed_out);
    } else {
        status = trii_unit_weight(unit, step, use, under);
        *seed_out = status == TRI_OK ? unit->weight[dtype == TRI_DTYPE_F64] : TRII_NO_VALUE;
    }
    unit->seeded = status == TRI_OK;
    return status;
}

bool trii_unit_is_seeded(const trii_unit *unit, const trii_step *step)
{
    return unit->seeded && unit->header->generation == step->generation;
}

tri_status trii_unit_held(trii_unit *unit, trii_step *step, const tri_tensor *param,
                          trii_vid *term_io)
{
    return trii_unit_is_seeded(unit, step) && unit->weight[0] != TRII_NO_VALUE
               ? trii_unit_apply_weight(unit, step, param, term_io)
               : TRI_OK;
}

/* --- samples that wait to be averaged ------------------------------------- */

bool trii_unit_forget_if_cleared(trii_unit *unit)
{
    unit->held = trii_unit_have_grads(unit);
    if (unit->held)
        return false;
    unit->tally.local_count = unit->tally.local_fixed = 0;
    unit->tally.epoch++;
    unit->tally.weighted = false;
    trii_unit_forget_promises(unit);
    return true;
}

tri_status trii_unit_count(trii_unit *unit, trii_step *step, const trii_samples *under)
{
    trii_vid in = under->divisor, out;
    trii_unit_coll *t;
    tri_status status;

    if (TRII_UNLIKELY(unit->in_parts))
        return TRI_OK;
    unit->tally.local_count += under->count;
    if (in == TRII_NO_VALUE) {
        unit->tally.local_fixed += under->count;
        return TRI_OK;
    }
    status = trii_unit_coll_take(unit, &unit->counts, step, &t);
    if (status != TRI_OK)
        return status;
    trii_unit_coll_is_count(t);
    t->epoch = unit->tally.epoch;
    return trii_record_host_like(step, &t->op, &in, 1, &out);
}
