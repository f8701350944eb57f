/*
 * descendants.c - see descendants.h: subreaper, parent-death signals, and the search of /proc.
 * Called by agent.c at its start and by shutdown.c and guard.c at the end of a job.
 */
#include "launch/os/descendants.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/err.h"
#include "os/proc.h"

void trii_process_adopt_orphans(void)
{
    prctl(PR_SET_CHILD_SUBREAPER, 1);
}

int trii_process_reap_orphan(const trii_process *keep, int n_keep)
{
    siginfo_t info = {0};

    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
        return 0;
    for (int i = 0; i < n_keep; i++) {
        if (keep[i].pidfd >= 0 && keep[i].pid == info.si_pid)
            return 0;
    }
    waitpid(info.si_pid, NULL, 0);
    return info.si_pid;
}

void trii_process_kill(int pid)
{
    kill(pid, SIGKILL);
    trii_process_wait(pid);
}

void trii_process_continue(const trii_process *process)
{
    if (process->pidfd >= 0 && trii_proc_state(process->pid) == 'T')
        kill(-process->pid, SIGCONT);
}

int trii_process_signal_children(int number, int except)
{
    char children[65536], *at = children, *end; /* "PID PID "; the caller has one thread */
    int n = 0;

    if (trii_proc_read("thread-self", "children", children, sizeof(children)) == 0)
        return 0;
    end = strrchr(children, ' '); /* what does not fit has its turn once others have ended */
    if (end != NULL)
        *end = '\0';
    for (;; at = end) {
        int pid = (int)strtol(at, &end, 10);

        if (end == at)
            return n;
        if (pid == except || !trii_process_exists(pid))
            continue; /* the latter: ended, and not yet reaped */
        n++;
        kill(pid, number);
    }
}

static bool has_entry(const char *block, size_t bytes, const char *entry)
{
    for (size_t at = 0; at < bytes; at += strlen(block + at) + 1) {
        if (strcmp(block + at, entry) == 0)
            return true;
    }
    return false;
}

int trii_process_kill_marked(const char *entry)
{
    enum { MAX_ENVIRONMENT = 1 << 20 };
    char *block = trii_alloc(1, MAX_ENVIRONMENT, "environment of a process");
    DIR *proc = opendir("/proc");
    const struct dirent *file;
    int n = 0, self = getpid();

    while (block != NULL && proc != NULL && (file = readdir(proc)) != NULL) {
        int pid = (int)strtol(file->d_name, NULL, 10); /* 0 for what else is there */
        size_t bytes;

        if (pid == 0 || pid == self)
            continue;
        bytes = trii_proc_read(file->d_name, "environ", block, MAX_ENVIRONMENT);
        if (has_entry(block, bytes, entry)) {
            n++;
            kill(pid, SIGKILL);
        }
    }
    if (proc != NULL)
        closedir(proc);
    trii_free(block);
    return n;
}

tri_status trii_process_fork(int (*main)(void *arg), void *arg, const int *fds, int n_fds,
                             int *pid_out)
{
    sigset_t all, before;
    int pid;

    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    pid = fork();
    if (pid == 0) {
        int next = 0;

        setsid();
        for (;;) { /* closes the gaps between the kept descriptors, in their order */
            int keep = INT_MAX;

            for (int i = 0; i < n_fds; i++)
                keep = fds[i] >= next && fds[i] < keep ? fds[i] : keep;
            if (keep > next)
                syscall(SYS_close_range, (unsigned)next, (unsigned)keep - 1, 0u);
            if (keep == INT_MAX)
                break;
            next = keep + 1;
        }
        _exit(main(arg));
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (pid < 0)
        return TRII_FAIL(TRI_ERR_IO, "fork: %s", strerror(errno));
    *pid_out = pid;
    return TRI_OK;
}
