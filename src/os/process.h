/*
 * process.h - start, watch and end processes.
 *
 * A child leads its own session and process group, so that a signal reaches all that it
 * started, and is killed by the kernel when the thread that started it ends, whatever ended it.
 *
 * What of this only the launcher needs is not in the library: process_kin.c, process_notice.c.
 */
#ifndef TRII_PROCESS_H
#define TRII_PROCESS_H

#include <trireme/status.h>

#include "os/cpu.h"

typedef struct trii_process {
    int pid;
    int pidfd; /* becomes readable when the process ends; -1 after trii_process_reap */
} trii_process;

typedef struct trii_process_spec {
    const char *path;                 /* of the file to run: no search */
    const char *const *argv;          /* ends with NULL */
    const char *const *envp;          /* ends with NULL */
    int in_fd, out_fd, err_fd;        /* become 0, 1, 2; -1 = inherited */
    bool only_standard;               /* no other descriptor is inherited (Linux 5.9) */
    const trii_cpu_set *cores;        /* it may run on; NULL = inherited */
    const struct trii_cgroup *cgroup; /* it begins in, see cgroup.h; NULL = ours */
} trii_process_spec;

typedef struct trii_process_exit {
    int signal; /* that killed it, or 0 */
    int code;   /* exit code if signal is 0 */
    bool core_dumped;
    int64_t cpu_ns; /* processor time of it, and of its children that it waited for */
} trii_process_exit;

/* About 0.2 ms: no copy of our memory is made, we sleep until the child runs the file. Where the
 * kernel refuses its control group it begins in ours.
 * All signals are unblocked in the child, those ignored by trii_signal_ignore work again.
 * Errors: NOT_FOUND (no such file, or its interpreter), IO (no permission, no format, limits). */
tri_status trii_process_start(const trii_process_spec *spec,
                              trii_process *process_out) TRI_MUST_CHECK;
/* OK and how it ended, once; INPROGRESS while it runs. */
tri_status trii_process_reap(trii_process *process, trii_process_exit *exit_out) TRI_MUST_CHECK;
/* Whether trii_process_reap would tell its end now. */
bool trii_process_has_ended(const trii_process *process);
/* Whether it has begun to end: peers can notice that long before it has ended, since a large
 * process takes a while. Only while it is not reaped. */
bool trii_process_is_ending(const trii_process *process);
/* What a process that lives has used: processor time as in trii_process_exit, to 10 ms, and bytes
 * in memory; both 0 where nobody knows. */
void trii_process_usage(int pid, int64_t *cpu_ns_out, int64_t *resident_bytes_out);
/* To every process of its group; only while it is not reaped. */
void trii_process_signal(const trii_process *process, int number);
/* SIGCONT to its group if it is stopped. Not to one that runs: SIGCONT takes back a stop that is
 * under way, and a debugger, or a sanitizer that looks for leaks at the end, would wait for it for
 * ever. */
void trii_process_continue(const trii_process *process);

/* Tells each of n processes, started by us and not reaped, something by a signal that must not end
 * it: sent with `value` (sigqueue) if the process handles the signal, or has it blocked in all of
 * its threads, and not all signals, to wait for it; else to those of its descendants in its group
 * that do, and not to theirs. A shell that handles all that would end it, as bash with a trap of
 * EXIT, would still end: it counts as one that does not. n_told_out [n]: how many got it. Reads
 * /proc. */
void trii_process_tell(const trii_process *processes, int n, int number, int value,
                       int *n_told_out);

/* From now on descendants whose parent ends become our children. */
void trii_process_adopt_orphans(void);
/* Takes the status of one ended child that is not in `keep`: its pid, or 0 if there is none.
 * Ended children of `keep` are left for trii_process_reap. */
int trii_process_reap_orphan(const trii_process *keep, int n_keep);
/* Sends the signal to every child but `except` (0 = none); returns how many there are. */
int trii_process_signal_children(int number, int except);
/* SIGKILL to every process of ours whose environment has the entry "NAME=value"; returns how
 * many there were. For the ruins of a job whose agent was killed. */
int trii_process_kill_marked(const char *entry);

/* A copy of this process that runs `main(arg)` and ends with its result, in its own session,
 * deaf to all signals but SIGKILL, with no descriptor but the n_fds given ones. Other threads of
 * the caller hold no lock that `main` takes, but libc's. Errors: IO. */
tri_status trii_process_fork(int (*main)(void *arg), void *arg, const int *fds, int n_fds,
                             int *pid_out) TRI_MUST_CHECK;

/* Blocks until the child has ended, and forgets it. */
void trii_process_wait(int pid);
/* SIGKILL to a child of trii_process_fork, and waits for its end. */
void trii_process_kill(int pid);

/* Path of the file that this process runs. */
tri_status trii_process_own_path(char *path_out, size_t bytes) TRI_MUST_CHECK;

/* The file that a shell would run for `name`: itself if it has a slash, else from PATH.
 * Errors: NOT_FOUND, IO (exists and cannot be executed), INVALID_ARG (too long). */
tri_status trii_process_find(const char *name, char *path_out, size_t bytes) TRI_MUST_CHECK;

int trii_process_id(void);
/* Number of the user whose it is. */
int trii_process_user(void);
/* Whether a process of this host is stopped, as by SIGSTOP or a debugger. */
bool trii_process_is_stopped(int pid);
/* Whether there is a process of this host with that number, and it is no zombie. */
bool trii_process_exists(int pid);
/* As if it came from outside: all threads stop at SIGSTOP, all end at SIGKILL. */
void trii_process_signal_self(int number);
/* The host's name; "localhost" if it has none. */
void trii_process_host(char *name_out, size_t bytes);
/* "train --lr 0.1": our program without its folder, and its arguments, as many as fit. */
void trii_process_command_line(char *text_out, size_t bytes);
/* The environment, "NAME=value" each, ends with NULL. */
const char *const *trii_process_environment(void);

#endif
