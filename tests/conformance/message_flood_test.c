/*
 * message_flood_test.c - a flood of messages so small that hundreds of thousands fill what a rank
 * keeps. Its threads are those of message_order_test.c, where the messages are larger.
 * ctest: tsan=no timeout=120
 */
#include "testing/flood.h"

static const char *floods_with_words(rank_env *env)
{
    return floods(env, 4, "; this rank keeps 64 MiB of messages that it has not received");
}

static void a_flood_of_words_ends_with_a_deadline_that_says_why(void **state)
{
    (void)state;
    run_ranks("shm", NULL, 2, 600000, floods_with_words);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_flood_of_words_ends_with_a_deadline_that_says_why),
};

TEST_MAIN(tests)
