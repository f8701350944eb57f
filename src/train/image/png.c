/*
 * png.c - PNG files. The only user of libpng.
 *
 * libpng leaves a failing call by a jump, as libjpeg does: see jpeg.c.
 */
#include <setjmp.h>
#include <string.h>

#include <png.h>

#include "base/alloc.h"
#include "base/err.h"
#include "train/image/codec.h"

/* --- failures ------------------------------------------------------------- */

typedef struct escape {
    jmp_buf back;
    tri_status status;
} escape;

static _Noreturn void leave(escape *e, tri_status status)
{
    e->status = status;
    longjmp(e->back, 1);
}

static _Noreturn void on_error(png_structp png, png_const_charp reason)
{
    if (strcasestr(reason, "memory") != NULL)
        leave(png_get_error_ptr(png), TRII_FAIL(TRI_ERR_NO_MEMORY, "PNG image: %s", reason));
    leave(png_get_error_ptr(png), TRII_FAIL(TRI_ERR_FORMAT, "damaged PNG image: %s", reason));
}

static void on_warning(png_structp png, png_const_charp reason)
{
    (void)png;
    (void)reason;
}

static bool attempt(escape *e, void (*step)(void *arg), void *arg)
{
    if (setjmp(e->back) != 0)
        return false;
    step(arg);
    return true;
}

/* --- decoding ------------------------------------------------------------- */

typedef struct reader {
    escape e;
    png_structp png;
    png_infop info;
    size_t read; /* bytes of the file */
    trii_decoding *d;
    trii_pixel_kind kind;
    bool is_palette;
    uint8_t palette[256][3];
    uint8_t *rows; /* owned: one, or all of an interlaced image */
    uint8_t *line; /* owned: one, in the colours of its palette */
} reader;

static void source_read(png_structp png, png_bytep dst, size_t n)
{
    reader *r = png_get_io_ptr(png);

    if (n > r->d->n - r->read)
        leave(&r->e,
              TRII_FAIL(TRI_ERR_FORMAT, "PNG image is cut off: it ends after %zu bytes", r->d->n));
    memcpy(dst, r->d->bytes + r->read, n);
    r->read += n;
}

/* Colours that the file does not give are black, as in Pillow. */
static void read_palette(reader *r)
{
    png_colorp colours;
    int n = 0;

    r->is_palette = true;
    r->kind = TRII_PIXEL_RGB;
    png_set_packing(r->png);
    if (png_get_PLTE(r->png, r->info, &colours, &n) == 0)
        n = 0;
    for (int i = 0; i < n && i < 256; i++) {
        r->palette[i][0] = colours[i].red;
        r->palette[i][1] = colours[i].green;
        r->palette[i][2] = colours[i].blue;
    }
}

static void choose_colours(reader *r)
{
    int type = png_get_color_type(r->png, r->info), depth = png_get_bit_depth(r->png, r->info);

    if (type == PNG_COLOR_TYPE_PALETTE) {
        read_palette(r);
        return;
    }
    r->kind = (type & PNG_COLOR_MASK_COLOR) != 0 ? TRII_PIXEL_RGB : TRII_PIXEL_GREY;
    if (type == PNG_COLOR_TYPE_GRAY && depth == 16)
        r->kind = TRII_PIXEL_GREY_16;
    else if (depth == 16)
        png_set_strip_16(r->png);
    else if (depth < 8)
        png_set_expand_gray_1_2_4_to_8(r->png);
    if ((type & PNG_COLOR_MASK_ALPHA) != 0)
        png_set_strip_alpha(r->png);
}

/* A row of the whole image, to where it belongs if it is in the part. */
static void place(reader *r, const uint8_t *src, int64_t row)
{
    const trii_image_window *part = &r->d->part;
    size_t size = r->kind == TRII_PIXEL_RGB ? 3 : r->kind == TRII_PIXEL_GREY_16 ? 2 : 1;

    if (row < part->top || row >= part->top + part->height)
        return;
    if (r->is_palette) {
        for (int64_t i = 0; i < part->width; i++)
            memcpy(r->line + 3 * i, r->palette[src[part->left + i]], 3);
        src = r->line;
    } else {
        src += (size_t)part->left * size;
    }
    trii_pixels_convert(src, r->kind, part->width, trii_decoding_row(r->d, row - part->top),
                        r->d->channels);
}

