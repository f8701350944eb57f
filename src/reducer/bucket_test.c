/* bucket_test.c - the assignment against torch's (2.13) for the cases of its own tests. */
#include "reducer/bucket.h"

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
        cmocka_unit_test(nothing_makes_no_bucket),
    };

    return test_main(argc, argv, tests, TRII_COUNT_OF(tests));
}
