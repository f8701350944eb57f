/*
 * finish.c - gradients become whole. Each is partial over the ranks of its unit: what has added up
 * of it is summed, with those that share its bucket, by one recorded collective, which is the first
 * of the step's that waits for all of them.
 */
#include <string.h>

#include "base/err.h"
#include "train/dist/unit_collective.h"
#include "train/graph/step/grads.h"
#include "train/graph/step/type.h"

/* Order in which the first backward completes its gradients: that of their values. Those that it
 * does not use follow, last one first. */
static void observe(trii_unit *unit, const trii_vid *grad_of)
{
    int n = 0;

    for (int i = unit->n_params - 1; i >= 0; i--) {
        int at = n;

        if (grad_of[i] == TRII_NO_VALUE)
            continue;
        for (; at > 0 && grad_of[unit->observed[at - 1]] > grad_of[i]; at--)
            unit->observed[at] = unit->observed[at - 1];
        unit->observed[at] = i;
        n++;
    }
    for (int i = unit->n_params - 1; i >= 0; i--)
        if (grad_of[i] == TRII_NO_VALUE)
            unit->observed[n++] = i;
    unit->has_observed = true;
}

/* --- buckets -------------------------------------------------------------- */

/* The result of the bucket's collective, to where the parameter wants its gradient. A piece's is
 * bound here, and the parameter itself has none. */
static tri_status take_result(const trii_unit_param *param, trii_step *step, trii_vid result,
                              trii_vid *grad_out)
{
    tri_status status = TRI_OK;

    if (param->home != param->tensor) {
        *grad_out = TRII_NO_VALUE;
        return trii_grad_bind(step, result, param->home);
    }
    if (param->bucket_view != NULL)
        status = trii_bind(step, result, param->bucket_view);
    return status == TRI_OK ? trii_record_to(step, result, param->tensor->device, grad_out)
                            : status;
}

static tri_status take_bucket(trii_unit *unit, trii_step *step, trii_unit_bucket *bucket,
                              trii_unit_coll **list, trii_unit_coll **coll_out)
{
    int index = bucket->wire->bucket.index;
    trii_unit_coll *t;
    tri_status status = trii_unit_coll_take(unit, list, step, &t);

    if (status != TRI_OK)
        return status;
    t->bucket = bucket;
    t->header = unit->header;
    t->place = index;
    t->last = index == unit->averager.n_buckets - 1;
    t->n = 0;
    t->op.identity |= (uint64_t)(index + 1);
    *coll_out = t;
    return TRI_OK;
}

/* What record_bucket left comes back as averages. */
static tri_status take_results(trii_unit *unit, trii_step *step, const trii_unit_coll *t,
                               const trii_vid *out, trii_vid *grad_of)
{
    tri_status status = TRI_OK;

    for (int i = 0; i < t->n && status == TRI_OK; i++)
        if (t->item[i] >= 0)
            status = take_result(&unit->params[t->item[i]], step, out[i], &grad_of[t->item[i]]);
    return status;
}

/* The averages of pieces are of other types than the gradients that are summed. */
static void take_pieces(const trii_unit *unit, const trii_unit_coll *t, trii_host_result *pieces,
                        trii_host_call *call)
{
    for (int i = 0; i < t->n; i++) {
        pieces[i] = (trii_host_result){.type = {.dtype = TRI_DTYPE_F32}};
        if (t->item[i] >= 0)
            trii_type_of_tensor(unit->params[t->item[i]].home, &pieces[i].type);
    }
    call->out = pieces;
    call->n_out = t->n;
}

static tri_status record_bucket(trii_unit *unit, trii_step *step, trii_unit_bucket *bucket,
                                trii_vid *grad_of)
{
    const tri_bucket *wire = &bucket->wire->bucket;
    trii_vid in[TRII_UNIT_ITEMS + 1];
    trii_host_result pieces[TRII_UNIT_ITEMS + 1];
    trii_vid after[2];
    trii_host_call call = {.in = in, .after = after};
    trii_unit_coll *t;
    tri_status status = take_bucket(unit, step, bucket, &bucket->colls, &t);

    if (status != TRI_OK)
        return status;
    trii_unit_coll_is_bucket(t);
    bucket->recorded = t;
    for (int i = 0; i < wire->n_parts && status == TRI_OK; i++) {
        const trii_unit_param *param = &unit->params[wire->parts[i].index];
        trii_vid grad = grad_of[wire->parts[i].index];

        if (grad == TRII_NO_VALUE)
            continue;
        if (param->bucket_view != NULL)
            status = trii_record_to(step, grad, TRI_CPU(0), &grad);
        t->item[t->n] = wire->parts[i].index;
        in[t->n++] = grad;
    }
    if (t->n == 0) { /* it has to be sent all the same */
        t->item[t->n] = -1;
        status = trii_resolve(step, unit->one[0], &in[t->n++]);
    }
    if (status != TRI_OK)
        return status;
    call.n_in = t->n;
    if (unit->stage > 0 && unit->averager.each_ends)
        take_pieces(unit, t, pieces, &call);
    /* What it says of unused parameters comes with the last; hooks ask for the weight. */
    after[0] = unit->header->weight;
    call.n_after = t->last || unit->averager.hook != NULL;
    call.n_after += trii_unit_staging_after(unit, step, t->place, &after[call.n_after]);
    status = trii_record_host(step, &t->op, &call, bucket->sent);
    if (status == TRI_OK)
        trii_unit_staging_taken(unit, step, t->place, bucket->sent[0]);
    return status == TRI_OK && unit->averager.each_ends
               ? take_results(unit, step, t, bucket->sent, grad_of)
               : status;
}

