/*
 * shared_file.h - a file that processes of one or several hosts read and extend in turns.
 *
 * The turns are flock's: on NFS the kernel turns them into locks of the whole file, and
 * taking one throws away what the client had cached of it. A descriptor that is closed gives
 * its lock back, so nobody who died holds one.
 */
#ifndef TRII_SHARED_FILE_H
#define TRII_SHARED_FILE_H

#include <trireme/status.h>

#include "os/socket.h" /* trii_span */

/* For reading and writing; `create` makes it (mode 0644). Errors: NOT_FOUND (no such file, or
 * no such folder), IO. */
tri_status trii_shared_file_open(const char *path, bool create, int *fd_out) TRI_MUST_CHECK;
void trii_shared_file_close(int fd); /* negative: nothing; unlocks */
/* Errors: TIMEOUT (somebody held it until the deadline), IO. */
tri_status trii_shared_file_lock(int fd, const char *path, bool exclusive,
                                 int64_t deadline_ns) TRI_MUST_CHECK;
void trii_shared_file_unlock(int fd);
/* Whether the name still leads to this file: somebody may have removed it or put another in
 * its place. */
bool trii_shared_file_is_at(int fd, const char *path);
/* Whether both are one file; false if one of them is negative. */
bool trii_shared_file_same(int fd, int other_fd);
tri_status trii_shared_file_size(int fd, const char *path, uint64_t *bytes_out) TRI_MUST_CHECK;
/* Up to `bytes` from the offset; fewer at the end of the file. */
tri_status trii_shared_file_read(int fd, const char *path, uint64_t offset, void *data,
                                 size_t bytes, size_t *got_out) TRI_MUST_CHECK;
/* All of the spans (at most 8) in one write where the system can; after a failure the file is
 * cut to `offset` again. */
tri_status trii_shared_file_write(int fd, const char *path, uint64_t offset, const trii_span *spans,
                                  int n_spans) TRI_MUST_CHECK;
tri_status trii_shared_file_cut(int fd, const char *path, uint64_t bytes) TRI_MUST_CHECK;
/* A missing one is no failure. */
tri_status trii_shared_file_remove(const char *path) TRI_MUST_CHECK;

#endif
