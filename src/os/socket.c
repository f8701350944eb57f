/*
 * socket.c - see socket.h.
 */
/* build: leaf */
#include "os/socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/err.h"
#include "os/clock.h"
#include "os/descriptor.h"
#include "os/host.h"
#include "os/limits.h"
#include "os/unix.h"

#define MAX_SPANS 16
#define MAX_SHARE_NS (3 * TRII_NS_PER_S) /* of one address while others wait for their turn */

#define UNSENT_BYTES (256 << 10)

static void set_flag(int fd, int level, int name, int value)
{
    /* Best effort: a socket without it works. */
    (void)setsockopt(fd, level, name, &value, sizeof(value));
}

static void tune(int fd)
{
    static const char congestion[] = "cubic";

    set_flag(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    /* What waits unsent is sent when acknowledgements come, on the core where they come: between
     * processes of one host it overtakes what the sender's core sends, which the receiver takes
     * for losses. */
    set_flag(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, UNSENT_BYTES);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, congestion, sizeof(congestion) - 1);
}

static void address_text(const struct sockaddr *addr, char host[TRII_ADDR_TEXT], int *port_out)
{
    struct sockaddr_in in;
    struct sockaddr_in6 in6;

    snprintf(host, TRII_ADDR_TEXT, "unconnected");
    *port_out = 0;
    if (addr->sa_family == AF_INET) {
        memcpy(&in, addr, sizeof(in));
        inet_ntop(AF_INET, &in.sin_addr, host, TRII_ADDR_TEXT);
        *port_out = ntohs(in.sin_port);
    } else if (addr->sa_family == AF_INET6) {
        memcpy(&in6, addr, sizeof(in6));
        *port_out = ntohs(in6.sin6_port);
        if (IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr))
            inet_ntop(AF_INET, &in6.sin6_addr.s6_addr[12], host, TRII_ADDR_TEXT);
        else
            inet_ntop(AF_INET6, &in6.sin6_addr, host, TRII_ADDR_TEXT);
    }
}

/* "localhost" is this host whatever a name service says (RFC 6761, 6.3): a container may lack
 * /etc/hosts, and a network may lack the service. */
static tri_status resolve(const char *host, int port, int flags, struct addrinfo **list_out)
{
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV};
    char service[16];
    int error;

    snprintf(service, sizeof(service), "%d", port);
    if (host != NULL && strcasecmp(host, "localhost") == 0) {
        hints.ai_flags &= ~AI_PASSIVE; /* without a host that means all interfaces */
        host = NULL;
    }
    error = getaddrinfo(host, service, &hints, list_out);
    if (error != 0)
        return TRII_FAIL(TRI_ERR_NOT_FOUND, "host %s port %d: %s",
                         host != NULL ? host : "localhost", port,
                         error == EAI_SYSTEM ? strerror(errno) : gai_strerror(error));
    return TRI_OK;
}

static tri_status bound_port(int fd, int *port_out)
{
    struct sockaddr_storage addr = {0};
    socklen_t bytes = sizeof(addr);
    char host[TRII_ADDR_TEXT];

    if (getsockname(fd, (struct sockaddr *)&addr, &bytes) != 0 ||
        (addr.ss_family != AF_INET && addr.ss_family != AF_INET6))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "descriptor %d is not an internet socket", fd);
    address_text((const struct sockaddr *)&addr, host, port_out);
    return TRI_OK;
}

