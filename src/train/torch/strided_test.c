/* strided_test.c - elements of a tensor that lie apart: where they lie, and put together. */
/* ctest: threads=none */
#include "testing/check.h"
#include "testing/scratch.h"
#include "train/torch/strided.h"

enum { MOST = 400 };

/* Sizes up to 5; strides that may repeat elements, as those of a broadcast do. */
static tri_torch_tensor draw(uint64_t *random)
{
    tri_torch_tensor t = {
        .element_bytes = 2, .ndim = (int)(scratch_random(random) % 5), .bytes = 2};

    for (int d = 0; d < t.ndim; d++) {
        t.shape[d] = 1 + scratch_random(random) % 5;
        t.stride[d] = scratch_random(random) % 20;
        t.bytes *= (uint64_t)t.shape[d];
    }
    return t;
}

static uint64_t place_of(const tri_torch_tensor *t, uint64_t index)
{
    uint64_t at = 0;

    for (int d = t->ndim - 1; d >= 0; d--) {
        at += index % (uint64_t)t->shape[d] * (uint64_t)t->stride[d];
        index /= (uint64_t)t->shape[d];
    }
    return at;
}

static void ranges_are_gathered_from_where_they_lie(void **state)
{
    uint16_t storage[MOST], got[MOST * 2], want;
    uint64_t random = 3;

    (void)state;
    for (int i = 0; i < MOST; i++)
        storage[i] = (uint16_t)i;
    for (int round = 0; round < 20000; round++) {
        const tri_torch_tensor t = draw(&random);
        const uint64_t all = t.bytes / 2, first = scratch_random(&random) % all,
                       n = 1 + scratch_random(&random) % (all - first);
        uint64_t low, high;

        trii_strided_span(&t, first, n, &low, &high);
        assert_true(low <= high && high <= place_of(&t, all - 1));
        if (n == 1)
            assert_true(low == high);
        trii_strided_range(got, storage + low, low, &t, first, n);
        for (uint64_t i = 0; i < n; i++) {
            want = (uint16_t)place_of(&t, first + i);
            assert_true(low <= want && want <= high);
            assert_int_equal(got[i], want);
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(ranges_are_gathered_from_where_they_lie),
};
TEST_MAIN(tests)
