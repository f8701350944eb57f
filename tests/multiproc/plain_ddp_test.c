/*
 * plain_ddp_test.c - examples/plain_ddp.c learns, and any number of workers has the result of one.
 */
#include "testing/check.h"
#include "testing/spawn.h"

static const char *after_colon(const char *line)
{
    const char *colon = strchr(line, ':');

    assert_non_null(colon);
    return colon + 1;
}

static void any_number_of_workers_has_the_result_of_one(void **state)
{
    const char *const alone[] = {spawn_bin("plain_ddp"), NULL};
    const char *const env[] = {"RANK", "WORLD_SIZE", "TRI_ENGINE", NULL};
    char wanted[128];
    int right = 0;
    spawn s;

    (void)state;
    spawn_start(&s, alone, env);
    assert_int_equal(spawn_wait(&s), 0);
    snprintf(wanted, sizeof(wanted), "%s", after_colon(SPAWN_OUT(&s)));
    assert_int_equal(sscanf(wanted, " %d of 64 right, w2[0] = ", &right), 1);
    assert_true(right >= 60);
    spawn_free(&s);
    for (int k = 0; k < 3; k++) { /* 3 and 5 have parts of different sizes */
        static const int sizes[3] = {2, 3, 5};
        const int size = sizes[k];
        char number[16];
        const char *argv[] = {spawn_bin("trirun"),    "--standalone",
                              "--nproc-per-node",     number,
                              spawn_bin("plain_ddp"), NULL};
        int lines = 0;

        snprintf(number, sizeof(number), "%d", size);
        spawn_start(&s, argv, env);
        if (spawn_wait(&s) != 0)
            fail_msg("%d workers: %s", size, SPAWN_ERR(&s));
        for (char *line = SPAWN_OUT(&s); *line != '\0'; lines++) {
            char *end = strchr(line, '\n');
            const char *result = after_colon(line);

            assert_non_null(end);
            if (strncmp(result, wanted, strlen(wanted)) != 0)
                fail_msg("%d workers: %.*s instead of %s", size, (int)(end - line), line, wanted);
            line = end + 1;
        }
        assert_int_equal(lines, size);
        spawn_expect_no_process(&s);
        spawn_free(&s);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(any_number_of_workers_has_the_result_of_one),
};

TEST_MAIN(tests)
