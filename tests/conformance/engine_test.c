/*
 * engine_test.c - what every engine promises, quick part: each engine with 1 to 11 ranks as
 * threads of one process, bit for bit against the scalar reference.
 */
#include "conformance/calls.h"

#include "base/alloc.h"

static const size_t small_counts[] = {0, 1, 17, 1009, SIZE_MAX};
static const size_t large_counts[] = {0, 1, 23, 4099, 40009, SIZE_MAX};
static const size_t many_rank_counts[] = {0, 1, 23, 4099, SIZE_MAX};
#if TEST_SANITIZED /* one of each size */
static const tri_dtype every_dtype[] = {TRI_DTYPE_BOOL, TRI_DTYPE_BF16, TRI_DTYPE_F32,
                                        TRI_DTYPE_I64, TRI_DTYPE_NONE};
#else
static const tri_dtype every_dtype[] = {
    TRI_DTYPE_U8,   TRI_DTYPE_I8,  TRI_DTYPE_I16, TRI_DTYPE_I32,  TRI_DTYPE_I64, TRI_DTYPE_F16,
    TRI_DTYPE_BF16, TRI_DTYPE_F32, TRI_DTYPE_F64, TRI_DTYPE_BOOL, TRI_DTYPE_NONE};
#endif
static const tri_dtype only_f32[] = {TRI_DTYPE_F32, TRI_DTYPE_NONE};

static void conform(const char *engine, int size, const size_t *counts, const tri_dtype *dtypes)
{
    script what = {.counts = counts, .dtypes = dtypes, .all_ops = dtypes == every_dtype};
    tri_group_options options = {.engine = engine, .timeout_ms = 40000};

    run_threads(size, &options, run_script, &what);
    assert_int_equal(trii_alloc_live(), 0);
}

static void self_with_1_rank(void **state)
{
    (void)state;
    conform("self", 1, small_counts, every_dtype);
}

static void shm_with_1_rank(void **state)
{
    (void)state;
    conform("shm", 1, large_counts, only_f32);
}

static void shm_with_2_ranks(void **state)
{
    (void)state;
    conform("shm", 2, large_counts, only_f32);
}

static void shm_with_3_ranks(void **state)
{
    (void)state;
    conform("shm", 3, large_counts, only_f32);
}

static void shm_with_4_ranks(void **state)
{
    (void)state;
    conform("shm", 4, large_counts, only_f32);
}

static void shm_with_8_ranks(void **state)
{
    (void)state;
    conform("shm", 8, many_rank_counts, only_f32);
}

static void shm_with_11_ranks(void **state)
{
    (void)state;
    conform("shm", 11, many_rank_counts, only_f32);
}

static void shm_every_dtype_and_op_with_2_ranks(void **state)
{
    (void)state;
    conform("shm", 2, small_counts, every_dtype);
}

static void shm_every_dtype_and_op_with_4_ranks(void **state)
{
    (void)state;
    conform("shm", 4, small_counts, every_dtype);
}

static void tcp_with_1_rank(void **state)
{
    (void)state;
    conform("tcp", 1, large_counts, only_f32);
}

static void tcp_with_2_ranks(void **state)
{
    (void)state;
    conform("tcp", 2, large_counts, only_f32);
}

static void tcp_with_3_ranks(void **state)
{
    (void)state;
    conform("tcp", 3, large_counts, only_f32);
}

static void tcp_with_4_ranks(void **state)
{
    (void)state;
    conform("tcp", 4, large_counts, only_f32);
}

static void tcp_with_8_ranks(void **state)
{
    (void)state;
    conform("tcp", 8, many_rank_counts, only_f32);
}

static void tcp_with_11_ranks(void **state)
{
    (void)state;
    conform("tcp", 11, many_rank_counts, only_f32);
}

static void tcp_every_dtype_and_op_with_2_ranks(void **state)
{
    (void)state;
    conform("tcp", 2, small_counts, every_dtype);
}

static void tcp_every_dtype_and_op_with_4_ranks(void **state)
{
    (void)state;
    conform("tcp", 4, small_counts, every_dtype);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(self_with_1_rank),
    cmocka_unit_test(shm_with_1_rank),
    cmocka_unit_test(shm_with_2_ranks),
    cmocka_unit_test(shm_with_3_ranks),
    cmocka_unit_test(shm_with_4_ranks),
    cmocka_unit_test(shm_with_8_ranks),
    cmocka_unit_test(shm_with_11_ranks),
    cmocka_unit_test(shm_every_dtype_and_op_with_2_ranks),
    cmocka_unit_test(shm_every_dtype_and_op_with_4_ranks),
    cmocka_unit_test(tcp_with_1_rank),
    cmocka_unit_test(tcp_with_2_ranks),
    cmocka_unit_test(tcp_with_3_ranks),
    cmocka_unit_test(tcp_with_4_ranks),
    cmocka_unit_test(tcp_with_8_ranks),
    cmocka_unit_test(tcp_with_11_ranks),
    cmocka_unit_test(tcp_every_dtype_and_op_with_2_ranks),
    cmocka_unit_test(tcp_every_dtype_and_op_with_4_ranks),
};

TEST_MAIN(tests)
