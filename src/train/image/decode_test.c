/*
 * decode_test.c - files that we wrote, and files that are none. What other programs wrote:
 * tests/golden/images_test.c.
 */
#include "train/image/codec.h"

#include <string.h>

#include "base/alloc.h"
#include "testing/check.h"
#include "testing/scratch.h"

#define HEIGHT 83
#define WIDTH 117

/* Smooth, with some noise, as photographs are. */
static uint8_t *picture(int channels)
{
    uint8_t *pixels = malloc((size_t)HEIGHT * WIDTH * (size_t)channels);
    uint64_t state = 7;

    assert_non_null(pixels);
    for (int y = 0; y < HEIGHT; y++) {
        for (int x = 0; x < WIDTH; x++) {
            for (int c = 0; c < channels; c++)
                pixels[(y * WIDTH + x) * channels + c] =
                    (uint8_t)(x / (c + 1) + y / 2 + (x / 9 + y / 7) % 2 * 70 +
                              (int)(scratch_random(&state) % 13));
        }
    }
    return pixels;
}

typedef struct file {
    unsigned char *bytes;
    size_t n;
} file;

static file encoded(bool jpeg, int channels)
{
    uint8_t *pixels = picture(channels);
    file f;

    if (jpeg)
        CHECK_OK(trii_jpeg_encode(pixels, HEIGHT, WIDTH, channels, 85, &f.bytes, &f.n));
    else
        CHECK_OK(trii_png_encode(pixels, HEIGHT, WIDTH, channels, &f.bytes, &f.n));
    free(pixels);
    return f;
}

static void a_png_has_the_pixels_that_were_written(void **state)
{
    (void)state;
    for (int channels = 1; channels <= 3; channels += 2) {
        uint8_t *pixels = picture(channels);
        file f = encoded(false, channels);
        trii_image image = {0};

        CHECK_OK(trii_image_decode(f.bytes, f.n, NULL, channels, &image));
        assert_int_equal(image.height, HEIGHT);
        assert_int_equal(image.width, WIDTH);
        assert_int_equal(image.channels, channels);
        assert_memory_equal(image.pixels, pixels, (size_t)HEIGHT * WIDTH * (size_t)channels);
        trii_image_clear(&image);
        trii_free(f.bytes);
        free(pixels);
    }
    assert_int_equal(trii_alloc_live(), 0);
}

static void the_alpha_of_a_png_is_dropped(void **state)
{
    uint8_t *pixels = picture(4);
    file f = encoded(false, 4);
    trii_image image = {0};

    (void)state;
    CHECK_OK(trii_image_decode(f.bytes, f.n, NULL, 3, &image));
    for (size_t i = 0; i < (size_t)HEIGHT * WIDTH; i++)
        assert_memory_equal(image.pixels + 3 * i, pixels + 4 * i, 3);
    trii_image_clear(&image);
    trii_free(f.bytes);
    free(pixels);
}

static void a_jpeg_is_near_what_was_written(void **state)
{
    (void)state;
    for (int channels = 1; channels <= 3; channels += 2) {
        uint8_t *pixels = picture(channels);
        file f = encoded(true, channels);
        trii_image image = {0};
        double sum = 0;
        size_t n = (size_t)HEIGHT * WIDTH * (size_t)channels;

        CHECK_OK(trii_image_decode(f.bytes, f.n, NULL, channels, &image));
        for (size_t i = 0; i < n; i++)
            sum += abs(image.pixels[i] - pixels[i]);
        if (sum / (double)n > 5)
            fail_msg("%d channels: %g levels away", channels, sum / (double)n);
        trii_image_clear(&image);
        trii_free(f.bytes);
        free(pixels);
    }
}

static void a_grey_image_gives_three_equal_channels(void **state)
{
    (void)state;
    for (int jpeg = 0; jpeg < 2; jpeg++) {
        file f = encoded(jpeg, 1);
        trii_image grey = {0}, colour = {0};

        CHECK_OK(trii_image_decode(f.bytes, f.n, NULL, 1, &grey));
        CHECK_OK(trii_image_decode(f.bytes, f.n, NULL, 3, &colour));
        for (size_t i = 0; i < 3 * (size_t)HEIGHT * WIDTH; i++)
            assert_int_equal(colour.pixels[i], grey.pixels[i / 3]);
        trii_image_clear(&grey);
        trii_image_clear(&colour);
        trii_free(f.bytes);
    }
}

