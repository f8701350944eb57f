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
 * Errors: INVALID_ARG, IO, NOT_FOUND (the folder was removed meanwhile), NO_MEMORY. */
TRI_API TRI_MUST_CHECK tri_status tri_metrics_open(const char *path, int64_t keep_steps,
                                                   tri_metrics **metrics_out);
TRI_API void tri_metrics_close(tri_metrics *metrics); /* NULL allowed */
/* Writes one record as one line, in one write, whole or (in a regular file) not at all, whatever
 * the locale. Errors: INVALID_ARG (a key is not as above, or occurs twice), IO (names the file and
 * the reason). */
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

/* --- metrics as a table --------------------------------------------------- */

/* A CSV file (RFC 4180) for spreadsheets and pandas: a line of names, then one a record. Columns
 * are in the order of their first value, and what a record lacks is an empty cell. The first record
 * with a new column rewrites the file, under another name until it is whole. */
typedef struct tri_csv tri_csv;

/* As tri_metrics_open, but for a regular file only; keep_steps is compared with the column "step".
 * Errors: also FORMAT (the file that is to be continued is no table). */
TRI_API TRI_MUST_CHECK tri_status tri_csv_open(const char *path, int64_t keep_steps,
                                               tri_csv **csv_out);
TRI_API void tri_csv_close(tri_csv *csv); /* NULL allowed */
/* Writes one record, whole or not at all, whatever the locale. Keys are UTF-8 without control
 * characters; NaN and infinities are nan, inf and -inf. Errors: INVALID_ARG (a key is not as said,
 * or occurs twice), IO (names the file and the reason), NOT_FOUND (the file or its folder was
 * removed, which shows when a column is new), NO_MEMORY. */
TRI_API TRI_MUST_CHECK tri_status tri_csv_write(tri_csv *csv, const tri_metric *values, int n);

/* --- TensorBoard ---------------------------------------------------------- */

/* An event file in a folder, as `tensorboard --logdir` shows it. What is recorded is copied, and a
 * thread writes it within some seconds, so training does not wait for the disk. Records are written
 * whole: a run that is killed loses the last seconds and nothing else.
 *
 * Names (tags) are UTF-8 and not empty; those with the same text before a slash are shown together.
 * Any thread may call. A record that could not be written is told by the next call, which then
 * takes nothing, and by close. A child of fork() opens one of its own: there, calls fail with
 * STATE. The errors of all are INVALID_ARG, IO (names the file and the reason), NO_MEMORY and
 * STATE. */
typedef struct tri_tensorboard tri_tensorboard;

typedef struct tri_tensorboard_open_options {
    /* a run that is resumed after this step: points of later steps which older files of the folder
     * have are not shown any more; default, or negative: they are */
    tri_opt keep_steps;
    tri_opt flush_seconds; /* how long a record may wait before it is written; default 5 */
    TRI_RESERVED(4);
} tri_tensorboard_open_options;

/* Begins a file in the folder, whose name sorts after those of older ones. Missing folders are
 * made. */
TRI_API TRI_MUST_CHECK tri_status tri_tensorboard_open(const char *folder,
                                                       const tri_tensorboard_open_options *opt,
                                                       tri_tensorboard **board_out);
/* One point of a curve, kept as f32. */
TRI_API TRI_MUST_CHECK tri_status tri_tensorboard_scalar(tri_tensorboard *board, const char *tag,
                                                         int64_t step, double value);
/* How n values are distributed, in PyTorch's default buckets: 0 and +-1e-12 x 1.1^k up to 1e20, of
 * which the empty ones at both ends are left out. Values beyond +-1e20 are counted in the buckets
 * at the ends, NaN and infinities in none. dtype: f32, f64, i64, i32 or u8. */
TRI_API TRI_MUST_CHECK tri_status tri_tensorboard_histogram(tri_tensorboard *board, const char *tag,
                                                            int64_t step, const void *values,
                                                            int64_t n, tri_dtype dtype);
/* A picture of bytes, TRI_SHAPE(3, 224, 224) say, of 1 (grey), 3 (RGB) or 4 (RGBA) channels.
 * layout: "CHW" (also NULL), "HWC", or "HW" for grey without that dimension. The calling thread
 * makes a PNG of it. */
TRI_API TRI_MUST_CHECK tri_status tri_tensorboard_image(tri_tensorboard *board, const char *tag,
                                                        int64_t step, const uint8_t *pixels,
                                                        const int64_t *shape, int ndim,
                                                        const char *layout);
/* Markdown. UTF-8. */
TRI_API TRI_MUST_CHECK tri_status tri_tensorboard_text(tri_tensorboard *board, const char *tag,
                                                       int64_t step, const char *text);

typedef struct tri_hparam {
    const char *name;
    double value;
    const char *text; /* in place of the value, unless NULL */
} tri_hparam;

/* What a run was started with, and what came out, for the table that compares runs: a file of its
 * own in FOLDER/run_name (NULL = "hparams"), complete on return. Of several calls with one name the
 * last counts. */
TRI_API TRI_MUST_CHECK tri_status tri_tensorboard_hparams(tri_tensorboard *board,
                                                          const char *run_name,
                                                          const tri_hparam *hparams, int n_hparams,
                                                          const tri_metric *metrics, int n_metrics);
/* Waits until what was recorded is in the file. */
TRI_API TRI_MUST_CHECK tri_status tri_tensorboard_flush(tri_tensorboard *board);
/* Writes what is left and ends the board, whatever it returns. NULL allowed. IO: says how many
 * records are missing, told before or not. */
TRI_API TRI_MUST_CHECK tri_status tri_tensorboard_close(tri_tensorboard *board);

/* --- folders of runs ------------------------------------------------------ */

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
