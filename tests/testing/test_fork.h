/*
 * test_fork.h - children of a test that end with it, whatever state they are in: a check that fails
 * skips what would end them, and one that is stopped sees no alarm. Tests only.
 */
#ifndef TEST_TEST_FORK_H
#define TEST_TEST_FORK_H

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "testing/check.h"

/* As fork() on the test's own thread. */
static inline int test_fork(void)
{
    int parent = getpid(), pid = fork();

    assert_true(pid >= 0);
    if (pid == 0 && (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent))
        _exit(127); /* it had ended before it could be watched */
    return pid;
}

#endif
