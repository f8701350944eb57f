/* image_view_test.c - images that are cropped, mirrored and turned into numbers in one pass. */
#include "train/data/image_view.h"

#include "base/alloc.h"
#include "os/cpu.h"
#include "testing/check.h"
#include "testing/scratch.h"

enum { CHANNELS = 2, HEIGHT = 11, WIDTH = 19, SAMPLES = 24 };

static uint8_t pixels[SAMPLES][CHANNELS][HEIGHT][WIDTH];
static int32_t tags[SAMPLES];

static tri_dataset *images(void)
{
    static const tri_field fields[] = {{TRI_DTYPE_U8, 3, {CHANNELS, HEIGHT, WIDTH}},
                                       {TRI_DTYPE_I32, 0, {0}}};
    uint64_t state = 1;
    tri_dataset *set;

    for (int i = 0; i < SAMPLES; i++) {
        tags[i] = i * 3;
        for (int k = 0; k < CHANNELS * HEIGHT * WIDTH; k++) {
            state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
            (&pixels[i][0][0][0])[k] = (uint8_t)(state >> 56);
        }
    }
    CHECK_OK(tri_dataset_arrays(SAMPLES, fields, (const void *const[]){pixels, tags}, 2, &set));
    return set;
}

/* --- one view ------------------------------------------------------------- */

static int shown(const uint8_t *image, int h, int w)
{
    return h < 0 || h >= HEIGHT || w < 0 || w >= WIDTH ? 0 : image[h * WIDTH + w];
}

/* What a first crop has cut off stays zero in a second one that is larger, mirrored between or not.
 */
static void a_crop_of_a_crop_shows_what_both_do(void **state)
{
    static const tri_field field = {TRI_DTYPE_U8, 3, {1, HEIGHT, WIDTH}};
    uint8_t y[15 * 23];
    tri_dataset *set = images();

    (void)state;
    for (int mirror = 0; mirror < 2; mirror++) {
        trii_view view = trii_view_of(&field, pixels[0]);

        trii_view_crop(&view, 2, 3, 7, 13);
        view.mirror = mirror;
        trii_view_crop(&view, -4, -5, 15, 23);
        trii_view_copy(&view, y);
        for (int h = 0; h < 15; h++) {
            for (int w = 0; w < 23; w++) {
                int row = h - 4, column = w - 5;
                bool inside = row >= 0 && row < 7 && column >= 0 && column < 13;

                column = mirror ? 12 - column : column;
                assert_int_equal(y[h * 23 + w],
                                 inside ? shown(&pixels[0][0][0][0], 2 + row, 3 + column) : 0);
            }
        }
    }
    tri_dataset_destroy(set);
}

/* Crops may leave nothing of an image but the zeros around it, above, below and beside; then a
 * larger part comes, which has the place of the image in it. */
static void what_is_cut_off_a_file_stays_cut_off(void **state)
{
    static const int64_t away[][2] = {{-50, 0}, {50, 0}, {0, -50}, {0, 50}, {-50, -50}, {-11, -19}};
    long live = trii_alloc_live();
    uint8_t white[HEIGHT * WIDTH], y[120 * 120];
    unsigned char *file = NULL;
    size_t bytes = 0;

    (void)state;
    memset(white, 255, sizeof(white));
    CHECK_OK(trii_png_encode(white, HEIGHT, WIDTH, 1, &file, &bytes));
    for (size_t k = 0; k < TRII_COUNT_OF(away); k++) {
        trii_view_work work = {.turn = 0};
        trii_view view;

        CHECK_OK(trii_view_open(file, bytes, 1, &view));
        trii_view_crop(&view, away[k][0], away[k][1], HEIGHT, WIDTH);
        trii_view_crop(&view, -55, -55, 120, 120);
        CHECK_OK(trii_view_decode(&view, &work));
        trii_view_copy(&view, y);
        for (size_t i = 0; i < sizeof(y); i++)
            assert_int_equal(y[i], 0);
        trii_view_work_fini(&work);
    }
    trii_free(file);
    assert_int_equal(trii_alloc_live(), live);
}

