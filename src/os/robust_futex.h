/*
 * robust_futex.h - a futex in shared memory that the kernel marks when the process that holds it
 * ends, however it ends (the kernel's Documentation/locking/robust-futex-ABI). The mark comes
 * before the kernel frees the process's memory, which takes 30 to 50 ms per gigabyte; only after
 * that does it close the sockets and make the pidfd ready.
 *
 * The control thread (loop.h) holds all robust futexes of the process, and a thread that holds or
 * releases one holds the lock of its loop. Strictly, then, the mark says that this thread has
 * ended. A process that exits or is killed ends all its threads at once, each when it next enters
 * the kernel or is interrupted: for microseconds after the mark another thread may still run, and
 * write into memory that it shares.
 *
 * engines/shm uses it to see at once that a peer has died.
 */
#ifndef TRII_ROBUST_FUTEX_H
#define TRII_ROBUST_FUTEX_H

#include <stdatomic.h>
#include <stdbool.h>

/* In shared memory, zero before it is held; only its holder may use `next`. */
typedef struct trii_robust_futex {
    void *next;
    atomic_int word; /* 0 = not held. When the holder ends, one of those who wait for it wakes */
} trii_robust_futex;

/* From the control thread only. Where the system does not support it, the word stays 0. */
void trii_robust_futex_hold(trii_robust_futex *futex);
/* Any thread; does nothing if it is not held. The memory may be freed afterwards. */
void trii_robust_futex_release(trii_robust_futex *futex);
/* Whether the word, as it was read, says that the holder has ended. */
bool trii_robust_futex_owner_died(int word);

#endif
