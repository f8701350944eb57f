/*
 * plot_scale.h - from values to places: the range of an axis and its ticks.
 */
#ifndef TRIREME_PLOT_SCALE_H
#define TRIREME_PLOT_SCALE_H

#include <stddef.h>

#include "plot_canvas.h"

typedef struct range {
    double min, max;
} range;

/* One panel: the area inside its axes and what these show. */
typedef struct frame {
    canvas *c;
    double left, top, width, height;
    range x, y;
    bool whole; /* x: nothing lies between two integers, so no number of the axis does */
} frame;

#define RANGE_NONE ((range){INFINITY, -INFINITY})
void range_widen(range *r, double v);
/* So much of its span more on either side; not empty. */
void range_settle(range *r, double margin);

/* 1, 2 or 5 times a power of ten, so that about `count` of them make the span. */
double scale_step(double span, int count);
/* A value between which and the next there is `step`. */
void scale_text(double value, double step, char *out, size_t bytes);

/* So many digits, zeros included: 1.90 beside 1.63. */
void value_text(double value, int digits, char *out, size_t bytes);

double frame_x(const frame *f, double x);
double frame_y(const frame *f, double y);
/* Lines at round values, with their numbers at the left or below. */
void frame_draw_y(const frame *f);
void frame_draw_x(const frame *f);
/* The two axes, over those lines. */
void frame_draw_axes(const frame *f);

#endif
