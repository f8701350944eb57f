/*
 * gradient.c - which tensors have a gradient. Recording a backward pass or an update changes this
 * at once for what is recorded next, but it becomes true only when the step runs: until then the
 * changes are kept in a list, and a step that fails undoes them. Gradients that the failed run had
 * begun to overwrite are reported as lost.
 *
 * Called by backward.c and the optimisers while they record, and by segment.c when a run has ended.
 */
#include "base/alloc.h"
#include "train/graph/recorder.h"

/* Relaxed: a context that relies on it has claimed the gradient, or is alone. */
static bool published(const tri_tensor *tensor)
{
    return atomic_load_explicit(&tensor->has_grad, memory_order_relaxed);
}

static bool shows(const tri_tensor *tensor)
{
    return atomic_load_explicit(&tensor->shows_grad, memory_order_acquire);
}

/* Release: pairs with tri_grad in another thread. */
static void show(tri_tensor *tensor, bool shows)
{
    atomic_store_explicit(&tensor->shows_grad, shows, memory_order_release);
}

static void publish(tri_tensor *tensor, bool has, bool shows)
{
    atomic_store_explicit(&tensor->has_grad, has, memory_order_relaxed);
    show(tensor, shows);
}

void trii_grad_publish(tri_tensor *tensor, bool has)
{
    publish(tensor, has, has);
}

/* Marks a gradient whose run failed: reading it gives the line of the failure. */
static void spoil(tri_tensor *tensor, const char *cause)
{
    if (published(tensor))
        (void)TRII_FAIL(TRI_ERR_STATE,
                        "the gradient that had added up is lost, since a step that added to it "
                        "failed (%s): call tri_optimizer_zero_grad and begin again",
                        cause);
    else
        (void)TRII_FAIL(TRI_ERR_STATE, "no gradient: the step that was to compute it failed (%s)",
                        cause);
    trii_tensor_lose(tensor->grad);
}

bool trii_step_has_grad(const trii_step *step, const tri_tensor *tensor)
{
    const trii_known *known = trii_known_find(step, tensor);

    if (known == NULL || known->grad == TRII_GRAD_AS_PUBLISHED)
        return published(tensor);
    return known->grad == TRII_GRAD_THERE;
}

bool trii_has_grad(const tri_tensor *tensor)
{
    const trii_recorder *r = trii_recorder_mine();

    return r != NULL ? trii_step_has_grad(&r->step, tensor) : published(tensor);
}

static TRII_NOINLINE tri_status grow(trii_recorder *r)
{
    void *array = r->changes;
    tri_status status =
        trii_grow(&array, &r->cap_changes, r->n_changes + 1, sizeof(tri_tensor *), "gradients");

    r->changes = array;
    return status;
}

tri_status trii_grad_claim(trii_step *step, tri_tensor *tensor)
{
    trii_recorder *r = trii_recorder_of(step);
    trii_known *known = trii_known_find(step, tensor);
    uint_fast64_t owner = 0;
    tri_status status = TRI_OK;
    trii_vid id;

    /* The step holds what it has read until it ends. */
    if (TRII_UNLIKELY(known == NULL || known->value == TRII_NO_VALUE)) {
        status = trii_resolve(step, tensor, &id);
        if (status != TRI_OK)
            return status;
        known = trii_known_find(step, tensor);
    }
    if (known->grad != TRII_GRAD_AS_PUBLISHED)
        return TRI_OK;
    if (TRII_UNLIKELY(r->n_changes == r->cap_changes))
        status = grow(r);
    if (status != TRI_OK)
        return status;
    /* Acquire: this step sees what the last one wrote. */
    if (TRII_UNLIKELY(
            !atomic_compare_exchange_strong_explicit(&tensor->grad_writer, &owner, step->generation,
                                                     memory_order_acquire, memory_order_relaxed)))
        return trii_refuse_gradient(tensor, owner);
    r->changes[r->n_changes++] = tensor;
    known->grad = published(tensor) ? TRII_GRAD_THERE
                  : shows(tensor)   ? TRII_GRAD_CONSUMED
                                    : TRII_GRAD_NONE;
    return TRI_OK;
}

tri_status trii_grad_prepare(tri_tensor *tensor)
{
    tri_tensor *grad = NULL;
    tri_status status;

    if (TRII_LIKELY(tensor->grad != NULL)) {
        if (TRII_UNLIKELY(tensor->grad->status != TRI_OK) && !trii_has_grad(tensor)) {
            trii_tensor_mend(tensor->grad); /* one that starts over is as good as any */
            show(tensor, false);
        }
        return TRI_OK;
    }
    status = trii_tensor_create(tensor->dtype, tensor->shape, tensor->ndim, tensor->device, &grad);
    if (status != TRI_OK)
        return status;
    grad->is_grad = true;
    atomic_store_explicit(&grad->lent, true, memory_order_relaxed);
    tensor->grad = grad;
    return TRI_OK;
}

