/*
 * attach.c - what a synchronised tri_backward records beside the gradients: the header, whose
 * result weighs them, and one sum per bucket.
 */
#include <stdatomic.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "graph/ops/table.h"
#include "parallel/ddp/ddp.h"
#include "tensor/device_memory.h"

/* --- the header ----------------------------------------------------------------------------- */

/* Records the header; weights[i] is its result as types[i]. */
static tri_status record_header(trii_ddp *ddp, trii_step *step, const trii_samples *under,
                                const tri_dtype *types, int n, trii_vid *weights)
{
    trii_vid in[3], out[3];
    trii_travel *t;
    tri_status st = trii_travel_take(ddp, &ddp->headers, step, &t);

    for (int i = 0; i < n && st == TRI_OK; i++)
        st = trii_resolve(step, ddp->unit[types[i] == TRI_DTYPE_F64], &in[i]);
    if (st < 0)
        return st;
    trii_travel_is_header(t);
    t->count = ddp->local_count + under->count;
    t->valued = under->divisor != TRII_NO_VALUE;
    t->fixed = ddp->local_fixed + (t->valued ? 0 : under->count);
    t->epoch = ddp->epoch;
    t->unused = false;
    t->n = n;
    for (int i = 0; i < n; i++)
        t->out_bytes[i] = tri_dtype_size(types[i]);
    if (t->valued)
        in[n] = under->divisor;
    st = trii_record_host_like(step, &t->op, in, n + t->valued, out);
    if (st < 0)
        return st;
    memcpy(weights, out, (size_t)n * sizeof(*out));
    t->weight = out[0];
    ddp->header = t;
    return TRI_OK;
}

/* A backward without synchronisation: what its mean divides by counts later. */
static tri_status record_count(trii_ddp *ddp, trii_step *step, const trii_samples *under)
{
    trii_vid in = under->divisor, out;
    trii_travel *t;
    tri_status st;

    ddp->local_count += under->count;
    if (in == TRII_NO_VALUE) {
        ddp->local_fixed += under->count;
        return TRI_OK;
    }
    st = trii_travel_take(ddp, &ddp->counts, step, &t);
    if (st < 0)
        return st;
    trii_travel_is_count(t);
    t->epoch = ddp->epoch;
    return trii_record_host_like(step, &t->op, &in, 1, &out);
}

static void remember(trii_ddp *ddp, const trii_step *step)
{
    if (ddp->before.generation == step->generation && ddp->before.first_node == step->first_pending)
        return;
    ddp->before.generation = step->generation;
    ddp->before.first_node = step->first_pending;
    ddp->before.local_count = ddp->local_count;
    ddp->before.local_fixed = ddp->local_fixed;
    ddp->before.local_valued = ddp->local_valued;
    ddp->before.epoch = ddp->epoch;
    ddp->before.valued_epoch = ddp->valued_epoch;
    ddp->before.sample_count = ddp->sample_count;
    ddp->before.vote_stop = ddp->vote_stop;
    ddp->before.unsettled = ddp->unsettled;
}

void trii_ddp_take_back(trii_ddp *ddp, const trii_step *step)
{
    if (ddp->before.generation != step->generation || ddp->before.first_node != step->first_pending)
        return;
    ddp->before.generation = 0;
    ddp->local_count = ddp->before.local_count;
    ddp->local_fixed = ddp->before.local_fixed;
    ddp->local_valued = ddp->before.local_valued;
    ddp->epoch = ddp->before.epoch;
    ddp->valued_epoch = ddp->before.valued_epoch;
    ddp->sample_count = ddp->before.sample_count;
    ddp->vote_stop = ddp->vote_stop || ddp->before.vote_stop;
    ddp->unsettled = ddp->before.unsettled;
}

/* Gradients that were consumed or thrown away take along what was noted about them. */
static bool forget_if_cleared(trii_ddp *ddp)
{
    if (trii_ddp_params_have_grads(ddp))
        return false;
    ddp->local_count = ddp->local_fixed = 0;
    ddp->epoch++;
    ddp->unsettled = false;
    return true;
}

tri_status trii_ddp_seed(trii_grad_hook *hook, trii_step *step, tri_dtype dtype,
                         const trii_samples *under, trii_vid *seed_out)
{
    trii_ddp *ddp = (trii_ddp *)hook;
    tri_status st;

    ddp->header = NULL;
    ddp->seeded = false;
    remember(ddp, step);
    if (ddp->no_sync > 0 || !forget_if_cleared(ddp) ||
        (dtype != TRI_DTYPE_F32 && dtype != TRI_DTYPE_F64))
        return TRI_OK;
    st = record_header(ddp, step, under, &dtype, 1, seed_out);
    ddp->seeded = st == TRI_OK;
    return st;
}