/* All of it, whatever the part is: then a damaged file fails whatever the part is. */
static void read_rows(reader *r)
{
    int passes = png_set_interlace_handling(r->png);
    size_t height = (size_t)r->d->height, bytes;

    png_read_update_info(r->png, r->info);
    bytes = png_get_rowbytes(r->png, r->info);
    r->rows = trii_alloc(passes > 1 ? height : 1, bytes, "rows of an image");
    if (r->rows != NULL && r->is_palette)
        r->line = trii_alloc((size_t)r->d->part.width, 3, "row of an image");
    if (r->rows == NULL || (r->is_palette && r->line == NULL))
        leave(&r->e, TRI_ERR_NO_MEMORY);
    for (int pass = 0; pass < passes; pass++) {
        for (size_t row = 0; row < height; row++) {
            uint8_t *at = r->rows + (passes > 1 ? row * bytes : 0);

            png_read_row(r->png, at, NULL);
            if (pass == passes - 1)
                place(r, at, (int64_t)row);
        }
    }
    png_read_end(r->png, NULL);
}

static void read_image(void *arg)
{
    reader *r = arg;
    tri_status status;

    r->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &r->e, on_error, on_warning);
    if (r->png != NULL)
        r->info = png_create_info_struct(r->png);
    if (r->info == NULL)
        leave(&r->e, TRII_FAIL(TRI_ERR_NO_MEMORY, "PNG image: out of memory"));
    png_set_read_fn(r->png, r, source_read);
    png_set_user_limits(r->png, PNG_UINT_31_MAX, PNG_UINT_31_MAX); /* trii_decoding_begin has its */
    png_read_info(r->png, r->info);
    r->d->height = png_get_image_height(r->png, r->info);
    r->d->width = png_get_image_width(r->png, r->info);
    status = trii_decoding_begin(r->d);
    if (status != TRI_OK)
        leave(&r->e, status);
    if (r->d->image == NULL)
        return;
    choose_colours(r);
    read_rows(r);
}

tri_status trii_png_decode(trii_decoding *d)
{
    reader r = {.d = d};
    bool done = attempt(&r.e, read_image, &r);

    png_destroy_read_struct(&r.png, &r.info, NULL);
    trii_free(r.rows);
    trii_free(r.line);
    return done ? TRI_OK : r.e.status;
}

/* --- encoding ------------------------------------------------------------- */

typedef struct writer {
    escape e;
    png_structp png;
    png_infop info;
    trii_encoded file;
    const uint8_t *pixels;
    int64_t height, width;
    int channels;
} writer;

static void target_write(png_structp png, png_bytep src, size_t n)
{
    writer *w = png_get_io_ptr(png);
    tri_status status = trii_encoded_room(&w->file, n);

    if (status != TRI_OK)
        leave(&w->e, status);
    memcpy(w->file.bytes + w->file.size, src, n);
    w->file.size += n;
}

static void target_flush(png_structp png)
{
    (void)png;
}

static void write_image(void *arg)
{
    writer *w = arg;
    size_t row = (size_t)w->width * (size_t)w->channels;
    int type = w->channels == 1   ? PNG_COLOR_TYPE_GRAY
               : w->channels == 3 ? PNG_COLOR_TYPE_RGB
                                  : PNG_COLOR_TYPE_RGB_ALPHA;

    w->png = png_create_write_struct(PNG_LIBPNG_VER_STRING, &w->e, on_error, on_warning);
    if (w->png != NULL)
        w->info = png_create_info_struct(w->png);
    if (w->info == NULL)
        leave(&w->e, TRII_FAIL(TRI_ERR_NO_MEMORY, "write PNG: out of memory"));
    png_set_write_fn(w->png, w, target_write, target_flush);
    png_set_IHDR(w->png, w->info, (png_uint_32)w->width, (png_uint_32)w->height, 8, type,
                 PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_write_info(w->png, w->info);
    for (int64_t y = 0; y < w->height; y++)
        png_write_row(w->png, w->pixels + (size_t)y * row);
    png_write_end(w->png, NULL);
}

tri_status trii_png_encode(const uint8_t *pixels, int64_t height, int64_t width, int channels,
                           unsigned char **own_bytes_out, size_t *size_out)
{
    writer w = {.pixels = pixels, .height = height, .width = width, .channels = channels};
    tri_status status =
        trii_encode_check("write PNG", pixels, height, width, channels, 4, PNG_USER_WIDTH_MAX);

    if (status != TRI_OK)
        return status;
    if (!attempt(&w.e, write_image, &w))
        status = w.e.status;
    png_destroy_write_struct(&w.png, &w.info);
    if (status != TRI_OK) {
        trii_free(w.file.bytes);
        return status;
    }
    *own_bytes_out = w.file.bytes;
    *size_out = w.file.size;
    return TRI_OK;
}
