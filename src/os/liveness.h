/*
 * liveness.h - whether a process that wrote a file still lives: it holds a lock on the file,
 * which ends with it however it ends, also in another pid namespace.
 */
#ifndef TRII_LIVENESS_H
#define TRII_LIVENESS_H

#include <trireme/status.h>

typedef enum trii_liveness {
    TRII_LIVENESS_GONE, /* no process holds the file */
    TRII_LIVENESS_RUNS,
    TRII_LIVENESS_STOPPED /* by SIGSTOP, a terminal or a debugger */
} trii_liveness;

/* Locks the file of `fd` (open for writing) until this process ends or closes any descriptor of
 * it. False: another process holds it, or the file system has no locks. */
bool trii_liveness_hold(int fd);
/* The process that holds the file; pid_out is 0 where the holder is gone or not to be seen from
 * here. */
trii_liveness trii_liveness_look(const char *path, int *pid_out);

#endif
