/* image_loader_test.c - images from files through transforms into batches: one pass gives the bits
 * of many, whatever the threads; broken and slow files; memory and descriptors. */
#include <stdatomic.h>
#include <stdlib.h>

#include <trireme/data.h>

#include "base/alloc.h"
#include "os/thread.h"
#include "train/tensor/persistent.h"
#include "testing/check.h"
#include "testing/picture_files.h"
#include "testing/scratch.h"

enum { FILES = 12, BATCH = 3, SIDE = 9, ELEMS = 3 * SIDE * SIDE, SEED = 5 };

static const double mean[3] = {0.485, 0.456, 0.406}, std[3] = {0.229, 0.224, 0.225};

/* Sizes from 8 x 21 to 30 x 10, JPEG and PNG. */
static void make_files(scratch *s)
{
    scratch_begin(s);
    for (int k = 0; k < FILES; k++) {
        char name[32];

        snprintf(name, sizeof(name), "%s/%02d.%s", k < FILES / 2 ? "a" : "b", k,
                 k % 3 == 0 ? "png" : "jpg");
        image_file_write(s, name, 20 * k, 8 + 2 * k, 21 - k, k % 3 == 0 ? 0 : 60 + 3 * k);
    }
}

static tri_dataset *open_files(scratch *s, bool skip_broken)
{
    tri_dataset *set;

    CHECK_OK(tri_dataset_image_folder(
        s->dir, &(tri_dataset_image_folder_options){.skip_broken = skip_broken}, &set));
    return set;
}

/* The transforms of training: 4 of them. */
static tri_dataset *train_set(scratch *s, bool skip_broken)
{
    const tri_transform list[] = {tri_transform_random_resized_crop(SIDE, SIDE, NULL),
                                  tri_transform_random_horizontal_flip(0.5),
                                  tri_transform_to_float(), tri_transform_normalize(mean, std, 3)};
    tri_dataset *set;

    CHECK_OK(tri_dataset_transform(open_files(s, skip_broken), list, 4, &set));
    return set;
}

/* --- one pass ------------------------------------------------------------- */

/* The samples of another set, which cannot be seen through it: images come whole. */
typedef struct opaque_set {
    tri_dataset base;
    tri_dataset *inner;
} opaque_set;

static tri_status opaque_sample(tri_dataset *self, const tri_request *request, tri_sample *out)
{
    return tri_dataset_sample(((opaque_set *)self)->inner, request, out);
}

/* A list at once, and each transform as a data set of its own over whole images; places in the
 * list, and so the draws, are counted on. */
static void check_list(scratch *s, const tri_transform *list, int n)
{
    static const tri_dataset_class cls = {.name = "opaque", .sample = opaque_sample};
    tri_sample one = {0}, many = {0};
    opaque_set opaque = {.inner = open_files(s, false)};
    tri_dataset *set = open_files(s, false), *parted = &opaque.base;

    opaque.base = *opaque.inner;
    opaque.base.cls = &cls;
    CHECK_OK(tri_dataset_transform(set, list, n, &set));
    for (int k = 0; k < n; k++)
        CHECK_OK(tri_dataset_transform(parted, &list[k], 1, &parted));
    for (int64_t i = 0; i < FILES; i++) {
        for (int64_t epoch = 0; epoch < 8; epoch++) {
            const tri_request request = {.indices = &i, .n = 1, .seed = SEED, .epoch = epoch};
            size_t bytes;

            CHECK_OK(tri_dataset_sample(set, &request, &one));
            CHECK_OK(tri_dataset_sample(parted, &request, &many));
            assert_memory_equal(one.fields[0].shape, many.fields[0].shape, 3 * sizeof(int64_t));
            assert_int_equal(one.fields[0].dtype, many.fields[0].dtype);
            bytes = tri_dtype_size(one.fields[0].dtype) * (size_t)one.fields[0].shape[0] *
                    (size_t)one.fields[0].shape[1] * (size_t)one.fields[0].shape[2];
            assert_memory_equal(one.data[0], many.data[0], bytes);
            assert_int_equal(*(const int64_t *)one.data[1], i >= FILES / 2);
        }
    }
    tri_sample_clear(&one);
    tri_sample_clear(&many);
    tri_dataset_destroy(set);
    tri_dataset_destroy(parted);
    tri_dataset_destroy(opaque.inner);
}