/* --- who is who ----------------------------------------------------------------------------- */

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

/* --- buckets -------------------------------------------------------------------------------- */

/* The result of the bucket's collective, to where the parameter wants its gradient. */
static tri_status take_result(const trii_ddp_param *param, trii_step *step, trii_vid result,
                              trii_vid *grad_out)
{
    tri_status st = TRI_OK;

    if (param->place != NULL)
        st = trii_bind(step, result, param->place);
    return st == TRI_OK ? trii_record_to(step, result, param->tensor->device, grad_out) : st;
}

static tri_status record_bucket(trii_ddp *ddp, trii_step *step, trii_ddp_bucket *bucket,
                                trii_vid *grad_of)
{
    trii_vid in[TRII_DDP_ITEMS + 1], out[TRII_DDP_ITEMS + 1];
    trii_host_call call = {.in = in};
    trii_travel *t;
    tri_status st = trii_travel_take(ddp, &bucket->travels, step, &t);

    if (st < 0)
        return st;
    t->bucket = bucket;
    t->header = ddp->header;
    t->last = bucket->index == ddp->n_buckets - 1;
    t->pass = ddp->open_pass;
    t->n = 0;
    trii_travel_is_bucket(t);
    t->op.identity |= (uint64_t)(bucket->index + 1);
    for (int i = 0; i < bucket->n_params && st == TRI_OK; i++) {
        const trii_ddp_param *param = &ddp->params[bucket->params[i]];
        trii_vid grad = grad_of[bucket->params[i]];

        if (grad == TRII_NO_VALUE)
            continue;
        if (param->place != NULL)
            st = trii_record_to(step, grad, TRI_CPU(0), &grad);
        t->item[t->n] = bucket->params[i];
        in[t->n++] = grad;
    }
    if (t->n == 0) { /* it has to be sent all the same */
        t->item[t->n] = -1;
        st = trii_resolve(step, ddp->unit[0], &in[t->n++]);
    }
    if (st < 0)
        return st;
    call.n_in = t->n;
    call.after = &ddp->header->weight; /* what it says of unused parameters comes with the last */
    call.n_after = t->last;
    st = trii_record_host(step, &t->op, &call, out);
    for (int i = 0; i < t->n && st == TRI_OK; i++)
        if (t->item[i] >= 0)
            st = take_result(&ddp->params[t->item[i]], step, out[i], &grad_of[t->item[i]]);
    return st;
}

/* Sums of gradients that were not seeded by the weight get it now. */
static tri_status weigh(trii_ddp *ddp, trii_step *step, const trii_samples *under,
                        trii_vid *grad_of)
{
    const tri_dtype types[2] = {TRI_DTYPE_F32, TRI_DTYPE_F64};
    trii_vid weights[2], there[2] = {TRII_NO_VALUE, TRII_NO_VALUE};
    tri_device device = TRI_CPU(0); /* of `there` */
    tri_status st = record_header(ddp, step, under, types, 2, weights);

    for (int i = 0; i < ddp->n_params && st == TRI_OK; i++) {
        const tri_tensor *param = ddp->params[i].tensor;
        int wide = param->dtype == TRI_DTYPE_F64;
        trii_vid factors[2] = {grad_of[i], TRII_NO_VALUE};

        if (grad_of[i] == TRII_NO_VALUE)
            continue;
        if (param->device != device)
            there[0] = there[1] = TRII_NO_VALUE;
        device = param->device;
        if (there[wide] == TRII_NO_VALUE)
            st = trii_record_to(step, weights[wide], device, &there[wide]);
        factors[1] = there[wide];
        if (st == TRI_OK)
            st = trii_record_values(step, &trii_op_mul, factors, 2, NULL, &grad_of[i]);
    }
    return st;
}

/* Gradients that earlier backward passes left and this loss does not reach travel with the rest. */
static tri_status add_left_over(trii_ddp *ddp, trii_step *step, trii_vid *grad_of)
{
    tri_status st = TRI_OK;

    for (int i = 0; i < ddp->n_params && st == TRI_OK; i++)
        if (grad_of[i] == TRII_NO_VALUE && trii_has_grad(ddp->params[i].tensor))
            st = trii_resolve(step, ddp->params[i].tensor->grad, &grad_of[i]);
    return st;
}

