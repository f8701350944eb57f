/*
 * process_notify.h - a signal for those processes only that it would not end.
 */
#ifndef TRII_PROCESS_NOTIFY_H
#define TRII_PROCESS_NOTIFY_H

#include "os/process.h"

/* Notifies each of n processes, started by us and not reaped, by a signal that must not end it:
 * sent with `value` (sigqueue) if the process handles the signal, or has it blocked in all of
 * its threads, and not all signals, to wait for it; else to those of its descendants in its group
 * that do, and not to theirs. A shell that handles all that would end it, as bash with a trap of
 * EXIT, would still end: it counts as one that does not. n_sent_out [n]: how many got it. Reads
 * /proc. */
void trii_process_notify(const trii_process *processes, int n, int number, int value,
                         int *n_sent_out);

#endif
