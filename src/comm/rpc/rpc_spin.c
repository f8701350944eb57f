/*
 * rpc_spin.c - see rpc_spin.h.
 */
/* build: hot leaf */
#include "comm/rpc/rpc_spin.h"

#include "base/param.h"
#include "os/thread.h"

#define SPIN_US 50
#define START_NS 20000
#define LEAST_NS 3000 /* the reply of a worker that is spinning, too, comes sooner */
#define TRY_EVERY 16  /* one wait of so many spins as long as it may */

static trii_once once = TRII_ONCE_INITIALIZER;
static int32_t most_ns; /* TRI_SPIN_US */

static void find_most(void)
{
    int64_t us = SPIN_US;

    if (trii_param_i64(TRII_PARAM_SPIN_US, us, &us) != TRI_OK)
        us = SPIN_US;
    most_ns = (int32_t)(us < 1000000 ? us : 1000000) * 1000;
}

static void learn(rpc_spin *spin, int32_t ns)
{
    ns = ns > LEAST_NS ? ns : LEAST_NS;
    atomic_store_explicit(&spin->ns, ns < most_ns ? ns : most_ns, memory_order_relaxed);
}

int32_t rpc_spin_budget(rpc_spin *spin)
{
    unsigned n = atomic_fetch_add_explicit(&spin->waits, 1, memory_order_relaxed);
    int32_t ns = atomic_load_explicit(&spin->ns, memory_order_relaxed);

    if (ns == 0) {
        trii_once_run(&once, find_most);
        learn(spin, START_NS);
        ns = atomic_load_explicit(&spin->ns, memory_order_relaxed);
    }
    return n % TRY_EVERY == TRY_EVERY - 1 ? most_ns : ns;
}

void rpc_spin_paid(rpc_spin *spin, int64_t looked_ns)
{
    int32_t ns = atomic_load_explicit(&spin->ns, memory_order_relaxed);

    if (ns < most_ns)
        learn(spin, 2 * (looked_ns > ns ? (int32_t)looked_ns : ns));
}

void rpc_spin_slept(rpc_spin *spin, int64_t waited_ns)
{
    int32_t ns = atomic_load_explicit(&spin->ns, memory_order_relaxed);

    learn(spin, waited_ns < most_ns ? most_ns : ns / 2);
}
