/* transform_test.c - lists of transforms: images, an own one, varying sizes, draws, refusals. */
#include <math.h>

#include <trireme/data.h>

#include "base/alloc.h"
#include "base/err.h"
#include "train/tensor/persistent.h"
#include "testing/check.h"

enum { C = 2, H = 5, W = 6, SAMPLES = 30 };

static uint8_t pixels[SAMPLES][C][H][W];
static int64_t labels[SAMPLES];

static tri_dataset *images(void)
{
    static const tri_field fields[] = {{TRI_DTYPE_U8, 3, {C, H, W}}, {TRI_DTYPE_I64, 0, {0}}};
    tri_dataset *set;

    for (int i = 0; i < SAMPLES; i++) {
        labels[i] = i;
        for (int p = 0; p < C * H * W; p++)
            (&pixels[i][0][0][0])[p] = (uint8_t)(1 + (i * 31 + p * 7) % 255);
    }
    CHECK_OK(tri_dataset_arrays(SAMPLES, fields, (const void *const[]){pixels, labels}, 2, &set));
    return set;
}

static int pixel(int64_t i, int c, int h, int w)
{
    return h < 0 || h >= H || w < 0 || w >= W ? 0 : pixels[i][c][h][w];
}

/* Whether y [C, 4, 4] is the cut of image i at (top, left), mirrored or not. */
static bool is_cut(const uint8_t *y, int64_t i, int top, int left, bool mirror)
{
    for (int c = 0; c < C; c++) {
        for (int h = 0; h < 4; h++) {
            for (int w = 0; w < 4; w++) {
                if (y[(c * 4 + h) * 4 + w] !=
                    pixel(i, c, top + h, mirror ? left + 3 - w : left + w))
                    return false;
            }
        }
    }
    return true;
}

static void crops_and_mirrors_are_all_that_can_be(void **state)
{
    const tri_transform list[] = {tri_transform_random_crop(4, 4, 2),
                                  tri_transform_random_horizontal_flip(0.5)};
    long live = trii_alloc_live();
    int n_seen[2][6][7] = {0}, n_mirrored = 0, n_kinds = 0;
    uint8_t y[C * 16], again[C * 16];
    tri_dataset *set;
    int64_t label;

    (void)state;
    CHECK_OK(tri_dataset_transform(images(), list, 2, &set));
    assert_int_equal(set->fields[0].shape[2], 4);
    for (int64_t epoch = 0; epoch < 100; epoch++) {
        for (int64_t i = 0; i < SAMPLES; i++) {
            tri_request request = {.indices = &i, .n = 1, .seed = 3, .epoch = epoch};
            int found = 0;

            CHECK_OK(tri_dataset_read(set, &request, (void *const[]){y, &label}));
            CHECK_OK(tri_dataset_read(set, &request, (void *const[]){again, &label}));
            assert_memory_equal(y, again, sizeof(y));
            assert_int_equal(label, i);
            for (int k = 0; k < 2 * 6 * 7; k++) {
                if (!is_cut(y, i, k / 2 % 6 - 2, k / 12 - 2, k % 2))
                    continue;
                found++;
                n_mirrored += k % 2;
                n_seen[k % 2][k / 2 % 6][k / 12]++;
            }
            assert_int_equal(found, 1);
        }
    }
    for (int k = 0; k < 2 * 6 * 7; k++)
        n_kinds += (&n_seen[0][0][0])[k] > 10; /* 36 are expected of each */
    assert_int_equal(n_kinds, 84);
    assert_in_range(n_mirrored, 1350, 1650);
    tri_dataset_destroy(set);
    assert_int_equal(trii_alloc_live(), live);
}

/* ToTensor and Normalize of torchvision, one rounding each. */
static void numbers_are_scaled_and_normalised(void **state)
{
    const double mean[C] = {0.25, 0.5}, std[C] = {0.5, 0.125};
    const tri_transform list[] = {tri_transform_center_crop(3, 2), tri_transform_to_float(),
                                  tri_transform_normalize(mean, std, C)};
    float y[SAMPLES][C][3][2];
    int64_t all[SAMPLES], out[SAMPLES];
    tri_dataset *set;

    (void)state;
    for (int i = 0; i < SAMPLES; i++)
        all[i] = i;
    CHECK_OK(tri_dataset_transform(images(), list, 3, &set));
    assert_int_equal(set->fields[0].dtype, TRI_DTYPE_F32);
    CHECK_OK(tri_dataset_read(set, &(tri_request){.indices = all, .n = SAMPLES},
                              (void *const[]){y, out}));
    for (int64_t i = 0; i < SAMPLES; i++) {
        assert_int_equal(out[i], i);
        for (int k = 0; k < C * 6; k++) {
            int c = k / 6, h = k / 2 % 3, w = k % 2;
            float scaled = (float)pixel(i, c, 1 + h, 2 + w) / 255.0f;

            assert_true(y[i][c][h][w] == (scaled - (float)mean[c]) / (float)std[c]);
        }
    }
    tri_dataset_destroy(set);
}

