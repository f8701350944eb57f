/*
 * pipeline_draw.c - a schedule as it is planned, as text and as a picture. What ran is drawn of
 * traces (tools/trireme/plot_timeline.c), in the same colours.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "os/file.h"
#include "train/nn/module.h"
#include "train/parallel/pipeline/pipeline_internal.h"
#include "train/parallel/pipeline/pipeline_times.h"

/* Of a picture. */
#define LEFT 96
#define TOP 64
#define ROW 44
#define BOX 30
#define UNIT 24.0
#define MOST_WIDTH 4000.0 /* units are narrower then */
#define LABEL 14.0        /* of a unit that has one */

#define BOX_BYTES 400 /* of the text of an action, at most; a column of text needs less */

typedef struct drawing {
    const trii_pipeline_shape *shape;
    trii_pipeline_times times;
    char *text;
    size_t bytes, room;
} drawing;

static void put(drawing *d, const char *format, ...) TRII_PRINTF(2, 3);
static void put(drawing *d, const char *format, ...)
{
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(d->text + d->bytes, d->room - d->bytes, format, args);
    va_end(args);
    if (n > 0)
        d->bytes += (size_t)n < d->room - d->bytes ? (size_t)n : d->room - d->bytes - 1;
}

static char letter_of(const trii_pipeline_action *a)
{
    return "FBIW"[a->kind];
}

static void head(const drawing *d, char line[128])
{
    double idle = 0;

    for (int r = 0; r < d->shape->ranks; r++)
        idle += 100 * trii_pipeline_idle(&d->times, r) / d->shape->ranks;
    (void)snprintf(line, 128, "%s: %d rank%s, %d stage%s, %d micro-batch%s; idle %.1f %%",
                   trii_pipeline_schedule_name(d->shape->schedule), d->shape->ranks,
                   d->shape->ranks > 1 ? "s" : "", d->shape->stages,
                   d->shape->stages > 1 ? "s" : "", d->shape->microbatches,
                   d->shape->microbatches > 1 ? "es" : "", idle);
}

/* --- text ----------------------------------------------------------------- */

static int digits(int number)
{
    int n = 1;

    for (; number > 9; number /= 10)
        n++;
    return n;
}

/* Columns of a unit: an action as "1F0", and a space. */
static int column_of(const trii_pipeline_shape *s)
{
    return digits(s->stages - 1) + 1 + digits(s->microbatches - 1) + 1;
}

static void text_row(drawing *d, int rank)
{
    int width = column_of(d->shape);
    int64_t at = 0;

    put(d, "rank %-4d", rank);
    for (int64_t i = rank * d->times.n; i < (rank + 1) * d->times.n; i++) {
        const trii_pipeline_action *a = &d->times.actions[i];
        char name[32];

        for (; at < d->times.begin[i]; at++)
            put(d, "%-*s", width, ".");
        (void)snprintf(name, sizeof(name), "%d%c%d", a->stage, letter_of(a), a->microbatch);
        put(d, "%-*s", width * trii_pipeline_units(a), name);
        at += trii_pipeline_units(a);
    }
    put(d, "\n");
}

static void draw_text(drawing *d)
{
    char line[128];

    head(d, line);
    put(d, "%s\n", line);
    for (int r = 0; r < d->shape->ranks; r++)
        text_row(d, r);
}

/* --- picture -------------------------------------------------------------- */

static void picture_row(drawing *d, int rank, double unit)
{
    static const char *const colours[] = {"#0072b2", "#d55e00", "#882255", "#56b4e9"};
    double top = TOP + rank * ROW;

    put(d,
        "<text x=\"%d\" y=\"%g\" text-anchor=\"end\" font-weight=\"bold\">rank %d</text>\n"
        "<text x=\"%d\" y=\"%g\" text-anchor=\"end\" font-size=\"10\" fill=\"#595959\">%.1f %% "
        "idle</text>\n"
        "<rect x=\"%d\" y=\"%g\" width=\"%g\" height=\"%d\" fill=\"#f4f4f4\"/>\n",
        LEFT - 10, top + 13, rank, LEFT - 10, top + 26, 100 * trii_pipeline_idle(&d->times, rank),
        LEFT, top, unit * (double)d->times.units, BOX);
    for (int64_t i = rank * d->times.n; i < (rank + 1) * d->times.n; i++) {
        const trii_pipeline_action *a = &d->times.actions[i];
        double x = LEFT + unit * (double)d->times.begin[i], width = unit * trii_pipeline_units(a);

        put(d,
            "<rect x=\"%g\" y=\"%g\" width=\"%g\" height=\"%d\" fill=\"%s\" stroke=\"white\">"
            "<title>%d%c%d</title></rect>\n",
            x, top, width, BOX, colours[a->kind], a->stage, letter_of(a), a->microbatch);
        if (unit < LABEL)
            continue;
        put(d, "<text x=\"%g\" y=\"%g\" text-anchor=\"middle\" fill=\"white\">%d</text>\n",
            x + width / 2, top + (d->shape->stages > d->shape->ranks ? 13 : 19), a->microbatch);
        if (d->shape->stages > d->shape->ranks)
            put(d,
                "<text x=\"%g\" y=\"%g\" text-anchor=\"middle\" fill=\"white\" font-size=\"9\">"
                "s%d</text>\n",
                x + width / 2, top + 25, a->stage);
    }
}

