/*
 * backward_hook.c - what a synchronised tri_backward records beside the gradients: the header,
 * whose result is their weight, and one sum per bucket.
 */
#include <stdatomic.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "train/graph/ops/table.h"
#include "train/parallel/ddp/ddp.h"
#include "train/tensor/device_memory.h"

/* --- the header ----------------------------------------------------------- */

/* Records the header; weights[i] is its result as types[i]. */
static tri_status record_header(trii_ddp *ddp, trii_step *step, trii_header_use use,
                                const trii_samples *under, const tri_dtype *types, int n,
                                trii_vid *weights)
{
    trii_vid in[3], out[3];
    /* What a header brings is the model's: that of the last one counts. */
    trii_host_call call = {
        .in = in, .after = &ddp->last_weight, .n_after = ddp->last_generation == step->generation};
    trii_ddp_coll *t;
    tri_status status = trii_ddp_coll_take(ddp, &ddp->headers, step, &t);

    for (int i = 0; i < n && status == TRI_OK; i++)
        status = trii_resolve(step, ddp->unit[types[i] == TRI_DTYPE_F64], &in[i]);
    if (status != TRI_OK)
        return status;
    trii_ddp_coll_is_header(t);
    t->joined = ddp->joined;
    t->throws = ddp->joined && ddp->throws;
    t->count = ddp->local_count + (t->joined ? 0 : under->count);
    t->valued = under->divisor != TRII_NO_VALUE && !t->joined;
    t->fixed = (use != TRII_HEADER_CHECK ? ddp->local_fixed : 0) +
               (t->valued || t->joined ? 0 : under->count);
    t->epoch = ddp->epoch;
    t->unused = t->vote_stop = t->even = t->weighted = false;
    t->held = ddp->held;
    t->mixes = under->crosses_ranks;
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
    t->weight = ddp->last_weight = out[0];
    ddp->last_generation = step->generation;
    ddp->header = t;
    return TRI_OK;
}

static const tri_dtype weight_types[2] = {TRI_DTYPE_F32, TRI_DTYPE_F64};

static void forget_weight(trii_ddp *ddp)
{
    ddp->weight[0] = ddp->weight[1] = TRII_NO_VALUE;
    ddp->weight_there[0] = ddp->weight_there[1] = TRII_NO_VALUE;
    ddp->weight_device = TRI_CPU(0);
}

/* A header by whose weight `apply_weight` multiplies. */
static tri_status record_weight(trii_ddp *ddp, trii_step *step, trii_header_use use,
                                const trii_samples *under)
{
    return record_header(ddp, step, use, under, weight_types, 2, ddp->weight);
}

static tri_status apply_weight(trii_ddp *ddp, trii_step *step, const tri_tensor *param,
                               trii_vid *grad_io)
{
    int wide = param->dtype == TRI_DTYPE_F64;
    trii_vid *there = &ddp->weight_there[wide], factors[2] = {*grad_io, TRII_NO_VALUE};
    tri_status status = TRI_OK;

    if (param->device != ddp->weight_device)
        ddp->weight_there[0] = ddp->weight_there[1] = TRII_NO_VALUE;
    ddp->weight_device = param->device;
    if (*there == TRII_NO_VALUE)
        status = trii_record_to(step, ddp->weight[wide], param->device, there);
    factors[1] = *there;
    return status == TRI_OK ? trii_record_values(step, &trii_op_mul, factors, 2, NULL, grad_io)
                            : status;
}

tri_status trii_ddp_seed(trii_grad_hook *hook, trii_step *step, tri_dtype dtype,
                         const trii_samples *under, trii_vid *seed_out)
{
    trii_ddp *ddp = (trii_ddp *)hook;
    trii_header_use use = ddp->no_sync > 0 ? TRII_HEADER_WEIGH : TRII_HEADER_AVERAGE;
    bool cleared;
    tri_status status;

    ddp->header = NULL;
    ddp->seeded = false;
    forget_weight(ddp);
    status = trii_ddp_remember(ddp, step);
    if (status != TRI_OK)
        return status;
    cleared = trii_ddp_forget_if_cleared(ddp);
    if ((ddp->no_sync > 0 && !under->crosses_ranks) ||
        (dtype != TRI_DTYPE_F32 && dtype != TRI_DTYPE_F64))
        return TRI_OK;
    if (cleared || ddp->weighted) {
        status = record_header(ddp, step, use, under, &dtype, 1, seed_out);
    } else {
        status = record_weight(ddp, step, use, under);
        *seed_out = status == TRI_OK ? ddp->weight[dtype == TRI_DTYPE_F64] : TRII_NO_VALUE;
    }
    ddp->seeded = status == TRI_OK;
    return status;
}

