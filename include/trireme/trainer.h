/*
 * trainer.h - what a training loop shows and keeps: progress, metrics, curves, means.
 *
 * The loop itself stays the program's: nothing here calls a model.
 */
#ifndef TRIREME_TRAINER_H
#define TRIREME_TRAINER_H

#include <stdio.h>

#include <trireme/status.h>
#include <trireme/tensor.h>

TRI_BEGIN_DECLS

/* --- progress ------------------------------------------------------------- */

/* A bar that is redrawn in place on a terminal, a plain line now and then elsewhere:
 *
 *     epoch 2/4  loss 0.5213  accuracy 0.912  [=======>        ]  47 %  8,132 samples/s  0:31 left
 */
typedef struct tri_progress tri_progress;

typedef struct tri_progress_options {
    FILE *stream;      /* NULL = stderr */
    bool quiet;        /* print nothing (ranks but one) */
    int plain_seconds; /* without a terminal: a line every so many seconds; 0 = 10 */
} tri_progress_options;

/* `total` units of work in all (samples, say), of which `done` are done already when a run is
 * resumed. `unit` names them in the plural (NULL = "steps"). Errors: INVALID_ARG, NO_MEMORY. */
TRI_API TRI_MUST_CHECK tri_status tri_progress_create(int64_t total, int64_t done, const char *unit,
                                                      const tri_progress_options *opt,
                                                      tri_progress **progress_out);
/* Ends an open line. NULL allowed. */
TRI_API void tri_progress_destroy(tri_progress *progress);
/* True if a new line is due: at most ten times a second, so that texts and values which cost
 * something are only made when they are seen. About 30 ns. */
TRI_API bool tri_progress_due(const tri_progress *progress);
/* Shows where things are; the text stands before the bar. Draws always; ask `due` first. */
TRI_API void tri_progress_update(tri_progress *progress, int64_t done, const char *format, ...)
    TRI_PRINTF(3, 4);
/* A whole line that stays (the result of an epoch), above the bar. */
TRI_API void tri_progress_line(tri_progress *progress, const char *format, ...) TRI_PRINTF(2, 3);
/* Time between these (evaluation, saving) counts neither as training nor for the rate. */
TRI_API void tri_progress_pause(tri_progress *progress);
TRI_API void tri_progress_resume(tri_progress *progress);
/* Seconds that were not paused, since it was made; units a second over them. */
TRI_API double tri_progress_seconds(const tri_progress *progress);
TRI_API double tri_progress_rate(const tri_progress *progress);

/* --- metrics -------------------------------------------------------------- */

/* A file of JSON lines: one object a record, {"step":10,"epoch":1,"loss":0.51,...}. */
typedef struct tri_metrics tri_metrics;

typedef struct tri_metric {
    const char *key; /* UTF-8 without quotes, backslashes and control characters */
    double value;    /* whole numbers are written without a point; NaN and infinities as null */
} tri_metric;

/* Opens `path`: anew, or with keep_steps >= 0 with its records of "step" <= keep_steps kept and
 * the others gone (a run that resumes there). A last line that was cut short is dropped.
 * Missing folders above it are made. What is not a file (a pipe, /dev/stderr) is only written to.
 * Errors: INVALID_ARG, IO, NO_MEMORY. */
TRI_API TRI_MUST_CHECK tri_status tri_metrics_open(const char *path, int64_t keep_steps,
                                                   tri_metrics **metrics_out);
TRI_API void tri_metrics_close(tri_metrics *metrics); /* NULL allowed */
/* One record, one line, one write, whatever the locale. Errors: INVALID_ARG (a key that is not as
 * above, or there twice), IO (names the file and the reason). */
TRI_API TRI_MUST_CHECK tri_status tri_metrics_write(tri_metrics *metrics, const tri_metric *values,
                                                    int n);
/* tri_metrics_log(m, {"step", 10}, {"loss", 0.5}) */
#define tri_metrics_log(metrics, ...)                                                              \
    tri_metrics_write(metrics, (const tri_metric[]){__VA_ARGS__},                                  \
                      (int)(sizeof((const tri_metric[]){__VA_ARGS__}) / sizeof(tri_metric)))

/* Draws the curves of metrics files into a .svg or .png file: runs `trireme plot`, found beside
 * this program or on PATH. Blocks until it is done. Errors: NOT_FOUND (no `trireme`), IO (it
 * failed; its own message is on stderr), INVALID_ARG. */
TRI_API TRI_MUST_CHECK tri_status tri_plot(const char *const *paths, int n_paths,
                                           const char *out_path);

/* Makes a folder for a run: PREFIX1, or PREFIX2, ..., the first of these names that nobody has, so
 * that programs which start together never share one. "runs/try-" makes runs/try-1; missing folders
 * above it are made. Errors: INVALID_ARG, IO, NO_MEMORY. */
TRI_API TRI_MUST_CHECK tri_status tri_run_folder_create(const char *prefix, int64_t *number_out);

/* --- running means -------------------------------------------------------- */

/* Mean of a scalar over steps. Adding records one addition into the step; the value is only
 * fetched when it is asked for. Sums are f64. */
typedef struct tri_meter tri_meter;

TRI_API TRI_MUST_CHECK tri_status tri_meter_create(tri_meter **meter_out);
TRI_API void tri_meter_destroy(tri_meter *meter); /* NULL allowed */
/* A step tensor of one element. add_mean: the mean of `weight` samples (a loss), counts value *
 * weight; add_count: a sum over `weight` samples (tri_count_correct), counts as it is. To be called
 * before the step runs (tri_optimizer_step), so that it runs as a part of it; a step that fails
 * counts neither the value nor the weight. */
TRI_API TRI_MUST_CHECK tri_status tri_meter_add_mean(tri_meter *meter, tri_tensor *mean,
                                                     int64_t weight);
TRI_API TRI_MUST_CHECK tri_status tri_meter_add_count(tri_meter *meter, tri_tensor *count,
                                                      int64_t weight);
/* Sum over weight since the last reset; these run what was recorded. NaN if there was nothing; the
 * weight is 0 then, and in a step that has failed. */
TRI_API double tri_meter_value(tri_meter *meter);
TRI_API double tri_meter_sum(tri_meter *meter);
TRI_API int64_t tri_meter_weight(tri_meter *meter);
TRI_API TRI_MUST_CHECK tri_status tri_meter_reset(tri_meter *meter);

TRI_END_DECLS

#endif
