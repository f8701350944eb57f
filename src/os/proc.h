/*
 * proc.h - what /proc says of a process.
 */
#ifndef TRII_OS_PROC_H
#define TRII_OS_PROC_H

#include <stddef.h>

/* /proc/PID/NAME, at most bytes - 1 of it, and a zero behind it; the number read, 0 on failure.
 * pid: also "self", or "PID/task/TID". */
size_t trii_proc_read(const char *pid, const char *name, char *buf, size_t bytes);
/* The letter that stands for what a process does, see proc(5); 'X' if it is no more. */
char trii_proc_state(int pid);

#endif
