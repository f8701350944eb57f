/*
 * resize_test.c - resize to the bit. The vectors come from Pillow 12; many more of them:
 * tests/golden/images_test.c.
 */
#include "train/image/resize.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "os/cpu.h"
#include "testing/check.h"
#include "testing/scratch.h"

static void ramp(uint8_t *pixels)
{
    for (int i = 0; i < 64; i++)
        pixels[i] = (uint8_t)(7 * i);
}

static void small_images_have_pillows_bits(void **state)
{
    static const struct {
        int height, width;
        uint8_t pixels[24];
    } vectors[] = {
        {3, 3, {70, 87, 103, 155, 157, 115, 102, 115, 117}},
        {3, 5, {65, 75, 87, 98, 108, 150, 160, 169, 119, 114, 97, 107, 118, 114, 120}},
        {2, 12, {97,  101, 105, 110, 115, 119, 124, 115, 105, 110, 115, 118,
                 112, 116, 120, 125, 130, 134, 139, 121, 103, 108, 113, 116}},
    };
    trii_image_scratch room = {0};
    uint8_t src[64], dst[24];

    (void)state;
    ramp(src);
    for (size_t i = 0; i < TRII_COUNT_OF(vectors); i++) {
        CHECK_OK(trii_image_resize(src, 8, 8, 8, 1, NULL, vectors[i].height, vectors[i].width, dst,
                                   &room));
        assert_memory_equal(dst, vectors[i].pixels, (size_t)(vectors[i].height * vectors[i].width));
    }
    trii_image_scratch_clear(&room);
    assert_int_equal(trii_alloc_live(), 0);
}

static void channels_do_not_mix(void **state)
{
    trii_image_scratch room = {0};
    uint8_t grey[64], many[64 * 4], one[15], dst[15 * 4];

    (void)state;
    ramp(grey);
    CHECK_OK(trii_image_resize(grey, 8, 8, 8, 1, NULL, 3, 5, one, &room));
    for (int channels = 1; channels <= 4; channels++) {
        for (int i = 0; i < 64 * channels; i++)
            many[i] = (uint8_t)(grey[i / channels] ^ (i % channels == 1 ? 255 : 0));
        CHECK_OK(
            trii_image_resize(many, 8, 8, 8 * (size_t)channels, channels, NULL, 3, 5, dst, &room));
        for (int i = 0; i < 15; i++)
            assert_int_equal(dst[i * channels], one[i]);
    }
    trii_image_scratch_clear(&room);
}

/* Of a part with whole pixels the result is that of the part alone, wherever it lies. */
static void a_row_may_be_wider_than_the_image(void **state)
{
    trii_image_scratch room = {0};
    uint8_t src[64], part[20], dst[35], alone[35];

    (void)state;
    ramp(src);
    for (int y = 0; y < 4; y++)
        memcpy(part + 5 * y, src + 8 * (y + 2) + 1, 5);
    CHECK_OK(trii_image_resize(part, 4, 5, 5, 1, NULL, 7, 5, alone, &room));
    CHECK_OK(trii_image_resize(src + 17, 4, 5, 8, 1, NULL, 7, 5, dst, &room));
    assert_memory_equal(dst, alone, sizeof(alone));
    trii_image_scratch_clear(&room);
}

static void an_image_of_that_size_is_copied(void **state)
{
    const double box[] = {0, 0, 8, 8};
    trii_image_scratch room = {0};
    uint8_t src[64], dst[64] = {0};

    (void)state;
    ramp(src);
    CHECK_OK(trii_image_resize(src, 8, 8, 8, 1, box, 8, 8, dst, &room));
    assert_memory_equal(dst, src, sizeof(src));
    trii_image_scratch_clear(&room);
}

static void a_box_with_parts_of_pixels_has_pillows_bits(void **state)
{
    /* Image.resize((4, 3), BILINEAR, box=(1.25, 0.5, 6.75, 7.1)) */
    static const uint8_t wanted[] = {75, 85, 94, 104, 170, 180, 166, 119, 99, 109, 108, 91};
    const double box[] = {1.25, 0.5, 6.75, 7.1};
    trii_image_scratch room = {0};
    uint8_t src[64], dst[12];

    (void)state;
    ramp(src);
    CHECK_OK(trii_image_resize(src, 8, 8, 8, 1, box, 3, 4, dst, &room));
    assert_memory_equal(dst, wanted, sizeof(wanted));
    trii_image_scratch_clear(&room);
}