static int stream_socket(int family)
{
    return trii_fd_above_standard(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

/* Returns the descriptor or a negative errno. */
static int listen_at(const struct sockaddr *addr, socklen_t bytes)
{
    int fd = stream_socket(addr->sa_family);
    int error;

    if (fd < 0)
        return -errno;
    set_flag(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    if (addr->sa_family == AF_INET6)
        set_flag(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    if (bind(fd, addr, bytes) == 0 && listen(fd, SOMAXCONN) == 0)
        return fd;
    error = errno;
    close(fd);
    return -error;
}

static int listen_everywhere(int port)
{
    const struct sockaddr_in6 any6 = {
        .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port), .sin6_addr = in6addr_any};
    const struct sockaddr_in any4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = listen_at((const struct sockaddr *)&any6, sizeof(any6));

    if (fd < 0 && fd != -EADDRINUSE)
        fd = listen_at((const struct sockaddr *)&any4, sizeof(any4));
    return fd;
}

tri_status trii_socket_listen(const char *host, int port, int *fd_out, int *port_out)
{
    const char *shown = host != NULL ? host : "all interfaces";
    struct addrinfo *list = NULL;
    tri_status status;
    int fd = -EINVAL;

    if (host != NULL && host[0] == '@') {
        status = trii_unix_listen_as(host + 1, fd_out);
        if (status == TRI_OK)
            *port_out = 0;
        return status;
    }
    if (port < 0 || port > 65535)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "port %d is outside 0 to 65535", port);
    if (host == NULL) {
        fd = listen_everywhere(port);
    } else {
        if (strcasecmp(host, "localhost") == 0)
            host = "127.0.0.1";
        status = resolve(host, port, AI_PASSIVE, &list);
        if (status != TRI_OK)
            return TRII_FAIL_CTX(status, "listen");
        for (struct addrinfo *a = list; a != NULL && fd < 0; a = a->ai_next)
            fd = listen_at(a->ai_addr, a->ai_addrlen);
        freeaddrinfo(list);
    }
    if (fd < 0)
        return TRII_FAIL(fd == -EADDRINUSE ? TRI_ERR_STATE : TRI_ERR_IO, "listen on %s port %d: %s",
                         shown, port, strerror(-fd));
    status = bound_port(fd, port_out);
    if (status != TRI_OK) {
        close(fd);
        return status;
    }
    *fd_out = fd;
    return TRI_OK;
}

tri_status trii_socket_adopt(int fd, int *port_out)
{
    int listening = 0;
    socklen_t bytes = sizeof(listening);
    int flags = fcntl(fd, F_GETFL);

    if (flags < 0 || getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &bytes) != 0 ||
        listening == 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "descriptor %d is not a listening socket", fd);
    (void)fcntl(fd, F_SETFL, flags | O_NONBLOCK);
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    return bound_port(fd, port_out);
}

tri_status trii_socket_accept(int listen_fd, int *fd_out)
{
    int fd = trii_fd_above_standard(accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));

    if (fd >= 0) {
        if (trii_unix_is_unix(fd) && !trii_unix_is_ours(fd)) {
            close(fd); /* another user's process */
            return TRI_INPROGRESS;
        }
        tune(fd);
        *fd_out = fd;
        return TRI_OK;
    }
    switch (errno) {
    case EAGAIN:
    case EINTR:
    case ECONNABORTED: /* gone again before we came */
        return TRI_INPROGRESS;
    default:
        return TRII_FAIL(TRI_ERR_IO, "accept: %s%s", strerror(errno), trii_descriptors_hint(errno));
    }
}

/* Returns the descriptor or a negative errno (ETIMEDOUT: silent until the deadline). */
static int connect_to(const struct addrinfo *a, int64_t deadline_ns)
{
    int fd = stream_socket(a->ai_family);
    struct pollfd poller = {.fd = fd, .events = POLLOUT};
    socklen_t bytes = sizeof(int);
    int error = 0, found;

    if (fd < 0)
        return -errno;
    tune(fd);
    if (connect(fd, a->ai_addr, a->ai_addrlen) == 0)
        return fd;
    error = errno;
    if (error == EINPROGRESS || error == EINTR) {
        do
            found = poll(&poller, 1, trii_deadline_left_ms(deadline_ns));
        while (found < 0 && errno == EINTR);
        error = ETIMEDOUT;
        if (found > 0 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0 && error == 0)
            return fd;
    }
    close(fd);
    return -error;
}

/* A port in the ephemeral range can be connected to itself when nobody listens there. */
static bool is_self_connection(int fd)
{
    struct sockaddr_storage ours = {0}, theirs = {0};
    socklen_t ours_bytes = sizeof(ours), theirs_bytes = sizeof(theirs);

    return getsockname(fd, (struct sockaddr *)&ours, &ours_bytes) == 0 &&
           getpeername(fd, (struct sockaddr *)&theirs, &theirs_bytes) == 0 &&
           ours_bytes == theirs_bytes && memcmp(&ours, &theirs, ours_bytes) == 0;
}

static tri_status connect_status(int error)
{
    switch (error) {
    case ETIMEDOUT:
        return TRI_ERR_TIMEOUT;
    case ECONNREFUSED:
    case ECONNRESET:
        return TRI_ERR_PEER_LOST;
    default:
        return TRI_ERR_IO;
    }
}

