/*
 * grad_mode.c - what gets a gradient: tensors that require one, and parts of a program that are not
 * differentiated.
 */
#include "base/dtype.h"
#include "train/graph/step/recorder.h"

void tri_requires_grad(tri_tensor *tensor, bool on)
{
    trii_recorder *r = trii_recorder_mine();
    trii_step *step;
    trii_vid id;

    if (tensor == NULL ||
        (!trii_is_handle(tensor) && tensor->status != TRI_OK && tensor->elsewhere == NULL))
        return; /* the first use of the tensor gets its error */
    if (trii_is_handle(tensor) || !trii_dtype_is_float(tensor->dtype)) {
        step = on ? trii_step_current() : NULL;
        if (step != NULL)
            trii_step_fail(step, TRII_FAIL(TRI_ERR_INVALID_ARG,
                                           "tri_requires_grad: only persistent floating-point "
                                           "tensors can require a gradient"));
        return;
    }
    tensor->requires_grad = on;
    id = r != NULL && r->active ? trii_known_value(&r->step, tensor) : TRII_NO_VALUE;
    if (id != TRII_NO_VALUE)
        r->step.values[id].requires_grad = on;
}

void tri_no_grad_begin(void)
{
    trii_step *step = trii_step_current();

    if (step != NULL)
        trii_recorder_of(step)->scopes.no_grad++;
}

void tri_no_grad_end(void)
{
    trii_step *step = trii_step_current();

    if (step == NULL)
        return;
    if (trii_recorder_of(step)->scopes.no_grad == 0)
        trii_step_fail(step, TRII_FAIL(TRI_ERR_STATE, "tri_no_grad_end without tri_no_grad_begin"));
    else
        trii_recorder_of(step)->scopes.no_grad--;
}
