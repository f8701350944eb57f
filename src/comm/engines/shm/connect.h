/*
 * connect.h - forming a group, and its end.
 */
#ifndef TRII_SHM_CONNECT_H
#define TRII_SHM_CONNECT_H

#include "comm/engines/shm/shm_group.h"

tri_status shm_create(const trii_group_args *args, void **self_out);
/* Frees everything that create made; half-built groups too. */
void shm_release(shm_group *g);

#endif