static void one_pass_over_a_file_gives_the_bits_of_many(void **state)
{
    const tri_transform crop = tri_transform_random_crop(20, 16, 8),
                        center = tri_transform_center_crop(10, 24),
                        part = tri_transform_random_resized_crop(SIDE, 11, NULL),
                        flip = tri_transform_random_horizontal_flip(0.5),
                        smaller = tri_transform_resize(7), exact = tri_transform_resize_to(13, 6),
                        number = tri_transform_to_float(),
                        normal = tri_transform_normalize(mean, std, 3);
    const tri_transform lists[][6] = {
        {part, flip, number, normal},
        {smaller, tri_transform_center_crop(5, 6), number, normal},
        {crop, flip, number, normal},
        {crop, flip},
        {flip, part, exact},             /* mirrored before it is resized */
        {center, exact, center, number}, /* with zeros before it is resized, and after */
        {exact, smaller, part, flip, number, normal},
        {center, flip, smaller},
        {tri_transform_random_crop(3, 3, 2), number, normal},
    };
    static const int n[] = {4, 4, 4, 2, 3, 4, 6, 3, 3};
    long live = trii_alloc_live();
    scratch s;

    (void)state;
    make_files(&s);
    for (size_t k = 0; k < TRII_COUNT_OF(n); k++)
        check_list(&s, lists[k], n[k]);
    assert_int_equal(trii_alloc_live(), live);
    scratch_end(&s);
}

/* Ten draws and their formulas, over many: the part's share of the area is even, its proportion is
 * in the log of it, and each place comes. */
static void parts_are_drawn_as_by_torchvision(void **state)
{
    enum { H = 60, W = 80, DRAWS = 4000 };
    static const tri_field field = {TRI_DTYPE_U8, 3, {2, H, W}};
    static uint8_t pixels[2][H][W];
    const tri_transform t = tri_transform_random_resized_crop(1, 1, NULL);
    double sum_y = 0, sum_x = 0;
    uint8_t y[2];
    int64_t index = 0;
    tri_dataset *set;

    (void)state;
    for (int h = 0; h < H; h++) { /* one pixel of a resized ramp is the middle of the part */
        for (int w = 0; w < W; w++) {
            pixels[0][h][w] = (uint8_t)(3 * h);
            pixels[1][h][w] = (uint8_t)(3 * w);
        }
    }
    CHECK_OK(tri_dataset_arrays(1, &field, (const void *const[]){pixels}, 1, &set));
    CHECK_OK(tri_dataset_transform(set, &t, 1, &set));
    for (int64_t epoch = 0; epoch < DRAWS; epoch++) {
        CHECK_OK(tri_dataset_read(set, &(tri_request){.indices = &index, .n = 1, .epoch = epoch},
                                  (void *const[]){y}));
        sum_y += y[0];
        sum_x += y[1];
    }
    CHECK_NEAR(sum_y / DRAWS, 3 * (H - 1) / 2.0, 2); /* of a spread of 25: 0.4 is sigma */
    CHECK_NEAR(sum_x / DRAWS, 3 * (W - 1) / 2.0, 2.5);
    tri_dataset_destroy(set);
}

static void wrong_sizes_and_scales_are_named(void **state)
{
    const tri_transform_random_resized_crop_options none = {.scale_min = TRI_SET(0)},
                                                    over = {.scale_max = TRI_SET(1.5)},
                                                    falling = {.ratio_min = TRI_SET(2)},
                                                    later = {.reserved = {1}};
    const tri_transform number = tri_transform_to_float();
    const struct {
        tri_transform t;
        const char *line;
    } wrong[] = {
        {tri_transform_resize(0), "transform resize: a side of 0 pixels"},
        {tri_transform_resize_to(4, -1), "transform resize_to: a side of -1 pixels"},
        {tri_transform_random_resized_crop(0, 4, NULL), "random_resized_crop: a side of 0"},
        {tri_transform_random_resized_crop(4, 4, &none), "a scale of 0 to 1"},
        {tri_transform_random_resized_crop(4, 4, &over), "a scale of 0.08 to 1.5"},
        {tri_transform_random_resized_crop(4, 4, &falling), "a ratio of 2 to 1.33333"},
        {tri_transform_random_resized_crop(4, 4, &later), "a scale of 0 to 0"},
    };
    long live = trii_alloc_live();
    uint8_t pixels[3 * 28 * 5];
    tri_dataset *set;
    int64_t label;
    scratch s;

    (void)state;
    make_files(&s);
    for (size_t k = 0; k < TRII_COUNT_OF(wrong); k++)
        CHECK_FAILS(tri_dataset_transform(open_files(&s, false), &wrong[k].t, 1, &set),
                    TRI_ERR_INVALID_ARG, wrong[k].line);
    CHECK_FAILS(tri_dataset_transform(open_files(&s, false),
                                      (const tri_transform[]){number, tri_transform_resize(4)}, 2,
                                      &set),
                TRI_ERR_INVALID_ARG, "transform resize: field 0 is f32, not u8");
    CHECK_OK(tri_dataset_transform(open_files(&s, true),
                                   &(const tri_transform[]){tri_transform_random_crop(28, 5, 0)}[0],
                                   1, &set));
    CHECK_FAILS(tri_dataset_read(set, &(tri_request){.indices = &(int64_t){1}, .n = 1},
                                 (void *const[]){pixels, &label}),
                TRI_ERR_INVALID_ARG, "a/01.jpg: transform random_crop: an image of 10 x 20 with");
    assert_int_equal(tri_dataset_broken_count(set), 0);
    tri_dataset_destroy(set);
    assert_int_equal(trii_alloc_live(), live);
    scratch_end(&s);
}

