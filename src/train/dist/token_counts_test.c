/* token_counts_test.c - what a step has cut is noted once, of other steps nothing, and of more
 * lengths than there is room for what divides them all. */
#include "train/dist/token_counts.h"

#include <trireme/trireme.h>

#include "testing/check.h"

static void counts_are_of_this_step(void **state)
{
    trii_token_counts told;

    (void)state;
    assert_int_equal(trii_token_counts_now()->n, 0);
    for (int twice = 0; twice < 2; twice++)
        for (int i = 1; i <= TRII_TOKEN_COUNTS; i++)
            trii_token_counts_add(12 * i);
    assert_int_equal(trii_token_counts_now()->n, TRII_TOKEN_COUNTS);
    assert_int_equal(trii_token_counts_now()->others, 0);
    trii_token_counts_add(120);
    trii_token_counts_add(144);
    assert_int_equal(trii_token_counts_now()->n, TRII_TOKEN_COUNTS);
    assert_int_equal(trii_token_counts_now()->others, 24);
    told = *trii_token_counts_now();
    (void)tri_zeros(NULL, 0, TRI_DTYPE_F32); /* something to end */
    tri_step_end();
    assert_int_equal(trii_token_counts_now()->n, 0);
    trii_token_counts_add(7);
    trii_token_counts_join(&told);
    assert_int_equal(trii_token_counts_now()->of[0], 7);
    assert_int_equal(trii_token_counts_now()->of[1], 12);
    assert_int_equal(trii_token_counts_now()->others, 24);
    tri_step_end();
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(counts_are_of_this_step),
};

TEST_MAIN(tests)
