/*
 * hierarchy_full_test.c - every number of ranks from 3 to 11 on hosts as chance places them: each
 * operation, reduction and dtype, with the bits of the reference.
 */
/* ctest: labels=full timeout=300 */
#include "conformance/calls.h"

#include <stdlib.h>

#include "base/alloc.h"

static const size_t few_counts[] = {1, 37, SIZE_MAX};
static const size_t counts[] = {5003, 12345, SIZE_MAX};
static const tri_dtype every_dtype[] = {
    TRI_DTYPE_U8,   TRI_DTYPE_I8,  TRI_DTYPE_I16, TRI_DTYPE_I32,  TRI_DTYPE_I64, TRI_DTYPE_F16,
    TRI_DTYPE_BF16, TRI_DTYPE_F32, TRI_DTYPE_F64, TRI_DTYPE_BOOL, TRI_DTYPE_NONE};
static const tri_dtype wide_dtypes[] = {TRI_DTYPE_BF16, TRI_DTYPE_F32, TRI_DTYPE_NONE};

/* Names of hosts for size ranks, not all alike and not all different. */
static void place(int size, uint32_t seed, char hosts[2 * RANKS_MAX])
{
    int n_hosts = 2 + (int)(seed % (uint32_t)(size - 2));
    uint32_t used = 0;
    bool shared = false;

    for (int r = 0; r < size; r++) {
        int host = (int)(mix(seed, (uint32_t)r, 77) % (uint32_t)n_hosts);

        if (r == size - 1 && (used & (used - 1)) == 0) /* so far one host */
            host = (used & 1) != 0 ? 1 : 0;
        else if (r == size - 2 && !shared && (used & 1) != 0)
            host = 0;
        shared = shared || (used >> host & 1) != 0;
        used |= 1u << host;
        hosts[2 * r] = (char)('a' + host);
        hosts[2 * r + 1] = r == size - 1 ? '\0' : ',';
    }
}

static void conform(int size, uint32_t seed)
{
    script small = {.counts = few_counts, .dtypes = every_dtype, .all_ops = true};
    script large = {.counts = counts, .dtypes = wide_dtypes};
    tri_group_options options = {.engine = "hierarchy", .timeout_ms = 100000};
    char hosts[2 * RANKS_MAX];

    place(size, seed, hosts);
    print_message("%d ranks on %s\n", size, hosts);
    setenv("TRI_HOSTS", hosts, 1);
    run_threads(size, &options, run_script, &small);
    run_threads(size, &options, run_script, &large);
    assert_int_equal(trii_alloc_live(), 0);
}

static void three_to_six_ranks(void **state)
{
    (void)state;
    for (int size = 3; size <= 6; size++) {
        for (uint32_t seed = 1; seed <= 3; seed++)
            conform(size, seed + (uint32_t)size * 10);
    }
}

static void seven_to_nine_ranks(void **state)
{
    (void)state;
    for (int size = 7; size <= 9; size++) {
        for (uint32_t seed = 1; seed <= 2; seed++)
            conform(size, seed + (uint32_t)size * 10);
    }
}

static void ten_and_eleven_ranks(void **state)
{
    (void)state;
    conform(10, 3);
    conform(11, 4);
    conform(11, 9);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(three_to_six_ranks),
    cmocka_unit_test(seven_to_nine_ranks),
    cmocka_unit_test(ten_and_eleven_ranks),
};

TEST_MAIN(tests)
