/*
 * params.c - which parameters are averaged: those that require a gradient. All others are watched:
 * one that is unfrozen later must not be trained by each rank for itself, so before the next
 * synchronised forward it gets its view in the buckets, on all ranks.
 */
#include "base/alloc.h"
#include "base/err.h"
#include "train/parallel/ddp/ddp.h"

/* A tensor that stands under several names travels once. */
static bool is_watched(const trii_ddp *ddp, const tri_tensor *tensor)
{
    for (int i = 0; i < ddp->n_watched; i++)
        if (ddp->watched[i].tensor == tensor)
            return true;
    return false;
}

tri_status trii_ddp_params_watch(trii_ddp *ddp)
{
    int64_t total = tri_module_state_count(ddp->net);

    ddp->watched = trii_alloc((size_t)total, sizeof(*ddp->watched), "ddp parameters");
    if (ddp->watched == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int64_t i = 0; i < total; i++) {
        tri_state_entry entry = tri_module_state(ddp->net, i);

        if (!entry.parameter || is_watched(ddp, entry.tensor))
            continue;
        ddp->watched[ddp->n_watched++] =
            (trii_ddp_watched){.name = entry.name, .tensor = tri_tensor_ref(entry.tensor)};
    }
    return TRI_OK;
}

/* Whether another living model averages its gradients; one that only watches it does not. */
static bool is_trained_elsewhere(const trii_ddp *ddp, const tri_tensor *tensor)
{
    const trii_ddp *other = (const trii_ddp *)tensor->grad_hook;

    if (other == NULL || other == ddp)
        return false;
    for (int i = 0; i < other->n_watched; i++)
        if (other->watched[i].tensor == tensor)
            return other->watched[i].listed;
    return false;
}

static tri_status count_trained(const trii_ddp *ddp, int *n_out)
{
    *n_out = 0;
    for (int i = 0; i < ddp->n_watched; i++) {
        const trii_ddp_watched *w = &ddp->watched[i];

        if (!w->listed && !w->tensor->requires_grad)
            continue;
        if (w->tensor->dtype != TRI_DTYPE_F32 && w->tensor->dtype != TRI_DTYPE_F64)
            return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                             "%s is %s: what is trained must be f32 or f64 (tri_autocast_begin "
                             "computes in 16 bits)",
                             w->name, tri_dtype_name(w->tensor->dtype));
        if (is_trained_elsewhere(ddp, w->tensor))
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "%s is trained by another model of tri_ddp, which averages its "
                             "gradients: two models may share what is frozen",
                             w->name);
        ++*n_out;
    }
    return *n_out > 0 ? TRI_OK : TRII_FAIL(TRI_ERR_INVALID_ARG, "no parameter requires a gradient");
}

static void free_lists(trii_ddp *ddp)
{
    for (int i = 0; i < ddp->n_params; i++)
        tri_tensor_unref(ddp->params[i].bucket_view);
    trii_free(ddp->params);
    trii_free(ddp->observed);
    trii_free(ddp->sequence);
    trii_free(ddp->grad_of);
    trii_free(ddp->map);
    ddp->params = NULL;
    ddp->observed = ddp->sequence = NULL;
    ddp->grad_of = NULL;
    ddp->map = NULL;
    ddp->n_params = 0;
}

/* What a hook keeps of those that were listed before, which stay in one order. */
static tri_status carry_kept(trii_ddp *ddp, int count)
{
    trii_hook_memory *before = ddp->averager.kept, *kept;
    int n = 0, k = 0;

    if (before == NULL)
        return TRI_OK;
    kept = trii_alloc((size_t)count, sizeof(*kept), "memory of a hook");
    if (kept == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int i = 0; i < ddp->n_watched; i++) {
        if (ddp->watched[i].listed)
            kept[n] = before[k++];
        n += ddp->watched[i].listed || ddp->watched[i].tensor->requires_grad;
    }
    trii_free(before);
    ddp->averager.kept = kept;
    ddp->averager.n_items = count;
    return TRI_OK;
}

static tri_status make_lists(trii_ddp *lists, size_t n)
{
    lists->params = trii_alloc(n, sizeof(*lists->params), "ddp parameters");
    lists->observed = trii_alloc(n, sizeof(*lists->observed), "ddp order");
    lists->sequence = trii_alloc(n, sizeof(*lists->sequence), "ddp order");
    lists->grad_of = trii_alloc(n, sizeof(*lists->grad_of), "ddp gradients");
    lists->map = trii_alloc(n, 1, "ddp map");
    return lists->params != NULL && lists->observed != NULL && lists->sequence != NULL &&
                   lists->grad_of != NULL && lists->map != NULL
               ? TRI_OK
               : TRI_ERR_NO_MEMORY;
}

/* On failure those of before are still there: a forward that was recorded may go back yet. */
tri_status trii_ddp_params_list(trii_ddp *ddp)
{
    trii_ddp made = {.n_params = 0}; /* of which only the lists count */
    int count = 0;
    tri_status status = count_trained(ddp, &count);

    if (status == TRI_OK)
        status = make_lists(&made, (size_t)count);
    if (status == TRI_OK)
        status = carry_kept(ddp, count);
    if (status != TRI_OK) {
        free_lists(&made);
        return status;
    }
    free_lists(ddp);
    ddp->params = made.params;
    ddp->observed = made.observed;
    ddp->sequence = made.sequence;
    ddp->grad_of = made.grad_of;
    ddp->map = made.map;
    for (int i = 0; i < ddp->n_watched; i++) {
        trii_ddp_watched *w = &ddp->watched[i];

        if (!w->listed && !w->tensor->requires_grad)
            continue;
        w->listed = true;
        ddp->params[ddp->n_params++] = (trii_ddp_param){.name = w->name, .tensor = w->tensor};
    }
    return TRI_OK;
}

/* What is listed is ours; what is watched may be watched by others as well, and the first of them
 * speaks for it until somebody trains it. */
void trii_ddp_params_hook(trii_ddp *ddp)
{
    for (int i = 0; i < ddp->n_watched; i++) {
        const trii_ddp_watched *w = &ddp->watched[i];

        if (w->listed || w->tensor->grad_hook == NULL)
            w->tensor->grad_hook = &ddp->hook;
    }
}

bool trii_ddp_params_grew(const trii_ddp *ddp)
{
    for (int i = 0; i < ddp->n_watched; i++)
        if (TRII_UNLIKELY(!ddp->watched[i].listed && ddp->watched[i].tensor->requires_grad))
            return true;
    return false;
}

bool trii_ddp_params_have_grads(const trii_ddp *ddp)
{
    for (int i = 0; i < ddp->n_watched; i++)
        if (trii_has_grad(ddp->watched[i].tensor))
            return true;
    return false;
}

const char *trii_ddp_param_name(const trii_ddp *ddp, const tri_tensor *tensor)
{
    for (int i = 0; i < ddp->n_watched; i++)
        if (ddp->watched[i].tensor == tensor)
            return ddp->watched[i].name;
    return "?";
}

void trii_ddp_params_free(trii_ddp *ddp)
{
    for (int i = 0; i < ddp->n_watched; i++) {
        tri_tensor *tensor = ddp->watched[i].tensor;

        if (tensor->grad_hook == &ddp->hook)
            tensor->grad_hook = NULL;
        tri_tensor_unref(tensor);
    }
    trii_free(ddp->watched);
    free_lists(ddp);
}
