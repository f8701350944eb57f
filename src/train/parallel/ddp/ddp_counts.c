/*
 * ddp_counts.c - samples that were counted but not averaged yet, and how a failed step takes them
 * back.
 */
#include "train/parallel/ddp/ddp.h"

tri_status trii_ddp_remember(trii_ddp *ddp, const trii_step *step)
{
    tri_status status = TRI_OK;

    if (ddp->before.generation == step->generation && ddp->before.first_node == step->first_pending)
        return TRI_OK;
    for (int i = 0; i < ddp->n_params && status == TRI_OK; i++)
        status = trii_grad_check(step, ddp->params[i].tensor);
    if (status != TRI_OK)
        return status;
    ddp->before.generation = step->generation;
    ddp->before.first_node = step->first_pending;
    ddp->before.local_count = ddp->local_count;
    ddp->before.local_fixed = ddp->local_fixed;
    ddp->before.local_valued = ddp->local_valued;
    ddp->before.epoch = ddp->epoch;
    ddp->before.valued_epoch = ddp->valued_epoch;
    ddp->before.sample_count = ddp->sample_count;
    ddp->before.vote_stop = ddp->vote_stop;
    ddp->before.weighted = ddp->weighted;
    return TRI_OK;
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
    trii_ddp_forget_unknown(ddp); /* a backward begins without any */
    ddp->weighted = ddp->before.weighted;
}

void trii_ddp_forget_unknown(trii_ddp *ddp)
{
    for (int i = 0; i < ddp->n_params && ddp->n_unknown > 0; i++)
        ddp->params[i].unknown = false;
    ddp->n_unknown = 0;
}

bool trii_ddp_forget_if_cleared(trii_ddp *ddp)
{
    ddp->held = trii_ddp_params_have_grads(ddp);
    if (ddp->held)
        return false;
    ddp->local_count = ddp->local_fixed = 0;
    ddp->epoch++;
    ddp->weighted = false;
    trii_ddp_forget_unknown(ddp);
    return true;
}

tri_status trii_ddp_count(trii_ddp *ddp, trii_step *step, const trii_samples *under)
{
    trii_vid in = under->divisor, out;
    trii_ddp_coll *t;
    tri_status status;

    ddp->local_count += under->count;
    if (in == TRII_NO_VALUE) {
        ddp->local_fixed += under->count;
        return TRI_OK;
    }
    status = trii_ddp_coll_take(ddp, &ddp->counts, step, &t);
    if (status != TRI_OK)
        return status;
    trii_ddp_coll_is_count(t);
    t->epoch = ddp->epoch;
    return trii_record_host_like(step, &t->op, &in, 1, &out);
}

tri_status trii_ddp_count_alone(trii_grad_hook *hook, trii_step *step, tri_tensor *const *params,
                                trii_vid *grads, int n, const trii_samples *under)
{
    trii_ddp *ddp = (trii_ddp *)hook;
    tri_status status = trii_ddp_remember(ddp, step);

    (void)params;
    (void)grads;
    (void)n;
    if (status != TRI_OK)
        return status;
    (void)trii_ddp_forget_if_cleared(ddp);
    ddp->local_count += under->count;
    if (ddp->no_sync > 0)
        return TRI_OK;
    ddp->sample_count = ddp->local_count;
    ddp->local_count = 0;
    return TRI_OK;
}