/* The same moves of both: sizes, crops that may lie outside, a mirror. */
static void move_both(trii_view views[2], trii_view_work works[2], uint64_t *draws)
{
    int64_t r[4];

    for (int i = 0; i < 4; i++)
        r[i] = (int64_t)(scratch_random(draws) % 10);
    for (int k = 0; k < 2 && r[0] % 2 == 0; k++) /* within the image */
        trii_view_crop(&views[k], r[0], r[1], 10 + r[2], 10 + r[3]);
    for (int moves = 0; moves < 4; moves++) {
        int kind = moves == 0 ? 1 : (int)(scratch_random(draws) % 4);

        for (int i = 0; i < 4; i++)
            r[i] = (int64_t)(scratch_random(draws) % 30);
        for (int k = 0; k < 2; k++) {
            if (kind == 0)
                views[k].mirror = !views[k].mirror;
            else if (kind == 1)
                CHECK_OK(trii_view_resize(&views[k], 1 + r[0], 1 + r[1], &works[k]));
            else
                trii_view_crop(&views[k], r[2] - 8, r[3] - 8, 1 + r[0], 1 + r[1]);
        }
    }
}

/* What is resized when it is decoded, and what was decoded before. */
static void a_file_shows_what_its_pixels_show(void **state)
{
    enum { SIDE = 31, N = 3 * SIDE * (SIDE + 6) };
    const tri_field field = {TRI_DTYPE_U8, 3, {3, SIDE, SIDE + 6}};
    long live = trii_alloc_live();
    uint64_t draws = 5;
    uint8_t together[N], planes[N];

    (void)state;
    for (int i = 0; i < N; i++)
        together[i] = (uint8_t)scratch_random(&draws);
    for (int i = 0; i < 400; i++) {
        unsigned char *file = NULL;
        trii_view_work works[2] = {{.turn = 0}, {.turn = 0}};
        trii_image whole = {0};
        trii_view views[2];
        uint8_t shown[2][3 * 64 * 64];
        size_t bytes = 0;

        CHECK_OK(i % 2 == 0 ? trii_png_encode(together, SIDE, SIDE + 6, 3, &file, &bytes)
                            : trii_jpeg_encode(together, SIDE, SIDE + 6, 3, 80, &file, &bytes));
        CHECK_OK(trii_image_decode(file, bytes, NULL, 3, &whole));
        for (int k = 0; k < N; k++)
            planes[k % 3 * N / 3 + k / 3] = whole.pixels[k];
        CHECK_OK(trii_view_open(file, bytes, 3, &views[0]));
        views[1] = trii_view_of(&field, planes);
        move_both(views, works, &draws);
        assert_int_equal(views[0].height, views[1].height);
        assert_int_equal(views[0].width, views[1].width);
        for (int k = 0; k < 2; k++) {
            CHECK_OK(trii_view_decode(&views[k], &works[k]));
            trii_view_copy(&views[k], shown[k]);
            trii_view_work_fini(&works[k]);
        }
        assert_memory_equal(shown[0], shown[1], (size_t)(3 * views[0].height * views[0].width));
        trii_image_clear(&whole);
        trii_free(file);
    }
    assert_int_equal(trii_alloc_live(), live);
}

/* Refused before there is memory for it, and where a product of the sides would not fit either. */
static void a_size_that_no_image_has_is_refused(void **state)
{
    static const uint8_t row[3] = {1, 2, 3};
    static const int64_t sizes[][2] = {
        {256, 2560000}, {INT64_C(1) << 24, INT64_C(1) << 39}, {INT64_C(1) << 40, 1}};
    const tri_field field = {TRI_DTYPE_U8, 3, {1, 1, 3}};
    long calls = trii_alloc_calls();

    (void)state;
    for (size_t k = 0; k < TRII_COUNT_OF(sizes); k++) {
        trii_view view = trii_view_of(&field, row);
        trii_view_work work = {.turn = 0};

        CHECK_FAILS(trii_view_resize(&view, sizes[k][0], sizes[k][1], &work), TRI_ERR_INVALID_ARG,
                    "resize: from 1 x 3 to ");
    }
    assert_int_equal(trii_alloc_calls(), calls);
}

