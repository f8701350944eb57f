/*
 * engine_full_test.c - the long part of what every engine promises: vectors of several pieces
 * and many chunks.
 * ctest: labels=full timeout=300
 */
#include "conformance/calls.h"

#include "base/alloc.h"

static const size_t counts[] = {40009, 300007, SIZE_MAX};
static const tri_dtype dtypes[] = {TRI_DTYPE_F32, TRI_DTYPE_BF16, TRI_DTYPE_I8, TRI_DTYPE_NONE};

/* Every rank computes what all put in, so the work grows with the square of the ranks. */
static const size_t many_rank_counts[] = {140009, SIZE_MAX};
static const tri_dtype many_rank_dtypes[] = {TRI_DTYPE_F32, TRI_DTYPE_NONE};

static void conform(const char *engine, int size)
{
    script what = {.counts = size < 8 ? counts : many_rank_counts,
                   .dtypes = size < 8 ? dtypes : many_rank_dtypes};
    tri_group_options options = {.engine = engine, .timeout_ms = 250000};

    run_threads(size, &options, run_script, &what);
    assert_int_equal(trii_alloc_live(), 0);
}

/* Out of each other's memory, also where the ranks share cores. */
static void conform_reading(int size)
{
    setenv("TRI_SHM_CMA", "2", 1);
    conform("shm", size);
}

static void shm_large_with_2_ranks(void **state)
{
    (void)state;
    conform("shm", 2);
}

static void shm_large_with_11_ranks(void **state)
{
    (void)state;
    conform("shm", 11);
}

/* Where the system does not let ranks read each other's memory. */
static void shm_large_staged_with_3_ranks(void **state)
{
    (void)state;
    setenv("TRI_SHM_CMA", "0", 1);
    conform("shm", 3);
}

static void shm_large_by_reading_with_3_ranks(void **state)
{
    (void)state;
    conform_reading(3);
}

static void shm_large_by_reading_with_8_ranks(void **state)
{
    (void)state;
    conform_reading(8);
}

static void tcp_large_with_2_ranks(void **state)
{
    (void)state;
    conform("tcp", 2);
}

static void tcp_large_with_3_ranks(void **state)
{
    (void)state;
    conform("tcp", 3);
}

static void tcp_large_with_8_ranks(void **state)
{
    (void)state;
    conform("tcp", 8);
}

static void tcp_large_with_11_ranks(void **state)
{
    (void)state;
    conform("tcp", 11);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(shm_large_with_2_ranks),
    cmocka_unit_test(shm_large_by_reading_with_3_ranks),
    cmocka_unit_test(shm_large_staged_with_3_ranks),
    cmocka_unit_test(shm_large_by_reading_with_8_ranks),
    cmocka_unit_test(shm_large_with_11_ranks),
    cmocka_unit_test(tcp_large_with_2_ranks),
    cmocka_unit_test(tcp_large_with_3_ranks),
    cmocka_unit_test(tcp_large_with_8_ranks),
    cmocka_unit_test(tcp_large_with_11_ranks),
};

TEST_MAIN(tests)
