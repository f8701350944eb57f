/*
 * replica.h - records a part of a network on another device than that of its tensors.
 */
#ifndef TRII_REPLICA_H
#define TRII_REPLICA_H

#include "train/graph/step/step.h"

/* Returns the replica of before, which trii_replica_leave restores. They nest. */
trii_replica trii_replica_enter(trii_step *step, trii_replica replica);
void trii_replica_leave(trii_step *step, trii_replica before);
/* The replica that is recorded now. */
trii_replica trii_replica_now(const trii_step *step);

#endif
