/*
 * plot_scale.c - see plot_scale.h.
 */
#include "plot_scale.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

void range_widen(range *r, double v)
{
    if (v < r->min)
        r->min = v;
    if (v > r->max)
        r->max = v;
}

void range_settle(range *r, double margin)
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

double scale_step(double span, int count)
{
    double raw = span / count, power = pow(10, floor(log10(raw))), f = raw / power;

    return power * (f < 1.5 ? 1 : f < 3.5 ? 2 : f < 7.5 ? 5 : 10);
}

void scale_text(double value, double step, char *out, size_t bytes)
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

void value_text(double value, int digits, char *out, size_t bytes)
{
    snprintf(out, bytes, "%#.*g", digits, value);
    if (out[strlen(out) - 1] == '.')
        out[strlen(out) - 1] = '\0';
}

double frame_x(const frame *f, double x)
{
    return f->left + f->width * (x - f->x.min) / (f->x.max - f->x.min);
}

double frame_y(const frame *f, double y)
{
    return f->top + f->height * (f->y.max - y) / (f->y.max - f->y.min);
}

void frame_draw_y(const frame *f)
{
    double step = scale_step(f->y.max - f->y.min, 5);
    char text[48];

    canvas_font(f->c, 11, false);
    for (int64_t i = (int64_t)ceil(f->y.min / step); (double)i * step <= f->y.max; i++) {
        double v = (double)i * step, y = floor(frame_y(f, v)) + 0.5;

        canvas_grey(f->c, 0.90);
        canvas_line(f->c, 1, f->left, y, f->left + f->width, y);
        scale_text(v, step, text, sizeof(text));
        canvas_grey(f->c, 0.35);
        canvas_text(f->c, f->left - 8, y + 4, 1, text);
    }
}

void frame_draw_x(const frame *f)
{
    double step = scale_step(f->x.max - f->x.min, 8);
    char text[48];

    if (f->whole && step < 1)
        step = 1;
    canvas_font(f->c, 11, false);
    for (int64_t i = (int64_t)ceil(f->x.min / step); (double)i * step <= f->x.max; i++) {
        double v = (double)i * step, x = floor(frame_x(f, v)) + 0.5;

        canvas_grey(f->c, 0.90);
        canvas_line(f->c, 1, x, f->top, x, f->top + f->height);
        scale_text(v, step, text, sizeof(text));
        canvas_grey(f->c, 0.35);
        canvas_text(f->c, x, f->top + f->height + 16, 0.5, text);
    }
}

void frame_draw_axes(const frame *f)
{
    canvas_grey(f->c, 0.55);
    canvas_move_to(f->c, f->left - 0.5, f->top);
    canvas_line_to(f->c, f->left - 0.5, f->top + f->height + 0.5);
    canvas_line_to(f->c, f->left + f->width, f->top + f->height + 0.5);
    canvas_stroke(f->c, 1);
}
