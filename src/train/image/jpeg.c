/*
 * jpeg.c - JPEG files. The only user of libjpeg-turbo.
 *
 * libjpeg leaves a failing call by a jump (`escape`). What is used on both sides of it lies in one
 * struct and in no local variable, and every call is made below attempt().
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <jpeglib.h>

#include <jerror.h>

#include "base/alloc.h"
#include "base/err.h"
#include "train/image/codec.h"

/* A window is decoded with so many rows and columns around it: smooth chroma reads a neighbour's.
 * Below nine columns, which may be two of chroma, libjpeg chooses again how it makes them wider. */
#define MARGIN_ROWS 2
#define MARGIN_COLUMNS 8
/* A progressive file is read once for each of its scans; encoders make 10 or so. */
#define MAX_SCANS 500

/* --- failures ------------------------------------------------------------- */

typedef struct escape {
    struct jpeg_error_mgr manager; /* first: libjpeg knows this part */
    jmp_buf back;
    tri_status status;
} escape;

static _Noreturn void leave(j_common_ptr codec, tri_status status)
{
    escape *e = (escape *)codec->err;

    e->status = status;
    longjmp(e->back, 1);
}

static _Noreturn void on_error(j_common_ptr codec)
{
    char reason[JMSG_LENGTH_MAX];
    int code = codec->err->msg_code;

    codec->err->format_message(codec, reason);
    if (code == JERR_OUT_OF_MEMORY)
        leave(codec, TRII_FAIL(TRI_ERR_NO_MEMORY, "JPEG image: out of memory"));
    if (code == JERR_BAD_PRECISION || code == JERR_SOF_UNSUPPORTED || code == JERR_NOT_COMPILED ||
        code == JERR_ARITH_NOTIMPL || code == JERR_CONVERSION_NOTIMPL)
        leave(codec, TRII_FAIL(TRI_ERR_UNSUPPORTED,
                               "JPEG image of a kind that libjpeg does not "
                               "read: %s",
                               reason));
    leave(codec, TRII_FAIL(TRI_ERR_FORMAT, "damaged JPEG image: %s", reason));
}

/* Libjpeg carries on after these, and so does Pillow. */
static void on_message(j_common_ptr codec, int level)
{
    if (level < 0)
        codec->err->num_warnings++;
}

static struct jpeg_error_mgr *escape_init(escape *e)
{
    struct jpeg_error_mgr *manager = jpeg_std_error(&e->manager);

    manager->error_exit = on_error;
    manager->emit_message = on_message;
    return manager;
}

/* --- a file in memory ----------------------------------------------------- */

typedef struct reader {
    struct jpeg_decompress_struct c;
    escape e;
    struct jpeg_source_mgr source;
    struct jpeg_progress_mgr progress;
    trii_decoding *d;
    trii_pixel_kind kind;
    JSAMPARRAY rows;      /* two in turn, of the decoder's own width, */
    JSAMPARRAY converted; /* and two of the part's; all have room after them */
} reader;

static void source_nothing(j_decompress_ptr c)
{
    (void)c;
}

static boolean source_empty(j_decompress_ptr c)
{
    const reader *r = (const reader *)c; /* its first field */

    leave((j_common_ptr)c, TRII_FAIL(TRI_ERR_FORMAT,
                                     "JPEG image is cut off: it ends after %zu bytes without its "
                                     "end marker",
                                     r->d->n));
}

static void source_skip(j_decompress_ptr c, long n)
{
    if (n <= 0)
        return;
    if ((size_t)n > c->src->bytes_in_buffer)
        (void)source_empty(c);
    c->src->next_input_byte += n;
    c->src->bytes_in_buffer -= (size_t)n;
}

static void on_progress(j_common_ptr codec)
{
    if (((j_decompress_ptr)codec)->input_scan_number > MAX_SCANS)
        leave(codec, TRII_FAIL(TRI_ERR_FORMAT,
                               "JPEG image with more than %d scans: no encoder "
                               "writes so many",
                               MAX_SCANS));
}

/* --- decoding ------------------------------------------------------------- */

/* Whether the bytes that were not read yet have an end marker: entropy-coded data cannot look like
 * one. A window ends before the file does, and a file that is cut off should fail always or never.
 */
static bool has_end(const reader *r)
{
    const unsigned char *first = r->source.next_input_byte, *at;
    size_t n = r->source.bytes_in_buffer;

    while (n > 1 && (at = memrchr(first, 0xff, n - 1)) != NULL) {
        if (at[1] == JPEG_EOI)
            return true;
        n = (size_t)(at - first) + 1;
    }
    return false;
}

