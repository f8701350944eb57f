/* idx_test.c - IDX files: what is read, and that damaged ones are refused by name. */
/* ctest: threads=none */
#include "train/data/idx.h"

#include <zlib.h>

#include "base/alloc.h"
#include "testing/scratch.h"

/* 3 images of 2x2, and their labels. */
static const unsigned char images[] = {0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 2,  0,  0,
                                       0, 2, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 255};
static const unsigned char labels[] = {0, 0, 8, 1, 0, 0, 0, 3, 7, 0, 9};

static void images_and_labels_become_a_data_set(void **state)
{
    long live = trii_alloc_live();
    tri_dataset *dataset;
    uint8_t image[2][4];
    int64_t label[2];
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(tri_dataset_idx(scratch_file(&s, "i", images, sizeof(images)),
                             scratch_file(&s, "l", labels, sizeof(labels)), &dataset));
    assert_int_equal(tri_dataset_length(dataset), 3);
    assert_int_equal(dataset->n_fields, 2);
    assert_int_equal(dataset->fields[0].ndim, 3);
    CHECK_OK(tri_dataset_read(dataset, &(tri_request){.indices = (const int64_t[]){2, 0}, .n = 2},
                              (void *const[]){image, label}));
    assert_memory_equal(image, ((const uint8_t[]){9, 10, 11, 255, 1, 2, 3, 4}), 8);
    assert_int_equal(label[0], 9);
    assert_int_equal(label[1], 7);
    CHECK_FAILS(tri_dataset_read(dataset, &(tri_request){.indices = (const int64_t[]){3}, .n = 1},
                                 (void *const[]){image, label}),
                TRI_ERR_INVALID_ARG, "sample 3 of 3");
    tri_dataset_destroy(dataset);
    assert_int_equal(trii_alloc_live(), live);
    scratch_end(&s);
}

static void compressed_files_are_read_too(void **state)
{
    trii_idx idx;
    scratch s;
    gzFile file;

    (void)state;
    scratch_begin(&s);
    file = gzopen(scratch_path(&s, "i.gz"), "wb");
    assert_non_null(file);
    assert_int_equal(gzwrite(file, images, sizeof(images)), sizeof(images));
    assert_int_equal(gzclose(file), Z_OK);
    CHECK_OK(trii_idx_read(scratch_path(&s, "i.gz"), &idx));
    assert_int_equal(idx.elems, 12);
    assert_memory_equal(idx.data, images + 16, 12);
    trii_idx_fini(&idx);
    scratch_end(&s);
}

static void wide_elements_change_their_byte_order(void **state)
{
    static const unsigned char file[] = {0, 0, 13, 1, 0, 0, 0, 2, 0x3f, 0x80, 0, 0, 0xc0, 0, 0, 0};
    trii_idx idx;
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(trii_idx_read(scratch_file(&s, "f", file, sizeof(file)), &idx));
    assert_int_equal(idx.dtype, TRI_DTYPE_F32);
    assert_true(((const float *)idx.data)[0] == 1.0f && ((const float *)idx.data)[1] == -2.0f);
    trii_idx_fini(&idx);
    scratch_end(&s);
}