tri_status trii_grad_bind(trii_step *step, trii_vid value, tri_tensor *tensor)
{
    tri_status status = trii_grad_claim(step, tensor);
    trii_pending_grad before;
    trii_known *known;

    if (status != TRI_OK)
        return status;
    known = trii_known_find(step, tensor);
    before = known->grad;
    known->grad = TRII_GRAD_THERE; /* in eager mode the run that binding starts publishes it */
    status = trii_bind(step, value, tensor->grad);
    known = trii_known_find(step, tensor);
    if (status != TRI_OK && known->grad != TRII_GRAD_AS_PUBLISHED)
        known->grad = before;
    return status;
}

tri_status trii_grad_consume(trii_step *step, tri_tensor *tensor, trii_vid *grad_out)
{
    trii_vid grad = TRII_NO_VALUE;
    tri_status status = TRI_OK;

    if (trii_step_has_grad(step, tensor)) {
        status = trii_grad_claim(step, tensor);
        if (status == TRI_OK)
            status = trii_resolve(step, tensor->grad, &grad);
        if (status == TRI_OK)
            trii_known_find(step, tensor)->grad = TRII_GRAD_CONSUMED;
    }
    if (status == TRI_OK)
        *grad_out = grad;
    return status;
}

tri_status trii_grad_check(const trii_step *step, const tri_tensor *tensor)
{
    uint64_t owner = atomic_load_explicit(&tensor->grad_writer, memory_order_acquire);

    return TRII_LIKELY(owner == 0 || owner == step->generation)
               ? TRI_OK
               : trii_refuse_gradient(tensor, owner);
}

void trii_grad_clear(tri_tensor *tensor)
{
    trii_recorder *r = trii_recorder_mine();
    uint64_t owner = atomic_load_explicit(&tensor->grad_writer, memory_order_acquire);
    bool ours = owner != 0 && r != NULL && owner == r->step.generation;

    if (owner != 0 && !ours) {
        trii_step *step = trii_step_current();

        if (step != NULL)
            trii_step_fail(step, trii_refuse_gradient(tensor, owner));
        return;
    }
    if (ours)
        trii_known_find(&r->step, tensor)->grad = TRII_GRAD_NONE;
    publish(tensor, false, false);
    if (tensor->grad_hook != NULL && tensor->grad_hook->cleared != NULL)
        tensor->grad_hook->cleared(tensor->grad_hook, tensor);
}

/* The last reference; no other context uses it yet. */
static tri_tensor *take_change(trii_recorder *r, trii_pending_grad *grad_out)
{
    tri_tensor *tensor = r->changes[--r->n_changes];
    trii_known *known = trii_known_find(&r->step, tensor);

    *grad_out = known->grad;
    known->grad = TRII_GRAD_AS_PUBLISHED;
    return tensor;
}

static void give_back(tri_tensor *tensor)
{
    atomic_store_explicit(&tensor->grad_writer, 0, memory_order_release);
}

void trii_grads_publish(trii_recorder *r)
{
    while (r->n_changes > 0) {
        trii_pending_grad grad;
        tri_tensor *tensor = take_change(r, &grad);

        publish(tensor, grad == TRII_GRAD_THERE, grad != TRII_GRAD_NONE);
        give_back(tensor);
    }
}

void trii_grads_revert(trii_recorder *r, const trii_segment *segment)
{
    const char *cause = r->failed_line != NULL ? r->failed_line : "out of memory";

    while (r->n_changes > 0) {
        trii_pending_grad pending;
        tri_tensor *tensor = take_change(r, &pending), *grad = tensor->grad;
        bool torn = false;

        for (int32_t o = 0; segment != NULL && grad != NULL && o < segment->n_outputs; o++) {
            const trii_value *value = &r->step.values[segment->outputs[o]];

            torn = torn || (value->bound == grad && value->torn);
        }
        if (torn)
            spoil(tensor, cause);
        if (torn && pending != TRII_GRAD_NONE)
            show(tensor, true);
        give_back(tensor);
    }
}

tri_tensor *tri_grad(tri_tensor *tensor)
{
    trii_recorder *r = trii_recorder_mine();
    const trii_known *known;
    trii_vid id;

    if (tensor == NULL || trii_is_handle(tensor))
        return NULL;
    known = r != NULL ? trii_known_find(&r->step, tensor) : NULL;
    if (known == NULL || known->grad == TRII_GRAD_AS_PUBLISHED)
        return shows(tensor) ? tensor->grad : NULL;
    if (known->grad == TRII_GRAD_NONE)
        return NULL;
    id = trii_known_value(&r->step, tensor->grad);
    return id != TRII_NO_VALUE && r->step.values[id].state == TRII_VALUE_PENDING
               ? trii_handle(&r->step, id)
               : tensor->grad;
}
