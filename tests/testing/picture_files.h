/*
 * picture_files.h - image files in a test's folder. Tests only.
 */
#ifndef TEST_PICTURE_FILES_H
#define TEST_PICTURE_FILES_H

#include "base/alloc.h"
#include "train/image/pixels.h"
#include "os/folder.h"
#include "testing/scratch.h"

/* Byte c of a pixel of image `number`; that of the first pixel is `number` in every channel. */
static inline int image_file_pixel(int number, int row, int column, int c)
{
    return (number + 31 * row + 7 * column + (row + column > 0 ? 57 * c : 0)) & 255;
}

static inline uint8_t *image_file_pixels(int number, int height, int width)
{
    uint8_t *pixels = malloc((size_t)3 * (size_t)height * (size_t)width);

    assert_non_null(pixels);
    for (int k = 0; k < 3 * height * width; k++)
        pixels[k] = (uint8_t)image_file_pixel(number, k / 3 / width, k / 3 % width, k % 3);
    return pixels;
}

/* A PNG or, with a quality, a JPEG below the scratch folder, with the folders above it. */
static inline void image_file_write(scratch *s, const char *name, int number, int height, int width,
                                    int quality)
{
    uint8_t *pixels = image_file_pixels(number, height, width);
    unsigned char *bytes = NULL;
    size_t size = 0;

    if (quality > 0)
        CHECK_OK(trii_jpeg_encode(pixels, height, width, 3, quality, &bytes, &size));
    else
        CHECK_OK(trii_png_encode(pixels, height, width, 3, &bytes, &size));
    free(pixels);
    CHECK_OK(trii_folder_create_above(scratch_path(s, name)));
    scratch_file(s, name, bytes, size);
    trii_free(bytes);
}

static inline void image_file(scratch *s, const char *name, int number, int height, int width)
{
    image_file_write(s, name, number, height, width, 0);
}

#endif