/* Whether the gradients of the backward that is being recorded come weighted. */
static bool is_seeded(const trii_ddp *ddp, const trii_step *step)
{
    return ddp->seeded && ddp->header->generation == step->generation;
}

tri_status trii_ddp_held(trii_grad_hook *hook, trii_step *step, const tri_tensor *param,
                         trii_vid *term_io)
{
    trii_ddp *ddp = (trii_ddp *)hook;

    return is_seeded(ddp, step) && ddp->weight[0] != TRII_NO_VALUE
               ? apply_weight(ddp, step, param, term_io)
               : TRI_OK;
}

/* --- who is who ----------------------------------------------------------- */

/* Index of a parameter; `k` is its place in the backward, nearly always the same as last time. */
static int index_of(trii_ddp *ddp, const tri_tensor *tensor, int k)
{
    int guess = k < ddp->n_params ? ddp->sequence[k] : 0;

    if (ddp->params[guess].tensor == tensor)
        return guess;
    for (int i = 0; i < ddp->n_params; i++) {
        if (ddp->params[i].tensor == tensor) {
            if (k < ddp->n_params)
                ddp->sequence[k] = i;
            return i;
        }
    }
    return -1;
}

/* Order in which the first backward completes its gradients: that of their values. Those that it
 * does not use follow, last one first. */
static void observe(trii_ddp *ddp, const trii_vid *grad_of)
{
    int n = 0;

    for (int i = ddp->n_params - 1; i >= 0; i--) {
        int at = n;

        if (grad_of[i] == TRII_NO_VALUE)
            continue;
        for (; at > 0 && grad_of[ddp->observed[at - 1]] > grad_of[i]; at--)
            ddp->observed[at] = ddp->observed[at - 1];
        ddp->observed[at] = i;
        n++;
    }
    for (int i = ddp->n_params - 1; i >= 0; i--)
        if (grad_of[i] == TRII_NO_VALUE)
            ddp->observed[n++] = i;
    ddp->has_observed = true;
}

/* --- buckets -------------------------------------------------------------- */

/* The result of the bucket's collective, to where the parameter wants its gradient. */
static tri_status take_result(const trii_ddp_param *param, trii_step *step, trii_vid result,
                              trii_vid *grad_out)
{
    tri_status status = TRI_OK;

    if (param->bucket_view != NULL)
        status = trii_bind(step, result, param->bucket_view);
    return status == TRI_OK ? trii_record_to(step, result, param->tensor->device, grad_out)
                            : status;
}

static tri_status take_bucket(trii_ddp *ddp, trii_step *step, trii_ddp_bucket *bucket,
                              trii_ddp_coll **list, trii_ddp_coll **coll_out)
{
    int index = bucket->wire->bucket.index;
    trii_ddp_coll *t;
    tri_status status = trii_ddp_coll_take(ddp, list, step, &t);

    if (status != TRI_OK)
        return status;
    t->bucket = bucket;
    t->header = ddp->header;
    t->last = index == ddp->averager.n_buckets - 1;
    t->n = 0;
    t->op.identity |= (uint64_t)(index + 1);
    *coll_out = t;
    return TRI_OK;
}

/* What record_bucket left comes back as averages. */
static tri_status take_results(trii_ddp *ddp, trii_step *step, const trii_ddp_coll *t,
                               const trii_vid *out, trii_vid *grad_of)
{
    tri_status status = TRI_OK;

    for (int i = 0; i < t->n && status == TRI_OK; i++)
        if (t->item[i] >= 0)
            status = take_result(&ddp->params[t->item[i]], step, out[i], &grad_of[t->item[i]]);
    return status;
}

