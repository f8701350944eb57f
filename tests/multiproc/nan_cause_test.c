/*
 * nan_cause_test.c - who is named when TRI_CHECK=nan ends a job: the rank whose operation made the
 * first NaN, not those that it reached through DDP and that ended before.
 */
#include <sched.h>
#include <signal.h>
#include <stdlib.h>

#include <trireme/trireme.h>

#include "testing/trirun_job.h"

static void await_end(int64_t pid)
{
    while (kill((pid_t)pid, 0) == 0)
        sched_yield();
}

/* The logarithm of rank 1's batch is NaN. */
static int train(void)
{
    const float batch[2] = {tri_rank() == 1 ? -1.0F : 1.0F, 2};
    tri_tensor *x = tri_tensor_from(TRI_SHAPE(2, 1), TRI_DTYPE_F32, batch);
    tri_module *model = tri_ddp(tri_nn_linear(1, 1, NULL), NULL);
    tri_optimizer *opt = tri_sgd(model, 0.1, NULL);
    tri_status status;

    tri_backward(tri_mean(tri_forward(model, tri_log(x)), NULL, 0, false));
    status = tri_optimizer_step(opt);
    if (status == TRI_OK)
        status = tri_step_end_status();
    if (status != TRI_OK)
        fprintf(stderr, "%s\n", tri_last_error());
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    tri_tensor_unref(x);
    return status == TRI_ERR_NAN ? 3 : 9;
}

/* Rank 0 ends first, once rank 1 has said what it found. */
static int work(void)
{
    int64_t pids[2] = {0}, pid = getpid();
    sigset_t said;
    int code, number;

    (void)sigemptyset(&said);
    (void)sigaddset(&said, SIGUSR1);
    (void)sigprocmask(SIG_BLOCK, &said, NULL);
    if (tri_init(NULL) != TRI_OK ||
        tri_all_gather(NULL, &pid, pids, 1, TRI_DTYPE_I64, NULL) != TRI_OK)
        return 9;
    code = train();
    if (tri_rank() == 0) {
        (void)sigwait(&said, &number);
    } else {
        (void)kill((pid_t)pids[0], SIGUSR1);
        await_end(pids[0]);
    }
    _exit(code);
}

static void the_rank_that_made_the_nan_is_the_cause(void **state)
{
    static char self[4096];
    const char *const args[] = {"--nproc-per-node=2", self, "--worker", NULL};
    trirun_job j;

    (void)state;
    assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
    trirun_start_behind(&j, NULL, args, "TRI_CHECK=nan");
    assert_int_equal(spawn_wait(&j.run), 1);
    trirun_has(SPAWN_ERR(&j.run), "NaN came in through tri_ddp (gradients)");
    trirun_has(SPAWN_ERR(&j.run), "failed: rank 1 ");
    trirun_has(SPAWN_ERR(&j.run), "rank     : 1 (local_rank: 1)");
    trirun_end(&j, 1);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_rank_that_made_the_nan_is_the_cause),
};

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--worker") == 0)
        return work();
    return test_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
