/*
 * fit_files.h - the files that a fit's records go to, in its run folder.
 */
#ifndef TRII_FIT_FILES_H
#define TRII_FIT_FILES_H

#include "train/trainer/trainer_internal.h"

/* metrics.jsonl, and metrics.csv and TensorBoard's event file if they are wanted; a run that is
 * resumed keeps its records up to that step. NULL where there are none: on other ranks, without a
 * run folder, in evaluation. */
tri_status trii_fit_files_open(const tri_trainer *t, trii_fit_files **files_out) TRI_MUST_CHECK;
tri_status trii_fit_files_write(trii_fit_files *files, int64_t step, const tri_metric *values,
                                int n) TRI_MUST_CHECK;
tri_tensorboard *trii_fit_files_board(const trii_fit_files *files); /* NULL = none */
/* Errors: IO, of what was still to be written. */
tri_status trii_fit_files_close(trii_fit_files *files) TRI_MUST_CHECK;

#endif
