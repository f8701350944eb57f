/*
 * unix.c - see unix.h.
 */
/* build: leaf */
#include "os/unix.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"
#include "os/clock.h"
#include "os/descriptor.h"
#include "os/limits.h"
#include "os/random.h"

#define FULL_QUEUE_PAUSE_NS (500 * TRII_NS_PER_MS / 1000)

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

static socklen_t abstract_address(const char *name, struct sockaddr_un *address)
{
    size_t length = strlen(name);

    memset(address, 0, sizeof(*address));
    address->sun_family = AF_UNIX;
    memcpy(address->sun_path + 1, name, length); /* a leading zero byte: no file */
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

tri_status trii_unix_listen_as(const char *name, int *fd_out)
{
    struct sockaddr_un address;
    socklen_t length;
    int fd;

    if (strlen(name) >= sizeof(address.sun_path))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "unix socket: name of %zu characters", strlen(name));
    fd = trii_fd_above_standard(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd < 0)
        return TRII_FAIL(TRI_ERR_IO, "unix socket: %s", strerror(errno));
    length = abstract_address(name, &address);
    if (bind(fd, (struct sockaddr *)&address, length) != 0 || listen(fd, 4096) != 0) {
        tri_status st = TRII_FAIL(errno == EADDRINUSE ? TRI_ERR_STATE : TRI_ERR_IO,
                                  "unix socket %s: %s", name, strerror(errno));

        close(fd);
        return st;
    }
    *fd_out = fd;
    return TRI_OK;
}

tri_status trii_unix_listen(int *fd_out, char name_out[TRII_UNIX_NAME])
{
    uint64_t id[2];

    if (!trii_random_bytes(id, sizeof(id)))
        return TRII_FAIL(TRI_ERR_IO, "this system gives no random numbers");
    snprintf(name_out, TRII_UNIX_NAME, "trireme-%016llx%016llx", (unsigned long long)id[0],
             (unsigned long long)id[1]);
    return trii_unix_listen_as(name_out, fd_out);
}

bool trii_unix_is_ours(int fd)
{
    struct ucred peer;
    socklen_t length = sizeof(peer);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

bool trii_unix_is_unix(int fd)
{
    int domain = 0;
    socklen_t length = sizeof(domain);

    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 && domain == AF_UNIX;
}

int trii_unix_peer_pid(int fd)
{
    struct ucred peer;
    socklen_t length = sizeof(peer);

    return trii_unix_is_unix(fd) && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
                   peer.pid > 0
               ? peer.pid
               : 0;
}

/* A full queue cannot be waited for: the system has no event for it. */
static tri_status connect_patiently(int fd, const char *name, int64_t deadline_ns)
{
    struct sockaddr_un address;
    socklen_t length = abstract_address(name, &address);

    while (connect(fd, (struct sockaddr *)&address, length) != 0) {
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN)
            return TRII_FAIL(TRI_ERR_UNSUPPORTED, "unix socket %s: %s", name, strerror(errno));
        if (trii_deadline_left_ms(deadline_ns) == 0)
            return TRII_FAIL(TRI_ERR_TIMEOUT,
                             "unix socket %s: its queue of connections stays full "
                             "(net.core.somaxconn)",
                             name);
        trii_sleep_until(trii_now_ns() + FULL_QUEUE_PAUSE_NS);
    }
    return TRI_OK;
}

tri_status trii_unix_connect(const char *name, int64_t deadline_ns, int *fd_out)
{
    tri_status st;
    int fd;

    if (strlen(name) >= sizeof(((struct sockaddr_un *)NULL)->sun_path))
        return TRII_FAIL(TRI_ERR_FORMAT, "unix socket: name of %zu characters", strlen(name));
    fd = trii_fd_above_standard(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd < 0)
        return TRII_FAIL(TRI_ERR_IO, "unix socket: %s", strerror(errno));
    st = connect_patiently(fd, name, deadline_ns);
    if (st != TRI_OK) {
        close(fd);
        return st;
    }
    if (!trii_unix_is_ours(fd)) {
        close(fd);
        return TRII_FAIL(TRI_ERR_UNSUPPORTED, "unix socket %s belongs to another user", name);
    }
    *fd_out = fd;
    return TRI_OK;
}

/* Blocks until one of `events` is there. */
static tri_status wait_for(int fd, short events, int64_t deadline_ns)
{
    struct pollfd entry = {.fd = fd, .events = events};

    for (;;) {
        int left_ms = trii_deadline_left_ms(deadline_ns);
        int n = poll(&entry, 1, left_ms);

        if (n > 0)
            return TRI_OK;
        if (n == 0 && trii_deadline_left_ms(deadline_ns) == 0)
            return TRII_FAIL(TRI_ERR_TIMEOUT, "unix socket: no answer in time");
        if (n < 0 && errno != EINTR)
            return TRII_FAIL(TRI_ERR_IO, "poll: %s", strerror(errno));
    }
}

/* They may be many: once a second. */
static void complain_of_others(void)
{
    static _Atomic int64_t last_ns;
    int64_t now = trii_now_ns(), last = atomic_load(&last_ns);

    if ((last == 0 || now > last + TRII_NS_PER_S) &&
        atomic_compare_exchange_strong(&last_ns, &last, now))
        TRII_LOG(TRII_LOG_WARN, "os", "refused a connection of another user");
}

