/*
 * hold.h - reader-writer locks of the program's tensors between the runs of several contexts: many
 * may read a tensor at a time, or one may write it. Those that share memory
 * (train/tensor/sharing.h) are one tensor here, as far as they overlap.
 */
#ifndef TRII_HOLD_H
#define TRII_HOLD_H

#include "train/graph/step/recorder.h"

/* Everything that the pending segment reads (r->pending.inputs) and writes (r->pending.outputs).
 * STATE if another context reads or writes it now. */
tri_status trii_hold_run(trii_recorder *recorder) TRI_MUST_CHECK;
/* Of one tensor. */
tri_status trii_hold_one(trii_recorder *recorder, tri_tensor *tensor, bool writes) TRI_MUST_CHECK;
void trii_hold_end(trii_recorder *recorder);
/* The tensor, held for writing, has new contents, made by this step, and so have those that share
 * bytes of its memory. */
void trii_hold_written(trii_recorder *recorder, tri_tensor *tensor);

#endif