/* One round over all addresses of the host, which share the time that is left. */
static tri_status connect_host(const char *host, int port, int64_t deadline_ns, int *fd_out)
{
    struct addrinfo *list = NULL;
    tri_status status = resolve(host, port, 0, &list);
    int left = 0, fd = -EHOSTUNREACH;

    if (status != TRI_OK)
        return status;
    for (const struct addrinfo *a = list; a != NULL; a = a->ai_next)
        left++;
    for (const struct addrinfo *a = list; a != NULL && fd < 0; a = a->ai_next, left--) {
        int64_t now = trii_now_ns();
        int64_t share =
            deadline_ns == TRII_NO_DEADLINE ? deadline_ns : now + (deadline_ns - now) / left;

        if (left > 1 && share - now > MAX_SHARE_NS)
            share = now + MAX_SHARE_NS;
        fd = connect_to(a, share);
        if (fd >= 0 && is_self_connection(fd)) {
            close(fd);
            fd = -ECONNREFUSED;
        }
    }
    freeaddrinfo(list);
    if (fd < 0)
        return TRII_FAIL(connect_status(-fd), "host %s port %d: %s", host, port,
                         fd == -ETIMEDOUT ? "no answer" : strerror(-fd));
    *fd_out = fd;
    return TRI_OK;
}

/* One round over the hosts of "a,b,c", which share the time that is left: a silent one must not
 * hide those after it. The first failure is the one that is told. */
static tri_status connect_once(const char *hosts, int port, int64_t deadline_ns, int *fd_out)
{
    tri_status first = TRI_OK;
    char why[TRII_ERR_BYTES] = "";
    int left = 1;

    if (hosts[0] == '@')
        return trii_unix_connect(hosts + 1, deadline_ns, fd_out);
    for (const char *c = hosts; *c != '\0'; c++)
        left += *c == ',';
    while (left > 0) {
        size_t length = strcspn(hosts, ",");
        int64_t now = trii_now_ns(), share = deadline_ns;
        char host[256];
        tri_status status;

        if (left > 1 && deadline_ns != TRII_NO_DEADLINE)
            share = now + (deadline_ns - now) / left;
        if (left > 1 && share - now > MAX_SHARE_NS)
            share = now + MAX_SHARE_NS;
        snprintf(host, sizeof(host), "%.*s", (int)length, hosts);
        status = connect_host(host, port, share, fd_out);
        if (status == TRI_OK)
            return TRI_OK;
        if (first == TRI_OK) {
            first = status;
            snprintf(why, sizeof(why), "%s", tri_last_error());
        }
        hosts += length + (hosts[length] == ',');
        left--;
    }
    return TRII_FAIL(first, "%s", why);
}

tri_status trii_socket_connect(const char *host, int port, int64_t deadline_ns, bool retry,
                               int *fd_out)
{
    int64_t start = trii_now_ns(), pause = 2 * TRII_NS_PER_MS;

    if (host[0] != '@' && (port < 1 || port > 65535))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "connect to %s: port %d is outside 1 to 65535", host,
                         port);
    for (;;) {
        tri_status status = connect_once(host, port, deadline_ns, fd_out);
        int64_t now = trii_now_ns();

        if (status == TRI_OK)
            return TRI_OK;
        if (!retry)
            return TRII_FAIL_CTX(status, "connect");
        if (now >= deadline_ns)
            return TRII_FAIL_CTX(TRI_ERR_TIMEOUT, "connect: gave up after %.1f s",
                                 (double)(now - start) / (double)TRII_NS_PER_S);
        trii_sleep_until(deadline_ns - now < pause ? deadline_ns : now + pause);
        pause = pause * 3 / 2 < TRII_NS_PER_S / 2 ? pause * 3 / 2 : TRII_NS_PER_S / 2;
    }
}

void trii_socket_prefer(int fd)
{
    set_flag(fd, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, 1);
    set_flag(fd, IPPROTO_IP, IP_TOS, IPTOS_LOWDELAY);
    set_flag(fd, IPPROTO_IPV6, IPV6_TCLASS, IPTOS_LOWDELAY);
}

/* TCP_USER_TIMEOUT would also break the connection of a process that does not read for long. */
void trii_socket_keep_alive(int fd)
{
    enum { IDLE_S = 30, BETWEEN_S = 10, PROBES = 4 };

    set_flag(fd, IPPROTO_TCP, TCP_KEEPIDLE, IDLE_S);
    set_flag(fd, IPPROTO_TCP, TCP_KEEPINTVL, BETWEEN_S);
    set_flag(fd, IPPROTO_TCP, TCP_KEEPCNT, PROBES);
    set_flag(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
}

void trii_socket_close(int fd)
{
    if (fd >= 0)
        close(fd);
}

void trii_socket_shutdown(int fd)
{
    (void)shutdown(fd, SHUT_WR); /* fails only if the connection is gone already */
}

void trii_socket_sever(int fd, bool half)
{
    if (fd >= 0)
        (void)shutdown(fd, half ? SHUT_WR : SHUT_RDWR);
}

bool trii_socket_health_get(int fd, trii_socket_health *health_out)
{
    struct tcp_info info;
    socklen_t size = sizeof(info);
    int queued = 0;

    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 ||
        ioctl(fd, SIOCOUTQ, &queued) != 0)
        return false;
    *health_out = (trii_socket_health){.owed = queued > 0,
                                       .last_ack_ms = info.tcpi_last_ack_recv,
                                       .unanswered_probes = info.tcpi_probes,
                                       .full = queued > 0 && info.tcpi_unacked == 0,
                                       .last_data_ms = info.tcpi_last_data_recv};
    return true;
}

