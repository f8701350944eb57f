/* image_test.c - crop, mirror, convert, normalise: values, draws, and datasets that compute their
 * samples. */
#include <math.h>

#include <trireme/data.h>

#include "base/alloc.h"
#include "base/philox.h"
#include "testing/check.h"

enum { HEIGHT = 3, WIDTH = 5, CHANNELS = 2, PIXELS = HEIGHT * WIDTH, SAMPLES = 40 };

static uint8_t pixels[SAMPLES][CHANNELS][HEIGHT][WIDTH];
static int32_t tags[SAMPLES];

static tri_dataset *in_memory(void)
{
    static const tri_field fields[] = {{TRI_DTYPE_U8, 3, {CHANNELS, HEIGHT, WIDTH}},
                                       {TRI_DTYPE_I32, 0, {0}}};
    const void *data[] = {pixels, tags};
    tri_dataset *dataset;

    for (int i = 0; i < SAMPLES; i++) {
        tags[i] = i * 3;
        for (int p = 0; p < CHANNELS * PIXELS; p++)
            (&pixels[i][0][0][0])[p] = (uint8_t)(1 + (i * 31 + p * 7) % 255);
    }
    CHECK_OK(tri_dataset_arrays(SAMPLES, fields, data, 2, &dataset));
    return dataset;
}

/* The same samples from a set that makes them, one at a time. */
static tri_status made_read(tri_dataset *self, const tri_request *request, void *const *slots)
{
    (void)self;
    for (int64_t i = 0; i < request->n; i++) {
        memcpy((char *)slots[0] + (size_t)i * sizeof(pixels[0]), pixels[request->indices[i]],
               sizeof(pixels[0]));
        ((int32_t *)slots[1])[i] = tags[request->indices[i]];
    }
    return TRI_OK;
}

static const tri_dataset_class made_class = {.name = "made", .read = made_read};

