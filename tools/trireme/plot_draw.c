/*
 * plot_draw.c - see plot_draw.h. The only user of cairo.
 */
#include "plot_draw.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <cairo-svg.h>
#include <cairo.h>

#include "base/compiler.h"
#include "base/err.h"

/* The picture, in points; PNG has two pixels for each. */
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
#define PNG_SCALE 2.0
#define FEW_POINTS 60 /* curves of at most so many points show each one */

#define MAX_STEPS 1000 /* a line through more points is thinned out: no eye sees them */

typedef struct colour {
    double r, g, b;
} colour;

/* Okabe and Ito's palette: told apart by everybody, in print too. */
static const colour colours[] = {
    {0.000, 0.447, 0.698}, {0.835, 0.369, 0.000}, {0.000, 0.620, 0.451}, {0.800, 0.475, 0.655},
    {0.902, 0.624, 0.000}, {0.337, 0.706, 0.914}, {0.400, 0.400, 0.400},
};

typedef struct range {
    double min, max;
} range;

/* What one panel is drawn with. */
typedef struct frame {
    cairo_t *cr;
    double left, top, width, height; /* of the area inside the axes */
    range x, y;
} frame;

static void set_colour(cairo_t *cr, int index, double alpha)
{
    const colour *c = &colours[index % (int)TRII_COUNT_OF(colours)];

    cairo_set_source_rgba(cr, c->r, c->g, c->b, alpha);
}

static void set_grey(cairo_t *cr, double level)
{
    cairo_set_source_rgb(cr, level, level, level);
}

/* --- scales --------------------------------------------------------------------------------------
 */

/* 1, 2 or 5 times a power of ten, so that about `count` of them make the span. */
static double nice_step(double span, int count)
{
    double raw = span / count, power = pow(10, floor(log10(raw))), f = raw / power;

    return power * (f < 1.5 ? 1 : f < 3.5 ? 2 : f < 7.5 ? 5 : 10);
}

static void widen(range *r, double v)
{
    if (v < r->min)
        r->min = v;
    if (v > r->max)
        r->max = v;
}

static void settle(range *r, double margin)
{
    double span;

    if (r->min > r->max)
        *r = (range){0, 1};
    span = r->max - r->min;
    if (span <= 0)
        span = fabs(r->max) > 0 ? fabs(r->max) : 1;
    r->min -= margin * span;
    r->max += margin * span;
}

/* Curves begin with a few wild points: y shows what lies between the lowest value and the highest
 * after the first twentieth, and the start only where it is not much higher. */
static range y_range(const plot_panel *panel)
{
    range all = {INFINITY, -INFINITY}, later = all;

    for (int c = 0; c < panel->n; c++) {
        const plot_series *s = panel->curves[c].series;

        for (int i = 0; i < s->n; i++) {
            widen(&all, s->points[i].y);
            if (i >= s->n / 20)
                widen(&later, s->points[i].y);
        }
    }
    if (later.min < later.max && all.max - later.max > 0.5 * (later.max - later.min))
        all.max = later.max;
    if (later.min < later.max && later.min - all.min > 0.5 * (later.max - later.min))
        all.min = later.min;
    settle(&all, 0.06);
    return all;
}

static range x_range(const plot_panel *panels, int n_panels)
{
    range r = {INFINITY, -INFINITY};

    for (int p = 0; p < n_panels; p++) {
        for (int c = 0; c < panels[p].n; c++) {
            const plot_series *s = panels[p].curves[c].series;

            for (int i = 0; i < s->n; i++)
                widen(&r, s->points[i].x);
        }
    }
    settle(&r, 0.015);
    return r;
}

/* --- text ----------------------------------------------------------------------------------------
 */

static void text_at(cairo_t *cr, double x, double y, double align, const char *text)
{
    cairo_text_extents_t e;

    cairo_text_extents(cr, text, &e);
    cairo_move_to(cr, x - align * e.x_advance, y);
    cairo_show_text(cr, text);
}

