/*
 * plot_canvas.h - what pictures are drawn with: an SVG or PNG file, in points from the top left. A
 * PNG has two pixels for each.
 */
#ifndef TRIREME_PLOT_CANVAS_H
#define TRIREME_PLOT_CANVAS_H

#include <stdbool.h>
#include <stddef.h>

#include <trireme/status.h>

typedef struct canvas {
    struct _cairo *cr;
    struct _cairo_surface *surface;
    struct picture *file; /* what will be written */
    const char *path;     /* the caller's */
    bool svg;
} canvas;

/* Whether it ends with .svg or .png. */
bool canvas_can_draw(const char *path);
/* The kind is the path's ending, .svg or .png; NULL: it draws nothing and measures texts. White, in
 * a sans-serif font. Errors: NO_MEMORY. */
tri_status canvas_open(canvas *c, const char *path, double width, double height) TRI_MUST_CHECK;
/* Writes the file; what was there before stays if that fails. IO, NOT_FOUND, NO_MEMORY; also if
 * something before has failed. */
tri_status canvas_close(canvas *c) TRI_MUST_CHECK;

/* A colour of the palette, which begins again after its last. */
void canvas_colour(canvas *c, int index, double alpha);
void canvas_grey(canvas *c, double level); /* 0 = black */

void canvas_font(canvas *c, double size, bool bold);
double canvas_text_width(canvas *c, const char *text);
/* align: the share of the text that is left of x. */
void canvas_text(canvas *c, double x, double y, double align, const char *text);
/* The same, its end left out where it is wider than that. */
void canvas_text_within(canvas *c, double x, double y, double align, double width,
                        const char *text);
/* Upwards, its middle at y, no longer than height. */
void canvas_text_upwards(canvas *c, double x, double y, double height, const char *text);

void canvas_move_to(canvas *c, double x, double y);
void canvas_line_to(canvas *c, double x, double y);
void canvas_stroke(canvas *c, double width);
void canvas_line(canvas *c, double width, double x0, double y0, double x1, double y1);
void canvas_box(canvas *c, double x, double y, double width, double height); /* filled */
void canvas_dot(canvas *c, double x, double y, double radius);
/* Nothing is drawn outside of it until canvas_unclip. */
void canvas_clip(canvas *c, double x, double y, double width, double height);
void canvas_unclip(canvas *c);

#endif
