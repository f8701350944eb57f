/*
 * log_book.h - the log book: what steps of the task log, from one batch to a record.
 */
#ifndef TRII_LOG_BOOK_H
#define TRII_LOG_BOOK_H

#include "train/trainer/trainer_internal.h"

/* With the files of the run (fit_files.h). */
tri_status trii_book_create(tri_trainer *t) TRI_MUST_CHECK;
/* Ends the files. Errors: IO, of what was still to be written. */
tri_status trii_book_close(trii_book *book) TRI_MUST_CHECK;
void trii_book_destroy(trii_book *book);                 /* NULL allowed */
tri_tensorboard *trii_book_board(const trii_book *book); /* NULL: none here */

/* Steps of this phase follow; sums over its batches start over. */
tri_status trii_book_begin(tri_trainer *t, trii_phase phase) TRI_MUST_CHECK;
/* Before the step of a batch of t->batch_samples. `due`: its values on steps are wanted; they are
 * summed until trii_book_step. */
void trii_book_batch(tri_trainer *t, bool due);
/* After the batch has run and before its step ends: takes what is due. Returns what a call of
 * tri_trainer_log failed with. */
tri_status trii_book_take(tri_trainer *t) TRI_MUST_CHECK;
/* After an update that is due: the ranks add up; a record. */
tri_status trii_book_step(tri_trainer *t) TRI_MUST_CHECK;
/* After the last batch of a phase: the same for the values of epochs. Of TRII_PHASE_SANITY they are
 * compared and thrown away. */
tri_status trii_book_end(tri_trainer *t, trii_phase phase) TRI_MUST_CHECK;
/* The last agreed value; NaN: none. */
double trii_book_value(const trii_book *book, const char *name);
/* How often a value has been agreed on: whether it is new. 0 = never. */
int64_t trii_book_count(const trii_book *book, const char *name);
void trii_book_result(const trii_book *book, tri_fit_result *result);
/* "loss 0.52  val_accuracy 0.91": what the progress bar shows. */
void trii_book_bar_text(const trii_book *book, char *text, size_t bytes);
/* The same of all values of epochs, of training or of evaluation. */
void trii_book_epoch_text(const trii_book *book, bool of_evaluation, char *text, size_t bytes);

/* --- log_state.c: what checkpoints have of it ----------------------------- */

struct json_t;
/* The agreed values, and this rank's sums of the epoch so far: an object, to be released; NULL: no
 * memory, or the sums cannot be read. */
struct json_t *trii_book_values(const trii_book *book);
struct json_t *trii_book_sums(trii_book *book);
/* Takes them back; what cannot be read of them is left out, and, of sums that are not this rank's
 * own, what is local to a rank. */
tri_status trii_book_take_values(trii_book *book, const struct json_t *values) TRI_MUST_CHECK;
tri_status trii_book_add_sums(trii_book *book, const struct json_t *sums, bool own) TRI_MUST_CHECK;
/* INVALID_ARG: nobody has logged this name, which an option wants; says what was logged. OK while
 * the first validation is still to come. */
tri_status trii_book_need(const tri_trainer *t, const char *name,
                          const char *option) TRI_MUST_CHECK;
/* After the first batch: says which monitors neither it nor a validation has logged. That is no
 * error yet, since a step need not log all of its values in every batch. */
void trii_book_doubt(tri_trainer *t);

#endif
