/*
 * device_scope.c - tri_device_begin and tri_device_end: a mistake fails the step, as with the other
 * scopes.
 */
#include "base/err.h"
#include "train/graph/step/step.h"
#include "train/tensor/device_list.h"

static void fail(tri_status status)
{
    trii_step *step = trii_step_current();

    if (step != NULL)
        trii_step_fail(step, status);
}

void tri_device_begin(tri_device device)
{
    tri_status status = trii_device_push(device);

    if (status != TRI_OK)
        fail(TRII_FAIL_CTX(status, "tri_device_begin"));
}

void tri_device_end(void)
{
    tri_status status = trii_device_pop();

    if (status != TRI_OK)
        fail(status);
}
