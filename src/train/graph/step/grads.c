/*
 * grads.c - which tensors have a gradient. What a step records about gradients becomes true only
 * when it runs: until then its changes are kept in a list, and a step that fails undoes them.
 * Gradients that the failed run had begun to overwrite are reported as lost. autograd/gradient.c
 * makes the changes; run/segment.c says when a run has ended.
 */
#include "train/graph/step/grads.h"
#include "train/graph/step/recorder.h"

void trii_grad_publish(tri_tensor *tensor, bool has)
{
    trii_grad_set(tensor, has, has);
}

/* Marks a gradient whose run failed: reading it gives the line of the failure. */
static void spoil(tri_tensor *tensor, const char *cause)
{
    if (trii_grad_published(tensor))
        (void)TRII_FAIL(TRI_ERR_STATE,
                        "the gradient that had added up is lost, since a step that added to it "
                        "failed (%s): call tri_optimizer_zero_grad and begin again",
                        cause);
    else
        (void)TRII_FAIL(TRI_ERR_STATE, "no gradient: the step that was to compute it failed (%s)",
                        cause);
    trii_tensor_lose(tensor->grad, tri_last_error());
}

bool trii_step_has_grad(const trii_step *step, const tri_tensor *tensor)
{
    return trii_known_has_grad(trii_known_find(step, tensor), tensor);
}

bool trii_has_grad(const tri_tensor *tensor)
{
    const trii_recorder *r = trii_recorder_mine();

    return r != NULL ? trii_step_has_grad(&r->step, tensor) : trii_grad_published(tensor);
}

tri_status trii_grad_check(const trii_step *step, const tri_tensor *tensor)
{
    uint64_t owner = atomic_load_explicit(&tensor->grad_writer, memory_order_acquire);

    return TRII_LIKELY(owner == 0 || owner == step->generation)
               ? TRI_OK
               : trii_refuse_gradient(tensor, owner);
}

/* The last reference; no other context uses it yet. */
static tri_tensor *take_change(trii_recorder *r, trii_pending_grad *grad_out)
{
    tri_tensor *tensor = r->changes.list[--r->changes.n];
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
    while (r->changes.n > 0) {
        trii_pending_grad grad;
        tri_tensor *tensor = take_change(r, &grad);

        trii_grad_set(tensor, grad == TRII_GRAD_THERE, grad != TRII_GRAD_NONE);
        give_back(tensor);
    }
}

void trii_grads_revert(trii_recorder *r, const trii_segment *segment)
{
    const char *cause = r->failures.line != NULL ? r->failures.line : "out of memory";

    while (r->changes.n > 0) {
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
            trii_grad_show(tensor, true);
        give_back(tensor);
    }
}
