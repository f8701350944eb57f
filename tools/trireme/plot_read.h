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

/* Adds every number of every record of a JSON lines file, over the record's number under `x_key`;
 * records without it are left out, and so are a last line that is cut short, blank lines and what
 * is NaN or infinite, as Python writes it too. Points are within +-1e300, those nearer to 0 than
 * 1e-300 are 0: no picture shows more, and differences can be computed. Errors: NOT_FOUND, IO,
 * FORMAT (names file and line), NO_MEMORY. */
tri_status plot_read(const char *path, const char *x_key, plot_data *data) TRI_MUST_CHECK;
void plot_data_fini(plot_data *data);

#endif
