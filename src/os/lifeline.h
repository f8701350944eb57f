/*
 * lifeline.h - a word in shared memory that the kernel marks when the process that holds it ends,
 * whatever ended it: before it frees the process's memory, which takes 30 to 50 ms a gigabyte, and
 * only then closes its sockets and makes its pidfd ready. (A robust futex: the kernel's
 * Documentation/locking/robust-futex-ABI.)
 *
 * The process's control thread (loop.h) holds all lines of the process; who holds and drops lines
 * holds the lock of its loop. So strictly the mark is of that thread's end. A process that exits or
 * is killed ends all its threads at once, each when it next enters the kernel or is interrupted:
 * for microseconds after the mark another one may still run, and write into memory that it shares.
 */
#ifndef TRII_LIFELINE_H
#define TRII_LIFELINE_H

#include <stdatomic.h>
#include <stdbool.h>

/* In shared memory, zero before it is held; only its holder may use `next`. */
typedef struct trii_lifeline {
    void *next;
    atomic_int word; /* 0 = not held; a futex: who waits for it is woken at the end (one does) */
} trii_lifeline;

/* From the control thread only. Nothing if the system does not have it: the word stays 0. */
void trii_lifeline_hold(trii_lifeline *line);
/* Any thread; not held: nothing. The memory may go afterwards. */
void trii_lifeline_drop(trii_lifeline *line);
/* Whether the word, as read, says that the holder has ended. */
bool trii_lifeline_is_cut(int word);

#endif
