/*
 * terminal.h - whether somebody looks at a stream, and how wide the window is.
 */
#ifndef TRII_TERMINAL_H
#define TRII_TERMINAL_H

#include <stdbool.h>
#include <stdio.h>

bool trii_fd_is_terminal(int fd);
/* Whether the stream is a terminal that can redraw a line, and its width in columns (80 if it
 * does not say). */
bool trii_terminal(FILE *stream, int *columns_out);

#endif
