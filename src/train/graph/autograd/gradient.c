/*
 * gradient.c - changes which tensors have a gradient, for what is recorded next: it becomes true
 * when the step runs (step/grads.c). Called by backward.c and the optimisers while they record.
 */
#include "train/graph/step/grads.h"
#include "train/graph/step/recorder.h"

static TRII_NOINLINE tri_status grow(trii_recorder *r)
{
    void *array = r->changes.list;
    tri_status status =
        trii_grow(&array, &r->changes.cap, r->changes.n + 1, sizeof(tri_tensor *), "gradients");

    r->changes.list = array;
    return status;
}

/* *known_io: the tensor's entry in the step, if it has one already. */
static inline tri_status claim(trii_step *step, tri_tensor *tensor, trii_known **known_io)
{
    trii_recorder *r = trii_recorder_of(step);
    trii_known *known = *known_io;
    uint_fast64_t owner = 0;
    tri_status status = TRI_OK;
    trii_vid id;

    /* The step holds what it has read until it ends. */
    if (TRII_UNLIKELY(known == NULL ||
                      (known->value == TRII_NO_VALUE && known->overwritten == TRII_NO_VALUE))) {
        status = trii_resolve(step, tensor, &id);
        if (status != TRI_OK)
            return status;
        *known_io = known = trii_known_find(step, tensor);
    }
    if (known->grad != TRII_GRAD_AS_PUBLISHED)
        return TRI_OK;
    if (TRII_UNLIKELY(r->changes.n == r->changes.cap))
        status = grow(r);
    if (status != TRI_OK)
        return status;
    /* Acquire: this step sees what the last one wrote. */
    if (TRII_UNLIKELY(
            !atomic_compare_exchange_strong_explicit(&tensor->grad_writer, &owner, step->generation,
                                                     memory_order_acquire, memory_order_relaxed)))
        return trii_refuse_gradient(tensor, owner);
    r->changes.list[r->changes.n++] = tensor;
    known->grad = trii_grad_published(tensor) ? TRII_GRAD_THERE
                  : trii_grad_shows(tensor)   ? TRII_GRAD_CONSUMED
                                              : TRII_GRAD_NONE;
    return TRI_OK;
}

tri_status trii_grad_claim(trii_step *step, tri_tensor *tensor)
{
    trii_known *known = trii_known_find(step, tensor);

    return claim(step, tensor, &known);
}

tri_status trii_grad_prepare(tri_tensor *tensor)
{
    tri_tensor *grad = NULL;
    tri_status status;

    if (TRII_LIKELY(tensor->grad != NULL)) {
        if (TRII_UNLIKELY(tensor->grad->status != TRI_OK) && !trii_has_grad(tensor)) {
            trii_tensor_mend(tensor->grad); /* one that starts over is as good as any */
            trii_grad_show(tensor, false);
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
    trii_known *known = trii_known_find(step, tensor);
    tri_status status = claim(step, tensor, &known);
    trii_pending_grad before;

    if (status != TRI_OK)
        return status;
    before = known->grad;
    known->grad = TRII_GRAD_THERE; /* in eager mode the run that binding starts publishes it */
    status = trii_bind(step, value, tensor->grad);
    if (TRII_LIKELY(status == TRI_OK))
        return TRI_OK;
    known = trii_known_find(step, tensor);
    if (known->grad != TRII_GRAD_AS_PUBLISHED)
        known->grad = before;
    return status;
}

tri_status trii_grad_consume(trii_step *step, tri_tensor *tensor, trii_vid *grad_out)
{
    trii_known *known = trii_known_find(step, tensor);
    trii_vid grad = TRII_NO_VALUE;
    tri_status status = TRI_OK;

    if (trii_known_has_grad(known, tensor)) {
        status = claim(step, tensor, &known);
        if (status == TRI_OK)
            status = trii_resolve(step, tensor->grad, &grad);
        if (status == TRI_OK)
            trii_known_find(step, tensor)->grad = TRII_GRAD_CONSUMED;
    }
    if (status == TRI_OK)
        *grad_out = grad;
    return status;
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
    trii_grad_set(tensor, false, false);
    trii_grad_promise(tensor, false);
}

/* NULL would say that the loss does not depend on it. */
static tri_tensor *none_of(const tri_tensor *tensor)
{
    if (TRII_LIKELY(!tensor->in_pieces))
        return NULL;
    return trii_handle_failed(
        trii_step_current(),
        TRII_FAIL(TRI_ERR_UNSUPPORTED,
                  "tri_grad: %s%sthe gradients of a parameter that ranks divide are averaged in "
                  "pieces, one on each rank: tri_ddp keeps them whole",
                  tensor->name != NULL ? tensor->name : "", tensor->name != NULL ? ": " : ""));
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
        return trii_grad_shows(tensor) && (!tensor->in_pieces || trii_grad_published(tensor))
                   ? tensor->grad
                   : none_of(tensor);
    if (known->grad == TRII_GRAD_NONE || (known->grad == TRII_GRAD_CONSUMED && tensor->in_pieces))
        return none_of(tensor);
    id = trii_known_value(&r->step, tensor->grad);
    return id != TRII_NO_VALUE && r->step.values[id].state == TRII_VALUE_PENDING
               ? trii_handle(&r->step, id)
               : tensor->grad;
}
