/*
 * failing_calls.c - system calls at their worst, for a program that loads this first (LD_PRELOAD):
 * reads and writes are interrupted and move less than they were asked to, as a seed chooses
 * (TRI_TEST_CALLS_SEED), and the disk of a program may fill up or break (TRI_TEST_CALLS_DISK: the
 * error of every write to a file from one on that the seed chooses). Nothing that a kernel
 * could not do: a pipe takes small pieces whole, an eventfd its number. Tests only.
 */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static _Atomic uint64_t calls, file_writes;

/* splitmix64 of the seed and the number of the call. */
static uint64_t draw(void)
{
    static _Atomic uint64_t seed;
    uint64_t h = atomic_load(&seed);

    if (h == 0) {
        const char *text = getenv("TRI_TEST_CALLS_SEED");

        h = text != NULL ? strtoull(text, NULL, 10) * UINT64_C(0x2545f4914f6cdd1d) + 1 : 1;
        atomic_store(&seed, h);
    }
    h += atomic_fetch_add(&calls, 1) * UINT64_C(0x9e3779b97f4a7c15);
    h = (h ^ (h >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    h = (h ^ (h >> 27)) * UINT64_C(0x94d049bb133111eb);
    return h ^ (h >> 31);
}

/* Whether a signal comes first; else how much the call may move. */
static int is_interrupted(size_t *bytes)
{
    uint64_t d = draw();

    if (d % 16 == 0) {
        errno = EINTR;
        return 1;
    }
    if (d % 16 < 5 && *bytes > 1)
        *bytes = 1 + (size_t)(d >> 8) % *bytes;
    return 0;
}

typedef enum kind { OTHER, FILES, PIPE } kind;

static kind kind_of(int fd)
{
    struct stat st;

    if (fstat(fd, &st) != 0)
        return OTHER;
    return S_ISREG(st.st_mode) ? FILES : S_ISFIFO(st.st_mode) ? PIPE : OTHER;
}

/* The disk's error for one more write to a file; 0 = it goes well. */
static int disk_error(void)
{
    const char *error = getenv("TRI_TEST_CALLS_DISK"), *seed = getenv("TRI_TEST_CALLS_SEED");
    uint64_t from = seed != NULL ? strtoull(seed, NULL, 10) % 12 : 0;

    if (error == NULL || atomic_fetch_add(&file_writes, 1) < from)
        return 0;
    return (int)strtol(error, NULL, 10);
}

ssize_t read(int fd, void *buf, size_t n)
{
    size_t most = n;

    if (kind_of(fd) != OTHER && is_interrupted(&most))
        return -1;
    return syscall(SYS_read, fd, buf, most);
}

ssize_t write(int fd, const void *buf, size_t n)
{
    kind k = kind_of(fd);
    size_t most = n;

    if (k == FILES && (errno = disk_error()) != 0)
        return -1;
    if (k != OTHER && is_interrupted(&most))
        return -1;
    return syscall(SYS_write, fd, buf, k == PIPE && n <= PIPE_BUF ? n : most);
}

ssize_t recv(int fd, void *buf, size_t n, int flags)
{
    struct pollfd ended = {.fd = fd, .events = POLLRDHUP};
    size_t most = n;

    /* what came before an end is there with it: no system says that it is not */
    if (poll(&ended, 1, 0) == 0 && is_interrupted(&most))
        return -1;
    return syscall(SYS_recvfrom, fd, buf, most, flags, NULL, NULL);
}

ssize_t send(int fd, const void *buf, size_t n, int flags)
{
    size_t most = n;

    if (is_interrupted(&most))
        return -1;
    return syscall(SYS_sendto, fd, buf, most, flags, NULL, 0);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    struct msghdr less = *message;
    struct iovec first;
    size_t most;

    if (message->msg_iovlen == 0 || message->msg_controllen != 0)
        return syscall(SYS_sendmsg, fd, message, flags);
    first = message->msg_iov[0];
    most = first.iov_len;
    if (is_interrupted(&most))
        return -1;
    if (most < first.iov_len) {
        first.iov_len = most;
        less.msg_iov = &first;
        less.msg_iovlen = 1;
    }
    return syscall(SYS_sendmsg, fd, &less, flags);
}
