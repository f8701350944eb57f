/*
 * gradient.c - who has a gradient. Recording a backward pass or an update changes that at once for
 * what is recorded next, but only the run makes it true: until then the changes are noted, and a
 * step that fails takes them back. What its run had begun to overwrite is said to be lost.
 */
#include "base/alloc.h"
#include "graph/recorder.h"

/* What the contents of a gradient were worth when its run failed: whoever reads it gets the line.
 */
static void spoil(tri_tensor *grad, bool held, const char *cause)
{
    if (held)
        (void)TRII_FAIL(TRI_ERR_STATE,
                        "the gradient that had added up is lost, since a step that added to it "
                        "failed (%s): call tri_optimizer_zero_grad and begin again",
                        cause);
    else
        (void)TRII_FAIL(TRI_ERR_STATE,
                        "there is no gradient: the step that computed it failed "
                        "(%s)",
                        cause);
    trii_tensor_lose(grad);
}

static TRII_NOINLINE tri_status grow(trii_recorder *r)
{
    void *array = r->changes;
    tri_status status =
        trii_grow(&array, &r->cap_changes, r->n_changes + 1, sizeof(*r->changes), "gradients");

    r->changes = array;
    return status;
}

static tri_status note(trii_recorder *r, tri_tensor *tensor)
{
    tri_status status = TRI_OK;
    trii_vid id;

    /* The step holds what it has read, until it ends. */
    if (TRII_UNLIKELY(!trii_is_known(&r->step, tensor)))
        status = trii_resolve(&r->step, tensor, &id);
    if (status == TRI_OK && TRII_UNLIKELY(r->n_changes == r->cap_changes))
        status = grow(r);
    if (status == TRI_OK)
        r->changes[r->n_changes++] = (trii_grad_change){tensor, tensor->has_grad};
    return status;
}

tri_status trii_grad_prepare(tri_tensor *tensor)
{
    tri_tensor *grad = NULL;
    tri_status status;

    if (!tensor->has_grad && TRII_UNLIKELY(tensor->grad != NULL && tensor->grad->status != TRI_OK))
        trii_tensor_mend(tensor->grad); /* one that begins anew is as good as any */
    if (tensor->grad != NULL)
        return TRI_OK;
    status = trii_tensor_create(tensor->dtype, tensor->shape, tensor->ndim, tensor->device, &grad);
    if (status != TRI_OK)
        return status;
    grad->is_grad = true;
    tensor->grad = grad;
    return TRI_OK;
}

tri_status trii_grad_bind(trii_step *step, trii_vid value, tri_tensor *tensor)
{
    tri_status status = note(trii_recorder_of(step), tensor);

    if (status == TRI_OK)
        status = trii_bind(step, value, tensor->grad);
    if (status == TRI_OK)
        tensor->has_grad = true;
    return status;
}

tri_status trii_grad_consume(trii_step *step, tri_tensor *tensor, trii_vid *grad_out)
{
    trii_vid grad = TRII_NO_VALUE;
    tri_status status = TRI_OK;

    if (tensor->has_grad) {
        status = trii_resolve(step, tensor->grad, &grad);
        if (status == TRI_OK)
            status = note(trii_recorder_of(step), tensor);
    }
    if (status != TRI_OK)
        return status;
    tensor->has_grad = false;
    *grad_out = grad;
    return TRI_OK;
}

void trii_grad_clear(tri_tensor *tensor)
{
    trii_recorder *r = trii_recorder_mine();

    for (int32_t i = 0; r != NULL && i < r->n_changes; i++) {
        if (r->changes[i].tensor == tensor)
            r->changes[i].had = false;
    }
    tensor->has_grad = false;
}

void trii_grads_revert(trii_recorder *r, const trii_segment *segment)
{
    const char *cause = r->failed_line != NULL ? r->failed_line : "out of memory";

    while (r->n_changes > 0) {
        trii_grad_change change = r->changes[--r->n_changes];
        tri_tensor *grad = change.tensor->grad;
        bool torn = false;

        change.tensor->has_grad = change.had;
        for (int32_t o = 0; segment != NULL && grad != NULL && o < segment->n_outputs; o++) {
            const trii_value *value = &r->step.values[segment->outputs[o]];

            torn = torn || (value->bound == grad && value->torn);
        }
        if (torn)
            spoil(grad, change.had, cause);
    }
}

tri_tensor *tri_grad(tri_tensor *tensor)
{
    return tensor != NULL && !trii_is_handle(tensor) ? tensor->grad : NULL;
}