static void the_size_needs_no_more_than_the_header(void **state)
{
    (void)state;
    for (int jpeg = 0; jpeg < 2; jpeg++) {
        file f = encoded(jpeg, 3);
        int64_t height = 0, width = 0;

        CHECK_OK(trii_image_size(f.bytes, jpeg ? 700 : 60, &height, &width));
        assert_int_equal(height, HEIGHT);
        assert_int_equal(width, WIDTH);
        trii_free(f.bytes);
    }
}

static void check_window(const file *f, const trii_image *whole, trii_image_window w,
                         trii_image *part)
{
    size_t channels = (size_t)whole->channels, row = (size_t)w.width * channels;

    CHECK_OK(trii_image_decode(f->bytes, f->n, &w, whole->channels, part));
    assert_int_equal(part->height, w.height);
    assert_int_equal(part->width, w.width);
    for (int64_t y = 0; y < w.height; y++) {
        if (memcmp(part->pixels + (size_t)y * row,
                   whole->pixels + (size_t)((w.top + y) * whole->width + w.left) * channels,
                   row) != 0)
            fail_msg("%d x %d at %d, %d: row %d differs", (int)w.height, (int)w.width, (int)w.top,
                     (int)w.left, (int)y);
    }
}

static void a_window_has_the_bits_of_the_whole_image(void **state)
{
    uint64_t draws = 3;

    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        file f = encoded(kind & 1, 3);
        trii_image whole = {0}, part = {0};

        CHECK_OK(trii_image_decode(f.bytes, f.n, NULL, kind & 2 ? 1 : 3, &whole));
        for (int i = 0; i < 150; i++) {
            trii_image_window w = {.height = 1 + scratch_random(&draws) % HEIGHT,
                                   .width = 1 + scratch_random(&draws) % WIDTH};

            w.top = scratch_random(&draws) % (uint32_t)(HEIGHT - w.height + 1);
            w.left = scratch_random(&draws) % (uint32_t)(WIDTH - w.width + 1);
            check_window(&f, &whole, w, &part);
        }
        trii_image_clear(&whole);
        trii_image_clear(&part);
        trii_free(f.bytes);
    }
}

/* Five pixels, with the colours sampled 1 and 2 to 4: where libjpeg cuts the former to one column,
 * it chooses again how it makes the latter wider. */
static void a_window_has_the_bits_of_a_narrow_image(void **state)
{
    static unsigned char bytes[] = {
        0xff, 0xd8, 0xff, 0xdb, 0x00, 0x43, 0x00, 0x0d, 0x09, 0x0a, 0x0b, 0x0a, 0x08, 0x0d, 0x0b,
        0x0a, 0x0b, 0x0e, 0x0e, 0x0d, 0x0f, 0x13, 0x20, 0x15, 0x13, 0x12, 0x12, 0x13, 0x27, 0x1c,
        0x1e, 0x17, 0x20, 0x2e, 0x29, 0x31, 0x30, 0x2e, 0x29, 0x2d, 0x2c, 0x33, 0x3a, 0x4a, 0x3e,
        0x33, 0x36, 0x46, 0x37, 0x2c, 0x2d, 0x40, 0x57, 0x41, 0x46, 0x4c, 0x4e, 0x52, 0x53, 0x52,
        0x32, 0x3e, 0x5a, 0x61, 0x5a, 0x50, 0x60, 0x4a, 0x51, 0x52, 0x4f, 0xff, 0xc0, 0x00, 0x11,
        0x08, 0x00, 0x01, 0x00, 0x05, 0x03, 0x01, 0x41, 0x00, 0x02, 0x11, 0x00, 0x03, 0x21, 0x00,
        0xff, 0xc4, 0x00, 0x16, 0x00, 0x01, 0x01, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x05, 0x06, 0xff, 0xc4, 0x00, 0x21, 0x10, 0x00,
        0x01, 0x03, 0x01, 0x09, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x01, 0x02, 0x04, 0x03, 0x06, 0x32, 0x34, 0x35, 0x71, 0x74, 0x82, 0xb1, 0xb3, 0xff,
        0xda, 0x00, 0x0c, 0x03, 0x01, 0x00, 0x02, 0x00, 0x03, 0x00, 0x00, 0x3f, 0x00, 0x95, 0x57,
        0x07, 0x1f, 0x9f, 0x60, 0x02, 0x3b, 0xaf, 0x2e, 0xa6, 0xde, 0xcf, 0xe5, 0x6b, 0xb9, 0x91,
        0xec, 0xf0, 0x7f, 0xff, 0xd9,
    };
    const file f = {bytes, sizeof(bytes)};
    trii_image whole = {0}, part = {0};

    (void)state;
    CHECK_OK(trii_image_decode(f.bytes, f.n, NULL, 3, &whole));
    assert_true(whole.height == 1 && whole.width == 5);
    for (int left = 0; left < 5; left++)
        check_window(&f, &whole, (trii_image_window){.left = left, .height = 1, .width = 1}, &part);
    trii_image_clear(&whole);
    trii_image_clear(&part);
}