/* Philox against the paper's published test vectors (Random123, kat_vectors: philox4x32 10). */
static void philox_has_the_published_values(void **state)
{
    uint32_t out[4];

    (void)state;
    trii_philox((const uint32_t[]){0, 0, 0, 0}, 0, out);
    assert_memory_equal(out, ((const uint32_t[]){0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}),
                        16);
    trii_philox((const uint32_t[]){0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, UINT64_MAX,
                out);
    assert_memory_equal(out, ((const uint32_t[]){0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}),
                        16);
    trii_philox((const uint32_t[]){0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                UINT64_C(0x299f31d0a4093822), out);
    assert_memory_equal(out, ((const uint32_t[]){0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}),
                        16);
}

static void plain_conversion_scales_and_normalises(void **state)
{
    float out[CHANNELS * PIXELS];
    int32_t tag;
    int64_t index = 4;
    tri_dataset *dataset;

    (void)state;
    CHECK_OK(tri_dataset_images(
        in_memory(), &(tri_dataset_images_options){.mean = {0.5f, 0.25f}, .std = {0.5f, 2.0f}},
        &dataset));
    assert_int_equal(dataset->fields[0].dtype, TRI_DTYPE_F32);
    CHECK_OK(tri_dataset_read(dataset, &(tri_request){.indices = &index, .n = 1},
                              (void *const[]){out, &tag}));
    assert_int_equal(tag, 12);
    for (int p = 0; p < CHANNELS * PIXELS; p++) {
        double v = (&pixels[4][0][0][0])[p] / 255.0;
        double want = p < PIXELS ? (v - 0.5) / 0.5 : (v - 0.25) / 2.0;

        assert_true(fabs((double)out[p] - want) < 1e-6);
    }
    tri_dataset_destroy(dataset);
}

/* out is the image under some shift and mirror; returns which, or fails. */
static int placement_of(const float *out, int index, int pad)
{
    for (int code = 0; code < 2 * (2 * pad + 1) * (2 * pad + 1); code++) {
        int dx = code / 2 % (2 * pad + 1) - pad, dy = code / 2 / (2 * pad + 1) - pad;
        bool same = true;

        for (int c = 0; c < CHANNELS && same; c++) {
            for (int p = 0; p < PIXELS && same; p++) {
                int y = p / WIDTH + dy, x = p % WIDTH + dx;
                int from = code % 2 == 1 ? WIDTH - 1 - x : x;
                bool inside = y >= 0 && y < HEIGHT && x >= 0 && x < WIDTH;
                float want = inside ? (float)pixels[index][c][y][from] * (float)(1 / 255.0) : 0.0f;

                same = out[c * PIXELS + p] == want;
            }
        }
        if (same)
            return code;
    }
    fail_msg("sample %d is not a shifted or mirrored image", index);
    return -1;
}

static void crops_and_mirrors_are_all_drawn(void **state)
{
    enum { PAD = 2, CODES = 2 * 5 * 5 };
    int seen[CODES] = {0};
    float out[CHANNELS * PIXELS];
    int32_t tag;
    tri_dataset *dataset;

    (void)state;
    CHECK_OK(tri_dataset_images(in_memory(),
                                &(tri_dataset_images_options){.pad = PAD, .flip = true}, &dataset));
    for (int64_t epoch = 0; epoch < 50; epoch++) {
        for (int64_t i = 0; i < SAMPLES; i++) {
            CHECK_OK(tri_dataset_read(
                dataset, &(tri_request){.indices = &i, .n = 1, .seed = 7, .epoch = epoch},
                (void *const[]){out, &tag}));
            seen[placement_of(out, (int)i, PAD)]++;
        }
    }
    for (int code = 0; code < CODES; code++) /* 2000 draws over 50: 40 each, sigma 6 */
        assert_in_range(seen[code], 12, 70);
    tri_dataset_destroy(dataset);
}

/* A crop wholly in the padding shows nothing of the image, and reads nothing outside it. */
static void wide_padding_stays_inside(void **state)
{
    float out[CHANNELS * PIXELS];
    int32_t tag;
    tri_dataset *dataset;

    (void)state;
    CHECK_OK(tri_dataset_images(in_memory(), &(tri_dataset_images_options){.pad = 9, .flip = true},
                                &dataset));
    for (int64_t i = 0; i < SAMPLES; i++) {
        CHECK_OK(tri_dataset_read(dataset, &(tri_request){.indices = &i, .n = 1},
                                  (void *const[]){out, &tag}));
        (void)placement_of(out, (int)i, 9);
    }
    tri_dataset_destroy(dataset);
}

static void draws_depend_on_seed_epoch_and_index_alone(void **state)
{
    static float one[SAMPLES][CHANNELS * PIXELS], all[SAMPLES][CHANNELS * PIXELS];
    int32_t tag[SAMPLES];
    int64_t indices[SAMPLES];
    tri_dataset_images_options opt = {.pad = 1, .flip = true};
    tri_dataset *memory, *made, *subset, *base;

    (void)state;
    CHECK_OK(tri_dataset_images(in_memory(), &opt, &memory));
    made = &(tri_dataset){.cls = &made_class, .length = SAMPLES, .n_fields = 2};
    memcpy(made->fields, memory->fields, sizeof(made->fields));
    made->fields[0].dtype = TRI_DTYPE_U8;
    CHECK_OK(tri_dataset_images(made, &opt, &made));
    CHECK_OK(tri_dataset_images(in_memory(), &opt, &base));
    CHECK_OK(tri_dataset_subset(base, 10, 20, &subset));

    for (int64_t i = 0; i < SAMPLES; i++) {
        indices[i] = SAMPLES - 1 - i;
        CHECK_OK(tri_dataset_read(memory,
                                  &(tri_request){.indices = &i, .n = 1, .seed = 3, .epoch = 5},
                                  (void *const[]){one[i], &tag[i]}));
    }
    CHECK_OK(tri_dataset_read(
        made, &(tri_request){.indices = indices, .n = SAMPLES, .seed = 3, .epoch = 5},
        (void *const[]){all, tag}));
    for (int i = 0; i < SAMPLES; i++)
        assert_memory_equal(one[i], all[SAMPLES - 1 - i], sizeof(one[i]));
    for (int i = 0; i < 20; i++)
        indices[i] = i;
    CHECK_OK(tri_dataset_read(subset,
                              &(tri_request){.indices = indices, .n = 20, .seed = 3, .epoch = 5},
                              (void *const[]){all, tag}));
    for (int i = 0; i < 20; i++)
        assert_memory_equal(one[10 + i], all[i], sizeof(one[i]));
    tri_dataset_destroy(subset);
    tri_dataset_destroy(made);
    tri_dataset_destroy(memory);
}

/* Asks for more samples than a subset reads from its parent at once. */
static void a_subset_gives_any_number(void **state)
{
    static int32_t values[200], got[150];
    static int64_t indices[150];
    const tri_field field = {TRI_DTYPE_I32, 0, {0}};
    tri_dataset *base, *subset, *inner;

    (void)state;
    for (int i = 0; i < 200; i++)
        values[i] = 1000 + i;
    for (int i = 0; i < 150; i++)
        indices[i] = (i * 7) % 150;
    CHECK_OK(tri_dataset_arrays(200, &field, (const void *const[]){values}, 1, &base));
    CHECK_OK(tri_dataset_subset(base, 10, 170, &inner));
    CHECK_OK(tri_dataset_subset(inner, 5, 150, &subset));
    CHECK_OK(tri_dataset_read(subset, &(tri_request){.indices = indices, .n = 150},
                              (void *const[]){got}));
    for (int i = 0; i < 150; i++)
        assert_int_equal(got[i], 1015 + (i * 7) % 150);
    tri_dataset_destroy(subset);
    CHECK_FAILS(tri_dataset_arrays(2, &field, (const void *const[]){values}, 0, &base),
                TRI_ERR_INVALID_ARG, "with 0 fields");
    CHECK_FAILS(tri_dataset_arrays(-2, &field, (const void *const[]){values}, 1, &base),
                TRI_ERR_INVALID_ARG, "-2 samples");
}

static void wrong_sets_and_options_are_refused(void **state)
{
    long live = trii_alloc_live();
    static const tri_field wrong = {TRI_DTYPE_F32, 3, {1, 2, 2}};
    static const float data[4];
    tri_dataset *base, *dataset;

    (void)state;
    CHECK_OK(tri_dataset_arrays(1, &wrong, (const void *const[]){data}, 1, &base));
    CHECK_FAILS(tri_dataset_images(base, NULL, &dataset), TRI_ERR_INVALID_ARG, "field 0 is f32");
    CHECK_FAILS(tri_dataset_images(in_memory(), &(tri_dataset_images_options){.pad = -1}, &dataset),
                TRI_ERR_INVALID_ARG, "padding of -1");
    CHECK_FAILS(
        tri_dataset_images(in_memory(), &(tri_dataset_images_options){.std = {-1.0f}}, &dataset),
        TRI_ERR_INVALID_ARG, "std[0] is -1");
    CHECK_FAILS(tri_dataset_subset(in_memory(), 30, 11, &dataset), TRI_ERR_INVALID_ARG,
                "11 samples from 30 on, of 40");
    assert_int_equal(trii_alloc_live(), live);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(philox_has_the_published_values),
    cmocka_unit_test(plain_conversion_scales_and_normalises),
    cmocka_unit_test(crops_and_mirrors_are_all_drawn),
    cmocka_unit_test(wide_padding_stays_inside),
    cmocka_unit_test(draws_depend_on_seed_epoch_and_index_alone),
    cmocka_unit_test(a_subset_gives_any_number),
    cmocka_unit_test(wrong_sets_and_options_are_refused),
};
TEST_MAIN(tests)
