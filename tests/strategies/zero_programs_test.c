/*
 * zero_programs_test.c - random programs see the same bits under every stage of tri_zero as under
 * tri_ddp. zero_programs_full_test.c has more of them.
 */
/* ctest: start=first timeout=120 */
#include "random_training.h"

static void random_programs_have_the_bits_of_ddp(void **state)
{
    (void)state;
    check_programs(0, TEST_SANITIZED ? 12 : 40, true);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(random_programs_have_the_bits_of_ddp),
};

TEST_MAIN(tests)