static void damaged_files_are_named(void **state)
{
    long live = trii_alloc_live();
    static const unsigned char huge[] = {0,    0,    8,    3,    0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
                                         0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1,    2,    3};
    static const unsigned char large[] = {0, 0, 8, 1, 0xff, 0xff, 0xff, 0xff, 1, 2, 3};
    unsigned char longer[sizeof(images) + 1] = {0};
    tri_dataset *dataset;
    const char *path;
    trii_idx idx;
    scratch s;

    (void)state;
    scratch_begin(&s);
    memcpy(longer, images, sizeof(images));
    CHECK_FAILS(trii_idx_read(scratch_path(&s, "none"), &idx), TRI_ERR_NOT_FOUND, "none");
    CHECK_FAILS(trii_idx_read(scratch_file(&s, "empty", "", 0), &idx), TRI_ERR_FORMAT, "empty");
    CHECK_FAILS(trii_idx_read(scratch_file(&s, "text", "hello, world", 12), &idx), TRI_ERR_FORMAT,
                "begins with 68 65 6c 6c");
    path = scratch_file(&s, "cut", images, sizeof(images) - 1);
    CHECK_FAILS(trii_idx_read(path, &idx), TRI_ERR_FORMAT, "11 bytes of elements instead of 12");
    assert_non_null(strstr(tri_last_error(), path));
    CHECK_FAILS(trii_idx_read(scratch_file(&s, "head", images, 9), &idx), TRI_ERR_FORMAT,
                "within its head");
    CHECK_FAILS(trii_idx_read(scratch_file(&s, "longer", longer, sizeof(longer)), &idx),
                TRI_ERR_FORMAT, "has more than the 12 bytes");
    CHECK_FAILS(trii_idx_read(scratch_file(&s, "huge", huge, sizeof(huge)), &idx), TRI_ERR_FORMAT,
                "exceed the address space");
    /* Claims 4 GiB and has 3 bytes: read without taking 4 GiB. */
    CHECK_FAILS(trii_idx_read(scratch_file(&s, "large", large, sizeof(large)), &idx),
                TRI_ERR_FORMAT, "3 bytes of elements instead of 4294967295");
    CHECK_FAILS(
        tri_dataset_idx(
            scratch_file(&s, "i", images, sizeof(images)),
            scratch_file(&s, "l", (const unsigned char[]){0, 0, 8, 1, 0, 0, 0, 2, 7, 0}, 10),
            &dataset),
        TRI_ERR_FORMAT, "3 images");
    CHECK_FAILS(tri_dataset_idx(scratch_path(&s, "l"), scratch_path(&s, "l"), &dataset),
                TRI_ERR_FORMAT, "not images");
    CHECK_FAILS(tri_dataset_idx(scratch_path(&s, "i"), scratch_path(&s, "i"), &dataset),
                TRI_ERR_FORMAT, "not labels");
    assert_int_equal(trii_alloc_live(), live);
    scratch_end(&s);
}

/* What follows the compressed data: more of them; zeros (of tapes) and others are ignored. */
static void compressed_data_may_be_followed_by_more(void **state)
{
    unsigned char packed[512];
    size_t half;
    trii_idx idx;
    scratch s;
    gzFile file;
    char *bytes;
    size_t n;

    (void)state;
    scratch_begin(&s);
    for (int part = 0; part < 2; part++) { /* two members, as of `cat a.gz b.gz` */
        half = sizeof(images) / 2;
        file = gzopen(scratch_path(&s, "i.gz"), part == 0 ? "wb" : "ab");
        assert_non_null(file);
        assert_int_equal(gzwrite(file, images + (size_t)part * half, (unsigned)half), half);
        assert_int_equal(gzclose(file), Z_OK);
    }
    CHECK_OK(trii_idx_read(scratch_path(&s, "i.gz"), &idx));
    assert_memory_equal(idx.data, images + 16, 12);
    trii_idx_fini(&idx);
    bytes = scratch_read(scratch_path(&s, "i.gz"), &n);
    assert_true(n + 20 < sizeof(packed));
    memset(packed, 0, sizeof(packed));
    memcpy(packed, bytes, n);
    free(bytes);
    CHECK_OK(trii_idx_read(scratch_file(&s, "zeros.gz", packed, n + 20), &idx));
    trii_idx_fini(&idx);
    packed[n + 5] = 'x';
    CHECK_OK(trii_idx_read(scratch_file(&s, "more.gz", packed, n + 20), &idx));
    assert_memory_equal(idx.data, images + 16, 12);
    trii_idx_fini(&idx);
    packed[n - 6] ^= 1; /* the checksum */
    CHECK_FAILS(trii_idx_read(scratch_file(&s, "crc.gz", packed, n), &idx), TRI_ERR_FORMAT,
                "crc.gz: damaged");
    scratch_end(&s);
}

static void paths_that_cannot_be_are_named(void **state)
{
    tri_dataset *dataset;

    (void)state;
    CHECK_FAILS(tri_dataset_idx(NULL, "l", &dataset), TRI_ERR_INVALID_ARG, "images_path is NULL");
    CHECK_FAILS(tri_dataset_idx("i", "", &dataset), TRI_ERR_INVALID_ARG, "labels_path is empty");
    CHECK_FAILS(tri_dataset_idx("i", "l", NULL), TRI_ERR_INVALID_ARG, "dataset_out is NULL");
}