static void format_tick(double value, double step, char *out, size_t bytes)
{
    int digits = step >= 1 ? 0 : (int)ceil(-log10(step) - 1e-9);

    if (fabs(value) < step / 1000)
        value = 0;
    if (fabs(value) >= 1e6 || digits > 6)
        snprintf(out, bytes, "%g", value);
    else if (fabs(value) >= 10000)
        snprintf(out, bytes, "%.0f,%03.0f", trunc(value / 1000), fmod(fabs(value), 1000));
    else
        snprintf(out, bytes, "%.*f", digits, value);
}

/* --- a panel
 * -------------------------------------------------------------------------------------- */

static double at_x(const frame *f, double x)
{
    return f->left + f->width * (x - f->x.min) / (f->x.max - f->x.min);
}

static double at_y(const frame *f, double y)
{
    return f->top + f->height * (f->y.max - y) / (f->y.max - f->y.min);
}

static void draw_axes(const frame *f)
{
    double step = nice_step(f->y.max - f->y.min, 5);
    char text[48];

    cairo_set_line_width(f->cr, 1);
    cairo_set_font_size(f->cr, 11);
    for (int64_t i = (int64_t)ceil(f->y.min / step); (double)i * step <= f->y.max; i++) {
        double v = (double)i * step, y = floor(at_y(f, v)) + 0.5;

        set_grey(f->cr, 0.90);
        cairo_move_to(f->cr, f->left, y);
        cairo_line_to(f->cr, f->left + f->width, y);
        cairo_stroke(f->cr);
        format_tick(v, step, text, sizeof(text));
        set_grey(f->cr, 0.35);
        text_at(f->cr, f->left - 8, y + 4, 1, text);
    }
    step = nice_step(f->x.max - f->x.min, 8);
    for (int64_t i = (int64_t)ceil(f->x.min / step); (double)i * step <= f->x.max; i++) {
        double v = (double)i * step, x = floor(at_x(f, v)) + 0.5;

        set_grey(f->cr, 0.90);
        cairo_move_to(f->cr, x, f->top);
        cairo_line_to(f->cr, x, f->top + f->height);
        cairo_stroke(f->cr);
        format_tick(v, step, text, sizeof(text));
        set_grey(f->cr, 0.35);
        text_at(f->cr, x, f->top + f->height + 16, 0.5, text);
    }
    set_grey(f->cr, 0.55);
    cairo_move_to(f->cr, f->left - 0.5, f->top);
    cairo_line_to(f->cr, f->left - 0.5, f->top + f->height + 0.5);
    cairo_line_to(f->cr, f->left + f->width, f->top + f->height + 0.5);
    cairo_stroke(f->cr);
}

/* One line through points that come one by one. */
typedef struct pen {
    const frame *f;
    bool drawing;
} pen;

static void pen_to(pen *p, double x, double y)
{
    if (p->drawing)
        cairo_line_to(p->f->cr, at_x(p->f, x), at_y(p->f, y));
    else
        cairo_move_to(p->f->cr, at_x(p->f, x), at_y(p->f, y));
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
    cairo_stroke(f->cr);
}

/* Of `half` points on either side of each: one sum, to which points come and from which they go.
 * Halved, so that it stays finite; anew now and then, so that what was rounded does not stay. */
static void draw_mean(const frame *f, const plot_series *s, int half)
{
    pen p = {f, false};
    int first = 0, end = 0, group = s->n / MAX_STEPS + 1;
    double sum = 0;

    for (int i = 0, steps = 0; i < s->n; i += group, steps++) {
        int want_first = i - half < 0 ? 0 : i - half;
        int want_end = i + half >= s->n ? s->n : i + half + 1;

        if (want_first >= end || steps % 64 == 0) {
            sum = 0;
            first = end = want_first;
        }
        while (end < want_end)
            sum += s->points[end++].y / s->n;
        while (first < want_first)
            sum -= s->points[first++].y / s->n;
        pen_to(&p, s->points[i].x, sum / (end - first) * s->n);
    }
    cairo_stroke(f->cr);
}

