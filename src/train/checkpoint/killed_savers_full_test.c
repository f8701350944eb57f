/* killed_savers_full_test.c - ranks that save pieces are killed 200 times. */
/* ctest: labels=full timeout=1800 */
#include "testing/killed_savers.h"

static void the_newest_checkpoint_is_whole_after_a_kill(void **state)
{
    (void)state;
    savers_are_killed(200);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_newest_checkpoint_is_whole_after_a_kill),
};
TEST_MAIN(tests)
