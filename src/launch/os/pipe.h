/*
 * pipe.h - bytes between related processes, through pipes, and what a descriptor that we were given
 * leads to. Everything opened here is closed on exec.
 */
#ifndef TRII_PIPE_H
#define TRII_PIPE_H

#include <trireme/status.h>

/* read_fd does not block, write_fd does. Errors: IO. */
tri_status trii_pipe_open(int *read_fd_out, int *write_fd_out) TRI_MUST_CHECK;
/* OK with at least one byte, INPROGRESS (a non-blocking descriptor has none now), END, IO. */
tri_status trii_fd_read(int fd, void *buf, size_t bytes, size_t *got_out) TRI_MUST_CHECK;
/* One attempt. OK with at least one byte written, INPROGRESS, PEER_LOST (it has no reader), IO (the
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

#endif
