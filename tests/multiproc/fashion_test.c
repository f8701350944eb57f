/* fashion_test.c - the main job with two workers, on a few images: it learns, it can be killed and
 * goes on bit for bit, and it says what is missing. */
/* ctest: labels=full timeout=300 */
#include <signal.h>

#include "testing/scratch.h"
#include "testing/spawn.h"

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
}

static void run_to_its_end(const char *out, const char *more)
{
    spawn s;

    start(&s, out, more, NULL);
    if (spawn_wait(&s) != 0)
        fail_msg("fashion: %s", SPAWN_ERR(&s));
    assert_non_null(strstr(SPAWN_OUT(&s), "training time"));
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
    curves = scratch_read(scratch_path(&s, "a/curves.svg"), &n);
    assert_non_null(strstr(curves, "</svg>"));
    assert_int_equal(scratch_count(scratch_path(&s, "a/checkpoints")), 3);
    free(curves);
    free(metrics);
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
    spawn_expect(&killed, "epoch 2: test accuracy");
    spawn_signal(&killed, SIGKILL);
    (void)spawn_wait(&killed);
    spawn_expect_no_process(&killed);
    spawn_free(&killed);
    run_to_its_end(scratch_path(&s, "parts"), "--resume");
    check_same_file(&s, "whole/model.safetensors", "parts/model.safetensors");
    scratch_end(&s);
}

static void an_interrupt_leaves_a_checkpoint(void **state)
{
    scratch s;
    spawn run;

    (void)state;
    scratch_begin(&s);
    start(&run, scratch_path(&s, "a"), NULL, NULL);
    spawn_expect(&run, "epoch 2: test accuracy");
    spawn_signal(&run, SIGINT);
    assert_true(spawn_wait(&run) != 0);
    assert_non_null(strstr(SPAWN_OUT(&run), "go on with the same options and --resume --out "));
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
    cmocka_unit_test(a_killed_run_goes_on_bit_for_bit),
    cmocka_unit_test(an_interrupt_leaves_a_checkpoint),
    cmocka_unit_test(missing_data_say_where_to_get_them),
};
TEST_MAIN(tests)
