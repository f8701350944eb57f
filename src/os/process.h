/*
 * process.h - start, watch and end processes.
 *
 * A child leads its own session and process group, so that a signal reaches all that it
 * started, and is killed by the kernel when the thread that started it ends, whatever ended it.
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
    const char *path;          /* of the file to run: no search */
    const char *const *argv;   /* ends with NULL */
    const char *const *envp;   /* ends with NULL */
    int in_fd, out_fd, err_fd; /* become 0, 1, 2; -1 = inherited */
    int keep_fd;               /* inherited under its number, above 2; 0 = none */
    bool only_standard;        /* no other descriptor is inherited (Linux 5.9) */
    const trii_cpu_set *cores; /* it may run on; NULL = inherited */
    const int *cgroup_fd;      /* of the folder of the control group it begins in; NULL = ours */
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

/* Blocks until the child has ended, and forgets it. */
void trii_process_wait(int pid);

/* A path that leads to the file that this process runs: its own, or where another file has that
 * name by now, or none, that of a link of the kernel's. Errors: IO (without /proc). */
tri_status trii_process_own_file(char *path_out, size_t bytes) TRI_MUST_CHECK;

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
/* "train --lr 0.1": our program without its folder, and its arguments, as many as fit. */
void trii_process_command_line(char *text_out, size_t bytes);
/* The environment, "NAME=value" each, ends with NULL. */
const char *const *trii_process_environment(void);

#endif
