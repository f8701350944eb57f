/*
 * full_queue.h - a listener that takes one connection and leaves all others without an answer, as a
 * host does that is cut off.
 */
#ifndef TEST_FULL_QUEUE_H
#define TEST_FULL_QUEUE_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "testing/check.h"

/* A socket, to be closed. */
static inline int full_queue_listen(int *port_out)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(addr);
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(listen(fd, 0), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&addr, &bytes), 0);
    *port_out = ntohs(addr.sin_port);
    return fd;
}

#endif
