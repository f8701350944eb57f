/* sharing_test.c - tensors over ranges of one storage: which memory they have, who overlaps with
 * whom, and what keeps the memory. */
/* ctest: threads=none */
#include "base/alloc.h"
#include "testing/check.h"
#include "train/graph/step/step.h"
#include "train/tensor/sharing.h"

#define N 12

static tri_tensor *unit(void)
{
    float data[N];

    for (int i = 0; i < N; i++)
        data[i] = (float)i;
    return tri_tensor_from(TRI_SHAPE(N), TRI_DTYPE_F32, data);
}

static tri_tensor *range(tri_tensor *whole, int64_t first, int64_t n)
{
    tri_tensor *part = NULL;

    CHECK_OK(trii_tensor_range(whole, first, TRI_SHAPE(n), &part));
    return part;
}

static void a_range_has_the_elements_of_the_whole(void **state)
{
    long live = trii_alloc_live();
    tri_tensor *flat = unit(), *part = NULL, *inner;
    float got[6];

    (void)state;
    CHECK_OK(trii_tensor_range(flat, 4, TRI_SHAPE(2, 3), &part));
    assert_int_equal(tri_tensor_size(part, 0), 2);
    assert_int_equal(tri_tensor_dtype(part), TRI_DTYPE_F32);
    assert_ptr_equal(trii_tensor_data(part), (float *)trii_tensor_data(flat) + 4);
    inner = range(part, 2, 3);
    assert_ptr_equal(trii_tensor_data(inner), (float *)trii_tensor_data(flat) + 6);
    tri_tensor_unref(flat); /* the ranges keep the memory */
    CHECK_OK(tri_tensor_copy_out(part, got, sizeof(got)));
    for (int i = 0; i < 6; i++)
        assert_true(got[i] == (float)(4 + i));
    tri_tensor_unref(part);
    CHECK_OK(tri_tensor_copy_out(inner, got, 3 * sizeof(float)));
    assert_true(got[2] == 8);
    tri_tensor_unref(inner);
    CHECK_OK(tri_step_end_status());
    trii_step_release();
    assert_int_equal(trii_alloc_live(), live);
}

static void what_does_not_fit_is_no_range(void **state)
{
    tri_tensor *flat = unit(), *none = NULL;

    (void)state;
    CHECK_FAILS(trii_tensor_range(flat, 10, TRI_SHAPE(3), &none), TRI_ERR_INVALID_ARG, "");
    CHECK_FAILS(trii_tensor_range(flat, -1, TRI_SHAPE(3), &none), TRI_ERR_INVALID_ARG,
                "element -1 of a tensor of 12");
    CHECK_FAILS(trii_tensor_range(flat, 13, TRI_SHAPE(0), &none), TRI_ERR_INVALID_ARG,
                "element 13 of a tensor of 12");
    assert_null(none);
    assert_false(flat->shares);
    none = range(flat, N, 0); /* at the very end, without an element */
    tri_tensor_unref(none);
    none = range(flat, 2, 4);
    CHECK_FAILS(trii_tensor_range(none, 1, TRI_SHAPE(4), &flat), TRI_ERR_INVALID_ARG,
                "after the 4 elements");
    tri_tensor_unref(none);
    tri_tensor_unref(flat);
}

/* --- who overlaps --------------------------------------------------------- */

typedef struct list {
    const tri_tensor *seen[8];
    int n;
} list;

static void see(void *arg, tri_tensor *other)
{
    list *l = arg;

    assert_true(l->n < 8);
    l->seen[l->n++] = other;
}

/* Whether these and no others overlap with the tensor. */
static void expect(const tri_tensor *tensor, tri_tensor *const *others, int n)
{
    list l = {.n = 0};

    trii_overlaps_visit(tensor, see, &l);
    assert_int_equal(l.n, n);
    for (int i = 0; i < n; i++) {
        int times = 0;

        for (int k = 0; k < n; k++)
            times += l.seen[k] == others[i];
        assert_int_equal(times, 1);
        assert_true(trii_tensors_overlap(tensor, others[i]));
        assert_true(trii_tensors_overlap(others[i], tensor));
    }
}

