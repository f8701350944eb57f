/*
 * train.c - the devices built into libtrireme, and who executes a recorded step.
 */
#include "graph/step.h"
#include "os/thread.h"

const trii_executor *const trii_executor_default = &trii_executor_reference;

void trii_step_at_thread_exit(void (*release)(void *arg), void *arg)
{
    trii_thread_at_exit(release, arg);
}
