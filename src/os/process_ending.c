/*
 * process_ending.c - whether a child is over, or on its way out, and what it has used (process.h).
 */
/* build: leaf */
#include "os/process.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/clock.h"
#include "os/proc.h"

bool trii_process_has_ended(const trii_process *process)
{
    siginfo_t info = {0};

    return waitid(P_PID, (id_t)process->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid != 0;
}

/* Whether the first thread still has to see that it is to die, or writes a core before it does:
 * whatever ends a process sends SIGKILL to each other thread. */
static bool is_doomed(const char *pid)
{
    static const char name[] = "\nSigPnd:";
    char text[4096];
    const char *at =
        trii_proc_read(pid, "status", text, sizeof(text)) > 0 ? strstr(text, name) : NULL;

    return at != NULL && ((strtoull(at + strlen(name), NULL, 16) & 1ULL << (SIGKILL - 1)) != 0 ||
                          strstr(text, "\nCoreDumping:\t1") != NULL);
}

bool trii_process_is_ending(const trii_process *process)
{
    enum { PF_EXITING = 4 }; /* the kernel's flag, field 9 of /proc/PID/stat */
    char stat[512], pid[16], *at;

    snprintf(pid, sizeof(pid), "%d", process->pid);
    if (process->pidfd < 0 || is_doomed(pid) ||
        trii_proc_read(pid, "stat", stat, sizeof(stat)) == 0)
        return true;
    at = strrchr(stat, ')'); /* after the name: state, field 3 */
    for (int field = 2; at != NULL && field < 9; field++)
        at = strchr(at + 1, ' ');
    return at != NULL && (strtoul(at, NULL, 10) & PF_EXITING) != 0;
}

void trii_process_usage(int pid, int64_t *cpu_ns_out, int64_t *resident_bytes_out)
{
    enum { USER = 14, CHILDREN_SYSTEM = 17, RESIDENT = 24, TICKS_PER_S = 100 };
    char stat[1024], name[16], *at;
    long long ticks = 0, pages = 0;

    snprintf(name, sizeof(name), "%d", pid);
    at = trii_proc_read(name, "stat", stat, sizeof(stat)) > 0 ? strrchr(stat, ')') : NULL;
    for (int field = 3; at != NULL && field <= RESIDENT; field++) {
        at = strchr(at + 1, ' ');
        if (at != NULL && field >= USER && field <= CHILDREN_SYSTEM)
            ticks += strtoll(at, NULL, 10);
        else if (at != NULL && field == RESIDENT)
            pages = strtoll(at, NULL, 10);
    }
    *cpu_ns_out = ticks * (TRII_NS_PER_S / TICKS_PER_S);
    *resident_bytes_out = pages * sysconf(_SC_PAGESIZE);
}
