/*
 * slot.h - arriving in a collective, and who has finished. Guard of all: lock.
 */
#ifndef TRII_SHM_SLOT_H
#define TRII_SHM_SLOT_H

#include "comm/engines/shm/shm_group.h"

bool shm_slot_is_free(shm_group *g, uint64_t seq);
/* Puts our data, or where they are, into our slot and publishes the call. */
void shm_slot_arrive(shm_group *g, trii_op *op);
/* Whether all ranks have arrived; if they disagree about the call, the group fails. */
bool shm_slot_all_arrived(shm_group *g, trii_op *op);
/* They have: chooses the path. */
void shm_slot_choose_path(shm_group *g, trii_op *op);
/* Sums or reads what came with the arrivals, which ends the operation. */
void shm_slot_take(shm_group *g, trii_op *op);
/* This rank reads no peer any more; whether that holds for all, which makes it SHM_DONE. */
void shm_slot_finish(shm_group *g, trii_op *op);
bool shm_slot_all_finished(shm_group *g, trii_op *op);
/* Has `read` read what this rank needs of its peers (false: the group has failed), then waits
 * until all ranks have. True if something was done. */
typedef bool shm_reader(shm_group *g, const trii_op *op);
bool shm_slot_advance_reading(shm_group *g, trii_op *op, shm_reader *read);

#endif
