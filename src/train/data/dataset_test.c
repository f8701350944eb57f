/* dataset_test.c - data sets in general, arrays, parts of others. */
#include <trireme/data.h>

#include "base/alloc.h"
#include "testing/check.h"

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

static void a_part_that_is_not_there_is_refused(void **state)
{
    static const tri_field field = {TRI_DTYPE_I32, 0, {0}};
    static const int32_t values[40];
    long live = trii_alloc_live();
    tri_dataset *base, *part;

    (void)state;
    CHECK_OK(tri_dataset_arrays(40, &field, (const void *const[]){values}, 1, &base));
    CHECK_FAILS(tri_dataset_subset(base, 30, 11, &part), TRI_ERR_INVALID_ARG,
                "11 samples from 30 on, of 40");
    assert_int_equal(trii_alloc_live(), live);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_subset_gives_any_number),
    cmocka_unit_test(a_part_that_is_not_there_is_refused),
};
TEST_MAIN(tests)
