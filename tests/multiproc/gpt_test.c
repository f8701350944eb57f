/*
 * gpt_test.c - build/bin/gpt learns an alphabet that repeats, and writes it; several workers see
 * the losses that one sees, whether each has a part of the batch, of the layers or of the blocks.
 */
#include <math.h>

#include "testing/check.h"
#include "testing/spawn.h"

#define ALPHABET "abcdefghijklmnopqrstuvwxyz. "

/* The losses of steps 1, 21, 41 and 60, and the 40 letters that it writes then. */
static void run_gpt(const char *workers, const char *mesh, double losses[4], char written[41])
{
    char folder[256], path[300];
    const char *at;
    FILE *file;
    spawn s;

    spawn_make_folder(folder, sizeof(folder));
    snprintf(path, sizeof(path), "%s/text", folder);
    file = fopen(path, "w");
    assert_non_null(file);
    for (int i = 0; i < 20; i++)
        fputs(ALPHABET, file);
    assert_int_equal(fclose(file), 0);
    spawn_start(&s,
                (const char *const[]){spawn_bin("trirun"),
                                      "--standalone",
                                      "--nproc-per-node",
                                      workers,
                                      spawn_bin("gpt"),
                                      "--text",
                                      path,
                                      "--steps",
                                      "60",
                                      "--batch-size",
                                      "4",
                                      "--context",
                                      "16",
                                      "--layers",
                                      "2",
                                      "--width",
                                      "32",
                                      "--heads",
                                      "2",
                                      "--lr",
                                      "0.01",
                                      "--warmup",
                                      "5",
                                      "--letters",
                                      "40",
                                      "--temperature",
                                      "0",
                                      "--mesh",
                                      mesh,
                                      NULL},
                NULL);
    if (spawn_wait(&s) != 0)
        fail_msg("gpt: %s", SPAWN_ERR(&s));
    at = SPAWN_OUT(&s);
    for (int i = 0; i < 4; i++) {
        int step = 0;

        at = strstr(at, "step ");
        assert_non_null(at);
        assert_int_equal(sscanf(at, "step %d of 60 loss %lf", &step, &losses[i]), 2);
        assert_int_equal(step, i < 3 ? 20 * i + 1 : 60);
        at = strchr(at, '\n') + 1;
    }
    assert_int_equal(strlen(at), 41);
    memcpy(written, at, 40);
    written[40] = '\0';
    spawn_expect_no_process(&s);
    spawn_free(&s);
    spawn_remove_folder(folder);
}

static void an_alphabet_is_learned_and_written_by_one_worker_and_two(void **state)
{
    double alone[4], together[4];
    char written[41];

    (void)state;
    run_gpt("1", "", alone, written);
    if (!(alone[0] > 3 && alone[3] < 0.5))
        fail_msg("the loss went from %g to %g", alone[0], alone[3]);
    if (strncmp(&ALPHABET[1], written, 20) != 0)
        fail_msg("it wrote \"%s\"", written);
    run_gpt("2", "data=2", together, written);
    for (int i = 0; i < 4; i++) /* printed with 4 digits */
        if (!(fabs(alone[i] - together[i]) <= 2e-3))
            fail_msg("loss %g with one worker, %g with two", alone[i], together[i]);
}

/* Axes in any order, with or without those of 1. */
static void workers_that_divide_the_network_learn_it_too(void **state)
{
    static const struct {
        const char *workers, *mesh;
    } ways[] = {{"2", "tensor=2"},
                {"4", "tensor=2"}, /* data has the others */
                {"2", "data=1,pipeline=2"},
                {"8", "tensor=2,pipeline=2,data=2"}};
    double alone[4], together[4];
    char written[41], parts[41];

    (void)state;
    run_gpt("1", "", alone, written);
    for (size_t k = 0; k < TRII_COUNT_OF(ways); k++) {
        run_gpt(ways[k].workers, ways[k].mesh, together, parts);
        for (int i = 0; i < 4; i++)
            if (!(fabs(alone[i] - together[i]) <= 2e-3))
                fail_msg("loss %g with one worker, %g with %s", alone[i], together[i],
                         ways[k].mesh);
        if (strncmp(&ALPHABET[1], parts, 20) != 0)
            fail_msg("%s: they wrote \"%s\"", ways[k].mesh, parts);
    }
}

