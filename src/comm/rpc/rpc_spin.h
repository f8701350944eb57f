/*
 * rpc_spin.h - how long a thread looks at a ring or a socket before it sleeps.
 *
 * Learnt from how long its waits took: one that ended while it looked lengthens the next look, and
 * so does one that ended soon after it fell asleep; a longer one halves it. Now and then the whole
 * of TRI_SPIN_US is tried. A thread that finds the one it waits for on its own core sleeps at
 * once, and learns nothing by it.
 */
#ifndef TRII_RPC_SPIN_H
#define TRII_RPC_SPIN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define RPC_CLOCK_EVERY 16 /* looks between two of the clock */

typedef struct rpc_spin {
    _Atomic int32_t ns; /* 0 = nothing learnt */
    atomic_uint waits;
} rpc_spin;

/* How long to look this time; 0: not at all. */
int32_t rpc_spin_budget(rpc_spin *spin);
/* Something came while it looked, for `looked_ns` at least. */
void rpc_spin_paid(rpc_spin *spin, int64_t looked_ns);
/* It slept, and something came `waited_ns` after it had begun to look. */
void rpc_spin_slept(rpc_spin *spin, int64_t waited_ns);

#endif
