/*
 * signal.h - signals as events: a program that owns its process (trirun, never the library)
 * blocks the signals it cares for and reads them from a descriptor. Includes <signal.h>.
 */
#ifndef TRII_SIGNAL_H
#define TRII_SIGNAL_H

#include <signal.h>

#include <trireme/status.h>

/* "SIGSEGV"; "signal 77" for one without a name. Static or thread-local text. */
const char *trii_signal_name(int number);
/* The number of "SIGTERM", "TERM" or "15"; 0 if there is none. */
int trii_signal_number(const char *name);
/* The i-th signal that has a name; 0 after the last. */
int trii_signal_at(size_t i);
/* Whether the process came to life with this signal ignored (nohup does that to SIGHUP). */
bool trii_signal_is_ignored(int number);
void trii_signal_ignore(int number);

/* Blocks the signals for the calling thread and those it will create, and opens a non-blocking
 * descriptor that reads them. Close it with trii_fd_close. Errors: IO. */
tri_status trii_signal_open(const int *numbers, int n, int *fd_out) TRI_MUST_CHECK;
/* The next signal that came, or 0. value_out: the number that its sender gave it with sigqueue, 0 =
 * none; NULL = unwanted. */
int trii_signal_next(int fd, int *value_out);

#endif