static tri_status record_bucket(trii_ddp *ddp, trii_step *step, trii_ddp_bucket *bucket,
                                trii_vid *grad_of)
{
    const tri_bucket *wire = &bucket->wire->bucket;
    trii_vid in[TRII_DDP_ITEMS + 1];
    trii_host_call call = {.in = in};
    trii_ddp_coll *t;
    tri_status status = take_bucket(ddp, step, bucket, &bucket->colls, &t);

    if (status != TRI_OK)
        return status;
    trii_ddp_coll_is_bucket(t);
    bucket->recorded = t;
    for (int i = 0; i < wire->n_parts && status == TRI_OK; i++) {
        const trii_ddp_param *param = &ddp->params[wire->parts[i].index];
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
        status = trii_resolve(step, ddp->unit[0], &in[t->n++]);
    }
    if (status != TRI_OK)
        return status;
    call.n_in = t->n;
    /* What it says of unused parameters comes with the last; hooks ask for the weight. */
    call.after = &ddp->header->weight;
    call.n_after = t->last || ddp->averager.hook != NULL;
    status = trii_record_host(step, &t->op, &call, bucket->sent);
    return status == TRI_OK && ddp->averager.each_ends
               ? take_results(ddp, step, t, bucket->sent, grad_of)
               : status;
}

/* Where buckets end together: the averages, once all are sent, of which `last` is the last. */
static tri_status record_end(trii_ddp *ddp, trii_step *step, trii_ddp_bucket *bucket, trii_vid last,
                             trii_vid *grad_of)
{
    const trii_ddp_coll *start = bucket->recorded;
    trii_vid out[TRII_DDP_ITEMS + 1];
    trii_host_call call = {.in = bucket->sent, .n_in = start->n, .after = &last};
    trii_ddp_coll *t;
    tri_status status = take_bucket(ddp, step, bucket, &bucket->ends, &t);

    if (status != TRI_OK)
        return status;
    trii_ddp_coll_is_end(t);
    t->n = start->n;
    memcpy(t->item, start->item, (size_t)t->n * sizeof(*t->item));
    call.n_after = !t->last;
    status = trii_record_host(step, &t->op, &call, out);
    return status == TRI_OK ? take_results(ddp, step, t, out, grad_of) : status;
}

static tri_status record_buckets(trii_ddp *ddp, trii_step *step, trii_vid *grad_of)
{
    trii_ddp_bucket *end = ddp->buckets + ddp->averager.n_buckets;
    tri_status status = TRI_OK;

    for (trii_ddp_bucket *b = ddp->buckets; b < end && status == TRI_OK; b++)
        status = record_bucket(ddp, step, b, grad_of);
    if (ddp->averager.each_ends)
        return status;
    for (trii_ddp_bucket *b = ddp->buckets; b < end && status == TRI_OK; b++)
        status = record_end(ddp, step, b, end[-1].sent[0], grad_of);
    return status;
}

/* Gradients that earlier backward passes left and this loss does not reach go with the rest. */
static tri_status add_left_over(trii_ddp *ddp, trii_step *step, trii_vid *grad_of)
{
    tri_status status = TRI_OK;

    for (int i = 0; i < ddp->n_params && status == TRI_OK; i++) {
        tri_tensor *param = ddp->params[i].tensor;

        if (grad_of[i] != TRII_NO_VALUE || !trii_has_grad(param))
            continue;
        status = trii_resolve(step, param->grad, &grad_of[i]);
        if (status == TRI_OK)
            status = trii_ddp_held(&ddp->hook, step, param, &grad_of[i]);
    }
    return status;
}

static tri_status refuse_unweighted(const char *why)
{
    return TRII_FAIL(
        TRI_ERR_UNSUPPORTED,
        "ddp: gradients between tri_ddp_no_sync_begin and tri_ddp_no_sync_end went through "
        "statistics that ranks share (SyncBatchNorm) and are weighted already; %s "
        "cannot be added to them: average these first, by a tri_backward of their "
        "kind after tri_ddp_no_sync_end",
        why);
}

/* Sums of gradients that were not seeded by the weight get it now. */
static tri_status weigh_all(trii_ddp *ddp, trii_step *step, const trii_samples *under,
                            trii_vid *grad_of)
{
    tri_status status = TRI_OK;

    forget_weight(ddp);
    if (ddp->weighted)
        status = refuse_unweighted("a loss that reaches other models or tensors as well");
    if (status == TRI_OK)
        status = record_weight(ddp, step, TRII_HEADER_AVERAGE, under);
    if (status == TRI_OK)
        ddp->header->even = under->crosses_ranks;
    for (int i = 0; i < ddp->n_params && status == TRI_OK; i++)
        if (grad_of[i] != TRII_NO_VALUE)
            status = apply_weight(ddp, step, ddp->params[i].tensor, &grad_of[i]);
    return status;
}

