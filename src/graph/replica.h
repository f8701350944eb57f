/*
 * replica.h - records a part of a network on another device than that of its tensors.
 */
#ifndef TRII_REPLICA_H
#define TRII_REPLICA_H

#include "graph/step.h"

/* While it holds, persistent tensors of `home` are what a copy of them on `device` is: one copy a
 * step, recorded at the first use, through which gradients come back and add up. What would be left
 * in such a tensor (running statistics) is not: only the replica at home does. home = device: no
 * replica. */
typedef struct trii_replica {
    tri_device home, device;
} trii_replica;

/* Returns what held before, which trii_replica_leave restores. They nest. */
trii_replica trii_replica_enter(trii_step *step, trii_replica replica);
void trii_replica_leave(trii_step *step, trii_replica before);
/* What holds now. */
trii_replica trii_replica_now(const trii_step *step);

#endif
