/*
 * reorder_halves_test.c - changes between any two orders of elements of 16 bits, against the way
 * through plain order that layouts describe themselves.
 */
#include <stdlib.h>
#include <string.h>

#include "train/device/cpu/cpu_parallel.h"
#include "train/device/cpu/onednn/handles.h"
#include "testing/check.h"

#define ORDERS 8

static const dnnl_format_tag_t orders[ORDERS] = {dnnl_abcd,       dnnl_acdb,       dnnl_aBcd8b,
                                                 dnnl_aBcd16b,    dnnl_Abcd16a,    dnnl_ABcd8b8a,
                                                 dnnl_ABcd16b16a, dnnl_ABcd8b16a2b};

/* Bytes of the elements 0, 1, 2.. in plain order, as they lie in the layout. */
static uint16_t *laid_out(const dnnl_memory_desc_t *md, int64_t n)
{
    uint16_t *plain = malloc((size_t)n * sizeof(*plain));
    uint16_t *laid = malloc((size_t)n * sizeof(*laid));
    const trii_layout *layout;

    for (int64_t i = 0; i < n; i++)
        plain[i] = (uint16_t)i;
    memcpy(laid, plain, (size_t)n * sizeof(*laid));
    CHECK_OK(trii_onednn_layout(md, &layout));
    if (layout != NULL)
        CHECK_OK(layout->from_plain(layout, plain, laid));
    free(plain);
    return laid;
}

static void check_change(const dnnl_dims_t dims, int from, int to)
{
    int64_t n = dims[0] * dims[1] * dims[2] * dims[3];
    uint16_t *got = calloc((size_t)n, sizeof(*got)), *have, *want;
    dnnl_memory_desc_t a, b;
    trii_kernel *kernel = NULL;

    assert_int_equal(dnnl_memory_desc_init_by_tag(&a, 4, dims, dnnl_bf16, orders[from]), 0);
    assert_int_equal(dnnl_memory_desc_init_by_tag(&b, 4, dims, dnnl_bf16, orders[to]), 0);
    have = laid_out(&a, n);
    want = laid_out(&b, n);
    CHECK_OK(trii_onednn_move_halves(&a, &b, &kernel));
    CHECK_OK(kernel->run(kernel, (void *[]){have, got}, NULL));
    if (memcmp(got, want, (size_t)n * sizeof(*got)) != 0)
        fail_msg("from order %d to order %d: elements are in wrong places", from, to);
    kernel->destroy(kernel);
    free(have);
    free(want);
    free(got);
}

static void every_order_becomes_every_other(void **state)
{
    static const dnnl_dims_t sizes[] = {{16, 32, 5, 3}, {16, 16, 1, 7}, {32, 48, 2, 1}};

    (void)state;
    for (int threads = 1; threads <= 3; threads += 2) {
        trii_parallel_set_threads(threads);
        for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
            for (int from = 0; from < ORDERS; from++) {
                for (int to = 0; to < ORDERS; to++)
                    check_change(sizes[s], from, to);
            }
        }
    }
}

static void blocks_that_do_not_divide_each_other_are_refused(void **state)
{
    const dnnl_dims_t dims = {1, 24, 2, 2}, stride = {96, 4, 2, 1};
    dnnl_memory_desc_t eights, threes;
    trii_kernel *kernel;

    (void)state;
    assert_int_equal(dnnl_memory_desc_init_by_tag(&eights, 4, dims, dnnl_bf16, dnnl_aBcd8b), 0);
    assert_int_equal(dnnl_memory_desc_init_by_strides(&threes, 4, dims, dnnl_bf16, stride), 0);
    threes.format_desc.blocking.inner_nblks = 1;
    threes.format_desc.blocking.inner_blks[0] = 3;
    threes.format_desc.blocking.inner_idxs[0] = 1;
    CHECK_FAILS(trii_onednn_move_halves(&eights, &threes, &kernel), TRI_ERR_UNSUPPORTED,
                "blocks of different sizes");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_order_becomes_every_other),
    cmocka_unit_test(blocks_that_do_not_divide_each_other_are_refused),
};

TEST_MAIN(tests)
