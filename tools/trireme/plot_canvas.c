/*
 * plot_canvas.c - see plot_canvas.h. The only user of cairo.
 */
#include "plot_canvas.h"

#include <stdio.h>
#include <string.h>

#include <cairo-svg.h>
#include <cairo.h>

#include "base/alloc.h"
#include "base/compiler.h"
#include "base/err.h"
#include "os/file.h"

#define PNG_SCALE 2.0

struct picture {
    char *data;
    size_t bytes, room;
};

typedef struct colour {
    double r, g, b;
} colour;

/* Okabe and Ito's palette: told apart by everybody, in print too. */
static const colour colours[] = {
    {0.000, 0.447, 0.698}, {0.835, 0.369, 0.000}, {0.000, 0.620, 0.451}, {0.800, 0.475, 0.655},
    {0.902, 0.624, 0.000}, {0.337, 0.706, 0.914}, {0.400, 0.400, 0.400}, {0.533, 0.133, 0.333},
};

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);

    return n >= m && strcmp(text + n - m, end) == 0;
}

/* Keeps what cairo writes, which is written to the file at once: cairo does not say why it could
 * not write. */
static cairo_status_t keep(void *closure, const unsigned char *data, unsigned int bytes)
{
    struct picture *p = closure;

    if (bytes > p->room - p->bytes) {
        size_t room = 2 * p->room + bytes;
        char *memory = trii_realloc(p->data, room, 1, "picture");

        if (memory == NULL)
            return CAIRO_STATUS_NO_MEMORY;
        p->data = memory;
        p->room = room;
    }
    memcpy(p->data + p->bytes, data, bytes);
    p->bytes += bytes;
    return CAIRO_STATUS_SUCCESS;
}

bool canvas_can_draw(const char *path)
{
    return ends_with(path, ".svg") || ends_with(path, ".png");
}

tri_status canvas_open(canvas *c, const char *path, double width, double height)
{
    bool svg = path != NULL && ends_with(path, ".svg");

    *c = (canvas){.path = path, .svg = svg, .file = trii_alloc(1, sizeof(*c->file), "picture")};
    if (c->file == NULL)
        return TRI_ERR_NO_MEMORY;
    if (path == NULL)
        c->surface = cairo_image_surface_create(CAIRO_FORMAT_RGB24, 1, 1);
    else if (svg)
        c->surface = cairo_svg_surface_create_for_stream(keep, c->file, width, height);
    else
        c->surface = cairo_image_surface_create(CAIRO_FORMAT_RGB24, (int)(width * PNG_SCALE),
                                                (int)(height * PNG_SCALE));
    c->cr = cairo_create(c->surface);
    if (path != NULL && !svg)
        cairo_scale(c->cr, PNG_SCALE, PNG_SCALE);
    cairo_set_source_rgb(c->cr, 1, 1, 1);
    cairo_paint(c->cr);
    canvas_font(c, 12, false);
    cairo_set_line_join(c->cr, CAIRO_LINE_JOIN_ROUND);
    return TRI_OK;
}

tri_status canvas_close(canvas *c)
{
    cairo_status_t result = cairo_status(c->cr);
    tri_status status = TRI_OK;

    cairo_destroy(c->cr);
    if (result == CAIRO_STATUS_SUCCESS && c->path != NULL && !c->svg)
        result = cairo_surface_write_to_png_stream(c->surface, keep, c->file);
    cairo_surface_finish(c->surface);
    if (result == CAIRO_STATUS_SUCCESS)
        result = cairo_surface_status(c->surface);
    cairo_surface_destroy(c->surface);
    if (result != CAIRO_STATUS_SUCCESS)
        status = TRII_FAIL(result == CAIRO_STATUS_NO_MEMORY ? TRI_ERR_NO_MEMORY : TRI_ERR_INTERNAL,
                           "draw %s: %s", c->path != NULL ? c->path : "a picture",
                           cairo_status_to_string(result));
    else if (c->path != NULL)
        status = trii_file_replace(c->path, c->file->data, c->file->bytes);
    trii_free(c->file->data);
    trii_free(c->file);
    return status;
}

void canvas_colour(canvas *c, int index, double alpha)
{
    const colour *of = &colours[index % (int)TRII_COUNT_OF(colours)];

    cairo_set_source_rgba(c->cr, of->r, of->g, of->b, alpha);
}

void canvas_grey(canvas *c, double level)
{
    cairo_set_source_rgb(c->cr, level, level, level);
}

/* --- text ----------------------------------------------------------------- */

void canvas_font(canvas *c, double size, bool bold)
{
    cairo_select_font_face(c->cr, "sans-serif", CAIRO_FONT_SLANT_NORMAL,
                           bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
    cairo_set_font_size(c->cr, size);
}

double canvas_text_width(canvas *c, const char *text)
{
    cairo_text_extents_t e;

    cairo_text_extents(c->cr, text, &e);
    return e.x_advance;
}

void canvas_text(canvas *c, double x, double y, double align, const char *text)
{
    cairo_move_to(c->cr, x - align * canvas_text_width(c, text), y);
    cairo_show_text(c->cr, text);
}

void canvas_text_within(canvas *c, double x, double y, double align, double width, const char *text)
{
    char cut[256];
    size_t n = strlen(text);

    if (canvas_text_width(c, text) <= width) {
        canvas_text(c, x, y, align, text);
        return;
    }
    n = n < sizeof(cut) - 3 ? n : sizeof(cut) - 4;
    do {
        while (n > 0 && ((unsigned char)text[n] & 0xc0u) == 0x80) /* a character as a whole */
            n--;
        snprintf(cut, sizeof(cut), "%.*s\xe2\x80\xa6", (int)n, text);
    } while (canvas_text_width(c, cut) > width && n-- > 0);
    canvas_text(c, x, y, align, cut);
}

void canvas_text_upwards(canvas *c, double x, double y, double height, const char *text)
{
    cairo_save(c->cr);
    cairo_translate(c->cr, x, y);
    cairo_rotate(c->cr, -3.14159265 / 2);
    canvas_text_within(c, 0, 0, 0.5, height, text);
    cairo_restore(c->cr);
}

/* --- shapes --------------------------------------------------------------- */

void canvas_move_to(canvas *c, double x, double y)
{
    cairo_move_to(c->cr, x, y);
}

void canvas_line_to(canvas *c, double x, double y)
{
    cairo_line_to(c->cr, x, y);
}

void canvas_stroke(canvas *c, double width)
{
    cairo_set_line_width(c->cr, width);
    cairo_stroke(c->cr);
}

void canvas_line(canvas *c, double width, double x0, double y0, double x1, double y1)
{
    cairo_move_to(c->cr, x0, y0);
    cairo_line_to(c->cr, x1, y1);
    canvas_stroke(c, width);
}

void canvas_box(canvas *c, double x, double y, double width, double height)
{
    cairo_rectangle(c->cr, x, y, width, height);
    cairo_fill(c->cr);
}

void canvas_dot(canvas *c, double x, double y, double radius)
{
    cairo_arc(c->cr, x, y, radius, 0, 2 * 3.14159265);
    cairo_fill(c->cr);
}

void canvas_clip(canvas *c, double x, double y, double width, double height)
{
    cairo_save(c->cr);
    cairo_rectangle(c->cr, x, y, width, height);
    cairo_clip(c->cr);
}

void canvas_unclip(canvas *c)
{
    cairo_restore(c->cr);
}
