/*
 * examples_test.c - what every example has: --help says what it is for, a mistake on the command
 * line is named, and neither starts any work; and what they print is not lost in silence.
 */
#include "testing/check.h"
#include "testing/scratch.h"
#include "testing/spawn.h"
#include "testing/trirun_job.h"

static const char *const examples[] = {
    "toy_ddp",        "plain_mlp", "plain_ddp", "custom_function", "data_parallel",
    "model_parallel", "fashion",   "gpt",       "parity",          "imagenet",
    "classy_train",   "local_sgd", "deepspeed"};
#define N_EXAMPLES (sizeof(examples) / sizeof(examples[0]))

static void run(spawn *s, const char *program, const char *option, int status)
{
    const char *const argv[] = {spawn_bin(program), option, NULL};

    spawn_start(s, argv, NULL);
    if (spawn_wait(s) != status)
        fail_msg("%s %s: status %d instead of %d\n%s\n%s", program, option, s->status, status,
                 SPAWN_OUT(s), SPAWN_ERR(s));
}

static void help_is_printed_and_nothing_else_happens(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_EXAMPLES; i++) {
        spawn s;

        run(&s, examples[i], "--help", 0);
        if (strncmp(SPAWN_OUT(&s), "usage: ", 7) != 0 ||
            strstr(SPAWN_OUT(&s), examples[i]) == NULL || strstr(SPAWN_OUT(&s), "loss 0.") != NULL)
            fail_msg("%s --help: %s", examples[i], SPAWN_OUT(&s));
        assert_string_equal(SPAWN_ERR(&s), "");
        spawn_free(&s);
    }
}

static void unknown_options_are_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_EXAMPLES; i++) {
        spawn s;

        run(&s, examples[i], "--no-such-option", 2);
        assert_string_equal(SPAWN_OUT(&s), "");
        if (strstr(SPAWN_ERR(&s), "--no-such-option") == NULL ||
            strstr(SPAWN_ERR(&s), "--help") == NULL)
            fail_msg("%s: %s", examples[i], SPAWN_ERR(&s));
        spawn_free(&s);
    }
}

/* A value may follow '=', and each mistake with one has its own line. */
static void values_follow_the_name_or_an_equals_sign(void **state)
{
    static const char *const cases[][2] = {
        {"--steps=0", "--steps 0: must be a whole number from 1 to"},
        {"--steps=", "--steps : must be a whole number"},
        {"--steps", "--steps needs a value"},
        {"--step=1", "unknown option --step=1"},
        {"5", "5: one argument too many"},
    };
    spawn s;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        run(&s, "gpt", cases[i][0], 2);
        if (strstr(SPAWN_ERR(&s), cases[i][1]) == NULL)
            fail_msg("gpt %s: %s", cases[i][0], SPAWN_ERR(&s));
        spawn_free(&s);
    }
    run(&s, "fashion", "--resume=1", 2);
    assert_non_null(strstr(SPAWN_ERR(&s), "--resume takes no value"));
    spawn_free(&s);
}

/* By rank 0, whichever worker finds it first: the launcher does not end it for what the others
 * find. */
static void a_mistake_is_said_once_by_the_workers_of_a_job(void **state)
{
    static const struct {
        const char *program, *argument, *line;
    } cases[] = {
        {"toy_ddp", "--steps", "toy_ddp: unknown option --steps (--help lists the options)\n"},
        {"parity", "--loss=l1", "parity: missing option --model (--help says more)\n"},
        {"imagenet", "-e", "imagenet: DIR is missing: the folder of the images comes last\n"},
        {"multigpu_torchrun", "50",
         "multigpu_torchrun: SAVE_EVERY is missing (--help lists the options)\n"},
        {"rpc_rl", "--gamma=x",
         "rpc_rl: --gamma x: must be a number from 0 to 2147483647 (--help lists the options)\n"},
    };
    trirun_job j;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        TRIRUN_START(&j, "--standalone", "--nproc_per_node=4", spawn_bin(cases[i].program),
                     cases[i].argument);
        assert_int_equal(spawn_wait(&j.run), 1);
        if (trirun_count(SPAWN_ERR(&j.run), cases[i].line) != 1)
            fail_msg("%s %s: %s", cases[i].program, cases[i].argument, SPAWN_ERR(&j.run));
        /* trirun may see the end of another one first: they end when rank 0 does */
        trirun_has(SPAWN_ERR(&j.run), "failed: rank 0 exited with code 2\n");
        trirun_end(&j, 1);
    }
    TRIRUN_START(&j, "--standalone", "--nproc_per_node=4", spawn_bin("toy_ddp"), "--help");
    assert_int_equal(spawn_wait(&j.run), 0);
    assert_int_equal(trirun_count(SPAWN_OUT(&j.run), "usage: "), 1);
    trirun_end(&j, 0);
}