static void choose_colours(reader *r)
{
    struct jpeg_decompress_struct *c = &r->c;

    switch (c->num_components) {
    case 1:
        c->out_color_space = JCS_GRAYSCALE;
        r->kind = TRII_PIXEL_GREY;
        return;
    case 3:
        c->out_color_space = JCS_RGB;
        r->kind = TRII_PIXEL_RGB;
        return;
    case 4:
        c->out_color_space = JCS_CMYK;
        r->kind = TRII_PIXEL_CMYK;
        return;
    default:
        leave((j_common_ptr)c, TRII_FAIL(TRI_ERR_UNSUPPORTED,
                                         "JPEG image with %d components: only 1 (grey), 3 "
                                         "(colours) and 4 (CMYK) are read",
                                         c->num_components));
    }
}

/* Whether a part of the image has the bits that it has in the whole one. Where coefficients of a
 * progressive file are missing, libjpeg guesses them from neighbours that the part may not have. */
static bool can_cut(const struct jpeg_decompress_struct *c)
{
    if (c->coef_bits == NULL)
        return true;
    for (int i = 0; i < c->num_components; i++) {
        for (int k = 0; k < DCTSIZE2; k++) {
            if (c->coef_bits[i][k] != 0)
                return false;
        }
    }
    return true;
}

/* What is before the part, and around it, is left out as far as that can be. Returns the column of
 * the decoder's rows in which the part begins. */
static JDIMENSION cut(struct jpeg_decompress_struct *c, const trii_image_window *part)
{
    JDIMENSION left = (JDIMENSION)part->left, width;
    JDIMENSION from = left > MARGIN_COLUMNS ? left - MARGIN_COLUMNS : 0;
    JDIMENSION end = left + (JDIMENSION)part->width + MARGIN_COLUMNS;

    if (!can_cut(c))
        return left;
    if (part->width < (int64_t)c->output_width) {
        width = (end < c->output_width ? end : c->output_width) - from;
        jpeg_crop_scanline(c, &from, &width);
        left -= from;
    }
    if (part->top > MARGIN_ROWS)
        (void)jpeg_skip_scanlines(c, (JDIMENSION)part->top - MARGIN_ROWS);
    return left;
}

/* A row of the part, to where it is wanted. */
static void place(reader *r, const uint8_t *src, bool same, int64_t row)
{
    trii_decoding *d = r->d;

    if (d->resizer == NULL) {
        trii_pixels_convert(src, r->kind, d->part.width, trii_decoding_row(d, row), d->channels);
        return;
    }
    if (!same) {
        trii_pixels_convert(src, r->kind, d->part.width, r->converted[row % 2], d->channels);
        src = r->converted[row % 2];
    }
    trii_resizer_put(d->resizer, src);
}

/* Where libjpeg writes a row whose address is a multiple of 32, it writes past the caches, and who
 * reads the row next waits for the memory: that takes more time than all the rest. */
#define NOT_ALIGNED 16

static void read_rows(reader *r)
{
    struct jpeg_decompress_struct *c = &r->c;
    const trii_image_window *part = &r->d->part;
    JDIMENSION samples = (JDIMENSION)c->output_components, left = cut(c, part);
    bool same = (int)samples == r->d->channels;

    r->rows = c->mem->alloc_sarray((j_common_ptr)c, JPOOL_IMAGE,
                                   NOT_ALIGNED + c->output_width * samples + TRII_ROW_OVERREAD, 2);
    if (!same)
        r->converted =
            c->mem->alloc_sarray((j_common_ptr)c, JPOOL_IMAGE,
                                 (JDIMENSION)(part->width * r->d->channels) + TRII_ROW_OVERREAD, 2);
    while ((int64_t)c->output_scanline < part->top + part->height) {
        int64_t row = (int64_t)c->output_scanline - part->top;
        JSAMPROW line = r->rows[row & 1] + NOT_ALIGNED;

        if (jpeg_read_scanlines(c, &line, 1) != 1)
            ERREXIT(c, JERR_INPUT_EOF);
        if (row >= 0)
            place(r, line + (size_t)left * samples, same, row);
    }
}