static void damaged_compression_is_named(void **state)
{
    scratch s;
    trii_idx idx;
    gzFile file;
    char *packed;
    size_t bytes;

    (void)state;
    scratch_begin(&s);
    file = gzopen(scratch_path(&s, "i.gz"), "wb");
    assert_int_equal(gzwrite(file, images, sizeof(images)), sizeof(images));
    assert_int_equal(gzclose(file), Z_OK);
    packed = scratch_read(scratch_path(&s, "i.gz"), &bytes);
    CHECK_FAILS(trii_idx_read(scratch_file(&s, "cut.gz", packed, bytes - 9), &idx), TRI_ERR_FORMAT,
                "cut.gz: truncated");
    CHECK_FAILS(trii_idx_read(scratch_file(&s, "cut.gz", packed, bytes - 3), &idx), TRI_ERR_FORMAT,
                "cut.gz: truncated");
    packed[bytes - 6] ^= 1; /* the checksum */
    CHECK_FAILS(trii_idx_read(scratch_file(&s, "bad.gz", packed, bytes), &idx), TRI_ERR_FORMAT,
                "bad.gz: damaged");
    free(packed);
    scratch_end(&s);
}

#define FASHION "/usr/share/datasets/fashion-mnist"

static void fashion_mnist_of_the_package_is_read(void **state)
{
    tri_dataset *dataset;
    int64_t sum = 0;
    static uint8_t image[28 * 28];

    (void)state;
    CHECK_OK(tri_dataset_idx(FASHION "/t10k-images-idx3-ubyte.gz",
                             FASHION "/t10k-labels-idx1-ubyte.gz", &dataset));
    assert_int_equal(tri_dataset_length(dataset), 10000);
    for (int64_t i = 0; i < 10000; i++) {
        int64_t label = -1;

        CHECK_OK(tri_dataset_read(dataset, &(tri_request){.indices = &i, .n = 1},
                                  (void *const[]){image, &label}));
        assert_in_range(label, 0, 9);
        sum += label;
    }
    assert_int_equal(sum, 45000); /* a thousand of each class */
    tri_dataset_destroy(dataset);
}

/* Whatever is in a file: read or refused, no crash, nothing left. */
static void mutated_files_are_read_or_refused(void **state)
{
    long live = trii_alloc_live();
    uint64_t random = 1;
    scratch s;

    (void)state;
    scratch_begin(&s);
    for (int round = 0; round < 3000; round++) {
        unsigned char bytes[2 * sizeof(images)];
        size_t n = sizeof(images);
        trii_idx idx;
        tri_status status;

        memcpy(bytes, images, n);
        memcpy(bytes + n, images, n);
        for (uint32_t k = 1 + scratch_random(&random) % 4; k > 0; k--)
            bytes[scratch_random(&random) % 20] = (unsigned char)scratch_random(&random);
        n = scratch_random(&random) % sizeof(bytes);
        status = trii_idx_read(scratch_file(&s, "m", bytes, n), &idx);
        if (status == TRI_OK) {
            assert_true(idx.elems * tri_dtype_size(idx.dtype) <= n);
            trii_idx_fini(&idx);
        } else {
            assert_int_equal(status, TRI_ERR_FORMAT);
        }
    }
    assert_int_equal(trii_alloc_live(), live);
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(images_and_labels_become_a_data_set),
    cmocka_unit_test(compressed_files_are_read_too),
    cmocka_unit_test(wide_elements_change_their_byte_order),
    cmocka_unit_test(damaged_files_are_named),
    cmocka_unit_test(damaged_compression_is_named),
    cmocka_unit_test(compressed_data_may_be_followed_by_more),
    cmocka_unit_test(paths_that_cannot_be_are_named),
    cmocka_unit_test(fashion_mnist_of_the_package_is_read),
    cmocka_unit_test(mutated_files_are_read_or_refused),
};
TEST_MAIN(tests)
