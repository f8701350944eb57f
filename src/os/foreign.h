/*
 * foreign.h - memory of other processes.
 */
#ifndef TRII_FOREIGN_H
#define TRII_FOREIGN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads `bytes` at an address of process `pid` (this one included). False where the system does
 * not let us (another user, Yama, seccomp), the process is gone or has no such memory: *error_out
 * gets errno; what was written to `to` is anything then. */
bool trii_foreign_read(int pid, uint64_t address, void *to, size_t bytes, int *error_out);
/* Whether that error means that there is no such process any more. */
bool trii_foreign_is_gone(int error);

/* What that error tells of a read that worked between the same processes before. Static text. */
const char *trii_foreign_why(int error);

#endif
