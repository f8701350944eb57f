/*
 * trainer_record.h - trainer.json, what a checkpoint has of a fit beside its tensors.
 *
 *     {"version":1, "epoch":2, "step":57, "batch":3, "batches_ever":43, "validated":false,
 *      "seconds":12.5, "world":2, "batch_size":8, "config":{..},
 *      "best":[{"step":40,"value":0.25},..], "monitored":4, "monitor":"val_loss", "max":false,
 *      "early":{"monitor":"val_loss", "max":false, "best":0.25, "wait":1, "seen":4},
 *      "values":[..], "sums":[[..of rank 0],[..of rank 1]], "callbacks":{"key":"text",..}}
 *
 * Counters are those after an update and all that follows it, as one record. Numbers
 * keep all their bits; infinities and NaN are texts.
 */
#ifndef TRII_TRAINER_RECORD_H
#define TRII_TRAINER_RECORD_H

#include "train/trainer/trainer_internal.h"

struct json_t;

/* The record now, on rank 0 (elsewhere *text_out is NULL); release with trii_free. Within an epoch
 * all ranks call it and give their sums, unless `alone`: then rank 0 has its own only. Calls
 * state_save of callbacks. `policy`: what checkpoint_policy.c adds, borrowed. */
tri_status trii_record_make(tri_trainer *t, bool alone, struct json_t *policy,
                            char **text_out) TRI_MUST_CHECK;
/* Counters, and the position in the epoch: for another number of ranks or size of batches one from
 * which no sample is left out. FORMAT: it is no such record. The object is released by the caller.
 */
tri_status trii_record_read(tri_trainer *t, const char *text,
                            struct json_t **record_out) TRI_MUST_CHECK;
/* All else, once everything that it goes into is there; then state_load of callbacks. */
tri_status trii_record_apply(tri_trainer *t, const struct json_t *record) TRI_MUST_CHECK;

/* --- run_config.c --------------------------------------------------------- */

/* The options after their defaults, the command line, versions; NULL: no memory. */
struct json_t *trii_config_make(const tri_trainer *t);
/* Writes RUN_FOLDER/config.json (rank 0). */
tri_status trii_config_write(const tri_trainer *t) TRI_MUST_CHECK;
/* INVALID_ARG: what decides which samples are seen differs, unless resume_anyway. What else differs
 * is told. */
tri_status trii_config_compare(tri_trainer *t, const struct json_t *before) TRI_MUST_CHECK;

#endif