bool trii_socket_is_local(int fd)
{
    struct sockaddr_storage ours = {0}, theirs = {0};
    socklen_t our_size = sizeof(ours), their_size = sizeof(theirs);
    char our_host[TRII_ADDR_TEXT], their_host[TRII_ADDR_TEXT];
    int port;

    if (getsockname(fd, (struct sockaddr *)&ours, &our_size) != 0 ||
        getpeername(fd, (struct sockaddr *)&theirs, &their_size) != 0)
        return true;
    address_text((struct sockaddr *)&ours, our_host, &port);
    address_text((struct sockaddr *)&theirs, their_host, &port);
    return strcmp(our_host, their_host) == 0;
}

void trii_socket_close_linger(int fd, int linger_s)
{
    const struct linger linger = {.l_onoff = 1, .l_linger = linger_s};

    if (fd < 0)
        return;
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
    close(fd);
}

static tri_status io_failure(int fd, const char *what, int error)
{
    char peer[TRII_ADDR_TEXT];

    switch (error) {
    case EAGAIN:
    case EINTR:
        return TRI_INPROGRESS;
    case EPIPE:
    case ECONNRESET:
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ENOTCONN:
        trii_socket_peer_text(fd, peer);
        return TRII_FAIL(TRI_ERR_PEER_LOST, "%s %s: %s", what, peer, strerror(error));
    default:
        trii_socket_peer_text(fd, peer);
        return TRII_FAIL(TRI_ERR_IO, "%s %s: %s", what, peer, strerror(error));
    }
}

tri_status trii_socket_send(int fd, const trii_span *spans, int n_spans, size_t *sent_out)
{
    struct iovec parts[MAX_SPANS];
    struct msghdr message = {.msg_iov = parts};
    ssize_t sent;

    for (int i = 0; i < n_spans && i < MAX_SPANS; i++) {
        memcpy(&parts[i].iov_base, &spans[i].data, sizeof(void *)); /* iovec knows no const */
        parts[i].iov_len = spans[i].bytes;
        message.msg_iovlen++;
    }
    sent = sendmsg(fd, &message, MSG_NOSIGNAL);
    if (sent < 0)
        return io_failure(fd, "send to", errno);
    *sent_out = (size_t)sent;
    return TRI_OK;
}

tri_status trii_socket_recv(int fd, void *buf, size_t bytes, size_t *got_out)
{
    ssize_t got = recv(fd, buf, bytes, 0);

    if (got < 0)
        return io_failure(fd, "receive from", errno);
    if (got == 0 && bytes > 0)
        return TRI_END;
    *got_out = (size_t)got;
    return TRI_OK;
}

tri_status trii_socket_wait(int fd, unsigned events, int64_t deadline_ns)
{
    unsigned ready;
    char peer[TRII_ADDR_TEXT];

    if (trii_socket_poll(&fd, &events, &ready, 1, deadline_ns) > 0)
        return TRI_OK;
    trii_socket_peer_text(fd, peer);
    return TRII_FAIL(TRI_ERR_TIMEOUT, "no answer from %s", peer);
}

tri_status trii_socket_send_all(int fd, const void *data, size_t bytes, int64_t deadline_ns)
{
    const char *p = data;
    size_t done = 0, sent = 0;

    while (done < bytes) {
        tri_status status = trii_socket_send(fd, &(trii_span){p + done, bytes - done}, 1, &sent);

        if (status == TRI_INPROGRESS)
            status = trii_socket_wait(fd, TRII_WRITABLE, deadline_ns);
        else
            done += status == TRI_OK ? sent : 0;
        if (status != TRI_OK)
            return status;
    }
    return TRI_OK;
}

