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
#define LEFT 84.0 /* at least: names may be longer */
#define MOST_LEFT 300.0
#define RIGHT 22.0
#define TOP 40.0
#define TITLE 24.0 /* more, with one */
#define ROW 56.0
#define BOX 38.0 /* of a row */
#define FOOT 48.0
#define KEY 11.0
#define KEY_GAP 16.0
#define KEY_LINE 18.0
#define BORDER 1.0 /* between pieces */
#define NEAR 0.15  /* boxes of one colour and piece that are no farther apart become one */

#define INPUTS_COLOUR 7 /* the palette's last; TRACE_UPDATE and so on have those before */

/* A unit in which the axis has numbers that are neither long nor small. */
static double unit_of(double us, const char **name)
{
    *name = us >= 2e6 ? "seconds" : us >= 2e3 ? "milliseconds" : "microseconds";
    return us >= 2e6 ? 1e6 : us >= 2e3 ? 1e3 : 1;
}

/* Events of one colour, and of one piece, that lie side by side. */
typedef struct box {
    int category, piece, stage; /* category -1: none */
    double from, to;
} box;

/* The second half of a backward never stands where something else is. */
static int colour_of(int category)
{
    return category == TRACE_INPUTS    ? INPUTS_COLOUR
           : category == TRACE_WEIGHTS ? TRACE_OTHER
                                       : category;
}

/* In the middle, if it fits. */
static bool draw_label(const frame *f, const box *b, double top, const char *text)
{
    if (canvas_text_width(f->c, text) + 4 > b->to - b->from)
        return false;
    canvas_text(f->c, (b->from + b->to) / 2, top + BOX / 2 + 4, 0.5, text);
    return true;
}

/* With a border to the piece before, and the piece's number where that fits. */
static void draw_box(const frame *f, const trace_row *row, const box *b, double top)
{
    char text[32];

    if (b->category < 0)
        return;
    canvas_colour(f->c, colour_of(b->category), 1);
    canvas_box(f->c, b->from, top, b->to - b->from, BOX);
    if (b->piece == 0)
        return;
    canvas_grey(f->c, 1);
    if (b->to - b->from > 4 * BORDER)
        canvas_box(f->c, b->from, top, BORDER, BOX);
    canvas_font(f->c, 11, true);
    if (row->n_stages > 1) {
        snprintf(text, sizeof(text), "%d:%d", b->stage, b->piece - 1);
        if (draw_label(f, b, top, text))
            return;
    }
    snprintf(text, sizeof(text), "%d", row->stage < 0 ? b->piece : b->piece - 1);
    (void)draw_label(f, b, top, text);
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

        if (e->row != row || (run->rows[row].stage >= 0 && e->waits))
            continue;
        if (begin > b.to + NEAR || e->category != b.category || e->piece != b.piece ||
            e->stage != b.stage) {
            draw_box(f, &run->rows[row], &b, top);
            b = (box){e->category, e->piece, e->stage, begin, begin};
        }
        b.to = frame_x(f, (e->begin + e->us) / unit);
    }
    draw_box(f, &run->rows[row], &b, top);
}

double timeline_idle(const trace_run *run, int row)
{
    return fmax(0, 1 - run->rows[row].busy / run->us);
}

static void draw_name(const frame *f, const trace_run *run, int row)
{
    double middle = f->top + ROW * (row + 0.5);
    char text[64];

    canvas_font(f->c, 12, true);
    canvas_grey(f->c, 0.1);
    canvas_text_within(f->c, f->left - 10, middle - 2, 1, f->left - 14, run->rows[row].name);
    canvas_font(f->c, 11, false);
    canvas_grey(f->c, 0.35);
    if (run->rows[row].stage >= 0)
        snprintf(text, sizeof(text), "%.1f %% idle", 100 * timeline_idle(run, row));
    else
        snprintf(text, sizeof(text), "%.0f %% busy", 100 * run->rows[row].busy / run->us);
    canvas_text(f->c, f->left - 10, middle + 13, 1, text);
}

static bool has_many_stages(const trace_run *run)
{
    for (int l = 0; l < run->n_rows; l++)
        if (run->rows[l].n_stages > 1)
            return true;
    return false;
}

