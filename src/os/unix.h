/*
 * unix.h - connections between processes of one host: AF_UNIX stream sockets with abstract
 * names (no file stays), through which descriptors travel. Only processes of the
 * same user are accepted.
 */
#ifndef TRII_UNIX_H
#define TRII_UNIX_H

#include <trireme/status.h>

#define TRII_UNIX_NAME 64 /* of the random ones */

/* A listening socket with a random name. Errors: IO. */
tri_status trii_unix_listen(int *fd_out, char name_out[TRII_UNIX_NAME]) TRI_MUST_CHECK;
/* Never blocks while connecting; where the listener's queue (net.core.somaxconn) is full it tries
 * again until the deadline. Errors: UNSUPPORTED (nobody listens there: another host or network
 * namespace, or another user does), TIMEOUT (the queue stays full), IO. */
tri_status trii_unix_connect(const char *name, int64_t deadline_ns, int *fd_out) TRI_MUST_CHECK;
/* As listen, under a name that others can know. Errors: STATE (the name is taken), IO,
 * INVALID_ARG (too long: 107 bytes at most). */
tri_status trii_unix_listen_as(const char *name, int *fd_out) TRI_MUST_CHECK;
/* Whether the socket is of this kind, and its other end of our own user. */
bool trii_unix_is_ours(int fd);
bool trii_unix_is_unix(int fd);
/* Process that made the other end; 0 if the system does not say. */
int trii_unix_peer_pid(int fd);
/* The next connection of our own user; others are closed, however many, until the deadline.
 * TIMEOUT, IO. */
tri_status trii_unix_accept(int listen_fd, int64_t deadline_ns, int *fd_out) TRI_MUST_CHECK;
void trii_unix_close(int fd); /* negative: nothing */

/* All of it or a failure; blocks. own_fd (-1 = none) is sent along and stays the caller's.
 * Errors: TIMEOUT, PEER_LOST, IO. */
tri_status trii_unix_send(int fd, const void *data, size_t bytes, int pass_fd,
                          int64_t deadline_ns) TRI_MUST_CHECK;
/* All of it or a failure. passed_fd_out: a descriptor that came along, or -1; NULL = none is
 * expected (and one that comes is closed). */
tri_status trii_unix_recv(int fd, void *data, size_t bytes, int *passed_fd_out,
                          int64_t deadline_ns) TRI_MUST_CHECK;

/* Bytes that are there now, up to `bytes`, and stay there; 0 = none yet, -1 = it has ended. */
int trii_unix_peek(int fd, void *data, size_t bytes);

/* Both ends learn that the connection is over; the descriptor stays. Negative: nothing. */
void trii_unix_shutdown(int fd);
/* A descriptor that becomes readable when the process of the other end ends; -1 if that is
 * this process, or one that the system does not show us. */
int trii_unix_peer_process(int fd);

#endif
