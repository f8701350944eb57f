/*
 * plugin_socket.c - see plugin_socket.h.
 */
#include "shared/plugin_socket.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

/* What a system does not know of is left as it is. */
static void set(int fd, int level, int option, int value)
{
    (void)setsockopt(fd, level, option, &value, sizeof(value));
}

int trii_socket_make(int family, int type, int protocol, int dead_ms)
{
    int fd = socket(family, type | SOCK_CLOEXEC, protocol), low = fd;

    if (low >= 0 && low <= 2) { /* a standard one was closed: what is printed must not land here */
        fd = fcntl(low, F_DUPFD_CLOEXEC, 3);
        close(low);
    }
    if (fd < 0 || (family != AF_INET && family != AF_INET6))
        return fd;
    set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set(fd, IPPROTO_TCP, TCP_KEEPIDLE, dead_ms > 4000 ? dead_ms / 2000 : 1);
    set(fd, IPPROTO_TCP, TCP_KEEPINTVL, 1);
    set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, dead_ms);
    return fd;
}
