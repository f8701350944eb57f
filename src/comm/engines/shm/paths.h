/*
 * paths.h - direct.c, cma.c, cma_sum.c, staged.c: how data move. Guard of all: lock.
 */
#ifndef TRII_SHM_PATHS_H
#define TRII_SHM_PATHS_H

#include "comm/engines/shm/shm_group.h"

/* As all that follow: does what can be done now; sets SHM_DONE at the end. True if something was
 * done. */
bool shm_direct_advance(shm_group *g, trii_op *op);

/* Whether we can read the memory of every peer; once all blocks are mapped. */
bool shm_cma_works(shm_group *g);
/* Reads `bytes` at `offset` of a buffer of rank r's call; false: the group has failed. */
bool shm_cma_read(shm_group *g, int r, const trii_op *op, shm_buffer which, size_t offset, void *to,
                  size_t bytes);
bool shm_cma_advance(shm_group *g, trii_op *op);

bool shm_cma_sum_advance(shm_group *g, trii_op *op);

/* Once all have arrived, in the order of the operations. */
void shm_staged_begin(shm_group *g, trii_op *op);
bool shm_staged_advance(shm_group *g, trii_op *op);

#endif