static void a_window_outside_of_the_image_is_refused(void **state)
{
    static const trii_image_window windows[] = {
        {0, 0, 0, 5},          {0, 0, 5, 0},         {-1, 0, 5, 5},         {0, -1, 5, 5},
        {HEIGHT - 4, 0, 5, 5}, {0, WIDTH - 4, 5, 5}, {0, 0, HEIGHT + 1, 5}, {0, 0, 5, WIDTH + 1},
        {INT64_MAX, 0, 5, 5},  {0, INT64_MIN, 5, 5}, {0, 0, INT64_MAX, 5},
    };

    (void)state;
    for (int jpeg = 0; jpeg < 2; jpeg++) {
        file f = encoded(jpeg, 3);
        trii_image image = {0};

        for (size_t i = 0; i < TRII_COUNT_OF(windows); i++)
            CHECK_FAILS(trii_image_decode(f.bytes, f.n, &windows[i], 3, &image),
                        TRI_ERR_INVALID_ARG, "is not within the image, which has 83 x 117");
        CHECK_FAILS(trii_image_decode(f.bytes, f.n, NULL, 2, &image), TRI_ERR_INVALID_ARG,
                    "2 channels");
        trii_image_clear(&image);
        trii_free(f.bytes);
    }
}

/* Every length, in a block of its own, so that a sanitizer sees what is read after its end. */
static void a_file_that_is_cut_off_fails_whatever_the_window(void **state)
{
    const trii_image_window corner = {.height = 8, .width = 8};
    trii_image image = {0};

    (void)state;
    for (int jpeg = 0; jpeg < 2; jpeg++) {
        file f = encoded(jpeg, 3);

        for (size_t n = 0; n < f.n; n += TEST_SANITIZED && n > 900 && n + 50 < f.n ? 37 : 1) {
            unsigned char *bytes = malloc(n + 1);

            assert_non_null(bytes);
            bytes = realloc(bytes, n > 0 ? n : 1);
            memcpy(bytes, f.bytes, n);
            for (int i = 0; i < 2; i++) {
                CHECK_FAILS(trii_image_decode(bytes, n, i == 0 ? NULL : &corner, 3, &image),
                            TRI_ERR_FORMAT, n < (jpeg ? 3 : 8) ? "no image" : "cut off");
                assert_int_equal(image.height, 0);
            }
            free(bytes);
        }
        trii_free(f.bytes);
    }
    trii_image_clear(&image);
    assert_int_equal(trii_alloc_live(), 0);
}

