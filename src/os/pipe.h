/*
 * pipe.h - bytes between related processes, through pipes and pseudo-terminals. Everything opened
 * here is closed on exec.
 */
#ifndef TRII_PIPE_H
#define TRII_PIPE_H

#include <trireme/status.h>

/* read_fd does not block, write_fd does. Errors: IO. */
tri_status trii_pipe_open(int *read_fd_out, int *write_fd_out) TRI_MUST_CHECK;
/* As a pipe, but what is written to write_fd looks like the terminal `like_fd` to its writer:
 * programs show progress and end lines at once. margin: columns that its lines must leave free.
 * Bytes pass unchanged. Errors: IO. */
tri_status trii_terminal_open(int like_fd, size_t margin, int *read_fd_out,
                              int *write_fd_out) TRI_MUST_CHECK;
/* The size of the window, from like_fd to a read_fd of trii_terminal_open. */
void trii_terminal_resize(int read_fd, int like_fd, size_t margin);
void trii_fd_close(int fd); /* negative: nothing */

/* OK with at least one byte, INPROGRESS (a non-blocking descriptor has none now), END, IO. */
tri_status trii_fd_read(int fd, void *buf, size_t bytes, size_t *got_out) TRI_MUST_CHECK;
/* One attempt. OK with at least one byte written, INPROGRESS, PEER_LOST (nobody reads), IO (the
 * line is the bare reason: the caller knows the descriptor's name). */
tri_status trii_fd_write(int fd, const void *data, size_t bytes, size_t *put_out) TRI_MUST_CHECK;

/* A write of so much to a pipe that poll calls writable does not block (POSIX). */
#define TRII_PIPE_ATOMIC_BYTES 4096
/* Whether writing never waits for a reader: a plain file, or no such descriptor at all. */
bool trii_fd_is_file(int fd);
/* Whether both lead to the same place, so that what is written to them mixes. */
bool trii_fd_is_same(int a, int b);
/* Opens /dev/null for those of 0, 1, 2 that are closed, so that no other descriptor gets there. */
void trii_fd_fill_standard(void);
bool trii_fd_is_terminal(int fd);

#endif
