/*
 * images_test.c - pictures of every kind against what Pillow makes of them (images.txt, made by
 * make_images.py), and their windows against the whole of them.
 */
#include <math.h>

#include "base/hash.h"
#include "train/image/pixels.h"
#include "testing/check.h"
#include "testing/golden.h"
#include "testing/scratch.h"

#define N_WINDOWS (TEST_SANITIZED ? 40 : 300)

typedef struct line {
    char kind[8], file[40];
    double box[4]; /* of crop and box */
    int height, width;
    uint64_t rgb, grey;
} line;

static bool is_picture(const line *l)
{
    return strcmp(l->kind, "decode") == 0 || strcmp(l->kind, "guess") == 0;
}

static bool next_line(FILE *file, line *l)
{
    unsigned long long rgb, grey = 0;

    if (fscanf(file, "%7s %39s", l->kind, l->file) != 2)
        return false;
    if (is_picture(l)) {
        assert_int_equal(fscanf(file, "%d %d %llx %llx", &l->height, &l->width, &rgb, &grey), 4);
    } else {
        assert_int_equal(
            fscanf(file, "%lf %lf %lf %lf", &l->box[0], &l->box[1], &l->box[2], &l->box[3]), 4);
        assert_int_equal(fscanf(file, "%d %d %llx", &l->height, &l->width, &rgb), 3);
    }
    l->rgb = rgb;
    l->grey = grey;
    return true;
}

static unsigned char *contents(const char *name, size_t *n_out)
{
    char path[100];

    snprintf(path, sizeof(path), "images/%s", name);
    return (unsigned char *)scratch_read(golden_path(path), n_out);
}

static uint64_t hash_of(const trii_image *image)
{
    return trii_hash(TRII_HASH_SEED, image->pixels,
                     (size_t)(image->height * image->width) * (size_t)image->channels);
}

static void every_picture_has_pillows_pixels(void **state)
{
    FILE *file = golden_open("images.txt");
    trii_image image = {0};
    line l;
    int n = 0;

    (void)state;
    while (next_line(file, &l) && is_picture(&l)) {
        int64_t height, width;
        size_t bytes;
        unsigned char *data = contents(l.file, &bytes);

        CHECK_OK(trii_image_size(data, bytes, &height, &width));
        assert_true(height == l.height && width == l.width);
        for (int channels = 1; channels <= 3; channels += 2) {
            if (trii_image_decode(data, bytes, NULL, channels, &image) != TRI_OK)
                fail_msg("%s: %s", l.file, tri_last_error());
            assert_true(image.height == l.height && image.width == l.width);
            if (l.kind[0] == 'd' && hash_of(&image) != (channels == 3 ? l.rgb : l.grey))
                fail_msg("%s: other pixels in %d channels", l.file, channels);
        }
        free(data);
        n++;
    }
    assert_int_equal(n, 45);
    trii_image_clear(&image);
    fclose(file);
}

static trii_image_window draw_window(uint64_t *draws, const line *l)
{
    trii_image_window w = {.height = 1 + scratch_random(draws) % (uint32_t)l->height,
                           .width = 1 + scratch_random(draws) % (uint32_t)l->width};

    w.top = scratch_random(draws) % (uint32_t)(l->height - w.height + 1);
    w.left = scratch_random(draws) % (uint32_t)(l->width - w.width + 1);
    return w;
}

static void check_windows(const line *l, int channels, uint64_t *draws)
{
    trii_image whole = {0}, part = {0};
    size_t bytes;
    unsigned char *data = contents(l->file, &bytes);

    CHECK_OK(trii_image_decode(data, bytes, NULL, channels, &whole));
    for (int i = 0; i < N_WINDOWS; i++) {
        trii_image_window w = draw_window(draws, l);
        size_t row = (size_t)(w.width * channels);

        CHECK_OK(trii_image_decode(data, bytes, &w, channels, &part));
        for (int64_t y = 0; y < w.height; y++) {
            if (memcmp(part.pixels + (size_t)y * row,
                       whole.pixels + ((w.top + y) * l->width + w.left) * channels, row) != 0)
                fail_msg("%s: %d x %d at row %d, column %d: row %d differs", l->file, (int)w.height,
                         (int)w.width, (int)w.top, (int)w.left, (int)y);
        }
    }
    trii_image_clear(&whole);
    trii_image_clear(&part);
    free(data);
}

static void every_window_has_the_bits_of_the_whole_picture(void **state)
{
    FILE *file = golden_open("images.txt");
    uint64_t draws = 11;
    line l;

    (void)state;
    for (int n = 0; next_line(file, &l) && is_picture(&l); n++)
        check_windows(&l, n % 3 == 0 ? 1 : 3, &draws);
    fclose(file);
}