/* Curves of many points: the points pale, and over them a running mean that can be read. */
static void draw_curve(const frame *f, const plot_series *s, int index)
{
    bool few = s->n <= FEW_POINTS;

    cairo_save(f->cr);
    cairo_rectangle(f->cr, f->left, f->top - 3, f->width, f->height + 3);
    cairo_clip(f->cr);
    if (!few) {
        set_colour(f->cr, index, 0.22);
        cairo_set_line_width(f->cr, 1);
        draw_points(f, s);
    }
    set_colour(f->cr, index, 1);
    cairo_set_line_width(f->cr, 2);
    draw_mean(f, s, few ? 0 : s->n / 60);
    for (int i = 0; few && i < s->n; i++) {
        cairo_arc(f->cr, at_x(f, s->points[i].x), at_y(f, s->points[i].y), 3.2, 0, 2 * 3.14159265);
        cairo_fill(f->cr);
    }
    cairo_restore(f->cr);
}

static void entry_text(const plot_curve *curve, char *out, size_t bytes)
{
    const plot_series *s = curve->series;

    snprintf(out, bytes, "%s %.4g", curve->label, s->n > 0 ? s->points[s->n - 1].y : 0);
}

static double text_width(cairo_t *cr, double size, const char *text)
{
    cairo_text_extents_t e;

    cairo_set_font_size(cr, size);
    cairo_text_extents(cr, text, &e);
    return e.x_advance;
}

static double entry_width(cairo_t *cr, const plot_curve *curve)
{
    char text[160];

    entry_text(curve, text, sizeof(text));
    return KEY_LINE + text_width(cr, 12, text) + KEY_GAP;
}

/* Names of the curves stand at the right of the title while they fit there, else in lines of
 * their own below it: how many such lines. */
static int legend_lines(cairo_t *cr, const plot_panel *panel)
{
    double all = 0, x = 0, title = 1.2 * text_width(cr, 14, panel->title); /* bold */
    int lines = 1;

    for (int c = 0; c < panel->n; c++) {
        double width = entry_width(cr, &panel->curves[c]);

        all += width;
        if (x > 0 && x + width - KEY_GAP > AXIS) {
            lines++;
            x = 0;
        }
        x += width;
    }
    return title + 24 + all - KEY_GAP <= AXIS ? 0 : lines;
}

static double panel_height(cairo_t *cr, const plot_panel *panel)
{
    return PANEL + LINE * legend_lines(cr, panel);
}

static void draw_legend(const frame *f, const plot_panel *panel)
{
    int lines = legend_lines(f->cr, panel);
    double y = f->top - 14 - LINE * lines, x = 0;

    cairo_select_font_face(f->cr, "sans-serif", CAIRO_FONT_SLANT_NORMAL, CAIRO_FONT_WEIGHT_BOLD);
    cairo_set_font_size(f->cr, 14);
    set_grey(f->cr, 0.1);
    cairo_move_to(f->cr, f->left, y);
    cairo_show_text(f->cr, panel->title);
    cairo_select_font_face(f->cr, "sans-serif", CAIRO_FONT_SLANT_NORMAL, CAIRO_FONT_WEIGHT_NORMAL);
    if (lines == 0) {
        x = AXIS + KEY_GAP;
        for (int c = 0; c < panel->n; c++)
            x -= entry_width(f->cr, &panel->curves[c]);
    } else {
        y += LINE;
    }
    for (int c = 0; c < panel->n; c++) {
        double width = entry_width(f->cr, &panel->curves[c]);
        char text[160];

        if (x > 0 && x + width - KEY_GAP > AXIS + 0.5) {
            x = 0;
            y += LINE;
        }
        set_colour(f->cr, c, 1);
        cairo_set_line_width(f->cr, 3);
        cairo_move_to(f->cr, f->left + x, y - 4);
        cairo_line_to(f->cr, f->left + x + 18, y - 4);
        cairo_stroke(f->cr);
        entry_text(&panel->curves[c], text, sizeof(text));
        set_grey(f->cr, 0.2);
        text_at(f->cr, f->left + x + KEY_LINE, y, 0, text);
        x += width;
    }
}