/* Of every width that a loop of eights may meet, and no byte beyond. */
static void rows_of_any_width_are_converted(void **state)
{
    static const float mean = 0.25f, std = 0.5f;
    uint8_t row[40];
    float y[42];

    (void)state;
    for (int k = 0; k < 40; k++)
        row[k] = (uint8_t)(7 * k);
    for (int n = 1; n <= 40; n++) {
        for (int mirror = 0; mirror < 2; mirror++) {
            const tri_field field = {TRI_DTYPE_U8, 3, {1, 1, n}};
            uint8_t *exact = malloc((size_t)n); /* where a sanitizer sees what is beyond */
            trii_view view;

            assert_non_null(exact);
            memcpy(exact, row, (size_t)n);
            view = trii_view_of(&field, exact);
            view.mirror = mirror;
            y[n] = 77;
            CHECK_OK(trii_view_to_float(&view, &mean, &std, y, NULL));
            for (int k = 0; k < n; k++)
                assert_true(y[k] == ((float)row[mirror ? n - 1 - k : k] / 255.0f - mean) / std);
            assert_true(y[n] == 77);
            free(exact);
        }
    }
}

/* All bytes, with the roundings of torchvision's ToTensor and Normalize. */
static void check_all_bytes(void)
{
    static const float means[] = {0, 0.485f, 0.456f, 0.406f, 0.2860f, -1.5f},
                       stds[] = {1, 0.229f, 0.224f, 0.225f, 0.3530f, 3.0f};
    const tri_field field = {TRI_DTYPE_U8, 3, {1, 16, 16}};
    uint8_t bytes[256];
    float y[256];

    for (int b = 0; b < 256; b++)
        bytes[b] = (uint8_t)b;
    for (size_t k = 0; k < TRII_COUNT_OF(means); k++) {
        trii_view view = trii_view_of(&field, bytes);

        CHECK_OK(trii_view_to_float(&view, &means[k], &stds[k], y, NULL));
        for (int b = 0; b < 256; b++)
            assert_true(y[b] == ((float)b / 255.0f - means[k]) / stds[k]);
    }
}

static void bytes_become_the_numbers_of_torchvision(void **state)
{
    (void)state;
    check_all_bytes();
}

static void bytes_become_the_same_numbers_without_vectors(void **state)
{
    (void)state;
    assert_int_equal(setenv("TRI_ISA", "portable", 1), 0);
    assert_int_equal(trii_cpu_isa(), TRII_ISA_PORTABLE);
    check_all_bytes();
}

/* --- lists ---------------------------------------------------------------- */

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

/* A transform that a user may write, so that those around it are no one pass. */
static tri_status copy_field(const tri_transform *self, const tri_field *in, const void *x,
                             tri_draws *draws, tri_sample *out)
{
    size_t bytes = tri_dtype_size(in->dtype);
    void *y = tri_sample_room(out, 0, in->dtype, in->shape, in->ndim);

    (void)self;
    (void)draws;
    for (int d = 0; d < in->ndim; d++)
        bytes *= (size_t)in->shape[d];
    if (y != NULL)
        memcpy(y, x, bytes);
    return TRI_OK;
}

enum { LIST = 5, OUT = CHANNELS * 9 * 17 };

static void fill_list(tri_transform *list)
{
    static const double mean[CHANNELS] = {0.25, 0.5}, std[CHANNELS] = {0.3, 0.125};

    list[0] = tri_transform_random_crop(HEIGHT, WIDTH, 3);
    list[1] = tri_transform_random_horizontal_flip(0.5);
    list[2] = tri_transform_center_crop(9, 17);
    list[3] = tri_transform_to_float();
    list[4] = tri_transform_normalize(mean, std, CHANNELS);
}

static void read_all(tri_dataset *set, float *y)
{
    int64_t indices[SAMPLES];
    int32_t out[SAMPLES];

    for (int i = 0; i < SAMPLES; i++)
        indices[i] = SAMPLES - 1 - i;
    CHECK_OK(tri_dataset_read(
        set, &(tri_request){.indices = indices, .n = SAMPLES, .seed = 3, .epoch = 5},
        (void *const[]){y, out}));
    for (int i = 0; i < SAMPLES; i++)
        assert_int_equal(out[i], tags[indices[i]]);
}

