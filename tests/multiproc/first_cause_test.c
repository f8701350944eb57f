/*
 * first_cause_test.c - who is named when a rank leaves in the middle with status 0 and the others
 * end because of that, however they notice it and whatever they do then.
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>

#include <trireme/comm.h>

#include "testing/trirun_job.h"

/* Until it is gone and its agent knows. */
static void await_end(int pid)
{
    while (kill(pid, 0) == 0)
        sched_yield();
}

/* Rank 1 leaves between two calls. The others notice that when they begin the next one, or in it;
 * then they go on with another call ("again"), abort, or just end. */
static int worker(const char *how)
{
    int64_t pids[3] = {0}, pid = getpid();
    float x = 1;
    tri_status status = tri_init(NULL);

    if (status == TRI_OK)
        status = tri_all_gather(NULL, &pid, pids, 1, TRI_DTYPE_I64, NULL);
    if (status == TRI_OK && tri_rank() == 1)
        _exit(0);
    if (status == TRI_OK && strcmp(how, "later") == 0) {
        await_end((int)pids[1]);
        status = tri_all_reduce(NULL, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL);
    }
    while (status == TRI_OK)
        status = tri_all_reduce(NULL, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL);
    fprintf(stderr, "worker: %s\n", tri_last_error());
    if (strcmp(how, "again") == 0)
        status = tri_barrier(NULL, NULL);
    if (strcmp(how, "abort") == 0)
        abort();
    return status == TRI_OK ? 0 : 3;
}

static void a_rank_that_leaves_in_the_middle_is_the_cause(void **state)
{
    static const char *const engines[] = {"TRI_ENGINE=shm", "TRI_ENGINE=tcp"};
    static const char *const how[] = {"end", "again", "abort", "later"};
    char self[4096] = "";
    trirun_job j;

    (void)state;
    assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 4; k++) {
            const char *const args[] = {"--nproc-per-node=3", self, "--worker", how[k], NULL};

            trirun_start_behind(&j, NULL, args, engines[i]);
            assert_int_equal(spawn_wait(&j.run), 1);
            if (strstr(SPAWN_ERR(&j.run), "failed: rank 1 returned 0 after ") == NULL)
                fail_msg("%s, %s: %s", engines[i], how[k], SPAWN_ERR(&j.run));
            trirun_has(SPAWN_ERR(&j.run), " s without tri_finalize while ");
            trirun_end(&j, 1);
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_rank_that_leaves_in_the_middle_is_the_cause),
};

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "--worker") == 0)
        return worker(argv[2]);
    return test_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
