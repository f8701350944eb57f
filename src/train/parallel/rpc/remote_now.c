/*
 * remote_now.c - what a thread of a served module is doing, for remote modules that it calls; and
 * random numbers as names.
 */
#include "os/random.h"
#include "train/parallel/rpc/remote_internal.h"

static _Thread_local trii_remote_running *now;

trii_remote_running *trii_remote_now(void)
{
    return now;
}

void trii_remote_now_set(trii_remote_running *running)
{
    now = running;
}

uint64_t trii_remote_number(void)
{
    static atomic_uint_fast64_t counter;
    uint64_t n = 0;

    if (!trii_random_bytes(&n, sizeof(n)))
        n = (uint64_t)(uintptr_t)&n << 20;
    n ^= atomic_fetch_add(&counter, 1) << 1;
    return n | 1;
}
