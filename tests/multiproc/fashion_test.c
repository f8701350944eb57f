/* fashion_test.c - the main job with two workers, on a few images: it learns, it can be killed and
 * goes on bit for bit, and it says what is missing. */
/* ctest: labels=full timeout=300 */
#include <limits.h>
#include <signal.h>

#include "testing/scratch.h"
#include "testing/spawn.h"

/* It computes, which takes long where others do, too. */
enum { TRAINING_MS = 120000 };

#define LAST_MODEL "checkpoints/step-000000000030/model.safetensors"

/* trirun with two workers of fashion: 3 epochs of 640 images, results in `out`. */
static void start(spawn *s, const char *out, const char *more, const char *more_value)
{
    const char *argv[] = {spawn_bin("trirun"),
                          "--standalone",
                          "--nproc-per-node",
                          "2",
                          spawn_bin("fashion"),
                          "--epochs",
                          "3",
                          "--limit",
                          "640",
                          "--batch-size",
                          "64",
                          "--width",
                          "8",
                          "--out",
                          out,
                          more,
                          more_value,
                          NULL};

    spawn_start(s, argv, NULL);
    s->deadline_ms = TRAINING_MS;
}

/* The last line of what it printed is a command that draws its curves. */
static void draw_curves(const char *printed)
{
    const char *said = strstr(printed, "to see the curves:\n");
    spawn s;

    assert_non_null(said);
    spawn_start(&s, (const char *const[]){"sh", "-c", strchr(said, '\n') + 1, NULL}, NULL);
    if (spawn_wait(&s) != 0)
        fail_msg("%s%s", said, SPAWN_ERR(&s));
    spawn_free(&s);
}

static void run_to_its_end(const char *out, const char *more)
{
    spawn s;

    start(&s, out, more, NULL);
    if (spawn_wait(&s) != 0)
        fail_msg("fashion: %s", SPAWN_ERR(&s));
    assert_non_null(strstr(SPAWN_OUT(&s), "training time"));
    draw_curves(SPAWN_OUT(&s));
    spawn_expect_no_process(&s);
    spawn_free(&s);
}

static void check_same_file(scratch *s, const char *a, const char *b)
{
    size_t n, m;
    char *x = scratch_read(scratch_path(s, a), &n), *y = scratch_read(scratch_path(s, b), &m);

    assert_int_equal(n, m);
    assert_memory_equal(x, y, n);
    free(x);
    free(y);
}

static void a_run_leaves_its_results(void **state)
{
    char *metrics, *curves;
    size_t n;
    scratch s;

    (void)state;
    scratch_begin(&s);
    run_to_its_end(scratch_path(&s, "a"), NULL);
    metrics = scratch_read(scratch_path(&s, "a/metrics.jsonl"), &n);
    assert_non_null(strstr(metrics, "\"test_accuracy\":"));
    assert_non_null(strstr(metrics, "\"samples_per_s\":"));
    assert_non_null(strstr(metrics, "{\"step\":10,\"epoch\":1,\"test_accuracy\":"));
    assert_non_null(strstr(metrics, "{\"step\":20,\"epoch\":2,\"accuracy\":"));
    assert_non_null(strstr(metrics, "{\"step\":30,\"epoch\":3,\"test_accuracy\":"));
    assert_int_equal(scratch_count(scratch_path(&s, "a/checkpoints")), 3);
    curves = scratch_read(scratch_path(&s, "a/curves.png"), &n);
    assert_true(n > 8 && memcmp(curves, "\x89PNG", 4) == 0);
    free(curves);
    free(metrics);
    scratch_end(&s);
}

/* fashion alone ends with this status after one line that has `what`. */
static void check_refused(int status, const char *const *options, const char *what)
{
    const char *argv[20] = {spawn_bin("fashion")};
    spawn s;

    for (int i = 0; options[i] != NULL; i++)
        argv[i + 1] = options[i];
    spawn_start(&s, argv, NULL);
    if (spawn_wait(&s) != status || strstr(SPAWN_ERR(&s), what) == NULL)
        fail_msg("status %d, \"%s\" instead of: %s", s.status, SPAWN_ERR(&s), what);
    assert_ptr_equal(strchr(SPAWN_ERR(&s), '\n'),
                     SPAWN_ERR(&s) + strlen(SPAWN_ERR(&s)) - 1); /* one line */
    spawn_free(&s);
}
/* By the command line, and by tri_fit. */
#define CHECK_MISTAKE(what, ...) check_refused(2, (const char *const[]){__VA_ARGS__, NULL}, what)
#define CHECK_REFUSED(what, ...) check_refused(1, (const char *const[]){__VA_ARGS__, NULL}, what)

