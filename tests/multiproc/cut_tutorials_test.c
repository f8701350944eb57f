/*
 * cut_tutorials_test.c - the tutorials that cut a network over workers, examples/tutorials/
 * pipeline_tutorial.c and tp_tutorial.c: any number of workers, schedule and mesh prints the losses
 * of one.
 * ctest: start=first timeout=150
 */
#include <math.h>

#include "testing/check.h"
#include "testing/spawn.h"
#include "testing/trirun_job.h"

enum { DEADLINE_MS = 60000, MOST_LOSSES = 8 };

/* Runs a program with arguments [at most 20] that a NULL ends. */
static void run(spawn *s, const char *workers, const char *program, const char *const *arguments)
{
    const char *argv[32] = {spawn_bin("trirun"), "--standalone", "--nproc-per-node", workers,
                            spawn_bin(program)};

    for (int i = 0; arguments[i] != NULL; i++)
        argv[5 + i] = arguments[i];
    spawn_start(s, argv, (const char *const[]){"TRI_NUM_THREADS=1", "TRI_LOG=error", NULL});
    s->deadline_ms = DEADLINE_MS;
    (void)spawn_wait(s);
}

/* Both have printed the same, but for the last of four digits. */
static void expect_near(const double *got, const double *want, int n, const char *what)
{
    for (int i = 0; i < n; i++)
        if (!(fabs(got[i] - want[i]) <= 3e-4))
            fail_msg("%s: loss %d is %g, with one worker %g", what, i, got[i], want[i]);
}

/* --- pipelines ------------------------------------------------------------ */

/* The four losses of "losses: [1, 2, 3, 4]", which is all that is printed. */
static void pipeline(const char *workers, const char *schedule, const char *split, double losses[4])
{
    char line[128];
    spawn s;

    run(&s, workers, "pipeline_tutorial",
        (const char *const[]){"--dim", "16", "--n_heads", "2", "--vocab_size", "20", "--hidden",
                              "32", "--samples", "10", "--tokens", "3", "--schedule", schedule,
                              "--split", split, NULL});
    if (s.status != 0 || SPAWN_ERR(&s)[0] != '\0' ||
        sscanf(SPAWN_OUT(&s), "losses: [%lf, %lf, %lf, %lf]\n", &losses[0], &losses[1], &losses[2],
               &losses[3]) != 4)
        fail_msg("%s workers, %s: status %d\n%s%s", workers, schedule, s.status, SPAWN_OUT(&s),
                 SPAWN_ERR(&s));
    snprintf(line, sizeof(line), "losses: [%.4f, %.4f, %.4f, %.4f]\n", losses[0], losses[1],
             losses[2], losses[3]);
    assert_string_equal(SPAWN_OUT(&s), line);
    spawn_expect_no_process(&s);
    spawn_free(&s);
}

static void any_number_of_stages_prints_the_losses_of_one(void **state)
{
    static const struct {
        const char *workers, *schedule, *split;
    } ways[] = {{"2", "gpipe", "manual"},
                {"4", "gpipe", "names"},
                {"8", "1f1b", "manual"},
                {"2", "interleaved", "names"},
                {"4", "looped_bfs", "manual"}};
    double alone[4], together[4];

    (void)state;
    pipeline("1", "gpipe", "manual", alone);
    if (!(fabs(alone[0] - log(20)) < 1.5) || alone[0] == alone[1])
        fail_msg("losses %g and %g of 20 words", alone[0], alone[1]);
    for (size_t i = 0; i < TRII_COUNT_OF(ways); i++) {
        pipeline(ways[i].workers, ways[i].schedule, ways[i].split, together);
        expect_near(together, alone, 4, ways[i].schedule);
    }
}

/* --- tensor parallelism --------------------------------------------------- */

/* The losses of the iterations. */
static void tensor_parallel(const char *workers, const char *tp_size, double *losses, int n)
{
    const char *at;
    char iterations[16];
    spawn s;

    snprintf(iterations, sizeof(iterations), "%d", n);
    run(&s, workers, "tp_tutorial",
        (const char *const[]){"--tp_size", tp_size, "--num_iterations", iterations, "--dim", "16",
                              "--n_heads", "4", "--vocab_size", "23", "--seqlen", "7", NULL});
    if (s.status != 0 || SPAWN_ERR(&s)[0] != '\0')
        fail_msg("%s workers: status %d\n%s%s", workers, s.status, SPAWN_OUT(&s), SPAWN_ERR(&s));
    at = SPAWN_OUT(&s);
    for (int i = 0; i < n; i++) {
        char begin[64];

        snprintf(begin, sizeof(begin), "2D iter %d complete, loss ", i);
        at = strstr(at, begin);
        assert_non_null(at);
        assert_int_equal(sscanf(at + strlen(begin), "%lf", &losses[i]), 1);
    }
    assert_int_equal(trirun_count(SPAWN_OUT(&s), "Starting 2D (FSDP + TP) example on rank "),
                     (int)strtol(workers, NULL, 10));
    trirun_has(at, "2D training successfully completed!\n");
    spawn_expect_no_process(&s);
    spawn_free(&s);
}

static void any_mesh_prints_the_losses_of_one_worker(void **state)
{
    static const struct {
        const char *workers, *tp_size;
    } meshes[] = {{"2", "2"}, {"4", "2"}, {"8", "2"}, {"3", "3"}};
    double alone[4], together[4];

    (void)state;
    tensor_parallel("1", "1", alone, 4);
    assert_true(alone[0] > log(23));
    for (size_t i = 0; i < TRII_COUNT_OF(meshes); i++) {
        tensor_parallel(meshes[i].workers, meshes[i].tp_size, together, 4);
        expect_near(together, alone, 4, meshes[i].workers);
    }
}

/* --- mistakes ------------------------------------------------------------- */

static void what_cannot_be_cut_so_is_refused(void **state)
{
    static const struct {
        const char *program, *workers, *arguments[5], *line;
    } cases[] = {
        {"pipeline_tutorial", "1", {"--schedule", "zigzag"}, "--schedule zigzag: must be gpipe"},
        {"pipeline_tutorial", "1", {"--split", "half"}, "--split half: must be manual or names"},
        {"pipeline_tutorial", "2", {"--n_layers", "1"}, "2 stages need as many layers"},
        {"pipeline_tutorial", "1", {"--dim", "7"}, "--dim: must be a multiple of --n_heads"},
        {"tp_tutorial", "3", {NULL}, "--tp_size 2: does not divide the 3 workers"},
        {"tp_tutorial",
         "4",
         {"--batch_size", "3"},
         "--batch_size 3: must be a multiple of the 2 copies"},
        {"tp_tutorial", "1", {"--dim", "20"}, "--dim: must be a multiple of twice --n_heads"},
    };

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(cases); i++) {
        spawn s;

        run(&s, cases[i].workers, cases[i].program, cases[i].arguments);
        assert_int_not_equal(s.status, 0);
        assert_string_equal(SPAWN_OUT(&s), "");
        if (trirun_count(SPAWN_ERR(&s), cases[i].line) < 1)
            fail_msg("no \"%s\" in\n%s", cases[i].line, SPAWN_ERR(&s));
        spawn_free(&s);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(any_number_of_stages_prints_the_losses_of_one),
    cmocka_unit_test(any_mesh_prints_the_losses_of_one_worker),
    cmocka_unit_test(what_cannot_be_cut_so_is_refused),
};

TEST_MAIN(tests)
