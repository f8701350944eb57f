/*
 * plot_bars.c - see plot_bars.h.
 */
#include "plot_bars.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "plot_canvas.h"
#include "plot_scale.h"

/* In points. */
#define WIDTH 560.0 /* at least */
#define HEIGHT 300.0
#define LEFT 76.0
#define RIGHT 16.0
#define TOP 26.0
#define TITLE 24.0 /* more above the first panel */
#define LABELS 48.0
#define FOOT 20.0
#define BAR 0.56   /* of its share of the axis */
#define SHARE 64.0 /* at least, which half a line of label needs */
#define CAP 7.0    /* half the width of a line's ends */

typedef struct bar {
    double mean, std;
} bar;

static bar bar_of(const plot_series *s)
{
    bar b = {0, 0};

    for (int i = 0; i < s->n; i++) /* finite, whatever the numbers */
        b.mean += s->points[i].y / s->n;
    for (int i = 0; i < s->n && s->n > 1; i++)
        b.std = hypot(b.std, (s->points[i].y - b.mean) / sqrt(s->n - 1));
    return b;
}

static range range_of(const plot_panel *panel)
{
    range r = {0, 0};

    for (int i = 0; i < panel->n; i++) {
        bar b = bar_of(panel->curves[i].series);

        range_widen(&r, b.mean - b.std);
        range_widen(&r, b.mean + b.std);
    }
    if (r.min >= r.max)
        r.max = 1;
    r.max += r.max > 0 ? 0.12 * (r.max - r.min) : 0; /* for the numbers */
    r.min -= r.min < 0 ? 0.12 * (r.max - r.min) : 0;
    return r;
}

/* In one line, or in two if it is too wide for one and has a space. */
static void draw_label(const frame *f, double x, double width, const char *label)
{
    double y = f->top + f->height + 16;
    const char *middle = label + strlen(label) / 2, *space = NULL;
    char first[sizeof(((plot_curve *)NULL)->label)];

    for (const char *at = label; *at != '\0'; at++) {
        if (*at == ' ' &&
            (space == NULL || fabs((double)(at - middle)) < fabs((double)(space - middle))))
            space = at;
    }
    canvas_font(f->c, 12, false);
    canvas_grey(f->c, 0.2);
    if (space == NULL || canvas_text_width(f->c, label) <= width - 6) {
        canvas_text_within(f->c, x, y, 0.5, width - 6, label);
        return;
    }
    snprintf(first, sizeof(first), "%.*s", (int)(space - label), label);
    canvas_text_within(f->c, x, y, 0.5, width - 6, first);
    canvas_text_within(f->c, x, y + 14, 0.5, width - 6, space + 1);
}

static void draw_bar(const frame *f, int index, int n, const plot_curve *curve)
{
    double share = f->width / n, x = f->left + share * (index + 0.5), zero = frame_y(f, 0);
    bar b = bar_of(curve->series);
    double y = frame_y(f, b.mean), low = frame_y(f, b.mean - b.std);
    double high = frame_y(f, b.mean + b.std);
    char text[32];

    canvas_colour(f->c, index, 1);
    canvas_box(f->c, x - share * BAR / 2, fmin(y, zero), share * BAR, fabs(zero - y));
    canvas_grey(f->c, 0.1);
    if (curve->series->n > 1) {
        canvas_line(f->c, 1.5, x, low, x, high);
        canvas_line(f->c, 1.5, x - CAP, low, x + CAP, low);
        canvas_line(f->c, 1.5, x - CAP, high, x + CAP, high);
    }
    value_text(b.mean, 3, text, sizeof(text));
    canvas_font(f->c, 11, false);
    canvas_text(f->c, x, b.mean < 0 ? low + 14 : high - 6, 0.5, text);
    draw_label(f, x, share, curve->label);
}

static void draw_panel(const frame *f, const plot_panel *panel, const char *y_label)
{
    frame_draw_y(f);
    for (int i = 0; i < panel->n; i++)
        draw_bar(f, i, panel->n, &panel->curves[i]);
    frame_draw_axes(f);
    canvas_font(f->c, 12, false);
    canvas_grey(f->c, 0.2);
    if (y_label != NULL)
        canvas_text_upwards(f->c, 20, f->top + f->height / 2, f->height + TOP, y_label);
}

/* What the bars are: of how many numbers, if that is the same for all. */
static void foot_text(const plot_panel *panels, int n_panels, char *out, size_t bytes)
{
    int n = panels[0].curves[0].series->n;
    bool equal = true;

    for (int p = 0; p < n_panels; p++) {
        for (int i = 0; i < panels[p].n; i++)
            equal = equal && panels[p].curves[i].series->n == n;
    }
    if (equal && n == 1)
        snprintf(out, bytes, "one measurement each");
    else if (equal)
        snprintf(out, bytes, "mean and standard deviation of %d measurements", n);
    else
        snprintf(out, bytes, "mean and standard deviation");
}

static double axis_of(const plot_panel *panels, int n_panels)
{
    double axis = WIDTH - LEFT - RIGHT;

    for (int p = 0; p < n_panels; p++)
        axis = fmax(axis, SHARE * panels[p].n);
    return axis;
}

tri_status plot_bars(const char *path, const plot_panel *panels, int n_panels, const char *title,
                     const char *y_label)
{
    double top = title != NULL ? TITLE : 0, axis = axis_of(panels, n_panels);
    char text[80];
    canvas c;
    tri_status status = canvas_open(&c, path, LEFT + axis + RIGHT, top + n_panels * HEIGHT + FOOT);

    if (status != TRI_OK)
        return status;
    if (title != NULL) {
        canvas_font(&c, 14, true);
        canvas_grey(&c, 0.1);
        canvas_text_within(&c, LEFT, 24, 0, axis, title);
    }
    for (int p = 0; p < n_panels; p++) {
        frame f = {.c = &c,
                   .left = LEFT,
                   .top = top + TOP,
                   .width = axis,
                   .height = HEIGHT - TOP - LABELS,
                   .y = range_of(&panels[p])};

        draw_panel(&f, &panels[p], y_label);
        top += HEIGHT;
    }
    foot_text(panels, n_panels, text, sizeof(text));
    canvas_font(&c, 11, false);
    canvas_grey(&c, 0.4);
    canvas_text(&c, LEFT + axis / 2, top + 6, 0.5, text);
    return canvas_close(&c);
}