static void wrong_options_are_refused_in_one_line(void **state)
{
    scratch s;
    spawn two;

    (void)state;
    scratch_begin(&s);
    CHECK_MISTAKE("fashion: --epochs 0: must be a whole number from 1 to", "--epochs", "0");
    CHECK_MISTAKE("fashion: --threads 1025: must be a whole number from 0 to 1024", "--threads",
                  "1025");
    CHECK_MISTAKE("fashion: --lr fast: must be a number from 0 to", "--lr", "fast");
    CHECK_MISTAKE("fashion: --out needs a value", "--out");
    CHECK_MISTAKE("fashion: unknown option --speed", "--speed", "9");
    CHECK_REFUSED("tri_fit: train: 100 samples do not fill a batch of 128", "--limit", "100",
                  "--out", scratch_path(&s, "a"));
    CHECK_REFUSED("tri_fit: precision \"8\"", "--precision", "8", "--limit", "256", "--out",
                  scratch_path(&s, "a"));
    start(&two, scratch_path(&s, "a"), "--batch-size", "33");
    assert_int_equal(spawn_wait(&two), 1); /* trirun's */
    assert_non_null(strstr(SPAWN_ERR(&two), "global_batch_size 33 is not a multiple of 2"));
    spawn_expect_no_process(&two);
    spawn_free(&two);
    scratch_end(&s);
}

/* In one line; and with two workers nobody takes rank 0's end for a loss. */
static void folders_that_cannot_be_are_refused(void **state)
{
    char longest[5000];
    const char *out;
    scratch s;
    spawn two;

    (void)state;
    scratch_begin(&s);
    memset(longest, 'x', sizeof(longest));
    longest[sizeof(longest) - 1] = '\0';
    CHECK_REFUSED("tri_fit: run_name \"\"", "--limit", "256", "--out", "");
    CHECK_REFUSED("tri_fit: run_name \"xxx", "--limit", "256", "--out", longest);
    out = scratch_path(&s, "a");
    assert_int_equal(mkdir(out, 0777), 0);
    scratch_file(&s, "a/metrics.jsonl", "", 0);
    start(&two, out, NULL, NULL);
    assert_int_equal(spawn_wait(&two), 1); /* trirun's */
    assert_non_null(strstr(SPAWN_ERR(&two), "a holds a run already: "));
    assert_null(strstr(SPAWN_ERR(&two), "PEER_LOST"));
    spawn_expect_no_process(&two);
    spawn_free(&two);
    scratch_end(&s);
}

/* Several at once, none with --out: each has a folder of its own. */
static void runs_that_start_together_share_no_folder(void **state)
{
    enum { RUNS = 3 };
    char folder[PATH_MAX];
    spawn runs[RUNS];
    scratch s;

    (void)state;
    scratch_begin(&s);
    assert_non_null(getcwd(folder, sizeof(folder)));
    assert_int_equal(chdir(s.dir), 0);
    for (int i = 0; i < RUNS; i++) {
        spawn_start(&runs[i],
                    (const char *const[]){spawn_bin("fashion"), "--threads", "1", "--width", "1",
                                          "--limit", "64", "--batch-size", "64", "--epochs", "1",
                                          NULL},
                    NULL);
        runs[i].deadline_ms = TRAINING_MS;
    }
    for (int i = 0; i < RUNS; i++) {
        if (spawn_wait(&runs[i]) != 0)
            fail_msg("fashion: %s", SPAWN_ERR(&runs[i]));
        spawn_free(&runs[i]);
    }
    assert_int_equal(scratch_count("runs"), RUNS);
    for (int i = 1; i <= RUNS; i++) {
        char name[64];

        snprintf(name, sizeof(name), "runs/fashion-%d/checkpoints/step-000000000001", i);
        assert_int_equal(access(name, F_OK), 0);
    }
    assert_int_equal(chdir(folder), 0);
    scratch_end(&s);
}