/* Half a pixel goes to the even side, as round does in Python: in torchvision the parts of 5 x
 * 6 pixels begin at round((5 - height) / 2) and round((6 - width) / 2), and where the part is
 * larger, with (height - 5) // 2 and (width - 6) // 2 zeros. */
static void the_middle_is_that_of_torchvision(void **state)
{
    static const int64_t rounded[6] = {0, 0, 1, 2, 2, 2};

    (void)state;
    for (int64_t height = 1; height <= 9; height++) {
        for (int64_t width = 1; width <= 10; width++) {
            const tri_transform crop = tri_transform_center_crop(height, width);
            int top = height <= 5 ? (int)rounded[5 - height] : -(int)((height - 5) / 2);
            int left = width <= 6 ? (int)rounded[6 - width] : -(int)((width - 6) / 2);
            uint8_t y[C * 9 * 10];
            int64_t first = 0, out;
            tri_dataset *set;

            CHECK_OK(tri_dataset_transform(images(), &crop, 1, &set));
            CHECK_OK(tri_dataset_read(set, &(tri_request){.indices = &first, .n = 1},
                                      (void *const[]){y, &out}));
            for (int k = 0; k < C * height * width; k++) {
                int c = k / (int)(height * width), h = k / (int)width % (int)height;

                assert_int_equal(y[k], pixel(0, c, top + h, left + k % (int)width));
            }
            tri_dataset_destroy(set);
        }
    }
}

/* As a user writes one: its own field, numbers of its own. */
static tri_status add_noise(const tri_transform *self, const tri_field *in, const void *x,
                            tri_draws *draws, tri_sample *out)
{
    int64_t *y = tri_sample_room(out, 0, in->dtype, in->shape, in->ndim);

    if (y == NULL)
        return TRI_ERR_NO_MEMORY;
    *y = *(const int64_t *)x + 100 * (1 + tri_draws_below(draws, *(const int64_t *)self->arg));
    return TRI_OK;
}

static void lists_compose_and_threads_change_nothing(void **state)
{
    int64_t kinds = 50;
    const tri_transform noise = {.name = "noise", .field = 1, .apply = add_noise, .arg = &kinds};
    const tri_transform twice[] = {noise, noise};
    long live = trii_alloc_live();
    int64_t first[SAMPLES], n_equal = 0;
    tri_dataset *set;

    (void)state;
    CHECK_OK(tri_dataset_transform(images(), twice, 2, &set));
    CHECK_OK(tri_dataset_transform(set, twice, 1, &set));
    CHECK_OK(tri_dataset_transform(set, NULL, 0, &set));
    for (int threads = 0; threads <= 3; threads++) {
        tri_loader *loader;
        tri_batch batch;

        CHECK_OK(tri_loader_create(
            set, NULL, 10, &(tri_loader_options){.n_threads = threads, .seed = 5}, &loader));
        CHECK_OK(tri_loader_begin(loader, 1, 0));
        for (int k = 0; k < 3; k++) {
            const int64_t *y;

            CHECK_OK(tri_loader_next(loader, &batch));
            y = trii_tensor_data(batch.fields[1]);
            assert_memory_equal(trii_tensor_data(batch.fields[0]), pixels[10 * k],
                                10 * sizeof(pixels[0]));
            for (int i = 0; i < 10; i++) {
                if (threads == 0)
                    first[10 * k + i] = y[i];
                assert_int_equal(y[i], first[10 * k + i]);
                assert_int_equal(y[i] % 100, 10 * k + i);
                assert_in_range(y[i] / 100, 3, 150);
                n_equal += y[i] / 100 % 3 == 0;
            }
        }
        tri_loader_destroy(loader);
    }
    assert_in_range(n_equal, 1, 90); /* of 120: three draws that are not one */
    tri_dataset_destroy(set);
    assert_int_equal(trii_alloc_live(), live);
}

/* Sample i is i % 5 numbers. */
static tri_status growing_sample(tri_dataset *self, const tri_request *request, tri_sample *out)
{
    int64_t n = request->indices[0] % 5;
    int64_t *x = tri_sample_room(out, 0, TRI_DTYPE_I64, &n, 1);

    (void)self;
    for (int64_t i = 0; i < n && x != NULL; i++)
        x[i] = 10 * request->indices[0] + i;
    return TRI_OK;
}

