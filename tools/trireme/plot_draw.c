/*
 * plot_draw.c - see plot_draw.h.
 */
#include "plot_draw.h"

#include <math.h>
#include <stdio.h>

#include "plot_canvas.h"
#include "plot_scale.h"

/* The picture, in points. */
#define WIDTH 760.0
#define PANEL 270.0
#define LEFT 66.0
#define RIGHT 22.0
#define TOP 44.0
#define BOTTOM 30.0
#define FOOT 22.0
#define AXIS (WIDTH - LEFT - RIGHT)
#define LINE 18.0     /* of the legend */
#define KEY_LINE 24.0 /* before a name in the legend */
#define KEY_GAP 18.0  /* after it */
#define FEW_POINTS 60 /* curves of at most so many points show each one */

#define WILD 4.0       /* times the height of the rest: so much higher a start is left out */
#define SMOOTH 40.0    /* a mean is over so large a part of the axis on either side of its point */
#define MAX_STEPS 1000 /* a line through more points is thinned out: no eye sees them */

/* From the lowest value to the highest. But where the first twentieth of the curves is so wild that
 * nothing could be seen of the rest, only what comes after it; draw_hidden says so. */
static range y_range(const plot_panel *panel, range *all_out)
{
    range all = RANGE_NONE, later = all;
    double span;

    for (int c = 0; c < panel->n; c++) {
        const plot_series *s = panel->curves[c].series;

        for (int i = 0; i < s->n; i++) {
            range_widen(&all, s->points[i].y);
            if (i >= s->n / 20)
                range_widen(&later, s->points[i].y);
        }
    }
    *all_out = all;
    span = WILD * (later.max - later.min);
    if (later.min < later.max && all.max - later.max > span)
        all.max = later.max;
    if (later.min < later.max && later.min - all.min > span)
        all.min = later.min;
    range_settle(&all, 0.06);
    return all;
}

static range x_range(const plot_panel *panels, int n_panels, bool *whole_out)
{
    range r = RANGE_NONE;

    *whole_out = true;
    for (int p = 0; p < n_panels; p++) {
        for (int c = 0; c < panels[p].n; c++) {
            const plot_series *s = panels[p].curves[c].series;

            for (int i = 0; i < s->n; i++) {
                range_widen(&r, s->points[i].x);
                *whole_out = *whole_out && s->points[i].x == floor(s->points[i].x);
            }
        }
    }
    range_settle(&r, 0.015);
    return r;
}

/* --- a panel -------------------------------------------------------------- */

/* One line through points that come one by one. */
typedef struct pen {
    const frame *f;
    bool drawing;
} pen;

static void pen_to(pen *p, double x, double y)
{
    if (p->drawing)
        canvas_line_to(p->f->c, frame_x(p->f, x), frame_y(p->f, y));
    else
        canvas_move_to(p->f->c, frame_x(p->f, x), frame_y(p->f, y));
    p->drawing = true;
}

/* Every point, or of as many neighbours as fall together the lowest and the highest. */
static void draw_points(const frame *f, const plot_series *s)
{
    pen p = {f, false};
    int group = s->n / MAX_STEPS + 1;

    for (int first = 0; first < s->n; first += group) {
        int end = first + group < s->n ? first + group : s->n, low = first, high = first;

        for (int i = first; i < end; i++) {
            low = s->points[i].y < s->points[low].y ? i : low;
            high = s->points[i].y > s->points[high].y ? i : high;
        }
        pen_to(&p, s->points[low < high ? low : high].x, s->points[low < high ? low : high].y);
        if (low != high)
            pen_to(&p, s->points[low < high ? high : low].x, s->points[low < high ? high : low].y);
    }
    canvas_stroke(f->c, 1);
}

/* The mean of the points near one: one sum, to which points come and from which they go, halved so
 * that it stays finite. A point counts for as much of the axis as it is away from the one before:
 * the last one of an epoch may stand for few steps. */
typedef struct mean {
    const plot_series *s;
    bool sorted; /* else each point is one away from the next */
    double span, reach;
    int first, end, taken; /* the points in the sum */
    double sum, weights;
} mean;

