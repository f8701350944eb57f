/*
 * compiled.c - counts the kernels for which devices compiled code. Devices report to it
 * (train/device/cpu/onednn/primitives.c); plan.c and cache.c read it for the plan's log line and
 * trii_plan_stats. Tests use the count to show that a new length compiles nothing.
 */
#include <stdatomic.h>

#include "train/plan/device_ops.h"
#include "train/plan/plan.h"

static atomic_uint_least64_t n_compiled;
static _Thread_local uint64_t n_compiled_here;

void trii_count_compiled(void)
{
    atomic_fetch_add_explicit(&n_compiled, 1, memory_order_relaxed);
    n_compiled_here++;
}

uint64_t trii_compiled_here(void)
{
    return n_compiled_here;
}

uint64_t trii_compiled_all(void)
{
    return atomic_load_explicit(&n_compiled, memory_order_relaxed);
}