/* Cut or continued with -1 to three. */
static tri_status three_shape(const tri_transform *self, tri_field *field)
{
    (void)self;
    field->shape[0] = 3;
    return TRI_OK;
}

static tri_status make_three(const tri_transform *self, const tri_field *in, const void *x,
                             tri_draws *draws, tri_sample *out)
{
    int64_t *y = tri_sample_room(out, 0, TRI_DTYPE_I64, (const int64_t[]){3}, 1);

    (void)self;
    (void)draws;
    for (int64_t i = 0; i < 3 && y != NULL; i++)
        y[i] = i < in->shape[0] ? ((const int64_t *)x)[i] : -1;
    return TRI_OK;
}

static tri_status make_more(const tri_transform *self, const tri_field *in, const void *x,
                            tri_draws *draws, tri_sample *out)
{
    int64_t n = in->shape[0] + 1, *y = tri_sample_room(out, 0, TRI_DTYPE_I64, &n, 1);

    (void)self;
    (void)draws;
    if (y != NULL)
        memcpy(y, x, (size_t)(n - 1) * sizeof(*y));
    if (y != NULL)
        y[n - 1] = 77;
    return TRI_OK;
}

static void sizes_may_vary_before_and_after(void **state)
{
    static const tri_dataset_class cls = {.name = "growing", .sample = growing_sample};
    const tri_transform three = {.name = "three", .shape = three_shape, .apply = make_three},
                        more = {.name = "more", .apply = make_more};
    tri_dataset base = {
        .cls = &cls, .length = 20, .n_fields = 1, .fields = {{TRI_DTYPE_I64, 1, {-1}}}};
    long live = trii_alloc_live();
    tri_sample sample = {0};
    tri_dataset *set;

    (void)state;
    CHECK_OK(tri_dataset_transform(&base, &three, 1, &set));
    for (int64_t i = 0; i < 20; i++) {
        int64_t y[3];

        CHECK_OK(tri_dataset_read(set, &(tri_request){.indices = &i, .n = 1}, (void *const[]){y}));
        for (int64_t k = 0; k < 3; k++)
            assert_int_equal(y[k], k < i % 5 ? 10 * i + k : -1);
    }
    tri_dataset_destroy(set);
    CHECK_OK(tri_dataset_transform(&base, (const tri_transform[]){more, more}, 2, &set));
    for (int64_t i = 0; i < 20; i++) {
        int64_t n = i % 5;

        CHECK_OK(tri_dataset_sample(set, &(tri_request){.indices = &i, .n = 1}, &sample));
        assert_int_equal(sample.fields[0].shape[0], n + 2);
        assert_int_equal(((const int64_t *)sample.data[0])[n], 77);
        assert_int_equal(((const int64_t *)sample.data[0])[n + 1], 77);
        assert_true(n == 0 || ((const int64_t *)sample.data[0])[n - 1] == 10 * i + n - 1);
    }
    tri_sample_clear(&sample);
    tri_dataset_destroy(set);
    assert_int_equal(trii_alloc_live(), live);
}

static tri_status apply_nothing(const tri_transform *self, const tri_field *in, const void *x,
                                tri_draws *draws, tri_sample *out)
{
    (void)in;
    (void)x;
    (void)draws;
    (void)out;
    return (tri_status)self->numbers[0];
}

static tri_status shape_nothing(const tri_transform *self, tri_field *field)
{
    (void)field;
    return (tri_status)self->numbers[0];
}