tri_status trii_unix_accept(int listen_fd, int64_t deadline_ns, int *fd_out)
{
    for (;;) {
        int fd =
            trii_fd_above_standard(accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
        tri_status st;

        if (fd >= 0 && trii_unix_is_ours(fd)) {
            *fd_out = fd;
            return TRI_OK;
        }
        if (fd >= 0) {
            close(fd);
            complain_of_others();
            if (trii_deadline_left_ms(deadline_ns) == 0)
                return TRII_FAIL(TRI_ERR_TIMEOUT, "unix socket: only other users connected");
            continue;
        }
        if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
            return TRII_FAIL(TRI_ERR_IO, "accept: %s%s", strerror(errno),
                             trii_descriptors_hint(errno));
        st = wait_for(listen_fd, POLLIN, deadline_ns);
        if (st != TRI_OK)
            return st;
    }
}

void trii_unix_close(int fd)
{
    if (fd >= 0)
        close(fd);
}

tri_status trii_unix_send(int fd, const void *data, size_t bytes, int pass_fd, int64_t deadline_ns)
{
    size_t sent = 0;

    while (sent < bytes) {
        _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
        /* sendmsg does not write through it */
        struct iovec part = {.iov_base = (char *)(uintptr_t)data + sent, .iov_len = bytes - sent};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
        ssize_t n;

        if (pass_fd >= 0 && sent == 0) {
            struct cmsghdr *header = (struct cmsghdr *)control;

            header->cmsg_level = SOL_SOCKET;
            header->cmsg_type = SCM_RIGHTS;
            header->cmsg_len = CMSG_LEN(sizeof(int));
            memcpy(CMSG_DATA(header), &pass_fd, sizeof(pass_fd));
            message.msg_control = control;
            message.msg_controllen = sizeof(control);
        }
        n = sendmsg(fd, &message, MSG_NOSIGNAL);
        if (n > 0) {
            sent += (size_t)n;
        } else if (errno == EAGAIN) {
            tri_status st = wait_for(fd, POLLOUT, deadline_ns);

            if (st != TRI_OK)
                return st;
        } else if (errno == EPIPE || errno == ECONNRESET) {
            return TRII_FAIL(TRI_ERR_PEER_LOST, "unix socket: the peer closed it");
        } else if (errno != EINTR) {
            return TRII_FAIL(TRI_ERR_IO, "unix socket: %s", strerror(errno));
        }
    }
    return TRI_OK;
}

/* Takes the descriptors out of a message: the first is kept, others are closed. */
static void take_descriptors(struct msghdr *message, int *passed_fd)
{
    for (struct cmsghdr *h = CMSG_FIRSTHDR(message); h != NULL; h = CMSG_NXTHDR(message, h)) {
        size_t n = h->cmsg_len > CMSG_LEN(0) ? (h->cmsg_len - CMSG_LEN(0)) / sizeof(int) : 0;

        if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t i = 0; i < n; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(h) + i * sizeof(int), sizeof(fd));
            if (*passed_fd < 0)
                *passed_fd = trii_fd_above_standard(fd);
            else
                close(fd);
        }
    }
}

tri_status trii_unix_recv(int fd, void *data, size_t bytes, int *passed_fd_out, int64_t deadline_ns)
{
    int passed_fd = -1;
    size_t got = 0;
    tri_status st = TRI_OK;

    while (got < bytes && st == TRI_OK) {
        _Alignas(struct cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))];
        struct iovec part = {.iov_base = (char *)data + got, .iov_len = bytes - got};
        struct msghdr message = {.msg_iov = &part,
                                 .msg_iovlen = 1,
                                 .msg_control = control,
                                 .msg_controllen = sizeof(control)};
        ssize_t n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);

        if (n > 0) {
            take_descriptors(&message, &passed_fd);
            got += (size_t)n;
        } else if (n == 0 || errno == ECONNRESET) {
            st = TRII_FAIL(TRI_ERR_PEER_LOST, "unix socket: the peer closed it");
        } else if (errno == EAGAIN) {
            st = wait_for(fd, POLLIN, deadline_ns);
        } else if (errno != EINTR) {
            st = TRII_FAIL(TRI_ERR_IO, "unix socket: %s", strerror(errno));
        }
    }
    if (st == TRI_OK && passed_fd_out != NULL) {
        *passed_fd_out = passed_fd;
        return TRI_OK;
    }
    if (passed_fd >= 0)
        close(passed_fd);
    return st;
}

int trii_unix_peek(int fd, void *data, size_t bytes)
{
    ssize_t n = recv(fd, data, bytes, MSG_PEEK | MSG_DONTWAIT);

    if (n > 0)
        return (int)n;
    return n < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
}

void trii_unix_shutdown(int fd)
{
    if (fd >= 0)
        (void)shutdown(fd, SHUT_RDWR);
}

int trii_unix_peer_process(int fd)
{
    struct ucred peer = {0};
    socklen_t length = sizeof(peer);
    int pidfd = -1;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0)
        peer.pid = 0;
    if (peer.pid == getpid())
        return -1;
    length = sizeof(pidfd);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &length) != 0)
        pidfd = peer.pid > 0 ? (int)syscall(SYS_pidfd_open, peer.pid, 0) : -1;
    if (pidfd >= 0)
        (void)fcntl(pidfd, F_SETFD, FD_CLOEXEC);
    return trii_fd_above_standard(pidfd);
}