tri_status trii_socket_recv_all(int fd, void *buf, size_t bytes, int64_t deadline_ns)
{
    char *p = buf;
    size_t done = 0, got = 0;

    while (done < bytes) {
        tri_status status = trii_socket_recv(fd, p + done, bytes - done, &got);

        if (status == TRI_INPROGRESS)
            status = trii_socket_wait(fd, TRII_READABLE, deadline_ns);
        else
            done += status == TRI_OK ? got : 0;
        if (status != TRI_OK)
            return status;
    }
    return TRI_OK;
}

int trii_socket_poll(const int *fds, const unsigned *events, unsigned *ready, int n,
                     int64_t deadline_ns)
{
    struct pollfd pollers[TRII_POLL_MAX];
    int found;

    if (n > TRII_POLL_MAX)
        n = TRII_POLL_MAX;
    for (int i = 0; i < n; i++) {
        pollers[i].fd = fds[i];
        pollers[i].revents = 0;
        pollers[i].events = (short)((events[i] & TRII_READABLE ? POLLIN : 0) |
                                    (events[i] & TRII_WRITABLE ? POLLOUT : 0) |
                                    (events[i] & TRII_HANGUP ? POLLRDHUP : 0));
    }
    do
        found = poll(pollers, (nfds_t)n, trii_deadline_left_ms(deadline_ns));
    while (found < 0 && errno == EINTR);
    for (int i = 0; i < n; i++) {
        short r = pollers[i].revents;

        ready[i] = (r & POLLIN ? TRII_READABLE : 0) | (r & POLLOUT ? TRII_WRITABLE : 0) |
                   (r & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL) ? TRII_HANGUP : 0);
    }
    return found > 0 ? found : 0;
}

void trii_socket_peer_text(int fd, char text[TRII_ADDR_TEXT])
{
    struct sockaddr_storage addr = {0};
    socklen_t bytes = sizeof(addr);
    char host[TRII_ADDR_TEXT];
    int port;

    if (getpeername(fd, (struct sockaddr *)&addr, &bytes) != 0)
        addr.ss_family = AF_UNSPEC;
    address_text((const struct sockaddr *)&addr, host, &port);
    if (port == 0)
        snprintf(text, TRII_ADDR_TEXT, "%s", host);
    else
        snprintf(text, TRII_ADDR_TEXT, "%s port %d", host, port);
}

tri_status trii_socket_local_host(int fd, char host_out[TRII_ADDR_TEXT])
{
    struct sockaddr_storage addr = {0};
    socklen_t bytes = sizeof(addr);
    int port;

    if (getsockname(fd, (struct sockaddr *)&addr, &bytes) != 0)
        return TRII_FAIL(TRI_ERR_IO, "own address: %s", strerror(errno));
    address_text((const struct sockaddr *)&addr, host_out, &port);
    return TRI_OK;
}

bool trii_socket_is_loopback(const char *host)
{
    struct in6_addr v6;
    struct in_addr v4;

    if (strcasecmp(host, "localhost") == 0 || host[0] == '@')
        return true;
    if (inet_aton(host, &v4) != 0) /* which knows "127.1", as the resolver */
        return ntohl(v4.s_addr) >> 24 == 127;
    return inet_pton(AF_INET6, host, &v6) == 1 &&
           (IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127));
}

void trii_socket_network_id(char text_out[96])
{
    char boot[40], link[48];
    ssize_t bytes = readlink("/proc/self/ns/net", link, sizeof(link) - 1);

    trii_boot_id(boot);
    link[bytes > 0 ? bytes : 0] = '\0';
    snprintf(text_out, 96, "%s %s", boot, link);
}

int trii_socket_addresses(char (*hosts)[TRII_ADDR_TEXT], int max)
{
    static const sa_family_t families[] = {AF_INET, AF_INET6};
    struct ifaddrs *list = NULL;
    int n = 0, port;

    if (getifaddrs(&list) != 0)
        return 0;
    for (size_t f = 0; f < TRII_COUNT_OF(families); f++) {
        for (const struct ifaddrs *i = list; i != NULL && n < max; i = i->ifa_next) {
            if (i->ifa_addr == NULL || i->ifa_addr->sa_family != families[f] ||
                !(i->ifa_flags & IFF_UP) || (i->ifa_flags & IFF_LOOPBACK))
                continue;
            address_text(i->ifa_addr, hosts[n], &port);
            /* link-local addresses mean nothing without their interface */
            if (strncmp(hosts[n], "fe80:", 5) != 0 && strncmp(hosts[n], "169.254.", 8) != 0)
                n++;
        }
    }
    freeifaddrs(list);
    return n;
}