static void what_cannot_be_resized_is_refused(void **state)
{
    static const double boxes[][4] = {{0, 0, 9, 8}, {0, 0, 8, 8.5}, {-0.5, 0, 8, 8},
                                      {4, 0, 4, 8}, {0, 5, 8, 4},   {0, 0, NAN, 8}};
    trii_image_scratch room = {0};
    uint8_t src[64] = {0}, dst[64];

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(boxes); i++)
        CHECK_FAILS(trii_image_resize(src, 8, 8, 8, 1, boxes[i], 3, 3, dst, &room),
                    TRI_ERR_INVALID_ARG, "not within 8 x 8 pixels");
    CHECK_FAILS(trii_image_resize(src, 0, 8, 8, 1, NULL, 3, 3, dst, &room), TRI_ERR_INVALID_ARG,
                "from 0 x 8 to 3 x 3");
    CHECK_FAILS(trii_image_resize(src, 8, 8, 8, 1, NULL, 3, INT64_MAX, dst, &room),
                TRI_ERR_INVALID_ARG, "at most 178956970");
    CHECK_FAILS(trii_image_resize(src, 8, 8, 8, 5, NULL, 3, 3, dst, &room), TRI_ERR_INVALID_ARG,
                "5 channels");
    assert_null(room.memory);
    trii_alloc_fail_at(1);
    CHECK_FAILS(trii_image_resize(src, 8, 8, 8, 1, NULL, 3, 3, dst, &room), TRI_ERR_NO_MEMORY,
                "resize");
}

/* In blocks of exact size, so that a sanitizer sees what is read after their end. */
static void every_instruction_set_gives_the_same_bits(void **state)
{
    const trii_resize_kernels *kernels =
        trii_cpu_isa() >= TRII_ISA_AVX2 ? &trii_resize_avx2 : &trii_resize_plain;
    trii_image_scratch room = {0};
    uint64_t draws = 21;

    (void)state;
    for (int i = 0; i < 2000; i++) {
        int height = 1 + (int)(scratch_random(&draws) % (i % 9 == 0 ? 3 : 60));
        int width = 1 + (int)(scratch_random(&draws) % (i % 7 == 0 ? 6 : 60));
        int to_height = 1 + (int)(scratch_random(&draws) % 50);
        int to_width = 1 + (int)(scratch_random(&draws) % 50), channels = 1 + i % 4;
        size_t n = (size_t)height * (size_t)width * (size_t)channels;
        size_t to_n = (size_t)to_height * (size_t)to_width * (size_t)channels;
        uint8_t *src = malloc(n), *dst = malloc(to_n), *wanted = malloc(to_n);

        assert_true(src != NULL && dst != NULL && wanted != NULL);
        for (size_t k = 0; k < n; k++) /* often at the ends */
            src[k] = (uint8_t)(scratch_random(&draws) % 4 == 0 ? 255 : scratch_random(&draws));
        CHECK_OK(trii_resize_with(kernels, src, height, width, (size_t)(width * channels), channels,
                                  NULL, to_height, to_width, dst, &room));
        CHECK_OK(trii_resize_with(&trii_resize_plain, src, height, width,
                                  (size_t)(width * channels), channels, NULL, to_height, to_width,
                                  wanted, &room));
        if (memcmp(dst, wanted, to_n) != 0)
            fail_msg("%d x %d to %d x %d of %d channels differs", height, width, to_height,
                     to_width, channels);
        free(src);
        free(dst);
        free(wanted);
    }
    trii_image_scratch_clear(&room);
}

/* Of every width, with all 256 values, in blocks of exact size. */
static void floats_are_divided_and_normalised(void **state)
{
    static const float means[2][3] = {{0.485f, 0.456f, 0.406f}, {-1e-30f, 0.5f, 3e7f}};
    static const float stds[2][3] = {{0.229f, 0.224f, 0.225f}, {1e-38f, -0.7f, 1e30f}};

    (void)state;
    for (int kind = 0; kind < 6 * 40; kind++) {
        bool mirror = kind & 1;
        int width = 1 + kind / 6, height = 7, channels = kind % 5 == 0 ? 4 : 3;
        int plane = height * width, n = channels * plane;
        const float *mean = kind % 3 == 2 || channels == 4 ? NULL : means[kind % 3];
        const float *std = kind % 3 == 2 || channels == 4 ? NULL : stds[kind % 3];
        uint8_t *pixels = malloc((size_t)n);
        float *dst = malloc((size_t)n * sizeof(float));

        assert_true(pixels != NULL && dst != NULL);
        for (int i = 0; i < n; i++)
            pixels[i] = (uint8_t)(i * 11 + kind);
        trii_image_to_chw(pixels, height, width, channels, mirror, mean, std, dst);
        for (int i = 0; i < n; i++) {
            int c = i / plane, y = i / width % height;
            int x = mirror ? width - 1 - i % width : i % width;
            float wanted = (float)pixels[(y * width + x) * channels + c] / 255.0f;

            if (mean != NULL)
                wanted = (wanted - mean[c]) / std[c];
            assert_memory_equal(&dst[i], &wanted, sizeof(wanted));
        }
        free(pixels);
        free(dst);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(small_images_have_pillows_bits),
    cmocka_unit_test(channels_do_not_mix),
    cmocka_unit_test(a_row_may_be_wider_than_the_image),
    cmocka_unit_test(an_image_of_that_size_is_copied),
    cmocka_unit_test(a_box_with_parts_of_pixels_has_pillows_bits),
    cmocka_unit_test(what_cannot_be_resized_is_refused),
    cmocka_unit_test(every_instruction_set_gives_the_same_bits),
    cmocka_unit_test(floats_are_divided_and_normalised),
};
TEST_MAIN(tests)
