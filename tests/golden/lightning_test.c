/* lightning_test.c - when tri_fit ends early, and which checkpoints are the best: what Lightning
 * decides for the same values (make_lightning.py). */
/* ctest: program=own */
#include <inttypes.h>

#include "testing/fit_problem.h"
#include "testing/golden.h"

/* In place of libc's: the disk need not keep these. */
int fsync(int fd)
{
    (void)fd;
    return 0;
}

enum { MOST = 16 };

/* Logs the next value after each epoch. */
typedef struct given {
    double values[MOST];
    int n, next;
} given;

static tri_module *make_model(void *arg)
{
    (void)arg;
    return tri_nn_linear(FIT_IN, FIT_OUT, NULL);
}

static tri_optimizer *make_optimizer(tri_module *model, void *arg)
{
    (void)arg;
    return tri_sgd(model, 0.1, NULL);
}

static tri_tensor *training_step(tri_trainer *t, const tri_batch *batch, void *arg)
{
    (void)arg;
    return tri_cross_entropy(tri_forward(tri_trainer_model(t), batch->fields[0]), batch->fields[1],
                             NULL);
}

static void validation_step(tri_trainer *t, const tri_batch *batch, void *arg)
{
    given *g = arg;

    (void)batch;
    tri_trainer_log_value(t, "m", g->values[g->next++], &(tri_trainer_log_options){.weight = 1});
}

static const tri_task task = {.name = "given",
                              .model = make_model,
                              .optimizer = make_optimizer,
                              .training_step = training_step,
                              .validation_step = validation_step};

static tri_fit_result fit(given *g, const char *folder, const tri_fit_early_stopping_options *early,
                          const tri_fit_checkpoint_options *checkpoint)
{
    fit_samples samples;
    tri_fit_options options = fit_quiet(folder);
    tri_fit_result result;

    fit_samples_make(&samples, 4, 1);
    options.max_epochs = g->n;
    options.early_stopping = early;
    options.checkpoint = checkpoint;
    options.no_checkpoint = checkpoint == NULL;
    CHECK_OK(tri_fit(
        &task, &(tri_fit_data){.train = samples.dataset, .val = samples.dataset, .batch_size = 4},
        &options, g, &result));
    tri_dataset_destroy(samples.dataset);
    return result;
}

static const char *read_values(const char *at, given *g)
{
    char *end;

    assert_non_null(at);
    g->n = g->next = 0;
    for (at += 2; strncmp(at, ": ", 2) != 0; at = end + strspn(end, " ")) {
        assert_true(g->n < MOST);
        g->values[g->n++] = strtod(at, &end);
        assert_true(end > at);
    }
    return at + 2;
}

static tri_opt option(const char *text)
{
    return *text == '-' && text[1] == '\0' ? (tri_opt){0} : TRI_SET(strtod(text, NULL));
}

static void check_early(const char *line, const char *folder)
{
    char mode[4], delta[16], stop[16], diverge[16];
    tri_fit_early_stopping_options early = {.monitor = "m", .mode = mode};
    int patience, finite, index;
    tri_fit_result result;
    given g;

    assert_int_equal(sscanf(line, "early %3s %15s %d %d %15s %15s", mode, delta, &patience, &finite,
                            stop, diverge),
                     6);
    index = (int)strtol(read_values(strstr(line, ": "), &g), NULL, 10);
    early.min_delta = strtod(delta, NULL);
    early.patience = TRI_SET(patience);
    early.allow_not_finite = finite == 0;
    early.stopping_threshold = option(stop);
    early.divergence_threshold = option(diverge);
    result = fit(&g, folder, &early, NULL);
    if ((result.reason == TRI_STOP_EARLY) != (index >= 0) ||
        result.epochs != (index >= 0 ? index + 1 : g.n))
        fail_msg("%s: ended after %d: %s", line, (int)result.epochs, result.why);
}

static bool has_step(const char *run, int64_t step)
{
    char path[TRI_FIT_PATH_BYTES + 64];

    snprintf(path, sizeof(path), "%s/checkpoints/step-%012" PRId64, run, step);
    return access(path, F_OK) == 0;
}

static void check_best(const char *line, const char *folder)
{
    char mode[4], best[32], path[TRI_FIT_PATH_BYTES];
    tri_fit_checkpoint_options checkpoint = {.monitor = "m", .mode = mode, .keep_last = 1};
    bool stays[MOST + 1] = {false};
    tri_fit_result result;
    const char *at;
    char *end;
    given g;

    assert_int_equal(sscanf(line, "best %3s %d", mode, &checkpoint.save_top_k), 2);
    at = read_values(strstr(line, ": "), &g);
    result = fit(&g, folder, NULL, &checkpoint);
    snprintf(best, sizeof(best), "step-%012ld", strtol(at, &end, 10));
    snprintf(path, sizeof(path), "%s", result.best_path);
    if (strstr(path, best) == NULL)
        fail_msg("%s: the best is %s", line, path);
    for (at = end; *at == ' '; at = end)
        stays[strtol(at, &end, 10)] = true;
    stays[g.n] = true; /* the newest */
    for (int64_t step = 1; step <= g.n; step++) {
        if (has_step(result.run_dir, step) != stays[step])
            fail_msg("%s: step %d", line, (int)step);
    }
}

static void check_lines(const char *kind, int want, void (*check)(const char *, const char *))
{
    size_t bytes;
    char *text;
    int n = 0;
    scratch s;

    scratch_begin(&s);
    text = scratch_read(golden_path("lightning.txt"), &bytes);
    for (char *line = text; *line != '\0'; line += strlen(line) + 1) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, kind, strlen(kind)) == 0) {
            check(line, s.dir);
            n++;
        }
    }
    assert_int_equal(n, want);
    free(text);
    scratch_end(&s);
}

static void fits_end_where_those_of_lightning_do(void **state)
{
    (void)state;
    check_lines("early ", 60, check_early);
}

static void checkpoints_stay_that_lightning_keeps(void **state)
{
    (void)state;
    check_lines("best ", 40, check_best);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(fits_end_where_those_of_lightning_do),
    cmocka_unit_test(checkpoints_stay_that_lightning_keeps),
};
TEST_MAIN(tests)
