/*
 * keep_survivors_test.c - trirun --keep-survivors: a worker fails, the others go on as a smaller
 * group, and what the job has come to then.
 */
#include <signal.h>

#include <trireme/comm.h>

#include "testing/trirun_job.h"

/* Sums until a rank is lost, then those that are left go on. Rank 2 kills itself; with "all" the
 * others fail after that too. */
static int worker(const char *how)
{
    tri_group *left = NULL;
    float one = 1, sum = 0;
    tri_status status = tri_init(NULL);

    for (int i = 0; status == TRI_OK; i++) {
        if (tri_rank() == 2 && i == 20)
            raise(SIGKILL);
        status = tri_all_reduce(NULL, &one, &sum, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL);
    }
    if (strcmp(how, "all") == 0)
        return 4;
    status = tri_group_shrink(NULL, NULL, &left);
    for (int i = 0; i < 20 && status == TRI_OK; i++)
        status = tri_all_reduce(left, &one, &sum, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL);
    if (status != TRI_OK) {
        fprintf(stderr, "worker: %s\n", tri_last_error());
        return 5;
    }
    printf("%g are left\n", (double)sum);
    tri_group_unref(left);
    tri_finalize();
    return 0;
}

static void start(trirun_job *j, const char *how, const char *engine)
{
    static char self[4096];
    const char *const args[] = {
        "--nproc-per-node=4", "--keep-survivors", self, "--worker", how, NULL};

    assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
    trirun_start_behind(j, NULL, args, engine);
}

static void those_that_are_left_may_succeed(void **state)
{
    static const char *const engines[] = {"TRI_ENGINE=shm", "TRI_ENGINE=tcp"};
    trirun_job j;

    (void)state;
    for (int i = 0; i < 2; i++) {
        start(&j, "shrink", engines[i]);
        if (spawn_wait(&j.run) != 0)
            fail_msg("%s: %s", engines[i], SPAWN_ERR(&j.run));
        assert_int_equal(trirun_count(SPAWN_OUT(&j.run), "3 are left\n"), 3);
        trirun_has(SPAWN_ERR(&j.run), "was killed by SIGKILL; 3 others continue\n");
        trirun_has(SPAWN_ERR(&j.run), "failed: rank 2 was killed by SIGKILL");
        trirun_has(SPAWN_ERR(&j.run), "the other workers have succeeded without it");
        trirun_end(&j, 1);
    }
}

static void if_all_fail_the_job_has_failed(void **state)
{
    trirun_job j;

    (void)state;
    start(&j, "all", "TRI_ENGINE=shm");
    assert_int_equal(spawn_wait(&j.run), 1);
    trirun_has(SPAWN_ERR(&j.run), "failed: rank 2 was killed by SIGKILL");
    trirun_end(&j, 1);
}

/* The last failure decides: nobody was left to do that rank's work. */
static void a_failure_after_the_last_success_counts(void **state)
{
    trirun_job j;

    (void)state;
    TRIRUN_START(&j, "--nproc-per-node=2", "--keep-survivors", "sh", "-c",
                 "p=$TRI_RUN_DIR/pid\n"
                 "[ $RANK = 0 ] && { echo $$$$ >$p.new; mv $p.new $p; exit 0; }\n"
                 "until [ -e $p ]; do sleep 0.01; done\n"
                 "while kill -0 $(cat $p) 2>/dev/null; do sleep 0.01; done; exit 3");
    assert_int_equal(spawn_wait(&j.run), 1);
    trirun_has(SPAWN_ERR(&j.run), "failed: rank 1 exited with code 3");
    trirun_end(&j, 1);
}

static void several_hosts_are_refused(void **state)
{
    trirun_job j;

    (void)state;
    TRIRUN_START(&j, "--nnodes=2", "--rdzv-backend=c10d", "--rdzv-id=x", "--keep-survivors",
                 "true");
    assert_int_equal(spawn_wait(&j.run), 1);
    trirun_has(SPAWN_ERR(&j.run), "--keep-survivors works on one host only, and --nnodes is 2");
    trirun_end(&j, 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(those_that_are_left_may_succeed),
    cmocka_unit_test(if_all_fail_the_job_has_failed),
    cmocka_unit_test(a_failure_after_the_last_success_counts),
    cmocka_unit_test(several_hosts_are_refused),
};

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "--worker") == 0)
        return worker(argv[2]);
    return test_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
