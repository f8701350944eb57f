/*
 * records.h - what a training loop shows and leaves behind: progress, metrics, folders of runs.
 *
 * The loop itself stays the program's: nothing here knows a model.
 */
#ifndef TRIREME_RECORDS_H
#define TRIREME_RECORDS_H

#include <stdio.h>

#include <trireme/status.h>
#include <trireme/types.h>

TRI_BEGIN_DECLS

/* --- progress ------------------------------------------------------------- */

/* A bar that is redrawn in place on a terminal, a plain line now and then elsewhere:
 *
 *     epoch 2/4  loss 0.5213  [=======>        ] 47 % of all  8,132 samples/s  0:31 left
 */
typedef struct tri_progress tri_progress;

typedef struct tri_progress_options {
    FILE *stream; /* NULL = stderr */
    bool quiet;   /* print nothing, as all ranks but one should */
    /* without a terminal: seconds from one line to the next; 0: every update; default 10 */
    tri_opt plain_seconds;
    TRI_RESERVED(4);
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
TRI_API bool tri_progress_is_due(const tri_progress *progress);
/* Shows that `done` units are done, with the text before the bar. It always draws, so ask
 * tri_progress_is_due first. */
TRI_API void tri_progress_update(tri_progress *progress, int64_t done, const char *format, ...)
    TRI_PRINTF(3, 4);
/* Shows a text in the place of the bar until the next update: what is done while no work is
 * counted, such as "evaluating". */
TRI_API void tri_progress_text(tri_progress *progress, const char *format, ...) TRI_PRINTF(2, 3);
/* Prints a line above the bar, which stays (the result of an epoch, say). */
TRI_API void tri_progress_line(tri_progress *progress, const char *format, ...) TRI_PRINTF(2, 3);
/* The time between these (evaluation, saving) is not counted in the seconds and the rate. */
TRI_API void tri_progress_pause(tri_progress *progress);
TRI_API void tri_progress_resume(tri_progress *progress);
/* Seconds since tri_progress_create without the pauses; units per second over this time. */
TRI_API double tri_progress_seconds(const tri_progress *progress);
TRI_API double tri_progress_rate(const tri_progress *progress);

/* --- metrics -------------------------------------------------------------- */

/* A file of JSON lines: one object a record, {"step":10,"epoch":1,"loss":0.51,...}. `trireme plot`
 * draws its curves. */
typedef struct tri_metrics tri_metrics;

typedef struct tri_metric {
    const char *key; /* UTF-8 without quotes, backslashes and control characters */
    double value;    /* whole numbers are written without a point; NaN and infinities as null */
} tri_metric;

/* Opens `path` and removes its contents; with keep_steps >= 0, for a run that resumes there, it
 * keeps the records of "step" <= keep_steps. An incomplete last line is dropped. Missing folders
 * above it are made. What is not a regular file (a pipe, /dev/stderr) is only written to.
 * Errors: INVALID_ARG, IO, NO_MEMORY. */
TRI_API TRI_MUST_CHECK tri_status tri_metrics_open(const char *path, int64_t keep_steps,
                                                   tri_metrics **metrics_out);
TRI_API void tri_metrics_close(tri_metrics *metrics); /* NULL allowed */
/* Writes one record as one line, in one write, whatever the locale. Errors: INVALID_ARG (a key is
 * not as above, or occurs twice), IO (names the file and the reason). */
TRI_API TRI_MUST_CHECK tri_status tri_metrics_write(tri_metrics *metrics, const tri_metric *values,
                                                    int n);
/* Writes these values as one record: tri_metrics_log(m, {"step", 10}, {"loss", 0.5}). In C++ an
 * integer variable needs a cast to double. */
#ifdef __cplusplus
#define tri_metrics_log(metrics, ...) tri_metrics_log_of_list(metrics, {__VA_ARGS__})
#else
#define tri_metrics_log(metrics, ...)                                                              \
    tri_metrics_write(metrics, (const tri_metric[]){__VA_ARGS__},                                  \
                      (int)(sizeof((const tri_metric[]){__VA_ARGS__}) / sizeof(tri_metric)))
#endif

/* Makes a folder for a run: PREFIX1, or PREFIX2, ..., the first of these names that is free, so
 * that programs which start together never share one. "runs/try-" makes runs/try-1; missing folders
 * above it are made. Errors: INVALID_ARG, IO, NO_MEMORY. */
TRI_API TRI_MUST_CHECK tri_status tri_run_folder_create(const char *prefix, int64_t *number_out);

TRI_END_DECLS

#ifdef __cplusplus
template <int n>
inline TRI_MUST_CHECK tri_status tri_metrics_log_of_list(tri_metrics *metrics,
                                                         const tri_metric (&values)[n])
{
    return tri_metrics_write(metrics, values, n);
}
#endif

#endif
