/*
 * torn_io.h - sockets at their worst: in a test that includes this, in one of its files, sends and
 * receives move as little as one byte, or nothing for now, as a seed chooses. What is polled stays
 * ready. Tests only.
 */
#ifndef TEST_TORN_IO_H
#define TEST_TORN_IO_H

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* How torn it is; all zero: not at all. */
typedef struct torn_io {
    size_t most;      /* bytes at a time: 1 to so many */
    unsigned refuses; /* of 16 calls, how many move nothing */
    unsigned breaks;  /* of 16 calls, how many are interrupted by a signal, so to speak */
    uint64_t seed;
} torn_io;

static torn_io torn; /* set while no other thread moves anything */
static _Atomic uint64_t torn_calls;

/* splitmix64 of the seed and the number of the call. */
static inline uint64_t torn_draw(void)
{
    uint64_t h = torn.seed + atomic_fetch_add(&torn_calls, 1) * UINT64_C(0x9e3779b97f4a7c15);

    h = (h ^ (h >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    h = (h ^ (h >> 27)) * UINT64_C(0x94d049bb133111eb);
    return h ^ (h >> 31);
}

/* Whether the call fails, with errno; else *most_out: how much it may move. */
static inline int torn_fails(size_t *most_out)
{
    uint64_t draw = torn_draw();

    if (torn.most == 0)
        return 0;
    *most_out = 1 + (size_t)(draw >> 8) % torn.most;
    if ((draw & 15) < torn.refuses)
        errno = EAGAIN;
    else if ((draw & 15) < torn.refuses + torn.breaks)
        errno = EINTR;
    else
        return 0;
    return 1;
}

ssize_t recv(int fd, void *buf, size_t n, int flags)
{
    struct pollfd ended = {.fd = fd, .events = POLLRDHUP};
    size_t most = n;

    /* what came before an end is there with it: no system says that it is not */
    if (poll(&ended, 1, 0) == 0 && torn_fails(&most))
        return -1;
    return syscall(SYS_recvfrom, fd, buf, most < n ? most : n, flags, NULL, NULL);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    struct iovec parts[16];
    struct msghdr less = *message;
    size_t most = SIZE_MAX;

    if (message->msg_controllen == 0 && torn_fails(&most))
        return -1;
    less.msg_iov = parts;
    for (less.msg_iovlen = 0;
         less.msg_iovlen < message->msg_iovlen && less.msg_iovlen < 16 && most > 0;
         less.msg_iovlen++) {
        struct iovec *part = &parts[less.msg_iovlen];

        *part = message->msg_iov[less.msg_iovlen];
        part->iov_len = part->iov_len < most ? part->iov_len : most;
        most -= part->iov_len;
    }
    return syscall(SYS_sendmsg, fd, &less, flags);
}

#endif