static double place_of(const mean *m, int i)
{
    return m->sorted ? (m->s->points[i].x - m->s->points[0].x) / m->span
                     : (double)i / (m->s->n - 1);
}

static double weight_of(const mean *m, int i)
{
    return i > 0 ? place_of(m, i) - place_of(m, i - 1) : place_of(m, 1);
}

static mean mean_begin(const plot_series *s)
{
    mean m = {.s = s, .reach = s->n > FEW_POINTS ? 1 / SMOOTH : -1};

    m.span = s->n > 1 ? s->points[s->n - 1].x - s->points[0].x : 0;
    m.sorted = m.span > 0;
    for (int i = 1; i < s->n; i++)
        m.sorted = m.sorted && s->points[i].x >= s->points[i - 1].x;
    return m;
}

static void mean_take(mean *m, int i, double sign)
{
    double weight = weight_of(m, i);

    m->weights += sign * weight;
    m->sum += sign * weight * (m->s->points[i].y / 2);
}

/* Of the points around number i, which does not become smaller. */
static double mean_at(mean *m, int i)
{
    double here = m->reach > 0 ? place_of(m, i) : 0;

    if (m->reach <= 0)
        return m->s->points[i].y;
    while (m->first < m->end && place_of(m, m->first) < here - m->reach)
        mean_take(m, m->first++, -1);
    if (m->taken++ % 64 == 0) { /* again from nothing, so that what was rounded does not stay */
        m->end = m->first;
        m->sum = m->weights = 0;
    }
    while (m->end < m->s->n && place_of(m, m->end) <= here + m->reach)
        mean_take(m, m->end++, 1);
    return m->weights > 0 ? m->sum / m->weights * 2 : m->s->points[i].y;
}

static void draw_mean(const frame *f, const plot_series *s)
{
    pen p = {f, false};
    mean m = mean_begin(s);
    int group = s->n / MAX_STEPS + 1, last = s->n - 1;

    for (int i = 0; i < s->n; i += i < last && i + group > last ? last - i : group)
        pen_to(&p, s->points[i].x, mean_at(&m, i));
    canvas_stroke(f->c, 2);
}

/* Where the line that can be read ends. */
static double end_of(const plot_series *s)
{
    mean m = mean_begin(s);

    if (s->n == 0)
        return 0;
    while (m.reach > 0 && place_of(&m, m.first) < 1 - m.reach)
        m.end = ++m.first;
    return mean_at(&m, s->n - 1);
}

static bool is_smoothed(const plot_series *s)
{
    return s->n > FEW_POINTS;
}

/* Curves of many points: the points pale, and over them a running mean that can be read. */
static void draw_curve(const frame *f, const plot_series *s, int index)
{
    canvas_clip(f->c, f->left, f->top - 3, f->width, f->height + 3);
    if (is_smoothed(s)) {
        canvas_colour(f->c, index, 0.22);
        draw_points(f, s);
    }
    canvas_colour(f->c, index, 1);
    draw_mean(f, s);
    for (int i = 0; !is_smoothed(s) && i < s->n; i++)
        canvas_dot(f->c, frame_x(f, s->points[i].x), frame_y(f, s->points[i].y), 3.2);
    canvas_unclip(f->c);
}

/* What y_range has left out. */
static void draw_hidden(const frame *f, range all)
{
    char text[80];

    canvas_font(f->c, 11, false);
    canvas_grey(f->c, 0.35);
    if (all.max > f->y.max) {
        snprintf(text, sizeof(text), "the first steps reach up to %.3g", all.max);
        canvas_text(f->c, f->left + 8, f->top + 10, 0, text);
    }
    if (all.min < f->y.min) {
        snprintf(text, sizeof(text), "the first steps reach down to %.3g", all.min);
        canvas_text(f->c, f->left + 8, f->top + f->height - 6, 0, text);
    }
}

static void entry_text(const plot_curve *curve, char *out, size_t bytes)
{
    char number[32];

    value_text(end_of(curve->series), 4, number, sizeof(number));
    snprintf(out, bytes, "%s %s", curve->label, number);
}

static double entry_width(canvas *c, const plot_curve *curve)
{
    char text[160];

    entry_text(curve, text, sizeof(text));
    canvas_font(c, 12, false);
    return KEY_LINE + canvas_text_width(c, text) + KEY_GAP;
}