#define EXPECT(tensor, ...)                                                                        \
    expect(tensor, (tri_tensor *[]){__VA_ARGS__},                                                  \
           (int)(sizeof((tri_tensor *[]){__VA_ARGS__}) / sizeof(tri_tensor *)))

static void those_with_a_byte_in_common_overlap(void **state)
{
    tri_tensor *flat = unit(), *a = range(flat, 0, 5), *b = range(flat, 5, 7);
    tri_tensor *shard = range(flat, 3, 6), *none = range(flat, 4, 0), *other = unit();
    tri_tensor *gradient = unit();

    (void)state;
    EXPECT(flat, a, b, shard);
    EXPECT(a, flat, shard);
    EXPECT(b, flat, shard);
    EXPECT(shard, flat, a, b);
    expect(none, NULL, 0);
    assert_false(trii_tensors_overlap(a, b));
    assert_false(trii_tensors_overlap(flat, other));
    assert_true(trii_tensor_covers(flat, shard));
    assert_false(trii_tensor_covers(a, shard));
    assert_false(trii_tensor_covers(shard, a));
    assert_true(trii_tensor_covers(a, a));
    /* what comes and goes */
    CHECK_OK(trii_tensor_move(gradient, flat->storage, 0));
    EXPECT(b, flat, shard, gradient);
    CHECK_OK(trii_tensor_move(gradient, other->storage, 0));
    assert_false(gradient->shares);
    EXPECT(b, flat, shard);
    tri_tensor_unref(shard);
    EXPECT(b, flat);
    assert_false(other->shares);
    tri_tensor_unref(a);
    tri_tensor_unref(b);
    tri_tensor_unref(none);
    tri_tensor_unref(flat);
    tri_tensor_unref(other);
    tri_tensor_unref(gradient);
}

static const trii_layout kernels_own = {.name = "aBcd16b"};

static void tensors_that_share_are_plain_and_of_one_device(void **state)
{
    tri_tensor *flat = unit(), *part, *there = NULL;

    (void)state;
    flat->layout = &kernels_own;
    CHECK_FAILS(trii_tensor_range(flat, 0, TRI_SHAPE(1), &part), TRI_ERR_STATE, "aBcd16b");
    flat->layout = NULL;
    assert_false(trii_tensor_stays_plain(flat));
    part = range(flat, 0, 4);
    assert_true(trii_tensor_stays_plain(flat) && trii_tensor_stays_plain(part));
    CHECK_OK(tri_cpu_devices_set(2));
    TRI_ON(TRI_CPU(1))
    {
        there = unit();
    }
    CHECK_FAILS(trii_tensor_move(there, flat->storage, 0), TRI_ERR_INVALID_ARG,
                "a tensor on cpu:1 cannot share memory with others on cpu:0");
    assert_false(there->shares);
    tri_tensor_unref(there);
    tri_tensor_unref(part);
    tri_tensor_unref(flat);
}

static void a_range_without_memory_fails_in_words(void **state)
{
    tri_tensor *flat = unit(), *part = NULL;

    (void)state;
    trii_alloc_fail_at(1);
    CHECK_FAILS(trii_tensor_range(flat, 0, TRI_SHAPE(1), &part), TRI_ERR_NO_MEMORY, "");
    trii_alloc_fail_at(0);
    assert_false(flat->shares);
    assert_int_equal(atomic_load(&flat->storage->refs), 1);
    tri_tensor_unref(flat);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_range_has_the_elements_of_the_whole),
    cmocka_unit_test(what_does_not_fit_is_no_range),
    cmocka_unit_test(those_with_a_byte_in_common_overlap),
    cmocka_unit_test(tensors_that_share_are_plain_and_of_one_device),
    cmocka_unit_test(a_range_without_memory_fails_in_words),
};

TEST_MAIN(tests)
