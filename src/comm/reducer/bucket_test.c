/* bucket_test.c - the assignment against torch's (2.13) for the cases of its own tests. */
#include "comm/reducer/bucket.h"

#include "testing/check.h"

static const tri_dtype types[2] = {TRI_DTYPE_F32, TRI_DTYPE_F64};

static void assignment_is_that_of_torch(void **state)
{
    /* numels 10f 10d 10f 30f 1d 100f, limits 100 and 200 bytes */
    const size_t bytes[] = {40, 80, 40, 120, 8, 400};
    const int wide[] = {0, 1, 0, 0, 1, 0};
    const int wanted[] = {0, 2, 0, 0, 2, 1};
    trii_bucket_item items[6] = {{0}};
    int bucket[6], n;

    (void)state;
    for (int i = 0; i < 6; i++)
        items[i] = (trii_bucket_item){.bytes = bytes[i], .dtype = types[wide[i]]};
    trii_bucket_assign(items, 6, 100, 200, 0, bucket, &n);
    assert_int_equal(n, 3);
    assert_memory_equal(bucket, wanted, sizeof(wanted));
}

static void sixty_mebibytes_make_1_25_25_9(void **state)
{
    trii_bucket_item items[60];
    int bucket[60], n, held[8] = {0};

    (void)state;
    for (int i = 0; i < 60; i++)
        items[i] = (trii_bucket_item){.bytes = (size_t)1 << 20, .dtype = TRI_DTYPE_F32};
    trii_bucket_assign(items, 60, TRII_BUCKET_FIRST_BYTES, TRII_BUCKET_CAP_BYTES, 0, bucket, &n);
    assert_int_equal(n, 4);
    for (int i = 0; i < 60; i++)
        held[bucket[i]]++;
    assert_int_equal(held[0], 1);
    assert_int_equal(held[1], 25);
    assert_int_equal(held[2], 25);
    assert_int_equal(held[3], 9);
    assert_int_equal(bucket[0], 0);
}

static void many_small_ones_are_limited_by_number(void **state)
{
    const int wanted[5] = {0, 0, 1, 1, 2};
    trii_bucket_item items[5];
    int bucket[5], n;

    (void)state;
    for (int i = 0; i < 5; i++)
        items[i] = (trii_bucket_item){.bytes = 1, .dtype = TRI_DTYPE_F32};
    trii_bucket_assign(items, 5, 100, 100, 2, bucket, &n);
    assert_int_equal(n, 3);
    assert_memory_equal(bucket, wanted, sizeof(wanted));
}

static int cut(const size_t *bytes, int n, size_t cap, size_t tail, int *bucket)
{
    trii_bucket_item items[8] = {{0}};
    int n_buckets;

    for (int i = 0; i < n; i++)
        items[i] = (trii_bucket_item){.bytes = bytes[i], .dtype = TRI_DTYPE_F32};
    trii_bucket_assign(items, n, tail, cap, 0, bucket, &n_buckets);
    return trii_bucket_cut_last(items, n, tail, bucket, n_buckets);
}

static void what_comes_last_is_a_small_bucket(void **state)
{
    const int wanted[6] = {0, 1, 1, 1, 2, 2};
    int bucket[8];

    (void)state;
    assert_int_equal(cut((size_t[]){10, 9, 9, 3, 4, 5}, 6, 100, 10, bucket), 3);
    assert_memory_equal(bucket, wanted, sizeof(wanted));
    /* one that is larger by itself goes alone */
    assert_int_equal(cut((size_t[]){10, 9, 9, 3, 4, 50}, 6, 100, 10, bucket), 3);
    assert_int_equal(bucket[4], 1);
    assert_int_equal(bucket[5], 2);
    /* what is small, or one, stays as it is */
    assert_int_equal(cut((size_t[]){10, 9, 6, 5}, 4, 100, 10, bucket), 2);
    assert_int_equal(cut((size_t[]){10, 90}, 2, 100, 10, bucket), 2);
    assert_int_equal(cut((size_t[]){90}, 1, 100, 10, bucket), 1);
}

static void only_the_bucket_of_the_last_one_is_cut(void **state)
{
    const int wide[] = {0, 0, 0, 1, 1}, wanted[] = {0, 1, 1, 2, 4};
    trii_bucket_item items[5] = {{0}};
    int bucket[5] = {0, 1, 1, 2, 2};

    (void)state;
    for (int i = 0; i < 5; i++)
        items[i] = (trii_bucket_item){.bytes = 50, .dtype = types[wide[i]]};
    assert_int_equal(trii_bucket_cut_last(items, 5, 10, bucket, 4), 5);
    assert_memory_equal(bucket, wanted, sizeof(wanted));
}

static void nothing_makes_no_bucket(void **state)
{
    int n = 7;

    (void)state;
    trii_bucket_assign(NULL, 0, 1, 1, 0, NULL, &n);
    assert_int_equal(n, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(assignment_is_that_of_torch),
        cmocka_unit_test(sixty_mebibytes_make_1_25_25_9),
        cmocka_unit_test(many_small_ones_are_limited_by_number),
        cmocka_unit_test(what_comes_last_is_a_small_bucket),
        cmocka_unit_test(only_the_bucket_of_the_last_one_is_cut),
        cmocka_unit_test(nothing_makes_no_bucket),
    };

    return test_main(argc, argv, tests, TRII_COUNT_OF(tests));
}
