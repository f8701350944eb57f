/*
 * image_file_test.c - images as programs have them, and files by their names.
 */
#include <trireme/image.h>

#include "base/alloc.h"
#include "testing/check.h"
#include "testing/scratch.h"

static uint8_t colours[4 * 6 * 3];

static tri_image own_image(void)
{
    for (size_t i = 0; i < sizeof(colours); i++)
        colours[i] = (uint8_t)(i * 3);
    return (tri_image){.pixels = colours, .height = 4, .width = 6, .channels = 3};
}

static void an_image_is_written_and_read(void **state)
{
    const tri_image_options part = {.top = 1, .left = 2, .height = 2, .width = 3};
    const tri_image_options grey = {.channels = 1};
    tri_image own = own_image(), image = {0};
    const char *path;
    scratch s;

    (void)state;
    scratch_begin(&s);
    path = scratch_path(&s, "a.JPEG"); /* a name says nothing */
    CHECK_OK(tri_image_write_png(&own, path));
    CHECK_OK(tri_image_read(path, NULL, &image));
    assert_true(image.height == 4 && image.width == 6 && image.channels == 3);
    assert_memory_equal(image.pixels, colours, sizeof(colours));
    CHECK_OK(tri_image_read(path, &part, &image));
    assert_true(image.height == 2 && image.width == 3);
    assert_memory_equal(image.pixels + 9, colours + (2 * 6 + 2) * 3, 9);
    CHECK_OK(tri_image_read(path, &grey, &image));
    assert_int_equal(image.channels, 1);
    CHECK_OK(tri_image_write_jpeg(&own, 90, path)); /* in place of the other */
    CHECK_OK(tri_image_read(path, NULL, &image));
    assert_true(image.height == 4 && image.width == 6);
    assert_true(abs(image.pixels[0] - colours[0]) < 30);
    assert_int_equal(scratch_count(s.dir), 1);
    tri_image_clear(&image);
    assert_null(image.pixels);
    assert_int_equal(trii_alloc_live(), 0);
    scratch_end(&s);
}

static void pixels_of_the_program_stay_its_own(void **state)
{
    uint8_t before[sizeof(colours)];
    tri_image own = own_image(), other = {0};
    scratch s;
    const char *path;

    (void)state;
    scratch_begin(&s);
    path = scratch_path(&s, "a");
    CHECK_OK(tri_image_write_png(&own, path));
    memcpy(before, colours, sizeof(before));
    CHECK_OK(tri_image_resize(&own, NULL, 3, 3, &other));
    CHECK_OK(tri_image_read(path, &(tri_image_options){.channels = 1}, &own));
    assert_ptr_not_equal(own.pixels, colours);
    tri_image_clear(&own);
    own = own_image();
    tri_image_clear(&own);
    tri_image_clear(&other);
    tri_image_clear(NULL);
    assert_memory_equal(before, colours, sizeof(before));
    assert_int_equal(trii_alloc_live(), 0);
    scratch_end(&s);
}

static void a_box_is_resized(void **state)
{
    const double box[] = {2, 1, 4, 3}, outside[] = {2, 1, 7, 3};
    tri_image own = own_image(), image = {0};

    (void)state;
    CHECK_OK(tri_image_resize(&own, box, 1, 1, &image));
    assert_true(image.height == 1 && image.width == 1 && image.channels == 3);
    for (int c = 0; c < 3; c++) {
        int sum = 0;

        for (int i = 0; i < 4; i++)
            sum += colours[((1 + i / 2) * 6 + 2 + i % 2) * 3 + c];
        assert_true(abs(image.pixels[c] - sum / 4) <= 60); /* it reads what is around, too */
    }
    CHECK_FAILS(tri_image_resize(&own, outside, 1, 1, &image), TRI_ERR_INVALID_ARG,
                "image_resize: resize: the box from (2, 1) to (7, 3)");
    assert_int_equal(image.height, 0);
    CHECK_FAILS(tri_image_resize(&own, NULL, 0, 1, &image), TRI_ERR_INVALID_ARG, "to 0 x 1");
    CHECK_FAILS(tri_image_resize(&own, NULL, 1, 1, &own), TRI_ERR_INVALID_ARG,
                "image_out is the image itself");
    tri_image_clear(&image);
}

static void failures_name_the_file(void **state)
{
    tri_image own = own_image(), image = {0};
    scratch s;
    const char *text, *png;
    char *bytes;
    size_t n;

    (void)state;
    scratch_begin(&s);
    text = scratch_file(&s, "n.jpg", "no image", 8);
    CHECK_FAILS(tri_image_read(text, NULL, &image), TRI_ERR_FORMAT, "n.jpg: no image: it begins");
    CHECK_FAILS(tri_image_read(scratch_file(&s, "empty.jpg", "", 0), NULL, &image), TRI_ERR_FORMAT,
                "empty.jpg: no image: it is empty");
    CHECK_FAILS(tri_image_read(scratch_path(&s, "missing.jpg"), NULL, &image), TRI_ERR_NOT_FOUND,
                "missing.jpg");
    CHECK_FAILS(tri_image_read(s.dir, NULL, &image), TRI_ERR_IO, s.dir);
    png = scratch_path(&s, "a.png");
    CHECK_OK(tri_image_write_png(&own, png));
    CHECK_FAILS(tri_image_read(png, &(tri_image_options){.height = 5, .width = 1}, &image),
                TRI_ERR_INVALID_ARG, "a.png: a part of 5 x 1 pixels");
    CHECK_FAILS(tri_image_read(png, &(tri_image_options){.top = 1}, &image), TRI_ERR_INVALID_ARG,
                "a part of 0 x 0 pixels");
    bytes = scratch_read(png, &n);
    png = scratch_file(&s, "cut.png", bytes, n / 2);
    CHECK_FAILS(tri_image_read(png, NULL, &image), TRI_ERR_FORMAT, "cut.png: PNG image is cut off");
    CHECK_FAILS(tri_image_decode(bytes, 3, NULL, &image), TRI_ERR_FORMAT, "image_decode: no image");
    free(bytes);
    CHECK_FAILS(tri_image_write_png(&own, scratch_path(&s, "no/a.png")), TRI_ERR_NOT_FOUND,
                "no/a.png");
    own.channels = 2;
    CHECK_FAILS(tri_image_write_jpeg(&own, 75, scratch_path(&s, "b")), TRI_ERR_INVALID_ARG,
                "2 channels");
    assert_null(image.pixels);
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(an_image_is_written_and_read),
    cmocka_unit_test(pixels_of_the_program_stay_its_own),
    cmocka_unit_test(a_box_is_resized),
    cmocka_unit_test(failures_name_the_file),
};
TEST_MAIN(tests)
