/*
 * gpt_test.c - build/bin/gpt learns an alphabet that repeats, and writes it; several workers see
 * the losses that one sees, whether each has a part of the batch or of the layers.
 */
#include <math.h>

#include "testing/check.h"
#include "testing/spawn.h"

#define ALPHABET "abcdefghijklmnopqrstuvwxyz. "

/* The losses of steps 1, 21, 41 and 60, and the 40 letters that it writes then. */
static void run_gpt(const char *workers, const char *tensor, double losses[4], char written[41])
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
                                      "1",
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
                                      "--tensor",
                                      tensor,
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
    run_gpt("1", "1", alone, written);
    if (!(alone[0] > 3 && alone[3] < 0.5))
        fail_msg("the loss went from %g to %g", alone[0], alone[3]);
    if (strncmp(&ALPHABET[1], written, 20) != 0)
        fail_msg("it wrote \"%s\"", written);
    run_gpt("2", "1", together, written);
    for (int i = 0; i < 4; i++) /* printed with 4 digits */
        if (!(fabs(alone[i] - together[i]) <= 2e-3))
            fail_msg("loss %g with one worker, %g with two", alone[i], together[i]);
}

/* Two workers, and two of two. */
static void workers_that_divide_the_layers_learn_it_too(void **state)
{
    static const char *const workers[] = {"2", "4"};
    double alone[4], together[4];
    char written[41], parts[41];

    (void)state;
    run_gpt("1", "1", alone, written);
    for (int k = 0; k < 2; k++) {
        run_gpt(workers[k], "2", together, parts);
        for (int i = 0; i < 4; i++)
            if (!(fabs(alone[i] - together[i]) <= 2e-3))
                fail_msg("loss %g with one worker, %g with %s", alone[i], together[i], workers[k]);
        if (strncmp(&ALPHABET[1], parts, 20) != 0)
            fail_msg("%s workers wrote \"%s\"", workers[k], parts);
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
    assert_non_null(strstr(SPAWN_OUT(&s), "from 4.35 to below 3 in the first 21 steps"));
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
        cmocka_unit_test(workers_that_divide_the_layers_learn_it_too),
        cmocka_unit_test(the_losses_that_the_help_states_are_reached),
        cmocka_unit_test(a_text_that_is_not_there_or_too_short_is_refused),
    };

    return test_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
