/*
 * cross_memory.h - reading the memory of another process (cross-memory attach, CMA:
 * process_vm_readv). engines/shm uses it for buffers that the ranks do not share.
 */
#ifndef TRII_CROSS_MEMORY_H
#define TRII_CROSS_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads `bytes` at an address of process `pid` (this one included). Returns false where the system
 * does not allow it (another user, Yama, seccomp), or where the process is gone or has no such
 * memory: then *error_out is errno, and the contents of `to` are undefined. */
bool trii_cross_memory_read(int pid, uint64_t address, void *to, size_t bytes, int *error_out);
/* Whether that error means that the process does not exist any more. */
bool trii_cross_memory_is_gone(int error);

/* Why a read failed between processes where reads worked before. Static text. */
const char *trii_cross_memory_why(int error);

#endif