static void what_is_no_image_is_named(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
        tri_status status;
        const char *text;
    } files[] = {
        {"", 0, TRI_ERR_FORMAT, "it is empty (0 bytes)"},
        {"hello, world", 12, TRI_ERR_FORMAT, "begins with the bytes 68 65 6c 6c 6f 2c 20 77"},
        {"GIF89a.........", 15, TRI_ERR_UNSUPPORTED, "a GIF image: only JPEG and PNG"},
        {"RIFF\x10\0\0\0WEBPVP8 ", 16, TRI_ERR_UNSUPPORTED, "a WebP image"},
        {"BM\x10\0\0\0", 6, TRI_ERR_UNSUPPORTED, "a BMP image"},
        {"II*\0\x08\0\0\0", 8, TRI_ERR_UNSUPPORTED, "a TIFF image"},
        {"\0\0\0\x1c"
         "ftypavif",
         12, TRI_ERR_UNSUPPORTED, "a AVIF or HEIF image"},
        {"P6 3 3 255 ", 11, TRI_ERR_UNSUPPORTED, "a PPM image"},
    };
    trii_image image = {0};
    int64_t height, width;

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(files); i++) {
        CHECK_FAILS(trii_image_decode(files[i].bytes, files[i].n, NULL, 3, &image), files[i].status,
                    files[i].text);
        CHECK_FAILS(trii_image_size(files[i].bytes, files[i].n, &height, &width), files[i].status,
                    files[i].text);
    }
    assert_null(image.pixels);
}

/* A header that claims many pixels costs no memory. */
static void too_many_pixels_are_refused_before_there_is_memory(void **state)
{
    trii_image image = {0};

    (void)state;
    for (int jpeg = 0; jpeg < 2; jpeg++) {
        file f = encoded(jpeg, 3);
        size_t at = 16; /* PNG: width, height, four bytes each */
        const unsigned char *sof = jpeg ? memmem(f.bytes, f.n, "\xff\xc0", 2) : NULL;

        if (jpeg)
            at = (size_t)(sof - f.bytes) + 5; /* height, width, two bytes each */
        if (!jpeg)
            f.bytes[at + 1] = f.bytes[at + 5] = 0x7f; /* more than libpng takes unasked */
        else
            f.bytes[at] = f.bytes[at + 2] = 0xf0;
        if (!jpeg) /* the checksum of the changed header */
            memcpy(f.bytes + 29, "\x0d\x3d\x42\x79", 4);
        (void)trii_alloc_largest();
        CHECK_FAILS(trii_image_decode(f.bytes, f.n, NULL, 3, &image), TRI_ERR_UNSUPPORTED,
                    "at most 178956970 are read");
        assert_true(trii_alloc_largest() < 1000);
        trii_free(f.bytes);
    }
}

static void damage_is_an_error_or_other_pixels(void **state)
{
    trii_image image = {0};
    uint64_t draws = 5;
    int failed = 0, decoded = 0;

    (void)state;
    for (int jpeg = 0; jpeg < 2; jpeg++) {
        file f = encoded(jpeg, 3);

        for (int i = 0; i < 2000; i++) {
            size_t at = scratch_random(&draws) % f.n;
            unsigned char before = f.bytes[at];

            f.bytes[at] ^= (unsigned char)(1 + scratch_random(&draws) % 255);
            if (trii_image_decode(f.bytes, f.n, NULL, 3, &image) == TRI_OK)
                decoded++;
            else
                failed++;
            f.bytes[at] = before;
        }
        trii_free(f.bytes);
    }
    assert_true(failed > 2000 && decoded > 1000); /* PNG has checksums */
    trii_image_clear(&image);
    assert_int_equal(trii_alloc_live(), 0);
}

static void memory_that_is_not_there_is_an_error_without_leaks(void **state)
{
    uint8_t *pixels = picture(3);

    (void)state;
    for (int jpeg = 0; jpeg < 2; jpeg++) {
        for (int direction = 0; direction < 2; direction++) {
            tri_status status = TRI_ERR_NO_MEMORY;
            file made = encoded(jpeg, 3), again = {0};
            trii_image image = {0};
            int n = 0;

            while (status == TRI_ERR_NO_MEMORY) {
                trii_alloc_fail_at(++n);
                if (direction == 0)
                    status = trii_image_decode(made.bytes, made.n, NULL, 3, &image);
                else if (jpeg)
                    status = trii_jpeg_encode(pixels, HEIGHT, WIDTH, 3, 85, &again.bytes, &again.n);
                else
                    status = trii_png_encode(pixels, HEIGHT, WIDTH, 3, &again.bytes, &again.n);
                trii_alloc_fail_at(0);
            }
            CHECK_OK(status);
            assert_true(n > 1);
            if (direction == 1) {
                assert_int_equal(again.n, made.n);
                assert_memory_equal(again.bytes, made.bytes, made.n);
            }
            trii_free(again.bytes);
            trii_image_clear(&image);
            trii_free(made.bytes);
            assert_int_equal(trii_alloc_live(), 0);
        }
    }
    free(pixels);
}

