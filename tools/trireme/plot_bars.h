/*
 * plot_bars.h - bars of means with their standard deviations, as a picture.
 */
#ifndef TRIREME_PLOT_BARS_H
#define TRIREME_PLOT_BARS_H

#include "plot_draw.h"

/* A bar for each curve of each panel: the mean of its points, and a line from one standard
 * deviation (of a sample: over n - 1) below it to one above. The axis begins at 0. title and
 * y_label: NULL = none. Errors as plot_draw's. */
tri_status plot_bars(const char *path, const plot_panel *panels, int n_panels, const char *title,
                     const char *y_label) TRI_MUST_CHECK;

#endif
