/*
 * zero_programs_full_test.c - many random programs see the same bits under every stage of tri_zero
 * as under tri_ddp.
 */
/* ctest: labels=full timeout=600 */
#include "random_training.h"

static void random_programs_have_the_bits_of_ddp(void **state)
{
    (void)state;
    check_programs(1000, TEST_SANITIZED ? 100 : 600);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(random_programs_have_the_bits_of_ddp),
};

TEST_MAIN(tests)
