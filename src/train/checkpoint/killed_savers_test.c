/* killed_savers_test.c - ranks that save pieces are killed 20 times. killed_savers_full_test.c has
 * 200. */
/* ctest: labels=quick timeout=240 start=first */
#include "testing/killed_savers.h"

static void the_newest_checkpoint_is_whole_after_a_kill(void **state)
{
    (void)state;
    savers_are_killed(TEST_SANITIZED ? 8 : 20);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_newest_checkpoint_is_whole_after_a_kill),
};
TEST_MAIN(tests)
