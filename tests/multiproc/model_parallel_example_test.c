/* model_parallel_example_test.c - ResNet-50 over two devices, whole and in pieces, has the losses
 * of one device. */
#include <math.h>

#include "testing/check.h"
#include "testing/scratch.h"
#include "testing/spawn.h"

#define SPLITS 2 /* of 5 images: 3 (and then 2), and all */

static const char *const names[] = {"single_device", "model_parallel", "split"};

/* Runs it small and returns the loss of the last batch of each training. */
static void run(const char *devices, const char *split, const char *output, double *losses)
{
    const char *const argv[] = {spawn_bin("model_parallel"),
                                "--devices",
                                devices,
                                "--split-size",
                                split,
                                "--f64",
                                "--width",
                                "2",
                                "--image-size",
                                "17",
                                "--batch-size",
                                "5",
                                "--classes",
                                "5",
                                "--repeats",
                                "1",
                                "--lr",
                                "0.01",
                                "--output",
                                output,
                                NULL};
    spawn s;

    spawn_start(&s, argv, NULL);
    if (spawn_wait(&s) != 0)
        fail_msg("%d: %s", s.status, SPAWN_ERR(&s));
    assert_string_equal(SPAWN_ERR(&s), "");
    for (int i = 0; i < 3; i++) {
        const char *line = strstr(SPAWN_OUT(&s), names[i]);

        assert_non_null(line);
        assert_int_equal(sscanf(line, "%*s %*f %*f %*fx %lf", &losses[i]), 1);
    }
    assert_non_null(strstr(SPAWN_OUT(&s), "% of what that allows is reached"));
    spawn_free(&s);
}

/* Pieces have statistics of their own in batch norm: a pipeline over two devices is compared with
 * the same pieces on one. */
static void losses_are_those_of_one_device(void **state)
{
    static const char *const splits[SPLITS] = {"3", "5"};
    scratch s;
    char *text;
    size_t n;

    (void)state;
    scratch_begin(&s);
    for (int i = 0; i < SPLITS; i++) {
        const char *output = scratch_path(&s, "times.jsonl");
        double one[3], two[3];

        run("1", splits[i], output, one);
        run("2", splits[i], output, two);
        assert_true(two[0] > 0.1 && two[0] < 10);
        for (int k = 0; k < 3; k++)
            assert_true(fabs(one[k] - two[k]) <= 1e-9);
        assert_true(fabs(two[0] - two[1]) <= 1e-9);
        if (i == SPLITS - 1)
            assert_true(fabs(two[0] - two[2]) <= 1e-9);
        else
            assert_true(fabs(two[0] - two[2]) > 1e-6);
    }
    text = scratch_read(scratch_path(&s, "times.jsonl"), &n);
    assert_memory_equal(text, "{\"step\":1,\"single_device\":", 26);
    assert_non_null(strstr(text, ",\"model_parallel\":"));
    assert_non_null(strstr(text, ",\"split_5\":"));
    assert_non_null(strstr(text, ",\"pipelined\":"));
    free(text);
    scratch_end(&s);
}

/* Before anything is trained. */
static void mistakes_are_told_at_once(void **state)
{
    static const struct {
        const char *option, *value, *batch;
        int status;
        const char *words;
    } cases[] = {
        {"--split-size", "1", "65", 2,
         "model_parallel: --split-size 1 cuts a batch of 65 into 65 pieces; at most 64 are "
         "possible"},
        {"--output", "/dev/null/times.jsonl", "1000000", 1, "/dev/null"},
        {"--devices", "3", "1000000", 2, "must be a whole number from 1 to 2"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *const argv[] = {spawn_bin("model_parallel"),
                                    cases[i].option,
                                    cases[i].value,
                                    "--batch-size",
                                    cases[i].batch,
                                    NULL};
        spawn s;

        spawn_start(&s, argv, NULL);
        assert_int_equal(spawn_wait(&s), cases[i].status);
        assert_string_equal(SPAWN_OUT(&s), "");
        if (strstr(SPAWN_ERR(&s), cases[i].words) == NULL)
            fail_msg("%s: %s", cases[i].option, SPAWN_ERR(&s));
        spawn_free(&s);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(losses_are_those_of_one_device),
    cmocka_unit_test(mistakes_are_told_at_once),
};

TEST_MAIN(tests)