/* A worker that alone has a wrong command line is not silent. */
static void a_mistake_of_one_worker_is_said_by_it(void **state)
{
    static const char *const env[] = {"RANK=1", "WORLD_SIZE=2", NULL};
    spawn s;

    (void)state;
    spawn_start(&s, (const char *const[]){spawn_bin("toy_ddp"), "5", NULL}, env);
    assert_int_equal(spawn_wait(&s), 2);
    trirun_has(SPAWN_ERR(&s), "toy_ddp: 5: one argument too many");
    spawn_free(&s);
}

static void a_full_output_is_an_error(void **state)
{
    static const char *const cases[][2] = {
        {"toy_ddp", "--help"},
        {"plain_mlp", "--help"},
        {"plain_ddp", "--help"},
        {"local_sgd", "--help"},
        {"model_parallel", "--help"},
        {"fashion", "--help"},
        {"gpt", "--help"},
        {"parity", "--help"},
        {"parity", "--version"},
        {"toy_ddp", ""},
        {"plain_mlp", ""},
        {"plain_ddp", ""},
        {"local_sgd", "--steps 10"},
        {"gpt", "--text /proc/version --steps 1 --layers 1 --width 4 --heads 1 --context 4 "
                "--batch-size 1 --letters 3"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char words[200], line[80];
        const char *const argv[] = {"sh", "-c", words, spawn_bin(cases[i][0]), NULL};
        spawn s;

        snprintf(words, sizeof(words), "exec \"$0\" %s >/dev/full", cases[i][1]);
        snprintf(line, sizeof(line), "%s: cannot write to stdout", cases[i][0]);
        spawn_start(&s, argv, NULL);
        if (spawn_wait(&s) != 1 || strstr(SPAWN_ERR(&s), line) == NULL)
            fail_msg("%s %s: status %d\n%s", cases[i][0], cases[i][1], s.status, SPAWN_ERR(&s));
        spawn_free(&s);
    }
}

static void missing_data_say_where_to_get_them(void **state)
{
    scratch folder;
    spawn s;

    (void)state;
    scratch_begin(&folder);
    run(&s, "data_tutorial", folder.dir, 1);
    if (strstr(SPAWN_ERR(&s), folder.dir) == NULL ||
        strstr(SPAWN_ERR(&s), "NOT_FOUND: no train-images-idx3-ubyte") == NULL ||
        strstr(SPAWN_ERR(&s), "apt install dataset-fashion-mnist") == NULL)
        fail_msg("data_tutorial: %s", SPAWN_ERR(&s));
    spawn_free(&s);
    scratch_end(&folder);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(help_is_printed_and_nothing_else_happens),
    cmocka_unit_test(unknown_options_are_named),
    cmocka_unit_test(values_follow_the_name_or_an_equals_sign),
    cmocka_unit_test(a_mistake_is_said_once_by_the_workers_of_a_job),
    cmocka_unit_test(a_mistake_of_one_worker_is_said_by_it),
    cmocka_unit_test(a_full_output_is_an_error),
    cmocka_unit_test(missing_data_say_where_to_get_them),
};

TEST_MAIN(tests)
