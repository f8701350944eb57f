/*
 * stop_signal.h - notes that this process was asked to end, without ending it.
 */
#ifndef TRII_STOP_SIGNAL_H
#define TRII_STOP_SIGNAL_H

#include <trireme/status.h>

/* Handles SIGTERM (the second one ends the process) and SIGUSR1. Errors: IO. */
tri_status trii_stop_signal_watch(void) TRI_MUST_CHECK;
/* 0 = none came. told_ms_out: what the sender said how long there is, -1 = nothing; at_ns_out:
 * when it came. */
int trii_stop_signal_seen(int64_t *at_ns_out, int64_t *told_ms_out);

#endif