static void draw_picture(drawing *d)
{
    double unit =
        MOST_WIDTH / (double)d->times.units < UNIT ? MOST_WIDTH / (double)d->times.units : UNIT;
    double width = unit * (double)d->times.units;
    bool parts = d->times.actions[d->times.n - 1].kind == TRII_PIPELINE_WEIGHT;
    char line[128];

    head(d, line);
    put(d,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%d\" "
        "font-family=\"sans-serif\" font-size=\"12\">\n"
        "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
        "<text x=\"%d\" y=\"22\" font-size=\"14\" font-weight=\"bold\">%s</text>\n"
        "<text x=\"%d\" y=\"46\"><tspan fill=\"#0072b2\">forward</tspan>"
        "<tspan dx=\"12\" fill=\"%s\">%s</tspan>"
        "<tspan dx=\"12\" fill=\"#56b4e9\">%s</tspan>"
        "<tspan dx=\"12\" fill=\"#595959\">numbers: micro-batches%s</tspan></text>\n",
        LEFT + (width > 520 ? width : 520) + 20, TOP + d->shape->ranks * ROW + 10, LEFT, line, LEFT,
        parts ? "#882255" : "#d55e00", parts ? "gradients of inputs" : "backward",
        parts ? "gradients of weights" : "",
        d->shape->stages > d->shape->ranks ? ", s: stages" : "");
    for (int r = 0; r < d->shape->ranks; r++)
        picture_row(d, r, unit);
    put(d, "</svg>\n");
}

/* --- the calls ------------------------------------------------------------ */

/* d->text is owned, whatever is returned. */
static tri_status draw(drawing *d, bool picture)
{
    tri_status status = trii_pipeline_times_find(d->shape, &d->times);
    size_t boxes, columns;

    if (status != TRI_OK)
        return status;
    boxes = (size_t)d->shape->ranks * ((size_t)d->times.n + 4);
    columns = (size_t)d->shape->ranks * (size_t)d->times.units;
    d->room = picture ? (boxes + 8) * BOX_BYTES
                      : (columns + boxes + 8) * (size_t)column_of(d->shape) + 4096;
    d->text = trii_alloc(d->room, 1, "drawing of a schedule");
    if (d->text == NULL)
        return TRI_ERR_NO_MEMORY;
    if (picture)
        draw_picture(d);
    else
        draw_text(d);
    return TRI_OK;
}

static tri_status shape_of(tri_module *pipe, const trii_pipeline_shape **shape_out)
{
    const trii_pipeline *p = trii_pipeline_of(pipe);
    tri_status status = tri_module_status(pipe);

    if (status == TRI_OK && p == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "the module is a %s; tri_pipeline makes pipelines",
                         tri_module_type(pipe));
    *shape_out = p != NULL ? &p->shape : NULL;
    return status;
}

tri_status tri_pipeline_draw(tri_module *pipe, const char *path)
{
    size_t n = path != NULL ? strlen(path) : 0;
    drawing d = {.text = NULL};
    tri_status status = shape_of(pipe, &d.shape);

    if (status == TRI_OK && (n < 4 || strcmp(path + n - 4, ".svg") != 0))
        status =
            TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: a picture is an SVG, so end its name with .svg",
                      path != NULL ? path : "NULL");
    if (status == TRI_OK)
        status = draw(&d, true);
    if (status == TRI_OK)
        status = trii_file_replace(path, d.text, d.bytes);
    trii_free(d.text);
    trii_pipeline_times_fini(&d.times);
    return status == TRI_OK ? TRI_OK : TRII_FAIL_CTX(status, "tri_pipeline_draw");
}

void tri_pipeline_print(tri_module *pipe, FILE *file)
{
    drawing d = {.text = NULL};
    tri_status status = shape_of(pipe, &d.shape);

    if (status == TRI_OK)
        status = draw(&d, false);
    (void)fprintf(file != NULL ? file : stderr, "%s%s",
                  status == TRI_OK ? d.text : tri_last_error(), status == TRI_OK ? "" : "\n");
    trii_free(d.text);
    trii_pipeline_times_fini(&d.times);
}