static void meshes_that_are_none_are_refused(void **state)
{
    static const char *const cases[][2] = {
        {"--mesh=data", "--mesh data: must be like data=2,tensor=2,pipeline=2, each axis once"},
        {"--mesh=tensor=1,tensor=1", "each axis once"},
        {"--mesh=heads=2", "--mesh heads=2: must be like"},
        {"--mesh=tensor=0", "the size of tensor must be a whole number from 1"},
        {"--mesh=tensor=1x", "the size of tensor must be a whole number from 1"},
        {"--mesh=tensor=4611686018427387904,data=4", "the size of tensor must be a whole number"},
        {"--mesh=tensor=3", "--mesh tensor=3: is of 3 workers, not of 2"},
        {"--mesh=data=1", "--mesh data=1: is of 1 workers, not of 2"},
        {"--mesh=tensor=2 --heads=1", "tensor is more than --heads"},
        {"--mesh=pipeline=2 --layers=1", "pipeline is more than --layers"},
    };

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(cases); i++) {
        char words[200];
        spawn s;

        snprintf(words, sizeof(words), "exec \"$0\" --standalone --nproc-per-node 2 \"$1\" %s",
                 cases[i][0]);
        spawn_start(
            &s,
            (const char *const[]){"sh", "-c", words, spawn_bin("trirun"), spawn_bin("gpt"), NULL},
            NULL);
        assert_int_not_equal(spawn_wait(&s), 0);
        if (strstr(SPAWN_ERR(&s), cases[i][1]) == NULL)
            fail_msg("%s: %s", cases[i][0], SPAWN_ERR(&s));
        spawn_free(&s);
    }
}

/* ThreadSanitizer sees in a few steps what it would see in all, each of which takes it a second. */
#define STEPS (TEST_SANITIZED ? 3 : 21)

/* The loss of the last step of the text that --help speaks of. */
static double loss_of_the_default_text(const char *workers)
{
    char steps[16], begin[32], end[32];
    double first = 0, loss = 0;
    const char *at;
    spawn s;

    snprintf(steps, sizeof(steps), "%d", STEPS);
    snprintf(begin, sizeof(begin), "step 1 of %d ", STEPS);
    snprintf(end, sizeof(end), "step %d of %d ", STEPS, STEPS);
    spawn_start(&s,
                (const char *const[]){spawn_bin("trirun"), "--standalone", "--nproc-per-node",
                                      workers, spawn_bin("gpt"), "--steps", steps, "--letters", "0",
                                      NULL},
                (const char *const[]){"TRI_NUM_THREADS=1", NULL});
    if (spawn_wait(&s) != 0)
        fail_msg("gpt: %s", SPAWN_ERR(&s));
    at = strstr(SPAWN_OUT(&s), begin);
    assert_non_null(at);
    assert_int_equal(sscanf(at + strlen(begin), " loss %lf", &first), 1);
    at = strstr(SPAWN_OUT(&s), end);
    assert_non_null(at);
    assert_int_equal(sscanf(at + strlen(end), " loss %lf", &loss), 1);
    if (!(first > 4.2 && first < 4.5))
        fail_msg("the loss begins at %g", first);
    spawn_expect_no_process(&s);
    spawn_free(&s);
    return loss;
}

static void the_losses_that_the_help_states_are_reached(void **state)
{
    double alone = loss_of_the_default_text("1"), together = loss_of_the_default_text("2");
    spawn s;

    (void)state;
    spawn_start(&s, (const char *const[]){spawn_bin("gpt"), "--help", NULL}, NULL);
    assert_int_equal(spawn_wait(&s), 0);
    assert_non_null(strstr(SPAWN_OUT(&s), "from 4.38 to below 3 in the first 21 steps"));
    spawn_free(&s);
    if (!(alone < 3 || STEPS < 21) || !(fabs(alone - together) <= 2e-3))
        fail_msg("loss %g with one worker, %g with two", alone, together);
}

static void a_text_that_is_not_there_or_too_short_is_refused(void **state)
{
    spawn s;

    (void)state;
    spawn_start(&s, (const char *const[]){spawn_bin("gpt"), "--text", "/no/such/text", NULL}, NULL);
    assert_int_equal(spawn_wait(&s), 2);
    assert_string_equal(SPAWN_ERR(&s),
                        "gpt: /no/such/text: cannot be read (choose another with --text)\n");
    spawn_free(&s);
    spawn_start(&s, (const char *const[]){spawn_bin("gpt"), "--text", "/tmp", NULL}, NULL);
    assert_int_equal(spawn_wait(&s), 2);
    assert_string_equal(SPAWN_ERR(&s), "gpt: /tmp: Is a directory\n");
    spawn_free(&s);
    spawn_start(&s, (const char *const[]){spawn_bin("gpt"), "--text", "/dev/null", NULL}, NULL);
    assert_int_equal(spawn_wait(&s), 2);
    assert_string_equal(SPAWN_ERR(&s), "gpt: /dev/null: is not longer than --context\n");
    spawn_free(&s);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_alphabet_is_learned_and_written_by_one_worker_and_two),
        cmocka_unit_test(workers_that_divide_the_network_learn_it_too),
        cmocka_unit_test(meshes_that_are_none_are_refused),
        cmocka_unit_test(the_losses_that_the_help_states_are_reached),
        cmocka_unit_test(a_text_that_is_not_there_or_too_short_is_refused),
    };

    return test_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
