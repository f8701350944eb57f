/*
 * read_whole.h - small files, as /proc and /sys have them.
 */
#ifndef TRII_OS_READ_WHOLE_H
#define TRII_OS_READ_WHOLE_H

#include <stddef.h>

/* Reads until the end or `bytes` are there, whatever interrupts it or comes in pieces; how much. */
size_t trii_read_whole(int fd, void *buf, size_t bytes);

#endif
