/*
 * ddp_collectives.h - DDP's collectives while a step runs: each starts when its operands are
 * complete, is polled between kernels, and is waited for before its first reader. They start in the
 * order in which they were recorded, on every rank, so they always match.
 *
 *   ddp_coll_header.c   numbers of samples
 *   ddp_coll_buckets.c  gradients
 *   buffers.c           buffers
 */
#ifndef TRII_DDP_COLLECTIVES_H
#define TRII_DDP_COLLECTIVES_H

#include "train/parallel/ddp/ddp.h"

/* Bits of ranks that have joined, in numbers that doubles add up exactly. */
#define TRII_JOINED_BITS 48
#define TRII_JOINED_WORDS(size) (((size) + TRII_JOINED_BITS - 1) / TRII_JOINED_BITS)

/* For the table of a kind. The step in which one is recorded may belong to any thread, and end
 * after the model. */
void trii_ddp_coll_release(trii_host_op *op);
void trii_ddp_coll_abort(trii_host_op *op, const char *why);
/* Ranks may use different parameters: the operands do not count. */
tri_status trii_ddp_coll_compare(trii_host_op *op, const char *what, const char *where);

/* Goes on with an operation of the group: OK (also without one), INPROGRESS after so many
 * nanoseconds (0: it only looks), or its failure as this thread's error. */
tri_status trii_ddp_coll_work(const trii_ddp *ddp, tri_work **work_io,
                              int64_t for_ns) TRI_MUST_CHECK;

/* Its calls are those of the forward or backward that recorded it, wherever the step runs: where
 * the ranks disagree that is the line to look at. */
void trii_ddp_coll_blame(const trii_ddp_coll *t);

#endif
