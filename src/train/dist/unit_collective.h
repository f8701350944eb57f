/*
 * unit_collective.h - a unit's collectives while a step runs: each starts when its operands are
 * complete, is polled between kernels, and is waited for before its first reader. They start in the
 * order in which they were recorded, on every rank, so they always match.
 *
 *   header_op.c   numbers of samples
 *   bucket_op.c   gradients
 *   gather_op.c   parameters after an update, and averages to which a backward adds (ZeRO)
 *   gathered.c    parameters that a step uses (ZeRO 3)
 *   buffers.c     of parallel/ddp: buffers
 */
#ifndef TRII_UNIT_COLLECTIVE_H
#define TRII_UNIT_COLLECTIVE_H

#include "train/dist/unit.h"

/* Bits of ranks that have joined, in numbers that doubles add up exactly. */
#define TRII_JOINED_BITS 48
#define TRII_JOINED_WORDS(size) (((size) + TRII_JOINED_BITS - 1) / TRII_JOINED_BITS)

/* For the table of a kind. The step in which one is recorded may belong to any thread, and end
 * after the model. */
void trii_unit_coll_release(trii_host_op *op);
void trii_unit_coll_abort(trii_host_op *op, const char *why);
/* Ranks may use different parameters: the operands do not count. */
tri_status trii_unit_coll_compare(trii_host_op *op, const char *what, const char *where);

/* What became of a call to the group, which the program did not make itself: where the ranks' calls
 * differ the error says what ours are for. */
tri_status trii_unit_called(const trii_unit *unit, tri_status status);
/* The same of a call in a forward or backward: also what a rank that has left may have missed. */
tri_status trii_unit_passed(const trii_unit *unit, tri_status status);
/* Peers that wait in one of its groups get the reason: what failed here, still this thread's error.
 */
tri_status trii_unit_tell(const trii_unit *unit, tri_status status);
/* A free one of the list (a new one if all are under way), marked as recorded. */
tri_status trii_unit_coll_take(trii_unit *unit, trii_unit_coll **list, trii_step *step,
                               trii_unit_coll **coll_out) TRI_MUST_CHECK;
/* All ranks' parts of its bucket, of which this rank's lies as `part` says, come to `whole`: of
 * elements t->from to t->until of the bucket, which begin there. */
tri_status trii_unit_coll_gather(trii_unit_coll *t, const void *part, void *whole) TRI_MUST_CHECK;
/* The same with t->bucket->some set, which counts elements of this type. */
tri_status trii_unit_coll_send(trii_unit_coll *t, const void *part, void *whole,
                               tri_dtype dtype) TRI_MUST_CHECK;
/* rounded.c: of a bucket that `rounds`, whose parameters' pieces are in[t->n] and whose result is
 * `whole`; once it is gathered it ends. */
tri_status trii_unit_rounded_start(trii_unit_coll *t, void *const *in, void *whole) TRI_MUST_CHECK;
void trii_unit_rounded_end(trii_unit_coll *t);
/* Where this rank's begin among all elements of the bucket, and how many there are. */
size_t trii_unit_coll_own(const trii_unit_coll *t, size_t *first_out);
/* As trii_unit_coll_work. */
tri_status trii_unit_coll_gathered(trii_unit_coll *t, int64_t for_ns) TRI_MUST_CHECK;
/* A gather's memory, which nothing uses any more. */
void trii_unit_coll_drop_aside(trii_unit_coll *t);
/* What a pending step still points to fails when it is started, here and on the peers, and is freed
 * when the step ends. */
void trii_unit_colls_free(trii_unit_coll *list);
/* Numbers in a header. */
size_t trii_unit_header_count(const trii_unit *unit);
/* Fill in the operation of the kinds. */
void trii_unit_coll_is_header(trii_unit_coll *coll);
void trii_unit_coll_is_count(trii_unit_coll *coll);
/* Sends the bucket; without a hook waits for its averages. */
void trii_unit_coll_is_bucket(trii_unit_coll *coll);
/* With a hook: waits for the bucket's averages. */
void trii_unit_coll_is_end(trii_unit_coll *coll);

/* Goes on with an operation of the group: OK (also without one), INPROGRESS after so many
 * nanoseconds (0: it only looks), or its failure as this thread's error. */
tri_status trii_unit_coll_work(const trii_unit *unit, tri_work **work_io,
                               int64_t for_ns) TRI_MUST_CHECK;

/* Its calls are those of the forward or backward that recorded it, wherever the step runs: where
 * the ranks disagree that is the line to look at. */
void trii_unit_coll_blame(const trii_unit_coll *t);

#endif