/* --- threads -------------------------------------------------------------- */

/* All batches of an epoch from `first` on into x[FILES][ELEMS] and labels. */
static void read_epoch(tri_dataset *set, int threads, int64_t epoch, int64_t first, float *x,
                       int64_t *labels)
{
    tri_loader *loader;
    tri_batch batch;
    tri_status status;

    CHECK_OK(tri_loader_create(set, NULL, BATCH,
                               &(tri_loader_options){.n_threads = threads, .seed = SEED}, &loader));
    CHECK_OK(tri_loader_begin(loader, epoch, first));
    while ((status = tri_loader_next(loader, &batch)) == TRI_OK) {
        memcpy(x + batch.index * BATCH * ELEMS, trii_tensor_data(batch.fields[0]),
               sizeof(*x) * BATCH * ELEMS);
        memcpy(labels + batch.index * BATCH, trii_tensor_data(batch.fields[1]),
               sizeof(*labels) * BATCH);
    }
    assert_int_equal(status, TRI_END);
    tri_loader_destroy(loader);
}

/* A run with other threads, or one that resumes, sees the same; another epoch, or another image,
 * does not get the same part. */
static void looks_depend_on_seed_epoch_and_index_alone(void **state)
{
    static float want[FILES * ELEMS], got[FILES * ELEMS];
    int64_t labels[FILES], other[FILES];
    long live = trii_alloc_live();
    tri_dataset *set;
    scratch s;

    (void)state;
    make_files(&s);
    set = train_set(&s, false);
    read_epoch(set, 0, 1, 0, want, labels);
    for (int threads = 1; threads <= 3; threads++) {
        memset(got, 0, sizeof(got));
        read_epoch(set, threads, 1, 0, got, other);
        assert_memory_equal(got, want, sizeof(got));
        assert_memory_equal(other, labels, sizeof(labels));
        for (int64_t first = 1; first < FILES / BATCH; first++) { /* resumed */
            memcpy(got, want, sizeof(got));
            memset(got + first * BATCH * ELEMS, 0,
                   sizeof(got) - (size_t)(first * BATCH * ELEMS) * sizeof(*got));
            read_epoch(set, threads, 1, first, got, other);
            assert_memory_equal(got, want, sizeof(got));
        }
    }
    read_epoch(set, 2, 2, 0, got, other);
    for (int i = 0; i < FILES; i++) {
        assert_memory_not_equal(got + i * ELEMS, want + i * ELEMS, ELEMS * sizeof(*got));
        assert_int_equal(labels[i], i >= FILES / 2);
    }
    tri_dataset_destroy(set);
    assert_int_equal(trii_alloc_live(), live);
    scratch_end(&s);
}

/* Shares of a set of validation, whatever their number and the batch: each image is counted once.
 */