/* Names of the curves stand at the right of the title while they fit there, else in lines of
 * their own below it: how many such lines. */
static int legend_lines(canvas *c, const plot_panel *panel)
{
    double all = 0, x = 0, title;
    int lines = 1;

    canvas_font(c, 14, true);
    title = canvas_text_width(c, panel->title);
    for (int i = 0; i < panel->n; i++) {
        double width = entry_width(c, &panel->curves[i]);

        all += width;
        if (x > 0 && x + width - KEY_GAP > AXIS) {
            lines++;
            x = 0;
        }
        x += width;
    }
    return title + 24 + all - KEY_GAP <= AXIS ? 0 : lines;
}

static double panel_height(canvas *c, const plot_panel *panel)
{
    return PANEL + LINE * legend_lines(c, panel);
}

static void draw_legend(const frame *f, const plot_panel *panel)
{
    int lines = legend_lines(f->c, panel);
    double y = f->top - 14 - LINE * lines, x = 0;

    canvas_font(f->c, 14, true);
    canvas_grey(f->c, 0.1);
    canvas_text(f->c, f->left, y, 0, panel->title);
    if (lines == 0) {
        x = AXIS + KEY_GAP;
        for (int i = 0; i < panel->n; i++)
            x -= entry_width(f->c, &panel->curves[i]);
    } else {
        y += LINE;
    }
    for (int i = 0; i < panel->n; i++) {
        double width = entry_width(f->c, &panel->curves[i]);
        char text[160];

        if (x > 0 && x + width - KEY_GAP > AXIS + 0.5) {
            x = 0;
            y += LINE;
        }
        canvas_colour(f->c, i, 1);
        canvas_line(f->c, 3, f->left + x, y - 4, f->left + x + 18, y - 4);
        entry_text(&panel->curves[i], text, sizeof(text));
        canvas_grey(f->c, 0.2);
        canvas_text(f->c, f->left + x + KEY_LINE, y, 0, text);
        x += width;
    }
}

static void draw_all(canvas *c, const plot_panel *panels, int n_panels, const char *x_label)
{
    bool whole, smoothed = false;
    range x = x_range(panels, n_panels, &whole), all;
    double top = 0;

    for (int p = 0; p < n_panels; p++) {
        frame f = {.c = c,
                   .left = LEFT,
                   .top = top + TOP + LINE * legend_lines(c, &panels[p]),
                   .width = AXIS,
                   .height = PANEL - TOP - BOTTOM,
                   .x = x,
                   .whole = whole,
                   .y = y_range(&panels[p], &all)};

        frame_draw_y(&f);
        frame_draw_x(&f);
        frame_draw_axes(&f);
        for (int i = 0; i < panels[p].n; i++)
            draw_curve(&f, panels[p].curves[i].series, i);
        for (int i = 0; i < panels[p].n; i++)
            smoothed = smoothed || is_smoothed(panels[p].curves[i].series);
        draw_hidden(&f, all);
        draw_legend(&f, &panels[p]);
        top += panel_height(c, &panels[p]);
    }
    canvas_font(c, 12, false);
    canvas_grey(c, 0.2);
    canvas_text(c, LEFT + AXIS / 2, top + 8, 0.5, x_label);
    if (!smoothed)
        return;
    canvas_font(c, 11, false);
    canvas_grey(c, 0.4);
    canvas_text(c, LEFT + AXIS, top + 8, 1, "pale: as recorded, bold: means of neighbours");
}

tri_status plot_draw(const char *path, const plot_panel *panels, int n_panels, const char *x_label)
{
    double height = FOOT;
    canvas c;
    tri_status status = canvas_open(&c, NULL, 0, 0);

    if (status != TRI_OK)
        return status;
    for (int p = 0; p < n_panels; p++)
        height += panel_height(&c, &panels[p]);
    status = canvas_close(&c);
    if (status == TRI_OK)
        status = canvas_open(&c, path, WIDTH, height);
    if (status != TRI_OK)
        return status;
    draw_all(&c, panels, n_panels, x_label);
    return canvas_close(&c);
}
