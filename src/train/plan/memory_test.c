/*
 * memory_test.c - places in an arena: where the simplest search puts them, however many there are,
 * and the time that takes.
 */
/* ctest: threads=none */
#include "train/plan/memory.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "train/plan/occupied.h"
#include "testing/check.h"

static uint64_t state;

static int64_t below(int64_t n)
{
    state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (int64_t)(state >> 33) % n;
}

static size_t rounded(size_t bytes)
{
    return (bytes + TRII_MEMORY_ALIGN - 1) / TRII_MEMORY_ALIGN * TRII_MEMORY_ALIGN;
}

/* A value of one step in `times`, of a few of the sizes or of any. */
static trii_interval one(int32_t times, bool any_size, int32_t longest)
{
    static const size_t sizes[] = {0, 1, 64, 100, 4096, 4096, 65536, 1 << 20};
    int32_t first = (int32_t)below(times), length = 1 + (int32_t)below(longest);

    return (trii_interval){any_size ? (size_t)below(1 << 20) : sizes[below(8)], first,
                           first + length < times ? first + length : times - 1, SIZE_MAX};
}

/* Saved by the forward pass for the backward pass, in whose order it dies, and what lives
 * shortly. */
static void training(trii_interval *all, int32_t n)
{
    static const size_t sizes[] = {3 << 20, 1 << 20, 1 << 20, 4 << 20, 8192};

    for (int32_t i = 0; i < n / 2; i++) {
        all[2 * i] = (trii_interval){sizes[i % 5], i, n - i, 0};
        all[2 * i + 1] = (trii_interval){sizes[(i + i / 7) % 5], 2 * i, 2 * i + 1, 0};
    }
}

/* The lowest place that is free, found by trying 0 and the end of each that is in the way. */
static size_t lowest(const trii_interval *all, int32_t n, const trii_interval *it, const bool *done)
{
    size_t at = 0;

    for (bool moved = true; moved;) {
        moved = false;
        for (int32_t i = 0; i < n; i++) {
            const trii_interval *o = &all[i];
            size_t end = o->offset + rounded(o->bytes);

            if (!done[i] || o->first > it->last || o->last < it->first || end <= at ||
                o->offset >= at + rounded(it->bytes) || o->bytes == 0)
                continue;
            at = end;
            moved = true;
        }
    }
    return at;
}

static bool goes_before(const trii_interval *a, const trii_interval *b)
{
    if (a->bytes != b->bytes)
        return a->bytes > b->bytes;
    return a->first != b->first ? a->first < b->first : a < b;
}

static void check_places(trii_interval *all, int32_t n)
{
    bool *done = calloc((size_t)n + 1, sizeof(*done));
    size_t bytes = SIZE_MAX, total = 0;

    CHECK_OK(trii_memory_plan(all, n, &bytes));
    for (int32_t k = 0; k < n; k++) {
        int32_t next = -1;

        for (int32_t i = 0; i < n; i++) {
            if (!done[i] && (next < 0 || goes_before(&all[i], &all[next])))
                next = i;
        }
        if (all[next].bytes > 0)
            assert_int_equal(all[next].offset, lowest(all, n, &all[next], done));
        if (all[next].offset + rounded(all[next].bytes) > total)
            total = all[next].offset + rounded(all[next].bytes);
        done[next] = true;
    }
    assert_int_equal(bytes, total);
    free(done);
}

static void each_lies_as_low_as_it_fits(void **unused)
{
    static const int32_t counts[] = {0, 1, 2, 3, 31, 513, 511, 512, 700};
    static trii_interval all[700];

    (void)unused;
    for (size_t c = 0; c < (TEST_SANITIZED ? 6 : TRII_COUNT_OF(counts)); c++) {
        for (int shape = 0; shape < 6; shape++) {
            int32_t n = counts[c], times = shape < 3 ? n + 1 : 17;

            state = c * 6 + (uint64_t)shape;
            for (int32_t i = 0; i < n; i++)
                all[i] = one(times, shape % 2 == 0, shape < 2 ? 4 : times);
            if (shape == 5)
                training(all, n / 2 * 2);
            check_places(all, n);
        }
    }
}

static int by_order(const void *a, const void *b)
{
    return goes_before(a, b) ? -1 : goes_before(b, a);
}

/* What is looked at until n values have their places. */
static int64_t looks(int32_t n, bool trained)
{
    trii_interval *all = calloc((size_t)n, sizeof(*all));
    trii_occupied o;
    int64_t n_looks;

    state = 1;
    for (int32_t i = 0; i < n; i++)
        all[i] = one(n, true, 100);
    if (trained)
        training(all, n);
    qsort(all, (size_t)n, sizeof(*all), by_order);
    CHECK_OK(trii_occupied_init(&o, n + 1));
    for (int32_t i = 0; i < n; i++) {
        size_t bytes = rounded(all[i].bytes);
        size_t at = trii_occupied_lowest(&o, all[i].first, all[i].last, bytes);

        CHECK_OK(trii_occupied_take(&o, all[i].first, all[i].last, at, bytes));
    }
    n_looks = o.n_looks;
    trii_occupied_fini(&o);
    free(all);
    return n_looks;
}

static void the_work_for_100000_grows_with_their_number(void **unused)
{
    enum { FEW = TEST_SANITIZED ? 2000 : 10000, MANY = 10 * FEW };

    (void)unused;
    for (int trained = 0; trained < 2; trained++) {
        int64_t few = looks(FEW, trained), many = looks(MANY, trained);

        assert_true(many < 20 * few);
        assert_true(many < MANY * INT64_C(2000));
    }
}

static void planning_without_memory_fails_in_words(void **unused)
{
    static trii_interval all[2000];
    long calls = trii_alloc_calls();
    size_t bytes = 7;

    (void)unused;
    training(all, 2000);
    CHECK_OK(trii_memory_plan(all, 2000, &bytes));
    calls = trii_alloc_calls() - calls;
    assert_true(calls > 1);
    for (long at = 1; at <= calls; at++) {
        bytes = 7;
        trii_alloc_fail_at(at);
        CHECK_FAILS(trii_memory_plan(all, 2000, &bytes), TRI_ERR_NO_MEMORY, "");
        trii_alloc_fail_at(0);
        assert_int_equal(bytes, 7);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(each_lies_as_low_as_it_fits),
    cmocka_unit_test(the_work_for_100000_grows_with_their_number),
    cmocka_unit_test(planning_without_memory_fails_in_words),
};

TEST_MAIN(tests)