static void shares_of_validation_have_each_image_once(void **state)
{
    const tri_transform list[] = {tri_transform_resize(8), tri_transform_center_crop(SIDE, SIDE)};
    scratch s;

    (void)state;
    make_files(&s);
    for (int ranks = 1; ranks <= 8; ranks++) {
        int64_t n_images = 0, n_second = 0;

        for (int rank = 0; rank < ranks; rank++) {
            int64_t first = FILES * rank / ranks, end = FILES * (rank + 1) / ranks;
            tri_dataset *set = open_files(&s, false);
            tri_loader *loader;
            tri_batch batch;

            CHECK_OK(tri_dataset_subset(set, first, end - first, &set));
            CHECK_OK(tri_dataset_transform(set, list, 2, &set));
            CHECK_OK(tri_loader_create(set, NULL, ranks,
                                       &(tri_loader_options){.n_threads = ranks % 3}, &loader));
            CHECK_OK(tri_loader_begin(loader, 0, 0));
            while (tri_loader_next(loader, &batch) == TRI_OK) {
                n_images += batch.size;
                for (int64_t i = 0; i < batch.size; i++)
                    n_second += ((const int64_t *)trii_tensor_data(batch.fields[1]))[i];
            }
            tri_loader_destroy(loader);
            tri_dataset_destroy(set);
        }
        assert_int_equal(n_images, FILES);
        assert_int_equal(n_second, FILES / 2);
    }
    scratch_end(&s);
}

static void a_broken_file_ends_the_epoch_at_its_batch(void **state)
{
    static float whole[FILES * ELEMS], got[FILES * ELEMS];
    int64_t labels[FILES];
    tri_dataset *set;
    scratch s;

    (void)state;
    make_files(&s);
    scratch_file(&s, "b/07.jpg", "\xff\xd8\xff\xe0 cut off", 12);
    for (int threads = 0; threads <= 3; threads++) {
        tri_loader *loader;
        tri_batch batch;

        set = train_set(&s, false);
        CHECK_OK(tri_loader_create(set, NULL, BATCH, &(tri_loader_options){.n_threads = threads},
                                   &loader));
        CHECK_OK(tri_loader_begin(loader, 4, 0));
        CHECK_OK(tri_loader_next(loader, &batch));
        CHECK_OK(tri_loader_next(loader, &batch));
        CHECK_FAILS(tri_loader_next(loader, &batch), TRI_ERR_FORMAT, "batch 2 of epoch 4: ");
        assert_non_null(strstr(tri_last_error(), "b/07.jpg: "));
        CHECK_OK(tri_loader_begin(loader, 4, 3)); /* the others are there */
        CHECK_OK(tri_loader_next(loader, &batch));
        tri_loader_destroy(loader);
        tri_dataset_destroy(set);
    }
    for (int threads = 0; threads <= 3; threads++) {
        set = train_set(&s, true);
        for (int64_t epoch = 4; epoch < 6; epoch++) {
            float *x = threads == 0 && epoch == 4 ? whole : got;

            read_epoch(set, threads, epoch, 0, x, labels);
            if (epoch == 4)
                assert_memory_equal(x, whole, sizeof(whole));
            assert_int_equal(labels[7], 1);
            assert_int_equal(tri_dataset_broken_count(set), 1);
        }
        tri_dataset_destroy(set);
    }
    scratch_end(&s);
}

/* Of a data set whose first sample waits until the others that may be made are made. */
typedef struct slow_set {
    tri_dataset base;
    atomic_bool open;
    atomic_int made;
} slow_set;

static tri_status slow_read(tri_dataset *self, const tri_request *request, void *const *slots)
{
    slow_set *set = (slow_set *)self;

    for (int64_t i = 0; i < request->n; i++) {
        while (request->indices[i] == 0 && !atomic_load(&set->open))
            trii_thread_yield();
        ((int64_t *)slots[0])[i] = request->indices[i];
        atomic_fetch_add(&set->made, request->indices[i] != 0);
    }
    return TRI_OK;
}

static void a_slow_sample_delays_others_but_not_their_order(void **state)
{
    static const tri_dataset_class cls = {.name = "slow", .read = slow_read};
    slow_set set = {
        .base = {.cls = &cls, .length = 20, .n_fields = 1, .fields = {{TRI_DTYPE_I64, 0, {0}}}}};
    tri_loader *loader;
    tri_batch batch;

    (void)state;
    CHECK_OK(tri_loader_create(&set.base, NULL, 1,
                               &(tri_loader_options){.n_threads = 2, .n_prefetch = 6}, &loader));
    CHECK_OK(tri_loader_begin(loader, 0, 0));
    while (atomic_load(&set.made) < 6) /* the ring is full: seven places, one of which waits */
        trii_thread_yield();
    atomic_store(&set.open, true);
    for (int64_t k = 0; k < 20; k++) {
        CHECK_OK(tri_loader_next(loader, &batch));
        assert_int_equal(*(const int64_t *)trii_tensor_data(batch.fields[0]), k);
    }
    assert_int_equal(tri_loader_next(loader, &batch), TRI_END);
    tri_loader_destroy(loader);
}