/* The run does not go on with these options. */
static void check_other_run(const char *const *argv, const char *what)
{
    spawn s;

    spawn_start(&s, argv, NULL);
    if (spawn_wait(&s) != 1 || strstr(SPAWN_ERR(&s), what) == NULL)
        fail_msg("status %d, \"%s\" instead of: %s", s.status, SPAWN_ERR(&s), what);
    spawn_free(&s);
}

/* One epoch of one worker, and what may not change when it goes on. */
static void options_of_another_run_are_refused(void **state)
{
    const char *out;
    scratch s;
    spawn run;

    (void)state;
    scratch_begin(&s);
    out = scratch_path(&s, "a");
#define SHORT                                                                                      \
    "--threads", "1", "--width", "4", "--limit", "256", "--batch-size", "64", "--out", out,        \
        "--resume", "--epochs"
    assert_int_equal(mkdir(out, 0777), 0);
    scratch_file(&s, "a/metrics.jsonl", "", 0); /* stopped before its first checkpoint */
    spawn_start(&run, (const char *const[]){spawn_bin("fashion"), SHORT, "1", NULL}, NULL);
    run.deadline_ms = TRAINING_MS;
    assert_int_equal(spawn_wait(&run), 0);
    assert_non_null(strstr(SPAWN_ERR(&run), "no checkpoint in "));
    spawn_free(&run);
    check_other_run((const char *const[]){spawn_bin("fashion"), SHORT, "1", "--seed", "2", NULL},
                    "seed 2: the run was started with 0");
    check_other_run(
        (const char *const[]){spawn_bin("fashion"), SHORT, "1", "--batch-size", "32", NULL},
        "global_batch_size 32: the run was started with 64");
    check_other_run(
        (const char *const[]){spawn_bin("fashion"), SHORT, "1", "--width", "5", NULL},
        "0.0.weight is f32[5, 1, 3, 3] in the model, f32[4, 1, 3, 3] in what is loaded");
    scratch_end(&s);
}

/* kill -9 for all after the first epoch; what goes on has the bits of what never stopped. */
static void a_killed_run_goes_on_bit_for_bit(void **state)
{
    scratch s;
    spawn killed;

    (void)state;
    scratch_begin(&s);
    run_to_its_end(scratch_path(&s, "whole"), NULL);
    start(&killed, scratch_path(&s, "parts"), NULL, NULL);
    spawn_expect(&killed, "epoch 2: test_accuracy");
    spawn_signal(&killed, SIGKILL);
    (void)spawn_wait(&killed);
    spawn_expect_no_process(&killed);
    spawn_free(&killed);
    run_to_its_end(scratch_path(&s, "parts"), "--resume");
    check_same_file(&s, "whole/" LAST_MODEL, "parts/" LAST_MODEL);
    scratch_end(&s);
}

/* It has so much to do that it does so still when this process sees what it printed. */
static void an_interrupt_leaves_a_checkpoint(void **state)
{
    scratch s;
    spawn run;

    (void)state;
    scratch_begin(&s);
    start(&run, scratch_path(&s, "a"), "--epochs", "100000");
    spawn_expect(&run, "epoch 2: test_accuracy");
    spawn_signal(&run, SIGINT);
    assert_true(spawn_wait(&run) != 0);
    spawn_expect_no_process(&run);
    spawn_free(&run);
    run_to_its_end(scratch_path(&s, "a"), "--resume");
    scratch_end(&s);
}

static void missing_data_say_where_to_get_them(void **state)
{
    scratch s;
    spawn run;

    (void)state;
    scratch_begin(&s);
    start(&run, scratch_path(&s, "a"), "--data", s.dir);
    assert_true(spawn_wait(&run) != 0);
    assert_non_null(strstr(SPAWN_ERR(&run), "apt install dataset-fashion-mnist"));
    spawn_expect_no_process(&run);
    spawn_free(&run);
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_run_leaves_its_results),
    cmocka_unit_test(wrong_options_are_refused_in_one_line),
    cmocka_unit_test(folders_that_cannot_be_are_refused),
    cmocka_unit_test(runs_that_start_together_share_no_folder),
    cmocka_unit_test(options_of_another_run_are_refused),
    cmocka_unit_test(a_killed_run_goes_on_bit_for_bit),
    cmocka_unit_test(an_interrupt_leaves_a_checkpoint),
    cmocka_unit_test(missing_data_say_where_to_get_them),
};
TEST_MAIN(tests)
