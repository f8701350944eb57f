/*
 * shared_file.c - see shared_file.h.
 */
/* build: leaf */
#include "os/shared_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/err.h"
#include "os/clock.h"
#include "os/descriptor.h"

#define MAX_SPANS 8

static tri_status fail(const char *what, const char *path)
{
    return TRII_FAIL(errno == ENOENT || errno == ENOTDIR ? TRI_ERR_NOT_FOUND : TRI_ERR_IO,
                     "cannot %s %s: %s", what, path, strerror(errno));
}

tri_status trii_shared_file_open(const char *path, bool create, int *fd_out)
{
    /* not blocking: it may be a FIFO */
    int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | (create ? O_CREAT : 0);
    int fd = trii_fd_above_standard(open(path, flags, 0600));
    struct stat st;
    tri_status status = TRI_OK;

    if (fd < 0 && errno == ELOOP)
        return TRII_FAIL(TRI_ERR_IO, "%s is a symbolic link, which another user may have put there",
                         path);
    if (fd < 0)
        return fail("open", path);
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        status = TRII_FAIL(TRI_ERR_IO, "%s is not a regular file", path);
    else if (st.st_uid != geteuid() && st.st_uid != 0)
        status = TRII_FAIL(TRI_ERR_IO,
                           "%s belongs to user %u, who could change what is read from it, not to "
                           "user %u",
                           path, (unsigned)st.st_uid, (unsigned)geteuid());
    if (status != TRI_OK) {
        close(fd);
        return status;
    }
    *fd_out = fd;
    return TRI_OK;
}

void trii_shared_file_close(int fd)
{
    if (fd >= 0)
        close(fd);
}

/* Attempts instead of a blocking call, which knows no deadline: a holder may be stopped. */
tri_status trii_shared_file_lock(int fd, const char *path, bool exclusive, int64_t deadline_ns)
{
    int64_t pause = 50 * TRII_NS_PER_MS / 1000;

    for (;;) {
        int64_t now;

        if (flock(fd, (exclusive ? LOCK_EX : LOCK_SH) | LOCK_NB) == 0)
            return TRI_OK;
        if (errno != EWOULDBLOCK && errno != EINTR)
            return fail("lock", path);
        now = trii_now_ns();
        if (now >= deadline_ns)
            return TRII_FAIL(TRI_ERR_TIMEOUT,
                             "%s: another process holds its lock and does not give it back", path);
        trii_sleep_until(deadline_ns - now < pause ? deadline_ns : now + pause);
        pause = pause < 2 * TRII_NS_PER_MS ? pause * 3 / 2 : pause;
    }
}

void trii_shared_file_unlock(int fd)
{
    if (fd >= 0)
        (void)flock(fd, LOCK_UN); /* fails only on what is not a file */
}

bool trii_shared_file_is_at(int fd, const char *path)
{
    struct stat ours, there;

    return fstat(fd, &ours) == 0 && stat(path, &there) == 0 && ours.st_ino == there.st_ino &&
           ours.st_dev == there.st_dev;
}

bool trii_shared_file_same(int fd, int other_fd)
{
    struct stat a, b;

    return fd >= 0 && other_fd >= 0 && fstat(fd, &a) == 0 && fstat(other_fd, &b) == 0 &&
           a.st_ino == b.st_ino && a.st_dev == b.st_dev;
}

tri_status trii_shared_file_size(int fd, const char *path, uint64_t *bytes_out)
{
    struct stat st;

    if (fstat(fd, &st) != 0)
        return fail("read", path);
    *bytes_out = (uint64_t)st.st_size;
    return TRI_OK;
}

tri_status trii_shared_file_read(int fd, const char *path, uint64_t offset, void *data,
                                 size_t bytes, size_t *got_out)
{
    char *p = data;
    size_t done = 0;

    while (done < bytes) {
        ssize_t n = pread(fd, p + done, bytes - done, (off_t)(offset + done));

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fail("read", path);
        if (n == 0)
            break;
        done += (size_t)n;
    }
    *got_out = done;
    return TRI_OK;
}

tri_status trii_shared_file_write(int fd, const char *path, uint64_t offset, const trii_span *spans,
                                  int n_spans)
{
    struct iovec parts[MAX_SPANS];
    uint64_t at = offset;
    int first = 0;

    for (int i = 0; i < n_spans; i++) {
        memcpy(&parts[i].iov_base, &spans[i].data, sizeof(void *)); /* iovec knows no const */
        parts[i].iov_len = spans[i].bytes;
    }
    for (;;) {
        ssize_t n;

        while (first < n_spans && parts[first].iov_len == 0)
            first++;
        if (first == n_spans)
            return TRI_OK;
        n = pwritev(fd, parts + first, n_spans - first, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            int error = n < 0 ? errno : ENOSPC;

            if (ftruncate(fd, (off_t)offset) != 0) {
                /* readers meet a torn record, which they know how to take */
            }
            return TRII_FAIL(TRI_ERR_IO, "cannot write %s: %s", path, strerror(error));
        }
        at += (uint64_t)n;
        for (; first < n_spans && (size_t)n >= parts[first].iov_len; first++)
            n -= (ssize_t)parts[first].iov_len;
        if (first < n_spans) {
            parts[first].iov_base = (char *)parts[first].iov_base + n;
            parts[first].iov_len -= (size_t)n;
        }
    }
}

tri_status trii_shared_file_cut(int fd, const char *path, uint64_t bytes)
{
    return ftruncate(fd, (off_t)bytes) == 0 ? TRI_OK : fail("cut", path);
}

tri_status trii_shared_file_remove(const char *path)
{
    return unlink(path) == 0 || errno == ENOENT ? TRI_OK : fail("remove", path);
}