/* Where buckets end together: the averages, once all are sent, of which `last` is the last. */
static tri_status record_end(trii_unit *unit, trii_step *step, trii_unit_bucket *bucket,
                             trii_vid last, trii_vid *grad_of)
{
    const trii_unit_coll *start = bucket->recorded;
    trii_vid out[TRII_UNIT_ITEMS + 1];
    trii_host_result pieces[TRII_UNIT_ITEMS + 1];
    trii_host_call call = {.in = bucket->sent, .n_in = start->n, .after = &last};
    trii_unit_coll *t;
    tri_status status = take_bucket(unit, step, bucket, &bucket->ends, &t);

    if (status != TRI_OK)
        return status;
    trii_unit_coll_is_end(t);
    t->n = start->n;
    memcpy(t->item, start->item, (size_t)t->n * sizeof(*t->item));
    call.n_after = !t->last;
    if (unit->stage > 0)
        take_pieces(unit, t, pieces, &call);
    status = trii_record_host(step, &t->op, &call, out);
    return status == TRI_OK ? take_results(unit, step, t, out, grad_of) : status;
}

static tri_status record_buckets(trii_unit *unit, trii_step *step, trii_vid *grad_of)
{
    trii_unit_bucket *end = unit->buckets + unit->averager.n_buckets;
    tri_status status = TRI_OK;

    for (trii_unit_bucket *b = unit->buckets; b < end && status == TRI_OK; b++)
        status = record_bucket(unit, step, b, grad_of);
    if (unit->averager.each_ends)
        return status;
    for (trii_unit_bucket *b = unit->buckets; b < end && status == TRI_OK; b++)
        status = record_end(unit, step, b, end[-1].sent[0], grad_of);
    return status;
}

/* Gradients that earlier backward passes left and this loss does not reach go with the rest. */
static tri_status add_left_over(trii_unit *unit, trii_step *step, trii_vid *grad_of)
{
    tri_status status = TRI_OK;

    for (int i = 0; i < unit->n_params && status == TRI_OK; i++) {
        tri_tensor *param = unit->params[i].tensor;

        if (grad_of[i] != TRII_NO_VALUE || !trii_has_grad(param))
            continue;
        status = trii_resolve(step, param->grad, &grad_of[i]);
        if (status == TRI_OK)
            status = trii_unit_held(unit, step, param, &grad_of[i]);
    }
    return status;
}

static tri_status refuse_unweighted(const trii_unit *unit, const char *why)
{
    return TRII_FAIL(
        TRI_ERR_UNSUPPORTED,
        "%s: gradients between tri_ddp_no_sync_begin and tri_ddp_no_sync_end went through "
        "what ranks share (SyncBatchNorm, tri_dist_*) and are weighted already; %s "
        "cannot be added to them: average these first, by a tri_backward of their "
        "kind after tri_ddp_no_sync_end",
        unit->call, why);
}

/* Sums of gradients that were not seeded by the weight get it now. */
static tri_status weigh_all(trii_unit *unit, trii_step *step, const trii_samples *under,
                            trii_vid *grad_of)
{
    tri_status status = TRI_OK;

    trii_unit_forget_weight(unit);
    if (unit->tally.weighted)
        status = refuse_unweighted(unit, "a loss that reaches other models or tensors as well");
    if (status == TRI_OK)
        status = trii_unit_weight(unit, step, TRII_HEADER_AVERAGE, under);
    if (status == TRI_OK)
        unit->header->even = unit->crossed;
    for (int i = 0; i < unit->n_params && status == TRI_OK; i++)
        if (grad_of[i] != TRII_NO_VALUE)
            status = trii_unit_apply_weight(unit, step, unit->params[i].tensor, &grad_of[i]);
    return status;
}

/* A backward without synchronisation whose gradients go through sums over ranks. */
static tri_status add_up(trii_unit *unit, trii_step *step, trii_vid *grad_of,
                         const trii_samples *under)
{
    tri_status status;

    if (trii_unit_is_seeded(unit, step)) {
        status = add_left_over(unit, step, grad_of);
        unit->tally.local_count += under->count;
        unit->tally.local_fixed = 0;
        unit->tally.weighted = true;
        return status;
    }
    if (unit->tally.weighted)
        return refuse_unweighted(unit, "a loss that reaches other models or tensors as well");
    trii_unit_forget_weight(unit);
    status = trii_unit_weight(unit, step, TRII_HEADER_CHECK, under);
    if (status != TRI_OK)
        return status;
    unit->header->even = true;
    return trii_unit_count(unit, step, under);
}

