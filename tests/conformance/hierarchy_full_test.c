/*
 * hierarchy_full_test.c - every number of ranks from 3 to 11 on hosts as chance places them: each
 * operation, reduction and dtype, with the bits of the reference. Which dtypes meet which places is
 * chance too: those of one number of ranks share them.
 */
/* ctest: labels=full timeout=300 */
#include "conformance/calls.h"

#include <stdlib.h>

#include "base/alloc.h"

static const size_t few_counts[] = {1, 37, SIZE_MAX};
static const size_t counts[] = {5003, 12345, SIZE_MAX};
static const tri_dtype every_dtype[] = {TRI_DTYPE_U8,  TRI_DTYPE_I8,  TRI_DTYPE_I16,  TRI_DTYPE_I32,
                                        TRI_DTYPE_I64, TRI_DTYPE_F16, TRI_DTYPE_BF16, TRI_DTYPE_F32,
                                        TRI_DTYPE_F64, TRI_DTYPE_BOOL};
#define N_DTYPES ((int)(sizeof(every_dtype) / sizeof(every_dtype[0])))
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

/* One of `parts` places of so many ranks, with every dtype whose turn it is. */
static void conform(int size, uint32_t seed, int part, int parts)
{
    tri_dtype dtypes[N_DTYPES + 1];
    script small = {.counts = few_counts, .dtypes = dtypes, .all_ops = true};
    script large = {.counts = counts, .dtypes = wide_dtypes};
    tri_group_options options = {.engine = "hierarchy", .timeout_ms = 100000};
    char hosts[2 * RANKS_MAX];
    int n = 0;

    for (int i = part; i < N_DTYPES; i += parts)
        dtypes[n++] = every_dtype[i];
    dtypes[n] = TRI_DTYPE_NONE;
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
        for (int part = 0; part < 3; part++)
            conform(size, (uint32_t)(part + 1 + size * 10), part, 3);
    }
}

static void seven_to_nine_ranks(void **state)
{
    (void)state;
    for (int size = 7; size <= 9; size++) {
        for (int part = 0; part < 2; part++)
            conform(size, (uint32_t)(part + 1 + size * 10), part, 2);
    }
}

static void ten_and_eleven_ranks(void **state)
{
    (void)state;
    conform(10, 3, 0, 1);
    conform(11, 4, 0, 2);
    conform(11, 9, 1, 2);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(three_to_six_ranks),
    cmocka_unit_test(seven_to_nine_ranks),
    cmocka_unit_test(ten_and_eleven_ranks),
};

TEST_MAIN(tests)