/* Whether so much stands beside what ends at *x_io; else it begins the next line. */
static bool fits(const frame *f, double *x_io, double *y_io, double width)
{
    if (*x_io == f->left || *x_io + width <= f->left + f->width)
        return true;
    *x_io = f->left;
    *y_io += KEY_LINE;
    return false;
}

/* Of what there is, in lines from y on; where the last one is. */
static double draw_keys(const frame *f, const trace_run *run, double y)
{
    bool there[TRACE_CATEGORIES] = {false}, pieces = false;
    double x = f->left;
    const char *numbers = !run->pipeline         ? "numbers: pieces of the batch"
                          : has_many_stages(run) ? "numbers: stage:micro-batch, or micro-batch"
                                                 : "numbers: micro-batches";

    for (int i = 0; i < run->n; i++) {
        there[run->events[i].category] |= !run->pipeline || !run->events[i].waits;
        pieces = pieces || run->events[i].piece > 0;
    }
    canvas_font(f->c, 12, false);
    for (int k = 0; k < TRACE_CATEGORIES; k++) {
        double width = KEY + 5 + canvas_text_width(f->c, trace_categories[k]);

        if (!there[k])
            continue;
        (void)fits(f, &x, &y, width);
        canvas_colour(f->c, colour_of(k), 1);
        canvas_box(f->c, x, y - KEY + 1, KEY, KEY);
        canvas_grey(f->c, 0.2);
        canvas_text(f->c, x + KEY + 5, y, 0, trace_categories[k]);
        x += width + KEY_GAP;
    }
    canvas_grey(f->c, 0.4);
    if (pieces && fits(f, &x, &y, canvas_text_width(f->c, numbers)))
        canvas_text(f->c, f->left + f->width, y, 1, numbers);
    else if (pieces)
        canvas_text(f->c, x, y, 0, numbers);
    return y;
}

/* Where the axis begins, beside the longest name, and the lines of the keys. */
static tri_status measure(const trace_run *run, double *left_out, double *keys_out)
{
    canvas c;
    tri_status status = canvas_open(&c, NULL, WIDTH, WIDTH);
    frame f = {.c = &c};

    if (status != TRI_OK)
        return status;
    *left_out = LEFT;
    canvas_font(&c, 12, true);
    for (int l = 0; l < run->n_rows; l++)
        *left_out = fmax(*left_out, canvas_text_width(&c, run->rows[l].name) + 16);
    *left_out = ceil(fmin(*left_out, MOST_LEFT));
    f.left = *left_out;
    f.width = WIDTH - f.left - RIGHT;
    *keys_out = draw_keys(&f, run, 0);
    return canvas_close(&c);
}

tri_status plot_timeline(const char *path, const trace_run *run, const char *title)
{
    double keys = 0, left = LEFT, top;
    const char *unit_name;
    double unit = unit_of(run->us, &unit_name);
    canvas c;
    tri_status status = measure(run, &left, &keys);
    frame f = {.c = &c,
               .left = left,
               .width = WIDTH - left - RIGHT,
               .height = ROW * run->n_rows,
               .x = {0, run->us / unit}};

    f.top = top = TOP + keys + (title != NULL ? TITLE : 0);
    if (status == TRI_OK)
        status = canvas_open(&c, path, WIDTH, top + f.height + FOOT);
    if (status != TRI_OK)
        return status;
    if (title != NULL) {
        canvas_font(&c, 14, true);
        canvas_grey(&c, 0.1);
        canvas_text_within(&c, left, 24, 0, f.width, title);
    }
    (void)draw_keys(&f, run, top - 14 - keys);
    frame_draw_x(&f);
    for (int l = 0; l < run->n_rows; l++) {
        draw_row(&f, run, l, unit);
        draw_name(&f, run, l);
    }
    frame_draw_axes(&f);
    canvas_font(&c, 12, false);
    canvas_grey(&c, 0.2);
    canvas_text(&c, left + f.width / 2, top + f.height + 36, 0.5, unit_name);
    return canvas_close(&c);
}
