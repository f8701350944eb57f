/*
 * proc.h - what /proc says of a process.
 */
#ifndef TRII_OS_PROC_H
#define TRII_OS_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* /proc/PID/NAME, at most bytes - 1 of it, and a zero after it; the number read, 0 on failure.
 * pid: also "self", or "PID/task/TID". */
size_t trii_proc_read(const char *pid, const char *name, char *buf, size_t bytes);
/* The letter for what a process does, see proc(5); 'X' if it is no more. */
char trii_proc_state(int pid);

/* A process of this boot, whatever other process gets its number later. */
typedef struct trii_proc_id {
    int64_t pid;
    uint64_t started; /* in ticks since the boot; 0 = unknown */
    uint64_t space;   /* the processes that its number belongs to: boot and PID namespace */
} trii_proc_id;

void trii_proc_id_own(trii_proc_id *id_out);
/* Whether it has ended for certain; false where that cannot be seen from here. */
bool trii_proc_has_ended(const trii_proc_id *id);
/* A descriptor that becomes readable when it ends, to be closed; -1 where that cannot be seen from
 * here, or it has ended already, or it is this process. */
int trii_proc_open(const trii_proc_id *id);

#endif