static void wrong_transforms_are_named(void **state)
{
    const double one[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1}, zero[2] = {0};
    tri_transform nothing = {.name = "nothing", .apply = apply_nothing}, other = nothing;
    const tri_transform number = tri_transform_to_float();
    tri_transform label = tri_transform_to_float();
    long live = trii_alloc_live();
    int64_t index = 3;
    const tri_request request = {.indices = &index, .n = 1};
    tri_sample sample = {0};
    tri_dataset *set = NULL;

    (void)state;
    label.field = 1;
#define REFUSED(transform, what)                                                                   \
    CHECK_FAILS(tri_dataset_transform(images(), &(const tri_transform[]){transform}[0], 1, &set),  \
                TRI_ERR_INVALID_ARG, what)
    REFUSED(tri_transform_random_crop(9, 9, 1), "5 x 6 with a padding of 1 is smaller than 9 x 9");
    REFUSED(tri_transform_random_crop(0, 9, 1), "transform random_crop: 0 x 9 pixels");
    REFUSED(tri_transform_random_crop(1, 1, -1), "a padding of -1");
    REFUSED(tri_transform_random_crop(INT64_MAX, 1, 0), "random_crop");
    REFUSED(tri_transform_center_crop(0, 6), "transform center_crop: 0 x 6 pixels");
    REFUSED(tri_transform_random_horizontal_flip(1.5), "a probability of 1.5");
    REFUSED(tri_transform_random_horizontal_flip(NAN), "a probability of nan");
    REFUSED(tri_transform_normalize(one, one, 2), "is u8 with 3 dimensions");
    REFUSED(label, "transform to_float: field 1 is i64, not u8");
    label.field = 2;
    REFUSED(label, "transform to_float of field 2: the data set has 2");
    other.apply = NULL;
    REFUSED(other, "transform 0 has no apply");
    other = nothing;
    other.name = NULL;
    REFUSED(other, "transform 0 has no name");
    other = nothing;
    other.shape = shape_nothing;
    other.numbers[0] = TRI_END;
    REFUSED(other, "transform nothing: its shape returned END without a message");
#undef REFUSED
    for (int k = 0; k < 5; k++) {
        const tri_transform wrong[] = {
            tri_transform_normalize(one, zero, 2), tri_transform_normalize(one, one, 3),
            tri_transform_normalize(one, one, 9), tri_transform_normalize(NULL, one, 2),
            tri_transform_normalize(one, NULL, 2)};

        CHECK_FAILS(
            tri_dataset_transform(images(), (const tri_transform[]){number, wrong[k]}, 2, &set),
            TRI_ERR_INVALID_ARG, k == 0 ? "std[0] is 0" : "transform normalize");
    }
    CHECK_FAILS(tri_dataset_transform(NULL, &number, 1, &set), TRI_ERR_INVALID_ARG,
                "dataset is NULL");
    CHECK_FAILS(tri_dataset_transform(images(), NULL, 1, &set), TRI_ERR_INVALID_ARG,
                "transforms is NULL");
    CHECK_FAILS(tri_dataset_transform(images(), &number, 1, NULL), TRI_ERR_INVALID_ARG,
                "dataset_out is NULL");
    CHECK_FAILS(tri_dataset_transform(images(), &number, -1, &set), TRI_ERR_INVALID_ARG,
                "-1 transforms");
    CHECK_FAILS(tri_dataset_transform(images(), &number, 65, &set), TRI_ERR_INVALID_ARG,
                "65 transforms");
    for (int k = 0; k < 3; k++) { /* what comes out only with a sample */
        nothing.numbers[0] = k == 0 ? TRI_OK : k == 1 ? TRI_END : TRI_ERR_IO;
        CHECK_OK(tri_dataset_transform(images(), &nothing, 1, &set));
        CHECK_FAILS(tri_dataset_sample(set, &request, &sample),
                    k == 2 ? TRI_ERR_IO : TRI_ERR_INVALID_ARG,
                    k == 0 ? "transform nothing gave no field" : "transform nothing returned");
        tri_dataset_destroy(set);
    }
    tri_sample_clear(&sample);
    assert_true(tri_draws_uniform(NULL) == 0);
    assert_int_equal(tri_draws_below(NULL, 5), 0);
    assert_int_equal(trii_alloc_live(), live);
}

static void every_allocation_may_fail(void **state)
{
    const tri_transform list[] = {tri_transform_to_float(), tri_transform_random_crop(4, 4, 0)};
    tri_status status = TRI_ERR_NO_MEMORY;
    long live = trii_alloc_live();
    float y[C * 16];
    int64_t label, index = 2;

    (void)state;
    for (long n = 1; status == TRI_ERR_NO_MEMORY; n++) {
        tri_dataset *set = images(), *transformed = NULL;

        trii_alloc_fail_at(n);
        status = tri_dataset_transform(set, list, 2, &transformed);
        if (status == TRI_OK)
            status = tri_dataset_read(transformed, &(tri_request){.indices = &index, .n = 1},
                                      (void *const[]){y, &label});
        trii_alloc_fail_at(0);
        tri_dataset_destroy(transformed);
        assert_int_equal(trii_alloc_live(), live);
    }
    CHECK_OK(status);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_middle_is_that_of_torchvision),
    cmocka_unit_test(crops_and_mirrors_are_all_that_can_be),
    cmocka_unit_test(numbers_are_scaled_and_normalised),
    cmocka_unit_test(lists_compose_and_threads_change_nothing),
    cmocka_unit_test(sizes_may_vary_before_and_after),
    cmocka_unit_test(wrong_transforms_are_named),
    cmocka_unit_test(every_allocation_may_fail),
};
TEST_MAIN(tests)
