/*
 * pseudo_terminal.h - a worker's output as if it wrote to our terminal. What is opened here is
 * closed on exec.
 */
#ifndef TRII_PSEUDO_TERMINAL_H
#define TRII_PSEUDO_TERMINAL_H

#include <trireme/status.h>

/* As a pipe, but what is written to write_fd looks like the terminal `like_fd` to its writer:
 * programs show progress and end lines at once. margin: columns that its lines must leave free.
 * Bytes pass unchanged. Errors: IO. */
tri_status trii_pty_open(int like_fd, size_t margin, int *read_fd_out,
                         int *write_fd_out) TRI_MUST_CHECK;
/* The size of the window, from like_fd to a read_fd of trii_pty_open. */
void trii_pty_resize(int read_fd, int like_fd, size_t margin);

#endif
