/*
 * fit_restart_test.c - tri_fit under trirun: a worker that is killed and restarted goes on where
 * the run was, and so does one that is stopped by a signal and started again.
 */
#include <sched.h>
#include <signal.h>
#include <stdlib.h>

#include <trireme/launch.h>

#include "testing/fit_problem.h"
#include "testing/trirun_job.h"

typedef struct disturber {
    tri_callback base;
    int64_t batches, kill_at, wait_at; /* of this process; 0 = never */
} disturber;

static tri_status disturb(tri_callback *self, tri_trainer *t, const tri_batch *batch)
{
    disturber *d = (disturber *)self;

    (void)batch;
    d->batches++;
    if (d->batches == d->kill_at && tri_restart_count() == 0 && tri_trainer_rank(t) == 1)
        (void)raise(SIGKILL);
    if (d->batches == d->wait_at) {
        fprintf(stderr, "rank %d waits\n", tri_trainer_rank(t));
        while (tri_stop_signal() == 0)
            sched_yield();
    }
    return TRI_OK;
}

/* --worker ROOT KILL_AT WAIT_AT CKPT_PATH STRATEGY */
static int work(char **argv)
{
    static const tri_callback_class class = {.name = "disturber", .batch_end = disturb};
    disturber d = {.base = {.cls = &class},
                   .kill_at = strtol(argv[3], NULL, 10),
                   .wait_at = strtol(argv[4], NULL, 10)};
    fit_watch watch = FIT_WATCH;
    tri_callback *callbacks[] = {&d.base, &watch.base};
    fit_arg arg = {.lr = 0.2};
    fit_samples train, val;
    tri_fit_options options = fit_quiet(argv[2]);
    tri_fit_result result;
    tri_status status;

    fit_samples_make(&train, 43, 1);
    fit_samples_make(&val, 21, 2);
    options.run_name = "run";
    options.max_epochs = 3;
    options.seed = 5;
    options.callbacks = callbacks;
    options.n_callbacks = 2;
    options.ckpt_path = *argv[5] != '\0' ? argv[5] : NULL;
    options.strategy = argv[6];
    options.checkpoint = &(tri_fit_checkpoint_options){
        .monitor = "val_loss", .every_n_train_steps = 2, .every_n_epochs = 1, .async = true};
    status = tri_fit(&fit_task,
                     &(tri_fit_data){.train = train.dataset, .val = val.dataset, .batch_size = 4},
                     &options, &arg, &result);
    if (status != TRI_OK)
        fprintf(stderr, "%s\n", tri_last_error());
    else if (tri_rank() == 0)
        printf("reason %d steps %d hash %016llx val_loss %.17g best %.17g\n", (int)result.reason,
               (int)result.steps, (unsigned long long)watch.hash,
               tri_fit_result_value(&result, "val_loss"), result.best_value);
    tri_dataset_destroy(train.dataset);
    tri_dataset_destroy(val.dataset);
    tri_finalize();
    return status == TRI_OK ? 0 : 1;
}

static void start(trirun_job *j, scratch *s, const char *kill_at, const char *wait_at,
                  const char *ckpt_path, const char *strategy)
{
    static char self[4096];

    assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
    TRIRUN_START(j, "--nproc-per-node=2", "--max-restarts=1", self, "--worker", s->dir, kill_at,
                 wait_at, ckpt_path, strategy);
}

/* What rank 0 has printed. */
static void ended(trirun_job *j, int code, char line[256])
{
    int found = spawn_wait(&j->run);

    if (found != code)
        fail_msg("exit code %d:\n%s", found, SPAWN_ERR(&j->run));
    snprintf(line, 256, "%.255s", SPAWN_OUT(&j->run));
    trirun_end(j, code != 0);
}

static void a_killed_worker_changes_nothing(void **state)
{
    char want[256], line[256];
    trirun_job j;
    scratch s;

    (void)state;
    scratch_begin(&s);
    start(&j, &s, "0", "0", "", "ddp");
    ended(&j, 0, want);
    trirun_has(want, "steps 18");
    scratch_end(&s);
    for (int at = 1; at <= 18; at += 4) {
        const char *strategy = at % 8 == 1 ? "ddp" : "zero3";
        char number[16];

        snprintf(number, sizeof(number), "%d", at);
        scratch_begin(&s);
        start(&j, &s, number, "0", "", strategy);
        ended(&j, 0, line);
        assert_string_equal(line, want);
        scratch_end(&s);
    }
}

static void a_stopped_job_goes_on(void **state)
{
    char want[256], line[256];
    trirun_job j;
    scratch s;

    (void)state;
    scratch_begin(&s);
    start(&j, &s, "0", "0", "", "ddp");
    ended(&j, 0, want);
    scratch_end(&s);
    scratch_begin(&s);
    start(&j, &s, "0", "5", "", "zero1");
    spawn_expect(&j.run, "rank 0 waits");
    spawn_expect(&j.run, "rank 1 waits");
    spawn_signal(&j.run, SIGTERM);
    (void)spawn_wait(&j.run);
    trirun_has(SPAWN_OUT(&j.run), "reason 6 steps 6 ");
    trirun_end(&j, 0);
    start(&j, &s, "0", "0", "last", "zero2");
    ended(&j, 0, line);
    assert_string_equal(line, want);
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_killed_worker_changes_nothing),
    cmocka_unit_test(a_stopped_job_goes_on),
};

int main(int argc, char **argv)
{
    if (argc == 7 && strcmp(argv[1], "--worker") == 0)
        return work(argv);
    return test_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
