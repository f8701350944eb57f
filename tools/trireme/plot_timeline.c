/*
 * plot_timeline.c - see plot_timeline.h.
 */
#include "plot_timeline.h"

#include <math.h>
#include <stdio.h>

#include "plot_canvas.h"
#include "plot_scale.h"

/* In points. */
#define WIDTH 960.0
#define LEFT 84.0
#define RIGHT 22.0
#define TOP 40.0
#define TITLE 24.0 /* more, with one */
#define ROW 56.0
#define BOX 38.0 /* of a row */
#define FOOT 48.0
#define KEY 11.0
#define KEY_GAP 16.0
#define BORDER 1.0 /* between pieces */
#define NEAR 0.15  /* boxes of one colour and piece that are no farther apart become one */

/* A unit in which the axis has numbers that are neither long nor small. */
static double unit_of(double us, const char **name)
{
    *name = us >= 2e6 ? "seconds" : us >= 2e3 ? "milliseconds" : "microseconds";
    return us >= 2e6 ? 1e6 : us >= 2e3 ? 1e3 : 1;
}

/* Events of one colour, and of one piece, that lie side by side. */
typedef struct box {
    int category, piece; /* category -1: none */
    double from, to;
} box;

/* With a border to the piece before, and the piece's number where that fits. */
static void draw_box(const frame *f, const box *b, double top)
{
    char text[16];

    if (b->category < 0)
        return;
    canvas_colour(f->c, b->category, 1);
    canvas_box(f->c, b->from, top, b->to - b->from, BOX);
    if (b->piece == 0)
        return;
    canvas_grey(f->c, 1);
    if (b->to - b->from > 4 * BORDER)
        canvas_box(f->c, b->from, top, BORDER, BOX);
    canvas_font(f->c, 11, true);
    snprintf(text, sizeof(text), "%d", b->piece);
    if (canvas_text_width(f->c, text) + 4 <= b->to - b->from)
        canvas_text(f->c, (b->from + b->to) / 2, top + BOX / 2 + 4, 0.5, text);
}

static void draw_row(const frame *f, const trace_run *run, int row, double unit)
{
    double top = f->top + ROW * row + (ROW - BOX) / 2;
    box b = {.category = -1};

    canvas_grey(f->c, 0.96);
    canvas_box(f->c, f->left, top, f->width, BOX);
    for (int i = 0; i < run->n; i++) {
        const trace_event *e = &run->events[i];
        double begin = frame_x(f, e->begin / unit);

        if (e->row != row)
            continue;
        if (begin > b.to + NEAR || e->category != b.category || e->piece != b.piece) {
            draw_box(f, &b, top);
            b = (box){e->category, e->piece, begin, begin};
        }
        b.to = frame_x(f, (e->begin + e->us) / unit);
    }
    draw_box(f, &b, top);
}

static void draw_name(const frame *f, const trace_run *run, int row)
{
    double middle = f->top + ROW * (row + 0.5);
    char text[64];

    canvas_font(f->c, 12, true);
    canvas_grey(f->c, 0.1);
    canvas_text(f->c, f->left - 10, middle - 2, 1, run->rows[row].name);
    canvas_font(f->c, 11, false);
    canvas_grey(f->c, 0.35);
    snprintf(text, sizeof(text), "%.0f %% busy", 100 * run->rows[row].busy / run->us);
    canvas_text(f->c, f->left - 10, middle + 13, 1, text);
}

/* Of what there is. */
static void draw_keys(const frame *f, const trace_run *run, double y)
{
    bool there[TRACE_CATEGORIES] = {false}, pieces = false;
    double x = f->left;

    for (int i = 0; i < run->n; i++) {
        there[run->events[i].category] = true;
        pieces = pieces || run->events[i].piece > 0;
    }
    canvas_font(f->c, 12, false);
    for (int k = 0; k < TRACE_CATEGORIES; k++) {
        if (!there[k])
            continue;
        canvas_colour(f->c, k, 1);
        canvas_box(f->c, x, y - KEY + 1, KEY, KEY);
        canvas_grey(f->c, 0.2);
        canvas_text(f->c, x + KEY + 5, y, 0, trace_categories[k]);
        x += KEY + 5 + canvas_text_width(f->c, trace_categories[k]) + KEY_GAP;
    }
    canvas_grey(f->c, 0.4);
    if (pieces)
        canvas_text(f->c, f->left + f->width, y, 1, "numbers: pieces of the batch");
}

tri_status plot_timeline(const char *path, const trace_run *run, const char *title)
{
    double top = TOP + (title != NULL ? TITLE : 0);
    const char *unit_name;
    double unit = unit_of(run->us, &unit_name);
    canvas c;
    frame f = {.c = &c,
               .left = LEFT,
               .top = top,
               .width = WIDTH - LEFT - RIGHT,
               .height = ROW * run->n_rows,
               .x = {0, run->us / unit}};
    tri_status status = canvas_open(&c, path, WIDTH, top + f.height + FOOT);

    if (status != TRI_OK)
        return status;
    if (title != NULL) {
        canvas_font(&c, 14, true);
        canvas_grey(&c, 0.1);
        canvas_text_within(&c, LEFT, 24, 0, f.width, title);
    }
    draw_keys(&f, run, top - 14);
    frame_draw_x(&f);
    for (int l = 0; l < run->n_rows; l++) {
        draw_row(&f, run, l, unit);
        draw_name(&f, run, l);
    }
    frame_draw_axes(&f);
    canvas_font(&c, 12, false);
    canvas_grey(&c, 0.2);
    canvas_text(&c, LEFT + f.width / 2, top + f.height + 36, 0.5, unit_name);
    return canvas_close(&c);
}