static void draw_all(cairo_t *cr, const plot_panel *panels, int n_panels, const char *x_label)
{
    range x = x_range(panels, n_panels);
    double top = 0;

    cairo_set_source_rgb(cr, 1, 1, 1);
    cairo_paint(cr);
    cairo_select_font_face(cr, "sans-serif", CAIRO_FONT_SLANT_NORMAL, CAIRO_FONT_WEIGHT_NORMAL);
    cairo_set_line_join(cr, CAIRO_LINE_JOIN_ROUND);
    for (int p = 0; p < n_panels; p++) {
        frame f = {.cr = cr,
                   .left = LEFT,
                   .top = top + TOP + LINE * legend_lines(cr, &panels[p]),
                   .width = AXIS,
                   .height = PANEL - TOP - BOTTOM,
                   .x = x,
                   .y = y_range(&panels[p])};

        draw_axes(&f);
        for (int c = 0; c < panels[p].n; c++)
            draw_curve(&f, panels[p].curves[c].series, c);
        draw_legend(&f, &panels[p]);
        top += panel_height(cr, &panels[p]);
    }
    cairo_set_font_size(cr, 12);
    set_grey(cr, 0.2);
    text_at(cr, LEFT + AXIS / 2, top + 8, 0.5, x_label);
}

/* Of the whole picture; a canvas of one pixel measures the texts. */
static double picture_height(const plot_panel *panels, int n_panels)
{
    cairo_surface_t *surface = cairo_image_surface_create(CAIRO_FORMAT_RGB24, 1, 1);
    cairo_t *cr = cairo_create(surface);
    double height = FOOT;

    cairo_select_font_face(cr, "sans-serif", CAIRO_FONT_SLANT_NORMAL, CAIRO_FONT_WEIGHT_NORMAL);
    for (int p = 0; p < n_panels; p++)
        height += panel_height(cr, &panels[p]);
    cairo_destroy(cr);
    cairo_surface_destroy(surface);
    return height;
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);

    return n >= m && strcmp(text + n - m, end) == 0;
}

tri_status plot_draw(const char *path, const plot_panel *panels, int n_panels, const char *x_label)
{
    double height = picture_height(panels, n_panels);
    bool svg = ends_with(path, ".svg");
    cairo_surface_t *surface;
    cairo_status_t result;
    cairo_t *cr;

    if (!svg && !ends_with(path, ".png"))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: ends neither with .svg nor with .png", path);
    if (svg)
        surface = cairo_svg_surface_create(path, WIDTH, height);
    else
        surface = cairo_image_surface_create(CAIRO_FORMAT_RGB24, (int)(WIDTH * PNG_SCALE),
                                             (int)(height * PNG_SCALE));
    cr = cairo_create(surface);
    if (!svg)
        cairo_scale(cr, PNG_SCALE, PNG_SCALE);
    draw_all(cr, panels, n_panels, x_label);
    result = cairo_status(cr);
    cairo_destroy(cr);
    if (result == CAIRO_STATUS_SUCCESS && !svg)
        result = cairo_surface_write_to_png(surface, path);
    cairo_surface_finish(surface);
    if (result == CAIRO_STATUS_SUCCESS)
        result = cairo_surface_status(surface);
    cairo_surface_destroy(surface);
    if (result != CAIRO_STATUS_SUCCESS)
        return TRII_FAIL(result == CAIRO_STATUS_NO_MEMORY ? TRI_ERR_NO_MEMORY : TRI_ERR_IO,
                         "write %s: %s", path, cairo_status_to_string(result));
    return TRI_OK;
}
