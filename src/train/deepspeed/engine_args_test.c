/* engine_args_test.c - DeepSpeed's options are taken out of a command line, and nothing else. */
#include <trireme/deepspeed.h>

#include "base/compiler.h"
#include "testing/check.h"

#define MAX_WORDS 12

typedef struct words {
    char *argv[MAX_WORDS + 1];
    int argc;
} words;

static words split(char *line)
{
    words w = {0};
    char *rest = NULL;

    for (char *word = strtok_r(line, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest))
        w.argv[w.argc++] = word;
    return w;
}

static void our_options_are_taken_and_others_stay(void **state)
{
    static const struct {
        const char *line, *left, *config;
        bool deepspeed;
        int local_rank; /* -1: none */
    } cases[] = {
        {"p", "p", NULL, false, -1},
        {"p --deepspeed -e 3", "p -e 3", NULL, true, -1},
        {"p a --deepspeed_config f.json b", "p a b", "f.json", false, -1},
        {"p --deepspeed-config=f.json --local_rank=3", "p", "f.json", false, 3},
        {"p --local-rank 0 --deepspeed x", "p x", NULL, true, 0},
        {"p --local_rank -1", "p", NULL, false, -1},
        {"p --deepspeeds --deepspeed_configs x", "p --deepspeeds --deepspeed_configs x", NULL,
         false, -1},
        {"p x -- --deepspeed --local_rank 1", "p x -- --deepspeed --local_rank 1", NULL, false, -1},
    };

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(cases); i++) {
        char line[128], left[128] = "";
        tri_deepspeed_args args;
        words w;

        snprintf(line, sizeof(line), "%s", cases[i].line);
        w = split(line);
        CHECK_OK(tri_deepspeed_args_take(&w.argc, w.argv, &args));
        assert_null(w.argv[w.argc]);
        for (int k = 0; k < w.argc; k++)
            snprintf(left + strlen(left), sizeof(left) - strlen(left), "%s%s", k > 0 ? " " : "",
                     w.argv[k]);
        assert_string_equal(left, cases[i].left);
        assert_int_equal(args.deepspeed, cases[i].deepspeed);
        assert_int_equal(args.local_rank.given != NULL, cases[i].local_rank >= 0);
        if (cases[i].local_rank >= 0)
            assert_true(args.local_rank.value == cases[i].local_rank);
        if (cases[i].config != NULL)
            assert_string_equal(args.deepspeed_config, cases[i].config);
        else
            assert_null(args.deepspeed_config);
    }
}

static void a_missing_or_wrong_value_is_named_and_nothing_is_taken(void **state)
{
    static const char *const cases[][2] = {
        {"p --deepspeed --deepspeed_config", "--deepspeed_config: the value is missing"},
        {"p --deepspeed --local_rank=", "--local_rank=: the value is missing"},
        {"p --deepspeed --local_rank two", "--local_rank two: is not a rank"},
        {"p --deepspeed --local_rank -2", "--local_rank -2: is not a rank"},
    };

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(cases); i++) {
        char line[128];
        tri_deepspeed_args args;
        words w;
        int before;

        snprintf(line, sizeof(line), "%s", cases[i][0]);
        w = split(line);
        before = w.argc;
        assert_int_equal(tri_deepspeed_args_take(&w.argc, w.argv, &args), TRI_ERR_INVALID_ARG);
        if (strstr(tri_last_error(), cases[i][1]) == NULL)
            fail_msg("%s: %s", cases[i][0], tri_last_error());
        assert_int_equal(w.argc, before);
        assert_string_equal(w.argv[1], "--deepspeed");
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(our_options_are_taken_and_others_stay),
    cmocka_unit_test(a_missing_or_wrong_value_is_named_and_nothing_is_taken),
};

TEST_MAIN(tests)
