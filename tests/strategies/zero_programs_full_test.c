/*
 * zero_programs_full_test.c - many random programs see the same bits under a stage of tri_zero as
 * under tri_ddp: the stages in turn, since another program finds more than another stage of one.
 */
/* ctest: labels=full timeout=600 */
#include "random_training.h"

static void random_programs_have_the_bits_of_ddp(void **state)
{
    (void)state;
    check_programs(1000, TEST_SANITIZED ? 80 : 400, false);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(random_programs_have_the_bits_of_ddp),
};

TEST_MAIN(tests)
