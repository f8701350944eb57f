/*
 * plot_draw.h - panels of curves, as an SVG or PNG picture.
 */
#ifndef TRIREME_PLOT_DRAW_H
#define TRIREME_PLOT_DRAW_H

#include "plot_read.h"

#define PLOT_MAX_CURVES 16
#define PLOT_MAX_PANELS 8

typedef struct plot_curve {
    const plot_series *series;
    char label[96];
} plot_curve;

typedef struct plot_panel {
    char title[64];
    plot_curve curves[PLOT_MAX_CURVES];
    int n;
} plot_panel;

/* One below the other, on one x axis. The kind is the path's ending, .svg or .png. Errors:
 * INVALID_ARG (another ending), IO, NO_MEMORY. */
tri_status plot_draw(const char *path, const plot_panel *panels, int n_panels,
                     const char *x_label) TRI_MUST_CHECK;

#endif
