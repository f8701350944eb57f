/*
 * shm.h - the engine for ranks of one host: they share memory, and no byte goes through the kernel
 * that does not have to. Its files, from the top floor to the ground; a file calls only files of
 * lower lines, or of its own line further left:
 *
 *   shm.c                        the engine's table; the queue of operations, waiting, sleeping
 *   connect.c                    forming a group: exchanging memory with the peers, watching them
 *   pair_in.c pair_out.c pair.c  send and recv: messages from a rank, to a rank, both
 *   direct.c                     moves the data of a collective out of arenas, which all ranks map
 *   cma.c cma_sum.c              ... out of the peers' own memory (cross-memory attach)
 *   staged.c                     ... through staging buffers, a piece at a time
 *   slot.c                       arriving in a collective; which of these paths moves its data; who
 *                                has finished
 *   parts.c                      which elements a rank reads from which peer
 *   arena.c                      allocating memory that all ranks map
 *   fault.c                      waking the peers, failing together
 *   spin.c                       how long to look before sleeping, where ranks outnumber cores
 *   call_text.c                  a peer's call in words, for error messages
 *   shm_group.h                  the group as this process sees it
 *   layout.h                     what lies in shared memory
 *
 * The way of an all_reduce: shm.c, slot.c (arrives with the data or their address; all have
 * arrived; chooses), then direct.c, cma_sum.c, staged.c or, if it is small, parts.c, and from there
 * into group/reduce.
 */
#ifndef TRII_SHM_H
#define TRII_SHM_H

#include "comm/group/engine.h"

extern const trii_engine trii_engine_shm;

#endif
