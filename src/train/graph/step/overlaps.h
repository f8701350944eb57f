/*
 * overlaps.h - what a step knows of tensors that share memory (train/tensor/sharing.h): a write of
 * one is a write of all that overlap with it.
 *
 * A tensor that a step has read is one value of it, as long as nothing writes the tensor. When a
 * value is bound to another tensor that overlaps, the step forgets the first one, so that its next
 * reader gets a new value. The old value still means the old contents: the plan has them read
 * before it writes (train/plan/schedule.c). If what was bound has not run when the other tensor is
 * read, it runs then: contents pass from tensor to tensor in memory, from run to run. Nor does a
 * run write a byte twice: what is bound to a tensor that a later binding covers is not left there,
 * and what is bound to one that the later binding covers in part runs first.
 *
 * An operation that needs the new contents in the same run, as a gather of shards does, reads the
 * value that was bound, and not the tensor. Then it makes no difference whether that value gets
 * into its tensor at once or, being small, at the end of the run; and where the result of the
 * gather is bound to the whole unit, the shard gets its contents by way of the gather alone.
 *
 * All functions are for tensors that share memory (tensor->shares).
 */
#ifndef TRII_OVERLAPS_H
#define TRII_OVERLAPS_H

#include "train/graph/step/recorder.h"

/* The first value that which() finds in another tensor that overlaps with this one; NO_VALUE. */
trii_vid trii_overlaps_first(trii_step *step, const tri_tensor *tensor,
                             trii_vid (*which)(trii_step *step, const tri_tensor *tensor,
                                               const tri_tensor *other));
/* Before the tensor is read as a new value: runs what pends if bytes of the tensor will be written
 * by way of another one. */
tri_status trii_overlaps_settle(trii_step *step, const tri_tensor *tensor) TRI_MUST_CHECK;
/* Before a value is bound to the tensor, or the program writes it: runs what pends if a tensor of
 * which it covers only a part will be written. */
tri_status trii_overlaps_settle_parts(trii_step *step, const tri_tensor *tensor) TRI_MUST_CHECK;
/* And then, when nothing can fail any more: what is bound to tensors that it covers is not left
 * there. */
void trii_overlaps_cover(trii_step *step, const tri_tensor *tensor);
/* The value of the tensor that the step has forgotten, if its contents are still there, since what
 * was bound to another one has been covered; else NO_VALUE. */
trii_vid trii_overlaps_still(trii_step *step, const tri_tensor *tensor);
/* And after it: the next reader of another one that overlaps gets a new value. */
void trii_overlaps_forget(trii_step *step, const tri_tensor *tensor);
/* Of each other tensor that overlaps, if its contents are an input of the pending segment: the
 * number of the input. At most n_inputs of them; returns how many. */
int32_t trii_overlaps_inputs(trii_step *step, const tri_tensor *tensor, uint64_t *inputs);
/* A run has written the tensor: values that were the contents of others until then are gone. */
void trii_overlaps_written(trii_step *step, const tri_tensor *tensor);
/* Copies of the others in a kernel's order are of older contents; lent: and none are kept any more,
 * since the program has the address. Takes hold.c's lock. */
void trii_overlaps_drop(const tri_tensor *tensor, bool lent);
/* Before the program writes the tensor: values that are contents of the others, or that the step
 * has forgotten, get memory of their own. */
tri_status trii_overlaps_move_out(trii_step *step, const tri_tensor *tensor) TRI_MUST_CHECK;

#endif
