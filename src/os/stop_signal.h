/*
 * stop_signal.h - notes that this process was asked to end, without ending it.
 */
#ifndef TRII_STOP_SIGNAL_H
#define TRII_STOP_SIGNAL_H

#include <trireme/status.h>

/* Handles SIGTERM and SIGINT (the second one of a kind ends the process) and SIGUSR1; SIGINT stays
 * ignored if it is, as in the background jobs of a script. Errors: IO. */
tri_status trii_stop_signal_watch(void) TRI_MUST_CHECK;
/* 0 = none came. told_ms_out: what the sender said how long there is, -1 = nothing; at_ns_out:
 * when it came. */
int trii_stop_signal_seen(int64_t *at_ns_out, int64_t *told_ms_out);
/* A descriptor that can be read once a signal has come, and is never read: it is the process's,
 * which keeps it. One that came before the first call is not told there. Errors: IO. */
tri_status trii_stop_signal_descriptor(int *fd_out) TRI_MUST_CHECK;
/* Tells a process that handles SIGUSR1 of the signal that has come here, by SIGUSR1: it notes the
 * signal that is meant, and one that it gets by itself, too, is still the first. False: the process
 * would die of it, or is gone. */
bool trii_stop_signal_pass_on(int pid);

#endif
