/*
 * socket_end.h - a connection that the other side is to close. Tests only.
 */
#ifndef TEST_SOCKET_END_H
#define TEST_SOCKET_END_H

#include "os/clock.h"
#include "os/socket.h"
#include "testing/check.h"

/* Reads until it is closed there, at most 20 seconds; closes it here. */
static inline void socket_expect_end(int fd)
{
    const int64_t deadline = trii_deadline_ms(20000);
    char bytes[4096];
    tri_status status;
    size_t got;

    do {
        status = trii_socket_wait(fd, TRII_READABLE, deadline);
        if (status == TRI_OK)
            status = trii_socket_recv(fd, bytes, sizeof(bytes), &got);
    } while (status == TRI_OK || status == TRI_INPROGRESS);
    assert_true(status == TRI_END || status == TRI_ERR_PEER_LOST);
    trii_socket_close(fd);
}

#endif
