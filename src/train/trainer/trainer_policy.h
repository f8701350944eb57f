/*
 * trainer_policy.h - when a fit saves, what stays, where it goes on; and what looks at its values.
 *
 * All of these are called on every rank, at the same point of the loop.
 */
#ifndef TRII_TRAINER_POLICY_H
#define TRII_TRAINER_POLICY_H

#include <trireme/checkpoint.h>

#include "train/trainer/trainer_internal.h"

/* --- resume.c ------------------------------------------------------------- */

/* Chooses the run folder, and makes it (rank 0; all have its name afterwards). */
tri_status trii_resume_choose_folder(tri_trainer *t) TRI_MUST_CHECK;
/* Loads what opt->ckpt_path names into the network, the optimizer and the counters; in evaluation
 * into the network alone. Sets t->resumed if there was something. */
tri_status trii_resume_load(tri_trainer *t) TRI_MUST_CHECK;
/* The rest, once all that has state is there: averages, logged values, callbacks. */
tri_status trii_resume_finish(tri_trainer *t) TRI_MUST_CHECK;
void trii_resume_drop(tri_trainer *t); /* what is loaded and not used */

/* --- checkpoint_policy.c -------------------------------------------------- */

tri_status trii_policy_create(tri_trainer *t) TRI_MUST_CHECK;
/* The best step of a record; -1: it has none. */
struct json_t;
int64_t trii_policy_best_step(const struct json_t *record);
void trii_policy_destroy(trii_policy *policy); /* NULL allowed */
/* After an update, and after the validation and the callbacks that follow it. */
tri_status trii_policy_step(tri_trainer *t) TRI_MUST_CHECK;
/* After an epoch: epoch_end's callbacks have been called and t->epoch counts it. */
tri_status trii_policy_epoch(tri_trainer *t) TRI_MUST_CHECK;
/* The loop is over, with reason; or has failed (status; the line stays). Waits for what is being
 * written. */
tri_status trii_policy_end(tri_trainer *t, tri_status status) TRI_MUST_CHECK;
/* Its part of trainer.json, back. `own`: it is of this run's folder, and stays there. */
void trii_policy_take(tri_trainer *t, const struct json_t *record, bool own);
/* best_path and best_value. */
void trii_policy_result(const tri_trainer *t, tri_fit_result *result);

/* --- early_stopping.c ----------------------------------------------------- */

tri_status trii_early_create(tri_trainer *t) TRI_MUST_CHECK;
void trii_early_destroy(tri_trainer *t);
/* After a validation, and after an epoch, when new values may be there: ends the fit by
 * trii_fit_end_with(t, TRI_STOP_EARLY, ..). */
tri_status trii_early_look(tri_trainer *t, bool after_epoch) TRI_MUST_CHECK;
bool trii_early_put(const tri_trainer *t, struct json_t *record);
void trii_early_take(tri_trainer *t, const struct json_t *record);

/* --- fit_average.c: moving averages of the parameters --------------------- */

tri_status trii_average_create(tri_trainer *t) TRI_MUST_CHECK;
void trii_average_destroy(tri_trainer *t);
tri_status trii_average_update(tri_trainer *t) TRI_MUST_CHECK; /* after an update */
/* Before a validation, and again after it: the averages take the parameters' place, if there are
 * any yet. */
tri_status trii_average_swap(tri_trainer *t) TRI_MUST_CHECK;
/* What checkpoints have of them: n = 0 if there are none. */
tri_checkpoint_extra trii_average_extra(const tri_trainer *t);
tri_status trii_average_load(tri_trainer *t, const tri_checkpoint *from) TRI_MUST_CHECK;

#endif