/* A backward without synchronisation whose gradients go through sums over ranks. */
static tri_status add_up(trii_ddp *ddp, trii_step *step, trii_vid *grad_of,
                         const trii_samples *under)
{
    tri_status status;

    if (is_seeded(ddp, step)) {
        status = add_left_over(ddp, step, grad_of);
        ddp->local_count += under->count;
        ddp->local_fixed = 0;
        ddp->weighted = true;
        return status;
    }
    if (ddp->weighted)
        return refuse_unweighted("a loss that reaches other models or tensors as well");
    forget_weight(ddp);
    status = record_weight(ddp, step, TRII_HEADER_CHECK, under);
    if (status != TRI_OK)
        return status;
    ddp->header->even = true;
    return trii_ddp_count(ddp, step, under);
}

static tri_status synchronise(trii_ddp *ddp, trii_step *step, trii_vid *grad_of,
                              const trii_samples *under)
{
    tri_status status = add_left_over(ddp, step, grad_of);

    if (status == TRI_OK && !is_seeded(ddp, step))
        status = weigh_all(ddp, step, under, grad_of);
    if (status != TRI_OK)
        return status;
    ddp->n_unknown = 0;
    for (int i = 0; i < ddp->n_params; i++) {
        trii_ddp_param *param = &ddp->params[i];

        param->used_here = grad_of[i] != TRII_NO_VALUE;
        param->unknown = !param->used_here;
        ddp->n_unknown += param->unknown;
    }
    ddp->header->unused = ddp->n_unknown > 0;
    ddp->header->weighted = ddp->weighted;
    ddp->header->vote_stop = ddp->vote_stop;
    ddp->vote_stop = false;
    if (status == TRI_OK)
        status = record_buckets(ddp, step, grad_of);
    ddp->local_count = ddp->local_fixed = 0;
    ddp->weighted = false;
    return status;
}

/* What a backward without synchronisation, whose gradients are this rank's alone, leaves. */
static tri_status count(trii_ddp *ddp, trii_step *step, const trii_samples *under)
{
    return ddp->weighted ? refuse_unweighted("a loss that does not")
                         : trii_ddp_count(ddp, step, under);
}

tri_status trii_ddp_record_backward(trii_grad_hook *hook, trii_step *step,
                                    tri_tensor *const *params, trii_vid *grads, int n,
                                    const trii_samples *under)
{
    trii_ddp *ddp = (trii_ddp *)hook;
    trii_vid *grad_of = ddp->grad_of;
    tri_status status;

    status = trii_ddp_remember(ddp, step);
    if (status != TRI_OK)
        return status;
    if (!is_seeded(ddp, step)) /* else that was done when it began */
        (void)trii_ddp_forget_if_cleared(ddp);
    if (ddp->no_sync > 0 && !under->crosses_ranks)
        return count(ddp, step, under);
    if (ddp->buckets == NULL)
        return TRII_FAIL(TRI_ERR_STATE,
                         "ddp: out of memory when the gradients were put into their final buckets");
    for (int i = 0; i < ddp->n_params; i++)
        grad_of[i] = TRII_NO_VALUE;
    for (int k = 0; k < n; k++) {
        int i = index_of(ddp, params[k], k);

        if (i < 0)
            return TRII_FAIL(TRI_ERR_STATE,
                             "ddp: %s requires a gradient only since this forward began: call "
                             "tri_requires_grad before tri_forward, on all ranks",
                             trii_ddp_param_name(ddp, params[k]));
        grad_of[i] = grads[k];
    }
    if (ddp->no_sync > 0) {
        status = add_up(ddp, step, grad_of, under);
    } else {
        if (!ddp->has_observed)
            observe(ddp, grad_of);
        status = synchronise(ddp, step, grad_of, under);
    }
    ddp->seeded = false; /* of this backward only: the next may have no seed from here */
    for (int k = 0; k < n && status == TRI_OK; k++) {
        int i = index_of(ddp, params[k], k);

        grads[k] = grad_of[i];
        grad_of[i] = TRII_NO_VALUE;
    }
    /* What is left was not reached by this loss: nobody else binds it. */
    for (int i = 0; i < ddp->n_params && status == TRI_OK; i++)
        if (grad_of[i] != TRII_NO_VALUE)
            status = trii_grad_bind(step, grad_of[i], ddp->params[i].tensor);
    return status;
}