static void one_pass_gives_what_many_give(void **state)
{
    static const tri_dataset_class made_class = {.name = "made", .read = made_read};
    static float want[SAMPLES * OUT], got[SAMPLES * OUT];
    const tri_transform apart = {.name = "apart", .apply = copy_field};
    long live = trii_alloc_live();
    tri_transform list[LIST], parted[LIST + 2];
    tri_dataset made = {
        .cls = &made_class,
        .length = SAMPLES,
        .n_fields = 2,
        .fields = {{TRI_DTYPE_U8, 3, {CHANNELS, HEIGHT, WIDTH}}, {TRI_DTYPE_I32, 0, {0}}}};
    tri_dataset *set = images();

    (void)state;
    fill_list(list);
    CHECK_OK(tri_dataset_transform(set, list, LIST, &set));
    assert_int_equal(set->fields[0].dtype, TRI_DTYPE_F32);
    read_all(set, want);
    tri_dataset_destroy(set);
    CHECK_OK(tri_dataset_transform(&made, list, LIST, &set)); /* from samples that are made */
    read_all(set, got);
    assert_memory_equal(got, want, sizeof(got));
    tri_dataset_destroy(set);
    set = images();
    for (int k = 0; k < LIST; k++) /* each a data set of its own */
        CHECK_OK(tri_dataset_transform(set, &list[k], 1, &set));
    read_all(set, got);
    assert_memory_equal(got, want, sizeof(got));
    tri_dataset_destroy(set);
    memcpy(parted, list, sizeof(list)); /* another one between, which draws nothing */
    parted[3] = apart;
    parted[4] = list[3];
    parted[5] = apart;
    parted[6] = list[4];
    CHECK_OK(tri_dataset_transform(images(), parted, 7, &set));
    read_all(set, got);
    assert_memory_equal(got, want, sizeof(got));
    tri_dataset_destroy(set);
    assert_int_equal(trii_alloc_live(), live);
}

static void draws_depend_on_seed_epoch_and_index_alone(void **state)
{
    static float whole[SAMPLES][OUT], one[OUT];
    tri_transform list[LIST];
    int64_t n_other = 0;
    tri_dataset *set;
    int32_t tag;

    (void)state;
    fill_list(list);
    CHECK_OK(tri_dataset_transform(images(), list, LIST, &set));
    read_all(set, &whole[0][0]);
    CHECK_OK(tri_dataset_subset(set, 4, 12, &set));
    for (int64_t i = 0; i < 12; i++) {
        const float *before = whole[SAMPLES - 1 - (4 + i)];
        tri_request request = {.indices = &i, .n = 1, .seed = 3, .epoch = 5};

        CHECK_OK(tri_dataset_read(set, &request, (void *const[]){one, &tag}));
        assert_memory_equal(one, before, sizeof(one));
        request.epoch = 6;
        CHECK_OK(tri_dataset_read(set, &request, (void *const[]){one, &tag}));
        n_other += memcmp(one, before, sizeof(one)) != 0;
        request = (tri_request){.indices = &i, .n = 1, .seed = 4, .epoch = 5};
        CHECK_OK(tri_dataset_read(set, &request, (void *const[]){one, &tag}));
        n_other += memcmp(one, before, sizeof(one)) != 0;
    }
    assert_in_range(n_other, 20, 24); /* one of 98 looks is the same by chance */
    tri_dataset_destroy(set);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_crop_of_a_crop_shows_what_both_do),
    cmocka_unit_test(what_is_cut_off_a_file_stays_cut_off),
    cmocka_unit_test(a_file_shows_what_its_pixels_show),
    cmocka_unit_test(a_size_that_no_image_has_is_refused),
    cmocka_unit_test(rows_of_any_width_are_converted),
    cmocka_unit_test(bytes_become_the_numbers_of_torchvision),
    cmocka_unit_test(bytes_become_the_same_numbers_without_vectors),
    cmocka_unit_test(one_pass_gives_what_many_give),
    cmocka_unit_test(draws_depend_on_seed_epoch_and_index_alone),
};
TEST_MAIN(tests)
