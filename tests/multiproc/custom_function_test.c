/* custom_function_test.c - the example of a user's function, through plans and the eager engine. */
#include "testing/check.h"
#include "testing/spawn.h"

static void check_program(const char *setting)
{
    const char *const environment[] = {setting, NULL};
    spawn s;

    spawn_start(&s, (const char *const[]){spawn_bin("custom_function"), NULL}, environment);
    assert_int_equal(spawn_wait(&s), 0);
    if (strstr(SPAWN_OUT(&s), "gradients and differences agree") == NULL ||
        strstr(SPAWN_OUT(&s), "step 200, loss 0.0") == NULL ||
        strstr(SPAWN_OUT(&s), "beta was 1 and is 1.") == NULL)
        fail_msg("%s: %s", setting, SPAWN_OUT(&s));
    assert_string_equal(SPAWN_ERR(&s), "");
    spawn_free(&s);
}

static void its_gradient_is_right_and_it_trains(void **state)
{
    (void)state;
    check_program("TRI_EAGER=0");
    check_program("TRI_EAGER=1");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(its_gradient_is_right_and_it_trains),
};

TEST_MAIN(tests)