/* --- memory and descriptors ----------------------------------------------- */

/* For each thread: its memory to read images is a file, the part that is decoded, what it is
 * resized to, and the weights; blocks stay as many from epoch to epoch, and none is larger than the
 * largest image of all. */
static void memory_and_descriptors_are_those_of_the_threads(void **state)
{
    enum { THREADS = 3, BLOCKS_A_THREAD = 7 };
    const size_t largest_image = 3 * 200 * 150;
    tri_loader *loader;
    tri_batch batch;
    tri_dataset *set;
    long before;
    int n_open;
    scratch s;

    (void)state;
    make_files(&s);
    image_file_write(&s, "a/04.jpg", 3, 200, 150, 90);
    set = train_set(&s, false);
    CHECK_OK(
        tri_loader_create(set, NULL, BATCH, &(tri_loader_options){.n_threads = THREADS}, &loader));
    before = trii_alloc_live();
    n_open = scratch_count("/proc/self/fd");
    (void)trii_alloc_largest();
    for (int64_t epoch = 0; epoch < 30; epoch++) {
        CHECK_OK(tri_loader_begin(loader, epoch, 0));
        while (tri_loader_next(loader, &batch) == TRI_OK) {
        }
        assert_int_equal(batch.index, FILES / BATCH - 1);
        assert_int_equal(scratch_count("/proc/self/fd"), n_open);
    }
    assert_in_range(trii_alloc_live(), before + 1, before + THREADS * BLOCKS_A_THREAD);
    assert_in_range(trii_alloc_largest(), 1, largest_image);
    tri_loader_destroy(loader);
    tri_dataset_destroy(set);
    scratch_end(&s);
}

/* A failure for want of memory is one, and no broken file. */
static void every_allocation_may_fail(void **state)
{
    static float x[ELEMS];
    tri_status status = TRI_ERR_NO_MEMORY;
    int64_t label = -1;
    long live;
    scratch s;

    (void)state;
    make_files(&s);
    live = trii_alloc_live();
    for (long n = 1; status == TRI_ERR_NO_MEMORY; n++) {
        tri_dataset *set = train_set(&s, true);

        trii_alloc_fail_at(n);
        status = tri_dataset_read(set, &(tri_request){.indices = &(int64_t){7}, .n = 1},
                                  (void *const[]){x, &label});
        trii_alloc_fail_at(0);
        assert_int_equal(tri_dataset_broken_count(set), 0);
        tri_dataset_destroy(set);
        assert_int_equal(trii_alloc_live(), live);
    }
    CHECK_OK(status);
    assert_int_equal(label, 1);
    scratch_end(&s);
}

/* One file each is open at a time, whatever the number of files and epochs. */
static void few_descriptors_are_enough(void **state)
{
    static float x[FILES * ELEMS];
    int64_t labels[FILES];
    tri_dataset *set;
    scratch s;
    int fd;

    (void)state;
    make_files(&s);
    set = train_set(&s, false);
    fd = dup(0);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &(struct rlimit){(rlim_t)fd + 2, 1024}), 0);
    for (int64_t epoch = 0; epoch < 20; epoch++)
        read_epoch(set, 2, epoch, 0, x, labels);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &(struct rlimit){1024, 1024}), 0);
    tri_dataset_destroy(set);
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(one_pass_over_a_file_gives_the_bits_of_many),
    cmocka_unit_test(parts_are_drawn_as_by_torchvision),
    cmocka_unit_test(wrong_sizes_and_scales_are_named),
    cmocka_unit_test(looks_depend_on_seed_epoch_and_index_alone),
    cmocka_unit_test(shares_of_validation_have_each_image_once),
    cmocka_unit_test(a_broken_file_ends_the_epoch_at_its_batch),
    cmocka_unit_test(a_slow_sample_delays_others_but_not_their_order),
    cmocka_unit_test(memory_and_descriptors_are_those_of_the_threads),
    cmocka_unit_test(every_allocation_may_fail),
    cmocka_unit_test(few_descriptors_are_enough),
};
TEST_MAIN(tests)
