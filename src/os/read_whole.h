/*
 * read_whole.h - small files, as /proc and /sys have them.
 */
#ifndef TRII_OS_READ_WHOLE_H
#define TRII_OS_READ_WHOLE_H

#include <stddef.h>

/* A file from its beginning, at most bytes - 1 of it, and a zero after it; whatever interrupts it
 * or comes in pieces. How much; 0: it is empty or cannot be read. */
size_t trii_read_whole(const char *path, char *text_out, size_t bytes);

#endif