/* What had added up in parameters went into the averages of their pieces. */
static tri_status consume(const trii_unit *unit, trii_step *step)
{
    tri_status status = TRI_OK;

    for (int i = 0; i < unit->n_params && status == TRI_OK; i++)
        status = trii_grad_consume(step, unit->params[i].tensor, &(trii_vid){TRII_NO_VALUE});
    return status;
}

static tri_status synchronise(trii_unit *unit, trii_step *step, trii_vid *grad_of,
                              const trii_samples *under)
{
    tri_status status = add_left_over(unit, step, grad_of);

    if (status == TRI_OK && unit->stage > 0)
        status = trii_unit_add_pieces(unit, step, grad_of);
    if (status == TRI_OK && !trii_unit_is_seeded(unit, step))
        status = weigh_all(unit, step, under, grad_of);
    if (status != TRI_OK)
        return status;
    unit->promises = false;
    for (int i = 0; i < unit->n_params; i++) {
        trii_unit_param *param = &unit->params[i];

        param->used_here = grad_of[i] != TRII_NO_VALUE;
        trii_grad_promise(param->home, !param->used_here);
        unit->promises = unit->promises || !param->used_here;
    }
    unit->header->unused = unit->promises;
    unit->header->weighted = unit->tally.weighted;
    unit->header->vote_stop = unit->tally.vote_stop;
    unit->tally.vote_stop = false;
    status = record_buckets(unit, step, grad_of);
    if (status == TRI_OK && unit->stage > 0)
        status = consume(unit, step);
    unit->tally.local_count = unit->tally.local_fixed = 0;
    unit->tally.weighted = false;
    return status;
}

/* What a backward without synchronisation, whose gradients are this rank's alone, leaves. */
static tri_status count(trii_unit *unit, trii_step *step, const trii_samples *under)
{
    return unit->tally.weighted ? refuse_unweighted(unit, "a loss that does not")
                                : trii_unit_count(unit, step, under);
}

/* One rank has the whole gradients, and only counts. */
static void count_alone(trii_unit *unit, const trii_samples *under)
{
    (void)trii_unit_forget_if_cleared(unit);
    if (unit->in_parts)
        return;
    unit->tally.local_count += under->count;
    if (unit->no_sync > 0)
        return;
    unit->tally.sample_count = unit->tally.local_count;
    unit->tally.local_count = 0;
}

static tri_status refuse_whole(const trii_placed *placed)
{
    return TRII_FAIL(TRI_ERR_STATE,
                     "%s: %s requires a gradient only since this forward began: call "
                     "tri_requires_grad before tri_forward, on all ranks",
                     placed->unit->call, placed->name);
}

tri_status trii_unit_finish(trii_unit *unit, trii_step *step, tri_tensor *const *params,
                            trii_vid *grads, int n, const trii_samples *under)
{
    trii_vid *grad_of = unit->grad_of;
    tri_status status = trii_unit_remember(unit, step);

    if (status != TRI_OK)
        return status;
    if (unit->group == NULL) {
        count_alone(unit, under);
        return TRI_OK;
    }
    if (!trii_unit_is_seeded(unit, step)) /* else that was done when it began */
        (void)trii_unit_forget_if_cleared(unit);
    if (unit->no_sync > 0 && !unit->crossed)
        return count(unit, step, under);
    if (unit->buckets == NULL)
        return TRII_FAIL(TRI_ERR_STATE,
                         "%s: out of memory when the gradients were put into their final buckets",
                         unit->call);
    for (int i = 0; i < unit->n_params; i++)
        grad_of[i] = TRII_NO_VALUE;
    for (int k = 0; k < n; k++) {
        if (params[k]->placed->gradient != TRII_PLACEMENT_PARTIAL)
            return refuse_whole(params[k]->placed);
        grad_of[params[k]->placed->index] = grads[k];
    }
    if (unit->no_sync > 0) {
        status = add_up(unit, step, grad_of, under);
    } else {
        if (!unit->has_observed)
            observe(unit, grad_of);
        status = synchronise(unit, step, grad_of, under);
    }
    unit->seeded = false; /* of this backward only: the next may have no seed from here */
    for (int k = 0; k < n && status == TRI_OK; k++) {
        int i = params[k]->placed->index;

        grads[k] = grad_of[i];
        grad_of[i] = TRII_NO_VALUE;
    }
    /* What is left was not reached by this loss: nobody else binds it. */
    for (int i = 0; i < unit->n_params && status == TRI_OK; i++)
        if (grad_of[i] != TRII_NO_VALUE)
            status = trii_grad_bind(step, grad_of[i], unit->params[i].tensor);
    return status;
}