static void read_image(void *arg)
{
    reader *r = arg;
    struct jpeg_decompress_struct *c = &r->c;
    tri_status status;

    jpeg_create_decompress(c);
    c->src = &r->source;
    c->progress = &r->progress;
    (void)jpeg_read_header(c, TRUE);
    r->d->height = c->image_height;
    r->d->width = c->image_width;
    choose_colours(r);
    status = trii_decoding_begin(r->d);
    if (status != TRI_OK)
        leave((j_common_ptr)c, status);
    if (r->d->image == NULL && r->d->resizer == NULL)
        return;
    if (!jpeg_has_multiple_scans(c) && !has_end(r))
        (void)source_empty(c);
    c->dct_method = JDCT_ISLOW;
    (void)jpeg_start_decompress(c);
    read_rows(r);
    if (c->output_scanline == c->output_height)
        (void)jpeg_finish_decompress(c);
}

static bool attempt(escape *e, void (*step)(void *arg), void *arg)
{
    if (setjmp(e->back) != 0)
        return false;
    step(arg);
    return true;
}

tri_status trii_jpeg_decode(trii_decoding *d)
{
    reader r = {.d = d,
                .source = {.next_input_byte = d->bytes,
                           .bytes_in_buffer = d->n,
                           .init_source = source_nothing,
                           .fill_input_buffer = source_empty,
                           .skip_input_data = source_skip,
                           .resync_to_restart = jpeg_resync_to_restart,
                           .term_source = source_nothing},
                .progress = {.progress_monitor = on_progress}};
    bool done;

    r.c.err = escape_init(&r.e);
    done = attempt(&r.e, read_image, &r);
    jpeg_destroy_decompress(&r.c);
    return done ? TRI_OK : r.e.status;
}

/* --- encoding ------------------------------------------------------------- */

typedef struct writer {
    struct jpeg_compress_struct c;
    escape e;
    struct jpeg_destination_mgr target;
    trii_encoded file;
    const uint8_t *pixels;
    int64_t height, width;
    int channels, quality;
} writer;

/* Room for more after `size` bytes of the file. */
static void target_more(writer *w)
{
    tri_status status = trii_encoded_room(&w->file, w->file.size + 1);

    if (status != TRI_OK)
        leave((j_common_ptr)&w->c, status);
    w->target.next_output_byte = w->file.bytes + w->file.size;
    w->target.free_in_buffer = w->file.capacity - w->file.size;
}

static void target_begin(j_compress_ptr c)
{
    target_more((writer *)c);
}

static boolean target_full(j_compress_ptr c)
{
    writer *w = (writer *)c;

    w->file.size = w->file.capacity;
    target_more(w);
    return TRUE;
}

static void target_end(j_compress_ptr c)
{
    writer *w = (writer *)c;

    w->file.size = w->file.capacity - w->target.free_in_buffer;
}

static void write_image(void *arg)
{
    writer *w = arg;
    struct jpeg_compress_struct *c = &w->c;

    jpeg_create_compress(c);
    c->dest = &w->target;
    c->image_height = (JDIMENSION)w->height;
    c->image_width = (JDIMENSION)w->width;
    c->input_components = w->channels;
    c->in_color_space = w->channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(c);
    jpeg_set_quality(c, w->quality, TRUE);
    c->dct_method = JDCT_ISLOW;
    jpeg_start_compress(c, TRUE);
    while (c->next_scanline < c->image_height) {
        const uint8_t *line =
            w->pixels + (size_t)(c->next_scanline * w->width) * (size_t)w->channels;
        JSAMPROW row;

        memcpy(&row, &line, sizeof(row)); /* libjpeg only reads it, and its type is not const */
        (void)jpeg_write_scanlines(c, &row, 1);
    }
    jpeg_finish_compress(c);
}

tri_status trii_jpeg_encode(const uint8_t *pixels, int64_t height, int64_t width, int channels,
                            int quality, unsigned char **own_bytes_out, size_t *size_out)
{
    writer w = {.pixels = pixels,
                .height = height,
                .width = width,
                .channels = channels,
                .quality = quality,
                .target = {.init_destination = target_begin,
                           .empty_output_buffer = target_full,
                           .term_destination = target_end}};
    tri_status status =
        trii_encode_check("write JPEG", pixels, height, width, channels, 3, JPEG_MAX_DIMENSION);

    if (status == TRI_OK && (quality < 1 || quality > 100))
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "write JPEG: a quality of %d: must be 1 to 100",
                           quality);
    if (status != TRI_OK)
        return status;
    w.c.err = escape_init(&w.e);
    if (!attempt(&w.e, write_image, &w))
        status = w.e.status;
    jpeg_destroy_compress(&w.c);
    if (status != TRI_OK) {
        trii_free(w.file.bytes);
        return status;
    }
    *own_bytes_out = w.file.bytes;
    *size_out = w.file.size;
    return TRI_OK;
}
