/*
 * plot_read.h - metrics files as series of points.
 */
#ifndef TRIREME_PLOT_READ_H
#define TRIREME_PLOT_READ_H

#include <trireme/status.h>

typedef struct plot_point {
    double x, y;
} plot_point;

/* One key of one file. */
typedef struct plot_series {
    int file; /* its index */
    char *key;
    plot_point *points;
    int n, room;
} plot_series;

typedef struct plot_data {
    plot_series *series;
    int n, room;
    const char *const *files; /* as given; the caller's */
    int n_files;
} plot_data;

/* Adds every number of every record of a file, over the record's number under `x_key`; records
 * without it are left out, and so are a last record that is cut short, and what is NaN or infinite.
 * Points are within +-1e300, those nearer to 0 than 1e-300 are 0: no picture shows more, and
 * differences can be computed.
 *
 * A file is JSON lines (blank lines are left out, and NaN may be written as Python does), a CSV
 * file if its name ends in .csv, or an event file of TensorBoard, which is seen by its name or
 * contents; a folder is the event files in it, one run. Errors: NOT_FOUND, IO, FORMAT (names file
 * and line or byte), NO_MEMORY, UNSUPPORTED (event files have steps only). */
tri_status plot_read(const char *path, const char *x_key, plot_data *data) TRI_MUST_CHECK;
void plot_data_fini(plot_data *data);

/* --- of the readers ------------------------------------------------------- */

/* A point of the file that is read. */
tri_status plot_add(plot_data *data, const char *key, double x, double y) TRI_MUST_CHECK;
/* Its points from there on are void. */
void plot_drop_from(plot_data *data, double x);
tri_status plot_read_table(const char *path, const char *text, size_t bytes, const char *x_key,
                           plot_data *data) TRI_MUST_CHECK;
bool plot_has_events(const char *path, const void *contents, size_t bytes);
tri_status plot_read_events(const char *path, const void *contents, size_t bytes, const char *x_key,
                            plot_data *data) TRI_MUST_CHECK;

#endif
