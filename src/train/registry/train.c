/*
 * train.c - the devices built into libtrireme, and who executes a recorded step.
 */
#include "train/device/cpu/cpu_ops.h"
#include "train/graph/step/step.h"
#include "os/thread.h"
#include "train/plan/plan.h"
#include "train/tensor/device_list.h"

/* TRI_EAGER=1 makes the recorder take the reference interpreter instead. */
const trii_executor *const trii_executor_default = &trii_executor_plan;

static const trii_device_kind cpus = {.count = trii_cpu_count, .ops = &trii_device_cpu};
const trii_device_kind *trii_device_kinds[TRII_DEVICE_KINDS] = {[TRI_DEVICE_CPU] = &cpus};

int64_t trii_step_thread_id(void)
{
    return trii_thread_id();
}

static trii_mutex step_lock = TRII_MUTEX_INITIALIZER;

void trii_step_lock(void)
{
    trii_mutex_lock(&step_lock);
}

void trii_step_unlock(void)
{
    trii_mutex_unlock(&step_lock);
}

void trii_step_at_thread_exit(void (*release)(void *arg), void *arg)
{
    trii_thread_at_exit(release, arg);
}