static tri_status synchronise(trii_ddp *ddp, trii_step *step, trii_vid *grad_of,
                              const trii_samples *under)
{
    bool unused = false;
    tri_status st = TRI_OK;

    if (!ddp->seeded || ddp->header->generation != step->generation) {
        st = add_left_over(ddp, step, grad_of);
        if (st == TRI_OK)
            st = weigh(ddp, step, under, grad_of);
    }
    if (st < 0)
        return st;
    for (int i = 0; i < ddp->n_params; i++) {
        ddp->params[i].used_here = grad_of[i] != TRII_NO_VALUE;
        unused = unused || !ddp->params[i].used_here;
    }
    ddp->header->unused = unused;
    ddp->header->vote_stop = ddp->vote_stop;
    ddp->vote_stop = false;
    ddp->unsettled = unused;
    for (int b = 0; b < ddp->n_buckets && st == TRI_OK; b++)
        st = record_bucket(ddp, step, &ddp->buckets[b], grad_of);
    ddp->local_count = ddp->local_fixed = 0;
    return st;
}

tri_status trii_ddp_attach(trii_grad_hook *hook, trii_step *step, tri_tensor *const *params,
                           trii_vid *grads, int n, const trii_samples *under)
{
    trii_ddp *ddp = (trii_ddp *)hook;
    trii_vid *grad_of = ddp->grad_of;
    tri_status st;

    remember(ddp, step);
    (void)forget_if_cleared(ddp);
    if (ddp->no_sync > 0)
        return record_count(ddp, step, under);
    if (ddp->buckets == NULL)
        return TRII_FAIL(TRI_ERR_STATE,
                         "ddp: out of memory when the gradients were put into their final buckets");
    if (ddp->unsettled)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                         "ddp: a second backward before tri_optimizer_step, and the first left "
                         "parameters unused");
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
    if (!ddp->has_observed)
        observe(ddp, grad_of);
    st = synchronise(ddp, step, grad_of, under);
    ddp->seeded = false; /* of this backward only: the next may have no seed of ours */
    for (int k = 0; k < n && st == TRI_OK; k++) {
        int i = index_of(ddp, params[k], k);

        grads[k] = grad_of[i];
        grad_of[i] = TRII_NO_VALUE;
    }
    /* What is left was not reached by this loss: nobody else binds it. */
    for (int i = 0; i < ddp->n_params && st == TRI_OK; i++)
        if (grad_of[i] != TRII_NO_VALUE)
            st = trii_grad_bind(step, grad_of[i], ddp->params[i].tensor);
    return st;
}

tri_status trii_ddp_count_alone(trii_grad_hook *hook, trii_step *step, tri_tensor *const *params,
                                trii_vid *grads, int n, const trii_samples *under)
{
    trii_ddp *ddp = (trii_ddp *)hook;

    (void)params;
    (void)grads;
    (void)n;
    remember(ddp, step);
    (void)forget_if_cleared(ddp);
    ddp->local_count += under->count;
    if (ddp->no_sync > 0)
        return TRI_OK;
    ddp->sample_count = ddp->local_count;
    ddp->local_count = 0;
    return TRI_OK;
}

/* --- before the update ---------------------------------------------------------------------- */

/* The average that the plan did not copy, since nothing here made a gradient. */
static tri_status fetch_average(const trii_ddp_param *param)
{
    const tri_tensor *grad = param->tensor->grad;

    return param->place == NULL
               ? TRI_OK
               : trii_memory_write(grad->device, grad->layout, trii_tensor_data(param->place),
                                   trii_tensor_data(grad), trii_tensor_bytes(grad));
}

static TRII_NOINLINE void warn_of_drift(void)
{
    static atomic_bool warned;
    trii_site site = trii_site_last();

    if (atomic_exchange(&warned, true))
        return;
    TRII_LOG(TRII_LOG_WARN, "ddp",
             "tri_optimizer_step at %s:%d, after tri_no_sync_begin and before tri_no_sync_end: "
             "gradients are this rank's own, and the replicas drift apart",
             site.file != NULL ? site.file : "?", site.line);
}

tri_status trii_ddp_settle(trii_grad_hook *hook, trii_step *step)
{
    trii_ddp *ddp = (trii_ddp *)hook;
    tri_status st;

    if (TRII_UNLIKELY(ddp->no_sync > 0 && ddp->size > 1))
        warn_of_drift();
    if (!ddp->unsettled)
        return TRI_OK;
    st = trii_step_run(step);
    ddp->unsettled = false;
    if (st < 0)
        return st;
    /* Unused here: used elsewhere, the average lies in the bucket; unused everywhere, the
     * optimizer passes over it, as it does on all ranks. */
    for (int i = 0; i < ddp->n_params && st == TRI_OK; i++) {
        if (ddp->params[i].used_here)
            continue;
        if (ddp->map[i] != 0)
            st = fetch_average(&ddp->params[i]);
        trii_grad_publish(ddp->params[i].tensor, ddp->map[i] != 0);
    }
    return st;
}
