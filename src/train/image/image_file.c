/*
 * image_file.c - the public functions: images as programs have them, and files by their names.
 */
#include <trireme/image.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/option.h"
#include "train/image/codec.h"
#include "os/file.h"

void tri_image_clear(tri_image *image)
{
    trii_image_clear(image);
}

/* --- reading -------------------------------------------------------------- */

static tri_status check_output(const char *call, tri_image *image)
{
    tri_status status = trii_need(image, call, "image_out");

    return status == TRI_OK ? TRII_CHECK_RESERVED(tri_image, image) : status;
}

static tri_status decode(const void *bytes, size_t n, const tri_image_options *opt,
                         tri_image *image)
{
    const tri_image_options none = {0};
    const tri_image_options *o = opt != NULL ? opt : &none;
    const trii_image_window part = {o->top, o->left, o->height, o->width};
    bool whole = o->top == 0 && o->left == 0 && o->height == 0 && o->width == 0;

    return trii_image_decode(bytes, n, whole ? NULL : &part, o->channels != 0 ? o->channels : 3,
                             image);
}

tri_status tri_image_decode(const void *bytes, size_t n, const tri_image_options *opt,
                            tri_image *image_out)
{
    tri_status status = check_output("image_decode", image_out);

    if (status == TRI_OK)
        status = trii_need(bytes, "image_decode", "bytes");
    if (status == TRI_OK)
        status = TRII_CHECK_RESERVED(tri_image_options, opt);
    if (status != TRI_OK)
        return status;
    status = decode(bytes, n, opt, image_out);
    return status == TRI_OK ? TRI_OK : TRII_FAIL_CTX(status, "image_decode");
}

tri_status tri_image_read(const char *path, const tri_image_options *opt, tri_image *image_out)
{
    trii_mapping file;
    tri_status status = check_output("image_read", image_out);

    if (status == TRI_OK)
        status = trii_need_text(path, "image_read", "path");
    if (status == TRI_OK)
        status = TRII_CHECK_RESERVED(tri_image_options, opt);
    if (status == TRI_OK)
        status = trii_mapping_open(path, &file);
    if (status != TRI_OK)
        return status;
    status = decode(file.data, file.bytes, opt, image_out);
    trii_mapping_close(&file);
    return status == TRI_OK ? TRI_OK : TRII_FAIL_CTX(status, "read %s", path);
}

/* --- resizing and writing ------------------------------------------------- */

static tri_status check_input(const char *call, const tri_image *image)
{
    tri_status status = trii_need(image, call, "image");

    if (status == TRI_OK)
        status = TRII_CHECK_RESERVED(tri_image, image);
    return status == TRI_OK ? trii_need(image->pixels, call, "image->pixels") : status;
}

tri_status tri_image_resize(const tri_image *image, const double *box, int64_t height,
                            int64_t width, tri_image *image_out)
{
    trii_image_scratch room = {0};
    tri_status status = check_input("image_resize", image);

    if (status == TRI_OK)
        status = check_output("image_resize", image_out);
    if (status == TRI_OK && (image == image_out || image->pixels == image_out->pixels))
        status = TRII_FAIL(TRI_ERR_INVALID_ARG,
                           "image_resize: image_out is the image itself: give another one");
    if (status != TRI_OK)
        return status;
    status = trii_resize_check(image->height, image->width, image->channels, height, width, box);
    if (status == TRI_OK)
        status = trii_image_room(image_out, height, width, image->channels);
    if (status == TRI_OK)
        status = trii_image_resize(image->pixels, image->height, image->width,
                                   (size_t)image->width * (size_t)image->channels, image->channels,
                                   box, height, width, image_out->pixels, &room);
    trii_image_scratch_clear(&room);
    if (status != TRI_OK) {
        image_out->height = image_out->width = 0;
        return TRII_FAIL_CTX(status, "image_resize");
    }
    return TRI_OK;
}

static tri_status write_file(const char *path, unsigned char *own_bytes, size_t size)
{
    tri_status status = trii_file_replace(path, own_bytes, size);

    trii_free(own_bytes);
    return status;
}

tri_status tri_image_write_png(const tri_image *image, const char *path)
{
    unsigned char *bytes;
    size_t size;
    tri_status status = check_input("image_write_png", image);

    if (status == TRI_OK)
        status = trii_need_text(path, "image_write_png", "path");
    if (status == TRI_OK)
        status = trii_png_encode(image->pixels, image->height, image->width, image->channels,
                                 &bytes, &size);
    return status == TRI_OK ? write_file(path, bytes, size) : status;
}

tri_status tri_image_write_jpeg(const tri_image *image, int quality, const char *path)
{
    unsigned char *bytes;
    size_t size;
    tri_status status = check_input("image_write_jpeg", image);

    if (status == TRI_OK)
        status = trii_need_text(path, "image_write_jpeg", "path");
    if (status == TRI_OK)
        status = trii_jpeg_encode(image->pixels, image->height, image->width, image->channels,
                                  quality, &bytes, &size);
    return status == TRI_OK ? write_file(path, bytes, size) : status;
}