static void the_pixels_are_used_again(void **state)
{
    const trii_image_window corner = {.height = 8, .width = 8};
    file f = encoded(true, 3);
    trii_image image = {0};
    long calls;

    (void)state;
    CHECK_OK(trii_image_decode(f.bytes, f.n, NULL, 3, &image));
    calls = trii_alloc_calls();
    CHECK_OK(trii_image_decode(f.bytes, f.n, &corner, 3, &image));
    CHECK_OK(trii_image_decode(f.bytes, f.n, NULL, 1, &image));
    CHECK_OK(trii_image_decode(f.bytes, f.n, NULL, 3, &image));
    assert_int_equal(trii_alloc_calls(), calls);
    trii_image_clear(&image);
    trii_free(f.bytes);
}

static void what_cannot_be_written_is_refused(void **state)
{
    uint8_t pixel[4] = {0};
    unsigned char *bytes = NULL;
    size_t n;

    (void)state;
    CHECK_FAILS(trii_png_encode(NULL, 1, 1, 3, &bytes, &n), TRI_ERR_INVALID_ARG, "pixels is NULL");
    CHECK_FAILS(trii_png_encode(pixel, 0, 1, 3, &bytes, &n), TRI_ERR_INVALID_ARG, "0 x 1 pixels");
    CHECK_FAILS(trii_png_encode(pixel, 1, -1, 3, &bytes, &n), TRI_ERR_INVALID_ARG, "1 x -1 pixels");
    CHECK_FAILS(trii_png_encode(pixel, 1, 1, 2, &bytes, &n), TRI_ERR_INVALID_ARG, "or 4 (RGBA)");
    CHECK_FAILS(trii_jpeg_encode(pixel, 1, 65536, 3, 75, &bytes, &n), TRI_ERR_INVALID_ARG,
                "1 to 65500 each way");
    CHECK_FAILS(trii_jpeg_encode(pixel, 1, 1, 4, 75, &bytes, &n), TRI_ERR_INVALID_ARG,
                "1 (grey) or 3 (RGB) can");
    CHECK_FAILS(trii_jpeg_encode(pixel, 1, 1, 3, 0, &bytes, &n), TRI_ERR_INVALID_ARG,
                "a quality of 0: must be 1 to 100");
    assert_null(bytes);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_png_has_the_pixels_that_were_written),
    cmocka_unit_test(the_alpha_of_a_png_is_dropped),
    cmocka_unit_test(a_jpeg_is_near_what_was_written),
    cmocka_unit_test(a_grey_image_gives_three_equal_channels),
    cmocka_unit_test(the_size_needs_no_more_than_the_header),
    cmocka_unit_test(a_window_has_the_bits_of_the_whole_image),
    cmocka_unit_test(a_window_has_the_bits_of_a_narrow_image),
    cmocka_unit_test(a_window_outside_of_the_image_is_refused),
    cmocka_unit_test(a_file_that_is_cut_off_fails_whatever_the_window),
    cmocka_unit_test(what_is_no_image_is_named),
    cmocka_unit_test(too_many_pixels_are_refused_before_there_is_memory),
    cmocka_unit_test(damage_is_an_error_or_other_pixels),
    cmocka_unit_test(memory_that_is_not_there_is_an_error_without_leaks),
    cmocka_unit_test(the_pixels_are_used_again),
    cmocka_unit_test(what_cannot_be_written_is_refused),
};
TEST_MAIN(tests)
