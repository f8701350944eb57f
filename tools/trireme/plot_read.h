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
    char *file; /* as given */
    char *key;
    plot_point *points;
    int n, room;
} plot_series;

typedef struct plot_data {
    plot_series *series;
    int n, room;
    int n_files;
} plot_data;

/* Adds every number of every record of a JSON lines file, over the record's number under `x_key`;
 * records without it are left out. A last line that is cut short is left out. Errors: NOT_FOUND,
 * IO, FORMAT (names file and line), NO_MEMORY. */
tri_status plot_read(const char *path, const char *x_key, plot_data *data) TRI_MUST_CHECK;
void plot_data_fini(plot_data *data);

#endif