/* --- before the next backward, or the update ------------------------------ */

/* The average that the plan did not copy, since nothing here made a gradient. */
static tri_status fetch_average(const trii_ddp_param *param)
{
    const tri_tensor *grad = param->tensor->grad;

    return param->bucket_view == NULL
               ? TRI_OK
               : trii_memory_write(grad->device, grad->layout, trii_tensor_data(param->bucket_view),
                                   trii_tensor_data(grad), trii_tensor_bytes(grad));
}

/* What the last backward left unused here: used elsewhere, the average lies in the bucket; unused
 * everywhere, the optimizer passes over it, as it does on all ranks. */
static tri_status publish_unused(trii_ddp *ddp)
{
    tri_status status = TRI_OK;

    for (int i = 0; i < ddp->n_params && status == TRI_OK; i++) {
        if (!ddp->params[i].unknown)
            continue;
        if (ddp->map[i] != 0)
            status = fetch_average(&ddp->params[i]);
        trii_grad_publish(ddp->params[i].tensor, ddp->map[i] != 0);
    }
    trii_ddp_forget_unknown(ddp);
    return status;
}

void trii_ddp_cleared(trii_grad_hook *hook, const tri_tensor *tensor)
{
    trii_ddp *ddp = (trii_ddp *)hook;

    for (int i = 0; i < ddp->n_params && ddp->n_unknown > 0; i++) {
        trii_ddp_param *param = &ddp->params[i];

        if (param->tensor != tensor || !param->unknown)
            continue;
        param->unknown = false;
        ddp->n_unknown--;
        return;
    }
}

tri_status trii_ddp_settle(trii_ddp *ddp, trii_step *step)
{
    tri_status status = trii_step_run_and_keep(step);

    return status == TRI_OK && ddp->n_unknown > 0 ? publish_unused(ddp) : status;
}

/* Buckets of an earlier backward are still to be filled in this step, and gradients that are
 * recorded now would not depend on all of them: they were thrown away or used since. Then a kernel
 * may write to a bucket before it is sent. */
static bool meets_buckets(const trii_ddp *ddp, const trii_step *step)
{
    const trii_ddp_bucket *last =
        ddp->buckets != NULL ? &ddp->buckets[ddp->averager.n_buckets - 1] : NULL;

    if (last == NULL || last->recorded == NULL || last->recorded->generation != step->generation ||
        step->failed != TRI_OK || step->values[last->sent[0]].state != TRII_VALUE_PENDING)
        return false;
    for (int i = 0; i < ddp->n_params; i++)
        if (!trii_step_has_grad(step, ddp->params[i].tensor))
            return true;
    return false;
}

tri_status trii_ddp_begin(trii_grad_hook *hook, trii_step *step)
{
    trii_ddp *ddp = (trii_ddp *)hook;

    return ddp->n_unknown > 0 || meets_buckets(ddp, step) ? trii_ddp_settle(ddp, step) : TRI_OK;
}

static TRII_NOINLINE void warn_of_drift(void)
{
    static atomic_bool warned;
    trii_site site = trii_site_last();

    if (atomic_exchange(&warned, true))
        return;
    TRII_LOG(
        TRII_LOG_WARN, "ddp",
        "tri_optimizer_step at %s:%d, after tri_ddp_no_sync_begin and before tri_ddp_no_sync_end: "
        "gradients are this rank's own, and the replicas drift apart",
        site.file != NULL ? site.file : "?", site.line);
}

tri_status trii_ddp_finish_unused(trii_grad_hook *hook, trii_step *step)
{
    trii_ddp *ddp = (trii_ddp *)hook;
    tri_status status;

    if (TRII_UNLIKELY(ddp->no_sync > 0 && ddp->size > 1))
        warn_of_drift();
    if (ddp->n_unknown == 0)
        return TRI_OK;
    status = trii_step_run(step);
    return status == TRI_OK ? publish_unused(ddp) : status;
}