static void resized(const line *l, const trii_image *picture, trii_image_scratch *room,
                    uint8_t *dst)
{
    size_t stride = (size_t)(picture->width * picture->channels);
    const double *box = l->box;

    if (strcmp(l->kind, "box") == 0) {
        CHECK_OK(trii_image_resize(picture->pixels, picture->height, picture->width, stride,
                                   picture->channels, box, l->height, l->width, dst, room));
        return;
    }
    CHECK_OK(trii_image_resize(picture->pixels + (size_t)box[1] * stride +
                                   (size_t)box[0] * (size_t)picture->channels,
                               (int64_t)(box[3] - box[1]), (int64_t)(box[2] - box[0]), stride,
                               picture->channels, NULL, l->height, l->width, dst, room));
}

static void every_box_is_resized_to_pillows_pixels(void **state)
{
    FILE *file = golden_open("images.txt");
    trii_image picture = {0};
    trii_image_scratch room = {0};
    line l;
    int n = 0;

    (void)state;
    while (next_line(file, &l)) {
        uint8_t *dst;
        size_t bytes;

        if (is_picture(&l))
            continue;
        if (n++ == 0) {
            unsigned char *data = contents(l.file, &bytes);

            CHECK_OK(trii_image_decode(data, bytes, NULL, 3, &picture));
            free(data);
        }
        bytes = (size_t)(l.height * l.width) * 3;
        dst = malloc(
            bytes); /* of its exact size, so that a sanitizer sees what is written after it */
        assert_non_null(dst);
        resized(&l, &picture, &room, dst);
        if (trii_hash(TRII_HASH_SEED, dst, bytes) != l.rgb)
            fail_msg("%s %d of (%g, %g, %g, %g) to %d x %d: other pixels", l.kind, n, l.box[0],
                     l.box[1], l.box[2], l.box[3], l.height, l.width);
        free(dst);
    }
    assert_int_equal(n, 200);
    trii_image_clear(&picture);
    trii_image_scratch_clear(&room);
    fclose(file);
}

/* A part of a size, or all of it. */
static trii_image_window draw_part(uint64_t *draws, int height, int width, bool all)
{
    trii_image_window p = {.height = height, .width = width};

    if (all)
        return p;
    p.top = (int64_t)(scratch_random(draws) % (uint64_t)height);
    p.left = (int64_t)(scratch_random(draws) % (uint64_t)width);
    p.height = 1 + (int64_t)(scratch_random(draws) % (uint64_t)(height - p.top));
    p.width = 1 + (int64_t)(scratch_random(draws) % (uint64_t)(width - p.left));
    return p;
}

/* Resized while it is decoded and only where it is wanted, or all of it afterwards. */
static void check_one_pass(const line *l, int channels, uint64_t *draws)
{
    trii_image part = {0}, memory = {0};
    trii_image_scratch room = {0};
    size_t bytes;
    unsigned char *data = contents(l->file, &bytes);

    for (int i = 0; i < 40; i++) {
        trii_image_window w = draw_window(draws, l);
        int height = i % 8 == 0 ? (int)w.height : 1 + (int)(scratch_random(draws) % 70);
        int width = i % 8 < 2 ? (int)w.width : 1 + (int)(scratch_random(draws) % 70);
        trii_resizing r = {w, height, width, draw_part(draws, height, width, i < 20)};
        size_t n = (size_t)height * (size_t)width * (size_t)channels;
        size_t row = (size_t)r.part.width * (size_t)channels;
        uint8_t *dst = malloc((size_t)r.part.height * row), *wanted = malloc(n);

        assert_true(dst != NULL && wanted != NULL);
        CHECK_OK(trii_image_decode(data, bytes, &w, channels, &part));
        CHECK_OK(trii_image_resize(part.pixels, w.height, w.width, (size_t)(w.width * channels),
                                   channels, NULL, height, width, wanted, &room));
        CHECK_OK(trii_image_decode_resized(data, bytes, &r, channels, dst, &room, &memory));
        for (int64_t y = 0; y < r.part.height; y++)
            if (memcmp(dst + (size_t)y * row,
                       wanted + ((r.part.top + y) * width + r.part.left) * channels, row) != 0)
                fail_msg("%s: %d x %d to %d x %d in %d channels differs", l->file, (int)w.height,
                         (int)w.width, height, width, channels);
        free(dst);
        free(wanted);
    }
    assert_true(trii_image_decode_resized(data, bytes / 2,
                                          &(trii_resizing){{0, 0, 1, 1}, 1, 1, {0, 0, 1, 1}},
                                          channels, data, &room, &memory) != TRI_OK);
    trii_image_clear(&part);
    trii_image_clear(&memory);
    trii_image_scratch_clear(&room);
    free(data);
}

static void one_pass_has_the_bits_of_two(void **state)
{
    FILE *file = golden_open("images.txt");
    uint64_t draws = 17;
    line l;

    (void)state;
    for (int n = 0; next_line(file, &l) && is_picture(&l); n++)
        check_one_pass(&l, n % 3 == 0 ? 1 : 3, &draws);
    fclose(file);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_picture_has_pillows_pixels),
    cmocka_unit_test(every_window_has_the_bits_of_the_whole_picture),
    cmocka_unit_test(one_pass_has_the_bits_of_two),
    cmocka_unit_test(every_box_is_resized_to_pillows_pixels),
};
TEST_MAIN(tests)
